//! `RunTree`: all runs of one tree, folded from its facts, with the totals of every subtree.

pub mod segment;

use std::{collections::BTreeSet, sync::Arc};

use uuid::Uuid;

pub use self::segment::Share;
use crate::{
    definition::OnFailure,
    fact::{Asked, Ended, Fact, OBSERVES, Outcome, Purpose, Record, Reservation, Spawned},
    id_map::IdMap,
    ledger::{Ledger, learned::Learned},
    limits::Limits,
    message::Usage,
    place::Place,
    question::OpenQuestion,
    run::{Links, Run},
    taint::Origin,
    tool::CallKey,
};

/// All runs of one tree. Only [`RunTree::apply`] changes it, so the journal rebuilds it exactly.
#[derive(Clone, Debug, Default)]
pub struct RunTree {
    runs: Vec<Run>,
    by_id: IdMap<Uuid, usize>,
    by_call: IdMap<CallKey, Vec<usize>>,
    next_seq: u64,
    pub(crate) clock: TreeClock,
    /// True if a run has ever asked the user.
    has_questions: bool,
    pub(crate) learned: Learned,
    origins: BTreeSet<Origin>,
    /// Usage of the facts that a fork took over.
    pub(crate) inherited: Usage,
    /// True while such a fact is applied.
    is_inheriting: bool,
    /// Positions of the runs that begin a segment.
    placed: Vec<usize>,
}

/// Time that has passed for a tree. It passes only while a process owns the tree or a part of it, and not while all open runs
/// wait for answers of the user.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeClock {
    pub(crate) now: u64,
    /// The owner that wrote last.
    last: Option<OwnerClock>,
    /// Earlier owners, and those of other segments, which may write again.
    others: Vec<OwnerClock>,
}

/// The last record of an owner: when it was written, by the owner's clock and by the tree's.
#[derive(Clone, Copy, Debug)]
struct OwnerClock {
    epoch: u32,
    at: u64,
    now: u64,
}

impl TreeClock {
    /// Returns the tree's time at time `at` of the owner `epoch`.
    fn at(&self, epoch: u32, at: u64) -> u64 {
        let owner = self.last.iter().chain(&self.others).find(|owner| owner.epoch == epoch);
        owner.map_or(self.now, |owner| self.now.max(owner.now + at.saturating_sub(owner.at)))
    }

    /// Notes a record of the owner `epoch`, at time `now` of the tree.
    fn advance(&mut self, epoch: u32, at: u64, now: u64) {
        self.now = now;
        if let Some(last) = self.last.filter(|last| last.epoch != epoch) {
            self.others.retain(|owner| owner.epoch != epoch);
            self.others.push(last);
        }
        self.last = Some(OwnerClock { epoch, at, now });
    }
}

/// A record that does not fit the ones before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// Records are missing or repeated.
    #[error("record {got} is out of order: expected record {expected}")]
    Gap {
        /// Expected position.
        expected: u64,
        /// Position of the record.
        got: u64,
    },
    /// The record's run does not exist.
    #[error("record {seq} belongs to run {run}, which was never spawned")]
    UnknownRun {
        /// Position of the record.
        seq: u64,
        /// The run.
        run: Uuid,
    },
}

/// Passes over a record that does not matter, such as one of another branch. The totals above that branch are then incomplete.
///
/// # Errors
/// Fails if the record does not follow the last one.
pub fn skip_record(tree: &mut RunTree, seq: u64, epoch: u32, at: u64) -> Result<(), FoldError> {
    if seq != tree.next_seq {
        return Err(FoldError::Gap { expected: tree.next_seq, got: seq });
    }
    tree.next_seq += 1;
    let now = tree.clock_at(epoch, at);
    tree.clock.advance(epoch, at, now);
    Ok(())
}

/// Returns the position of a run. The root is checked first, because most trees have no other run.
#[inline]
fn position(tree: &RunTree, id: Uuid) -> Option<usize> {
    match tree.runs.first() {
        Some(root) if root.id == id => Some(0),
        Some(_) | None => tree.by_id.get(&id).copied(),
    }
}

