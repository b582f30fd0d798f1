//! One run under way: what it needs of the runtime to be driven, and how it comes to its end.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use homing_core::{
    fact::{CancelledBy, Ended, Fact, FailureKind, LimitHit, Outcome},
    hooks::{HookEnding, HookNotes},
    message::Reply,
    model::AskFailure,
    run::{CallState, Run},
    tool::Replay,
};
use uuid::Uuid;

use crate::{
    agent_loop::{Effects, Interrupt, compaction, drive, model_call::CallPermit},
    delegation::child_report,
    event::TransientKind,
    journal::Commit,
    live_tree::{AgentTools, LiveRun, LiveTree, RunTools},
    runtime::Inner,
    scheduler::fair_semaphore::Slot,
};

/// How often a hook may send a run back to work.
const MAX_GOES_ON: u32 = 5;

/// One run under way.
pub(crate) struct RunDriver {
    pub(crate) inner: Arc<Inner>,
    pub(crate) book: Arc<LiveTree>,
    pub(crate) cell: Arc<LiveRun>,
}

impl RunDriver {
    /// Drives the run to its end, whatever happens on the way, and makes the end known.
    pub(crate) async fn run_to_end(self) {
        let driven = AssertUnwindSafe(self.drive_with_hooks()).catch_unwind().await;
        let ended = match driven {
            Ok(Ok(ended)) => ended,
            Ok(Err(interrupt)) => self.interrupted(interrupt),
            Err(panic) => {
                let outcome = Outcome::failed(FailureKind::Panic, panic_words(&*panic));
                self.run(|run| run.ending(outcome))
            }
        };
        self.finish(ended).await;
    }

    /// The loop, with the user's own commands asked at its start and before it ends.
    async fn drive_with_hooks(&self) -> Result<Ended, Interrupt> {
        self.announce_start().await?;
        let mut goes_on = 0;
        loop {
            let ended = drive(self, || self.run(Run::next_step)).await?;
            match self.may_end(&ended, goes_on).await? {
                HookEnding::End(notes) => {
                    self.warn(notes);
                    return Ok(ended);
                }
                HookEnding::GoOn { why } => {
                    goes_on += 1;
                    self.record(Fact::Told { from: None, message: why });
                }
            }
        }
    }

    /// What hooks have to say at a run's start is told to the model together with the task; a resumed run has heard it.
    async fn announce_start(&self) -> Result<(), Interrupt> {
        let Some(hooks) = &self.inner.parts.hooks else { return Ok(()) };
        if self.run(|run| run.began().is_some() || run.transcript().len() > run.spawned.inherited.len() + 1) {
            return Ok(());
        }
        let notes = self.waiting(hooks.run_started(&self.hook_run())).await?;
        for message in self.warn(notes) {
            self.record(Fact::Told { from: None, message });
        }
        Ok(())
    }

    async fn may_end(&self, ended: &Ended, goes_on: u32) -> Result<HookEnding, Interrupt> {
        match &self.inner.parts.hooks {
            Some(hooks) if ended.outcome.is_done() && goes_on < MAX_GOES_ON => {
                self.waiting(hooks.run_ending(&self.hook_run(), &ended.text, goes_on)).await
            }
            Some(_) | None => Ok(HookEnding::End(HookNotes::default())),
        }
    }

    fn interrupted(&self, interrupt: Interrupt) -> Ended {
        let outcome = match interrupt {
            Interrupt::Stopped => {
                let by = self.run(|run| run.halted().cloned()).unwrap_or(CancelledBy::ParentEnded);
                Outcome::Cancelled { by }
            }
            Interrupt::OutOfTime(hit) => homing_core::run::out_of(hit),
            Interrupt::Journal(error) => {
                let message = error.to_string();
                Outcome::Failed { kind: FailureKind::Journal, message, retryable: true }
            }
            Interrupt::Failed(outcome) => outcome,
        };
        self.run(|run| run.ending(outcome))
    }

