//! The ledger: whether a model call, a tool call or a child still fits the limits of a run and its ancestors, and how much
//! time is left.
//!
//! # Reservations
//!
//! Before a model call, the most that it can cost is reserved; after it, the reservation is settled, that is, replaced by
//! the usage that the provider reports. Between the two, the reserved amount counts as spent.
//!
//! A reservation is made at the run and at all of its ancestors together, because each of them may have a limit over its
//! whole subtree. Siblings run concurrently: if a call were checked only against its own run, a hundred children could each
//! fit their own limit and still exceed the limit of their common parent. Both sides are part of the fold: `Asked` adds the
//! reservation to every run on the path to the root, `Replied` or `AskFailed` removes it. So the sums are exact after a
//! crash, too: the reservation of a call that was interrupted stays until the owner of the tree settles it.
//!
//! The amount is the worst case (upper bound of the input, maximum of the output, highest price that can apply), because
//! usage is known only after it has been paid for. With an estimate, calls in flight could exceed the limit together. In
//! return, the limit may seem to be reached while it is not: the money is only reserved, and most of it will be released. The
//! ledger therefore distinguishes [`Fit::Later`] from [`Fit::Full`]. It does not wait itself. Waiting needs a clock and a
//! queue, and it must be fair between runs, which is the job of the scheduler; the ledger only answers, and its answer
//! depends on nothing but the facts.

use uuid::Uuid;

use crate::{
    fact::{LimitHit, Reservation},
    limits::{Cap, Limit},
    model::Rates,
    run::{Run, Totals},
    tree::RunTree,
};

/// Result of checking a model call against the limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The call fits.
    Fits {
        /// Maximum output tokens of the call, at most the requested number.
        max_output: u64,
        /// Amount to reserve.
        hold: Reservation,
    },
    /// The call does not fit now, but may fit when an open call is settled for less than its reservation.
    Later,
    /// The call does not fit.
    Full(LimitHit),
}

/// Size of a model call.
#[derive(Clone, Copy, Debug)]
pub struct AskSize {
    /// Upper bound on the input tokens.
    pub input: u64,
    /// Requested output tokens.
    pub output: u64,
    /// Minimum output tokens; with less the call is not worth making.
    pub floor: u64,
    /// Output tokens of the last turn, which must remain affordable afterwards. 0 for the last turn itself.
    pub reserve: u64,
}

/// Answers questions about the limits of a tree's runs.
///
/// Every run has the totals of its subtree, so each question looks at the run and its ancestors only, no matter how many
/// runs there are.
#[derive(Clone, Copy, Debug)]
pub struct Ledger<'a>(&'a RunTree);

impl<'a> Ledger<'a> {
    pub(crate) fn new(tree: &'a RunTree) -> Self {
        Self(tree)
    }

    /// Checks whether a model call of run `id` fits the limits of the run and all of its ancestors.
    pub fn fit(&self, id: Uuid, size: AskSize, price: &Rates) -> Fit {
        let mut output = size.output;
        for run in self.0.lineage(id) {
            for budget in budgets(run) {
                match budget.largest_output(size, price, budget.spent + budget.held) {
                    Some(fits) => output = output.min(fits),
                    None if budget.largest_output(size, price, budget.spent).is_some() => return Fit::Later,
                    None => return Fit::Full(budget.hit(run)),
                }
            }
        }
        let hold = Reservation { tokens: size.input + output, cost_micros: price.worst(size.input, output) };
        Fit::Fits { max_output: output, hold }
    }

    /// Returns the limit that one more tool call would exceed.
    pub fn no_more_calls(&self, id: Uuid) -> Option<LimitHit> {
        self.0.lineage(id).find_map(|run| {
            let limit = run.limits.tool_calls.value()?;
            let spent = run.subtree.tool_calls;
            (spent >= limit).then(|| LimitHit { name: Limit::ToolCalls, limit, spent, place: run.place.clone() })
        })
    }

