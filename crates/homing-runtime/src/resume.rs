//! Resumes a tree of the journal, or ends a part of it, and accounts for model calls that a crash interrupted.

use std::sync::{Arc, atomic::Ordering};

use homing_core::{
    envelope::Envelope,
    fact::{CancelledBy, Ended, Fact, Outcome},
    limits::Limits,
    message::Usage,
    model::{AskFailure, Charge, ModelError},
    run::Run,
    tree::{RunTree, segment::Segment},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    agent_loop::{active_run::ActiveRun, run_driver::RunDriver},
    handle::RunHandle,
    journal::{CallProgress, Claim, JournalError, LiveMarks},
    ledger::{self, worst_case},
    live_run::LiveRun,
    live_tree::LiveTree,
    runtime::{Inner, Runtime, SpawnError, release},
    segment::{attend_elsewhere, is_driven_elsewhere},
};

impl Runtime {
    /// Resumes a tree of the journal; `more` is added to its root's limits.
    ///
    /// A tree that has ended stays ended, unless a limit ended it and `more` extends it.
    ///
    /// # Errors
    ///
    /// Fails if the tree is unknown or pruned, a living process owns it and `claim` does not force it, its owners crashed repeatedly
    /// at the same step, or the journal cannot be written.
    pub async fn resume(&self, tree: Uuid, claim: Claim, more: Limits) -> Result<RunHandle, SpawnError> {
        let fold = self.0.parts.journal.fold(tree).await?;
        if !continues(&fold, more) {
            return Ok(closed(self, tree, tree, fold));
        }
        let (tree, interrupted) = take_over(&self.0, tree, fold, claim).await?;
        let id = tree.id;
        if more != Limits::default() {
            drop(tree.record(id, Fact::Extended { more: Box::new(more) }));
        }
        self.0.resume_open_runs(&tree, &interrupted);
        Ok(RunHandle::new(self.clone(), tree, id))
    }

    /// Cancels a run and all runs below it, also in a tree of the journal that no process drives, such as one that waits for an
    /// answer. Nothing is resumed for it: no model is asked and no tool is called. Returns the result of the run, which is an
    /// earlier one if it had ended.
    ///
    /// # Errors
    ///
    /// Fails if the run is unknown or its tree pruned, another living process owns the tree, or the journal cannot be written.
    pub async fn cancel(&self, tree: Uuid, run: Uuid, by: CancelledBy) -> Result<Envelope, SpawnError> {
        if let Some(handle) = self.get(run) {
            handle.cancel(by);
            return Ok(handle.wait().await);
        }
        let fold = self.0.parts.journal.fold(tree).await?;
        match fold.get(run) {
            None => return Err(JournalError::NoSuchTree(run).into()),
            Some(found) if found.ended.is_some() => return Ok(closed(self, tree, run, fold).envelope()),
            Some(_) => (),
        }
        let (tree, interrupted) = match take_over(&self.0, tree, fold.clone(), Claim::IfGone).await {
            // Its owners are gone, and what made them crash is not tried again.
            Err(SpawnError::Journal(JournalError::CrashLoop { .. })) => {
                take_over(&self.0, tree, fold, Claim::Force).await?
            }
            taken => taken?,
        };
        let handle = RunHandle::new(self.clone(), tree.clone(), run);
        add_open_runs(&self.0, &tree, &interrupted);
        self.0.cancel(&tree, run, by);
        let branch: Vec<Uuid> = tree.read(|fold| {
            let Some(top) = fold.get(run) else { return Vec::new() };
            let below = |other: &&Run| other.ended.is_none() && other.place.is_within(&top.place);
            fold.runs().iter().filter(below).map(|run| run.id).collect()
        });
        for live_run in branch.into_iter().filter_map(|id| tree.live_run(id)) {
            let active = ActiveRun { runtime: self.0.clone(), tree: tree.clone(), live_run };
            tokio::spawn(RunDriver::new(active).end_stopped());
        }
        let envelope = handle.wait().await;
        // The rest of the tree is as it was, and any process can resume it.
        if tree.read(|fold| fold.root().is_some_and(|root| root.ended.is_none())) {
            release(&self.0, &tree);
        }
        Ok(envelope)
    }
}

impl Inner {
    /// Drives every run that has not ended. Runs of other segments are waited for.
    pub(crate) fn resume_open_runs(self: &Arc<Self>, tree: &Arc<LiveTree>, interrupted: &Interrupted) {
        let open = add_open_runs(self, tree, interrupted);
        let below =
            tree.segment.as_ref().map(|segment| tree.read(|fold| Segment::new(fold, segment.root).open_below()));
        let below = below.unwrap_or_default();
        for live_run in open.iter().filter_map(|id| tree.live_run(*id)) {
            if below.contains(&live_run.run) {
                attend_elsewhere(tree, live_run);
            } else if !is_driven_elsewhere(tree, live_run.run) {
                self.drive(tree.clone(), live_run);
            }
        }
    }
}

