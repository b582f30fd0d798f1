//! Tool names of every ecosystem to rules of ours. A restriction that cannot be understood stays closed.

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

/// The names that mean something: our table, a dialect's groups, and the host's own tools.
#[derive(Clone, Copy)]
pub(crate) struct Vocabulary<'a> {
    pub(crate) dialect: &'a Dialect,
    pub(crate) extra: &'a [String],
    /// MCP servers that the same file names: some dialects allow a whole server by its bare name.
    pub(crate) servers: &'a [String],
}

/// What stands before the slash in the names of VS Code's own tools; anything else there is an MCP server.
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

/// What an entry of a tool list turned out to be.
#[derive(Debug, PartialEq)]
pub(crate) enum Meaning {
    Everything,
    Rules(Vec<Rule>),
    /// Another program's tool that none of ours stands for.
    NoCounterpart,
    Unknown,
}

impl Vocabulary<'_> {
    /// What one entry means.
    pub(crate) fn meaning(&self, entry: &str) -> Meaning {
        let entry = entry.trim().trim_matches(['`', '"', '\'']).trim();
        if ["*", "all", "all tools", "inherit"].iter().any(|it| entry.eq_ignore_ascii_case(it)) {
            return Meaning::Everything;
        }
        let (name, pattern) = match entry.split_once('(') {
            None => (entry, None),
            Some((name, rest)) if rest.ends_with(')') => (name.trim(), Some(&rest[..rest.len() - 1])),
            Some(_) => return Meaning::Unknown,
        };
        let tools = self.tools(name);
        if tools.is_empty() {
            return if tool_names::lacks_counterpart(name) { Meaning::NoCounterpart } else { Meaning::Unknown };
        }
        let pattern = pattern.map(str::trim).filter(|it| !matches!(*it, "" | "*" | "**"));
        let rule = |tool: String| Rule { tool, pattern: pattern.map(str::to_owned) };
        Meaning::Rules(tools.into_iter().map(rule).collect())
    }

    /// The tools that a name without a pattern stands for.
    fn tools(&self, name: &str) -> Vec<String> {
        let lower = name.to_lowercase();
        if let Some((_, tools)) = self.dialect.groups.iter().find(|(group, _)| *group == lower) {
            return tools.iter().map(|it| (*it).to_owned()).collect();
        }
        if self.extra.iter().any(|it| it == name) {
            return vec![name.to_owned()];
        }
        if let Some((space, rest)) = lower.split_once('/').filter(|(space, _)| EDITOR.contains(space)) {
            return match rest {
                "*" => self.tools(space),
                _ => canonical(name).map(str::to_owned).into_iter().collect(),
            };
        }
        let server = || self.servers.iter().find(|it| *it == name).map(|it| format!("mcp__{it}"));
        canonical(name).map(str::to_owned).or_else(server).or_else(|| mcp(name)).into_iter().collect()
    }

    /// The tool that an unknown name is probably a misspelling of.
    pub(crate) fn near(&self, name: &str) -> Option<&'static str> {
        let name = name.split('(').next().unwrap_or_default().trim().to_lowercase();
        let near = |it: &&str| distance(&name, it) <= if it.len() > 4 { 2 } else { 1 };
        tool_names::all().find(near)
    }
}

