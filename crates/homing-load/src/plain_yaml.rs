//! Reads the form of YAML that most front matter has, several times as fast as a parser of the whole language: lines of a key and a
//! text, and lists of texts below a key. Anything else is left to that parser, so this module never decides that a text is wrong.

use crate::node::{Node, NodeEntry, NodeKind, Position};

/// Texts with more lines are left to the parser, which limits the number of values.
const MAX_LINES: usize = 1_000;

/// Returns the map that `text` contains, whose first line is line `first_line` of its file; `None` if it has any other form.
pub(crate) fn read(text: &str, first_line: u32) -> Option<Node> {
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    let mut entries: Vec<NodeEntry> = Vec::new();
    let mut list: Option<OpenList> = None;
    for (index, line) in lines.enumerate() {
        let number = first_line.checked_add(u32::try_from(index).ok()?)?;
        if index >= MAX_LINES {
            return None;
        }
        if let (Some(list), Some((indent, item))) = (&mut list, list_item(line)) {
            list.add(indent, item, number)?;
            continue;
        }
        if let Some(list) = list.take() {
            entries.push(list.close()?);
        }
        let key = &line[..line.bytes().take_while(|byte| is_key_byte(*byte)).count()];
        let value = line[key.len()..].strip_prefix(':')?;
        if !key.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return None;
        }
        let position = Position { line: number, column: 1 };
        if value.is_empty() {
            list = Some(OpenList { key, position, indent: 0, items: Vec::new() });
            continue;
        }
        let column = u32::try_from(key.len()).ok()?.checked_add(3)?;
        let value = scalar(value.strip_prefix(' ')?, Position { line: number, column })?;
        entries.push(NodeEntry { key: key.to_owned(), position, value });
    }
    if let Some(list) = list {
        entries.push(list.close()?);
    }
    Some(Node::new(Position { line: first_line, column: 1 }, NodeKind::Map(entries)))
}

/// A key without a value on its line, and the items of the list below it.
struct OpenList<'a> {
    key: &'a str,
    position: Position,
    indent: usize,
    items: Vec<Node>,
}

impl OpenList<'_> {
    /// Adds an item; `None` if it is not indented, or not as the first one.
    fn add(&mut self, indent: usize, item: &str, line: u32) -> Option<()> {
        if self.items.is_empty() {
            self.indent = indent;
        }
        let column = u32::try_from(indent).ok()?.checked_add(3)?;
        let item = scalar(item, Position { line, column })?;
        self.items.push(item);
        (indent > 0 && indent == self.indent).then_some(())
    }

    /// Returns the entry; `None` if there is no list, because the key then has no value or one of another form.
    fn close(self) -> Option<NodeEntry> {
        let first = self.items.first()?.position;
        let start = Position { column: first.column - 2, ..first };
        let value = Node::new(start, NodeKind::List(self.items));
        Some(NodeEntry { key: self.key.to_owned(), position: self.position, value })
    }
}

/// Returns the indentation and the text of a list item.
fn list_item(line: &str) -> Option<(usize, &str)> {
    let item = line.trim_start_matches(' ');
    Some((line.len() - item.len(), item.strip_prefix("- ")?))
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Reads a text on one line, without quotes or in quotes.
fn scalar(text: &str, position: Position) -> Option<Node> {
    let first = text.chars().next()?;
    if !text.chars().all(is_printable) {
        return None;
    }
    let kind = match first {
        '"' => {
            let inside = text.strip_prefix('"')?.strip_suffix('"')?;
            NodeKind::Quoted((!inside.contains(['"', '\\'])).then(|| inside.to_owned())?)
        }
        '\'' => {
            let inside = text.strip_prefix('\'')?.strip_suffix('\'')?;
            NodeKind::Quoted((!inside.contains('\'')).then(|| inside.to_owned())?)
        }
        first if first.is_ascii_alphanumeric() => {
            let has_meaning = text.contains(": ") || text.contains(" #") || text.ends_with([':', ' ']);
            NodeKind::Plain((!has_meaning).then(|| text.to_owned())?)
        }
        _ => return None,
    };
    Some(Node::new(position, kind))
}

/// Returns false for characters that end a line or that YAML does not allow in a text.
fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        other => other >= '\u{a0}',
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::yaml;

    #[test]
    fn usual_front_matter_is_read() {
        let text = "name: a\ndescription: Reviews code — thoroughly; use it (often).\ntools:\n  - Read\n  - \"Bash(git *)\"\n\
                    model: 'sonnet'\nmax-turns: 1_000\n";
        let node = read(text, 2).expect("the usual form");
        assert_eq!(Ok(node), yaml::parse_any(text, 2));
    }

    #[test]
    fn other_forms_are_left_to_the_parser() {
        for text in [
            "",
            "a",
            "a:b",
            "a:",
            "a: ",
            "a:  b",
            "a: b: c",
            "a: b #c",
            "a: b:",
            "a: b ",
            "a: [b]",
            "a: |\n  b",
            "a: b\n  c",
            "a: b\n\nc: d",
            "a: \"b\\n\"",
            "a: 'b''c'",
            "a: \"b\" c",
            "a: &b c",
            "a: *b",
            "a: b\r\nc: d",
            "a:\n  b: c",
            "a:\n- b",
            "a:\n  - b\n - c",
            "a:\n  - b: c",
            "a:\n  - b\n  c",
            "? a",
            "- a",
            "<<: a",
            "a: b\n---\nc: d",
            "a: b\u{85}c: d",
            "\u{feff}a: b",
        ] {
            assert_eq!(read(text, 1), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn both_readers_agree(
            lines in prop::collection::vec(
                prop_oneof![
                    "[a-c]{1,2}: [ a1:#'\"\\-,\\[\\]*—\u{2028}\\\\]{0,6}",
                    "[a-c]{1,2}:",
                    "[a-c]:\n {0,2}- [a1 ]{1,3}",
                    " {0,3}- [ a1:#'\"\\-,\\[\\]*—]{0,5}",
                    "[ a:#\\-'\"?|>\t.]{0,6}",
                    "(name|description|tools): (true|null|1_0|~|a b|a: b|'a b'|\"a, b\")",
                ],
                0..6,
            ),
            ends in any::<bool>(),
        ) {
            let text = lines.join("\n") + if ends { "\n" } else { "" };
            if let Some(node) = read(&text, 3) {
                prop_assert_eq!(Ok(node), yaml::parse_any(&text, 3), "{:?}", text);
            }
        }
    }
}
