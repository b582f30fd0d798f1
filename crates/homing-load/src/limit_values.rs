//! Values of limits: counts, amounts of money and durations. A value that cannot be read is an error, never "no limit".

use homing_core::{
    duration::parse_duration,
    limits::{Cap, Limit, Limits, micros_from_usd},
};

use crate::{fields::Unit, node::Node};

/// The largest duration or count that a file may contain; a larger number is a typing error.
const MAX: u64 = 1_000_000_000_000;

/// Reads a limit. The error is a message for the author.
pub(crate) fn read(node: &Node<'_>, unit: Unit) -> Result<Cap, String> {
    let text = node.text().ok_or_else(|| format!("{} is not a number", node.noun()))?.trim();
    if matches!(text, "none" | "unlimited") {
        return Ok(Cap::Unlimited);
    }
    let value = match unit {
        Unit::Count => count(text),
        Unit::Dollars => micros_from_usd(text).ok(),
        Unit::Millis => duration_ms(text, 1),
        Unit::Seconds => duration_ms(text, 1_000),
        Unit::Minutes => duration_ms(text, 60_000),
    };
    let value = value.filter(|value| *value <= MAX);
    value.map(Cap::At).ok_or_else(|| format!("`{text}` is not {}", expected(unit)))
}

/// A description of valid values, for messages.
pub(crate) fn expected(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "a whole number such as 20, or none",
        Unit::Dollars => "an amount of dollars such as 0.50, or none",
        Unit::Millis => "a number of milliseconds such as 60000, a duration such as 5m, or none",
        Unit::Seconds => "a number of seconds such as 300, a duration such as 5m, or none",
        Unit::Minutes => "a number of minutes such as 10, a duration such as 5m, or none",
    }
}

/// Sets a limit; if it already has a value, the tighter one applies.
pub(crate) fn narrow(limits: &mut Limits, limit: Limit, cap: Cap) {
    *limits = limits.with(limit, limits.cap(limit).tighter(cap));
}

/// Reads digits, with `_` between them and `.0` after them if written.
fn count(text: &str) -> Option<u64> {
    let text = text.strip_suffix(".0").unwrap_or(text);
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') && !text.starts_with('_');
    if !digits || text.is_empty() {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Reads a duration as milliseconds: a bare number of `unit` milliseconds, or numbers with units, such as `1h30m`.
fn duration_ms(text: &str, unit: u64) -> Option<u64> {
    if let Some(ms) = decimal(text, unit) {
        return Some(ms);
    }
    u64::try_from(parse_duration(text).ok()?.as_millis()).ok()
}

/// Multiplies a decimal number by `scale` and truncates. Integer arithmetic keeps the result exact.
fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let fraction = fraction.get(..fraction.len().min(9))?;
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale)
        / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    count(whole)?.checked_mul(scale)?.checked_add(u64::try_from(part).ok()?)
}
