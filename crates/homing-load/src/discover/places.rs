//! The list of folders in which agents are searched. It computes paths and reads no file but a plugin's manifest.

use std::path::{Path, PathBuf};

use homing_core::definition::Scope;

use super::{plugin_name, plugin_paths};
use crate::{
    dialect::{self, Depth, Dialect, DialectFolder, single_file},
    skills,
    walk::{self, Listing, WalkFilter},
};

/// The places that are searched. The host sets them; nothing is taken from the environment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Places {
    /// The folder of the project, or one inside it.
    pub cwd: PathBuf,
    /// The user's home folder.
    pub home: Option<PathBuf>,
    /// The user's configuration folder, such as `~/.config`.
    pub config: Option<PathBuf>,
    /// Folders of an administrator; their agents are in `agents` and `.claude/agents`.
    pub managed: Vec<PathBuf>,
    /// Folders of plugins; their agents are in `agents`.
    pub plugins: Vec<PathBuf>,
    /// Further folders of agents, from the user's configuration or the caller.
    pub folders: Vec<PathBuf>,
    /// Files of agents that the user named. They win over the project's agents and need trust like them.
    pub files: Vec<PathBuf>,
    /// Agents as JSON: one object, or a map of name to object.
    pub agents_json: Option<String>,
    /// Leaves out the built-in agents.
    pub skip_built_in: bool,
}

impl Places {
    /// The project around `cwd`, without any folders of the user.
    pub fn new(cwd: impl Into<PathBuf>) -> Self {
        Self { cwd: cwd.into(), ..Self::default() }
    }

    /// The folders of the project, the outermost first: from the repository root down to the working folder, or only the
    /// working folder if it is not in a repository.
    pub fn project_folders(&self) -> Vec<PathBuf> {
        let Some(root) = repository(&self.cwd) else { return vec![self.cwd.clone()] };
        let mut folders: Vec<PathBuf> =
            self.cwd.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_owned).collect();
        folders.reverse();
        // A home folder that is a repository still belongs to the user, not to the project.
        folders.retain(|folder| Some(folder) != self.home.as_ref() || *folder == self.cwd);
        folders
    }
}

/// Returns every path that is read in each folder of a project, relative to the folder: files and folders of agents and of
/// skills. What agents may write must not be among them, because it decides what later runs do.
pub fn project_paths() -> Vec<PathBuf> {
    let of_dialect = |dialect: &&'static Dialect| {
        let folders = dialect.project.iter().map(|folder| folder.path);
        folders.chain(dialect.files.iter().copied())
    };
    let agents = dialect::ALL.iter().flat_map(of_dialect);
    agents.chain(skills::FOLDERS.iter().copied()).map(PathBuf::from).collect()
}

/// The root of the repository that contains a folder.
pub(crate) fn repository(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|ancestor| ancestor.join(".git").exists())
}

/// One folder or file with agents of one dialect.
#[derive(Debug)]
pub(super) struct AgentFolder {
    pub(super) dialect: &'static Dialect,
    pub(super) scope: Scope,
    pub(super) nearness: usize,
    pub(super) plugin: Option<String>,
    path: PathBuf,
    depth: Depth,
    endings: &'static [&'static str],
    /// The project or plugin, which links and references must not leave.
    pub(super) fence: Option<PathBuf>,
    /// True if it was listed and has nothing but files with these endings.
    pub(super) is_whole: bool,
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
            is_whole: false,
        }
    }

    /// Returns true if it is a single file.
    pub(super) fn is_file(&self) -> bool {
        self.endings.is_empty()
    }

    /// Returns true if one of the two contains the other, so that a file may be in both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.path.starts_with(&other.path) || other.path.starts_with(&self.path)
    }

    /// Returns true if `other`, which was listed, is the same folder and has nothing but files with other endings.
    pub(super) fn is_empty_like(&self, other: &Self) -> bool {
        let is_like = |ending: &str, other: &str| ending.ends_with(other) || other.ends_with(ending);
        let may_have = |ending: &&str| other.endings.iter().any(|other| is_like(ending, other));
        other.is_whole && !self.is_file() && !self.endings.iter().any(may_have) && self.path == other.path
    }

    pub(super) fn list(&self) -> Listing {
        let fence = self.fence.as_deref();
        if self.is_file() {
            return walk::single(&self.path, fence);
        }
        walk::list(&self.path, WalkFilter { depth: self.depth, endings: self.endings, fence, skipped: &[".git"] })
    }
}

