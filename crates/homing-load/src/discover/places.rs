//! The list of folders to look into. It turns what the host said into paths and reads nothing but folder names.

use std::path::{Path, PathBuf};

use homing_core::definition::Scope;

use super::plugin_name;
use crate::{
    dialect::{self, Depth, Dialect, DialectFolder},
    walk::{self, Listing, WalkFilter},
};

/// Where to look. Nothing here is taken from the environment: the host says it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Places {
    /// The folder of the project, or one inside it.
    pub cwd: PathBuf,
    /// The user's home folder.
    pub home: Option<PathBuf>,
    /// The user's configuration folder, such as `~/.config`.
    pub config: Option<PathBuf>,
    /// Folders set by an administrator; agents lie in `agents` and `.claude/agents` below them.
    pub managed: Vec<PathBuf>,
    /// Folders of plugins; agents lie in `agents` below each.
    pub plugins: Vec<PathBuf>,
    /// Further folders of agents, named on the command line or in the configuration.
    pub folders: Vec<PathBuf>,
    /// Agents as JSON: one object, or a map of name to object.
    pub agents_json: Option<String>,
}

impl Places {
    /// The project around `cwd` and nothing of the user's.
    pub fn new(cwd: impl Into<PathBuf>) -> Self {
        Self { cwd: cwd.into(), ..Self::default() }
    }

    /// The folders of the project, the outermost first: from the repository's root down to the working folder.
    /// Without a repository, the working folder alone.
    pub fn project_folders(&self) -> Vec<PathBuf> {
        let Some(root) = repository(&self.cwd) else { return vec![self.cwd.clone()] };
        let mut folders: Vec<PathBuf> =
            self.cwd.ancestors().take_while(|it| it.starts_with(root)).map(Path::to_owned).collect();
        folders.reverse();
        // A home folder that is a repository is still the user's, not a project.
        folders.retain(|it| Some(it) != self.home.as_ref() || *it == self.cwd);
        folders
    }
}

/// The root of the repository that a folder lies in.
pub(crate) fn repository(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|it| it.join(".git").exists())
}

/// One folder, or one file, with agents of one dialect.
pub(super) struct AgentFolder {
    pub(super) dialect: &'static Dialect,
    pub(super) scope: Scope,
    pub(super) nearness: usize,
    pub(super) plugin: Option<String>,
    path: PathBuf,
    depth: Depth,
    endings: &'static [&'static str],
    fence: Option<PathBuf>,
}

impl AgentFolder {
    fn of(dialect: &'static Dialect, scope: Scope, base: &Path, folder: DialectFolder) -> Self {
        Self {
            dialect,
            scope,
            nearness: 0,
            plugin: None,
            path: base.join(folder.path),
            depth: folder.depth,
            endings: folder.endings,
            fence: None,
        }
    }

    pub(super) fn list(&self) -> Listing {
        let fence = self.fence.as_deref();
        if self.endings.is_empty() {
            return walk::single(&self.path, fence);
        }
        walk::list(&self.path, WalkFilter { depth: self.depth, endings: self.endings, fence, skipped: &[".git"] })
    }
}

/// Every folder in which agents may lie.
pub(super) fn agent_spots(places: &Places) -> Vec<AgentFolder> {
    let mut spots = Vec::new();
    managed(places, &mut spots);
    let folders = places.project_folders();
    for (nearness, folder) in folders.iter().enumerate() {
        project(folder, nearness, folders.first().unwrap_or(folder), &mut spots);
    }
    spots.retain(|it| !is_users(places, it));
    user(places, &mut spots);
    for folder in &places.plugins {
        plugin(folder, &mut spots);
    }
    let named = |path: &PathBuf| AgentFolder::of(dialect::own(), Scope::CommandLine, path, dialect::anything("."));
    spots.extend(places.folders.iter().map(named));
    spots
}

/// Run in one's home folder, the user's own agents are still the user's.
fn is_users(places: &Places, spot: &AgentFolder) -> bool {
    spot.scope == Scope::Project
        && places
            .home
            .as_deref()
            .is_some_and(|home| spot.dialect.home.iter().any(|folder| home.join(folder.path) == spot.path))
}

fn project(folder: &Path, nearness: usize, root: &Path, spots: &mut Vec<AgentFolder>) {
    for dialect in dialect::ALL {
        let folders = dialect.project.iter().copied();
        let files = dialect.files.iter().map(|it| DialectFolder { path: it, depth: Depth::Flat, endings: &[] });
        spots.extend(folders.chain(files).map(|it| AgentFolder {
            nearness,
            fence: Some(root.to_owned()),
            ..AgentFolder::of(dialect, Scope::Project, folder, it)
        }));
    }
}

fn user(places: &Places, spots: &mut Vec<AgentFolder>) {
    for dialect in dialect::ALL {
        let home = places.home.iter().flat_map(|base| dialect.home.iter().map(move |it| (base, *it)));
        let config = places.config.iter().flat_map(|base| dialect.config.iter().map(move |it| (base, *it)));
        spots.extend(home.chain(config).map(|(base, it)| AgentFolder::of(dialect, Scope::User, base, it)));
    }
    let file = |base: &PathBuf| {
        let folder = DialectFolder { path: "homing/agents.json", depth: Depth::Flat, endings: &[] };
        AgentFolder::of(dialect::own(), Scope::User, base, folder)
    };
    spots.extend(places.config.as_ref().map(file));
}

fn managed(places: &Places, spots: &mut Vec<AgentFolder>) {
    for base in &places.managed {
        spots.push(AgentFolder::of(dialect::own(), Scope::Managed, base, dialect::anything("agents")));
        spots.push(AgentFolder::of(dialect::interchange(), Scope::Managed, base, dialect::anything(".claude/agents")));
    }
}

/// Plugins are written for Claude Code, unless they say that they are ours.
fn plugin(folder: &Path, spots: &mut Vec<AgentFolder>) {
    let dialect = match folder.join(".claude-plugin").exists() {
        true => dialect::interchange(),
        false => dialect::own(),
    };
    let spot = AgentFolder::of(dialect, Scope::Plugin, folder, dialect::anything("agents"));
    spots.push(AgentFolder { plugin: plugin_name(folder), fence: Some(folder.to_owned()), ..spot });
}
