//! Carrying out tool calls: may it be done, is there room for it, do it, and say what came of it.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use homing_core::{
    BoxFuture,
    authority::Decision,
    fact::{CallRefusal, Called, Fact, FailureKind, Outcome},
    hooks::{HookCall, HookDecision, HookNotes, HookRun},
    message::{Args, ToolCall, ToolResult},
    run::{CallState, VERIFICATION},
    tool::{Answer, CallHost, CallKey, Question, Replay, Tool, ToolContext, ToolOutput},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    agent_loop::{
        Interrupt,
        run_driver::{RunDriver, panic_words},
    },
    event::TransientKind,
    live_tree::{LiveRun, LiveTree},
    runtime::PermissionHandler,
};

/// A call that is not made, and why.
pub(crate) struct Refused {
    pub(crate) why: CallRefusal,
    pub(crate) text: String,
}

/// A call that may be made.
struct Allowed {
    args: Value,
    /// The rule or person that allows it.
    by: String,
    /// What hooks have to say to the model about it.
    notes: Vec<String>,
}

impl Refused {
    pub(crate) fn mistake(text: impl Into<String>) -> Self {
        Self { why: CallRefusal::Mistake, text: text.into() }
    }

    pub(crate) fn denied(text: impl Into<String>) -> Self {
        Self { why: CallRefusal::Denied, text: text.into() }
    }
}

