//! One file's text to definitions and remarks: which syntax, which dialect, one agent or several, or none at all.
//! It is a pure function; `discover` does the reading.

use std::path::Path;

use homing_core::{
    definition::{AgentDefinition, Scope, Source},
    diagnostic::Diagnostic,
};

use crate::{
    build::{Built, PartialDefinition, build},
    diagnostics::Diagnostics,
    dialect::{self, Dialect},
    fields::{self, Field},
    file::{self, MAX_FRONT_MATTER},
    front_matter, json,
    node::{Node, NodeEntry, NodeKind, Position},
    repair, toml_nodes,
    tools::Vocabulary,
    yaml,
};

/// How files are read.
#[derive(Clone, Debug, Default)]
pub struct ParseOptions {
    /// Whether what could be repaired is refused instead.
    pub strict: bool,
    /// Tools of the host's beyond the canonical ones.
    pub tools: Vec<String>,
}

/// Where a file was found, which decides what it may be.
#[derive(Clone, Copy, Debug)]
pub enum ParsedFile {
    /// In a folder of agents of this dialect.
    Among(&'static Dialect),
    /// Somebody named it.
    Named,
    /// Somewhere below a folder that is being checked: it may be anything.
    Anywhere,
    /// A skill that is to be an agent.
    SkillAsAgent,
}

/// What a file gave.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// What it is.
    pub what: FileKind,
    /// Its agents.
    pub definitions: Vec<AgentDefinition>,
    /// What there is to say about it.
    pub diagnostics: Vec<Diagnostic>,
}

/// What a file is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileKind {
    /// One or more agents, or something that should have been one.
    #[default]
    Agent,
    /// A skill.
    Skill,
    /// Something else, for this reason.
    Other(&'static str),
}

/// Reads the agents in `bytes`, the content of the file at `path`.
pub fn parse(path: &Path, bytes: Vec<u8>, found: ParsedFile, scope: Scope, options: &ParseOptions) -> Parsed {
    let mut remarks = Diagnostics::default();
    let (what, definitions) = match file::decode(bytes, &mut remarks) {
        Some(text) => read(&text, &Context { path, found, scope, options }, &mut remarks),
        None => (undecodable(found), Vec::new()),
    };
    finish(what, definitions, remarks, path, options)
}

fn finish(
    what: FileKind,
    mut definitions: Vec<AgentDefinition>,
    mut remarks: Diagnostics,
    path: &Path,
    options: &ParseOptions,
) -> Parsed {
    if let FileKind::Other(_) = what {
        return Parsed { what, ..Parsed::default() };
    }
    if options.strict {
        remarks.refuse_repairs();
    }
    if options.strict && remarks.has_error() {
        definitions.clear();
    }
    Parsed { what, definitions, diagnostics: remarks.into_diagnostics(Some(path)) }
}

/// Binary files lie around everywhere; in a folder of agents they are a mistake.
fn undecodable(found: ParsedFile) -> FileKind {
    match found {
        ParsedFile::Among(_) | ParsedFile::Named | ParsedFile::SkillAsAgent => FileKind::Agent,
        ParsedFile::Anywhere => FileKind::Other("not text"),
    }
}

/// What is known of a file before it is read.
struct Context<'a> {
    path: &'a Path,
    found: ParsedFile,
    scope: Scope,
    options: &'a ParseOptions,
}

type Gave = (FileKind, Vec<AgentDefinition>);

fn read(text: &str, context: &Context<'_>, remarks: &mut Diagnostics) -> Gave {
    match context.path.extension().and_then(|it| it.to_str()).unwrap_or_default() {
        "json" | "jsonc" => document(json::parse(text).map_err(|it| (it.spot, it.message)), context, remarks),
        "yaml" | "yml" | "roomodes" => document(yaml_or_json(text), context, remarks),
        "toml" => document(toml_nodes::parse(text).map_err(|it| (it.spot, it.message)), context, remarks),
        _ if context.path.ends_with(".roomodes") => document(yaml_or_json(text), context, remarks),
        _ => markdown(text, context, remarks),
    }
}

