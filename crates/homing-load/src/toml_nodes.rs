//! TOML to [`Node`]s. Knows TOML and nothing of agents.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::node::{Node, NodeEntry, NodeKind, Position};

/// Why a text is not TOML.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TomlError {
    pub(crate) spot: Position,
    pub(crate) message: String,
}

/// Reads a TOML document.
pub(crate) fn parse(text: &str) -> Result<Node, TomlError> {
    let lines = Lines::of(text);
    let table = DeTable::parse(text).map_err(|error| TomlError {
        spot: lines.spot(error.span().map_or(0, |it| it.start)),
        message: error.message().to_owned(),
    })?;
    Ok(lines.table(Position { line: 1, column: 1 }, table.get_ref()))
}

/// A text and where its lines begin.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    fn spot(&self, offset: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let column = self.text.get(self.starts[line - 1]..offset).map_or(0, |it| it.chars().count());
        Position {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column + 1).unwrap_or(u32::MAX),
        }
    }

    fn table(&self, spot: Position, table: &DeTable<'_>) -> Node {
        let mut entries: Vec<NodeEntry> = table
            .iter()
            .map(|(key, value)| NodeEntry {
                key: key.get_ref().to_string(),
                spot: self.spot(key.span().start),
                value: self.value(value),
            })
            .collect();
        // The table comes sorted by key; people expect the order of the file.
        entries.sort_by_key(|it| it.spot);
        Node::new(spot, NodeKind::Map(entries))
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let spot = self.spot(value.span().start);
        match value.get_ref() {
            DeValue::String(text) => Node::new(spot, NodeKind::Quoted(text.to_string())),
            DeValue::Array(items) => Node::new(spot, NodeKind::List(items.iter().map(|it| self.value(it)).collect())),
            DeValue::Table(table) => self.table(spot, table),
            _ => Node::new(spot, NodeKind::Plain(self.text.get(value.span()).unwrap_or_default().to_owned())),
        }
    }
}
