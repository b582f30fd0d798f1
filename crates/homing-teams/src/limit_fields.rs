//! Limits as they are written in a team file. Their meaning is defined in `homing_core::limits`.

use homing_core::{
    duration::parse_duration,
    limits::{AmountError, Cap, Limit, Limits, micros_from_usd},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Limits of a team or one of its members; a missing field is not limited here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Bounds")]
pub struct LimitFields {
    /// Maximum cost in dollars, such as 0.50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<AmountField>,
    /// Maximum number of tokens, input and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Maximum number of model replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u64>,
    /// Maximum number of tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u64>,
    /// Maximum number of child runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_children: Option<u64>,
    /// Maximum number of delegation levels below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u64>,
    /// Maximum number of output tokens of one reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Maximum time: seconds, or a duration such as `90s`, `5m`, `1h30m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<AmountField>,
}

/// A number with or without a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Amount")]
pub enum AmountField {
    /// A number without a unit.
    Number(serde_json::Number),
    /// A number with a unit.
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
    /// The limits that these fields describe.
    ///
    /// # Errors
    /// Fails with a message that names the field if an amount or a duration cannot be parsed.
    pub fn limits(&self) -> Result<Limits, String> {
        let cap = |value: Option<u64>| value.map_or(Cap::Default, Cap::At);
        let cost = self.max_cost.as_ref().map(|amount| micros_from_usd(&amount.text())).transpose();
        let timeout = self.timeout.as_ref().map(|amount| parse_duration(&amount.text())).transpose();
        let timeout = timeout.map_err(|error| format!("timeout: {error}"))?;
        if timeout.is_some_and(|time| time.is_zero()) {
            return Err("timeout: a team needs more time than none".to_owned());
        }
        Ok(Limits::default()
            .with(Limit::Turns, cap(self.max_turns))
            .with(Limit::Depth, cap(self.max_depth))
            .with(Limit::Tokens, cap(self.max_tokens))
            .with(Limit::Cost, cap(cost.map_err(|error: AmountError| format!("max_cost: {error}"))?))
            .with(Limit::ToolCalls, cap(self.max_tool_calls))
            .with(Limit::Children, cap(self.max_children))
            .with(Limit::Wall, cap(timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))))
            .with(Limit::Work, Cap::Default)
            .with(Limit::Output, cap(self.max_output)))
    }

    /// The limits as an argument of `delegate`; `None` if nothing is limited.
    pub(crate) fn for_delegate(&self) -> Option<Value> {
        let limits = self.limits().unwrap_or_default();
        (limits != Limits::default()).then(|| serde_json::to_value(limits).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed() {
        let fields: LimitFields =
            serde_json::from_str(r#"{"max_cost": 0.5, "timeout": "5m", "max_turns": 3, "max_output": 900}"#).unwrap();
        let limits = fields.limits().unwrap();
        assert_eq!(
            (limits.cost_micros, limits.wall_ms, limits.turns),
            (Cap::At(500_000), Cap::At(300_000), Cap::At(3))
        );
        assert_eq!((limits.tokens, limits.output), (Cap::Default, Cap::At(900)));
    }

    #[test]
    fn timeout_accepts_every_form_of_duration() {
        for (text, millis) in [
            (r#""90s""#, 90_000),
            (r#""5m""#, 300_000),
            (r#""1h30m""#, 5_400_000),
            (r#""0.5h""#, 1_800_000),
            ("90", 90_000),
            ("1.5", 1_500),
        ] {
            let fields: LimitFields = serde_json::from_str(&format!("{{\"timeout\": {text}}}")).unwrap();
            assert_eq!(fields.limits().unwrap().wall_ms, Cap::At(millis), "{text}");
        }
    }

    #[test]
    fn y7_invalid_amount_is_an_error_and_not_unlimited() {
        for (field, value) in
            [("max_cost", "lots"), ("max_cost", "-1"), ("timeout", "soon"), ("timeout", "0"), ("timeout", ".inf")]
        {
            let fields: LimitFields = serde_json::from_value(serde_json::json!({ field: value })).unwrap();
            assert!(fields.limits().unwrap_err().starts_with(field), "{field}: {value}");
        }
    }
}
