//! Drives one run from its start or resumption to its recorded end, with the user's hooks at both.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use homing_core::{
    definition::Isolation,
    fact::{CancelledBy, Ended, Fact, FailureKind, Outcome, Purpose},
    hooks::{HookEnding, HookNotes},
    message::Reply,
    model::AskFailure,
    run::{CallState, Run},
    tool::Replay,
    workspace::{Left, Workspace},
};
use serde_json::Value;

use crate::{
    agent_loop::{
        Children, Effects, Interrupt, Ledger, Reserved,
        active_run::ActiveRun,
        compaction, drive, landing,
        model_call::{CallPermit, ModelCalls},
        tool_call::ToolCalls,
    },
    delegation::{Delegation, child_report},
    event::TransientKind,
    journal::{Commit, JournalError},
    ledger::worst_case,
    observers::{self, Observation},
    resume::interrupted_ask,
    scheduler::Scheduler,
    segment::key,
};

/// The number of times that hooks may make a run continue.
const MAX_CONTINUATIONS: u32 = 5;

/// Drives one run.
pub(crate) struct RunDriver {
    run: Arc<ActiveRun>,
    scheduler: Arc<Scheduler>,
    model_calls: ModelCalls,
    tool_calls: ToolCalls,
    delegation: Delegation,
    observation: Observation,
}

impl RunDriver {
    pub(crate) fn new(run: ActiveRun) -> Self {
        let run = Arc::new(run);
        let (slots, ids) = (run.runtime.run_slots.clone(), run.runtime.parts.sources.ids.clone());
        let scheduler =
            Scheduler::new(run.tree.clone(), run.live_run.clone(), slots, ids, run.config().retries.max_backoff);
        let scheduler = Arc::new(scheduler);
        Self {
            model_calls: ModelCalls::new(run.clone(), scheduler.clone()),
            tool_calls: ToolCalls::new(run.clone(), scheduler.clone()),
            delegation: Delegation::new(run.clone(), scheduler.clone()),
            observation: Observation::new(run.clone()),
            run,
            scheduler,
        }
    }

    /// Drives the run to its end and records it, even if the run is interrupted or panics.
    pub(crate) async fn run_to_end(self) {
        let driven = AssertUnwindSafe(self.drive_with_hooks()).catch_unwind().await;
        let ended = match driven {
            Ok(Ok(ended)) => ended,
            Ok(Err(interrupt)) => self.interrupted(interrupt),
            Err(panic) => {
                let outcome = Outcome::failed(FailureKind::Panic, panic_message(&*panic));
                self.run.read(|run| run.ending(outcome))
            }
        };
        self.finish(ended).await;
    }

    /// Records the end of a run that was asked to stop while nothing drove it.
    pub(crate) async fn end_stopped(self) {
        let ended = self.interrupted(Interrupt::Stopped);
        self.finish(ended).await;
    }

    /// The loop, with hooks at its start and before it ends.
    async fn drive_with_hooks(&self) -> Result<Ended, Interrupt> {
        self.wait_to_start().await?;
        self.run_start_hooks().await?;
        let mut continuations = 0;
        loop {
            let ended = drive(self, || self.run.read(Run::next_step)).await?;
            match self.run_end_hooks(&ended, continuations).await? {
                HookEnding::End(notes) => {
                    self.run.show_warnings(notes);
                    return Ok(ended);
                }
                HookEnding::GoOn { why } => {
                    continuations += 1;
                    drop(self.run.record(Fact::Told { from: None, message: why }));
                }
            }
        }
    }

    /// Waits before the first step of a run that is a retry. A run that is resumed before that waits again.
    async fn wait_to_start(&self) -> Result<(), Interrupt> {
        let delay = self.run.read(|run| if run.began().is_none() { run.spawned.delay_ms } else { 0 });
        if delay > 0 {
            self.scheduler.waiting(tokio::time::sleep(Duration::from_millis(delay))).await?;
        }
        Ok(())
    }