    /// Brings the children home, records the end, and only then tells everybody.
    async fn finish(self, ended: Ended) {
        if !ended.outcome.is_done() {
            self.cell.stop.cancel();
        }
        if let Some(asked) = self.run(|run| run.open_ask().cloned()) {
            // Only a panic leaves an ask open; it may have been billed.
            self.record(crate::resume::lost(&asked));
        }
        self.bring_children_home().await;
        self.cell.let_go();
        self.close_workspace().await;
        let commit = self.record_end(ended);
        if let Some(commit) = commit
            && let Err(error) = commit.await
        {
            self.book.lose_end(self.cell.run, &error);
        }
        self.make_known();
    }

    async fn bring_children_home(&self) {
        let open = || {
            self.book.look(|tree| {
                let run = tree.get(self.cell.run)?;
                let child = tree.children(run).find(|child| child.ended.is_none())?;
                Some(child.id)
            })
        };
        while let Some(child) = open() {
            match self.book.cell(child) {
                Some(cell) => cell.over.cancelled().await,
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// A background result and the end stand side by side, so that no crash can lose the one and keep the other.
    fn record_end(&self, ended: Ended) -> Option<Commit> {
        let ended = Arc::new(ended);
        self.book.record_all(|tree| {
            let Some(run) = tree.get(self.cell.run).filter(|run| run.ended.is_none()) else { return Vec::new() };
            let mut facts = Vec::new();
            let parent = run.spawned.parent.and_then(|id| tree.get(id)).filter(|parent| parent.ended.is_none());
            if let (Some(parent), true, false) = (parent, run.spawned.background, run.told_parent()) {
                let message = child_report::of_background(run, &ended, &self.inner.parts.settings);
                facts.push((parent.id, Fact::Told { from: Some(run.id), message }));
            }
            facts.push((run.id, Fact::Ended(ended)));
            facts
        })
    }

    fn make_known(&self) {
        let (parent, is_root) = self.run(|run| (run.spawned.parent, run.id == self.book.id));
        self.cell.over.cancel();
        self.book.remove_cell(self.cell.run);
        if let Some(parent) = parent.and_then(|id| self.book.cell(id)) {
            parent.wake.notify_one();
        }
        self.inner.run_ended(&self.book, self.cell.run);
        if is_root {
            self.inner.tree_ended(&self.book);
        }
    }

    /// Looks at this run.
    pub(crate) fn run<T>(&self, look: impl FnOnce(&Run) -> T) -> T {
        self.book.look_at(self.cell.run, look)
    }

    /// Records a fact of this run.
    pub(crate) fn record(&self, fact: Fact) -> Commit {
        self.book.record(self.cell.run, fact)
    }

    /// Waits for something that counts as the run's own work.
    pub(crate) async fn working<T>(&self, work: impl Future<Output = T>) -> Result<T, Interrupt> {
        let end = self.book.look(|tree| tree.ledger().working_time_left(self.cell.run, self.book.clock(tree)));
        self.until(end, work).await
    }

    /// Waits for something that does not: a slot, a provider, other runs.
    pub(crate) async fn waiting<T>(&self, wait: impl Future<Output = T>) -> Result<T, Interrupt> {
        let end = self.book.look(|tree| tree.ledger().time_left(self.cell.run, self.book.clock(tree)));
        self.until(end, wait).await
    }

    async fn until<T>(&self, end: Option<(u64, LimitHit)>, work: impl Future<Output = T>) -> Result<T, Interrupt> {
        let time_up = async {
            match &end {
                Some((left, _)) => tokio::time::sleep(Duration::from_millis(*left)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.cell.stop.cancelled() => Err(Interrupt::Stopped),
            done = work => Ok(done),
            () = time_up => Err(Interrupt::OutOfTime(self.time_hit(end))),
        }
    }

    /// The limit that ended the run, with what was spent by now.
    fn time_hit(&self, end: Option<(u64, LimitHit)>) -> LimitHit {
        let (left, mut hit) = end.expect("time is up only where there is a limit");
        hit.spent = hit.spent.saturating_add(left);
        hit
    }

    pub(crate) fn check_stopped(&self) -> Result<(), Interrupt> {
        if self.cell.stop.is_cancelled() {
            return Err(Interrupt::Stopped);
        }
        let end = self.book.look(|tree| tree.ledger().working_time_left(self.cell.run, self.book.clock(tree)));
        match end {
            // Timers and clocks round: a millisecond is nothing to begin another step with.
            Some((0 | 1, hit)) => Err(Interrupt::OutOfTime(hit)),
            Some(_) | None => Ok(()),
        }
    }

    /// The end of a run whose model call ran into the run's deadline.
    pub(crate) fn time_is_up(&self) -> Interrupt {
        let end = self.book.look(|tree| tree.ledger().working_time_left(self.cell.run, self.book.clock(tree)));
        end.map_or(Interrupt::Stopped, |(_, hit)| Interrupt::OutOfTime(hit))
    }

    pub(crate) fn time_to_work(&self) -> Option<Duration> {
        let end = self.book.look(|tree| tree.ledger().working_time_left(self.cell.run, self.book.clock(tree)));
        end.map(|(left, _)| Duration::from_millis(left))
    }

    pub(crate) fn time_to_wait(&self) -> Option<Duration> {
        let end = self.book.look(|tree| tree.ledger().time_left(self.cell.run, self.book.clock(tree)));
        end.map(|(left, _)| Duration::from_millis(left))
    }

    /// The run's path through all trees, for fairness.
    pub(crate) fn lane(&self) -> Vec<u32> {
        let tree = u32::from_be_bytes(self.book.id.as_bytes()[12..].try_into().expect("four bytes")) | 1;
        [tree].into_iter().chain(self.cell.place.steps().iter().copied()).collect()
    }

    /// A slot for work, for which the run may have to queue.
    pub(crate) async fn slot(&self) -> Result<Slot, Interrupt> {
        let lane = self.lane();
        let slot = self.inner.runs.acquire(&lane);
        tokio::pin!(slot);
        if let std::task::Poll::Ready(slot) = futures::poll!(&mut slot) {
            return Ok(slot);
        }
        self.book.pass(&self.cell, || TransientKind::Queued);
        self.waiting(slot).await
    }

    /// The tools of this run: made from its authority, which also decides each call.
    pub(crate) fn kit(&self) -> Arc<RunTools> {
        let make = || {
            let (spawned, deeper) = self.book.look(|tree| {
                let run = tree.get(self.cell.run).expect("a run is recorded before it is driven");
                (run.spawned.clone(), tree.ledger().may_go_deeper(run.id))
            });
            self.inner.kit(&spawned, deeper, &self.brought())
        };
        self.cell.kit.get_or_init(make).clone()
    }

    /// The tools that this run's agent has brought, and those that runs above it have.
    pub(crate) fn brought(&self) -> AgentTools {
        self.inner.brought_to(&self.book, &self.cell)
    }

    /// Asks the runs of `ids` to stop.
    pub(crate) fn halt(&self, run: Uuid, by: CancelledBy) -> bool {
        self.inner.halt(&self.book, run, by)
    }
}

impl Effects for RunDriver {
    async fn ask(&self, held: &CallPermit) -> Result<Reply, AskFailure> {
        self.attempt(held).await
    }

    async fn call(&self, calls: Vec<CallState>) -> Result<(), Interrupt> {
        self.call_tools(calls).await
    }

    async fn verify(&self, command: String, begun: Option<Replay>) -> Result<(), Interrupt> {
        self.run_check(command, begun).await
    }

    fn supersede(&self, summary: String) -> Result<(), Interrupt> {
        let (upto, before) = self.run(|run| (compaction::boundary(run.transcript()), run.superseded()));
        if upto <= before {
            let message = "the conversation does not fit the model's context and cannot be made shorter".to_owned();
            return Err(Interrupt::Failed(Outcome::Failed { kind: FailureKind::Model, message, retryable: false }));
        }
        self.record(Fact::Compacted { summary, upto });
        Ok(())
    }
}

pub(crate) fn panic_words(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    words.unwrap_or_else(|| "a panic without words".to_owned())
}
