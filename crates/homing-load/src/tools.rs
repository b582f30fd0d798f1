//! Translates the tool names of all dialects to rules. A restriction that cannot be understood stays closed.

use std::borrow::Cow;

use homing_core::{
    registry::distance,
    rule::Rule,
    tool_names::{self, canonical},
};

use crate::{
    diagnostics::Diagnostics,
    dialect::Dialect,
    node::{Node, NodeKind, Position},
};

/// The known tool names: the canonical ones, a dialect's groups, and the host's own tools.
#[derive(Clone, Copy)]
pub(crate) struct Vocabulary<'a> {
    pub(crate) dialect: &'a Dialect,
    pub(crate) extra: &'a [String],
    /// MCP servers that the same file defines: some dialects allow a whole server by its bare name.
    pub(crate) servers: &'a [String],
}

/// Prefixes of VS Code's own tools (`search/codebase`); any other prefix is an MCP server.
const EDITOR: &[&str] = &[
    "vscode",
    "execute",
    "read",
    "edit",
    "search",
    "web",
    "agent",
    "todo",
    "browser",
    "runcommands",
    "runtasks",
    "runnotebooks",
];

/// The meaning of one entry of a tool list.
#[derive(Debug, PartialEq)]
pub(crate) enum Meaning {
    Everything,
    Rules(Vec<Rule>),
    /// A tool of another program that has no equivalent.
    NoCounterpart,
    Unknown,
}

impl Vocabulary<'_> {
    /// The meaning of one entry.
    pub(crate) fn meaning(&self, entry: &str) -> Meaning {
        // Most entries are a single word.
        let is_word = entry.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let entry = if is_word { entry } else { unquoted(entry.trim(), &['`', '"', '\'']).trim() };
        if ["*", "all", "all tools", "inherit"].iter().any(|word| entry.eq_ignore_ascii_case(word)) {
            return Meaning::Everything;
        }
        let (name, pattern) = match entry.split_once('(').filter(|_| !is_word) {
            None => (entry, None),
            Some((name, rest)) if rest.ends_with(')') => (name.trim(), Some(&rest[..rest.len() - 1])),
            Some(_) => return Meaning::Unknown,
        };
        let pattern = pattern.map(str::trim).filter(|pattern| !matches!(*pattern, "" | "*" | "**"));
        let rules = self.rules(name, pattern);
        if rules.is_empty() {
            return if tool_names::lacks_counterpart(name) { Meaning::NoCounterpart } else { Meaning::Unknown };
        }
        Meaning::Rules(rules)
    }

    /// The rules for the tools that a name without a pattern stands for.
    fn rules(&self, name: &str, pattern: Option<&str>) -> Vec<Rule> {
        let rule = |tool: String| Rule { tool, pattern: pattern.map(str::to_owned) };
        // Of groups and prefixes the case does not matter, and most files have neither.
        let is_plain = self.dialect.groups.is_empty() && !name.contains('/');
        let lower = if is_plain { Cow::Borrowed(name) } else { Cow::Owned(name.to_lowercase()) };
        if let Some((_, tools)) = self.dialect.groups.iter().find(|(group, _)| *group == lower) {
            return tools.iter().map(|tool| rule((*tool).to_owned())).collect();
        }
        if self.extra.iter().any(|tool| tool == name) {
            return vec![rule(name.to_owned())];
        }
        if let Some((space, rest)) = lower.split_once('/').filter(|(space, _)| EDITOR.contains(space)) {
            return match rest {
                "*" => self.rules(space, pattern),
                _ => canonical(name).map(|tool| rule(tool.to_owned())).into_iter().collect(),
            };
        }
        let server = || self.servers.iter().find(|server| *server == name).map(|server| format!("mcp__{server}"));
        let tool = canonical(name).map(str::to_owned).or_else(server).or_else(|| mcp(name));
        tool.map_or_else(Vec::new, |tool| vec![rule(tool)])
    }

    /// The tool whose name is most similar to an unknown name.
    pub(crate) fn near(&self, name: &str) -> Option<&'static str> {
        let name = name.split('(').next().unwrap_or_default().trim().to_lowercase();
        let near = |tool: &&str| distance(&name, tool) <= if tool.len() > 4 { 2 } else { 1 };
        tool_names::all().find(near)
    }
}