    /// Records the notes of start hooks as messages to the model; a resumed run has them already.
    async fn run_start_hooks(&self) -> Result<(), Interrupt> {
        let Some(hooks) = &self.run.runtime.parts.hooks else { return Ok(()) };
        if self.run.read(|run| run.began().is_some() || run.transcript().len() > run.spawned.inherited.len() + 1) {
            return Ok(());
        }
        let notes = self.scheduler.waiting(hooks.run_started(&self.run.hook_run())).await?;
        for message in self.run.show_warnings(notes) {
            drop(self.run.record(Fact::Told { from: None, message }));
        }
        Ok(())
    }

    async fn run_end_hooks(&self, ended: &Ended, continuations: u32) -> Result<HookEnding, Interrupt> {
        match &self.run.runtime.parts.hooks {
            Some(hooks) if ended.outcome.is_done() && continuations < MAX_CONTINUATIONS => {
                self.scheduler.waiting(hooks.run_ending(&self.run.hook_run(), &ended.text, continuations)).await
            }
            Some(_) | None => Ok(HookEnding::End(HookNotes::default())),
        }
    }

    fn interrupted(&self, interrupt: Interrupt) -> Ended {
        let outcome = match interrupt {
            Interrupt::Stopped => {
                let by = self.run.read(|run| run.halted().cloned()).unwrap_or(CancelledBy::ParentEnded);
                Outcome::Cancelled { by }
            }
            Interrupt::OutOfTime(hit) => homing_core::run::out_of(hit),
            Interrupt::Journal(error) => {
                let (message, is_gone) = (error.to_string(), matches!(error, JournalError::Gone(_)));
                Outcome::Failed { kind: FailureKind::Journal, message, retryable: !is_gone }
            }
            Interrupt::Failed(outcome) => outcome,
        };
        self.run.read(|run| run.ending(outcome))
    }

    /// Waits for the children, records the end, and only then wakes those that wait for it.
    async fn finish(self, ended: Ended) {
        let live_run = &self.run.live_run;
        if !ended.outcome.is_done() {
            live_run.stop.cancel();
        }
        if let Some(asked) = self.run.read(|run| run.open_ask().cloned()) {
            // Only a panic leaves a model call open; the provider may have billed it.
            drop(self.run.record(interrupted_ask(worst_case(&asked))));
        }
        self.observation.stop();
        Box::pin(self.wait_for_children()).await;
        live_run.drop_agent_tools();
        Box::pin(self.close_workspace()).await;
        if let Some(commit) = self.record_end(self.with_report(ended))
            && let Err(error) = commit.await
        {
            self.run.tree.mark_end_unrecorded(live_run.run, &error);
        }
        self.announce_end();
    }

    /// Gives a run that a limit ended without any text a report of what there is.
    fn with_report(&self, ended: Ended) -> Ended {
        match &ended.outcome {
            Outcome::Exhausted(hit) | Outcome::TimedOut(hit) if ended.text.trim().is_empty() => {
                let text = self.run.tree.read(|tree| {
                    let run = tree.get(self.run.id())?;
                    Some(landing::report(tree, run, hit))
                });
                Ended { text: text.unwrap_or_default(), ..ended }
            }
            Outcome::Done
            | Outcome::Exhausted(_)
            | Outcome::TimedOut(_)
            | Outcome::Cancelled { .. }
            | Outcome::Failed { .. } => ended,
        }
    }

