//! Parses the text of one file into definitions and diagnostics: it decides syntax, dialect and number of agents.
//! It reads no files; `discover` does.

use std::path::Path;

use homing_core::{
    definition::{AgentDefinition, Scope, Source},
    diagnostic::Diagnostic,
};

use crate::{
    build::{PartialDefinition, build},
    diagnostics::Diagnostics,
    dialect::{self, Dialect, ToolMap},
    fields::{self, Field},
    file::{self, MAX_FRONT_MATTER},
    front_matter, json,
    node::{Node, NodeEntry, NodeKind, Position},
    opencode_defaults::OpenCodeDefaults,
    references::FileNotes,
    repair, toml_nodes,
    tools::Vocabulary,
    yaml,
};

/// The reason why a file such as `README.md` is not an agent; it needs no remark.
pub(crate) const DOCUMENTATION: &str = "documentation";

/// The name of a skill's file.
const SKILL: &str = "SKILL.md";

/// Options of the parser.
#[derive(Clone, Debug, Default)]
pub struct ParseOptions {
    /// Rejects files that would otherwise be repaired.
    pub strict: bool,
    /// Names of the host's own tools.
    pub tools: Vec<String>,
}

/// The place in which a file was found, which determines what it may contain.
#[derive(Clone, Copy, Debug)]
pub enum ParsedFile {
    /// A folder of agents of this dialect.
    Among(&'static Dialect),
    /// Named by the user.
    Named,
    /// Below a folder that is being checked: it may be any kind of file.
    Anywhere,
    /// A skill that is read as an agent.
    SkillAsAgent,
}

/// The result of parsing a file.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The kind of the file.
    pub what: FileKind,
    /// Its agents.
    pub definitions: Vec<AgentDefinition>,
    /// Problems with the file.
    pub diagnostics: Vec<Diagnostic>,
}

/// The kind of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileKind {
    /// One or more agents, or a file that fails to define one.
    #[default]
    Agent,
    /// A skill.
    Skill,
    /// Neither, for this reason.
    Other(&'static str),
}

/// Parses the agents in `bytes`, the content of the file at `path`.
pub fn parse(path: &Path, bytes: Vec<u8>, found: ParsedFile, scope: Scope, options: &ParseOptions) -> Parsed {
    parse_with(path, &bytes, found, scope, options, None)
}

/// The same with what the configuration of OpenCode or Kilo says of the agents.
pub(crate) fn parse_with(
    path: &Path,
    bytes: &[u8],
    found: ParsedFile,
    scope: Scope,
    options: &ParseOptions,
    defaults: Option<&OpenCodeDefaults>,
) -> Parsed {
    let mut diagnostics = Diagnostics::default();
    let text = file::decode(bytes, &mut diagnostics);
    let parts = match &text {
        Some(text) => {
            let name = file_name(path);
            read(text, &FileContext { path, name, found, scope, options, defaults }, &mut diagnostics)
        }
        None => (undecodable(path, found), Vec::new()),
    };
    finish(parts, diagnostics, Some(path), text.as_deref(), options)
}

/// Parses the content of a file for the names in it that refer to something else, and the lines of its fields.
pub(crate) fn notes(path: &Path, bytes: &[u8], found: ParsedFile, options: &ParseOptions) -> FileNotes {
    let mut diagnostics = Diagnostics::default();
    diagnostics.notes = Some(FileNotes::default());
    if let Some(text) = file::decode(bytes, &mut diagnostics) {
        let (scope, name) = (Scope::Project, file_name(path));
        read(&text, &FileContext { path, name, found, scope, options, defaults: None }, &mut diagnostics);
    }
    diagnostics.notes.unwrap_or_default()
}

