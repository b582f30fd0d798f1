//! Parses the most common form of front matter, lines of a key and a plain text, without the YAML parser, which needs three
//! times as many instructions for it.
//!
//! It must return exactly what the parser returns, or nothing: fields that restrict an agent are read from the result. So it
//! accepts only characters and forms that have one meaning in every version of YAML, and the tests compare both.

use crate::node::{Node, NodeEntry, NodeKind, Position};

/// The maximum number of lines and the maximum length of a key: far below the limits of the parser.
const MAX_LINES: usize = 64;
const MAX_KEY: usize = 64;

/// Parses a text that consists of lines such as `name: reviewer`, or returns `None`.
pub(super) fn parse(text: &str, first_line: u32) -> Option<Node<'_>> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut entries = Vec::with_capacity(super::USUAL_KEYS);
    for (line, number) in text.split('\n').zip(first_line..) {
        if entries.len() == MAX_LINES {
            return None;
        }
        entries.push(entry(line, number)?);
    }
    Some(Node::new(entries.first()?.position, NodeKind::Map(entries)))
}

fn entry(text: &str, line: u32) -> Option<NodeEntry<'_>> {
    let (key, value) = text.split_once(": ")?;
    if !is_key(key) || !is_plain(value) {
        return None;
    }
    let column = u32::try_from(key.len() + ": ".len() + 1).ok()?;
    let value = Node::new(Position { line, column }, NodeKind::Plain(value.into()));
    Some(NodeEntry { key: key.into(), position: Position { line, column: 1 }, value })
}

fn is_key(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    text.len() <= MAX_KEY && text.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) && text.bytes().all(is_name)
}

/// Returns whether a text after a key is a plain scalar as it stands: it begins like a word, and nothing in it ends the scalar
/// or begins a comment.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |pair: &[u8]| matches!(pair, b": " | b" #");
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
        && !bytes.windows(2).any(ends)
        && !matches!(bytes.last(), Some(b' ' | b':'))
}

#[cfg(test)]
mod tests {
    use super::super::with_parser;
    use super::*;

    /// Lines that are accepted, and lines that differ from them in one place.
    const LINES: &[&str] = &[
        "name: reviewer",
        "max-turns: 20",
        "tools: Read, Grep, Bash(git log:*)",
        "description: Reviews [all] {changes}, \"quoted\" & 'marked' *here* | there > away ! % @ ` ? - , http://a#b",
        "model: a:b",
        "a_b: 1.5e3",
        "y: no",
        "",
        " ",
        "# comment",
        "name:",
        "name: ",
        "name:reviewer",
        " name: reviewer",
        "name : reviewer",
        "name:  reviewer",
        "name:\treviewer",
        "name: reviewer ",
        "name: reviewer\t",
        "name: reviewer\r",
        "name: a: b",
        "name: a:",
        "name: a #b",
        "name: a\u{85}b",
        "name: a\u{a0}b — ß",
        "name: a\u{2028}b",
        "name: \u{feff}b",
        "\u{feff}name: b",
        "name: \u{7f}",
        "name: a\u{0}b",
        "name: 'quoted'",
        "name: \"quoted\"",
        "name: [a, b]",
        "name: {a: b}",
        "name: |",
        "name: >-",
        "name: &a b",
        "name: *a",
        "name: !!str a",
        "name: - a",
        "name: ? a",
        "name: @a",
        "name: `a",
        "name: %a",
        "name: #a",
        "name: ,a",
        "name: ---",
        "---: a",
        "-: a",
        "?: a",
        "<<: a",
        "9: a",
        "-a: b",
        "\"name\": b",
        "[a]: b",
        "name",
        "- a",
        "  more",
        "---",
        "...",
        "--- name: a",
        "%YAML 1.2",
        "%TAG: a",
    ];

    #[track_caller]
    fn same_as_the_parser(text: &str) -> bool {
        let lines = parse(text, 2);
        if let Some(lines) = &lines {
            assert_eq!(with_parser(text, 2).as_ref(), Ok(lines), "{text:?}");
        }
        lines.is_some()
    }

    #[test]
    fn every_accepted_text_means_the_same_to_the_parser() {
        let mut accepted = 0;
        for first in LINES {
            for second in LINES {
                for third in LINES {
                    for end in ["", "\n"] {
                        accepted += usize::from(same_as_the_parser(&format!("{first}\n{second}\n{third}{end}")));
                    }
                }
                accepted += usize::from(same_as_the_parser(&format!("{first}\n{second}")));
            }
            accepted += usize::from(same_as_the_parser(first));
        }
        // Seven forms in three, two and one line, all with and without a line break at the end.
        assert_eq!(accepted, 2 * (7 * 7 * 7 + 7 * 7 + 7));
    }

    #[test]
    fn every_pair_of_characters_in_a_value_means_the_same_to_the_parser() {
        let characters: Vec<char> =
            (0..0x180).chain([0x2028, 0x2029, 0xfeff, 0xfffd, 0x1f600]).filter_map(char::from_u32).collect();
        for first in &characters {
            for second in characters.iter().filter(|second| first.is_ascii() || second.is_ascii()) {
                same_as_the_parser(&format!("name: {first}{second}a\nmodel: b\n"));
                same_as_the_parser(&format!("name: a{first}{second}\nmodel: b\n"));
                same_as_the_parser(&format!("{first}{second}: a\nmodel: b\n"));
            }
        }
    }

    #[test]
    fn many_lines_and_long_keys_are_left_to_the_parser() {
        let lines = |count: usize| "name: a\n".repeat(count);
        assert!(same_as_the_parser(&lines(MAX_LINES)) && !same_as_the_parser(&lines(MAX_LINES + 1)));
        let key = |length: usize| format!("{}: a\n", "k".repeat(length));
        assert!(same_as_the_parser(&key(MAX_KEY)) && !same_as_the_parser(&key(MAX_KEY + 1)));
    }
}