/// Returns a handle to a run of a tree that the runtime does not drive.
fn closed(runtime: &Runtime, tree: Uuid, run: Uuid, fold: RunTree) -> RunHandle {
    let epoch = fold.last_epoch();
    let tree = runtime.0.live_tree(tree, epoch, fold);
    tree.close();
    RunHandle::new(runtime.clone(), tree, run)
}

/// Makes the runtime the owner of a tree, whose records were folded before.
async fn take_over(
    inner: &Arc<Inner>,
    tree: Uuid,
    mut fold: RunTree,
    claim: Claim,
) -> Result<(Arc<LiveTree>, Interrupted), SpawnError> {
    let journal = &inner.parts.journal;
    // A claim replaces the former owner, so its last sign of life is read before.
    let marks = journal.marks(tree);
    let epoch = journal.claim(tree, claim).await?;
    // The former owner may have written records between the first read and the claim.
    for record in journal.since(tree, fold.next_seq()).await? {
        fold.apply(&record).map_err(|error| JournalError::Damaged(error.to_string()))?;
    }
    let interrupted = Interrupted::new(&fold, marks);
    let tree = inner.live_tree(tree, epoch, fold);
    inner.add_tree(tree.clone());
    Ok((tree, interrupted))
}

/// Adds every run that has not ended to the live runs of its tree, and returns them. A model call that was in progress is
/// charged by its progress and must be made again.
fn add_open_runs(inner: &Inner, tree: &Arc<LiveTree>, interrupted: &Interrupted) -> Vec<Uuid> {
    let open: Vec<Uuid> =
        tree.read(|fold| fold.runs().iter().filter(|run| run.ended.is_none()).map(|run| run.id).collect());
    for id in &open {
        let (place, parent, account, ask) = tree.read_run(*id, |run| {
            let ask = run.open_ask().cloned().map(|asked| (asked, run.last_ask_began()));
            (run.place.clone(), run.spawned.parent, run.spawned.account.clone(), ask)
        });
        let parent = parent.and_then(|id| tree.live_run(id));
        let stop = parent.map_or_else(CancellationToken::new, |parent| parent.stop.child_token());
        let live_run = LiveRun::new(*id, place, stop);
        live_run.repeats_ask.store(ask.is_some(), Ordering::Relaxed);
        tree.add_live_run(live_run);
        if let Some((asked, began)) = ask.filter(|_| !is_driven_elsewhere(tree, *id)) {
            let rates = inner.parts.models.get(&asked.model).ok().and_then(|model| model.card().rates.clone());
            let charge = match interrupted.progress(*id, began) {
                Some(progress) => ledger::interrupted(&asked, rates.as_ref(), progress),
                None => worst_case(&asked),
            };
            if let Some(account) = account {
                tree.journal.charge_interrupted(&account, *id, charge);
            }
            drop(tree.record(*id, interrupted_ask(charge)));
            tree.journal.mark(tree.id, *id, None);
        }
    }
    open
}

/// Returns true if a tree has work left: it is open, or a limit ended it and `more` extends that limit.
pub fn continues(fold: &RunTree, more: Limits) -> bool {
    fold.root().is_none_or(|root| root.ended.is_none() || extends(fold, root.id, more))
}

/// Returns whether a limit ended the run, and `more` continues it.
pub(crate) fn extends(fold: &RunTree, run: Uuid, more: Limits) -> bool {
    let ended = fold.get(run).and_then(|run| run.ended.as_ref());
    let by_limit = |ended: &Arc<Ended>| matches!(ended.outcome, Outcome::Exhausted(_) | Outcome::TimedOut(_));
    more != Limits::default() && ended.is_some_and(by_limit)
}

/// The progress of the model calls that a crash interrupted, as far as it is known.
pub(crate) struct Interrupted {
    marks: LiveMarks,
    /// Time at which the owner was last seen, by the tree's clock; `None` if it is not known.
    seen_at: Option<u64>,
}

impl Interrupted {
    /// Nothing is known: calls are charged their worst case.
    pub(crate) fn unknown() -> Self {
        Self { marks: LiveMarks::default(), seen_at: None }
    }

    fn new(fold: &RunTree, marks: LiveMarks) -> Self {
        let seen_at = marks.seen_at.map(|at| fold.clock_at(fold.last_epoch(), at));
        Self { marks, seen_at }
    }

    /// The progress of the call of `run` that began at this time of the tree's clock.
    fn progress(&self, run: Uuid, began: u64) -> Option<CallProgress> {
        Some(self.marks.progress(run, self.seen_at?.saturating_sub(began)))
    }
}

/// The end of a model call that was in progress when the process died. The provider may have billed it, so it is charged, and
/// the call is made again.
pub(crate) fn interrupted_ask(charge: Usage) -> Fact {
    let reason = "the process died while the model was answering".to_owned();
    let failure = AskFailure::new(ModelError::Broken { reason }, Charge::Hold);
    Fact::AskFailed { failure: Box::new(failure), charge }
}
