//! The limits of a definition. Of two values for one limit the tighter one applies.

use homing_core::{
    limits::{Limit, Limits},
    registry::distance,
};

use super::field_reader::FieldReader;
use crate::{
    fields::{self, Field, Unit},
    limit_values,
};

/// Reads one limit.
pub(super) fn limit(limits: &mut Limits, reader: &mut FieldReader<'_>, limit: Limit, unit: Unit) {
    let key = reader.key;
    match limit_values::read(reader.value, unit) {
        Ok(cap) => {
            if cap.value() == Some(0) && limit != Limit::Depth && limit != Limit::Children {
                reader.warn(format!("`{key}` is 0, so the agent cannot do anything"), "");
            }
            limit_values::narrow(limits, limit, cap);
        }
        Err(message) => {
            let hint = format!("write {}", limit_values::expected(unit));
            reader.error(format!("`{key}`: {message}"), &hint);
        }
    }
}

/// Reads `max_tokens` beside the other keys. A number that fits a reply is the maximum of one reply, as in the programs that have
/// this key: a whole run with so few tokens could not begin. A larger one limits the run.
pub(super) fn max_tokens(limits: &mut Limits, reader: &mut FieldReader<'_>) {
    const MAX_REPLY: u64 = 64 * 1024;
    let is_of_reply = limit_values::read(reader.value, Unit::Count)
        .is_ok_and(|cap| cap.value().is_some_and(|tokens| tokens <= MAX_REPLY));
    if !is_of_reply {
        return limit(limits, reader, Limit::Tokens, Unit::Count);
    }
    let message = format!("`{}` is read as the maximum of one reply", reader.key);
    reader.diagnostics.info(
        reader.value.position,
        reader.key,
        message,
        "write `limits: {tokens: …}` to limit the whole run",
    );
    limit(limits, reader, Limit::Output, Unit::Count);
}

/// Reads a map of limits.
pub(super) fn limits(limits: &mut Limits, reader: &mut FieldReader<'_>) {
    let Some(entries) = reader.value.entries() else {
        let message = format!("`{}` must be a map of limits, not {}", reader.key, reader.value.noun());
        return reader.error(message, "write a map such as {turns: 20, cost: 0.50}");
    };
    for entry in entries {
        match limit_named(&fields::fold(&entry.key)) {
            Some((named, unit)) => limit(limits, &mut reader.inner(&entry.key, &entry.value), named, unit),
            None if fields::fold(&entry.key) == "graceturns" => (),
            None => {
                let message = format!("unknown limit `{}`", entry.key);
                reader.diagnostics.error(entry.position, &entry.key, message, &suggestion(&entry.key));
            }
        }
    }
}

fn suggestion(key: &str) -> String {
    const NAMES: [&str; 9] =
        ["turns", "depth", "tokens", "cost", "tool_calls", "children", "timeout", "work", "max_output"];
    let near = NAMES.iter().map(|name| (distance(key, name), name)).min().filter(|near| near.0 <= 2);
    match near {
        Some((_, name)) => format!("did you mean `{name}`?"),
        None => format!("limits are: {}", NAMES.join(", ")),
    }
}

/// The limit that a key names. Inside a map of limits, shorter names are accepted too.
fn limit_named(folded: &str) -> Option<(Limit, Unit)> {
    match fields::lookup(folded) {
        Some(Field::Limit(limit, unit)) => Some((limit, unit)),
        Some(Field::MaxTokens) => Some((Limit::Tokens, Unit::Count)),
        Some(_) | None => match folded {
            "seconds" | "time" => Some((Limit::Wall, Unit::Seconds)),
            "costusd" | "usd" | "maxcostusd" => Some((Limit::Cost, Unit::Dollars)),
            "calls" => Some((Limit::ToolCalls, Unit::Count)),
            _ => None,
        },
    }
}
