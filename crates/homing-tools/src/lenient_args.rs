//! Deserializers for numbers and booleans as models write them: `10`, `10.0`, `"10"`, `true`, `"true"`.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// Reads a non-negative integer; absent and `null` are `None`.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let number = match &value {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.map(Some).ok_or_else(|| D::Error::custom(format!("{value} is not a whole number of 0 or more")))
}

/// Converts a float without a fraction. Above 2^53 a float no longer identifies one integer.
fn whole(number: f64) -> Option<u64> {
    let exact = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
    exact.then_some(number as u64)
}

/// Reads a boolean; absent and `null` are false.
pub(crate) fn switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(deserializer)?;
    match &value {
        Value::Null => Ok(false),
        Value::Bool(value) => Ok(*value),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            Err(D::Error::custom(format!("{value} is neither true nor false")))
        }
    }
}
