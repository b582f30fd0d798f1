//! Corrections as the parser describes them. Their extent in the text is computed afterwards, because the parser passes values
//! on without the text around them.

use std::{ffi::OsStr, path::Path};

use homing_core::diagnostic::{Fix, TextEdit};

use super::text_edits::edit;
use crate::{
    node::{NodeKind, Position},
    yaml,
};

/// A correction of the file that is being parsed.
#[derive(Debug)]
pub(crate) struct FixDraft {
    title: String,
    changes: Vec<&'static str>,
    edits: Vec<DraftEdit>,
}

#[derive(Debug)]
enum DraftEdit {
    Exact(TextEdit),
    /// Writes the key at this position differently.
    Key {
        at: Position,
        key: String,
        to: String,
    },
    /// Writes another text instead of the value at this position.
    Value {
        at: Position,
        to: String,
    },
    /// Inserts a key into the map at this position.
    Entry {
        at: Position,
        key: &'static str,
        value: String,
    },
    /// Deletes the key at this position, with its value.
    NoEntry {
        at: Position,
    },
}

/// The syntax in which keys and values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Yaml,
    Json,
    Toml,
}

impl Syntax {
    /// The syntax of the keys in a file.
    pub(crate) fn of(path: &Path, text: &str) -> Self {
        match path.extension().and_then(OsStr::to_str) {
            Some("json" | "jsonc") => Self::Json,
            Some("toml") => Self::Toml,
            Some(_) | None if text.trim_start().starts_with('{') => Self::Json,
            Some(_) | None => Self::Yaml,
        }
    }
}

impl FixDraft {
    fn new(title: impl Into<String>, edit: DraftEdit) -> Self {
        Self { title: title.into(), changes: Vec::new(), edits: vec![edit] }
    }

    /// A correction with a known extent.
    pub(crate) fn exact(title: impl Into<String>, edits: Vec<TextEdit>) -> Self {
        Self { title: title.into(), changes: Vec::new(), edits: edits.into_iter().map(DraftEdit::Exact).collect() }
    }

    /// Renames a key.
    pub(crate) fn rename(at: Position, key: &str, to: &str) -> Self {
        let title = format!("rename `{key}` to `{to}`");
        Self::new(title, DraftEdit::Key { at, key: key.to_owned(), to: to.to_owned() })
    }

    /// Writes another text instead of a value on one line.
    pub(crate) fn value(title: impl Into<String>, at: Position, to: &str) -> Self {
        Self::new(title, DraftEdit::Value { at, to: to.to_owned() })
    }

    /// Adds a key to the map at a position.
    pub(crate) fn add(at: Position, key: &'static str, value: &str) -> Self {
        Self::new(format!("add `{key}`"), DraftEdit::Entry { at, key, value: value.to_owned() })
    }

    /// Deletes a key with its value.
    pub(crate) fn delete(at: Position, key: &str) -> Self {
        Self::new(format!("delete `{key}`"), DraftEdit::NoEntry { at })
    }

    /// Adds the edits of another correction.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.edits.extend(other.edits);
        self.changes.extend(other.changes);
        self
    }

    /// Names the fields of the definition that may change.
    pub(crate) fn changing(mut self, fields: &[&'static str]) -> Self {
        self.changes.extend(fields);
        self
    }

    /// Computes the edits. Returns `None` if the text around a value is too unusual to be changed safely.
    pub(crate) fn resolve(&self, lines: &[&str], syntax: Syntax) -> Option<Fix> {
        let edits: Option<Vec<TextEdit>> = self.edits.iter().map(|edit| edit.resolve(lines, syntax)).collect();
        let mut edits = edits?;
        edits.sort_by_key(|edit| (edit.line, edit.column));
        let changes = self.changes.iter().map(|field| (*field).to_owned()).collect();
        Some(Fix { title: self.title.clone(), edits, changes })
    }
}

