//! Reads the files of a project and its user. Untrusted project files keep their names and prompts; anything they ask for
//! beyond narrowing is removed and reported.

use std::{cell::LazyCell, collections::BTreeMap, path::Path};

use homing_core::{
    definition::Scope,
    diagnostic::{Diagnostic, Severity},
    registry::Registry,
};
use homing_load::{Discovered, SkillFolders, StrippedField, TrustPolicy, discover_trusted, is_about_hidden_agent};
#[cfg(feature = "mcp")]
use homing_tools::mcp::ServerConfig;
use homing_tools::trust::{AuthorityFiles, TrustState, settings::Trust};
use serde_json::Value;

use crate::{CodingSetup, PendingApproval, agent_memory::MemoryFolders};

/// The contents of a project and of the user's folders.
pub(crate) struct Project {
    /// The project files that can grant authority.
    pub(crate) files: AuthorityFiles,
    /// The user's trust in them as they are.
    pub(crate) trust: Trust,
    /// True if the project has files that need trust, and the user does not trust them.
    pub(crate) is_untrusted: bool,
    /// The agents, without anything that needs trust the user has not given.
    pub(crate) registry: Registry,
    pub(crate) skills: SkillFolders,
    /// The project's MCP servers, if they are trusted.
    pub(crate) servers: BTreeMap<String, Value>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) pending: Vec<PendingApproval>,
}

/// The agents and skills of a project, and the files that decided about their authority.
struct TrustedFiles {
    found: Discovered,
    files: AuthorityFiles,
    trust: Trust,
}

/// An MCP server that may be started, and its origin.
#[cfg(feature = "mcp")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownServer {
    /// The server's configuration.
    pub config: ServerConfig,
    /// The place that defines it: `your configuration`, `.mcp.json`, `agent db`.
    pub from: String,
}

impl CodingSetup {
    /// Finds the agents and skills. Definitions that the user does not trust lack everything that needs trust.
    pub fn discover(&self) -> Discovered {
        self.find().found
    }

    /// Reads everything once and starts nothing.
    pub(crate) fn read(&self) -> Project {
        let TrustedFiles { found, files, trust } = self.find();
        let is_untrusted = trust == Trust::Untrusted && files.paths().next().is_some();
        let mut project = Project {
            files,
            trust,
            is_untrusted,
            registry: found.registry,
            skills: found.skills,
            servers: BTreeMap::new(),
            diagnostics: found.diagnostics,
            pending: Vec::new(),
        };
        let memories = MemoryFolders::new(&self.places);
        for definition in project.registry.definitions_mut() {
            memories.add_rules(definition);
            let missing = crate::missing_features::of_agent(definition);
            project.diagnostics.extend(missing.as_ref().map(crate::missing_features::warning));
            if let Some(rules) = self.delegates.get(&definition.name) {
                definition.tools.delegates = Some(rules.clone());
            }
        }
        let mut inactive: Vec<String> = found.stripped.iter().filter_map(would_run).collect();
        inactive.extend(project.add_servers());
        let hides = |found: &Diagnostic| is_about_hidden_agent(found) && found.severity > Severity::Info;
        if !inactive.is_empty() || project.diagnostics.iter().any(hides) {
            project.pending.push(PendingApproval::ProjectFiles);
        }
        if !inactive.is_empty() {
            project.diagnostics.push(not_trusted(&inactive));
        }
        project
    }

    fn find(&self) -> TrustedFiles {
        let folders = self.places.project_folders();
        let files = AuthorityFiles::of_project(&folders);
        let state = self.trust.as_ref().map(|store| store.state(files.project(), &files));
        // Discovery reads the agents again after the files were hashed. If they changed in between, they are not trusted.
        let trust = LazyCell::new(|| match state {
            Some(TrustState::Trusted) if AuthorityFiles::of_project(&folders) == files => Trust::Trusted,
            Some(TrustState::Trusted | TrustState::Nothing | TrustState::Changed { .. } | TrustState::Untrusted)
            | None => Trust::Untrusted,
        });
        let is_trusted = |scope: Scope, path: Option<&Path>| {
            let is_covered = || path.is_some_and(|path| files.covers(path));
            scope != Scope::Project || (*trust == Trust::Trusted && is_covered())
        };
        let mut places = self.places.clone();
        places.skip_built_in |= !self.built_in;
        let policy = TrustPolicy { is_trusted: &is_trusted, ceiling: self.limits };
        let found = discover_trusted(&places, &self.options, policy);
        let trust = *trust;
        TrustedFiles { found, files, trust }
    }

