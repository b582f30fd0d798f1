//! The models, skills, MCP servers and agents that exist, to find names in agent files that refer to none of them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use homing::{CodingSetup, Folders, environment};
use homing_core::{definition::ModelChoice, registry::Registry, skill::SkillLibrary};
use homing_load::{CheckReport, Discovered, KnownNames, MAX_FILE, ParseOptions, Places};
use homing_models::{
    Providers,
    names::{ResolveWarning, Resolver, Unresolved, alias_names},
};
use serde_json::Value;

use crate::{config::Layered, session::AsIfUsable};

/// The number of folders above a checked file that may be its project.
const MAX_ABOVE: usize = 4;

/// Everything that a name in an agent file may refer to.
pub(super) struct Known {
    agents: Registry,
    skills: BTreeSet<String>,
    servers: BTreeSet<String>,
    config: Layered,
}

impl Known {
    /// The servers and models of the user and the current project.
    pub(super) fn of(setup: &CodingSetup) -> anyhow::Result<Self> {
        let config = Layered::read(Folders::from_env().config.as_deref(), &setup.places.cwd)?;
        let servers = config.user.mcp.keys().cloned().collect();
        let mut known = Self { agents: Registry::default(), skills: BTreeSet::new(), servers, config };
        for folder in setup.places.project_folders() {
            known.add_servers(&folder);
        }
        Ok(known)
    }

    /// Adds agents and skills.
    pub(super) fn add(&mut self, found: &Discovered) {
        self.agents.register_all(found.registry.definitions().map(|definition| (**definition).clone()));
        self.skills.extend(found.skills.list().iter().map(|card| card.name.clone()));
    }

    /// Adds what the checked files define, and the projects around them.
    pub(super) fn add_around(&mut self, paths: &[PathBuf], report: &CheckReport) {
        self.agents.register_all(report.found.iter().cloned());
        self.skills.extend(report.found_skills.iter().cloned());
        let whole = paths.iter().filter_map(|path| fs::canonicalize(path).ok());
        let projects: BTreeSet<PathBuf> = whole.filter_map(|path| project_of(&path)).collect();
        for project in projects {
            let mut places = Places::new(project);
            places.skip_built_in = true;
            self.add(&homing_load::discover(&places, &ParseOptions::default()));
            places.project_folders().iter().for_each(|folder| self.add_servers(folder));
        }
    }

    /// Adds the servers of a project, trusted or not.
    fn add_servers(&mut self, folder: &Path) {
        let path = folder.join(".mcp.json");
        let is_small = fs::metadata(&path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_FILE);
        let text = if is_small { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let servers = value.get("mcpServers").and_then(Value::as_object).into_iter().flatten();
        self.servers.extend(servers.map(|(name, _)| name.clone()));
    }

    /// Adds warnings about unknown names to the report.
    pub(super) fn check(&self, report: &mut CheckReport) {
        let user = &self.config.user;
        let providers = Providers::new(user.providers.clone(), environment::key);
        let resolver = Resolver {
            providers: &AsIfUsable(&providers),
            default: None,
            aliases: user.aliases.clone(),
            map: user.model_map.iter().map(|(from, to)| (from.clone(), to.clone())).collect(),
            strict: true,
        };
        let is_model = |name: &str| {
            let resolved = resolver.resolve(&ModelChoice::Named(vec![name.to_owned()]), None);
            !matches!(resolved, Err(Unresolved::Strict(ResolveWarning::UnknownModel { .. })))
        };
        let aliases = alias_names().map(str::to_owned).chain(user.aliases.keys().cloned());
        report.cross_check(&KnownNames {
            agents: &self.agents,
            skills: self.skills.clone(),
            servers: self.servers.clone(),
            models: aliases.collect(),
            is_model: &is_model,
        });
    }
}

/// The folder above the agent folder that contains a file: it has a folder whose name begins with a dot.
fn project_of(path: &Path) -> Option<PathBuf> {
    let mut above = path.ancestors().take(MAX_ABOVE + 1);
    let hidden = above.find(|folder| folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')))?;
    hidden.parent().map(Path::to_owned)
}
