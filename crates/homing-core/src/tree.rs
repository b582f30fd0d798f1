//! All runs of one tree, as a fold over its facts, with the sums that limits are held against.
//!
//! Totals are kept at every run for the whole subtree below it, so that asking "does this still fit?" looks at the
//! ancestors only, however many runs there are.

use std::{collections::HashMap, sync::Arc};

use uuid::Uuid;

use crate::{
    definition::OnFailure,
    fact::{Called, Ended, Fact, LimitHit, Outcome, Record, Reservation, Spawned},
    limits::{Cap, Limit, Limits},
    message::Usage,
    place::Place,
    run::{Run, Totals},
    tool::CallKey,
};

/// All runs of one tree. Only [`RunTree::apply`] changes it, so a journal rebuilds it exactly.
#[derive(Clone, Debug, Default)]
pub struct RunTree {
    runs: Vec<Run>,
    by_id: HashMap<Uuid, usize>,
    by_call: HashMap<CallKey, Vec<usize>>,
    next_seq: u64,
    clock: u64,
    last: Option<(u32, u64)>,
}

/// A record that cannot follow the ones before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// Records are missing, or come twice.
    #[error("record {got} does not follow: {expected} was expected")]
    Gap {
        /// The position that was expected.
        expected: u64,
        /// The position that came.
        got: u64,
    },
    /// A fact of a run that does not exist.
    #[error("record {seq} speaks of run {run}, which was never spawned")]
    Stranger {
        /// Its position.
        seq: u64,
        /// The run it speaks of.
        run: Uuid,
    },
}

/// Whether an ask fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It fits with this much output.
    Fits {
        /// The most the reply may have, at most what was wished for.
        max_output: u64,
        /// What is to be held.
        hold: Reservation,
    },
    /// It would fit if asks under way cost less than they may: wait for one of them to settle.
    Later,
    /// It does not fit.
    Full(LimitHit),
}

/// What is to be asked, as the ledger sees it.
#[derive(Clone, Copy, Debug)]
pub struct AskSize {
    /// The most tokens that are sent.
    pub input: u64,
    /// The output that is wished for.
    pub output: u64,
    /// The least output that makes sense.
    pub floor: u64,
    /// Output to leave room for afterwards: that of a landing. 0 for a landing itself.
    pub reserve: u64,
}

impl RunTree {
    /// Takes one record in.
    pub fn apply(&mut self, record: &Record) -> Result<(), FoldError> {
        if record.seq != self.next_seq {
            return Err(FoldError::Gap { expected: self.next_seq, got: record.seq });
        }
        if !matches!(record.fact, Fact::Spawned(_)) && !self.by_id.contains_key(&record.run) {
            return Err(FoldError::Stranger { seq: record.seq, run: record.run });
        }
        self.next_seq += 1;
        self.advance(record.epoch, record.at);
        match &record.fact {
            Fact::Spawned(spawned) => self.add(record.run, record.place.clone(), spawned),
            fact => {
                let at = self.by_id[&record.run];
                self.apply_to(at, fact);
            }
        }
        Ok(())
    }

    /// Time passes only while somebody owns the tree: gaps between owners do not count.
    fn advance(&mut self, epoch: u32, at: u64) {
        if let Some((last_epoch, last_at)) = self.last
            && last_epoch == epoch
        {
            self.clock += at.saturating_sub(last_at);
        }
        self.last = Some((epoch, at));
    }

    fn add(&mut self, id: Uuid, place: Place, spawned: &Arc<Spawned>) {
        let at = self.runs.len();
        let parent = spawned.parent.and_then(|parent| self.by_id.get(&parent).copied());
        self.by_id.insert(id, at);
        self.runs.push(Run::new(id, place, parent, spawned.clone()));
        if let Some(key) = spawned.parent_call {
            self.by_call.entry(key).or_default().push(at);
        }
        if let Some(parent) = parent {
            self.runs[parent].children.push(at);
            self.runs[parent].open_background += u32::from(spawned.background);
            self.up_from(Some(parent), |run| run.subtree.children += 1);
        }
    }

