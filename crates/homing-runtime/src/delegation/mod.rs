//! Delegation: the calls by which a run spawns, waits for, messages and cancels child runs.

pub(crate) mod child_report;
mod delegate_args;
mod forked_skill;
mod specs;

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::{select_all, try_join_all};
use homing_core::{
    authority::Decision,
    definition::{AgentDefinition, OnFailure},
    fact::{CallRefusal, CancelledBy, Ended, LimitHit, Outcome},
    registry::Registry,
    rule::{Subject, Subjects},
    run::{CallState, Run, Step},
    tool::{Effect, Replay, ToolOutput},
    tool_names,
};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

pub use self::child_report::{ChildEnding, ChildReport, ChildReports};
pub(crate) use self::delegate_args::agent_name;
use self::delegate_args::{DelegateArgs, ReportReader};
pub use self::specs::AgentListing;
pub(crate) use self::specs::{entry, specs};
use crate::{
    agent_loop::{
        Interrupt,
        active_run::ActiveRun,
        call_record::{CallError, CallRecorder, RefusedCall},
        permission::CallPermissions,
    },
    live_run::LiveRun,
    run_tools::{CallKind, call_kind},
    runtime::{SpawnError, SpawnOrder},
    scheduler::Scheduler,
};

/// The rule that is recorded for calls about runs that the caller has started itself.
const OWN_DESCENDANTS: &str = "own descendants";

/// Carries out the delegation calls of one run.
pub(crate) struct Delegation {
    run: Arc<ActiveRun>,
    scheduler: Arc<Scheduler>,
    recorder: CallRecorder,
    permissions: CallPermissions,
}

/// The output of a delegation call, with the reports about children if the caller is a program.
struct DelegationOutput {
    output: ToolOutput,
    reports: Vec<ChildReport>,
}

impl From<ToolOutput> for DelegationOutput {
    fn from(output: ToolOutput) -> Self {
        Self { output, reports: Vec::new() }
    }
}

impl Delegation {
    pub(crate) fn new(run: Arc<ActiveRun>, scheduler: Arc<Scheduler>) -> Self {
        let permissions = CallPermissions::new(run.clone(), scheduler.clone());
        Self { recorder: CallRecorder::new(run.clone()), run, scheduler, permissions }
    }

    /// Returns true if a call is about other runs: it waits for them without holding anything, unlike a tool at work.
    pub(crate) fn takes(&self, state: &CallState) -> bool {
        call_kind(&state.call.name) == CallKind::Delegation || self.forked_skill(state).is_some()
    }

    /// Carries out calls concurrently.
    pub(crate) async fn call_all(&self, calls: Vec<CallState>) -> Result<(), Interrupt> {
        try_join_all(calls.into_iter().map(|state| self.call(state))).await?;
        Ok(())
    }

    /// Waits until a background child ends or a message arrives, unless that has already happened.
    pub(crate) async fn wait_for_news(&self) -> Result<(), Interrupt> {
        let woken = self.run.live_run.wake.notified();
        match self.run.read(Run::next_step) {
            Step::Await => self.scheduler.waiting(woken).await,
            Step::Ask { .. }
            | Step::Act(_)
            | Step::Verify { .. }
            | Step::CheckAnswer { .. }
            | Step::Supersede { .. }
            | Step::Stop(_) => Ok(()),
        }
    }

    async fn call(&self, state: CallState) -> Result<(), Interrupt> {
        let Some((name, args)) = self.recorder.resolve_or_refuse(&state) else { return Ok(()) };
        match self.carry_out(&state, &name, args).await {
            Ok(DelegationOutput { output, reports }) => {
                // If a child hit a limit of this run or its ancestors, a program ends too; only a model is asked to
                // carry on.
                let limit = reports.iter().find_map(|report| report.limit_above(&self.run.live_run.place));
                let refused = limit.cloned().map(CallRefusal::Limit);
                self.recorder.returned(&state, &name, output, refused);
                Ok(())
            }
            Err(CallError::Refused(refused)) => {
                self.recorder.refused(&state, &name, refused);
                Ok(())
            }
            Err(CallError::Interrupted(interrupt)) => Err(interrupt),
        }
    }