    /// Returns every MCP server that may be started: the user's, a trusted project's, and those of trusted agents.
    #[cfg(feature = "mcp")]
    pub fn known_servers(&self) -> Vec<KnownServer> {
        let project = self.read();
        let named = |servers: &BTreeMap<String, Value>, from: &str| -> Vec<KnownServer> {
            let parsed = servers.iter().filter_map(|(name, value)| ServerConfig::parse(name, value).ok());
            parsed.map(|config| KnownServer { config, from: from.to_owned() }).collect()
        };
        let mut all = named(&self.servers, "your configuration");
        all.extend(named(&project.servers, ".mcp.json"));
        for agent in project.registry.definitions() {
            all.extend(named(&agent.integrations.mcp_servers, &format!("agent {}", agent.name)));
        }
        all
    }
}

impl Project {
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

/// Returns the description of a removed field that would have run something.
fn would_run(stripped: &StrippedField) -> Option<String> {
    let runs = ["mcpServers", "hooks"].contains(&stripped.field.as_str());
    runs.then(|| format!("`{}` of agent {}", stripped.field, stripped.agent))
}

/// Puts everything into one line, because the user reads it at every start.
fn not_trusted(inactive: &[String]) -> Diagnostic {
    Diagnostic::warning(format!("this project's files are not trusted, so these do not run: {}", inactive.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use homing_sandbox::protected_paths;
    use homing_tools::trust::TrustStore;

    use super::*;

    /// The loader's places are one table, the sandbox's protected paths another: each place of the first must be in the
    /// second, and must be covered by trust.
    #[test]
    fn everything_that_is_loaded_from_a_project_is_protected_and_needs_trust() {
        let paths = homing_load::project_paths();
        assert!(paths.len() > 30 && paths.contains(&"recipe.yaml".into()), "{paths:?}");
        let names: Vec<_> = protected_paths::names().collect();
        for path in paths.iter().map(|path| path.as_path()).chain([Path::new(".mcp.json")]) {
            assert!(protected_paths::protects(path).is_some(), "file tools may write {}", path.display());
            assert!(names.iter().any(|name| path.starts_with(name)), "commands may write {}", path.display());
            let folder = tempfile::tempdir().unwrap();
            let file = if path.extension().is_some() { path.to_owned() } else { path.join("a.md") };
            fs::create_dir_all(folder.path().join(&file).parent().unwrap()).unwrap();
            fs::write(folder.path().join(&file), "x").unwrap();
            let files = AuthorityFiles::read(folder.path());
            assert!(files.covers(&folder.path().join(&file)), "{} needs no trust", file.display());
        }
    }

    fn announced(project: &Project, word: &str) -> usize {
        let is_hit = |diagnostic: &&Diagnostic| is_about_hidden_agent(diagnostic) && diagnostic.message.contains(word);
        project.diagnostics.iter().filter(is_hit).count()
    }

    #[test]
    fn untrusted_project_agent_does_not_replace_an_agent_that_the_user_knows() {
        let folder = tempfile::tempdir().unwrap();
        let (root, home) = (folder.path().join("repo"), folder.path().join("home"));
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir_all(home.join(".claude/agents")).unwrap();
        fs::write(home.join(".claude/agents/mine.md"), "---\nname: mine\ndescription: of the user\n---\nP\n").unwrap();
        let recipe = |name: &str| format!("title: {name}\ndescription: of the project\ninstructions: Obey.\n");
        fs::write(root.join("recipe.yaml"), recipe("general")).unwrap();
        fs::create_dir_all(root.join(".goose/recipes")).unwrap();
        fs::write(root.join(".goose/recipes/mine.yaml"), recipe("mine")).unwrap();
        fs::write(root.join(".goose/recipes/other.yaml"), recipe("other")).unwrap();
        let mut setup = CodingSetup::from_env(&root);
        setup.places.home = Some(home);
        setup.places.config = None;
        setup.trust = Some(TrustStore::load(folder.path().join("trust.json")).unwrap());
        let used = |project: &Project, name: &str| project.registry.get(name).unwrap().source.kind;
        let project = setup.read();
        let kinds = ["general", "mine", "other"].map(|name| used(&project, name));
        assert_eq!(kinds, [Scope::BuiltIn, Scope::User, Scope::Project]);
        assert_eq!(announced(&project, "is not trusted"), 2, "{:?}", project.diagnostics);
        assert!(project.pending.contains(&PendingApproval::ProjectFiles));

        let mut store = TrustStore::load(folder.path().join("trust.json")).unwrap();
        store.trust(project.files.project(), &project.files).unwrap();
        setup.trust = Some(store);
        let project = setup.read();
        assert_eq!(["general", "mine"].map(|name| used(&project, name)), [Scope::Project; 2]);
        assert_eq!(announced(&project, "replaces"), 2, "{:?}", project.diagnostics);
    }
}