fn yaml_or_json(text: &str) -> Result<Node, (Position, String)> {
    if text.len() > MAX_FRONT_MATTER * 4 {
        return Err((Position { line: 1, column: 1 }, "too large for a YAML file of agents".into()));
    }
    match text.trim_start().starts_with('{') {
        true => json::parse(text).map_err(|it| (it.spot, it.message)),
        false => yaml::parse(text, 1).map_err(|it| (it.spot, it.message)),
    }
}

/// A file that is one value: JSON, YAML, TOML.
fn document(node: Result<Node, (Position, String)>, context: &Context<'_>, remarks: &mut Diagnostics) -> Gave {
    let placed = !matches!(context.found, ParsedFile::Anywhere) || dialect::by_path(context.path).is_some();
    let node = match node {
        Ok(node) => node,
        Err(_) if !placed => return (FileKind::Other("not a file of agents"), Vec::new()),
        Err((spot, message)) => {
            remarks.error(spot, "", format!("cannot be read: {message}"), "correct the syntax");
            return (FileKind::Agent, Vec::new());
        }
    };
    if is_configuration(context) && node.get("agent").is_none() {
        return (FileKind::Other("a configuration without agents"), Vec::new());
    }
    let mut parts = members(&node);
    if is_configuration(context) {
        // Without words of its own an entry only adjusts an agent that is built into that program.
        parts.retain(|(_, it)| it.get("description").is_some() || it.get("prompt").is_some());
    }
    if !placed && !parts.iter().any(|(_, it)| has_prompt_and_name(it)) {
        return (FileKind::Other("not a file of agents"), Vec::new());
    }
    let fallback = || if is_toml(context.path) { dialect::named("codex") } else { dialect::named("json") };
    let dialect = dialect_of(context, parts.first().map_or(&node, |(_, it)| it));
    let dialect = dialect.or_else(fallback).unwrap_or(dialect::own());
    let stem = (parts.len() == 1).then(|| stem(context.path)).flatten();
    let definitions =
        parts.iter().filter_map(|(key, it)| one(*key, it, None, stem, dialect, context, remarks)).collect();
    (FileKind::Agent, definitions)
}

/// OpenCode and Kilo keep agents among their other settings, or not.
fn is_configuration(context: &Context<'_>) -> bool {
    let name = context.path.file_stem().and_then(|it| it.to_str()).unwrap_or_default();
    matches!(name, "opencode" | "kilo")
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "toml")
}

fn has_prompt_and_name(node: &Node) -> bool {
    let has = |keys: &[&str]| keys.iter().any(|key| node.get(key).is_some());
    has(&["prompt", "systemPrompt", "system_prompt", "developer_instructions", "roleDefinition", "instructions"])
        && has(&["name", "description", "title", "slug"])
}

/// The agents in a document: itself, the members of a list, or of a map of name to agent.
fn members(node: &Node) -> Vec<(Option<&str>, &Node)> {
    if let NodeKind::List(items) = &node.kind {
        return items.iter().map(|it| (None, it)).collect();
    }
    if let Some(Node { kind: NodeKind::List(modes), .. }) = node.get("customModes") {
        return modes.iter().map(|it| (None, it)).collect();
    }
    let described = ["name", "description", "prompt", "systemPrompt", "title", "slug"]
        .iter()
        .any(|it| node.get(it).is_some_and(|it| it.text().is_some()));
    if described {
        return vec![(None, node)];
    }
    let map = node.get("agent").or_else(|| node.get("agents")).unwrap_or(node);
    let entries = map.entries().unwrap_or_default();
    let nested = entries.iter().all(|it| it.value.entries().is_some());
    match nested && !entries.is_empty() {
        true => entries.iter().map(|it| (Some(it.key.as_str()), &it.value)).collect(),
        false if map.spot != node.spot => Vec::new(),
        false => vec![(None, node)],
    }
}

