//! Numbers that limit: counts, money, time. What cannot be read is an error, never "no limit".

use homing_core::limits::{Cap, Limit, Limits, micros_from_usd};

use crate::{fields::Unit, node::Node};

/// The most time or count that a file can ask for; beyond it a number is a typing error.
const MAX: u64 = 1_000_000_000_000;

/// Reads a limit; the error is for people.
pub(crate) fn read(node: &Node, unit: Unit) -> Result<Cap, String> {
    let text = node.text().ok_or_else(|| format!("{} is not a number", node.noun()))?.trim();
    if matches!(text, "none" | "unlimited") {
        return Ok(Cap::Unlimited);
    }
    let value = match unit {
        Unit::Count => count(text),
        Unit::Dollars => micros_from_usd(text).ok(),
        Unit::Millis => time(text, 1),
        Unit::Seconds => time(text, 1_000),
        Unit::Minutes => time(text, 60_000),
    };
    let bad = || format!("`{text}` is not {}", wanted(unit));
    value.filter(|it| *it <= MAX).map(Cap::At).ok_or_else(bad)
}

/// What should have been written.
pub(crate) fn wanted(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "a whole number such as 20, or none",
        Unit::Dollars => "an amount of dollars such as 0.50, or none",
        Unit::Millis => "a number of milliseconds such as 60000, a time such as 5m, or none",
        Unit::Seconds => "a number of seconds such as 300, a time such as 5m, or none",
        Unit::Minutes => "a number of minutes such as 10, a time such as 5m, or none",
    }
}

/// Lays `cap` over what is there; of two numbers the tighter one holds.
pub(crate) fn narrow(limits: &mut Limits, limit: Limit, cap: Cap) {
    let slot = match limit {
        Limit::Turns => &mut limits.turns,
        Limit::Depth => &mut limits.depth,
        Limit::Tokens => &mut limits.tokens,
        Limit::Cost => &mut limits.cost_micros,
        Limit::ToolCalls => &mut limits.tool_calls,
        Limit::Children => &mut limits.children,
        Limit::Wall => &mut limits.wall_ms,
        Limit::Work => &mut limits.work_ms,
        Limit::Repeats | Limit::Compactions | Limit::Output => return,
    };
    *slot = slot.tighter(cap);
}

/// Digits, with `_` between them and `.0` behind them if need be.
fn count(text: &str) -> Option<u64> {
    let text = text.strip_suffix(".0").unwrap_or(text);
    let digits = text.bytes().all(|it| it.is_ascii_digit() || it == b'_') && text.starts_with(|it: char| it != '_');
    if !digits || text.is_empty() {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// A bare number of `unit` milliseconds, or numbers with `h`, `m`, `s` or `ms`: `1h30m`, `0.5s`.
fn time(text: &str, unit: u64) -> Option<u64> {
    if let Some(ms) = decimal(text, unit) {
        return Some(ms);
    }
    let (mut rest, mut total) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let letters = rest[digits..].find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(rest.len() - digits);
        let scale = match &rest[digits..digits + letters] {
            "h" => 3_600_000,
            "m" | "min" | "mins" => 60_000,
            "s" | "sec" | "secs" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        total = total.checked_add(decimal(&rest[..digits], scale)?)?;
        rest = rest[digits + letters..].trim_start();
    }
    (!text.is_empty()).then_some(total)
}

/// A decimal number times `scale`, cut off, without ever being a float.
fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let fraction = fraction.get(..fraction.len().min(9))?;
    let digits = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    if !digits(fraction) {
        return None;
    }
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale)
        / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    count(whole)?.checked_mul(scale)?.checked_add(u64::try_from(part).ok()?)
}
