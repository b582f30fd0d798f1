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
//! crash, too: the reservation of a call that was interrupted stays until the owner of the tree settles it. Such a call is
//! charged an estimate of what had arrived, which is shown as such; the rest of its reservation still counts against the
//! limits, because the provider may have billed more, such as reasoning that it does not send.
//!
//! The amount is the worst case (upper bound of the input, maximum of the output, highest price that can apply), because
//! usage is known only after it has been paid for. With an estimate, calls in flight could exceed the limit together. In
//! return, the limit may seem to be reached while it is not: the money is only reserved, and most of it will be released. The
//! ledger therefore distinguishes [`Fit::Later`] from [`Fit::Full`]. It does not wait itself. Waiting needs a clock and a
//! queue, and it must be fair between runs, which is the job of the scheduler; the ledger only answers, and its answer
//! depends on nothing but the facts.
//!
//! # Landings
//!
//! A run that reaches a limit gets one last model call, its landing. So that this call is always affordable, it is held from
//! the run's first call until its end, at the run and at all of its ancestors, beside the reservations of calls
//! ([`landing`]). A run therefore starts only if its first call and its landing fit together; otherwise it queues. Landings
//! of other runs are released when those end, so a run that has not started may wait for them. A run that has started must
//! not: two such runs would wait for each other's landings forever. It waits for calls in flight only, and then lands.
//!
//! # Room
//!
//! A call may be asked for less output than the model can give, because a reply that is cut is continued. Under a limit the
//! room is therefore what similar replies needed so far, or a fair share of what is left, whichever is larger ([`Room`]).

pub mod landing;
pub(crate) mod learned;
mod room;

use uuid::Uuid;

pub use self::{landing::LandingSize, learned::Margin, room::Room};
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
        /// Amount to reserve for the call.
        hold: Reservation,
        /// Amount to hold for the run's landing from now on.
        landing: Reservation,
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
    /// Maximum output tokens of the landing that is held beside the call. 0 for the landing itself and for programs.
    pub landing_output: u64,
    /// Margin of the model, by which it exceeded earlier reservations.
    pub margin: Margin,
    /// Number of calls that can be in flight at once.
    pub parallel: u64,
}

impl AskSize {
    /// Returns the least that must fit for the call to be made: its floor, and the smallest landing beside it.
    pub fn least_hold(&self, price: &Rates) -> Reservation {
        let call = self.hold(price, self.floor);
        if self.landing_output == 0 {
            return call;
        }
        let least = LandingSize::all(self.landing_output).next_back().unwrap_or_default();
        call + least.hold(price, self.margin)
    }

    /// Returns the most that the call can cost with this much output.
    fn hold(&self, price: &Rates, output: u64) -> Reservation {
        let tokens = self.input.saturating_add(output);
        self.margin.of(Reservation { tokens, cost_micros: price.worst(self.input, output) })
    }
}

/// Calls that a run is assumed to make, as long as no similar one has ended.
const ASSUMED_CALLS: u64 = 8;

/// Answers questions about the limits of a tree's runs.
///
/// Every run has the totals of its subtree, so a question looks at the run and its ancestors only, no matter how many runs
/// there are. Only if a budget is too short for all open runs does a call look at the other runs of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Ledger<'a>(&'a RunTree);

impl<'a> Ledger<'a> {
    pub(crate) fn new(tree: &'a RunTree) -> Self {
        Self(tree)
    }

    /// Checks whether a model call of run `id` and its landing fit the limits of the run and all of its ancestors.
    pub fn fit(&self, id: Uuid, size: AskSize, price: &Rates) -> Fit {
        let Some(run) = self.0.get(id) else { return Fit::Later };
        if size.landing_output == 0 {
            return self.fit_beside(run, size, price, Reservation::default());
        }
        let landing = |landing: LandingSize| landing.hold(price, size.margin);
        let mut sizes = LandingSize::all(size.landing_output).map(landing);
        let least = sizes.next_back().unwrap_or_default();
        let modest = sizes.find(|landing| self.is_modest(run, *landing)).unwrap_or(least);
        match self.fit_beside(run, size, price, modest) {
            Fit::Later | Fit::Full(_) if modest != least => self.fit_beside(run, size, price, least),
            fit => fit,
        }
    }