fn markdown(text: &str, context: &Context<'_>, remarks: &mut Diagnostics) -> Gave {
    if is_skill(context.path) && !matches!(context.found, ParsedFile::SkillAsAgent) {
        return (FileKind::Skill, Vec::new());
    }
    let split = front_matter::split(text, remarks);
    let Some((yaml, line)) = split.front else { return without_front_matter(text, context, remarks) };
    let start = Position { line, column: 1 };
    if yaml.len() > MAX_FRONT_MATTER {
        let message = format!("the front matter has {} bytes; it may have {MAX_FRONT_MATTER}", yaml.len());
        remarks.error(start, "", message, "move text into the body");
        return (FileKind::Agent, Vec::new());
    }
    let node = match repair::read(yaml, line, remarks) {
        Ok(node) => node,
        Err(_) if !is_placed(context) => return (FileKind::Other("front matter of something else"), Vec::new()),
        Err(error) => {
            let message = format!("the front matter cannot be read: {}", error.message);
            remarks.error(error.spot, "", message, "correct the YAML");
            return (FileKind::Agent, Vec::new());
        }
    };
    if let Some(reason) = not_an_agent(&node, context) {
        return (FileKind::Other(reason), Vec::new());
    }
    let body = (split.body, split.body_line);
    let dialect = dialect_of(context, &node).unwrap_or(dialect::interchange());
    let definitions = match &node.kind {
        NodeKind::List(items) => {
            items.iter().filter_map(|it| one(None, it, Some(body), None, dialect, context, remarks)).collect()
        }
        NodeKind::Map(_) => {
            one(None, &node, Some(body), stem(context.path), dialect, context, remarks).into_iter().collect()
        }
        NodeKind::Plain(_) | NodeKind::Quoted(_) => {
            remarks.error(start, "", "the front matter has no keys", "write `name: …` and `description: …`");
            Vec::new()
        }
    };
    (FileKind::Agent, definitions)
}

/// A file that somebody named should have been an agent; everything else without front matter is documentation.
fn without_front_matter(text: &str, context: &Context<'_>, remarks: &mut Diagnostics) -> Gave {
    match context.found {
        ParsedFile::Named | ParsedFile::SkillAsAgent if !is_documentation(context.path) => {
            let start = Position { line: 1, column: 1 };
            let message = if text.trim().is_empty() { "the file is empty" } else { "the file has no front matter" };
            remarks.error(start, "", message, "begin it with `---`, `name: …`, `description: …`, `---`");
            (FileKind::Agent, Vec::new())
        }
        ParsedFile::Named | ParsedFile::SkillAsAgent | ParsedFile::Among(_) | ParsedFile::Anywhere => {
            (FileKind::Other("no front matter"), Vec::new())
        }
    }
}

/// `SKILL.md`, or a markdown file right in a folder of skills.
pub(crate) fn is_skill(path: &Path) -> bool {
    path.file_name().is_some_and(|it| it.eq_ignore_ascii_case("SKILL.md"))
}

fn is_documentation(path: &Path) -> bool {
    let name = path.file_stem().and_then(|it| it.to_str()).unwrap_or_default();
    ["README", "AGENTS", "CLAUDE", "GEMINI", "CHANGELOG", "CONTRIBUTING", "LICENSE"]
        .iter()
        .any(|it| name.eq_ignore_ascii_case(it))
}