fn finish(
    (what, mut definitions): ParsedParts,
    mut diagnostics: Diagnostics,
    path: Option<&Path>,
    text: Option<&str>,
    options: &ParseOptions,
) -> Parsed {
    if let FileKind::Other(_) = what {
        return Parsed { what, ..Parsed::default() };
    }
    if options.strict {
        diagnostics.refuse_repairs();
        if diagnostics.has_error() {
            definitions.clear();
        }
    }
    Parsed { what, definitions, diagnostics: diagnostics.into_diagnostics(path, text) }
}

/// The kind of a file that is not text: an error in a folder of agents, irrelevant anywhere else.
fn undecodable(path: &Path, found: ParsedFile) -> FileKind {
    match found {
        ParsedFile::Anywhere if dialect::by_path(path).is_some() => FileKind::Agent,
        ParsedFile::Among(_) | ParsedFile::Named | ParsedFile::SkillAsAgent => FileKind::Agent,
        ParsedFile::Anywhere => FileKind::Other("not text"),
    }
}

/// The facts about a file that are known before it is parsed.
struct FileContext<'a> {
    path: &'a Path,
    /// The name of the file; empty if it is not Unicode.
    name: &'a str,
    found: ParsedFile,
    scope: Scope,
    options: &'a ParseOptions,
    defaults: Option<&'a OpenCodeDefaults>,
}

type ParsedParts = (FileKind, Vec<AgentDefinition>);

fn read(text: &str, context: &FileContext<'_>, diagnostics: &mut Diagnostics) -> ParsedParts {
    match context.path.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "json" | "jsonc" => document(json_node(text), context, diagnostics),
        "yaml" | "yml" | "roomodes" => document(yaml_or_json(text), context, diagnostics),
        "toml" => {
            let node = toml_nodes::parse(text).map_err(|error| (error.position, error.message));
            document(node, context, diagnostics)
        }
        "" if context.path.ends_with(".roomodes") || context.path.ends_with(".kilocodemodes") => {
            document(yaml_or_json(text), context, diagnostics)
        }
        _ => markdown(text, context, diagnostics),
    }
}

fn json_node(text: &str) -> Result<Node<'static>, (Position, String)> {
    json::parse(text).map_err(|error| (error.position, error.message))
}

fn yaml_or_json(text: &str) -> Result<Node<'_>, (Position, String)> {
    if text.len() > MAX_FRONT_MATTER * 4 {
        return Err((Position { line: 1, column: 1 }, "too large for a YAML file of agents".into()));
    }
    if text.trim_start().starts_with('{') {
        return json_node(text);
    }
    yaml::parse(text, 1).map_err(|error| (error.position, error.message))
}

/// Reads a file that is one value: JSON, YAML or TOML.
fn document(
    node: Result<Node<'_>, (Position, String)>,
    context: &FileContext<'_>,
    diagnostics: &mut Diagnostics,
) -> ParsedParts {
    let placed = !matches!(context.found, ParsedFile::Anywhere) || dialect::by_path(context.path).is_some();
    let node = match node {
        Ok(node) => node,
        Err(_) if !placed => return (FileKind::Other("not an agent file"), Vec::new()),
        Err((position, message)) => {
            diagnostics.error(position, "", format!("cannot be read: {message}"), "correct the syntax");
            return (FileKind::Agent, Vec::new());
        }
    };
    if is_configuration(context) && node.get("agent").is_none() {
        return (FileKind::Other("a configuration without agents"), Vec::new());
    }
    let mut parts = members(&node);
    let own_defaults = is_configuration(context).then(|| OpenCodeDefaults::of(&node));
    let context = &FileContext { defaults: context.defaults.or(own_defaults.as_ref()), ..*context };
    if is_configuration(context) {
        // An entry without description and prompt only adjusts an agent that is built into that program.
        parts.retain(|(_, part)| part.get("description").is_some() || part.get("prompt").is_some());
    }
    if !placed && !parts.iter().any(|(_, part)| has_prompt_and_name(part)) {
        return (FileKind::Other("not an agent file"), Vec::new());
    }
    let fallback = || if is_toml(context.path) { dialect::named("codex") } else { dialect::named("json") };
    let dialect = dialect_of(context, parts.first().map_or(&node, |(_, part)| part));
    let dialect = dialect.or_else(fallback).unwrap_or(dialect::own());
    let stem = (parts.len() == 1).then(|| stem(context.name)).flatten();
    let definitions =
        parts.iter().filter_map(|(key, part)| one(*key, part, None, stem, dialect, context, diagnostics)).collect();
    (FileKind::Agent, definitions)
}