impl DraftEdit {
    fn resolve(&self, lines: &[&str], syntax: Syntax) -> Option<TextEdit> {
        match self {
            Self::Exact(edit) => Some(edit.clone()),
            Self::Key { at, key, to } => key_edit(lines, *at, key, to),
            Self::Value { at, to } => {
                let at = value_start(lines, *at);
                let end = value_end(lines, at)?;
                let is_top = split_at(lines, at).is_some_and(|(before, _)| !before.starts_with([' ', '\t', '-', '{']));
                let has_comment = split_at(lines, end).is_some_and(|(_, behind)| !behind.trim().is_empty());
                let block = yaml_block(to).filter(|_| syntax == Syntax::Yaml && is_top && !has_comment);
                Some(edit(at, end, block.unwrap_or_else(|| written(to, syntax))))
            }
            Self::Entry { at, key, value } => new_entry(lines, *at, key, value, syntax),
            Self::NoEntry { at } => entry_deletion(lines, *at, syntax),
        }
    }
}

/// The text before and from a position in its line.
fn split_at<'a>(lines: &[&'a str], at: Position) -> Option<(&'a str, &'a str)> {
    let line = lines.get(at.line.checked_sub(1)? as usize)?;
    let column = at.column.checked_sub(1)? as usize;
    let offset = line.char_indices().map(|(offset, _)| offset).chain([line.len()]).nth(column)?;
    Some(line.split_at(offset))
}

