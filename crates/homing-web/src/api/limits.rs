//! Limits as requests give them.

use homing::{
    Cap, Limit, Limits,
    crates::core::{duration::parse_duration, limits::micros_from_usd},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Number;

use crate::problem::Problem;

/// Limits of a run tree. Each is an amount or `none`; where limits are raised, it is the amount to add.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitsBody {
    /// US dollars, such as `0.50`.
    cost: Option<Amount>,
    /// Tokens.
    tokens: Option<Amount>,
    /// Replies of the root run.
    turns: Option<Amount>,
    /// Time from the start to the end, such as `5m`; a number is in seconds.
    time: Option<Amount>,
    /// Tool calls.
    tool_calls: Option<Amount>,
    /// Child runs.
    children: Option<Amount>,
    /// Levels of delegation.
    depth: Option<Amount>,
    /// Output tokens of one reply.
    output: Option<Amount>,
}

/// An amount, as a number or a text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Amount {
    /// A number.
    Number(#[schemars(with = "f64")] Number),
    /// A text, which may begin with `+`, or `none`.
    Text(String),
}

impl LimitsBody {
    /// Reads the limits.
    pub(crate) fn limits(&self) -> Result<Limits, Problem> {
        let money = |text: &str| micros_from_usd(text).map_err(|error| error.to_string());
        let count = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"));
        let time = |text: &str| {
            let time = parse_duration(text).map_err(|_| format!("`{text}` is not a duration: write 90s, 5m or 1h"))?;
            Ok(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        };
        Ok(Limits::default()
            .with(Limit::Cost, cap("cost", self.cost.as_ref(), money)?)
            .with(Limit::Tokens, cap("tokens", self.tokens.as_ref(), count)?)
            .with(Limit::Turns, cap("turns", self.turns.as_ref(), count)?)
            .with(Limit::Wall, cap("time", self.time.as_ref(), time)?)
            .with(Limit::ToolCalls, cap("tool_calls", self.tool_calls.as_ref(), count)?)
            .with(Limit::Children, cap("children", self.children.as_ref(), count)?)
            .with(Limit::Depth, cap("depth", self.depth.as_ref(), count)?)
            .with(Limit::Output, cap("output", self.output.as_ref(), count)?))
    }

    /// Returns the flags of the command line that set the same limits.
    pub(crate) fn flags(&self) -> String {
        let all = [
            ("--max-cost", &self.cost),
            ("--max-tokens", &self.tokens),
            ("--max-turns", &self.turns),
            ("--timeout", &self.time),
            ("--max-tool-calls", &self.tool_calls),
            ("--max-children", &self.children),
            ("--max-depth", &self.depth),
            ("--max-output", &self.output),
        ];
        let given = all.into_iter().filter_map(|(flag, amount)| Some((flag, amount.as_ref()?)));
        given.map(|(flag, amount)| format!(" {flag} {}", super::quoted(&amount.text()))).collect()
    }
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.trim().to_owned(),
        }
    }
}

fn cap(name: &str, amount: Option<&Amount>, parse: impl Fn(&str) -> Result<u64, String>) -> Result<Cap, Problem> {
    let Some(amount) = amount else { return Ok(Cap::Default) };
    match amount.text().as_str() {
        "none" | "unlimited" => Ok(Cap::Unlimited),
        text => parse(text.strip_prefix('+').unwrap_or(text))
            .map(Cap::At)
            .map_err(|error| Problem::bad_request(format!("limits.{name}: {error}"))),
    }
}
