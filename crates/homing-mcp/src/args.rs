//! Arguments of the tools. They are parsed strictly, so that a misspelt limit is an error and not ignored.

use std::time::Duration;

use homing::{Cap, Limit, Limits};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Arguments of `delegate`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelegateArgs {
    pub(crate) agent: String,
    pub(crate) task: String,
    #[serde(default)]
    limits: RequestedLimits,
    #[serde(default)]
    pub(crate) background: bool,
}

/// Limits as a client writes them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RequestedLimits {
    max_cost: Option<Value>,
    max_tokens: Option<u64>,
    max_turns: Option<u64>,
    max_tool_calls: Option<u64>,
    max_children: Option<u64>,
    max_depth: Option<u64>,
    timeout: Option<f64>,
}

/// Arguments of `wait`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WaitArgs {
    pub(crate) runs: Option<Vec<Uuid>>,
    pub(crate) any: bool,
    timeout: Option<f64>,
}

/// Arguments of `tell`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TellArgs {
    pub(crate) run: Uuid,
    pub(crate) message: String,
}

/// Arguments of `cancel` and `resume`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunArgs {
    pub(crate) run: Uuid,
}

/// Arguments of `answer`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerArgs {
    pub(crate) question: String,
    pub(crate) answer: String,
}

/// Arguments of `runs`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RunsArgs {
    pub(crate) status: Option<homing::Status>,
}

/// Parses arguments.
///
/// # Errors
/// Fails with a message for the client's model.
pub(crate) fn read<T: DeserializeOwned>(args: Option<Map<String, Value>>) -> Result<T, String> {
    serde_json::from_value(Value::Object(args.unwrap_or_default()))
        .map_err(|error| format!("invalid arguments: {error}"))
}

impl DelegateArgs {
    /// Returns the requested limits.
    pub(crate) fn limits(&self) -> Result<Limits, String> {
        let requested = &self.limits;
        let cap = |value: Option<u64>| value.map_or(Cap::Default, Cap::At);
        let mut limits = Limits::default()
            .with(Limit::Turns, cap(requested.max_turns))
            .with(Limit::Depth, cap(requested.max_depth))
            .with(Limit::Tokens, cap(requested.max_tokens))
            .with(Limit::ToolCalls, cap(requested.max_tool_calls))
            .with(Limit::Children, cap(requested.max_children));
        if let Some(amount) = &requested.max_cost {
            limits = limits.cost_usd(&dollars(amount)).map_err(|error| format!("max_cost: {error}"))?;
        }
        if let Some(time) = seconds(requested.timeout)? {
            limits = limits.wall(time);
        }
        Ok(limits)
    }
}

impl WaitArgs {
    /// Returns the maximum time to wait.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, String> {
        seconds(self.timeout)
    }
}

/// Returns an amount as text; both numbers and strings are accepted.
fn dollars(amount: &Value) -> String {
    match amount {
        Value::String(text) => text.clone(),
        other => other.as_f64().map_or_else(|| other.to_string(), |number| number.to_string()),
    }
}

fn seconds(value: Option<f64>) -> Result<Option<Duration>, String> {
    let read = |seconds: f64| Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    let invalid = |seconds: f64| format!("timeout: {seconds} is not a number of seconds above 0");
    value.map(|seconds| read(seconds).ok_or_else(|| invalid(seconds))).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn delegate(limits: Value) -> Result<Limits, String> {
        let args = json!({"agent": "a", "task": "t", "limits": limits});
        read::<DelegateArgs>(args.as_object().cloned())?.limits()
    }

    #[test]
    fn limits_are_read_exactly() {
        let limits = delegate(json!({"max_cost": 0.5, "max_turns": 3, "timeout": 1.5})).unwrap();
        assert_eq!((limits.cost_micros, limits.turns, limits.wall_ms), (Cap::At(500_000), Cap::At(3), Cap::At(1_500)));
        assert_eq!(delegate(json!({"max_cost": "$2"})).unwrap().cost_micros, Cap::At(2_000_000));
    }

    #[test]
    fn invalid_limits_are_refused_and_never_mean_unlimited() {
        for bad in [
            json!({"max_cots": 1}),
            json!({"max_cost": -1}),
            json!({"max_cost": "none"}),
            json!({"max_turns": -1}),
            json!({"max_turns": 1.5}),
            json!({"timeout": 0}),
            json!({"timeout": -5}),
            json!({"timeout": 1e300}),
        ] {
            assert!(delegate(bad.clone()).is_err(), "{bad}");
        }
    }
}