/// Returns true for the configuration files of OpenCode and Kilo, which may contain agents.
fn is_configuration(context: &FileContext<'_>) -> bool {
    let name = context.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    matches!(name, "opencode" | "kilo")
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

fn has_prompt_and_name(node: &Node<'_>) -> bool {
    let has = |keys: &[&str]| keys.iter().any(|key| node.get(key).is_some());
    has(&["prompt", "systemPrompt", "system_prompt", "developer_instructions", "roleDefinition", "instructions"])
        && has(&["name", "description", "title", "slug"])
}

/// The agents in a document: itself, the members of a list, or of a map of name to agent.
fn members<'a>(node: &'a Node<'a>) -> Vec<(Option<&'a str>, &'a Node<'a>)> {
    if let NodeKind::List(items) = &node.kind {
        return items.iter().map(|item| (None, item)).collect();
    }
    if let Some(Node { kind: NodeKind::List(modes), .. }) = node.get("customModes") {
        return modes.iter().map(|mode| (None, mode)).collect();
    }
    let described = ["name", "description", "prompt", "systemPrompt", "title", "slug"]
        .iter()
        .any(|key| node.get(key).and_then(Node::text).is_some());
    if described {
        return vec![(None, node)];
    }
    let map = node.get("agent").or_else(|| node.get("agents")).unwrap_or(node);
    let entries = map.entries().unwrap_or_default();
    let nested = !entries.is_empty() && entries.iter().all(|entry| entry.value.entries().is_some());
    if nested {
        entries.iter().map(|entry| (Some(entry.key.as_ref()), &entry.value)).collect()
    } else if map.position == node.position {
        vec![(None, node)]
    } else {
        Vec::new()
    }
}

fn markdown(text: &str, context: &FileContext<'_>, diagnostics: &mut Diagnostics) -> ParsedParts {
    if context.name.eq_ignore_ascii_case(SKILL) && !matches!(context.found, ParsedFile::SkillAsAgent) {
        return (FileKind::Skill, Vec::new());
    }
    let split = front_matter::split(text, diagnostics);
    let Some((yaml, line)) = split.front else { return without_front_matter(text, context, diagnostics) };
    let start = Position { line, column: 1 };
    if yaml.len() > MAX_FRONT_MATTER {
        let message = format!("the front matter has {} bytes; the maximum is {MAX_FRONT_MATTER}", yaml.len());
        diagnostics.error(start, "", message, "move text into the body");
        return (FileKind::Agent, Vec::new());
    }
    let node = match repair::read(yaml, line, diagnostics) {
        Ok(node) => node,
        Err(_) if !is_placed(context) => return (FileKind::Other("unrelated front matter"), Vec::new()),
        Err(error) => {
            let message = format!("the front matter cannot be read: {}", error.message);
            diagnostics.error(error.position, "", message, "correct the YAML");
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
            items.iter().filter_map(|item| one(None, item, Some(body), None, dialect, context, diagnostics)).collect()
        }
        NodeKind::Map(_) => {
            let agent = one(None, &node, Some(body), stem(context.name), dialect, context, diagnostics);
            agent.map_or_else(Vec::new, |agent| vec![agent])
        }
        NodeKind::Plain(_) | NodeKind::Quoted(_) => {
            diagnostics.error(start, "", "the front matter has no keys", "write `name: …` and `description: …`");
            Vec::new()
        }
    };
    (FileKind::Agent, definitions)
}

