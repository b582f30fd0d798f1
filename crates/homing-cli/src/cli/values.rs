//! Parses values on the command line and in configuration files. Each error shows what a valid value looks like.

use std::time::Duration;

use homing_core::{
    authority::Network,
    duration::parse_duration,
    envelope::Status,
    limits::{Cap, micros_from_usd},
    registry::distance,
    rule::Rule,
    tool_names,
};
use homing_runtime::journal::sqlite::SumBy;

use super::run::ModelMap;

/// Parses `none`, or a value with an optional plus sign, which marks an amount to add.
fn cap(text: &str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<Cap, String> {
    let text = text.trim();
    match text {
        "none" | "unlimited" => Ok(Cap::Unlimited),
        _ => parse(text.strip_prefix('+').unwrap_or(text)).map(Cap::At),
    }
}

pub(crate) fn money(text: &str) -> Result<Cap, String> {
    cap(text, |amount| micros_from_usd(amount).map_err(|error| error.to_string()))
}

pub(crate) fn count(text: &str) -> Result<Cap, String> {
    cap(text, |number| {
        let plain = number.replace('_', "");
        let (digits, times) = match plain.strip_suffix(['k', 'K']) {
            Some(digits) => (digits, 1_000),
            None => match plain.strip_suffix(['m', 'M']) {
                Some(digits) => (digits, 1_000_000),
                None => (plain.as_str(), 1),
            },
        };
        let bad = || format!("`{number}` is not a number: write 50, 50k, or none");
        digits.parse::<u64>().ok().and_then(|count| count.checked_mul(times)).ok_or_else(bad)
    })
}

pub(crate) fn time(text: &str) -> Result<Cap, String> {
    cap(text, |time| duration(time).map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

/// Parses `90s`, `5m`, `1h30m`, `0.5h`, `500ms`, `2d`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|_| format!("`{text}` is not a duration: write 90s, 5m, 1h, or none"))
}

/// Parses an address such as `http://127.0.0.1:9070`.
pub(crate) fn http_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split(['/', '?']).next()).filter(|host| !host.contains(char::is_whitespace));
    let is_valid = host.is_some_and(|host| match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => !name.is_empty() && port.parse::<u16>().is_ok(),
        Some(_) | None => !host.is_empty(),
    });
    if is_valid { Ok(text.to_owned()) } else { Err(format!("`{text}` is not an address: write http://HOST:PORT")) }
}

pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        Some(_) | None => Err(format!("`{text}` is not a pair: write KEY=VALUE")),
    }
}

pub(crate) fn model_map(text: &str) -> Result<ModelMap, String> {
    homing_models::names::parse_map(text).map(Into::into)
}

pub(crate) fn network(text: &str) -> Result<Network, String> {
    match text.trim() {
        "off" | "none" => Ok(Network::Off),
        "on" => Ok(Network::On),
        hosts => {
            let hosts = hosts.split(',').map(|host| host.trim().to_ascii_lowercase());
            let hosts: Vec<String> = hosts.filter(|host| !host.is_empty()).collect();
            match hosts.iter().find(|host| host.contains(['/', ' ', ':'])) {
                Some(bad) => {
                    Err(format!("`{bad}` is not a host: write off, on, or host names such as api.example.org"))
                }
                None if hosts.is_empty() => Err("no host is named: write off, on, or host names".to_owned()),
                None => Ok(Network::Hosts(hosts)),
            }
        }
    }
}

/// Parses a permission rule. One that names no tool would have no effect, so it is refused.
pub(crate) fn rule(text: &str) -> Result<Rule, String> {
    let rule: Rule = text.parse().map_err(|error| format!("{error}"))?;
    unknown_tool(&rule).map_or(Ok(rule), Err)
}

/// Returns a message if a rule names a tool that does not exist. Tools of MCP servers are not
/// known in advance, and teams have some for their memory.
pub(crate) fn unknown_tool(rule: &Rule) -> Option<String> {
    let name = rule.tool.as_str();
    let is_known = tool_names::canonical(name).is_some() || tool_names::lacks_counterpart(name);
    if is_known || name.starts_with("mcp__") || name.starts_with("memory_") || name.contains('*') {
        return None;
    }
    let near = tool_names::all().map(|known| (distance(&name.to_lowercase(), known), known)).min();
    Some(match near.filter(|(edits, _)| *edits <= 2) {
        Some((_, known)) => format!("there is no tool `{name}` (did you mean `{known}`?)"),
        None => format!("there is no tool `{name}`: write one of {}", tool_names::all().collect::<Vec<_>>().join(", ")),
    })
}

pub(crate) fn status(text: &str) -> Result<Status, String> {
    let names = || Status::ALL.map(Status::name).join(", ");
    Status::ALL
        .into_iter()
        .find(|status| status.name() == text.replace('-', "_"))
        .ok_or_else(|| format!("`{text}` is not a status: use one of {}", names()))
}

pub(crate) fn sum_by(text: &str) -> Result<SumBy, String> {
    match text {
        "agent" => Ok(SumBy::Agent),
        "model" => Ok(SumBy::Model),
        "day" => Ok(SumBy::Day),
        "project" => Ok(SumBy::Project),
        other => match other.strip_prefix("tag:").or_else(|| other.strip_prefix("tag=")) {
            Some(name) if !name.is_empty() => Ok(SumBy::Tag(name.to_owned())),
            Some(_) | None => {
                Err(format!("`{text}` is not a property to sum by: write agent, model, day, project or tag:NAME"))
            }
        },
    }
}

/// Parses `500M`, `5G`; a bare number is bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim().trim_end_matches(['B', 'b']);
    let (digits, times) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1_000),
        Some('m' | 'M') => (&text[..text.len() - 1], 1_000_000),
        Some('g' | 'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let count = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(times));
    count.ok_or_else(|| format!("`{text}` is not a size: write 500M or 5G"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_amounts_are_parsed() {
        for (text, millis) in
            [("90s", 90_000), ("5m", 300_000), ("1h30m", 5_400_000), ("500ms", 500), ("0.5h", 1_800_000), ("7", 7_000)]
        {
            assert_eq!(time(text), Ok(Cap::At(millis)), "{text}");
        }
        assert_eq!(time("none"), Ok(Cap::Unlimited));
        for bad in ["", "m", "5 parsecs", "-1s", "99999999999999999999s"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert_eq!(money("+1.00"), Ok(Cap::At(1_000_000)));
        assert_eq!(count("50k"), Ok(Cap::At(50_000)));
        assert!(count("many").unwrap_err().contains("none"));
    }

    #[test]
    fn rule_that_names_no_tool_is_refused_with_the_nearest_name() {
        assert_eq!(rule("bahs(x)").unwrap_err(), "there is no tool `bahs` (did you mean `bash`?)");
        assert!(rule("frobnicate").unwrap_err().contains("write one of"));
        for good in ["bash(git push *)", "Bash(ls)", "WebFetch", "mcp__db", "mcp__db__query(x)", "*", "KillShell"] {
            assert!(rule(good).is_ok(), "{good}");
        }
        assert!(rule("bash(x").is_err());
    }

    #[test]
    fn network_is_a_switch_or_a_list_of_hosts() {
        assert_eq!(network("off"), Ok(Network::Off));
        assert_eq!(network("API.example.org, b"), Ok(Network::Hosts(vec!["api.example.org".into(), "b".into()])));
        assert!(network("https://x").is_err() && network(",").is_err());
    }
}