fn characters(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

fn key_edit(lines: &[&str], at: Position, key: &str, to: &str) -> Option<TextEdit> {
    let (_, rest) = split_at(lines, at)?;
    let quote = u32::from(rest.starts_with(['"', '\'']));
    rest[quote as usize..].starts_with(key).then(|| {
        let start = Position { column: at.column + quote, ..at };
        edit(start, Position { column: start.column + characters(key), ..start }, to)
    })
}

/// The start of a value. The parser places a block at its first line, below the mark for it.
fn value_start(lines: &[&str], at: Position) -> Position {
    let above =
        at.line.checked_sub(2).and_then(|above| lines.get(above as usize)).copied().unwrap_or_default().trim_end();
    let mark = above
        .trim_end_matches(|character: char| matches!(character, '|' | '>' | '+' | '-') || character.is_ascii_digit());
    let is_mark = above[mark.len()..].starts_with(['|', '>']) && mark.ends_with(": ") && !mark.starts_with(' ');
    if is_mark { Position { line: at.line - 1, column: characters(mark) + 1 } } else { at }
}

/// The end of a value: quoted, a list of scalars or plain on one line, or a block below a key.
fn value_end(lines: &[&str], at: Position) -> Option<Position> {
    let (before, rest) = split_at(lines, at)?;
    let below = lines[at.line as usize..].iter().take_while(|line| line.is_empty() || line.starts_with([' ', '\t']));
    let below: Vec<&&str> = below.collect();
    let below = below.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    let is_block =
        rest.starts_with(['|', '>']) || (below > 0 && !rest.starts_with(['"', '\'', '[', '{', '&', '*', '!']));
    if is_block && below > 0 && !before.starts_with([' ', '\t', '-']) && before.trim_end().ends_with(':') {
        let last = at.line + u32::try_from(below).ok()?;
        let content = lines.get(last as usize - 1)?.trim_end();
        return Some(Position { line: last, column: characters(content) + 1 });
    }
    let length = match rest.chars().next()? {
        '"' => {
            let mut escaped = false;
            let end = rest[1..].char_indices().find(|(_, character)| {
                let is_end = *character == '"' && !escaped;
                escaped = *character == '\\' && !escaped;
                is_end
            })?;
            end.0 + 2
        }
        '\'' => {
            let mut at = 1;
            loop {
                at += rest[at..].find('\'')? + 1;
                if !rest[at..].starts_with('\'') {
                    break at;
                }
                at += 1;
            }
        }
        '[' if !rest[1..].contains(['[', '"', '\'', '#']) => rest.find(']')? + 1,
        '[' | '{' | '|' | '>' | '&' | '*' | '!' => return None,
        _ if below > 0 => return None,
        _ => rest.find(" #").map_or(rest, |comment| &rest[..comment]).trim_end().len(),
    };
    Some(Position { column: at.column + characters(&rest[..length]), ..at })
}

fn new_entry(lines: &[&str], at: Position, key: &str, value: &str, syntax: Syntax) -> Option<TextEdit> {
    let value = written(value, syntax);
    let (before, rest) = split_at(lines, at)?;
    if let Some(inside) = rest.strip_prefix('{') {
        let key = if syntax == Syntax::Json { format!("\"{key}\"") } else { key.to_owned() };
        // A map over several lines gets a line of its own.
        let indent = lines.get(at.line as usize).map_or("", |next| &next[..next.len() - next.trim_start().len()]);
        let text =
            if inside.trim().is_empty() { format!("\n{indent}{key}: {value},") } else { format!("{key}: {value}, ") };
        let start = Position { column: at.column + 1, ..at };
        return Some(edit(start, start, text));
    }
    if !before.trim().is_empty() {
        return None;
    }
    // `name` stays the first key.
    let next = lines.get(at.line as usize).copied().unwrap_or_default();
    let is_name = rest.starts_with("name:") && rest.trim_end().len() > 5 && !next.starts_with([' ', '\t']);
    let start = Position { line: at.line + u32::from(is_name), column: 1 };
    let text = match syntax {
        Syntax::Yaml => format!("{before}{key}: {value}\n"),
        Syntax::Toml => format!("{key} = {value}\n"),
        Syntax::Json => return None,
    };
    Some(edit(start, start, text))
}

/// The lines of an entry: its own, and all below that are blank or indented deeper.
fn entry_deletion(lines: &[&str], at: Position, syntax: Syntax) -> Option<TextEdit> {
    let (before, _) = split_at(lines, at)?;
    if syntax != Syntax::Yaml || !before.trim().is_empty() {
        return None;
    }
    let belongs = |line: &&str| {
        let indent = line.len() - line.trim_start().len();
        indent > before.len() || line.trim().is_empty() || line.trim_start().starts_with("- ")
    };
    let below = &lines[at.line as usize..];
    let count = below.iter().take_while(|line| belongs(line)).count();
    let count = below[..count].iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    let start = Position { line: at.line, column: 1 };
    let end = Position { line: at.line + 1 + u32::try_from(count).ok()?, column: 1 };
    Some(edit(start, end, ""))
}

/// A text as a value of the syntax.
fn written(text: &str, syntax: Syntax) -> String {
    match syntax {
        Syntax::Yaml => yaml_text(text),
        Syntax::Json | Syntax::Toml => json_text(text),
    }
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Several lines as a block below a key; `None` if they need escapes.
pub(crate) fn yaml_block(text: &str) -> Option<String> {
    let is_plain = |character: char| character == '\n' || !character.is_control();
    let fits = text.contains('\n') && text.trim() == text && text.chars().all(is_plain);
    let line = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("\n  {line}") };
    fits.then(|| format!("|-{}", text.split('\n').map(line).collect::<String>()))
}

/// A text in YAML on one line, with quotes if it needs them.
fn yaml_text(text: &str) -> String {
    let source = format!("key: {text}");
    let plain = yaml::parse(&source, 1).ok();
    let plain = plain.as_ref().and_then(|node| node.get("key"));
    let is_plain =
        |value: &crate::node::Node<'_>| value.kind == NodeKind::Plain(text.into()) && value.to_json().is_string();
    if plain.is_some_and(is_plain) && !text.contains(['\n', '#']) && !text.is_empty() {
        text.to_owned()
    } else if text.chars().any(char::is_control) {
        json_text(text)
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}