/// Reports a file that the user named; any other file without front matter is documentation.
fn without_front_matter(text: &str, context: &FileContext<'_>, diagnostics: &mut Diagnostics) -> ParsedParts {
    match context.found {
        ParsedFile::Named | ParsedFile::SkillAsAgent if !is_documentation(context.name) => {
            let start = Position { line: 1, column: 1 };
            let message = if text.trim().is_empty() { "the file is empty" } else { "the file has no front matter" };
            diagnostics.error(start, "", message, "begin it with `---`, `name: …`, `description: …`, `---`");
            (FileKind::Agent, Vec::new())
        }
        ParsedFile::Named | ParsedFile::SkillAsAgent | ParsedFile::Among(_) | ParsedFile::Anywhere => {
            let reason = if is_documentation(context.name) { DOCUMENTATION } else { "no front matter" };
            (FileKind::Other(reason), Vec::new())
        }
    }
}

/// Returns true for `SKILL.md`.
pub(crate) fn is_skill(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(SKILL))
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_documentation(name: &str) -> bool {
    let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    ["README", "AGENTS", "CLAUDE", "GEMINI", "CHANGELOG", "CONTRIBUTING", "LICENSE"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// The reason why a file is not an agent. Front matter has many uses, so files outside of agent folders need more keys.
fn not_an_agent(node: &Node<'_>, context: &FileContext<'_>) -> Option<&'static str> {
    let has = |keys: &[&str]| keys.iter().any(|key| node.get(key).is_some());
    let known = has(&["name", "description"]);
    if is_documentation(context.name) && !(has(&["name"]) && has(&["description"])) {
        return Some(DOCUMENTATION);
    }
    let is_page = || has(PAGE_KEYS) || (has(&["title"]) && !has(&["name"]));
    if !has(AGENT_KEYS) && is_page() && matches!(context.found, ParsedFile::Among(_) | ParsedFile::Anywhere) {
        return Some("a page of documentation");
    }
    let evidence = match context.found {
        ParsedFile::Named | ParsedFile::SkillAsAgent => true,
        ParsedFile::Among(_) => known || has(&["tools", "model", "mode", "permission", "disable"]),
        ParsedFile::Anywhere if is_placed(context) => known || has(&["tools", "model", "mode"]),
        ParsedFile::Anywhere => has(&["name"]) && has(&["description"]) && !is_command(context.path),
    };
    (!evidence).then_some("unrelated front matter")
}

/// Keys of programs that make websites from Markdown.
const PAGE_KEYS: &[&str] = &[
    "layout",
    "permalink",
    "sidebar_position",
    "sidebar_label",
    "sidebar",
    "nav_order",
    "weight",
    "date",
    "pubDate",
    "lastmod",
    "draft",
    "toc",
    "hide_title",
    "slug",
];

/// Keys that pages do not have.
const AGENT_KEYS: &[&str] = &[
    "tools",
    "allowedTools",
    "disallowedTools",
    "model",
    "mode",
    "permission",
    "permissionMode",
    "skills",
    "instructions",
];

/// Returns true for slash commands, whose files look much like agents.
fn is_command(path: &Path) -> bool {
    path.iter().any(|part| part == "commands" || part == "prompts" || part == "rules")
}

/// Returns true if a file is in a folder for agents.
fn is_placed(context: &FileContext<'_>) -> bool {
    let among = |path: &Path| {
        let names = ["agents", "agent", "subagents", "droids", "chatmodes"];
        // A folder with such a name further up is a coincidence.
        let mut folders = path.ancestors().skip(1).take(3).filter_map(Path::file_name);
        folders.any(|folder| names.iter().any(|name| folder == *name))
    };
    match context.found {
        ParsedFile::Named | ParsedFile::SkillAsAgent | ParsedFile::Among(_) => true,
        ParsedFile::Anywhere => {
            dialect::by_path(context.path).is_some() || (among(context.path) && !is_command(context.path))
        }
    }
}

fn dialect_of(context: &FileContext<'_>, node: &Node<'_>) -> Option<&'static Dialect> {
    match context.found {
        // instructor-php shares Claude Code's folder, so only the content distinguishes them.
        ParsedFile::Among(dialect) if dialect.name == "claude-code" => {
            Some(dialect::instructor_by_content(node).unwrap_or(dialect))
        }
        ParsedFile::Among(dialect) => Some(dialect),
        ParsedFile::Named | ParsedFile::SkillAsAgent | ParsedFile::Anywhere => {
            let by_path = dialect::by_path(context.path);
            let claude = by_path.is_none_or(|dialect| dialect.name == "claude-code");
            let wins = |dialect: &&Dialect| by_path.is_none() || (claude && dialect.name == "instructor");
            dialect::by_content(node).filter(wins).or(by_path)
        }
    }
}

