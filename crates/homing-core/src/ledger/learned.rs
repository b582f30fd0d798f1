//! Figures learned from the calls of a tree: how much output the runs of an agent need, how much a whole run needs, and by
//! how much a model exceeds what it was asked for.

use std::collections::HashMap;

use crate::{
    fact::{Asked, Purpose, Reservation},
    message::Usage,
};

/// The needs of each agent's runs so far, and the overruns of each model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learned {
    needs: Vec<Need>,
    by_agent: HashMap<String, usize>,
    margins: HashMap<String, Margin>,
}

/// The needs of one agent's runs so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    pub(crate) reply_size: ReplySize,
    /// Calls that were settled, and their usage.
    calls: (u64, Reservation),
    /// Runs that have ended, and their usage.
    ended: (u64, Reservation),
}

/// Output tokens of one reply: at least the largest of the last ones. 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReplySize(pub(crate) u64);

impl ReplySize {
    /// Takes in the output of a reply. A larger one counts at once, a smaller one only gradually.
    pub(crate) fn replied(&mut self, output: u64) {
        self.0 = if output >= self.0 { output } else { self.0 - (self.0 - output) / 16 };
    }
}

impl Need {
    /// Returns what a run needs on average, if one has ended.
    pub(crate) fn run(&self) -> Option<Reservation> {
        mean(self.ended)
    }

    /// Returns what a call needs on average, if one was settled.
    pub(crate) fn call(&self) -> Option<Reservation> {
        mean(self.calls)
    }
}

fn mean((count, sum): (u64, Reservation)) -> Option<Reservation> {
    let of = |amount: u64| amount.checked_div(count);
    Some(Reservation { tokens: of(sum.tokens)?, cost_micros: of(sum.cost_micros)? })
}

/// The factor, in thousandths, by which a model's usage exceeded its reservation. At least 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Margin(u64);

/// The largest margin. A provider that reports more than this is not believed: nothing could be reserved any more.
const MAX_MARGIN: u64 = 100_000;

impl Default for Margin {
    fn default() -> Self {
        Self(1_000)
    }
}

impl Margin {
    /// Returns the reservation with this margin.
    pub(crate) fn of(self, hold: Reservation) -> Reservation {
        if self == Self::default() {
            return hold;
        }
        Reservation { tokens: self.scale(hold.tokens), cost_micros: self.scale(hold.cost_micros) }
    }

    fn scale(self, amount: u64) -> u64 {
        u64::try_from((u128::from(amount) * u128::from(self.0)).div_ceil(1_000)).unwrap_or(u64::MAX)
    }

    /// Returns the margin that would have covered `used`.
    fn covering(self, used: u64, hold: u64) -> Self {
        if used <= hold || hold == 0 {
            return self;
        }
        let needed = (u128::from(used) * u128::from(self.0)).div_ceil(u128::from(hold));
        Self(u64::try_from(needed).unwrap_or(MAX_MARGIN).clamp(self.0, MAX_MARGIN.max(self.0)))
    }
}

impl Learned {
    /// Returns the number by which the needs of an agent's runs are looked up.
    pub(crate) fn agent(&mut self, name: &str) -> usize {
        if let Some(at) = self.by_agent.get(name) {
            return *at;
        }
        self.needs.push(Need::default());
        self.by_agent.insert(name.to_owned(), self.needs.len() - 1);
        self.needs.len() - 1
    }

    pub(crate) fn need(&self, agent: usize) -> Need {
        self.needs.get(agent).copied().unwrap_or_default()
    }

    pub(crate) fn margin(&self, model: &str) -> Margin {
        self.margins.get(model).copied().unwrap_or_default()
    }

    /// Takes in the usage that a provider reported for a call of a run of `agent`, whose reservation had the margin `then`.
    pub(crate) fn used(&mut self, agent: usize, asked: &Asked, then: Margin, used: &Usage) {
        if used.estimated {
            return;
        }
        if let Some(need) = self.needs.get_mut(agent).filter(|_| asked.purpose == Purpose::Turn) {
            need.reply_size.replied(used.output);
            need.calls.0 += 1;
            need.calls.1 += Reservation { tokens: used.tokens(), cost_micros: used.cost_micros };
        }
        let (tokens, cost) = (used.tokens(), used.cost_micros);
        if tokens > asked.hold.tokens || cost > asked.hold.cost_micros {
            let seen = then.covering(tokens, asked.hold.tokens).max(then.covering(cost, asked.hold.cost_micros));
            let margin = self.margins.entry(asked.model.clone()).or_default();
            *margin = seen.max(*margin);
        }
    }

    /// Takes in the end of a run of `agent` that used this much itself.
    pub(crate) fn ended(&mut self, agent: usize, used: &Usage) {
        if let Some(need) = self.needs.get_mut(agent) {
            need.ended.0 += 1;
            need.ended.1 += Reservation { tokens: used.tokens(), cost_micros: used.cost_micros };
        }
    }
}