/// Translates the various spellings of MCP tools to `mcp__server__tool`.
fn mcp(name: &str) -> Option<String> {
    let name = name.strip_prefix("mcp:").unwrap_or(name);
    // Kiro writes `@server` and `@server/tool`; in npm's names (`@scope/server/tool`) the sign is part of the server's name.
    let name = match name.strip_prefix('@') {
        Some(server) if !server.contains('/') && !server.is_empty() => return mcp(&format!("mcp__{server}")),
        Some(tool) if tool.matches('/').count() == 1 => tool,
        Some(_) | None => name,
    };
    let allowed =
        |character: char| character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '*' | '@' | ':');
    if !name.split('/').all(|part| !part.is_empty() && part.chars().all(allowed)) {
        return None;
    }
    if name.starts_with("mcp__") {
        return (name.len() > 5).then(|| name.to_owned());
    }
    if let Some(rest) = name.strip_prefix("mcp_") {
        return Some(match rest.split_once('_') {
            None => format!("mcp__{rest}"),
            Some((server, tool)) => format!("mcp__{server}__{tool}"),
        });
    }
    if let Some((server, tool)) = name.rsplit_once('/') {
        let server = server.rsplit('/').next().unwrap_or(server);
        return Some(format!("mcp__{server}__{tool}"));
    }
    name.strip_suffix("_*").map(|server| format!("mcp__{server}__*"))
}

/// An entry of a list and its position.
type ToolItem<'a> = (Cow<'a, str>, Position);

/// The entries of a list or a comma-separated text. Other values are reported and ignored.
pub(crate) fn items<'a>(node: &'a Node<'_>, field: &str, diagnostics: &mut Diagnostics) -> Vec<ToolItem<'a>> {
    match &node.kind {
        NodeKind::Plain(text) => words(text, node.position),
        // The text begins after the quote.
        NodeKind::Quoted(text) => words(text, Position { column: node.position.column + 1, ..node.position }),
        NodeKind::List(list) => list.iter().flat_map(|node| item(node, field, diagnostics)).collect(),
        NodeKind::Map(_) => item(node, field, diagnostics),
    }
}

/// The entries of a list that denies. It must not lose a name because of its form, so the keys of maps and the entries of
/// nested lists are included.
pub(crate) fn named<'a>(node: &'a Node<'_>, field: &str, diagnostics: &mut Diagnostics) -> Vec<ToolItem<'a>> {
    match &node.kind {
        NodeKind::Plain(_) | NodeKind::Quoted(_) => items(node, field, diagnostics),
        NodeKind::List(list) => list.iter().flat_map(|node| named(node, field, diagnostics)).collect(),
        NodeKind::Map(entries) => {
            let message = format!("{} inside `{field}`: all of its keys are denied", node.noun());
            diagnostics.warn(node.position, field, message, "write the names in one flat list");
            entries.iter().map(|entry| (Cow::Borrowed(&*entry.key), entry.position)).collect()
        }
    }
}

fn item<'a>(node: &'a Node<'_>, field: &str, diagnostics: &mut Diagnostics) -> Vec<ToolItem<'a>> {
    match node.text() {
        Some(text) => pieces(text, b',').into_iter().map(|piece| (Cow::Borrowed(piece), node.position)).collect(),
        None => {
            let message = format!("{} inside `{field}` was ignored: each entry must be one name", node.noun());
            diagnostics.warn(node.position, field, message, "write the names in one flat list");
            Vec::new()
        }
    }
}

/// Splits a text at commas or lines; if there are none, at spaces, unless the whole text is one name. The names in a single line
/// have positions of their own.
fn words(text: &str, position: Position) -> Vec<ToolItem<'_>> {
    let content = text.trim().trim_start_matches('[').trim_end_matches(']');
    if text.contains('\n') {
        let lines = content.lines().map(unlisted).collect::<Vec<_>>().join(",");
        return names(&lines).into_iter().map(|name| (Cow::Owned(name.to_owned()), position)).collect();
    }
    let (mut end, mut column) = (0, position.column);
    let place = |name| {
        let start = offset(name, text);
        let found = Position { column: column + width(&text[end..start]), ..position };
        (end, column) = (start + name.len(), found.column + width(name));
        (Cow::Borrowed(name), found)
    };
    names(unlisted(content)).into_iter().map(place).collect()
}

