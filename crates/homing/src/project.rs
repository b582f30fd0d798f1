//! What a project's and a user's files say, as far as each is to be believed. Files that nobody vouches for keep their names
//! and prompts; what they ask for beyond that is left out, and said.

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

use crate::CodingSetup;

/// Everything that was found.
pub(crate) struct Project {
    /// The files that carry authority.
    pub(crate) files: AuthorityFiles,
    /// Whether they do.
    pub(crate) trust: Trust,
    /// The agents, without what they may not ask for.
    pub(crate) agents: Vec<AgentDefinition>,
    pub(crate) skills: SkillFolders,
    /// The project's own servers, if they may be started.
    pub(crate) servers: BTreeMap<String, Value>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// An MCP server that may be started, and who wrote it down.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownServer {
    /// The server.
    pub config: ServerConfig,
    /// Where it is written: `your configuration`, `.mcp.json`, `agent db`.
    pub from: String,
}

impl CodingSetup {
    /// Reads everything once. Nothing is started.
    pub(crate) fn look(&self) -> Project {
        let folders = self.places.project_folders();
        let files = AuthorityFiles::of_project(&folders);
        let trust = match self.trust.as_ref().map(|store| store.standing(files.project(), &files)) {
            Some(TrustState::Trusted) => Trust::Trusted,
            Some(TrustState::Nothing | TrustState::Changed { .. } | TrustState::Untrusted) | None => Trust::Untrusted,
        };
        let loaded = discover(&self.places, &self.options);
        // Agents are read by another hand than the one that hashed: what changed in between is not what was vouched for.
        let trust = if AuthorityFiles::of_project(&folders) == files { trust } else { Trust::Untrusted };
        let mut project = Project {
            files,
            trust,
            agents: Vec::new(),
            skills: loaded.skills,
            servers: BTreeMap::new(),
            diagnostics: loaded.diagnostics,
        };
        let known = loaded.registry.all().flat_map(|it| it.shadows.iter().rev().chain([&it.definition]));
        let mut in_vain = Vec::new();
        for definition in known.filter(|it| self.built_in || it.source.kind != Scope::BuiltIn) {
            let mut definition = AgentDefinition::clone(definition);
            in_vain.extend(project.believe(&mut definition, self.limits));
            if let Some(rules) = self.delegates.get(&definition.name) {
                definition.delegates = Some(rules.clone());
            }
            project.agents.push(definition);
        }
        in_vain.extend(project.add_servers());
        project.diagnostics.extend(not_trusted(&in_vain));
        project
    }

    /// Every MCP server that may be started: the user's, a trusted project's, and those that believed agents define.
    pub fn known_servers(&self) -> Vec<KnownServer> {
        let project = self.look();
        let named = |servers: &BTreeMap<String, Value>, from: &str| -> Vec<KnownServer> {
            let parsed = servers.iter().filter_map(|(name, value)| ServerConfig::parse(name, value).ok());
            parsed.map(|config| KnownServer { config, from: from.to_owned() }).collect()
        };
        let mut all = named(&self.servers, "your configuration");
        all.extend(named(&project.servers, ".mcp.json"));
        for agent in &project.agents {
            all.extend(named(&agent.mcp_servers, &format!("agent {}", agent.name)));
        }
        all
    }
}

impl Project {
    /// Takes from a project's definition what it may not ask for; names what was lost that would have run something.
    fn believe(&mut self, definition: &mut AgentDefinition, ceiling: Limits) -> Vec<String> {
        let vouched = || definition.source.path.as_deref().is_some_and(|path| self.files.covers(path));
        if definition.source.kind != Scope::Project || (self.trust == Trust::Trusted && vouched()) {
            return Vec::new();
        }
        let asks = [("mcpServers", !definition.mcp_servers.is_empty()), ("hooks", !definition.hooks.is_null())];
        self.diagnostics.extend(without_authority(definition, ceiling));
        let asks = asks.iter().filter(|(_, asks)| *asks);
        asks.map(|(field, _)| format!("`{field}` of agent {}", definition.name)).collect()
    }

    /// Reads `.mcp.json` of the project's folders, from the bytes that were vouched for; the innermost wins.
    fn add_servers(&mut self) -> Vec<String> {
        let paths = self.files.paths().filter(|path| path.file_name().is_some_and(|name| name == ".mcp.json"));
        let mut paths: Vec<_> = paths.map(Path::to_owned).collect();
        paths.sort_by_key(|path| path.components().count());
        let mut in_vain = Vec::new();
        for path in paths {
            let bytes = self.files.get(&path).unwrap_or_default();
            let json: Value = match serde_json::from_slice(bytes) {
                Ok(json) => json,
                Err(error) => {
                    self.diagnostics.push(Diagnostic::warning(format!("{} is no JSON: {error}", path.display())));
                    continue;
                }
            };
            let Some(servers) = json.get("mcpServers").and_then(Value::as_object).filter(|it| !it.is_empty()) else {
                continue;
            };
            match self.trust {
                Trust::Trusted => self.servers.extend(servers.iter().map(|(name, it)| (name.clone(), it.clone()))),
                Trust::Untrusted => in_vain.push(format!("the servers of {}", path.display())),
            }
        }
        in_vain
    }
}

/// One line for all of it: a person reads it at every start.
fn not_trusted(in_vain: &[String]) -> Option<Diagnostic> {
    let what = format!("this project's files are not trusted, so these do not run: {}", in_vain.join(", "));
    let hint = "look at the files, then run `homing trust`";
    (!in_vain.is_empty()).then(|| Diagnostic::warning(what).hint(hint))
}