    fn apply_to(&mut self, at: usize, fact: &Fact) {
        let clock = self.clock;
        match fact {
            Fact::Spawned(_) => (),
            Fact::Asked(asked) => {
                let hold = asked.hold;
                self.up_from(Some(at), |run| run.held += hold);
                self.runs[at].asked(asked, clock);
            }
            Fact::Replied { reply } => {
                let turns = u64::from(self.settle(at, reply.usage));
                self.runs[at].replied(reply, clock);
                self.up_from(Some(at), |run| run.subtree.turns += turns);
            }
            Fact::AskFailed { failure, charge } => {
                self.settle(at, *charge);
                self.runs[at].ask_failed(failure, clock);
            }
            Fact::Called(called) => self.called(at, called),
            Fact::Returned { key, result, refused } => self.runs[at].returned(*key, result, refused.as_ref(), clock),
            Fact::Told { from, message } => {
                self.runs[at].told(message);
                if let Some(teller) = from.and_then(|id| self.by_id.get(&id).copied()) {
                    self.runs[teller].told_parent |= self.runs[teller].parent == Some(at);
                }
            }
            Fact::Halted { by } => {
                self.runs[at].halted.get_or_insert(by.clone());
            }
            Fact::Compacted { summary, upto } => self.runs[at].compacted(summary, *upto),
            Fact::Extended { more } => {
                let run = &mut self.runs[at];
                run.limits = extended(run.limits, *more);
                run.reopen();
            }
            Fact::Ended(ended) => self.ended(at, ended),
        }
    }

    /// Turns the open hold into what was used. Says whether the ask was a turn.
    fn settle(&mut self, at: usize, used: Usage) -> bool {
        let Some(asked) = self.runs[at].open_ask() else { return false };
        let (hold, is_turn) = (asked.hold, asked.purpose != crate::fact::Purpose::Compaction);
        self.runs[at].own.usage += used;
        self.up_from(Some(at), |run| {
            run.held -= hold;
            run.subtree.usage += used;
        });
        is_turn
    }

    fn called(&mut self, at: usize, called: &Called) {
        self.runs[at].called(called.key, &called.call.name, called.replay, self.clock);
        self.runs[at].own.tool_calls += 1;
        self.up_from(Some(at), |run| run.subtree.tool_calls += 1);
    }

    fn ended(&mut self, at: usize, ended: &Arc<Ended>) {
        if self.runs[at].ended.is_some() {
            return;
        }
        self.runs[at].ended = Some(ended.clone());
        self.runs[at].over = Some(self.clock);
        let spawned = self.runs[at].spawned.clone();
        let Some(parent) = self.runs[at].parent else { return };
        let parent = &mut self.runs[parent];
        if spawned.background {
            parent.open_background = parent.open_background.saturating_sub(1);
        }
        if let (Outcome::Failed { kind, message, .. }, OnFailure::FailParent) =
            (&ended.outcome, spawned.agent.on_failure)
        {
            let message = format!("`{}` failed, and its failure is its parent's: {message}", spawned.agent.name);
            parent.doom(Outcome::failed(*kind, message));
        }
    }

    fn up_from(&mut self, from: Option<usize>, change: impl Fn(&mut Run)) {
        let mut next = from;
        while let Some(at) = next {
            change(&mut self.runs[at]);
            next = self.runs[at].parent;
        }
    }

    /// This run, its parent, and so on up.
    pub fn lineage(&self, id: Uuid) -> impl Iterator<Item = &Run> {
        let first = self.by_id.get(&id).map(|at| &self.runs[*at]);
        std::iter::successors(first, |run| run.parent.map(|at| &self.runs[at]))
    }

    /// Looks a run up.
    pub fn get(&self, id: Uuid) -> Option<&Run> {
        self.by_id.get(&id).map(|at| &self.runs[*at])
    }

    /// The root.
    pub fn root(&self) -> Option<&Run> {
        self.runs.first()
    }

    /// Every run, in the order in which they were spawned.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The children of a run, in the order in which they were spawned.
    pub fn children<'a>(&'a self, run: &'a Run) -> impl DoubleEndedIterator<Item = &'a Run> {
        run.children.iter().map(|at| &self.runs[*at])
    }