/// The file name without `.md`, `.agent.md` and similar endings.
fn stem(name: &str) -> Option<&str> {
    let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let stem = [".agent", ".chatmode"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    Some(stem).filter(|stem| !stem.is_empty())
}

fn one<'a>(
    key: Option<&'a str>,
    node: &'a Node<'a>,
    body: Option<(&'a str, u32)>,
    stem: Option<&'a str>,
    dialect: &'static Dialect,
    context: &'a FileContext<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<AgentDefinition> {
    let Some(entries) = node.entries() else {
        diagnostics.error(
            node.position,
            "",
            format!("an agent must be a map, not {}", node.noun()),
            "write keys such as `name`",
        );
        return None;
    };
    let with_defaults = context
        .defaults
        .filter(|_| dialect.tool_map == ToolMap::Switches)
        .map(|defaults| defaults.before(key.or(stem).unwrap_or_default(), entries));
    let entries: &[NodeEntry<'_>] = with_defaults.as_deref().unwrap_or(entries);
    let servers = servers(entries);
    let names = Vocabulary { dialect, extra: &context.options.tools, servers: &servers };
    let partial = PartialDefinition { key, entries, position: node.position, body, stem, names };
    let mut definition = build(&partial, diagnostics)?;
    let path = Some(context.path.to_owned());
    definition.source = Source { kind: context.scope, path, dialect: dialect.name.to_owned() };
    if let Some(notes) = &mut diagnostics.notes {
        notes.add(&partial, &definition);
    }
    Some(definition)
}

/// The names of the MCP servers that a file defines.
fn servers(entries: &[NodeEntry<'_>]) -> Vec<String> {
    let is_servers = |entry: &NodeEntry<'_>| fields::lookup(&fields::fold(&entry.key)) == Some(Field::McpServers);
    // Few values are maps, and looking up a key costs more.
    let maps = entries.iter().filter_map(|entry| Some((entry, entry.value.entries()?)));
    let servers = maps.filter(|(entry, _)| is_servers(entry)).flat_map(|(_, servers)| servers);
    servers.map(|server| server.key.to_string()).collect()
}

/// Parses agents from JSON that is not a file, such as a value of the configuration.
pub fn parse_json(text: &str, scope: Scope, options: &ParseOptions) -> Parsed {
    let mut diagnostics = Diagnostics::default();
    let node = match json::parse(text) {
        Ok(node) => node,
        Err(error) => {
            diagnostics.error(error.position, "", format!("not valid JSON: {}", error.message), "");
            return Parsed { diagnostics: diagnostics.into_diagnostics(None, None), ..Parsed::default() };
        }
    };
    let context =
        FileContext { path: Path::new(""), name: "", found: ParsedFile::Named, scope, options, defaults: None };
    let dialect = dialect::named("json").unwrap_or(dialect::own());
    let mut definitions: Vec<AgentDefinition> = members(&node)
        .into_iter()
        .filter_map(|(key, part)| one(key, part, None, None, dialect, &context, &mut diagnostics))
        .collect();
    for definition in &mut definitions {
        definition.source.path = None;
    }
    finish((FileKind::Agent, definitions), diagnostics, None, None, options)
}
