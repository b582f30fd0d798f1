//! Resumes a tree of the journal, and accounts for model calls that a crash interrupted.

use std::sync::{Arc, atomic::Ordering};

use homing_core::{
    fact::{Fact, Outcome},
    limits::Limits,
    message::Usage,
    model::{AskFailure, Charge, ModelError},
    tree::{RunTree, segment::Segment},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    handle::RunHandle,
    journal::{CallProgress, Claim, JournalError, LiveMarks},
    ledger::{self, worst_case},
    live_run::LiveRun,
    live_tree::LiveTree,
    runtime::{Inner, Runtime, SpawnError},
    segment::{attend_elsewhere, is_driven_elsewhere},
};

impl Runtime {
    /// Resumes a tree of the journal; `more` is added to its root's limits.
    ///
    /// A tree that has ended stays ended, unless a limit ended it and `more` extends it.
    pub async fn resume(&self, tree: Uuid, claim: Claim, more: Limits) -> Result<RunHandle, SpawnError> {
        let journal = &self.0.parts.journal;
        let mut fold = journal.fold(tree).await?;
        if !continues(&fold, more) {
            let epoch = fold.last_epoch();
            let tree = self.0.live_tree(tree, epoch, fold);
            tree.close();
            let id = tree.id;
            return Ok(RunHandle::new(self.clone(), tree, id));
        }
        // A claim replaces the former owner, so its last sign of life is read before.
        let marks = journal.marks(tree);
        let epoch = journal.claim(tree, claim).await?;
        // The former owner may have written records between the first read and the claim.
        for record in journal.since(tree, fold.next_seq()).await? {
            fold.apply(&record).map_err(|error| JournalError::Damaged(error.to_string()))?;
        }
        let interrupted = Interrupted::new(&fold, marks);
        let tree = self.0.live_tree(tree, epoch, fold);
        let id = tree.id;
        self.0.add_tree(tree.clone());
        if more != Limits::default() {
            drop(tree.record(id, Fact::Extended { more }));
        }
        self.0.resume_open_runs(&tree, &interrupted);
        Ok(RunHandle::new(self.clone(), tree, id))
    }
}

impl Inner {
    /// Drives every run that has not ended; a model call that was in progress is charged by its progress and made again.
    /// Runs of other segments are waited for.
    pub(crate) fn resume_open_runs(self: &Arc<Self>, tree: &Arc<LiveTree>, interrupted: &Interrupted) {
        let open: Vec<Uuid> =
            tree.read(|fold| fold.runs().iter().filter(|run| run.ended.is_none()).map(|run| run.id).collect());
        for id in &open {
            let (place, parent, ask) = tree.read_run(*id, |run| {
                let ask = run.open_ask().cloned().map(|asked| (asked, run.last_ask_began()));
                (run.place.clone(), run.spawned.parent, ask)
            });
            let parent = parent.and_then(|id| tree.live_run(id));
            let stop = parent.map_or_else(CancellationToken::new, |parent| parent.stop.child_token());
            let live_run = LiveRun::new(*id, place, stop);
            live_run.repeats_ask.store(ask.is_some(), Ordering::Relaxed);
            tree.add_live_run(live_run);
            if let Some((asked, began)) = ask.filter(|_| !is_driven_elsewhere(tree, *id)) {
                let rates = self.parts.models.get(&asked.model).ok().and_then(|model| model.card().rates.clone());
                let charge = match interrupted.progress(*id, began) {
                    Some(progress) => ledger::interrupted(&asked, rates.as_ref(), progress),
                    None => worst_case(&asked),
                };
                drop(tree.record(*id, interrupted_ask(charge)));
                tree.journal.mark(tree.id, *id, None);
            }
        }
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

/// Returns true if a tree has work left: it is open, or a limit ended it and `more` extends that limit.
fn continues(fold: &RunTree, more: Limits) -> bool {
    let ended = fold.root().and_then(|root| root.ended.as_ref());
    ended.is_none_or(|ended| {
        more != Limits::default() && matches!(ended.outcome, Outcome::Exhausted(_) | Outcome::TimedOut(_))
    })
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
    Fact::AskFailed { failure, charge }
}