    /// The runs that a call has sent out: more than one where failures are retried.
    pub fn spawned_by(&self, key: CallKey) -> impl DoubleEndedIterator<Item = &Run> {
        self.by_call.get(&key).into_iter().flatten().map(|at| &self.runs[*at])
    }

    /// Whether `id` is a descendant of `top`.
    pub fn is_below(&self, id: Uuid, top: Uuid) -> bool {
        id != top && self.lineage(id).any(|run| run.id == top)
    }

    /// The place of the next child of `parent`, or of the root.
    pub fn next_place(&self, parent: Option<Uuid>) -> Place {
        match parent.and_then(|id| self.get(id)) {
            None => Place::root(),
            Some(run) => run.place.child(u32::try_from(run.children.len() + 1).unwrap_or(u32::MAX)),
        }
    }

    /// The position of the next record.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Milliseconds that owners have spent on the tree.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// The tree's clock at time `at` of the present owner.
    pub fn clock_at(&self, epoch: u32, at: u64) -> u64 {
        match self.last {
            Some((last_epoch, last_at)) if last_epoch == epoch => self.clock + at.saturating_sub(last_at),
            Some(_) | None => self.clock,
        }
    }

    /// The last owner that wrote.
    pub fn last_epoch(&self) -> u32 {
        self.last.map_or(0, |(epoch, _)| epoch)
    }

    /// Whether `wish` fits at the run and at every ancestor; the answer of the tightest counts.
    pub fn room(&self, id: Uuid, wish: AskSize, price: &crate::model::Rates) -> Fit {
        let mut output = wish.output;
        for run in self.lineage(id) {
            for purse in purses(run) {
                match purse.largest_output(wish, price, purse.spent + purse.held) {
                    Some(fits) => output = output.min(fits),
                    None if purse.largest_output(wish, price, purse.spent).is_some() => return Fit::Later,
                    None => return Fit::Full(purse.hit(run)),
                }
            }
        }
        let hold = Reservation { tokens: wish.input + output, cost_micros: price.worst(wish.input, output) };
        Fit::Fits { max_output: output, hold }
    }

    /// The limit that one more tool call would break.
    pub fn no_more_calls(&self, id: Uuid) -> Option<LimitHit> {
        self.lineage(id).find_map(|run| {
            let limit = run.limits.tool_calls.value()?;
            let spent = run.subtree.tool_calls;
            (spent >= limit).then(|| LimitHit { name: Limit::ToolCalls, limit, spent, place: run.place.clone() })
        })
    }

    /// The limit that one more child of `id` would break.
    pub fn no_more_children(&self, id: Uuid) -> Option<LimitHit> {
        let depth = u64::try_from(self.get(id)?.place.depth()).unwrap_or(u64::MAX) + 1;
        self.lineage(id).find_map(|run| {
            let below = depth - u64::try_from(run.place.depth()).unwrap_or(u64::MAX);
            let hit = |name, limit, spent| Some(LimitHit { name, limit, spent, place: run.place.clone() });
            match (run.limits.depth, run.limits.children) {
                (Cap::At(limit), _) if below > limit => hit(Limit::Depth, limit, below),
                (_, Cap::At(limit)) if run.subtree.children >= limit => {
                    hit(Limit::Children, limit, run.subtree.children)
                }
                _ => None,
            }
        })
    }

    /// Whether `id` may delegate at all as far as depth goes; decides whether the model is shown the tool.
    pub fn may_go_deeper(&self, id: Uuid) -> bool {
        !matches!(self.no_more_children(id), Some(LimitHit { name: Limit::Depth, .. }))
    }

    /// The nearest end of time for a run that waits: milliseconds left by the tree's clock, and whose limit it is.
    pub fn time_left(&self, id: Uuid, clock: u64) -> Option<(u64, LimitHit)> {
        let ends = self.lineage(id).filter_map(|run| time_under(run, Limit::Wall, run.wall_ms(clock)));
        ends.min_by_key(|(left, _)| *left)
    }

    /// The same for a run that asks or acts, which its limit on own work bounds, too.
    pub fn working_time_left(&self, id: Uuid, clock: u64) -> Option<(u64, LimitHit)> {
        let work = self.get(id).and_then(|run| time_under(run, Limit::Work, run.worked_ms(clock)));
        self.time_left(id, clock).into_iter().chain(work).min_by_key(|(left, _)| *left)
    }

