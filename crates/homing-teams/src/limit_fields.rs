//! Limits as people write them in a team file. What they mean is the core's to say.

use std::time::Duration;

use homing_core::limits::{AmountError, Cap, Limits, micros_from_usd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a team or one of its members may spend; what is not written is not limited here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitFields {
    /// Dollars, such as 0.50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<AmountField>,
    /// Tokens, input and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Replies of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u64>,
    /// Tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u64>,
    /// Runs below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_children: Option<u64>,
    /// Levels of delegation below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u64>,
    /// Seconds, or a time such as `90s`, `5m`, `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<AmountField>,
}

/// A number, with or without its unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AmountField {
    /// Without.
    Number(serde_json::Number),
    /// With.
    Text(String),
}

impl AmountField {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.trim().to_owned(),
        }
    }
}

impl LimitFields {
    /// The limits that these words mean.
    pub fn limits(&self) -> Result<Limits, String> {
        let cap = |value: Option<u64>| value.map_or(Cap::Default, Cap::At);
        let cost = self.max_cost.as_ref().map(|it| micros_from_usd(&it.text())).transpose();
        let wall = self.timeout.as_ref().map(|it| time(&it.text())).transpose()?;
        Ok(Limits {
            turns: cap(self.max_turns),
            depth: cap(self.max_depth),
            tokens: cap(self.max_tokens),
            cost_micros: cap(cost.map_err(|bad: AmountError| format!("max_cost: {bad}"))?),
            tool_calls: cap(self.max_tool_calls),
            children: cap(self.max_children),
            wall_ms: cap(wall.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX))),
            work_ms: Cap::Default,
        })
    }

    /// The same as `delegate` takes them; nothing where nothing is limited.
    pub(crate) fn for_delegate(&self) -> Option<Value> {
        let limits = self.limits().unwrap_or_default();
        (limits != Limits::default()).then(|| serde_json::to_value(limits).unwrap_or_default())
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let bad = || format!("timeout: `{text}` is not a time: write seconds, or 90s, 5m, 1h");
    let digits = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| bad())?;
    let seconds = match unit.trim() {
        "" | "s" => number,
        "ms" => number / 1_000.0,
        "m" | "min" => number * 60.0,
        "h" => number * 3_600.0,
        _ => return Err(bad()),
    };
    if seconds.is_finite() && (0.001..=1e9).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_people_write_them() {
        let bounds: LimitFields =
            serde_json::from_str(r#"{"max_cost": 0.5, "timeout": "5m", "max_turns": 3}"#).unwrap();
        let limits = bounds.limits().unwrap();
        assert_eq!(
            (limits.cost_micros, limits.wall_ms, limits.turns),
            (Cap::At(500_000), Cap::At(300_000), Cap::At(3))
        );
        assert_eq!(limits.tokens, Cap::Default);
    }

    #[test]
    fn y7_an_amount_that_is_none_is_an_error_and_not_no_limit() {
        for (field, value) in
            [("max_cost", "lots"), ("max_cost", "-1"), ("timeout", "soon"), ("timeout", "0"), ("timeout", ".inf")]
        {
            let bounds: LimitFields = serde_json::from_value(serde_json::json!({ field: value })).unwrap();
            assert!(bounds.limits().unwrap_err().starts_with(field), "{field}: {value}");
        }
    }
}
