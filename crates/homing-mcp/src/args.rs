//! What clients hand to the tools, read strictly: a misspelt limit is an error, not no limit.

use std::time::Duration;

use homing::{Cap, Limits};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Arguments of `delegate`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delegate {
    pub(crate) agent: String,
    pub(crate) task: String,
    #[serde(default)]
    limits: AskedLimits,
    #[serde(default)]
    pub(crate) background: bool,
}

/// Limits as a client writes them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AskedLimits {
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
pub(crate) struct Wait {
    pub(crate) runs: Option<Vec<Uuid>>,
    pub(crate) any: bool,
    timeout: Option<f64>,
}

/// Arguments of `tell`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tell {
    pub(crate) run: Uuid,
    pub(crate) message: String,
}

/// Arguments of `cancel`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cancel {
    pub(crate) run: Uuid,
}

/// Arguments of `runs`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Runs {
    pub(crate) status: Option<homing::Status>,
}

/// Reads arguments; what does not fit is said in words that a model can act on.
pub(crate) fn read<T: DeserializeOwned>(args: Option<Map<String, Value>>) -> Result<T, String> {
    serde_json::from_value(Value::Object(args.unwrap_or_default()))
        .map_err(|it| format!("the arguments do not fit: {it}"))
}

impl Delegate {
    /// The limits that were asked for.
    pub(crate) fn limits(&self) -> Result<Limits, String> {
        let asked = &self.limits;
        let cap = |it: Option<u64>| it.map_or(Cap::Default, Cap::At);
        let mut limits = Limits {
            turns: cap(asked.max_turns),
            depth: cap(asked.max_depth),
            tokens: cap(asked.max_tokens),
            tool_calls: cap(asked.max_tool_calls),
            children: cap(asked.max_children),
            ..Limits::default()
        };
        if let Some(amount) = &asked.max_cost {
            limits = limits.cost_usd(&dollars(amount)).map_err(|error| format!("max_cost: {error}"))?;
        }
        if let Some(time) = seconds(asked.timeout)? {
            limits = limits.wall(time);
        }
        Ok(limits)
    }
}

impl Wait {
    /// How long to wait at most.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, String> {
        seconds(self.timeout)
    }
}

/// `0.5` and `"0.50"` are the same amount.
fn dollars(amount: &Value) -> String {
    match amount {
        Value::String(text) => text.clone(),
        other => other.as_f64().map_or_else(|| other.to_string(), |it| it.to_string()),
    }
}

fn seconds(asked: Option<f64>) -> Result<Option<Duration>, String> {
    let read = |it: f64| Duration::try_from_secs_f64(it).ok().filter(|it| !it.is_zero());
    let bad = |it: f64| format!("timeout: {it} is not a number of seconds above 0");
    asked.map(|it| read(it).ok_or_else(|| bad(it))).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn delegate(limits: Value) -> Result<Limits, String> {
        let args = json!({"agent": "a", "task": "t", "limits": limits});
        read::<Delegate>(args.as_object().cloned())?.limits()
    }

    #[test]
    fn limits_are_read_exactly() {
        let limits = delegate(json!({"max_cost": 0.5, "max_turns": 3, "timeout": 1.5})).unwrap();
        assert_eq!((limits.cost_micros, limits.turns, limits.wall_ms), (Cap::At(500_000), Cap::At(3), Cap::At(1_500)));
        assert_eq!(delegate(json!({"max_cost": "$2"})).unwrap().cost_micros, Cap::At(2_000_000));
    }

    #[test]
    fn a_limit_that_makes_no_sense_is_refused_and_never_means_none() {
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
