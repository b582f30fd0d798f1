//! A parsed value with its position, independent of the syntax of the file. It knows nothing about agents.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

/// A line and a column, both starting at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value and the position at which it begins. Its texts are borrowed from the text of the file, unless they are written
/// differently there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node<'a> {
    pub(crate) position: Position,
    pub(crate) kind: NodeKind<'a>,
}

/// The kind of a value. Plain scalars stay text until a number or a boolean is requested, so that their spelling is kept
/// (`1_000`, `no`, `.inf`).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeKind<'a> {
    /// Text without quotes, a number, a boolean, or null.
    Plain(Cow<'a, str>),
    /// Quoted text.
    Quoted(Cow<'a, str>),
    /// Values in order.
    List(Vec<Node<'a>>),
    /// Keys and values in order; keys may be duplicate.
    Map(Vec<NodeEntry<'a>>),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeEntry<'a> {
    pub(crate) key: Cow<'a, str>,
    pub(crate) position: Position,
    pub(crate) value: Node<'a>,
}

impl NodeEntry<'_> {
    /// The same entry without a reference to the text of its file.
    pub(crate) fn into_owned(self) -> NodeEntry<'static> {
        let key = Cow::Owned(self.key.into_owned());
        NodeEntry { key, position: self.position, value: self.value.into_owned() }
    }
}

impl<'a> Node<'a> {
    pub(crate) fn new(position: Position, kind: NodeKind<'a>) -> Self {
        Self { position, kind }
    }

    /// The same value without a reference to the text of its file.
    pub(crate) fn into_owned(self) -> Node<'static> {
        let kind = match self.kind {
            NodeKind::Plain(text) => NodeKind::Plain(Cow::Owned(text.into_owned())),
            NodeKind::Quoted(text) => NodeKind::Quoted(Cow::Owned(text.into_owned())),
            NodeKind::List(items) => NodeKind::List(items.into_iter().map(Node::into_owned).collect()),
            NodeKind::Map(entries) => NodeKind::Map(entries.into_iter().map(NodeEntry::into_owned).collect()),
        };
        Node { position: self.position, kind }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Plain(text) | NodeKind::Quoted(text) => Some(text),
            NodeKind::List(_) | NodeKind::Map(_) => None,
        }
    }

    /// Returns true for null and an empty plain scalar.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, NodeKind::Plain(text) if matches!(text.as_ref(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// A boolean in any of the usual spellings.
    pub(crate) fn truth(&self) -> Option<bool> {
        match self.text()?.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "y" => Some(true),
            "false" | "no" | "off" | "0" | "n" => Some(false),
            _ => None,
        }
    }

    /// The entries of a map.
    pub(crate) fn entries(&self) -> Option<&[NodeEntry<'a>]> {
        match &self.kind {
            NodeKind::Map(entries) => Some(entries),
            NodeKind::Plain(_) | NodeKind::Quoted(_) | NodeKind::List(_) => None,
        }
    }

    /// The first value under `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&Node<'a>> {
        self.entries()?.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The kind of the value, for messages.
    pub(crate) fn noun(&self) -> &'static str {
        match &self.kind {
            NodeKind::Plain(_) if self.is_null() => "nothing",
            NodeKind::Plain(_) | NodeKind::Quoted(_) => "text",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
        }
    }

    /// The value as JSON. Of duplicate keys the first one is used.
    pub(crate) fn to_json(&self) -> Value {
        match &self.kind {
            NodeKind::Plain(text) => plain_to_json(text),
            NodeKind::Quoted(text) => Value::String(text.to_string()),
            NodeKind::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            NodeKind::Map(entries) => {
                let mut map = Map::new();
                for entry in entries {
                    map.entry(entry.key.as_ref()).or_insert_with(|| entry.value.to_json());
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
    let number = text.bytes().next().is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.'));
    if !number {
        return Value::String(text.to_owned());
    }
    let whole = || text.parse::<i64>().ok().map(Number::from);
    let decimal = || text.parse::<f64>().ok().and_then(Number::from_f64);
    whole().or_else(decimal).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}