    /// Only the future of `delegate` is part of the caller's: a map waits for thousands of them, which should be as small as
    /// possible. For the same reason it is given the arguments, which it drops before it waits.
    async fn carry_out(&self, state: &CallState, name: &str, args: Value) -> Result<DelegationOutput, CallError> {
        match name {
            "delegate" => self.delegate(state, args).await,
            "wait" => Box::pin(self.wait(state, &args)).await,
            "tell" => Box::pin(self.tell(state, &args)).await,
            "cancel" => Box::pin(self.cancel(state, &args)).await,
            tool_names::SKILL => Box::pin(self.run_skill(state, &args)).await,
            unknown => Err(RefusedCall::mistake(format!("`{unknown}` is not a delegation tool")).into()),
        }
    }

    async fn delegate(&self, state: &CallState, args: Value) -> Result<DelegationOutput, CallError> {
        let mut delegation = DelegateArgs::parse(&args, &self.run.runtime.parts.registry)?;
        if self.is_program() {
            delegation.read_program(&args)?;
        } else if !delegation.agent.execution.offered_to.includes_models() {
            let message = format!("denied: delegate `{}`: only the user can start this agent", delegation.agent.name);
            return Err(RefusedCall::denied(message).into());
        }
        let allowed_by = Box::pin(self.may_delegate(state, &delegation)).await?;
        Box::pin(self.recorder.begin(state, "delegate", &args, Replay::Keyed, allowed_by)).await?;
        drop(args);
        self.run_child(state, &delegation).await
    }

    /// Spawns the child of a call that has begun, and waits for it unless it works in the background.
    async fn run_child(&self, state: &CallState, delegation: &DelegateArgs) -> Result<DelegationOutput, CallError> {
        let reader = delegation.reader;
        loop {
            let (last, spawned) = self.run.tree.read(|tree| {
                let last = tree.spawned_by(state.key).next_back().map(|run| run.id);
                (last, tree.spawned_by(state.key).count())
            });
            let child = match last {
                Some(child) => child,
                None => match Box::pin(self.spawn(state, delegation)).await {
                    Ok(child) => child,
                    Err(error) => return not_spawned(error, reader),
                },
            };
            if delegation.background {
                return Ok(self.started(child, reader));
            }
            let ended = self.wait_for_end(child).await?;
            match (&ended.outcome, delegation.agent.task.on_failure) {
                (Outcome::Failed { .. }, OnFailure::Retry(times)) if spawned.max(1) <= times as usize => {
                    if let Err(error) = Box::pin(self.spawn(state, delegation)).await {
                        return not_spawned(error, reader);
                    }
                }
                (Outcome::Failed { .. }, OnFailure::Skip) if reader == ReportReader::Model => {
                    let text = format!("[{}: skipped, because it failed]", delegation.agent.name);
                    return Ok(ToolOutput::text(text).into());
                }
                _ => return Ok(self.report(child, &ended, reader)),
            }
        }
    }

    /// Returns true if the caller is a program, whose author named the agents.
    fn is_program(&self) -> bool {
        let model = self.run.read(|run| run.spawned.models.first().cloned());
        let model = model.and_then(|name| self.run.runtime.parts.models.get(&name).ok());
        model.is_some_and(|model| model.card().is_program())
    }

    /// The decision of the permission rules about delegating to `agent`.
    fn decision(&self, agent: &AgentDefinition) -> Decision {
        let subjects = subject(&self.run.runtime.parts.registry, agent);
        self.run.read(|run| run.spawned.authority.own.decide(tool_names::DELEGATE, Effect::Delegates, &subjects))
    }

    /// Applies the permission rules, and returns what allows the call.
    async fn may_delegate(&self, state: &CallState, delegation: &DelegateArgs) -> Result<String, CallError> {
        let agent = &delegation.agent.name;
        let denied = |why: String| format!("denied: delegate `{agent}`: {why}");
        match self.decision(&delegation.agent) {
            Decision::Allow { by } => Ok(by),
            Decision::Deny { why } => Err(RefusedCall::denied(denied(why)).into()),
            // The user starts a program knowing its agents, and a call that had begun was approved.
            Decision::Ask { by } if state.begun.is_some() || self.is_program() => Ok(by),
            Decision::Ask { by } => {
                let asked = self.permissions.ask_about_delegation(state.key, agent, &delegation.task, by.clone()).await;
                asked.map_err(|error| match error {
                    CallError::Refused(RefusedCall { why, text }) => RefusedCall { why, text: denied(text) }.into(),
                    interrupted @ CallError::Interrupted(_) => interrupted,
                })?;
                Ok(format!("the user; {by}"))
            }
        }
    }

