//! Names in agent files that refer to something outside of the file: models, skills, MCP servers and other agents.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    definition::{AgentDefinition, ModelChoice},
    diagnostic::{Diagnostic, Severity},
    registry::{Registry, distance},
};

use crate::{
    build::PartialDefinition,
    diagnostics::Diagnostics,
    fields::{self, Field},
    node::{Node, NodeEntry, NodeKind, Position},
    tools::{self, Meaning, Vocabulary},
};

/// A name that refers to something outside of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) kind: ReferenceKind,
    pub(crate) name: String,
    pub(crate) position: Position,
    /// The key whose value contains it.
    pub(crate) key: String,
    /// True if another program has it built in, so that the file cannot be blamed.
    pub(crate) is_elsewhere: bool,
}

/// The kind of thing that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceKind {
    Model,
    Skill,
    Server,
    Agent,
}

/// Notes on the text of a file beyond its definitions.
#[derive(Debug, Default)]
pub(crate) struct FileNotes {
    pub(crate) references: Vec<Reference>,
    /// Fields of definitions in their JSON form, with the line that sets them.
    pub(crate) lines: Vec<FieldLine>,
}

/// The line that sets a field.
#[derive(Debug)]
pub(crate) struct FieldLine {
    pub(crate) agent: String,
    pub(crate) field: &'static str,
    pub(crate) line: u32,
}

impl FileNotes {
    /// Adds what the keys of an agent say.
    pub(crate) fn add(&mut self, partial: &PartialDefinition<'_>, definition: &AgentDefinition) {
        self.references.extend(of(partial.entries, partial.names, definition));
        let mut add = |field, line| {
            let is_known = self.lines.iter().any(|known| known.agent == definition.name && known.field == field);
            if !is_known {
                self.lines.push(FieldLine { agent: definition.name.clone(), field, line });
            }
        };
        let fields = partial.entries.iter().filter_map(|entry| {
            let folded = fields::fold(&entry.key);
            let own = partial.names.dialect.fields.iter().find(|(key, _)| *key == folded).map(|(_, field)| *field);
            Some((fields::definition_fields(own.or_else(|| fields::lookup(&folded))?), entry.position.line))
        });
        let fields: Vec<_> = fields.collect();
        // The field that a key is named after comes before those that it sets as well.
        for (set, line) in &fields {
            set.first().into_iter().for_each(|field| add(*field, *line));
        }
        if let Some((_, line)) = partial.body.filter(|(body, _)| !body.trim().is_empty()) {
            add("prompt", line);
        }
        for (set, line) in fields {
            set.iter().for_each(|field| add(*field, line));
        }
    }
}

/// The names that exist.
pub struct KnownNames<'a> {
    /// The agents.
    pub agents: &'a Registry,
    /// Names of skills.
    pub skills: BTreeSet<String>,
    /// Names of MCP servers, trusted or not.
    pub servers: BTreeSet<String>,
    /// Short names of models, for suggestions.
    pub models: BTreeSet<String>,
    /// Returns true if a provider may have the model.
    pub is_model: &'a dyn Fn(&str) -> bool,
}

impl std::fmt::Debug for KnownNames<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownNames")
            .field("skills", &self.skills)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

impl KnownNames<'_> {
    /// Warns about a reference of the file at `path` if there is nothing of that name.
    pub(crate) fn unknown(&self, reference: &Reference, path: &Path) -> Option<Diagnostic> {
        let Reference { kind, name, position, key, is_elsewhere } = reference;
        let known: &mut dyn Iterator<Item = &str> = match kind {
            ReferenceKind::Model => &mut self.models.iter().map(String::as_str),
            ReferenceKind::Skill => &mut self.skills.iter().map(String::as_str),
            ReferenceKind::Server => &mut self.servers.iter().map(String::as_str),
            ReferenceKind::Agent => &mut self.agents.names(),
        };
        let (is_known, message, rule, hint) = match kind {
            ReferenceKind::Model => (
                (self.is_model)(name),
                format!("unknown model `{name}`: no provider is known for it"),
                "unknown-model",
                "write the model as provider/model",
            ),
            ReferenceKind::Skill => (
                self.skills.contains(name),
                format!("there is no skill named `{name}`"),
                "unknown-skill",
                "remove it, or add the skill to a folder of skills",
            ),
            ReferenceKind::Server => (
                self.servers.contains(name),
                format!("there is no MCP server named `{name}`"),
                "unknown-server",
                "define the server in `.mcp.json` or in your configuration",
            ),
            ReferenceKind::Agent => (
                // An agent of a plugin has the plugin's name before it once the plugin is installed.
                self.agents.has(name.rsplit(':').next().unwrap_or(name)),
                format!("there is no agent named `{name}`"),
                "unknown-agent",
                "remove it, or add the agent to a folder of agents",
            ),
        };
        if is_known {
            return None;
        }
        let hint = near(name, known).map_or_else(|| hint.to_owned(), |near| format!("did you mean `{near}`?"));
        let diagnostic = Diagnostic::warning(message).at(position.line, position.column).on(key).hint(hint);
        let path: Option<Arc<PathBuf>> = Some(Arc::new(path.to_owned()));
        let severity = if *is_elsewhere { Severity::Info } else { Severity::Warning };
        Some(diagnostic.rule_id(rule).path(path).severity(severity))
    }
}

/// The name that differs by a typing error or two.
fn near<'a>(name: &str, known: &mut dyn Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase();
    let errors = if folded.chars().count() > 4 { 2 } else { 1 };
    known
        .map(|known| (distance(&folded, &known.to_lowercase()), known))
        .min()
        .filter(|near| near.0 <= errors)
        .map(|near| near.1)
}

