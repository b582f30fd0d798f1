//! Reads front matter that is not valid YAML: first by quoting values that need quotes, then by searching for known keys.
//! It does not interpret the values.

use homing_core::diagnostic::TextEdit;

use crate::{
    diagnostics::Diagnostics,
    fields,
    fix::{FixDraft, apply, edit, yaml_block},
    front_matter::key_of,
    node::{Node, NodeEntry, NodeKind, Position},
    yaml::{self, YamlError},
};

/// Reads front matter whose first line is line `first_line` of its file, and repairs it if necessary.
pub(crate) fn read<'a>(text: &'a str, first_line: u32, diagnostics: &mut Diagnostics) -> Result<Node<'a>, YamlError> {
    let error = match yaml::parse(text, first_line) {
        Ok(node) => return Ok(node),
        Err(error) if error.hostile => return Err(error),
        Err(error) => error,
    };
    let quoted = quote(text, first_line);
    for tabs in [Vec::new(), tabs(text, first_line)] {
        if let Some(node) = repaired(text, first_line, &quoted, &tabs) {
            report(quoted, tabs, diagnostics);
            return Ok(node);
        }
    }
    if let Some(dedented) = dedent(text, first_line) {
        let shorter = apply(text, first_line, &dedented).unwrap_or_default();
        let quoted = quote(&shorter, first_line);
        let node = yaml::parse(&shorter, first_line).map(Node::into_owned).ok();
        if let Some(node) = node.or_else(|| repaired(&shorter, first_line, &quoted, &[])) {
            let hint = "write all keys without indentation";
            diagnostics.warn(error.position, "", "keys are indented although the first one is not: read as keys", hint);
            diagnostics.fix(FixDraft::exact("remove the indentation", dedented));
            return Ok(node);
        }
    }
    let (node, fix) = scan(text, first_line);
    if node.entries().is_none_or(<[NodeEntry<'_>]>::is_empty) {
        return Err(error);
    }
    diagnostics.warn(
        error.position,
        "",
        format!("not valid YAML ({}): only the recognised keys were read", error.message),
        "indent the lines that belong to a value, or put the value in quotes",
    );
    diagnostics.rule("invalid-yaml");
    diagnostics.fix(FixDraft::exact("write the values as YAML", fix));
    Ok(node)
}

/// Parses the text with all edits. The repair is the same text that a fix writes, so that they cannot differ.
fn repaired(text: &str, first_line: u32, quoted: &[Quoted], tabs: &[TextEdit]) -> Option<Node<'static>> {
    let edits = quoted.iter().map(|quoted| quoted.edit.clone());
    let is_quoted = |line: u32| quoted.iter().any(|quoted| (quoted.edit.line..=quoted.edit.end_line).contains(&line));
    let mut edits: Vec<TextEdit> = edits.chain(tabs.iter().filter(|tab| !is_quoted(tab.line)).cloned()).collect();
    edits.sort_by_key(|edit| (edit.line, edit.column));
    let text = apply(text, first_line, &edits)?;
    let node = yaml::parse(&text, first_line).ok()?;
    let is_dialogue = |entries: &[NodeEntry<'_>]| entries.iter().any(|entry| is_dialogue(&entry.key));
    node.entries().is_some_and(|entries| !is_dialogue(entries)).then(|| node.into_owned())
}

fn report(quoted: Vec<Quoted>, tabs: Vec<TextEdit>, diagnostics: &mut Diagnostics) {
    for Quoted { key, edit } in quoted {
        let position = Position { line: edit.line, column: edit.column };
        let message = format!("`{key}` is not valid YAML without quotes: read as text");
        diagnostics.warn(position, &key, message, "put the value in quotes");
        diagnostics.rule("value-needs-quotes");
        diagnostics.fix(FixDraft::exact("put the value in quotes", vec![edit]));
    }
    if let Some(first) = tabs.first() {
        let position = Position { line: first.line, column: 1 };
        diagnostics.warn(position, "", "lines are indented with tabs: read as spaces", "indent with spaces");
        diagnostics.rule("tab-indentation");
        diagnostics.fix(FixDraft::exact("indent with spaces", tabs));
    }
}

/// A value that needs quotes, and the edit that adds them.
struct Quoted {
    key: String,
    edit: TextEdit,
}

/// Returns true for the speakers of a dialogue: descriptions often contain examples whose lines look like keys.
fn is_dialogue(key: &str) -> bool {
    matches!(key, "user" | "User" | "assistant" | "Assistant" | "Context")
}

/// Quotes top-level values that need quotes. Line numbers do not change.
fn quote(text: &str, first_line: u32) -> Vec<Quoted> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut quoted, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let Some((key, value)) = key_of(lines[at]).filter(|(_, value)| needs_quotes(value.trim())) else {
            at += 1;
            continue;
        };
        let more = lines[at + 1..].iter().take_while(|line| is_indented(line) && !line.trim().is_empty()).count();
        let whole = [value].into_iter().chain(lines[at + 1..=at + more].iter().copied());
        let whole = whole.collect::<Vec<_>>().join("\n");
        let space = value.len() - value.trim_start().len();
        let start = Position { line: first_line + count(at), column: count(key.chars().count() + 2 + space) };
        let last = lines[at + more].trim_end();
        let end = Position { line: start.line + count(more), column: count(last.chars().count() + 1) };
        let written = format!("'{}'", whole.trim().replace('\'', "''"));
        quoted.push(Quoted { key: key.to_owned(), edit: edit(start, end, written) });
        at += 1 + more;
    }
    quoted
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn is_indented(line: &str) -> bool {
    line.starts_with([' ', '\t'])
}