impl RunTree {
    /// Applies a record.
    ///
    /// # Errors
    /// Fails if the record does not follow the last one, or its run does not exist.
    pub fn apply(&mut self, record: &Record) -> Result<(), FoldError> {
        if record.seq != self.next_seq {
            return Err(FoldError::Gap { expected: self.next_seq, got: record.seq });
        }
        let at = match (&record.fact, position(self, record.run)) {
            (Fact::Spawned(_), _) => self.runs.len(),
            (_, Some(at)) => at,
            (_, None) => return Err(FoldError::UnknownRun { seq: record.seq, run: record.run }),
        };
        self.next_seq += 1;
        let now = self.clock_at(record.epoch, record.at);
        self.clock.advance(record.epoch, record.at, now);
        self.is_inheriting = record.is_inherited();
        match &record.fact {
            Fact::Spawned(spawned) => self.add(record.run, record.place.clone(), spawned),
            fact => self.apply_to(at, fact),
        }
        Ok(())
    }

    /// Replaces the first fact of a tree that is not recorded yet.
    pub fn replace_root(&mut self, spawned: Arc<Spawned>) {
        if let Some(root) = self.runs.first_mut() {
            root.spawned = spawned;
        }
    }

    fn add(&mut self, id: Uuid, place: Place, spawned: &Arc<Spawned>) {
        let at = self.runs.len();
        let parent = spawned.parent.and_then(|parent| position(self, parent));
        self.by_id.insert(id, at);
        let agent = self.learned.agent(&spawned.agent.name);
        if self.runs.is_empty() {
            // Most trees have one run, and a list that grows by itself begins with room for four.
            self.runs.reserve_exact(1);
        }
        self.runs.push(Run::new(id, place, Links { parent, index: at, agent, ..Links::default() }, spawned.clone()));
        if spawned.placed {
            self.placed.push(at);
        }
        if let Some(key) = spawned.parent_call {
            self.by_call.entry(key).or_default().push(at);
        }
        if let Some(parent) = parent {
            self.runs[parent].links.children.push(at);
            self.runs[parent].links.open_background += u32::from(spawned.background);
            // The passes of an observer do not use up the runs that its parent may start.
            let counted = u64::from(!spawned.tags.contains_key(OBSERVES));
            self.up_from(Some(parent), |run| {
                run.subtree.children += counted;
                run.links.open_below += 1;
            });
        }
    }

    fn apply_to(&mut self, at: usize, fact: &Fact) {
        let clock = self.clock.now;
        match fact {
            Fact::Spawned(_) => (),
            Fact::Asked(asked) => {
                let (hold, margin) = (asked.hold, self.learned.margin(&asked.model));
                self.up_from(Some(at), |run| run.held += hold);
                self.runs[at].stopping.landing_before = self.runs[at].stopping.landing_hold;
                self.hold_landing(at, asked.landing);
                self.runs[at].fold(clock).asked(asked, margin);
            }
            Fact::Replied { reply, .. } => {
                let asked = self.settle(at, reply.usage);
                let turns = u64::from(asked.is_some_and(|asked| asked.purpose != Purpose::Compaction));
                self.runs[at].fold(clock).replied(reply);
                self.up_from(Some(at), |run| run.subtree.turns += turns);
            }
            Fact::AskFailed { failure, charge } => {
                let asked = self.settle(at, *charge);
                self.runs[at].fold(clock).ask_failed(failure);
                if let Some(asked) = asked {
                    self.keep_rest(at, &asked, *charge);
                }
            }
            Fact::Called(called) => {
                self.origins.extend(called.origin);
                self.runs[at].fold(clock).called(called);
                self.up_from(Some(at), |run| run.subtree.tool_calls += 1);
            }
            Fact::Returned { key, result, refused, .. } => {
                self.runs[at].fold(clock).returned(*key, result, refused.as_ref());
            }
            Fact::Questioned { id, question } => {
                self.has_questions = true;
                self.runs[at].fold(clock).questioned(*id, question);
            }
            Fact::Answered { id, answer, .. } => self.runs[at].fold(clock).question_answered(*id, answer),
            Fact::Told { from, message } => {
                let sender = from.and_then(|id| position(self, id));
                let is_child = |sender: usize| self.runs[sender].links.parent == Some(at);
                if sender.is_some_and(is_child) {
                    self.runs[at].fold(clock).reported(message);
                } else {
                    self.runs[at].fold(clock).told(message);
                }
                if let Some(sender) = sender {
                    let links = &mut self.runs[sender].links;
                    links.told_parent |= links.parent == Some(at);
                }
            }
            Fact::Halted { by } => {
                self.runs[at].stopping.halted.get_or_insert(by.clone());
            }
            Fact::Compacted { summary, upto } => self.runs[at].fold(clock).compacted(summary, *upto),
            Fact::Extended { more } => self.extend(at, **more),
            Fact::Ended(ended) => self.ended(at, ended),
        }
    }