    async fn spawn(&self, state: &CallState, delegation: &DelegateArgs) -> Result<Uuid, SpawnError> {
        let order = SpawnOrder {
            agent: delegation.agent.clone(),
            text: delegation.task.clone(),
            limits: delegation.limits,
            call: Some(state.key),
            continues: None,
            background: delegation.background,
            schema: delegation.schema.clone(),
            context: delegation.context.clone(),
            tags: BTreeMap::new(),
            delay_ms: delegation.delay_ms,
        };
        let (child, commit) = self.run.runtime.spawn_child(&self.run.tree, self.run.id(), order).await?;
        drop(commit);
        Ok(child)
    }

    fn started(&self, child: Uuid, reader: ReportReader) -> DelegationOutput {
        let report = self.run.tree.read_run(child, ChildReport::started);
        let text = format!(
            "[{} · run {} · started in the background; its result will be sent to you when it ends]",
            report.agent, report.place
        );
        with_report(ToolOutput::text(text), report, reader)
    }

    /// Waits for the end of a child, holding nothing.
    async fn wait_for_end(&self, child: Uuid) -> Result<Arc<Ended>, Interrupt> {
        if let Some(child) = self.run.tree.live_run(child) {
            self.scheduler.waiting(child.over.cancelled()).await?;
        }
        let ended = self.run.tree.read_run(child, |run| run.ended.clone());
        ended.ok_or(Interrupt::Stopped)
    }

    fn report(&self, child: Uuid, ended: &Ended, reader: ReportReader) -> DelegationOutput {
        let is_error = !ended.outcome.is_done();
        self.run.tree.read_run(child, |run| match reader {
            ReportReader::Model => {
                let text = child_report::text(run, ended, self.run.config().inline_answer);
                ToolOutput::text(text).data(ended.data.as_deref().cloned()).is_error(is_error).into()
            }
            ReportReader::Program => {
                let output = ToolOutput::text(ended.text.clone()).is_error(is_error);
                with_report(output, ChildReport::ended(run, ended), reader)
            }
        })
    }

    async fn wait(&self, state: &CallState, args: &Value) -> Result<DelegationOutput, CallError> {
        let runs = match args.get("runs") {
            None | Some(Value::Null) => self.open_background_runs(),
            Some(Value::Array(names)) => {
                names.iter().map(|name| self.descendant(name)).collect::<Result<_, RefusedCall>>()?
            }
            Some(name) => vec![self.descendant(name)?],
        };
        self.recorder.begin(state, "wait", args, Replay::Safe, OWN_DESCENDANTS.to_owned()).await?;
        let live_runs: Vec<Arc<LiveRun>> = runs.iter().filter_map(|run| self.run.tree.live_run(*run)).collect();
        let any = args.get("any").and_then(Value::as_bool).unwrap_or(false);
        if !any {
            for live_run in &live_runs {
                self.scheduler.waiting(live_run.over.cancelled()).await?;
            }
        } else if live_runs.len() == runs.len() && !live_runs.is_empty() {
            let ends = live_runs.iter().map(|live_run| Box::pin(live_run.over.cancelled()));
            self.scheduler.waiting(select_all(ends)).await?;
        }
        let lines: Vec<String> = runs.iter().map(|run| self.run.tree.read_run(*run, status_line)).collect();
        let text = if lines.is_empty() { "there are no open background runs".to_owned() } else { lines.join("\n") };
        let output = ToolOutput::text(text);
        if ReportReader::of(args) == ReportReader::Model {
            return Ok(output.into());
        }
        let report = |run: &Run| Some(ChildReport::with_answer(run, run.ended.as_ref()?));
        let reports: Vec<ChildReport> = runs.iter().filter_map(|run| self.run.tree.read_run(*run, report)).collect();
        let data = to_data(&ChildReports { runs: reports.clone() });
        Ok(DelegationOutput { output: output.data(data), reports })
    }

    fn open_background_runs(&self) -> Vec<Uuid> {
        let is_open = |run: &&Run| run.spawned.background && run.ended.is_none();
        self.run.tree.read(|tree| {
            let run = tree.get(self.run.id());
            run.map_or_else(Vec::new, |run| tree.children(run).filter(is_open).map(|child| child.id).collect())
        })
    }