/// Replaces tabs in indentation, which some authors use although YAML does not allow them.
fn tabs(text: &str, first_line: u32) -> Vec<TextEdit> {
    let spaces = |(index, line): (usize, &str)| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let line = first_line + count(index);
        let end = Position { line, column: count(indent.chars().count() + 1) };
        indent.contains('\t').then(|| edit(Position { line, column: 1 }, end, indent.replace('\t', "  ")))
    };
    text.lines().enumerate().filter_map(spaces).collect()
}

/// Removes the indentation of all lines below a first key without indentation, if known keys are indented alike.
fn dedent(text: &str, first_line: u32) -> Option<Vec<TextEdit>> {
    let first = text.lines().find(|line| !line.trim().is_empty())?;
    known_key(first).filter(|(_, value)| !value.trim().is_empty())?;
    let indent_of = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let indented = text.lines().find(|line| indent_of(line) > 0 && known_key(line.trim_start()).is_some())?;
    let indent = indent_of(indented);
    let shorter = |(index, line): (usize, &str)| {
        let removed = indent.min(indent_of(line));
        let line = first_line + count(index);
        let end = Position { line, column: count(removed + 1) };
        (removed > 0).then(|| edit(Position { line, column: 1 }, end, ""))
    };
    Some(text.lines().enumerate().filter_map(shorter).collect())
}

fn needs_quotes(value: &str) -> bool {
    let Some(first) = value.chars().next() else { return false };
    if matches!(first, '"' | '\'') {
        // A value such as `"Expert" in things` is text that begins with a quoted word.
        let Some(rest) = value[1..].find(first).map(|at| value[at + 2..].trim_start()) else { return false };
        return !rest.is_empty() && !rest.starts_with('#') && !value.ends_with(first);
    }
    if first == '[' {
        // A hint such as `[issue] [branch]` is text: nothing may follow a list on its line.
        let rest = value.split_once(']').map_or("", |(_, rest)| rest.trim_start());
        return rest.starts_with(|next: char| next.is_alphanumeric() || matches!(next, '[' | '<' | '('));
    }
    if matches!(first, '{' | '|' | '>') {
        return false;
    }
    matches!(first, '*' | '&' | '!' | '@' | '`' | '%') || value.contains(": ") || value.ends_with(':')
}

/// Reads text as a last resort: each line with a known key begins a value that includes all lines up to the next one. Returns
/// the edits that make YAML of these values, too.
fn scan(text: &str, first_line: u32) -> (Node<'static>, Vec<TextEdit>) {
    let lines: Vec<&str> = text.lines().collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|at| known_key(lines[*at]).is_some()).collect();
    let (mut entries, mut edits) = (Vec::new(), Vec::new());
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(lines.len());
        let line = first_line + count(*start);
        let Some((entry, is_yaml)) = scanned(&lines[*start..end], line) else { continue };
        if !is_yaml && let Some(text) = entry.value.text() {
            let end = Position { line: first_line + count(end - 1), column: count(lines[end - 1].chars().count() + 1) };
            let start = Position { line, column: count(entry.key.chars().count() + 2) };
            edits.push(edit(start, end, format!(" {}", as_yaml(text))));
        }
        entries.push(entry);
    }
    (Node::new(Position { line: first_line, column: 1 }, NodeKind::Map(entries)), edits)
}

/// A text as a block of lines, or in quotes.
fn as_yaml(text: &str) -> String {
    yaml_block(text).unwrap_or_else(|| format!("'{}'", text.replace('\'', "''")))
}

fn known_key(line: &str) -> Option<(&str, &str)> {
    let known = |key: &str| fields::lookup(&fields::fold(key)).is_some() && !is_dialogue(key);
    key_of(line).filter(|(key, _)| known(key))
}

/// Reads one entry; the flag is true if its lines alone are valid YAML.
fn scanned(lines: &[&str], line: u32) -> Option<(NodeEntry<'static>, bool)> {
    let (key, value) = known_key(lines[0])?;
    let position = Position { line, column: 1 };
    // The value alone may be valid YAML.
    let whole = lines.join("\n");
    let alone = yaml::parse(&whole, line).ok();
    if let Some(NodeKind::Map(mut entries)) = alone.map(|node| node.kind)
        && entries.len() == 1
    {
        return entries.pop().map(|entry| (entry.into_owned(), true));
    }
    let parts = [value].into_iter().chain(lines[1..].iter().copied());
    let text = parts.map(str::trim_end).collect::<Vec<_>>().join("\n");
    let text = text.trim().trim_matches(['"', '\'']).to_owned();
    let value_position = Position { line, column: count(key.chars().count()) + 3 };
    let value = Node::new(value_position, NodeKind::Quoted(text.into()));
    Some((NodeEntry { key: key.to_owned().into(), position, value }, false))
}
