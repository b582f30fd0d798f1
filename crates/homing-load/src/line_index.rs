//! Converts byte offsets of a text to lines and columns.

use crate::node::Position;

/// A text and the offsets at which its lines begin.
pub(crate) struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// The text in `range`; empty if the range is not valid.
    pub(crate) fn slice(&self, range: std::ops::Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    /// The line and column of a byte offset.
    pub(crate) fn position(&self, offset: usize) -> Position {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let column = self.text.get(self.starts[line - 1]..offset).map_or(0, |before| before.chars().count());
        Position {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column + 1).unwrap_or(u32::MAX),
        }
    }
}