    /// Returns the limit that one more child of run `id` would exceed.
    pub fn no_more_children(&self, id: Uuid) -> Option<LimitHit> {
        let depth = u64::try_from(self.0.get(id)?.place.depth()).unwrap_or(u64::MAX) + 1;
        self.0.lineage(id).find_map(|run| {
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

    /// Returns whether the depth limits permit run `id` to delegate. If not, its model is not offered the tool.
    pub fn may_go_deeper(&self, id: Uuid) -> bool {
        !matches!(self.no_more_children(id), Some(LimitHit { name: Limit::Depth, .. }))
    }

    /// Returns the milliseconds until the nearest time limit of a waiting run, by the tree's clock, and that limit.
    pub fn time_left(&self, id: Uuid, clock: u64) -> Option<(u64, LimitHit)> {
        self.wall_limits(id, clock).min_by_key(|(left, _)| *left)
    }

    /// Like [`Self::time_left`] for a run that works, to which its limit on working time applies as well.
    pub fn working_time_left(&self, id: Uuid, clock: u64) -> Option<(u64, LimitHit)> {
        self.time_left(id, clock).into_iter().chain(self.work_limit(id, clock)).min_by_key(|(left, _)| *left)
    }

    /// Returns the time limit of this run or an ancestor of which nine tenths are used.
    pub fn time_nearly_up(&self, id: Uuid, clock: u64) -> Option<LimitHit> {
        let limits = self.wall_limits(id, clock).chain(self.work_limit(id, clock));
        limits.map(|(_, hit)| hit).find(|hit| hit.spent >= hit.limit - hit.limit / 10)
    }

    fn wall_limits(&self, id: Uuid, clock: u64) -> impl Iterator<Item = (u64, LimitHit)> {
        self.0.lineage(id).filter_map(move |run| time_under(run, Limit::Wall, run.work.wall_ms(clock)))
    }

    fn work_limit(&self, id: Uuid, clock: u64) -> Option<(u64, LimitHit)> {
        self.0.get(id).and_then(|run| time_under(run, Limit::Work, run.work.worked_ms(clock)))
    }
}

fn time_under(run: &Run, name: Limit, spent: u64) -> Option<(u64, LimitHit)> {
    let limit = run.limits.cap(name).value()?;
    Some((limit.saturating_sub(spent), LimitHit { name, limit, spent, place: run.place.clone() }))
}

/// One limited quantity of one run, with what is spent and what is reserved of it.
struct Budget {
    name: Limit,
    limit: u64,
    spent: u64,
    held: u64,
}

fn budgets(run: &Run) -> impl Iterator<Item = Budget> {
    let Totals { usage, .. } = run.subtree;
    let budget = |name, spent, held| {
        let limit = run.limits.cap(name).value()?;
        Some(Budget { name, limit, spent, held })
    };
    let tokens = budget(Limit::Tokens, usage.tokens(), run.held.tokens);
    let cost = budget(Limit::Cost, usage.cost_micros, run.held.cost_micros);
    tokens.into_iter().chain(cost)
}

impl Budget {
    /// Returns the largest output, between the floor and the requested number, that fits beside `used` and keeps the last
    /// turn affordable.
    fn largest_output(&self, size: AskSize, price: &Rates, used: u64) -> Option<u64> {
        let left = self.limit.checked_sub(used)?;
        let fits = |output: u64| self.needed(size, price, output) <= left;
        if fits(size.output) {
            return Some(size.output);
        }
        let floor = size.floor.min(size.output);
        if !fits(floor) {
            return None;
        }
        let (mut low, mut high) = (floor, size.output);
        while low + 1 < high {
            let middle = low.midpoint(high);
            if fits(middle) { low = middle } else { high = middle }
        }
        Some(low)
    }

    /// Returns the worst case of the call, and of the last turn that may have to follow it with this reply in its input.
    fn needed(&self, size: AskSize, price: &Rates, output: u64) -> u64 {
        let landing_input = size.input.saturating_add(output);
        match self.name {
            Limit::Tokens if size.reserve == 0 => size.input.saturating_add(output),
            Limit::Tokens => {
                size.input.saturating_add(output).saturating_add(landing_input).saturating_add(size.reserve)
            }
            _ if size.reserve == 0 => price.worst(size.input, output),
            _ => price.worst(size.input, output).saturating_add(price.worst(landing_input, size.reserve)),
        }
    }

    fn hit(&self, run: &Run) -> LimitHit {
        LimitHit { name: self.name, limit: self.limit, spent: self.spent, place: run.place.clone() }
    }
}