/// The names of MCP tools in every spelling become `mcp__server__tool`.
fn mcp(name: &str) -> Option<String> {
    let name = name.strip_prefix("mcp:").unwrap_or(name);
    let word = |it: &str| {
        !it.is_empty() && it.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '*' | '@' | ':'))
    };
    if !name.split('/').all(word) {
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

/// An entry of a list and where it stands.
type ToolItem = (String, Position);

/// The entries of a comma string or a list; what is neither text nor a list is reported and left out.
pub(crate) fn items(node: &Node, field: &str, remarks: &mut Diagnostics) -> Vec<ToolItem> {
    match &node.kind {
        NodeKind::Plain(text) => placed(words(text), text, node.spot),
        // The quote stands before the text.
        NodeKind::Quoted(text) => placed(words(text), text, Position { column: node.spot.column + 1, ..node.spot }),
        NodeKind::List(list) => list.iter().flat_map(|it| item(it, field, remarks)).collect(),
        NodeKind::Map(_) => item(node, field, remarks),
    }
}

/// The same for a list that forbids, which must not lose a name because of its form: keys of maps and entries of lists
/// within lists count, too.
pub(crate) fn named(node: &Node, field: &str, remarks: &mut Diagnostics) -> Vec<ToolItem> {
    match &node.kind {
        NodeKind::Plain(_) | NodeKind::Quoted(_) => items(node, field, remarks),
        NodeKind::List(list) => list.iter().flat_map(|it| named(it, field, remarks)).collect(),
        NodeKind::Map(entries) => {
            let message = format!("{} inside `{field}`: every key of it is forbidden", node.noun());
            remarks.warn(node.spot, field, message, "write the names in one flat list");
            entries.iter().map(|it| (it.key.clone(), it.spot)).collect()
        }
    }
}

/// Where each piece of a one-line text stands.
fn placed(pieces: Vec<String>, text: &str, spot: Position) -> Vec<ToolItem> {
    let mut from = 0;
    let mut place = |piece: &str| {
        let at = text[from..].find(piece).filter(|_| !text.contains('\n'))? + from;
        from = at + piece.len();
        let column = spot.column + u32::try_from(text[..at].chars().count()).ok()?;
        Some(Position { column, ..spot })
    };
    pieces
        .into_iter()
        .map(|it| {
            let at = place(&it).unwrap_or(spot);
            (it, at)
        })
        .collect()
}

fn item(node: &Node, field: &str, remarks: &mut Diagnostics) -> Vec<ToolItem> {
    match node.text() {
        Some(text) => pieces(text, ',').into_iter().map(|it| (it, node.spot)).collect(),
        None => {
            let message = format!("{} inside `{field}` was left out: each entry is one name", node.noun());
            remarks.warn(node.spot, field, message, "write the names in one flat list");
            Vec::new()
        }
    }
}

/// Splits at commas or lines; where there are none, at spaces, unless the whole is one name.
pub(crate) fn words(text: &str) -> Vec<String> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let listed = text.lines().map(|it| it.trim().trim_start_matches("- ")).collect::<Vec<_>>().join(",");
    let parts = pieces(&listed, ',');
    match parts.as_slice() {
        [one] if one.contains(' ') && canonical(one).is_none() && !tool_names::lacks_counterpart(one) => {
            pieces(one, ' ')
        }
        _ => parts,
    }
}

/// Splits at `separator` outside parentheses and drops what is empty.
fn pieces(text: &str, separator: char) -> Vec<String> {
    let (mut depth, mut out) = (0_i32, vec![String::new()]);
    for it in text.chars() {
        match it {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => (),
        }
        if it == separator && depth <= 0 {
            out.push(String::new());
        } else if let Some(last) = out.last_mut() {
            last.push(it);
        }
    }
    out.into_iter().map(|it| it.trim().trim_matches(['"', '\'']).to_owned()).filter(|it| !it.is_empty()).collect()
}

/// Reads a list that allows. `None` is every tool.
pub(crate) fn allowed(
    words: Vec<ToolItem>,
    names: Vocabulary<'_>,
    field: &str,
    remarks: &mut Diagnostics,
) -> Option<Vec<Rule>> {
    let (mut rules, mut everything) = (Vec::new(), false);
    for (word, spot) in words {
        match names.meaning(&word) {
            Meaning::Everything => everything = true,
            Meaning::Rules(found) => add(&mut rules, found),
            Meaning::NoCounterpart => {
                let message = format!("`{word}` has no counterpart here; it grants nothing");
                remarks.info(spot, field, message, "");
            }
            Meaning::Unknown => {
                let message = format!("there is no tool `{word}`; the agent does without it");
                remarks.warn(spot, field, message, &suggestion(&word, names));
            }
        }
    }
    (!everything).then_some(rules)
}

/// Reads a list that forbids. An unknown name is forbidden as it stands, and so is what it probably meant. A name without a
/// counterpart forbids itself alone: another tool may do the same and more, but the author did not forbid that one.
pub(crate) fn denied(words: Vec<ToolItem>, names: Vocabulary<'_>, field: &str, remarks: &mut Diagnostics) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (word, spot) in words {
        match names.meaning(&word) {
            Meaning::Everything => add(&mut rules, vec![Rule::tool("*")]),
            Meaning::Rules(found) => add(&mut rules, found),
            Meaning::NoCounterpart => {
                let message = format!("`{word}` has no counterpart here; forbidding it takes nothing away");
                remarks.info(spot, field, message, "");
            }
            Meaning::Unknown => {
                remarks.warn(spot, field, format!("there is no tool `{word}` to forbid"), &suggestion(&word, names));
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
        None => format!("tools are: {}; and mcp__SERVER__TOOL", tool_names::all().collect::<Vec<_>>().join(", ")),
    }
}

fn add(rules: &mut Vec<Rule>, more: Vec<Rule>) {
    for rule in more {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
}