    async fn wait_for_children(&self) {
        let open_child = || {
            self.run.tree.read(|tree| {
                let run = tree.get(self.run.id())?;
                let child = tree.children(run).find(|child| child.ended.is_none())?;
                Some(child.id)
            })
        };
        while let Some(child) = open_child() {
            match self.run.tree.live_run(child) {
                Some(child) => child.over.cancelled().await,
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// Removes the run's worktree, if it has one.
    async fn close_workspace(&self) {
        let (isolated, workdir) = self.run.read(|run| {
            let isolated = run.spawned.agent.execution.isolation == Isolation::Worktree;
            (isolated, run.spawned.workdir.clone())
        });
        if let (true, Some(workspaces)) = (isolated, &self.run.runtime.parts.workspaces) {
            let workspace = Workspace { workdir, read: Vec::new(), write: Vec::new() };
            if let Left::Kept { path, summary } = workspaces.leave(self.run.id(), &workspace).await {
                let text = format!("files kept in {}: {summary}", path.display());
                self.run.notify(|| TransientKind::Warning(text));
            }
        }
    }

    /// Records the end together with the report of a background child or an observer to its parent, so that no crash keeps one without the
    /// other.
    fn record_end(&self, ended: Ended) -> Option<Commit> {
        let ended = Arc::new(ended);
        self.run.tree.record_all(|tree| {
            let Some(run) = tree.get(self.run.id()).filter(|run| run.ended.is_none()) else { return Vec::new() };
            let mut facts = Vec::new();
            let parent = run.spawned.parent.and_then(|id| tree.get(id)).filter(|parent| parent.ended.is_none());
            if let (Some(parent), true, false) = (parent, run.spawned.background, run.told_parent()) {
                let message = child_report::background_text(run, &ended, self.run.config().inline_answer);
                facts.push((parent.id, Fact::Told { from: Some(run.id), message }));
            }
            if let (Some(parent), Some(message)) = (parent, observers::report(run, &ended)) {
                facts.push((parent.id, Fact::Told { from: Some(run.id), message }));
            }
            facts.push((run.id, Fact::Ended(ended)));
            facts
        })
    }

    fn announce_end(&self) {
        let ActiveRun { runtime, tree, live_run } = &*self.run;
        let parent = self.run.read(|run| run.spawned.parent);
        // First, because hosts that wait make an envelope of their own, and that of a large tree should not exist twice.
        runtime.run_ended(tree, live_run.run);
        live_run.over.cancel();
        tree.remove_live_run(live_run.run);
        if let Some(parent) = parent.and_then(|id| tree.live_run(id)) {
            parent.wake.notify_one();
        }
        if live_run.run == key(tree) {
            runtime.tree_ended(tree);
        }
    }
}

impl Ledger for RunDriver {
    type Permit = CallPermit;

    async fn reserve(&self, purpose: &Purpose, nudge: Option<&str>) -> Result<Reserved<CallPermit>, Interrupt> {
        self.observation.show_news().await;
        self.model_calls.reserve(purpose, nudge).await
    }

    fn settle(&self, permit: CallPermit, reply: Result<Reply, AskFailure>) -> Result<(), Interrupt> {
        self.model_calls.settle(permit, reply)
    }
}

impl Effects for RunDriver {
    async fn ask(&self, permit: &CallPermit) -> Result<Reply, AskFailure> {
        self.model_calls.attempt(permit).await
    }

    async fn call(&self, calls: Vec<CallState>) -> Result<(), Interrupt> {
        self.tool_calls.call_all(calls).await
    }

    async fn verify(&self, command: String, begun: Option<Replay>) -> Result<(), Interrupt> {
        self.tool_calls.verify(command, begun).await
    }

    fn check_answer(&self, value: Value) {
        self.tool_calls.check_text_answer(value);
    }

    fn supersede(&self, summary: String) -> Result<(), Interrupt> {
        let (upto, before) = self.run.read(|run| (compaction::boundary(run.transcript()), run.superseded()));
        if upto <= before {
            let message = "the conversation does not fit the model's context and cannot be shortened".to_owned();
            return Err(Interrupt::Failed(Outcome::Failed { kind: FailureKind::Model, message, retryable: false }));
        }
        drop(self.run.record(Fact::Compacted { summary, upto }));
        Ok(())
    }
}

impl Children for RunDriver {
    fn takes(&self, call: &CallState) -> bool {
        self.delegation.takes(call)
    }

    async fn delegate(&self, calls: Vec<CallState>) -> Result<(), Interrupt> {
        self.delegation.call_all(calls).await
    }

    async fn wait_for_news(&self) -> Result<(), Interrupt> {
        self.delegation.wait_for_news().await
    }
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
    message.unwrap_or_else(|| "a panic without a message".to_owned())
}
