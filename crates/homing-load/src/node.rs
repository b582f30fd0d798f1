//! A parsed value that remembers where it stood, whatever syntax it was written in.
//! It knows nothing of agents.

use serde_json::{Map, Number, Value};

/// A line and a column, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) spot: Spot,
    pub(crate) kind: Kind,
}

/// What a value is. Plain scalars stay text until somebody asks for a number or a truth value, so that nothing is
/// lost on the way (`1_000`, `no`, `.inf`).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Text without quotes, or a number, a truth value, nothing.
    Plain(String),
    /// Text that its author marked as text.
    Quoted(String),
    /// Values in order.
    List(Vec<Node>),
    /// Keys and values in order; a key may stand twice.
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) spot: Spot,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn new(spot: Spot, kind: Kind) -> Self {
        Self { spot, kind }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Plain(text) | Kind::Quoted(text) => Some(text),
            Kind::List(_) | Kind::Map(_) => None,
        }
    }

    /// Whether nothing was written.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Plain(text) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// A truth value in any of the spellings that people use.
    pub(crate) fn truth(&self) -> Option<bool> {
        match self.text()?.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "y" => Some(true),
            "false" | "no" | "off" | "0" | "n" => Some(false),
            _ => None,
        }
    }

    /// The entries of a map.
    pub(crate) fn entries(&self) -> Option<&[Entry]> {
        match &self.kind {
            Kind::Map(entries) => Some(entries),
            Kind::Plain(_) | Kind::Quoted(_) | Kind::List(_) => None,
        }
    }

    /// The first value under `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries()?.iter().find(|it| it.key == key).map(|it| &it.value)
    }

    /// What kind of thing this is, for messages.
    pub(crate) fn noun(&self) -> &'static str {
        match &self.kind {
            Kind::Plain(_) if self.is_null() => "nothing",
            Kind::Plain(_) | Kind::Quoted(_) => "text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    /// The value as JSON; of a key that stands twice the first counts.
    pub(crate) fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Plain(text) => plain_to_json(text),
            Kind::Quoted(text) => Value::String(text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Kind::Map(entries) => {
                let mut map = Map::new();
                for entry in entries {
                    map.entry(entry.key.clone()).or_insert_with(|| entry.value.to_json());
                }
                Value::Object(map)
            }
        }
    }
}

fn plain_to_json(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => (),
    }
    let number = text.bytes().next().is_some_and(|it| it.is_ascii_digit() || matches!(it, b'-' | b'+' | b'.'));
    if !number {
        return Value::String(text.to_owned());
    }
    let whole = || text.parse::<i64>().ok().map(Number::from);
    let broken = || text.parse::<f64>().ok().and_then(Number::from_f64);
    whole().or_else(broken).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}