/// A line without the mark of an entry.
fn unlisted(line: &str) -> &str {
    line.trim().trim_start_matches("- ")
}

/// The number of bytes in `text` before a part of it.
fn offset(part: &str, text: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

fn width(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(0)
}

/// Splits at commas; if there are none, at spaces, unless the whole text is one name.
fn names(text: &str) -> Vec<&str> {
    let names = pieces(text, b',');
    match *names.as_slice() {
        [one] if one.contains(' ') && canonical(one).is_none() && !tool_names::lacks_counterpart(one) => {
            pieces(one, b' ')
        }
        _ => names,
    }
}

/// Splits at `separator` outside of parentheses and drops empty pieces.
fn pieces<'a>(text: &'a str, separator: u8) -> Vec<&'a str> {
    let (mut pieces, mut start, mut depth) = (Vec::with_capacity(8), 0, 0_i32);
    let mut add = |piece: &'a str| {
        let piece = unquoted(piece.trim(), &['"', '\'']);
        if !piece.is_empty() {
            pieces.push(piece);
        }
    };
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ if byte == separator && depth <= 0 => {
                add(&text[start..at]);
                start = at + 1;
            }
            _ => (),
        }
    }
    add(&text[start..]);
    pieces
}

/// Removes quotes, which few names have, at both ends.
pub(crate) fn unquoted<'a>(text: &'a str, quotes: &[char]) -> &'a str {
    if text.starts_with(quotes) || text.ends_with(quotes) { text.trim_matches(quotes) } else { text }
}

/// Reads a list that allows. `None` means all tools.
pub(crate) fn allowed(
    words: Vec<ToolItem<'_>>,
    names: Vocabulary<'_>,
    field: &str,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Rule>> {
    let (mut rules, mut everything) = (Vec::with_capacity(words.len()), false);
    for (word, position) in words {
        match names.meaning(&word) {
            Meaning::Everything => everything = true,
            Meaning::Rules(found) => add(&mut rules, found),
            Meaning::NoCounterpart => {
                let message = format!("`{word}` has no equivalent here: it grants nothing");
                diagnostics.info(position, field, message, "");
            }
            Meaning::Unknown => {
                let message = format!("unknown tool `{word}`: ignored");
                diagnostics.warn(position, field, message, &suggestion(&word, names));
            }
        }
    }
    (!everything).then_some(rules)
}

/// Reads a list that denies. An unknown name is denied as written, and so is the tool that it was probably meant to be. A
/// name without an equivalent denies nothing else: another tool may do the same and more, but the author did not deny it.
pub(crate) fn denied(
    words: Vec<ToolItem<'_>>,
    names: Vocabulary<'_>,
    field: &str,
    diagnostics: &mut Diagnostics,
) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (word, position) in words {
        match names.meaning(&word) {
            Meaning::Everything => add(&mut rules, vec![Rule::tool("*")]),
            Meaning::Rules(found) => add(&mut rules, found),
            Meaning::NoCounterpart => {
                let message = format!("`{word}` has no equivalent here: denying it has no effect");
                diagnostics.info(position, field, message, "");
            }
            Meaning::Unknown => {
                diagnostics.warn(
                    position,
                    field,
                    format!("unknown tool `{word}` in a deny list"),
                    &suggestion(&word, names),
                );
                let bare = word.split('(').next().unwrap_or_default().trim();
                add(&mut rules, names.near(bare).or(canonical(bare)).map(Rule::tool).into_iter().collect());
                add(&mut rules, vec![Rule::tool(bare)]);
            }
        }
    }
    rules
}

fn suggestion(word: &str, names: Vocabulary<'_>) -> String {
    match names.near(word) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known tools: {}, mcp__SERVER__TOOL", tool_names::all().collect::<Vec<_>>().join(", ")),
    }
}

fn add(rules: &mut Vec<Rule>, more: Vec<Rule>) {
    for rule in more {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
}