/// The references of one agent.
fn of(entries: &[NodeEntry<'_>], names: Vocabulary<'_>, definition: &AgentDefinition) -> Vec<Reference> {
    let mut collector = Collector { names, definition, found: Vec::new() };
    collector.entries(entries);
    let mut found = collector.found;
    let mut seen = BTreeSet::new();
    found.retain(|reference| seen.insert((reference.kind as u8, reference.name.clone())));
    found
}

struct Collector<'a> {
    names: Vocabulary<'a>,
    definition: &'a AgentDefinition,
    found: Vec<Reference>,
}

impl Collector<'_> {
    fn entries(&mut self, entries: &[NodeEntry<'_>]) {
        for entry in entries {
            let folded = fields::fold(&entry.key);
            let own = self.names.dialect.fields.iter().find(|(key, _)| *key == folded).map(|(_, field)| *field);
            match own.or_else(|| fields::lookup(&folded)) {
                Some(Field::Inline) => self.entries(entry.value.entries().unwrap_or_default()),
                Some(Field::Model | Field::FallbackModels) => self.models(entry),
                Some(Field::Skills) => self.add_items(ReferenceKind::Skill, entry),
                Some(Field::Agents) => self.add_items(ReferenceKind::Agent, entry),
                Some(Field::Handoffs) => self.handoffs(entry),
                Some(Field::McpServers) => self.servers(entry),
                Some(Field::Tools) => self.tools(entry),
                Some(_) | None => (),
            }
        }
    }

    fn add(&mut self, kind: ReferenceKind, name: &str, position: Position, key: &str) {
        let name = name.trim();
        // A pattern refers to whatever exists.
        if !name.is_empty() && !name.contains(['*', '?', '{', '$']) {
            let is_elsewhere = kind == ReferenceKind::Server && self.is_built_in(name);
            self.found.push(Reference { kind, name: name.to_owned(), position, key: key.to_owned(), is_elsewhere });
        }
    }

    /// Returns true for the servers that Claude Code and Copilot have built in, and for extensions of VS Code.
    fn is_built_in(&self, server: &str) -> bool {
        let is_copilot = self.names.dialect.name == "copilot";
        server == "ide" || (is_copilot && (matches!(server, "github" | "playwright") || server.contains('.')))
    }

    fn add_items(&mut self, kind: ReferenceKind, entry: &NodeEntry<'_>) {
        if entry.value.is_null() {
            return;
        }
        for (name, position) in items(&entry.value) {
            self.add(kind, &name, position, &entry.key);
        }
    }

    /// The models as the definition has them, each where the file names it.
    fn models(&mut self, entry: &NodeEntry<'_>) {
        let ModelChoice::Named(models) = &self.definition.model.choice else { return };
        let written = items(&entry.value);
        for model in models {
            let place = written.iter().find(|(name, _)| model.ends_with(name.trim_end_matches("[1m]").trim()));
            let is_only = written.len() == 1 && models.len() == 1;
            match place {
                Some((_, position)) => self.add(ReferenceKind::Model, model, *position, &entry.key),
                None if is_only => self.add(ReferenceKind::Model, model, entry.value.position, &entry.key),
                None => (),
            }
        }
    }

    fn handoffs(&mut self, entry: &NodeEntry<'_>) {
        let NodeKind::List(handoffs) = &entry.value.kind else { return };
        for agent in handoffs.iter().filter_map(|handoff| handoff.get("agent")) {
            self.add(ReferenceKind::Agent, agent.text().unwrap_or_default(), agent.position, &entry.key);
        }
    }

    /// The servers that the file names without defining them.
    fn servers(&mut self, entry: &NodeEntry<'_>) {
        let nodes = match &entry.value.kind {
            NodeKind::List(nodes) => nodes.iter().collect(),
            NodeKind::Plain(_) | NodeKind::Quoted(_) => vec![&entry.value],
            NodeKind::Map(_) => Vec::new(),
        };
        for node in nodes.into_iter().filter(|node| node.text().is_some() && !node.is_null()) {
            for (name, position) in items(node) {
                self.add(ReferenceKind::Server, &name, position, &entry.key);
            }
        }
    }

    /// The servers and agents that a list of tools names.
    fn tools(&mut self, entry: &NodeEntry<'_>) {
        if entry.value.entries().is_some() {
            return;
        }
        for (item, position) in items(&entry.value) {
            let Meaning::Rules(rules) = self.names.meaning(&item) else { continue };
            for rule in rules {
                if let Some(server) = rule.tool.strip_prefix("mcp__").and_then(|rest| rest.split("__").next())
                    && !self.definition.integrations.mcp_servers.contains_key(server)
                {
                    self.add(ReferenceKind::Server, server, position, &entry.key);
                }
                if let Some(agents) = rule.pattern.as_deref().filter(|_| rule.tool == "delegate") {
                    agents.split(',').for_each(|agent| self.add(ReferenceKind::Agent, agent, position, &entry.key));
                }
            }
        }
    }
}

/// The names in a value. Problems with its form are reported when the definition is built.
fn items<'a>(node: &'a Node<'_>) -> Vec<(Cow<'a, str>, Position)> {
    let mut ignored = Diagnostics::default();
    match node.get("model") {
        Some(model) => tools::items(model, "", &mut ignored),
        None => tools::items(node, "", &mut ignored),
    }
}
