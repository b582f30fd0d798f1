//! Parses TOML into [`Node`]s. It knows nothing about agents.

use std::borrow::Cow;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    line_index::LineIndex,
    node::{Node, NodeEntry, NodeKind, Position},
};

/// A TOML syntax error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TomlError {
    pub(crate) position: Position,
    pub(crate) message: String,
}

/// Parses a TOML document.
pub(crate) fn parse(text: &str) -> Result<Node<'static>, TomlError> {
    let lines = LineIndex::new(text);
    let document = DeTable::parse(text).map_err(|error| TomlError {
        position: lines.position(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    })?;
    Ok(table(&lines, Position { line: 1, column: 1 }, document.get_ref()))
}

fn table(lines: &LineIndex<'_>, position: Position, table: &DeTable<'_>) -> Node<'static> {
    let entry = |(key, node): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| NodeEntry {
        key: key.get_ref().to_string().into(),
        position: lines.position(key.span().start),
        value: value(lines, node),
    };
    let mut entries: Vec<NodeEntry<'_>> = table.iter().map(entry).collect();
    // The parser sorts tables by key; diagnostics and listings use the order of the file.
    entries.sort_by_key(|entry| entry.position);
    Node::new(position, NodeKind::Map(entries))
}

fn value(lines: &LineIndex<'_>, value: &Spanned<DeValue<'_>>) -> Node<'static> {
    let position = lines.position(value.span().start);
    match value.get_ref() {
        DeValue::String(text) => Node::new(position, NodeKind::Quoted(text.to_string().into())),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| self::value(lines, item)).collect();
            Node::new(position, NodeKind::List(items))
        }
        DeValue::Table(inner) => table(lines, position, inner),
        _ => Node::new(position, NodeKind::Plain(lines.slice(value.span()).to_owned().into())),
    }
}