    /// Raises the limits of a run, and continues it if a limit had ended it.
    fn extend(&mut self, at: usize, more: Limits) {
        let run = &mut self.runs[at];
        run.limits = run.limits.raised_by(more);
        let (had_ended, parent) = (run.ended.is_some(), run.links.parent);
        run.fold(self.clock.now).reopen();
        let reopened = u64::from(had_ended && run.ended.is_none());
        self.up_from(parent, |run| run.links.open_below += reopened);
    }

    /// Replaces the open reservation by usage, and returns the call.
    fn settle(&mut self, at: usize, used: Usage) -> Option<Arc<Asked>> {
        let run = &mut self.runs[at];
        let asked = run.open_ask()?.clone();
        self.learned.used(run.links.agent, &asked, run.asks.margin, &used);
        // The other tree has paid for it.
        let used = if self.is_inheriting {
            self.inherited += used;
            Usage::default()
        } else {
            used
        };
        let at_most = if used.estimated { used.cost_micros } else { 0 };
        run.own.usage += used;
        run.own.at_most_micros += at_most;
        self.up_from(Some(at), |run| {
            run.held -= asked.hold;
            run.subtree.usage += used;
            run.subtree.at_most_micros += at_most;
        });
        Some(asked)
    }

    /// Replaces what is held for the landing of a run, at the run and its ancestors.
    fn hold_landing(&mut self, at: usize, landing: Reservation) {
        let before = std::mem::replace(&mut self.runs[at].stopping.landing_hold, landing);
        if before == landing {
            return;
        }
        self.up_from(Some(at), |run| {
            run.held = run.held - before + landing;
            run.links.landings = run.links.landings - before + landing;
        });
    }

    /// Keeps what is left of the reservation of a failed call. If its charge is an estimate, the rest counts against the limits,
    /// because the provider may bill more than had arrived. That of a landing is kept for the next attempt, so that another run
    /// does not take it.
    fn keep_rest(&mut self, at: usize, asked: &Asked, charge: Usage) {
        let rest = asked.hold - Reservation { tokens: charge.tokens(), cost_micros: charge.cost_micros };
        let is_unknown = charge.estimated && !self.is_inheriting;
        if is_unknown {
            self.up_from(Some(at), |run| run.links.unknown += rest);
        }
        if matches!(asked.purpose, Purpose::Landing(_)) && !self.runs[at].stopping.landing_before.is_zero() {
            self.hold_landing(at, if is_unknown { Reservation::default() } else { rest });
        }
    }

    fn ended(&mut self, at: usize, ended: &Arc<Ended>) {
        if self.runs[at].ended.is_some() {
            return;
        }
        self.runs[at].ended = Some(ended.clone());
        self.runs[at].work.stop(self.clock.now);
        self.hold_landing(at, Reservation::default());
        if self.runs[at].began().is_some() && !self.is_inheriting {
            self.learned.ended(self.runs[at].links.agent, &self.runs[at].own.usage);
        }
        let spawned = self.runs[at].spawned.clone();
        let Some(parent) = self.runs[at].links.parent else { return };
        self.up_from(Some(parent), |run| run.links.open_below = run.links.open_below.saturating_sub(1));
        let parent = &mut self.runs[parent];
        if spawned.background {
            parent.links.open_background = parent.links.open_background.saturating_sub(1);
            if parent.links.open_background == 0 {
                parent.fold(self.clock.now).all_reported();
            }
        }
        if let (Outcome::Failed { kind, message, .. }, OnFailure::FailParent) =
            (&ended.outcome, spawned.agent.task.on_failure)
        {
            let message = format!("child agent `{}` failed: {message}", spawned.agent.name);
            parent.stopping.force_outcome(Outcome::failed(*kind, message));
        }
    }

