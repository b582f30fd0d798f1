//! Reads front matter that is not valid YAML: first by quoting values that need quotes, then by searching for known keys.
//! It does not interpret the values.

use crate::{
    diagnostics::Diagnostics,
    fields,
    front_matter::key_of,
    node::{Node, NodeEntry, NodeKind, Position},
    yaml::{self, YamlError},
};

/// Reads front matter whose first line is line `first_line` of its file, and repairs it if necessary.
pub(crate) fn read(text: &str, first_line: u32, diagnostics: &mut Diagnostics) -> Result<Node, YamlError> {
    let error = match yaml::parse(text, first_line) {
        Ok(node) => return Ok(node),
        Err(error) if error.hostile => return Err(error),
        Err(error) => error,
    };
    let (quoted, repaired) = quote(text, first_line);
    if let Ok(node) = yaml::parse(&quoted, first_line)
        && node.entries().is_some_and(|entries| !entries.iter().any(|entry| is_dialogue(&entry.key)))
    {
        report(&repaired, &error, diagnostics);
        return Ok(node);
    }
    if let Some(dedented) = dedent(text)
        && let Ok(node) =
            yaml::parse(&dedented, first_line).or_else(|_| yaml::parse(&quote(&dedented, first_line).0, first_line))
    {
        let hint = "write all keys without indentation";
        diagnostics.warn(error.position, "", "keys are indented although the first one is not: read as keys", hint);
        return Ok(node);
    }
    let node = scan(text, first_line);
    if node.entries().is_none_or(<[NodeEntry]>::is_empty) {
        return Err(error);
    }
    diagnostics.warn(
        error.position,
        "",
        format!("not valid YAML ({}): only the recognised keys were read", error.message),
        "indent the lines that belong to a value, or put the value in quotes",
    );
    Ok(node)
}

fn report(repaired: &[(String, Position)], error: &YamlError, diagnostics: &mut Diagnostics) {
    for (key, position) in repaired {
        diagnostics.warn(
            *position,
            key,
            format!("`{key}` is not valid YAML without quotes: read as text"),
            "put the value in quotes",
        );
    }
    if repaired.is_empty() {
        diagnostics.warn(error.position, "", format!("not valid YAML ({}): repaired", error.message), "");
    }
}

/// Returns true for the speakers of a dialogue: descriptions often contain examples whose lines look like keys.
fn is_dialogue(key: &str) -> bool {
    matches!(key, "user" | "User" | "assistant" | "Assistant" | "Context")
}

/// Quotes top-level values that need quotes. Line numbers do not change.
fn quote(text: &str, first_line: u32) -> (String, Vec<(String, Position)>) {
    let lines: Vec<&str> = text.lines().collect();
    let (mut out, mut repaired, mut at) = (String::with_capacity(text.len() + 64), Vec::new(), 0);
    while at < lines.len() {
        let line = lines[at];
        let needy = key_of(line).filter(|(_, value)| needs_quotes(value.trim()));
        let Some((key, value)) = needy else {
            // YAML does not allow tabs as indentation, but some authors use them.
            out.push_str(&line.replace('\t', "  "));
            out.push('\n');
            at += 1;
            continue;
        };
        let more = lines[at + 1..].iter().take_while(|line| line.starts_with([' ', '\t'])).count();
        let parts = [value].into_iter().chain(lines[at + 1..=at + more].iter().copied());
        let whole = parts.map(str::trim).collect::<Vec<_>>().join(" ");
        out.push_str(&format!("{key}: '{}'\n", whole.replace('\'', "''")));
        out.push_str(&"\n".repeat(more));
        let line = first_line + u32::try_from(at).unwrap_or(0);
        let column = u32::try_from(key.chars().count()).unwrap_or(0) + 3;
        repaired.push((key.to_owned(), Position { line, column }));
        at += 1 + more;
    }
    (out, repaired)
}

/// Removes the indentation of all lines below a first key without indentation, if known keys are indented alike.
fn dedent(text: &str) -> Option<String> {
    let first = text.lines().find(|line| !line.trim().is_empty())?;
    known_key(first).filter(|(_, value)| !value.trim().is_empty())?;
    let indent_of = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let indented = text.lines().find(|line| indent_of(line) > 0 && known_key(line.trim_start()).is_some())?;
    let indent = indent_of(indented);
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        out.push_str(&line[indent.min(indent_of(line))..]);
        out.push('\n');
    }
    Some(out)
}

fn needs_quotes(value: &str) -> bool {
    let Some(first) = value.chars().next() else { return false };
    if matches!(first, '"' | '\'') {
        // A value such as `"Expert" in things` is text that begins with a quoted word.
        let closed = value[1..].find(first).is_some_and(|at| at + 2 < value.len());
        return closed && !value.ends_with(first);
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

/// Reads text as a last resort: each line with a known key begins a value that includes all lines up to the next one.
fn scan(text: &str, first_line: u32) -> Node {
    let lines: Vec<&str> = text.lines().collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|at| known_key(lines[*at]).is_some()).collect();
    let mut entries = Vec::new();
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(lines.len());
        let line = first_line + u32::try_from(*start).unwrap_or(0);
        entries.extend(scanned(&lines[*start..end], line));
    }
    Node::new(Position { line: first_line, column: 1 }, NodeKind::Map(entries))
}

fn known_key(line: &str) -> Option<(&str, &str)> {
    let known = |key: &str| fields::lookup(&fields::fold(key)).is_some() && !is_dialogue(key);
    key_of(line).filter(|(key, _)| known(key))
}

fn scanned(lines: &[&str], line: u32) -> Option<NodeEntry> {
    let (key, value) = known_key(lines[0])?;
    let position = Position { line, column: 1 };
    let key = key.to_owned();
    // The value alone may be valid YAML.
    let alone = yaml::parse(&lines.join("\n"), line).ok();
    if let Some(NodeKind::Map(mut entries)) = alone.map(|node| node.kind)
        && entries.len() == 1
    {
        return entries.pop();
    }
    let parts = [value].into_iter().chain(lines[1..].iter().copied());
    let text = parts.map(str::trim_end).collect::<Vec<_>>().join("\n");
    let text = text.trim().trim_matches(['"', '\'']).to_owned();
    let value_position = Position { line, column: u32::try_from(key.chars().count()).unwrap_or(0) + 3 };
    Some(NodeEntry { key, position, value: Node::new(value_position, NodeKind::Quoted(text)) })
}