    /// The time limit, of this run or an ancestor, of which nine tenths are gone.
    pub fn time_nearly_up(&self, id: Uuid, clock: u64) -> Option<LimitHit> {
        let wall = self.lineage(id).filter_map(|run| time_under(run, Limit::Wall, run.wall_ms(clock)));
        let work = self.get(id).and_then(|run| time_under(run, Limit::Work, run.worked_ms(clock)));
        wall.chain(work).map(|(_, hit)| hit).find(|hit| hit.spent >= hit.limit - hit.limit / 10)
    }
}

fn time_under(run: &Run, name: Limit, spent: u64) -> Option<(u64, LimitHit)> {
    let limit = run.limits.cap(name).value()?;
    Some((limit.saturating_sub(spent), LimitHit { name, limit, spent, place: run.place.clone() }))
}

/// One limited quantity of one run: what was spent and what is held against it.
struct Budget {
    name: Limit,
    limit: u64,
    spent: u64,
    held: u64,
}

fn purses(run: &Run) -> impl Iterator<Item = Budget> {
    let Totals { usage, .. } = run.subtree;
    let purse = |name, spent, held| {
        let limit = run.limits.cap(name).value()?;
        Some(Budget { name, limit, spent, held })
    };
    let tokens = purse(Limit::Tokens, usage.tokens(), run.held.tokens);
    let cost = purse(Limit::Cost, usage.cost_micros, run.held.cost_micros);
    tokens.into_iter().chain(cost)
}

impl Budget {
    /// The largest output, between the floor and the wish, that fits beside `used` and leaves room for a landing.
    fn largest_output(&self, wish: AskSize, price: &crate::model::Rates, used: u64) -> Option<u64> {
        let left = self.limit.checked_sub(used)?;
        let fits = |output: u64| self.needed(wish, price, output) <= left;
        if fits(wish.output) {
            return Some(wish.output);
        }
        let floor = wish.floor.min(wish.output);
        if !fits(floor) {
            return None;
        }
        let (mut low, mut high) = (floor, wish.output);
        while low + 1 < high {
            let middle = low.midpoint(high);
            if fits(middle) { low = middle } else { high = middle }
        }
        Some(low)
    }

    /// The ask itself, and the landing that may have to follow it with this reply in its input.
    fn needed(&self, wish: AskSize, price: &crate::model::Rates, output: u64) -> u64 {
        let landing_input = wish.input.saturating_add(output);
        match self.name {
            Limit::Tokens if wish.reserve == 0 => wish.input.saturating_add(output),
            Limit::Tokens => {
                wish.input.saturating_add(output).saturating_add(landing_input).saturating_add(wish.reserve)
            }
            _ if wish.reserve == 0 => price.worst(wish.input, output),
            _ => price.worst(wish.input, output).saturating_add(price.worst(landing_input, wish.reserve)),
        }
    }

    fn hit(&self, run: &Run) -> LimitHit {
        LimitHit { name: self.name, limit: self.limit, spent: self.spent, place: run.place.clone() }
    }
}

/// Adds to limits: a number adds to a number, `none` lifts, silence changes nothing.
fn extended(limits: Limits, more: Limits) -> Limits {
    let add = |have: Cap, more: Cap| match (have, more) {
        (have, Cap::Default) => have,
        (_, Cap::Unlimited) => Cap::Unlimited,
        (Cap::At(have), Cap::At(more)) => Cap::At(have.saturating_add(more)),
        (Cap::Unlimited | Cap::Default, Cap::At(_)) => have,
    };
    Limits {
        turns: add(limits.turns, more.turns),
        depth: add(limits.depth, more.depth),
        tokens: add(limits.tokens, more.tokens),
        cost_micros: add(limits.cost_micros, more.cost_micros),
        tool_calls: add(limits.tool_calls, more.tool_calls),
        children: add(limits.children, more.children),
        wall_ms: add(limits.wall_ms, more.wall_ms),
        work_ms: add(limits.work_ms, more.work_ms),
    }
}