    /// Checks whether a call fits beside what others hold and a landing of this run.
    fn fit_beside(&self, run: &'a Run, size: AskSize, price: &Rates, landing: Reservation) -> Fit {
        let (mut output, mut later) = (size.output, false);
        let mut above = Reservation::default();
        for holder in self.0.lineage(run.id) {
            if holder.id != run.id {
                above += holder.stopping.landing_hold;
            }
            for budget in budgets(holder) {
                let needed = |output| budget.amount(size.hold(price, output) + landing);
                let held = budget.amount(holder.held + holder.links.unseen().held - run.stopping.landing_hold);
                if let Some(fits) = budget.largest_output(size, budget.spent.saturating_add(held), needed) {
                    output = output.min(fits);
                    continue;
                }
                let landings = landings_below(holder) - run.stopping.landing_hold;
                let lasting = if has_started(run) { landings } else { above };
                let spent = budget.spent.saturating_add(budget.amount(lasting));
                if budget.largest_output(size, spent, needed).is_none() || !self.will_release(holder, run) {
                    return Fit::Full(budget.hit(holder));
                }
                later = true;
            }
        }
        if later || (!landing.is_zero() && self.should_queue(run, size, price, landing)) {
            return Fit::Later;
        }
        Fit::Fits { max_output: output, hold: size.hold(price, output), landing }
    }

    /// Returns whether something that is held at `holder` will be released without `waiter` going on: a call is in flight, or
    /// a run is at work that is not an ancestor of the waiter. A run that waits for children of its own is not at work, for
    /// these may be waiting as well.
    fn will_release(&self, holder: &Run, waiter: &Run) -> bool {
        if holder.held + holder.links.unseen().held != landings_below(holder) {
            return true;
        }
        self.0.runs().iter().any(|run| self.is_at_work(run) && is_beside(run, holder, waiter))
    }

    fn is_at_work(&self, run: &Run) -> bool {
        run.ended.is_none()
            && !run.stopping.landing_hold.is_zero()
            && !run.questions().any_open()
            && (self.0.children(run).all(|child| child.ended.is_some()) || !run.is_waiting())
    }

    /// Returns whether a run had better wait although its next call fits, because what is left will be needed by runs that
    /// started before it. Without this, all runs of a fan-out would start, each would get a part of the way, and none would
    /// finish.
    ///
    /// Only the runs at work that precede it count, so the first of them never waits for another.
    fn should_queue(&self, run: &'a Run, size: AskSize, price: &Rates, landing: Reservation) -> bool {
        // Most runs have no limited ancestor.
        if !self.0.lineage(run.id).skip(1).any(|holder| budgets(holder).next().is_some()) {
            return false;
        }
        let call = size.hold(price, size.floor) + landing;
        let first = size.hold(price, size.floor.min(room::LEAST));
        let whole = self.whole_need(run, first);
        let own = if has_started(run) { call } else { whole.max(call) };
        self.0.lineage(run.id).skip(1).any(|holder| {
            budgets(holder).any(|budget| {
                let left = budget.limit.saturating_sub(budget.spent);
                if budget.amount(whole).saturating_mul(holder.links.open_below + 1) <= left {
                    return false;
                }
                let ahead = self.ahead_of(run, holder);
                let needed = ahead.clone().fold(0_u64, |sum, other| {
                    let spent = spent_by(other) + other.stopping.landing_hold;
                    sum.saturating_add(budget.amount(self.whole_need(other, first) - spent))
                });
                let landings = budget.amount(landings_below(holder) - run.stopping.landing_hold);
                let is_short = needed.saturating_add(landings).saturating_add(budget.amount(own)) > left;
                let ahead = ahead.count() as u64;
                ahead > 0 && (is_short || (!has_started(run) && ahead >= size.parallel))
            })
        })
    }

