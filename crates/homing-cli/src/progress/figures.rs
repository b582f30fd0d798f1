//! Formats numbers for people.

use homing_core::{envelope::EnvelopeUsage, limits::usd};

/// Formats a count of tokens: `950`, `12.3k`, `4.5M`.
pub(crate) fn tokens(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{:.1}k", count as f64 / 1_000.0),
        _ => format!("{:.1}M", count as f64 / 1_000_000.0),
    }
}

/// Formats milliseconds: `0.4s`, `12s`, `3m05s`, `1h02m`.
pub(crate) fn time(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..10 => format!("{}.{}s", seconds, millis % 1_000 / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// Formats the cost of runs: what providers reported, and apart from it the most that calls without a report may have cost.
pub(crate) fn cost(usage: &EnvelopeUsage) -> String {
    let EnvelopeUsage { cost_micros, at_most_micros, estimated, .. } = *usage;
    match (estimated, cost_micros.saturating_sub(at_most_micros)) {
        (false, _) => usd(cost_micros),
        (true, 0) => format!("at most {}", usd(cost_micros)),
        // Records of earlier versions do not say which part was estimated.
        (true, _) if at_most_micros <= 1 => format!("at most {}", usd(cost_micros)),
        (true, measured) => format!("{} + at most {}", usd(measured), usd(at_most_micros)),
    }
}

/// Formats the cost of runs for a column: what they may have cost at most, if a part of it is estimated.
pub(crate) fn short_cost(usage: &EnvelopeUsage) -> String {
    format!("{}{}", if usage.estimated { "≤" } else { "" }, usd(usage.cost_micros))
}

/// Formats a count with its noun: `1 turn`, `2 turns`.
pub(crate) fn count(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!([tokens(999), tokens(12_345), tokens(4_500_000)], ["999", "12.3k", "4.5M"]);
        assert_eq!([time(420), time(12_000), time(185_000), time(3_720_000)], ["0.4s", "12s", "3m05s", "1h02m"]);
    }
}
