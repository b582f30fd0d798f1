//! Prices of a model, and what a call costs by them.

use serde::{Deserialize, Serialize};

use crate::message::Usage;

/// Prices in micro-dollars per million tokens, so that money stays an integer.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::{limits::usd, message::Usage, rates::Rates}; }
/// use homing::{Rates, Usage, usd};
///
/// // $3 and $15 per million tokens.
/// let rates = Rates::default().input(3_000_000).output(15_000_000);
/// assert_eq!(usd(rates.cost(&Usage::default().input(10_000).output(1_000))), "$0.045");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rates {
    /// Input that was neither read from nor written to a cache.
    pub input: u64,
    /// Input read from the cache.
    pub cached: u64,
    /// Input written to the cache.
    pub cache_write: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// Higher prices for long requests, with the input size above which they apply to the whole request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<(u64, Rates)>,
}

impl Rates {
    /// Returns the rates for a request of `input` tokens.
    fn at(&self, input: u64) -> &Self {
        self.above
            .iter()
            .filter(|(from, _)| input > *from)
            .max_by_key(|(from, _)| *from)
            .map_or(self, |(_, rates)| rates)
    }

    /// Returns the cost of `usage`, rounded up.
    pub fn cost(&self, usage: &Usage) -> u64 {
        let rates = self.at(usage.input);
        let plain = usage.input.saturating_sub(usage.cached).saturating_sub(usage.cache_write);
        let parts = [
            (plain, rates.input),
            (usage.cached, rates.cached),
            (usage.cache_write, rates.cache_write),
            (usage.output, rates.output),
        ];
        per_million(parts.iter().map(|(tokens, rate)| u128::from(*tokens) * u128::from(*rate)).sum())
    }

    /// Returns whether input that the provider has cached costs less, so that requests should share their beginnings.
    pub fn rewards_caching(&self) -> bool {
        self.cached < self.input
    }

    /// Returns the most that `input` and `output` tokens can cost, at the highest price that can apply.
    pub fn worst(&self, input: u64, output: u64) -> u64 {
        let tiers = self.above.iter().filter(|(from, _)| input > *from).map(|(_, rates)| rates).chain([self]);
        let worst = tiers.map(|rates| {
            let highest = rates.input.max(rates.cached).max(rates.cache_write);
            u128::from(input) * u128::from(highest) + u128::from(output) * u128::from(rates.output)
        });
        per_million(worst.max().unwrap_or(0))
    }
}

/// Divides a sum of tokens times prices per million of them, rounded up. A division of 128 bits takes long, and few sums need it.
fn per_million(sum: u128) -> u64 {
    match u64::try_from(sum) {
        Ok(sum) => sum.div_ceil(1_000_000),
        Err(_) => u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_rounded_up_and_cached_tokens_are_counted_once() {
        let rates =
            Rates { input: 3_000_000, cached: 300_000, cache_write: 3_750_000, output: 15_000_000, above: vec![] };
        let usage = Usage { input: 1_000, cached: 900, output: 10, ..Usage::default() };
        assert_eq!(rates.cost(&usage), 300 + 270 + 150);
        assert_eq!(rates.cost(&Usage { input: 1, cached: 1, ..Usage::default() }), 1);
        assert_eq!(rates.worst(1_000, 10), 3_750 + 150);
    }

    #[test]
    fn long_context_price_applies_to_the_whole_request() {
        let long = Rates { input: 6_000_000, output: 22_500_000, ..Rates::default() };
        let rates = Rates { input: 3_000_000, output: 15_000_000, above: vec![(200_000, long)], ..Rates::default() };
        assert_eq!(rates.cost(&Usage { input: 200_000, ..Usage::default() }), 600_000);
        assert_eq!(rates.cost(&Usage { input: 200_001, ..Usage::default() }), 1_200_006);
        assert_eq!(rates.worst(200_001, 0), 1_200_006);
    }
}
