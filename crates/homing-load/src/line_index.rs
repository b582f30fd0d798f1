//! Converts byte offsets of a text to lines and columns.

use crate::node::Position;

/// The distance of the offsets for which the number of characters is stored.
const BLOCK: usize = 64;

/// A text with the offsets of its lines. A lookup takes constant time within a line, because a file may be one long line.
pub(crate) struct LineIndex<'a> {
    text: &'a str,
    /// The offset of each line and the number of characters before it.
    lines: Vec<(usize, usize)>,
    /// The number of characters before each block of the text.
    blocks: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut index = Self { text, lines: Vec::new(), blocks: Vec::new() };
        let mut characters = 0;
        for block in text.as_bytes().chunks(BLOCK) {
            index.blocks.push(characters);
            characters += count_characters(block);
        }
        index.blocks.push(characters);
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        index.lines = starts.map(|start| (start, index.characters_before(start))).collect();
        index
    }

    /// The text in `range`; empty if the range is not valid.
    pub(crate) fn slice(&self, range: std::ops::Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    /// The line and column of a byte offset.
    pub(crate) fn position(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let line = self.lines.partition_point(|(start, _)| *start <= offset).max(1);
        let column = self.characters_before(offset) - self.lines[line - 1].1 + 1;
        Position { line: u32::try_from(line).unwrap_or(u32::MAX), column: u32::try_from(column).unwrap_or(u32::MAX) }
    }

    fn characters_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        self.blocks[block] + count_characters(&self.text.as_bytes()[block * BLOCK..offset])
    }
}

/// Counts the first bytes of characters, so that blocks need not end at character boundaries.
fn count_characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_across_blocks() {
        let text = format!("{}\nä{}b\n", "é".repeat(100), "ü".repeat(100));
        let index = LineIndex::new(&text);
        for (offset, _) in text.char_indices() {
            let before = &text[..offset];
            let start = before.rfind('\n').map_or(0, |at| at + 1);
            let line = u32::try_from(before.matches('\n').count() + 1).unwrap();
            let column = u32::try_from(before[start..].chars().count() + 1).unwrap();
            assert_eq!(index.position(offset), Position { line, column }, "{offset}");
        }
        assert_eq!(index.position(text.len() + 9), Position { line: 3, column: 1 });
        assert_eq!(LineIndex::new("").position(0), Position { line: 1, column: 1 });
        assert_eq!(LineIndex::new(&"x".repeat(BLOCK)).position(BLOCK), Position { line: 1, column: 65 });
    }
}