/// Front matter is used for many things; outside folders of agents it takes some evidence.
fn not_an_agent(node: &Node, context: &Context<'_>) -> Option<&'static str> {
    let has = |keys: &[&str]| keys.iter().any(|key| node.get(key).is_some());
    let known = has(&["name", "description"]);
    if is_documentation(context.path) && !(has(&["name"]) && has(&["description"])) {
        return Some("documentation");
    }
    let evidence = match context.found {
        ParsedFile::Named | ParsedFile::SkillAsAgent => true,
        ParsedFile::Among(_) => known || has(&["tools", "model", "mode", "permission", "disable"]),
        ParsedFile::Anywhere if is_placed(context) => known || has(&["tools", "model", "mode"]),
        ParsedFile::Anywhere => has(&["name"]) && has(&["description"]) && !is_command(context.path),
    };
    (!evidence).then_some("front matter of something else")
}

/// Slash commands look much like agents.
fn is_command(path: &Path) -> bool {
    path.iter().any(|it| it == "commands" || it == "prompts" || it == "rules")
}

/// Whether a file lies where agents lie, whatever is in it.
fn is_placed(context: &Context<'_>) -> bool {
    let among = |path: &Path| {
        // Further up, a folder of that name says nothing about the file.
        let folders = path.ancestors().skip(1).take(3).filter_map(Path::file_name);
        folders
            .into_iter()
            .any(|it| ["agents", "agent", "subagents", "droids", "chatmodes"].iter().any(|name| it == *name))
    };
    match context.found {
        ParsedFile::Named | ParsedFile::SkillAsAgent | ParsedFile::Among(_) => true,
        ParsedFile::Anywhere => {
            dialect::by_path(context.path).is_some() || (among(context.path) && !is_command(context.path))
        }
    }
}

fn dialect_of(context: &Context<'_>, node: &Node) -> Option<&'static Dialect> {
    match context.found {
        // instructor-php shares Claude Code's folder, so only the content can tell.
        ParsedFile::Among(dialect) if dialect.name == "claude-code" => {
            dialect::by_content(node).filter(|it| it.name == "instructor").or(Some(dialect))
        }
        ParsedFile::Among(dialect) => Some(dialect),
        ParsedFile::Named | ParsedFile::SkillAsAgent | ParsedFile::Anywhere => {
            let by_path = dialect::by_path(context.path);
            let claude = by_path.is_none_or(|it| it.name == "claude-code");
            dialect::by_content(node).filter(|it| by_path.is_none() || (claude && it.name == "instructor")).or(by_path)
        }
    }
}

/// The file's name without `.md`, `.agent.md` and the like.
fn stem(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    Some([".agent", ".chatmode"].iter().find_map(|it| name.strip_suffix(it)).unwrap_or(name))
        .filter(|it| !it.is_empty())
}

fn one<'a>(
    key: Option<&'a str>,
    node: &'a Node,
    body: Option<(&'a str, u32)>,
    stem: Option<&'a str>,
    dialect: &'static Dialect,
    context: &'a Context<'_>,
    remarks: &mut Diagnostics,
) -> Option<AgentDefinition> {
    let Some(entries) = node.entries() else {
        remarks.error(node.spot, "", format!("{} is no agent", node.noun()), "an agent is a map of keys");
        return None;
    };
    let entries: &[NodeEntry] = entries;
    let source = Source { kind: context.scope, path: Some(context.path.to_owned()), dialect: dialect.name.to_owned() };
    let servers = servers(entries);
    let names = Vocabulary { dialect, extra: &context.options.tools, servers: &servers };
    match build(&PartialDefinition { key, entries, spot: node.spot, body, stem, names, source }, remarks) {
        Built::Definition(definition) => Some(*definition),
        Built::Disabled | Built::Refused => None,
    }
}

/// The names of the MCP servers that a file brings along.
fn servers(entries: &[NodeEntry]) -> Vec<String> {
    let maps = entries.iter().filter(|it| fields::lookup(&fields::fold(&it.key)) == Some(Field::McpServers));
    maps.filter_map(|it| it.value.entries()).flatten().map(|it| it.key.clone()).collect()
}

/// Reads agents from JSON that is no file: a command line, a configuration.
pub fn parse_json(text: &str, scope: Scope, options: &ParseOptions) -> Parsed {
    let mut remarks = Diagnostics::default();
    let node = match json::parse(text) {
        Ok(node) => node,
        Err(error) => {
            remarks.error(error.spot, "", format!("not JSON: {}", error.message), "");
            return Parsed { diagnostics: remarks.into_diagnostics(None), ..Parsed::default() };
        }
    };
    let context = Context { path: Path::new(""), found: ParsedFile::Named, scope, options };
    let dialect = dialect::named("json").unwrap_or(dialect::own());
    let each = members(&node);
    let mut definitions: Vec<AgentDefinition> =
        each.into_iter().filter_map(|(key, it)| one(key, it, None, None, dialect, &context, &mut remarks)).collect();
    for definition in &mut definitions {
        definition.source.path = None;
    }
    if options.strict {
        remarks.refuse_repairs();
    }
    if options.strict && remarks.has_error() {
        definitions.clear();
    }
    Parsed { what: FileKind::Agent, definitions, diagnostics: remarks.into_diagnostics(None) }
}