impl RunDriver {
    /// Carries out calls side by side; the run has one slot for all of them.
    pub(crate) async fn call_tools(&self, calls: Vec<CallState>) -> Result<(), Interrupt> {
        if calls.is_empty() {
            return Ok(());
        }
        let _slot = self.slot().await?;
        let at_once = self.inner.parts.settings.max_tools;
        let calls = stream::iter(calls).map(|state| Ok(self.call_tool(state)));
        calls.try_buffer_unordered(at_once).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    async fn call_tool(&self, state: CallState) -> Result<(), Interrupt> {
        let (name, output) = match self.find(&state) {
            Err(refused) => return self.refuse(&state, &state.call.name, refused),
            Ok((name, args)) if name == "answer" => return self.take_answer(&state, args).await,
            Ok((name, args)) => match self.carry_out(&state, &name, args).await? {
                Ok(output) => (name, output),
                Err(refused) => return self.refuse(&state, &name, refused),
            },
        };
        self.record(Fact::Returned { key: state.key, result: result(&state, name, output), refused: None });
        self.check_stopped()
    }

    /// Our name for the tool, and arguments that are JSON.
    pub(crate) fn find(&self, state: &CallState) -> Result<(String, Value), Refused> {
        let kit = self.kit();
        let Some(spec) = kit.find(&state.call.name) else {
            let names: Vec<&str> = kit.toolbox.specs.iter().map(|spec| spec.name.as_str()).collect();
            return Err(Refused::mistake(format!(
                "there is no tool `{}` here; you have: {}",
                state.call.name,
                names.join(", ")
            )));
        };
        match &state.call.args {
            Args::Json(Value::Null) => Ok((spec.name.clone(), json!({}))),
            Args::Json(args @ Value::Object(_)) => Ok((spec.name.clone(), args.clone())),
            Args::Json(other) => {
                Err(Refused::mistake(format!("the arguments of `{}` must be a JSON object, not {other}", spec.name)))
            }
            Args::Malformed(text) => {
                let head = &text[..text.floor_char_boundary(200)];
                Err(Refused::mistake(format!("the arguments of `{}` are no JSON: {head}", spec.name)))
            }
        }
    }

    pub(crate) fn refuse(&self, state: &CallState, name: &str, refused: Refused) -> Result<(), Interrupt> {
        let result = result(state, name.to_owned(), ToolOutput::error(refused.text));
        self.record(Fact::Returned { key: state.key, result, refused: Some(refused.why) });
        Ok(())
    }

    /// Rules, hooks, the limit, the record, the act.
    async fn carry_out(
        &self,
        state: &CallState,
        name: &str,
        args: Value,
    ) -> Result<Result<ToolOutput, Refused>, Interrupt> {
        if let Some(text) = self.answer_of_run(name, &args) {
            return self.own_words(state, name, text).await;
        }
        let brought = self.brought();
        let own = brought.iter().find(|tool| tool.spec().name == name).cloned();
        let Some(tool) = own.or_else(|| self.inner.tool(name)) else {
            return Ok(Err(Refused::mistake(format!("`{name}` is not available here"))));
        };
        if state.begun == Some(Replay::Unsafe) {
            return Ok(Err(unknown_outcome(name)));
        }
        let host = Arc::new(ToolHost::new(self));
        let context = self.context(state.key, host.clone());
        let Allowed { args, by: allowed_by, notes } = match self.may(&*tool, &context, args).await? {
            Ok(allowed) => allowed,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Err(refused) = self.begin(state, name, &args, tool.spec().replay, allowed_by).await? {
            return Ok(Err(refused));
        }
        let output = self.perform(&*tool, &context, args.clone(), &host).await?;
        Ok(Ok(self.after(name, args, with_notes(output, notes)).await))
    }

    /// Whether rules, hooks and people allow the call; hooks may change its arguments.
    async fn may(
        &self,
        tool: &dyn Tool,
        context: &ToolContext,
        args: Value,
    ) -> Result<Result<Allowed, Refused>, Interrupt> {
        let mut args = args;
        let mut by = match self.decide(tool, context, &args).await? {
            Ok(by) => by,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut said = Vec::new();
        let Some(hooks) = &self.inner.parts.hooks else { return Ok(Ok(Allowed { args, by, notes: said })) };
        let call = HookCall { tool: tool.spec().name.clone(), args: args.clone() };
        let decision = self.working(hooks.before_call(&self.hook_run(), &call)).await?;
        match decision {
            HookDecision::Allow { args: changed, notes } => {
                said = self.warn(notes);
                if let Some(changed) = changed {
                    args = changed;
                    by = match self.decide(tool, context, &args).await? {
                        Ok(by) => by,
                        Err(refused) => return Ok(Err(refused)),
                    };
                }
            }
            HookDecision::Ask { why } => {
                if let Err(refused) = self.ask_person(context, &why, None).await? {
                    return Ok(Err(refused));
                }
            }
            HookDecision::Block { why } => return Ok(Err(Refused::denied(format!("blocked by a hook: {why}")))),
        }
        Ok(Ok(Allowed { args, by, notes: said }))
    }

    /// Shows people what hooks have to say to them; what they have to say to the model comes back.
    pub(crate) fn warn(&self, notes: HookNotes) -> Vec<String> {
        for warning in notes.warnings {
            self.book.pass(&self.cell, || TransientKind::Warning(warning));
        }
        notes.for_model
    }

    async fn decide(
        &self,
        tool: &dyn Tool,
        context: &ToolContext,
        args: &Value,
    ) -> Result<Result<String, Refused>, Interrupt> {
        let subjects = tool.subjects(context, args);
        let name = &tool.spec().name;
        match context.authority.own.decide(name, &subjects) {
            Decision::Allow { by } => Ok(Ok(by)),
            Decision::Deny { why } => Ok(Err(Refused::denied(why))),
            Decision::Ask { by } => {
                let text = format!("{} wants to call {name} with {args}", context.agent);
                Ok(self.ask_person(context, &text, Some(by.clone())).await?.map(|()| format!("a person; {by}")))
            }
        }
    }

    async fn ask_person(
        &self,
        context: &ToolContext,
        text: &str,
        rule: Option<String>,
    ) -> Result<Result<(), Refused>, Interrupt> {
        let question = Question { text: text.to_owned(), options: Vec::new(), key: context.key, rule };
        match self.waiting(context.ask(question)).await? {
            Answer::Yes => Ok(Ok(())),
            Answer::No | Answer::Text(_) => Ok(Err(Refused::denied("a person said no"))),
            Answer::Nobody => Ok(Err(Refused::denied(
                "this needs somebody's permission, and nobody is there to give it; allow it beforehand with --allow",
            ))),
        }
    }

    /// Records the intent, if one more call is allowed at all. What is recorded is on disk before the tool acts.
    pub(crate) async fn begin(
        &self,
        state: &CallState,
        name: &str,
        args: &Value,
        replay: Replay,
        allowed_by: String,
    ) -> Result<Result<(), Refused>, Interrupt> {
        if state.begun.is_some() {
            return Ok(Ok(()));
        }
        let call = ToolCall { id: state.call.id.clone(), name: name.to_owned(), args: Args::Json(args.clone()) };
        let called = Called { key: state.key, call, replay, allowed_by };
        let recorded = self.book.record_if(self.cell.run, |tree| match tree.ledger().no_more_calls(self.cell.run) {
            None => Ok(Fact::Called(Box::new(called))),
            Some(hit) => Err(hit),
        });
        match recorded {
            Ok(commit) => {
                commit.await.map_err(Interrupt::Journal)?;
                Ok(Ok(()))
            }
            Err(hit) => {
                let text = format!("not done: the limit of {} tool calls is reached", hit.limit);
                Ok(Err(Refused { why: CallRefusal::Limit(hit), text }))
            }
        }
    }

    /// Does it. When the run is to stop, the tool has a moment to return what it has.
    async fn perform(
        &self,
        tool: &dyn Tool,
        context: &ToolContext,
        args: Value,
        host: &ToolHost,
    ) -> Result<ToolOutput, Interrupt> {
        let work = AssertUnwindSafe(tool.call(context, args)).catch_unwind();
        tokio::pin!(work);
        let done = match self.working(&mut work).await {
            Ok(done) => done,
            Err(_) => {
                host.stop.cancel();
                match tokio::time::timeout(self.inner.parts.settings.grace, work).await {
                    Ok(done) => done,
                    Err(_) => return Ok(ToolOutput::error("stopped before it answered")),
                }
            }
        };
        done.map_err(|panic| {
            let message = format!("the tool `{}` panicked: {}", tool.spec().name, panic_words(&*panic));
            Interrupt::Failed(Outcome::failed(FailureKind::Panic, message))
        })
    }

    async fn after(&self, name: &str, args: Value, output: ToolOutput) -> ToolOutput {
        let Some(hooks) = &self.inner.parts.hooks else { return output };
        let call = HookCall { tool: name.to_owned(), args };
        let notes = hooks.after_call(&self.hook_run(), &call, &output).await;
        with_notes(output, self.warn(notes))
    }

    pub(crate) fn hook_run(&self) -> HookRun {
        self.run(|run| HookRun {
            run: run.id,
            agent: run.spawned.agent.name.clone(),
            workdir: run.spawned.workdir.clone(),
            delegated: run.spawned.parent.is_some(),
            own_hooks: run.spawned.agent.hooks.clone(),
        })
    }

    pub(crate) fn context(&self, key: CallKey, host: Arc<dyn CallHost>) -> ToolContext {
        self.run(|run| ToolContext {
            key,
            place: run.place.clone(),
            agent: run.spawned.agent.name.clone(),
            workdir: run.spawned.workdir.clone(),
            authority: Arc::new(run.spawned.authority.clone()),
            state: self.cell.state.clone(),
            host,
        })
    }

    /// A valid answer ends the run; an invalid one comes back with what is wrong about it.
    async fn take_answer(&self, state: &CallState, args: Value) -> Result<(), Interrupt> {
        let Some(schema) = self.run(|run| run.spawned.schema.clone()) else {
            return self.refuse(state, "answer", Refused::mistake("there is no tool `answer` here"));
        };
        let output = match problems(&schema, &args) {
            None => ToolOutput { text: "accepted".to_owned(), data: Some(args), ..ToolOutput::default() },
            Some(problems) => ToolOutput::error(format!("the answer does not fit: {problems}")),
        };
        let result = result(state, "answer".to_owned(), output);
        self.record(Fact::Returned { key: state.key, result, refused: Some(CallRefusal::NoTool) });
        Ok(())
    }

    /// A long answer of a child is read piece by piece under the handle `run:PLACE`.
    fn answer_of_run(&self, name: &str, args: &Value) -> Option<String> {
        let handle = args.get("path").or_else(|| args.get("file_path"))?.as_str()?.strip_prefix("run:")?;
        (name == "read").then(|| {
            let number = |key: &str, default: u64| args.get(key).and_then(Value::as_u64).unwrap_or(default);
            let (offset, limit) = (number("offset", 1).max(1), number("limit", 400));
            crate::delegation::child_report::read_answer(&self.book, self.cell.run, handle, offset, limit)
        })
    }

    async fn own_words(
        &self,
        state: &CallState,
        name: &str,
        text: String,
    ) -> Result<Result<ToolOutput, Refused>, Interrupt> {
        let begun = self.begin(state, name, &Value::Null, Replay::Safe, "own descendants".to_owned()).await?;
        Ok(begun.map(|()| ToolOutput::text(text)))
    }

    /// The user's own check: it needs no rule, and it runs where the agent's commands run.
    pub(crate) async fn run_check(&self, command: String, begun: Option<Replay>) -> Result<(), Interrupt> {
        let key = self.run(|run| CallKey { run: run.id, turn: run.turn(), index: VERIFICATION });
        let args = json!({ "command": command });
        let call = ToolCall { id: "until".to_owned(), name: "bash".to_owned(), args: Args::Json(args.clone()) };
        let state = CallState::new(key, call, begun);
        let Some(tool) = self.inner.tool("bash") else {
            let message = "--until needs the tool `bash`, which is not available here";
            return Err(Interrupt::Failed(Outcome::failed(FailureKind::Config, message)));
        };
        let _slot = self.slot().await?;
        let begun = self.begin(&state, "bash", &args, Replay::Safe, "--until".to_owned()).await?;
        let output = match begun {
            Err(refused) => ToolOutput::error(refused.text),
            Ok(()) => {
                let host = Arc::new(ToolHost::new(self));
                let context = self.context(key, host.clone());
                self.perform(&*tool, &context, args, &host).await?
            }
        };
        let succeeded = output.data.as_ref().and_then(|data| data.get("exit_code")) == Some(&json!(0));
        let output = ToolOutput { is_error: output.is_error || !succeeded, ..output };
        self.record(Fact::Returned { key, result: result(&state, "bash".to_owned(), output), refused: None });
        self.check_stopped()
    }
}

fn with_notes(mut output: ToolOutput, notes: Vec<String>) -> ToolOutput {
    for note in notes {
        output.text.push_str("\n\n");
        output.text.push_str(&note);
    }
    output
}

fn unknown_outcome(name: &str) -> Refused {
    let text = format!(
        "interrupted, outcome unknown: `{name}` had begun when the process died, and may or may not have had its effect. \
         It was not repeated. Look before you try again."
    );
    Refused { why: CallRefusal::OutcomeUnknown, text }
}

pub(crate) fn result(state: &CallState, name: String, output: ToolOutput) -> Arc<ToolResult> {
    Arc::new(ToolResult {
        index: state.key.index,
        call_id: state.call.id.clone(),
        name,
        text: output.text,
        images: output.images,
        data: output.data,
        is_error: output.is_error,
    })
}

/// What is wrong with `value`, in words the model can act on.
pub(crate) fn problems(schema: &Value, value: &Value) -> Option<String> {
    let validator = match jsonschema::validator_for(schema) {
        Ok(validator) => validator,
        Err(error) => return Some(format!("the schema itself is invalid: {error}")),
    };
    let problems: Vec<String> = validator
        .iter_errors(value)
        .take(5)
        .map(|error| format!("{} (at `{}`)", error, error.instance_path()))
        .collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// The runtime's side of a call.
pub(crate) struct ToolHost {
    book: Arc<LiveTree>,
    cell: Arc<LiveRun>,
    asker: Option<Arc<dyn PermissionHandler>>,
    answer_within: std::time::Duration,
    pub(crate) stop: CancellationToken,
}

impl ToolHost {
    pub(crate) fn new(driver: &RunDriver) -> Self {
        Self {
            book: driver.book.clone(),
            cell: driver.cell.clone(),
            asker: driver.inner.parts.asker.clone(),
            answer_within: driver.inner.parts.settings.answer_within,
            stop: driver.cell.stop.child_token(),
        }
    }
}

impl CallHost for ToolHost {
    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop.cancelled())
    }

    fn progress(&self, text: &str) {
        self.book.pass(&self.cell, || TransientKind::Progress(text.to_owned()));
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            self.book.pass(&self.cell, || TransientKind::Question(Box::new(question.clone())));
            let Some(asker) = &self.asker else { return Answer::Nobody };
            let answer = tokio::time::timeout(self.answer_within, asker.ask(question));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => Answer::Nobody,
                answer = answer => answer.unwrap_or(Answer::Nobody),
            }
        })
    }

    fn returned(&self, tool: &str) -> Vec<Value> {
        self.book.look(|tree| {
            let results = tree.runs().iter().flat_map(|run| run.results(tool)).filter(|result| !result.is_error);
            results.filter_map(|result| result.data.clone()).collect()
        })
    }
}