    /// Returns the runs at work below `holder` that precede `run`. Every run that has started precedes those that have not.
    fn ahead_of(&self, run: &'a Run, holder: &'a Run) -> impl Iterator<Item = &'a Run> + Clone {
        let ledger = *self;
        self.0.runs().iter().filter(move |other| {
            let precedes = !has_started(run) || other.links.index < run.links.index;
            has_started(other) && precedes && ledger.is_at_work(other) && is_beside(other, holder, run)
        })
    }

    /// Estimates how much a run needs from its first call to its end: as much as similar runs that have ended. Until one has,
    /// it is assumed to make a few calls like those so far, or like `first`, and to be a third of the
    /// way at most.
    fn whole_need(&self, run: &Run, first: Reservation) -> Reservation {
        let need = self.0.learned.need(run.links.agent);
        need.run().unwrap_or_else(|| {
            let call = need.call().unwrap_or(first);
            let calls = (0..ASSUMED_CALLS).fold(Reservation::default(), |sum, _| sum + call);
            calls.max(spent_by(run) + spent_by(run) + spent_by(run))
        })
    }

    /// Returns whether a landing takes no more than an eighth of any limit, shared with the other open runs.
    fn is_modest(&self, run: &Run, landing: Reservation) -> bool {
        self.0.lineage(run.id).all(|holder| {
            let sharing = if holder.id == run.id { 1 } else { holder.links.open_below.clamp(1, 64) };
            budgets(holder).all(|budget| budget.amount(landing).saturating_mul(8 * sharing) <= budget.limit)
        })
    }

    /// Returns the margin of a model: how far it exceeded its reservations in this tree.
    pub fn margin(&self, model: &str) -> Margin {
        self.0.learned.margin(model)
    }

    /// Returns the limit that one more tool call would exceed.
    pub fn no_more_calls(&self, id: Uuid) -> Option<LimitHit> {
        self.0.lineage(id).find_map(|run| {
            let limit = run.limits.tool_calls.value()?;
            let spent = run.subtree.tool_calls.saturating_add(run.links.unseen().tool_calls);
            (spent >= limit).then(|| LimitHit { name: Limit::ToolCalls, limit, spent, place: run.place.clone() })
        })
    }

    /// Returns the limit that one more child of run `id` would exceed.
    pub fn no_more_children(&self, id: Uuid) -> Option<LimitHit> {
        let depth = u64::try_from(self.0.get(id)?.place.depth()).unwrap_or(u64::MAX) + 1;
        self.0.lineage(id).find_map(|run| {
            let below = depth - u64::try_from(run.place.depth()).unwrap_or(u64::MAX);
            let hit = |name, limit, spent| Some(LimitHit { name, limit, spent, place: run.place.clone() });
            let children = run.subtree.children.saturating_add(run.links.unseen().children);
            match (run.limits.depth, run.limits.children) {
                (Cap::At(limit), _) if below > limit => hit(Limit::Depth, limit, below),
                (_, Cap::At(limit)) if children >= limit => hit(Limit::Children, limit, children),
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

    /// Returns the milliseconds until the run must land because of the time limit of itself or an ancestor, and that limit.
    /// 0 means now.
    ///
    /// The last tenth of a limit is kept for the landing, or twice the slowest reply so far if that is longer: one for this
    /// run and one for its parent, which lands after it. At least half of the limit remains for the work itself.
    pub fn time_to_landing(&self, id: Uuid, clock: u64) -> Option<(u64, LimitHit)> {
        let slowest = self.0.lineage(id).map(|run| run.asks.slowest_ms).max().unwrap_or(0);
        let limits = self.wall_limits(id, clock).chain(self.work_limit(id, clock));
        let until = limits.map(|(_, hit)| {
            let kept = (hit.limit / 10).max(slowest.saturating_mul(2).min(hit.limit / 2));
            ((hit.limit - kept).saturating_sub(hit.spent), hit)
        });
        until.min_by_key(|(left, _)| *left)
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

/// Returns whether a run is within the subtree of `holder`, and neither `waiter` nor an ancestor of it.
fn is_beside(run: &Run, holder: &Run, waiter: &Run) -> bool {
    run.place.is_within(&holder.place) && !waiter.place.is_within(&run.place)
}

/// Returns whether a run has made a model or tool call.
fn has_started(run: &Run) -> bool {
    run.began().is_some()
}

/// Returns what a run itself has used.
fn spent_by(run: &Run) -> Reservation {
    Reservation { tokens: run.own.usage.tokens(), cost_micros: run.own.usage.cost_micros }
}

/// Returns what is held for the landings of a run and the runs below it, whichever process drives them.
fn landings_below(run: &Run) -> Reservation {
    run.links.landings + run.links.unseen().landings
}

/// One limited quantity of one run, with what is spent of it.
struct Budget {
    name: Limit,
    limit: u64,
    spent: u64,
}

fn budgets(run: &Run) -> impl Iterator<Item = Budget> {
    let Totals { usage, .. } = run.subtree;
    let budget = |name, spent| {
        let limit = run.limits.cap(name).value()?;
        Some(Budget { name, limit, spent })
    };
    let unknown = run.links.unknown + run.links.unseen().spent;
    let tokens = budget(Limit::Tokens, usage.tokens().saturating_add(unknown.tokens));
    let cost = budget(Limit::Cost, usage.cost_micros.saturating_add(unknown.cost_micros));
    tokens.into_iter().chain(cost)
}

impl Budget {
    /// Returns the part of a reservation that counts against this budget.
    fn amount(&self, hold: Reservation) -> u64 {
        if self.name == Limit::Tokens { hold.tokens } else { hold.cost_micros }
    }

    /// Returns the largest output, between the floor and the requested number, whose need fits beside `used`.
    fn largest_output(&self, size: AskSize, used: u64, needed: impl Fn(u64) -> u64) -> Option<u64> {
        let left = self.limit.checked_sub(used)?;
        largest(size.floor.min(size.output), size.output, |output| needed(output) <= left)
    }

    fn hit(&self, run: &Run) -> LimitHit {
        LimitHit { name: self.name, limit: self.limit, spent: self.spent, place: run.place.clone() }
    }
}

/// Returns the largest number from `least` to `most` that fits, if `least` fits.
fn largest(least: u64, most: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    if fits(most) {
        return Some(most);
    }
    if !fits(least) {
        return None;
    }
    let (mut low, mut high) = (least, most);
    while low + 1 < high {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    Some(low)
}