    /// Changes a run and all of its ancestors.
    fn up_from(&mut self, from: Option<usize>, change: impl Fn(&mut Run)) {
        let mut next = from;
        while let Some(at) = next {
            change(&mut self.runs[at]);
            next = self.runs[at].links.parent;
        }
    }

    /// Returns this run and its ancestors, up to the root.
    pub fn lineage(&self, id: Uuid) -> impl Iterator<Item = &Run> {
        let first = self.get(id);
        std::iter::successors(first, |run| run.links.parent.map(|at| &self.runs[at]))
    }

    /// Looks up a run.
    #[inline]
    pub fn get(&self, id: Uuid) -> Option<&Run> {
        position(self, id).map(|at| &self.runs[at])
    }

    /// Returns the root run.
    pub fn root(&self) -> Option<&Run> {
        self.runs.first()
    }

    /// Returns all runs in the order in which they were spawned.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the origins of the untrusted content that runs of this tree have read.
    pub fn origins(&self) -> &BTreeSet<Origin> {
        &self.origins
    }

    /// Returns the children of a run in the order in which they were spawned.
    pub fn children<'a>(&'a self, run: &'a Run) -> impl DoubleEndedIterator<Item = &'a Run> {
        run.links.children.iter().map(|at| &self.runs[*at])
    }

    /// Returns the runs that a call spawned: more than one if failures were retried.
    pub fn spawned_by(&self, key: CallKey) -> impl DoubleEndedIterator<Item = &Run> {
        self.by_call.get(&key).into_iter().flatten().map(|at| &self.runs[*at])
    }

    /// Returns whether `id` is a descendant of `top`.
    pub fn is_below(&self, id: Uuid, top: Uuid) -> bool {
        id != top && self.lineage(id).any(|run| run.id == top)
    }

    /// Returns the place of the next child of `parent`, or the root's.
    pub fn next_place(&self, parent: Option<Uuid>) -> Place {
        match parent.and_then(|id| self.get(id)) {
            None => Place::root(),
            Some(run) => run.place.child(u32::try_from(run.links.children.len() + 1).unwrap_or(u32::MAX)),
        }
    }

    /// Returns the position of the next record.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Returns the tree's clock at time `at` of the present owner.
    pub fn clock_at(&self, epoch: u32, at: u64) -> u64 {
        if self.is_parked() { self.clock.now } else { self.clock.at(epoch, at) }
    }

    /// Returns the questions that wait for an answer, in the order of the runs.
    pub fn open_questions(&self) -> Vec<OpenQuestion> {
        if !self.has_questions {
            return Vec::new();
        }
        self.runs.iter().flat_map(|run| run.questions().open()).collect()
    }

    /// Returns whether nothing can happen before the user answers a question: every open run waits for an answer, or for
    /// runs that do.
    pub fn is_parked(&self) -> bool {
        if !self.has_questions || !self.runs.iter().any(|run| run.questions().any_open()) {
            return false;
        }
        let waits_for_child = |run: &Run| self.children(run).rev().any(|child| child.ended.is_none());
        let is_stuck = |run: &Run| run.is_waiting() && (run.questions().any_open() || waits_for_child(run));
        self.runs.iter().rev().all(|run| run.ended.is_some() || is_stuck(run))
    }

    /// Returns the number of the last owner that wrote.
    pub fn last_epoch(&self) -> u32 {
        self.clock.last.map_or(0, |owner| owner.epoch)
    }

    /// Returns the ledger, which answers questions about limits.
    pub fn ledger(&self) -> Ledger<'_> {
        Ledger::new(self)
    }
}
