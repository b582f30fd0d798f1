//! Reads the files of a project and its user. Untrusted project files keep their names and prompts; anything they ask for
//! beyond narrowing is removed and reported.

use std::{collections::BTreeMap, path::Path};

use homing_core::{
    definition::{AgentDefinition, Scope},
    diagnostic::Diagnostic,
    limits::Limits,
};
use homing_load::{SkillFolders, discover, without_authority};
use homing_tools::{
    mcp::ServerConfig,
    trust::{AuthorityFiles, TrustState, settings::Trust},
};
use serde_json::Value;

use crate::{CodingSetup, PendingApproval};

/// The contents of a project and of the user's folders.
pub(crate) struct Project {
    /// The project files that can grant authority.
    pub(crate) files: AuthorityFiles,
    /// The user's trust in them as they are.
    pub(crate) trust: Trust,
    /// The agents, without anything that needs trust the user has not given.
    pub(crate) agents: Vec<AgentDefinition>,
    pub(crate) skills: SkillFolders,
    /// The project's MCP servers, if they are trusted.
    pub(crate) servers: BTreeMap<String, Value>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) pending: Vec<PendingApproval>,
}

/// An MCP server that may be started, and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownServer {
    /// The server's configuration.
    pub config: ServerConfig,
    /// The place that defines it: `your configuration`, `.mcp.json`, `agent db`.
    pub from: String,
}

impl CodingSetup {
    /// Reads everything once and starts nothing.
    pub(crate) fn read(&self) -> Project {
        let folders = self.places.project_folders();
        let files = AuthorityFiles::of_project(&folders);
        let trust = match self.trust.as_ref().map(|store| store.state(files.project(), &files)) {
            Some(TrustState::Trusted) => Trust::Trusted,
            Some(TrustState::Nothing | TrustState::Changed { .. } | TrustState::Untrusted) | None => Trust::Untrusted,
        };
        let loaded = discover(&self.places, &self.options);
        // Discovery reads the agents again after the files were hashed. If they changed in between, they are not trusted.
        let trust = if AuthorityFiles::of_project(&folders) == files { trust } else { Trust::Untrusted };
        let mut project = Project {
            files,
            trust,
            agents: Vec::new(),
            skills: loaded.skills,
            servers: BTreeMap::new(),
            diagnostics: loaded.diagnostics,
            pending: Vec::new(),
        };
        let known = loaded.registry.all().flat_map(|entry| entry.shadows.iter().rev().chain([&entry.definition]));
        let mut inactive = Vec::new();
        for definition in known.filter(|definition| self.built_in || definition.source.kind != Scope::BuiltIn) {
            let mut definition = AgentDefinition::clone(definition);
            inactive.extend(project.strip_untrusted(&mut definition, self.limits));
            if let Some(rules) = self.delegates.get(&definition.name) {
                definition.tools.delegates = Some(rules.clone());
            }
            project.agents.push(definition);
        }
        inactive.extend(project.add_servers());
        if !inactive.is_empty() {
            project.pending.push(PendingApproval::ProjectFiles);
            project.diagnostics.push(not_trusted(&inactive));
        }
        project
    }

    /// Returns every MCP server that may be started: the user's, a trusted project's, and those of trusted agents.
    pub fn known_servers(&self) -> Vec<KnownServer> {
        let project = self.read();
        let named = |servers: &BTreeMap<String, Value>, from: &str| -> Vec<KnownServer> {
            let parsed = servers.iter().filter_map(|(name, value)| ServerConfig::parse(name, value).ok());
            parsed.map(|config| KnownServer { config, from: from.to_owned() }).collect()
        };
        let mut all = named(&self.servers, "your configuration");
        all.extend(named(&project.servers, ".mcp.json"));
        for agent in &project.agents {
            all.extend(named(&agent.integrations.mcp_servers, &format!("agent {}", agent.name)));
        }
        all
    }
}

impl Project {
    /// Removes from an untrusted definition anything that needs trust. Returns the removed parts that would have run something.
    fn strip_untrusted(&mut self, definition: &mut AgentDefinition, ceiling: Limits) -> Vec<String> {
        let is_covered = || definition.source.path.as_deref().is_some_and(|path| self.files.covers(path));
        if definition.source.kind != Scope::Project || (self.trust == Trust::Trusted && is_covered()) {
            return Vec::new();
        }
        let fields = [
            ("mcpServers", !definition.integrations.mcp_servers.is_empty()),
            ("hooks", !definition.integrations.hooks.is_null()),
        ];
        self.diagnostics.extend(without_authority(definition, ceiling));
        let used = fields.iter().filter(|(_, is_used)| *is_used);
        used.map(|(field, _)| format!("`{field}` of agent {}", definition.name)).collect()
    }

    /// Reads `.mcp.json` of the project's folders, from the bytes that were hashed. The innermost folder wins. Returns the files
    /// whose servers are not trusted.
    fn add_servers(&mut self) -> Vec<String> {
        let paths = self.files.paths().filter(|path| path.file_name().is_some_and(|name| name == ".mcp.json"));
        let mut paths: Vec<_> = paths.map(Path::to_owned).collect();
        paths.sort_by_key(|path| path.components().count());
        let mut inactive = Vec::new();
        for path in paths {
            let bytes = self.files.get(&path).unwrap_or_default();
            let json: Value = match serde_json::from_slice(bytes) {
                Ok(json) => json,
                Err(error) => {
                    let message = format!("{} is not valid JSON: {error}", path.display());
                    self.diagnostics.push(Diagnostic::warning(message));
                    continue;
                }
            };
            let servers = json.get("mcpServers").and_then(Value::as_object);
            let Some(servers) = servers.filter(|servers| !servers.is_empty()) else { continue };
            match self.trust {
                Trust::Trusted => {
                    self.servers.extend(servers.iter().map(|(name, value)| (name.clone(), value.clone())));
                }
                Trust::Untrusted => inactive.push(format!("the servers of {}", path.display())),
            }
        }
        inactive
    }
}

/// Puts everything into one line, because the user reads it at every start.
fn not_trusted(inactive: &[String]) -> Diagnostic {
    Diagnostic::warning(format!("this project's files are not trusted, so these do not run: {}", inactive.join(", ")))
}
