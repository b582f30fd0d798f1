//! The one reader of durations in agent files, team files, settings and arguments.

use std::time::Duration;

/// The longest duration that is accepted: about 31 years.
const MAX_SECONDS: f64 = 1e9;

/// Units, in the order in which they may follow each other, with their length in seconds.
const UNITS: [(&[&str], f64); 6] = [
    (&["w", "week", "weeks"], 604_800.0),
    (&["d", "day", "days"], 86_400.0),
    (&["h", "hr", "hour", "hours"], 3_600.0),
    (&["m", "min", "mins", "minute", "minutes"], 60.0),
    (&["s", "sec", "secs", "second", "seconds"], 1.0),
    (&["ms"], 0.001),
];

/// Error of a text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration: use seconds, or a number with a unit such as 90s, 5m, 1h30m")]
pub struct DurationError(pub String);

/// Parses a duration: a number with a unit (`90s`, `5m`, `0.5h`, `250ms`, `2d`), several of them from the largest unit to
/// the smallest (`1h30m`, `1h 30m`), or a plain number of seconds.
///
/// # Errors
/// Fails if the text has another form, or if the duration is not zero but shorter than a millisecond, or longer than about
/// 31 years.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let error = || DurationError(text.to_owned());
    let seconds = if text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        number(text.trim())
    } else {
        sum_of_parts(text.trim())
    };
    let in_range = |seconds: &f64| *seconds == 0.0 || (0.001..=MAX_SECONDS).contains(seconds);
    let seconds = seconds.filter(in_range).ok_or_else(error)?;
    Ok(Duration::from_secs_f64(seconds))
}

/// The seconds of numbers with units, each unit smaller than the one before it.
fn sum_of_parts(text: &str) -> Option<f64> {
    let (mut rest, mut units, mut seconds) = (text, UNITS.as_slice(), 0.0);
    while !rest.is_empty() {
        let (digits, after) = rest.split_at(rest.find(|char: char| !char.is_ascii_digit() && char != '.')?);
        let after = after.trim_start();
        let end = after.find(|char: char| !char.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let at = units.iter().position(|(names, _)| names.contains(&unit.to_ascii_lowercase().as_str()))?;
        seconds += number(digits)? * units[at].1;
        units = &units[at + 1..];
        rest = after.trim_start();
    }
    Some(seconds)
}

/// A decimal number without sign and exponent.
fn number(digits: &str) -> Option<f64> {
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_with_units_and_plain_seconds_are_read() {
        for (text, millis) in [
            ("90s", 90_000),
            ("90", 90_000),
            ("1.5", 1_500),
            ("5m", 300_000),
            ("5 min", 300_000),
            ("1h30m", 5_400_000),
            ("1h 30m 5s", 5_405_000),
            ("0.5h", 1_800_000),
            ("250ms", 250),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
            ("0", 0),
            ("0s", 0),
            (" 1H ", 3_600_000),
            ("2 hours 1 minute", 7_260_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_errors_that_quote_them() {
        for text in [
            "",
            " ",
            "soon",
            "5x",
            "0.0001s",
            "-1",
            "+1s",
            "1e3",
            ".h",
            "1.2.3",
            "h",
            "30m1h",
            "1h1h",
            "1h30",
            ".inf",
            "nan",
            "99999999999",
        ] {
            assert_eq!(parse_duration(text), Err(DurationError(text.to_owned())), "{text}");
        }
        assert!(DurationError("5x".to_owned()).to_string().starts_with("`5x` is not a duration"));
    }
}