    /// Finds a run below this one, by its place or by the beginning of its id.
    fn descendant(&self, name: &Value) -> Result<Uuid, RefusedCall> {
        let name = name.as_str().unwrap_or_default().trim().to_owned();
        let is_named =
            |run: &&Run| run.place.to_string() == name || (name.len() >= 4 && run.id.to_string().starts_with(&name));
        let found = self.run.tree.read(|tree| {
            let mut below = tree.runs().iter().filter(|run| tree.is_below(run.id, self.run.id()));
            below.find(is_named).map(|run| run.id)
        });
        found.ok_or_else(|| {
            RefusedCall::mistake(format!("there is no run `{name}` below this one; name it by its place, such as 1.2"))
        })
    }

    async fn tell(&self, state: &CallState, args: &Value) -> Result<DelegationOutput, CallError> {
        let message = args.get("message").or_else(|| args.get("text")).and_then(Value::as_str).unwrap_or_default();
        let run = self.descendant(args.get("run").unwrap_or(&Value::Null))?;
        if message.trim().is_empty() {
            return Err(RefusedCall::mistake("`message` is missing").into());
        }
        self.recorder.begin(state, "tell", args, Replay::Keyed, OWN_DESCENDANTS.to_owned()).await?;
        let ActiveRun { runtime, tree, .. } = &*self.run;
        if state.begun.is_none() && runtime.send_message(tree, run, Some(self.run.id()), message) {
            return Ok(ToolOutput::text("message sent; it will be read after the run's current step").into());
        }
        // A run that has ended is continued by a new one, unless this call did that before a crash.
        let continued = tree.read(|tree| tree.spawned_by(state.key).next_back().map(|run| run.id));
        let child = match continued {
            Some(child) => child,
            None => match runtime.continue_run(tree, self.run.id(), run, message, state.key).await {
                Ok(child) => child,
                Err(error) => return Ok(ToolOutput::error(format!("not continued: {error}")).into()),
            },
        };
        let ended = self.wait_for_end(child).await?;
        Ok(self.report(child, &ended, ReportReader::of(args)))
    }

    async fn cancel(&self, state: &CallState, args: &Value) -> Result<DelegationOutput, CallError> {
        let run = self.descendant(args.get("run").unwrap_or(&Value::Null))?;
        self.recorder.begin(state, "cancel", args, Replay::Safe, OWN_DESCENDANTS.to_owned()).await?;
        self.run.runtime.cancel(&self.run.tree, run, CancelledBy::Parent);
        let ended = self.wait_for_end(run).await?;
        let DelegationOutput { output, reports } = self.report(run, &ended, ReportReader::of(args));
        Ok(DelegationOutput { output: output.is_error(false), reports })
    }
}

/// An agent as rules see it: under its name, its title and its aliases, except for those that lead to another agent.
pub(crate) fn subject(registry: &Registry, agent: &AgentDefinition) -> Subjects {
    let leads_to_it = |name: &&String| registry.get(name).is_ok_and(|found| found.name == agent.name);
    let more = agent.title.iter().chain(&agent.aliases).filter(leads_to_it);
    Subjects::Parts(vec![Subject::Names([&agent.name].into_iter().chain(more).cloned().collect())])
}

/// The result of a delegation that started no child. A model reads the reason; a program that has reached a limit ends.
fn not_spawned(error: SpawnError, reader: ReportReader) -> Result<DelegationOutput, CallError> {
    let text = format!("not delegated: {error}");
    match (error, reader) {
        (SpawnError::Limit(hit), ReportReader::Program) => Err(limit_reached(hit, text).into()),
        _ => Ok(ToolOutput::error(text).into()),
    }
}

fn limit_reached(hit: LimitHit, text: String) -> RefusedCall {
    RefusedCall { why: CallRefusal::Limit(hit), text }
}

/// Adds the report to the output, if a program reads it.
fn with_report(output: ToolOutput, report: ChildReport, reader: ReportReader) -> DelegationOutput {
    match reader {
        ReportReader::Model => output.into(),
        ReportReader::Program => {
            let data = to_data(&report);
            DelegationOutput { output: output.data(data), reports: vec![report] }
        }
    }
}

fn to_data(report: &impl Serialize) -> Option<Value> {
    Some(serde_json::to_value(report).expect("a report has only string keys"))
}

fn status_line(run: &Run) -> String {
    let status = run.ended.as_ref().map(|ended| child_report::describe(&ended.outcome));
    let status = status.unwrap_or_else(|| "still running".to_owned());
    format!("{} {}: {status}", run.place, run.spawned.agent.name)
}
