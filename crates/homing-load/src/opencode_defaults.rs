//! Permissions in the configuration of OpenCode or Kilo for agents that it does not define: for all agents, and for an agent whose
//! file is elsewhere. OpenCode puts them before the agent's own, and the last match wins.

use std::{collections::BTreeMap, path::PathBuf};

use homing_core::definition::Scope;

use crate::{
    dialect::{self, Dialect, ToolMap},
    discover::Places,
    file, json,
    node::{Node, NodeEntry, NodeKind, Position},
};

/// The permissions in the configurations of one program and scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenCodeDefaults {
    /// Of all agents.
    common: Vec<NodeEntry<'static>>,
    /// Of single agents, by name.
    by_agent: BTreeMap<String, Vec<NodeEntry<'static>>>,
}

/// The same for every program and scope.
#[derive(Debug, Default)]
pub(crate) struct AllDefaults(Vec<(&'static str, Scope, OpenCodeDefaults)>);

impl AllDefaults {
    /// Reads the configurations in `places`, the outermost first.
    pub(crate) fn read(places: &Places) -> Self {
        let mut all = Vec::new();
        for dialect in dialect::ALL.iter().filter(|dialect| dialect.tool_map == ToolMap::Switches) {
            let single = dialect.config.iter().filter(|folder| folder.endings.is_empty());
            let user = single.flat_map(|file| places.config.iter().map(|base| base.join(file.path)));
            all.push((dialect.name, Scope::User, OpenCodeDefaults::read(user)));
            let folders = places.project_folders();
            let project = folders.iter().flat_map(|base| dialect.files.iter().map(|file| base.join(file)));
            all.push((dialect.name, Scope::Project, OpenCodeDefaults::read(project)));
        }
        Self(all)
    }

    /// The defaults of the agents of one dialect and scope.
    pub(crate) fn get(&self, dialect: &Dialect, scope: Scope) -> Option<&OpenCodeDefaults> {
        self.0.iter().find(|(name, of, _)| *name == dialect.name && *of == scope).map(|(_, _, defaults)| defaults)
    }
}

impl OpenCodeDefaults {
    fn read(paths: impl Iterator<Item = PathBuf>) -> Self {
        let mut defaults = Self::default();
        // A file that cannot be read is reported when its agents are read.
        let nodes = paths.filter_map(|path| json::parse(&String::from_utf8_lossy(&file::read(&path).ok()?)).ok());
        nodes.for_each(|node| defaults.add(&node));
        defaults
    }

    /// The defaults in one configuration.
    pub(crate) fn of(configuration: &Node<'_>) -> Self {
        let mut defaults = Self::default();
        defaults.add(configuration);
        defaults
    }

    fn add(&mut self, configuration: &Node<'_>) {
        self.common.extend(permissions(configuration).into_iter().map(NodeEntry::into_owned));
        for agent in configuration.get("agent").and_then(Node::entries).unwrap_or_default() {
            // An entry with a prompt or a description is an agent of its own.
            if agent.value.get("prompt").is_none() && agent.value.get("description").is_none() {
                let permissions = permissions(&agent.value).into_iter().map(NodeEntry::into_owned);
                self.by_agent.entry(agent.key.to_string()).or_default().extend(permissions);
            }
        }
    }

    /// The keys of the agent `name`, with the defaults before its own permissions.
    pub(crate) fn before<'a>(&self, name: &str, entries: &[NodeEntry<'a>]) -> Vec<NodeEntry<'a>> {
        let adjusted = self.by_agent.get(name).map_or(&[][..], Vec::as_slice);
        let defaults: Vec<NodeEntry<'a>> = self.common.iter().chain(adjusted).cloned().map(unplaced).collect();
        let is_permission = |entry: &&NodeEntry<'_>| entry.key == "permission" || is_switches(entry);
        if defaults.is_empty() {
            return entries.to_vec();
        }
        let position = entries.iter().find(is_permission).map_or(Position { line: 1, column: 1 }, |own| own.position);
        let own = permissions(&Node::new(position, NodeKind::Map(entries.to_vec())));
        let all = NodeKind::Map(defaults.into_iter().chain(own).collect());
        let merged = NodeEntry { key: "permission".into(), position, value: Node::new(position, all) };
        let rest = entries.iter().filter(|entry| !is_permission(entry)).cloned();
        rest.chain([merged]).collect()
    }
}

/// The permissions of an agent or of a configuration as entries of one map: its switches, then its `permission`.
fn permissions<'a>(node: &Node<'a>) -> Vec<NodeEntry<'a>> {
    let switches = node.entries().unwrap_or_default().iter().filter(|entry| is_switches(entry));
    let switches = switches.flat_map(|entry| entry.value.entries().unwrap_or_default()).map(|switch| {
        let changes_files = matches!(switch.key.as_ref(), "write" | "edit" | "patch" | "multiedit");
        let key = if changes_files { "edit".into() } else { switch.key.clone() };
        // Anything but a clear yes keeps the tool off.
        let word = if switch.value.truth() == Some(true) { "allow" } else { "deny" };
        let value = Node::new(switch.value.position, NodeKind::Plain(word.into()));
        NodeEntry { key, position: switch.position, value }
    });
    let permission = match node.get("permission") {
        Some(Node { kind: NodeKind::Map(entries), .. }) => entries.clone(),
        Some(word) if !word.is_null() => {
            vec![NodeEntry { key: "*".into(), position: word.position, value: word.clone() }]
        }
        Some(_) | None => Vec::new(),
    };
    switches.chain(permission).collect()
}

fn is_switches(entry: &NodeEntry<'_>) -> bool {
    entry.key == "tools" && entry.value.entries().is_some()
}

/// An entry of another file, whose positions mean nothing here.
fn unplaced(mut entry: NodeEntry<'_>) -> NodeEntry<'_> {
    let start = Position { line: 1, column: 1 };
    (entry.position, entry.value.position) = (start, start);
    if let NodeKind::Map(inner) = entry.value.kind {
        entry.value.kind = NodeKind::Map(inner.into_iter().map(unplaced).collect());
    }
    entry
}