/// All folders and files that may contain agents.
pub(super) fn agent_folders(places: &Places) -> Vec<AgentFolder> {
    let mut found = managed(places);
    let folders = places.project_folders();
    for (nearness, folder) in folders.iter().enumerate() {
        found.extend(project(folder, nearness, folders.first().unwrap_or(folder)));
    }
    found.retain(|folder| !belongs_to_user(places, folder));
    found.extend(user(places));
    found.extend(places.plugins.iter().flat_map(|folder| plugin(folder)));
    let named = |path: &PathBuf| AgentFolder::of(dialect::own(), Scope::CommandLine, path, dialect::anything("."));
    found.extend(places.folders.iter().map(named));
    found
}

/// Returns true for the user's own folders, which are not the project's even if the home folder is the project.
fn belongs_to_user(places: &Places, candidate: &AgentFolder) -> bool {
    let Some(home) = places.home.as_deref() else { return false };
    let is_candidate = |folder: &DialectFolder| home.join(folder.path) == candidate.path;
    candidate.scope == Scope::Project && candidate.dialect.home.iter().any(is_candidate)
}

fn project(base: &Path, nearness: usize, root: &Path) -> Vec<AgentFolder> {
    let in_dialect = |dialect: &&'static Dialect| {
        let dialect = *dialect;
        let files = dialect.files.iter().map(|path| single_file(path));
        dialect.project.iter().copied().chain(files).map(move |folder| AgentFolder {
            nearness,
            fence: Some(root.to_owned()),
            ..AgentFolder::of(dialect, Scope::Project, base, folder)
        })
    };
    dialect::ALL.iter().flat_map(in_dialect).collect()
}

fn user(places: &Places) -> Vec<AgentFolder> {
    let mut found = Vec::new();
    for dialect in dialect::ALL {
        let home = places.home.iter().flat_map(|base| dialect.home.iter().map(move |folder| (base, *folder)));
        let config = places.config.iter().flat_map(|base| dialect.config.iter().map(move |folder| (base, *folder)));
        let folders = home.chain(config);
        found.extend(folders.map(|(base, folder)| AgentFolder::of(dialect, Scope::User, base, folder)));
    }
    let file = |base: &PathBuf| AgentFolder::of(dialect::own(), Scope::User, base, single_file("homing/agents.json"));
    found.extend(places.config.as_ref().map(file));
    found
}

fn managed(places: &Places) -> Vec<AgentFolder> {
    let folders = |base: &PathBuf| {
        let claude = dialect::anything(".claude/agents");
        [
            AgentFolder::of(dialect::own(), Scope::Managed, base, dialect::anything("agents")),
            AgentFolder::of(dialect::interchange(), Scope::Managed, base, claude),
        ]
    };
    places.managed.iter().flat_map(folders).collect()
}

/// The agents of a plugin: in `agents`, and where its manifest says. Plugins with a Claude Code manifest use that dialect.
fn plugin(base: &Path) -> Vec<AgentFolder> {
    let is_claude = base.join(".claude-plugin").exists();
    let dialect = if is_claude { dialect::interchange() } else { dialect::own() };
    let at = |path: PathBuf| {
        let is_file = base.join(&path).is_file();
        let kind = if is_file { single_file("") } else { dialect::anything("") };
        let folder = AgentFolder::of(dialect, Scope::Plugin, base, kind);
        AgentFolder { path: base.join(path), plugin: plugin_name(base), fence: Some(base.to_owned()), ..folder }
    };
    [PathBuf::from("agents")].into_iter().chain(plugin_paths(base, "agents")).map(at).collect()
}
