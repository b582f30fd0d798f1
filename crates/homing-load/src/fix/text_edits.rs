//! Applies edits to a text and keeps everything else as it is: line ends, a byte order mark, and all other bytes.

use homing_core::diagnostic::TextEdit;

use crate::node::Position;

/// Creates an edit.
pub(crate) fn edit(start: Position, end: Position, text: impl Into<String>) -> TextEdit {
    TextEdit { line: start.line, column: start.column, end_line: end.line, end_column: end.column, text: text.into() }
}

/// Applies edits to `text`, whose first line has the number `first_line`. Returns `None` if they overlap or are not in order.
pub(crate) fn apply(text: &str, first_line: u32, edits: &[TextEdit]) -> Option<String> {
    let lines = Lines::new(text, first_line);
    let mut out = String::with_capacity(text.len() + 64);
    let mut at = 0;
    for edit in edits {
        let start = lines.offset(edit.line, edit.column)?;
        let end = lines.offset(edit.end_line, edit.end_column)?;
        if start < at || end < start {
            return None;
        }
        out.push_str(&text[at..start]);
        out.push_str(&edit.text.replace('\n', lines.ending));
        at = end;
    }
    out.push_str(&text[at..]);
    Some(out)
}

/// The lines of a text with any line ends.
struct Lines<'a> {
    text: &'a str,
    first_line: u32,
    /// The start of each line and the end of its content.
    spans: Vec<(usize, usize)>,
    /// The first line end, which inserted lines get too.
    ending: &'a str,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str, first_line: u32) -> Self {
        let mut start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let (mut spans, mut ending) = (Vec::new(), "");
        while let Some(at) = text[start..].find(['\r', '\n']).map(|at| start + at) {
            let width = if text[at..].starts_with("\r\n") { 2 } else { 1 };
            if ending.is_empty() {
                ending = &text[at..at + width];
            }
            spans.push((start, at));
            start = at + width;
        }
        spans.push((start, text.len()));
        Self { text, first_line, spans, ending: if ending.is_empty() { "\n" } else { ending } }
    }

    /// The offset of a position. A column behind the content of its line is its end, a line behind the text the text's end.
    fn offset(&self, line: u32, column: u32) -> Option<usize> {
        let index = line.checked_sub(self.first_line)? as usize;
        let Some((start, end)) = self.spans.get(index).copied() else { return Some(self.text.len()) };
        let column = column.checked_sub(1)? as usize;
        Some(self.text[start..end].char_indices().nth(column).map_or(end, |(at, _)| start + at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32, column: u32) -> Position {
        Position { line, column }
    }

    #[test]
    fn other_bytes_stay_as_they_are() {
        let text = "\u{feff}---\r\nnäme: a\r\nb: c\r---\n";
        let edits = [edit(at(2, 1), at(2, 5), "name"), edit(at(3, 1), at(3, 1), "x: y\n")];
        let fixed = apply(text, 1, &edits).unwrap();
        assert_eq!(fixed, "\u{feff}---\r\nname: a\r\nx: y\r\nb: c\r---\n");
        assert_eq!(apply("a\nb", 7, &[edit(at(8, 9), at(9, 1), "\n---\n")]).unwrap(), "a\nb\n---\n");
    }

    #[test]
    fn overlapping_edits_are_refused() {
        let edits = [edit(at(1, 1), at(1, 4), ""), edit(at(1, 3), at(1, 5), "")];
        assert_eq!(apply("abcdef", 1, &edits), None);
        assert_eq!(apply("abc", 2, &[edit(at(1, 1), at(1, 1), "x")]), None);
    }
}
