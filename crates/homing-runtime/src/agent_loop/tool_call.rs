//! Carries out tool calls: permission, the record of their beginning, execution, the record of their result.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc};

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use homing_core::{
    fact::{CallRefusal, FailureKind, Outcome},
    hooks::HookCall,
    message::{Args, ToolCall},
    run::{CallState, TEXT_ANSWER, VERIFICATION},
    tool::{CallKey, Replay, Tool, ToolContext, ToolOutput},
    tool_names,
};
use serde_json::{Value, json};

use crate::{
    agent_loop::{
        Interrupt,
        active_run::ActiveRun,
        answer_schema,
        call_record::{CallError, CallRecorder, RefusedCall},
        permission::{CallPermissions, PermittedCall},
        run_driver::panic_message,
        tool_host::ToolHost,
    },
    delegation::{self, child_report},
    journal::Commit,
    on_demand,
    run_tools::{CallKind, call_kind},
    scheduler::{Scheduler, call_slot::CallSlot},
};

/// Carries out the tool calls of one run.
pub(crate) struct ToolCalls {
    run: Arc<ActiveRun>,
    scheduler: Arc<Scheduler>,
    recorder: CallRecorder,
    permissions: CallPermissions,
}

impl ToolCalls {
    pub(crate) fn new(run: Arc<ActiveRun>, scheduler: Arc<Scheduler>) -> Self {
        let recorder = CallRecorder::new(run.clone());
        let permissions = CallPermissions::new(run.clone(), scheduler.clone());
        Self { run, scheduler, recorder, permissions }
    }

    /// Carries out calls concurrently; all of them share one slot of the run.
    pub(crate) async fn call_all(&self, mut calls: Vec<CallState>) -> Result<(), Interrupt> {
        let slot = CallSlot::new(self.scheduler.clone());
        if calls.len() < 2 {
            return match calls.pop() {
                Some(state) => Box::pin(self.call_in(&slot, state)).await,
                None => Ok(()),
            };
        }
        let calls = stream::iter(calls).map(|state| Ok(self.call_in(&slot, state)));
        calls.try_buffer_unordered(self.run.config().max_tools).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    async fn call_in(&self, slot: &Arc<CallSlot>, state: CallState) -> Result<(), Interrupt> {
        slot.enter().await?;
        let called = self.call(slot, state).await;
        slot.leave().await;
        called
    }

    async fn call(&self, slot: &Arc<CallSlot>, state: CallState) -> Result<(), Interrupt> {
        let Some((name, args)) = self.recorder.resolve_or_refuse(&state) else { return Ok(()) };
        match call_kind(&name) {
            CallKind::Answer => {
                self.accept_answer(&state, args);
                return Ok(());
            }
            CallKind::Search => {
                if let Some(found) = self.search(&name, &args) {
                    self.recorder.returned(&state, &name, found, Some(CallRefusal::NoTool));
                    return Ok(());
                }
            }
            CallKind::Delegation | CallKind::Tool => (),
        }
        match self.carry_out(slot, &state, &name, args).await {
            Ok(output) => {
                self.recorder.returned(&state, &name, output, None);
                self.scheduler.check_stopped()
            }
            Err(CallError::Refused(refused)) => {
                self.recorder.refused(&state, &name, refused);
                Ok(())
            }
            Err(CallError::Interrupted(interrupt)) => Err(interrupt),
        }
    }

    /// Searches the tools that are offered on demand, or the agents. A tool of the host with the same name is not a search.
    fn search(&self, name: &str, args: &Value) -> Option<ToolOutput> {
        if self.run.runtime.tool(name).is_some() {
            return None;
        }
        if name == tool_names::FIND_TOOLS {
            return Some(on_demand::find_tools(&self.run.tools().on_demand, args));
        }
        let own = self.run.read(|run| run.spawned.authority.own.clone());
        let agents = self.run.runtime.delegates(&own).map(delegation::entry);
        Some(on_demand::find_agents(agents, args))
    }

    async fn carry_out(
        &self,
        slot: &Arc<CallSlot>,
        state: &CallState,
        name: &str,
        args: Value,
    ) -> Result<ToolOutput, CallError> {
        if let Some(text) = self.read_child_answer(name, &args) {
            self.recorder.begin(state, name, &Value::Null, Replay::Safe, "own descendants".to_owned()).await?;
            return Ok(ToolOutput::text(text));
        }
        let agent_tools = self.run.agent_tools();
        let agent_tool = agent_tools.iter().find(|tool| tool.spec().name == name).cloned();
        let Some(tool) = agent_tool.or_else(|| self.run.runtime.tool(name)) else {
            return Err(RefusedCall::mistake(format!("`{name}` is not available here")).into());
        };
        if state.begun == Some(Replay::Unsafe) {
            return Err(RefusedCall::outcome_unknown(name).into());
        }
        let host = Arc::new(ToolHost::new(&self.run, Some(slot.clone()), Some(state.call.clone())));
        let context = self.run.tool_context(state.key, host.clone());
        let PermittedCall { args, by, notes } = self.permissions.check(&*tool, &context, args).await?;
        let hooked = self.run.runtime.parts.hooks.as_ref().map(|hooks| (hooks, args.clone()));
        let begun = self.recorder.note_begin(state, name, &args, tool.spec().replay, by).await?;
        // Without an effect there is nothing that a crash could leave unknown: the next model call waits for both records, which
        // then share a commit.
        let may_wait = matches!(begun, Commit::Pending(_)) && tool.spec().only_reads() && hooked.is_none();
        if !may_wait {
            begun.await.map_err(Interrupt::Journal)?;
        }
        let output = with_notes(self.execute(&*tool, &context, args, &host).await?, notes);
        let Some((hooks, args)) = hooked else { return Ok(output) };
        let call = HookCall { tool: name.to_owned(), args };
        let notes = hooks.after_call(&self.run.hook_run(), &call, &output).await;
        Ok(with_notes(output, self.run.show_warnings(notes)))
    }

    /// Executes the tool. If the run must stop, or land because its time is nearly up, the tool has a grace period to return
    /// what it has.
    async fn execute(
        &self,
        tool: &dyn Tool,
        context: &ToolContext,
        args: Value,
        host: &ToolHost,
    ) -> Result<ToolOutput, Interrupt> {
        let work = AssertUnwindSafe(tool.call(context, args)).catch_unwind();
        tokio::pin!(work);
        let done = {
            let before_landing = pin!(self.scheduler.before_landing(&mut work));
            self.scheduler.working(before_landing).await
        };
        let done = match done {
            Ok(Some(done)) => done,
            Ok(None) | Err(_) => {
                host.stop().cancel();
                match tokio::time::timeout(self.run.config().grace, work).await {
                    Ok(done) => done,
                    Err(_) => return Ok(ToolOutput::error("stopped before it answered")),
                }
            }
        };
        done.map_err(|panic| {
            let message = format!("the tool `{}` panicked: {}", tool.spec().name, panic_message(&*panic));
            Interrupt::Failed(Outcome::failed(FailureKind::Panic, message))
        })
    }

    /// A valid answer ends the run; an invalid one is returned to the model with the problems found.
    fn accept_answer(&self, state: &CallState, args: Value) {
        let Some(schema) = self.run.read(|run| run.spawned.schema.clone()) else {
            let refused = RefusedCall::mistake("there is no tool `answer` here");
            return self.recorder.refused(state, tool_names::ANSWER, refused);
        };
        let output = match answer_schema::problems(&schema, &args) {
            None => accepted(args),
            Some(problems) => ToolOutput::error(format!("the answer does not match its schema: {problems}")),
        };
        self.recorder.returned(state, tool_names::ANSWER, output, Some(CallRefusal::NoTool));
    }

    /// Checks an answer that the model gave as text. The result is recorded as that of a call, so that a resumed run does
    /// not depend on the validator's version.
    pub(crate) fn check_text_answer(&self, value: Value) {
        let (schema, key) = self.run.read(|run| {
            let key = CallKey { run: run.id, turn: run.turn(), index: TEXT_ANSWER };
            (run.spawned.schema.clone(), key)
        });
        let output = match schema.and_then(|schema| answer_schema::problems(&schema, &value)) {
            None => accepted(value.clone()),
            Some(problems) => ToolOutput::error(problems),
        };
        let call = ToolCall { id: "text".to_owned(), name: tool_names::ANSWER.to_owned(), args: Args::Json(value) };
        let state = CallState::new(key, call.into(), None);
        self.recorder.returned(&state, tool_names::ANSWER, output, Some(CallRefusal::NoTool));
    }

    /// Reads part of a child's long answer: the path `run:PLACE` of the `read` tool.
    fn read_child_answer(&self, name: &str, args: &Value) -> Option<String> {
        let place = args.get("path").or_else(|| args.get("file_path"))?.as_str()?.strip_prefix("run:")?;
        (name == "read").then(|| {
            let number = |key: &str, default: u64| args.get(key).and_then(Value::as_u64).unwrap_or(default);
            let (offset, limit) = (number("offset", 1).max(1), number("limit", 400));
            child_report::read_answer(&self.run.tree, self.run.id(), place, offset, limit)
        })
    }

    /// Runs the user's own check. It needs no permission rule, and runs in the sandbox of the agent's commands.
    pub(crate) async fn verify(&self, command: String, begun: Option<Replay>) -> Result<(), Interrupt> {
        let key = self.run.read(|run| CallKey { run: run.id, turn: run.turn(), index: VERIFICATION });
        let args = json!({ "command": command });
        let call = ToolCall { id: "until".to_owned(), name: "bash".to_owned(), args: Args::Json(args.clone()) };
        let state = CallState::new(key, call.into(), begun);
        let Some(tool) = self.run.runtime.tool("bash") else {
            let message = "the `until` command needs the tool `bash`, which is not available here";
            return Err(Interrupt::Failed(Outcome::failed(FailureKind::Config, message)));
        };
        let _slot = self.scheduler.run_slot().await?;
        let output = match self.recorder.begin(&state, "bash", &args, Replay::Safe, "until".to_owned()).await {
            Ok(()) => {
                let host = Arc::new(ToolHost::new(&self.run, None, Some(state.call.clone())));
                let context = self.run.tool_context(key, host.clone());
                self.execute(&*tool, &context, args, &host).await?
            }
            Err(CallError::Refused(refused)) => ToolOutput::error(refused.text),
            Err(CallError::Interrupted(interrupt)) => return Err(interrupt),
        };
        let succeeded = output.data.as_ref().and_then(|data| data.get("exit_code")) == Some(&json!(0));
        let failed = output.is_error || !succeeded;
        let output = output.is_error(failed);
        self.recorder.returned(&state, "bash", output, None);
        self.scheduler.check_stopped()
    }
}

fn accepted(answer: Value) -> ToolOutput {
    ToolOutput::text("accepted".to_owned()).data(answer)
}

fn with_notes(mut output: ToolOutput, notes: Vec<String>) -> ToolOutput {
    for note in notes {
        output.text.push_str("\n\n");
        output.text.push_str(&note);
    }
    output
}
