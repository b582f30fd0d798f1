//! `CodingSetup`: agents and skills of a project and its user, file tools, commands in a sandbox, rules of settings files. A
//! project's files can only narrow until they are trusted.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    BoxFuture,
    diagnostic::Diagnostic,
    limits::Limits,
    memory::AgentMemories,
    rule::Rule,
    workspace::{Left, Workspace, Workspaces},
};
use homing_load::{ParseOptions, Places};
use homing_sandbox::{SandboxOptions, is_private};
use homing_tools::{
    files::contents::ContentStore,
    toolset::{ToolsConfig, files_tools},
    trust::{
        AuthorityFiles, TrustStore,
        settings::{self, Trust},
    },
};
use serde_json::Value;
use uuid::Uuid;

#[cfg(feature = "shell")]
use crate::commands::own_helper;
#[cfg(not(feature = "shell"))]
use crate::missing_features::{self, MissingFeature};
use crate::{
    Folders, HomingBuilder, PendingApproval, agent_memory::MemoryFolders, claude_plugins, environment,
    user_files::UserFiles,
};

/// Set-up of a coding agent: where definitions are found, and how commands run.
///
/// # Examples
///
/// ```no_run
/// use std::path::Path;
///
/// use homing::{CodingSetup, Homing};
///
/// let mut setup = CodingSetup::from_env(Path::new("."));
/// setup.built_in = false;
/// let builder = Homing::builder().coding_setup(setup);
/// ```
#[non_exhaustive]
pub struct CodingSetup {
    /// The folders in which agents and skills are searched.
    pub places: Places,
    /// Options for parsing their files.
    pub options: ParseOptions,
    /// The projects that the user trusts. `None` trusts nothing.
    pub trust: Option<TrustStore>,
    /// The program that supervises commands: its `main` must call `run_helper_if_asked`.
    pub helper: Option<PathBuf>,
    /// Leaves out everything that runs commands: `bash`, hooks, MCP servers and worktrees. Without it, a missing helper is an
    /// error.
    pub without_commands: bool,
    /// The environment variables, of which commands get a filtered part.
    pub env: BTreeMap<String, String>,
    /// Folders and variables that commands may use in addition.
    pub sandbox: SandboxOptions,
    /// Parent of the private folders of runs. Commands are refused unless only this user can write to it.
    pub private: PathBuf,
    /// Parent of the worktrees of runs, including those that are kept because of changes. Must be private, too.
    pub worktrees: PathBuf,
    /// Options of the tools.
    pub tools: ToolsConfig,
    /// Includes the built-in agents.
    pub built_in: bool,
    /// Upper bounds for the limits in untrusted files. An unset limit means the built-in default.
    pub limits: Limits,
    /// Tools that agents may give to child runs beyond their own, by agent. The user decides this, so it needs no trust.
    pub delegates: BTreeMap<String, Vec<Rule>>,
    /// MCP servers of the user by name, in the format of `mcpServers`. Their tools are available once they are approved.
    pub servers: BTreeMap<String, Value>,
    /// The file with the approved tools of servers.
    pub approvals: Option<PathBuf>,
}

impl std::fmt::Debug for CodingSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodingSetup")
            .field("places", &self.places)
            .field("helper", &self.helper)
            .finish_non_exhaustive()
    }
}

impl CodingSetup {
    /// Returns the set-up of the project around `folder`, with the user's folders and environment.
    pub fn from_env(folder: &Path) -> Self {
        let folders = Folders::from_env();
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let mut places = Places::new(folder);
        places.home = folders.home.clone();
        places.config = folders.config.as_deref().and_then(Path::parent).map(Path::to_owned);
        places.plugins = folders.plugins();
        places.plugins.extend(folders.home.iter().flat_map(|home| claude_plugins::enabled(home)));
        places.managed = ["/etc/homing", "/etc/claude-code"].map(PathBuf::from).to_vec();
        let private = private_folder(&folders);
        let mut tools = ToolsConfig::default();
        tools.contents = folders.contents().map(|folder| Arc::new(ContentStore::new(folder)));
        Self {
            places,
            options: ParseOptions::default(),
            trust: folders.trust().and_then(|path| TrustStore::load(path).ok()),
            #[cfg(feature = "shell")]
            helper: own_helper(),
            #[cfg(not(feature = "shell"))]
            helper: None,
            without_commands: cfg!(not(feature = "shell")),
            env: environment::variables(),
            sandbox: SandboxOptions::default(),
            worktrees: worktrees_folder(&folders).unwrap_or_else(|| private.join("worktrees")),
            private,
            tools,
            built_in: true,
            limits: Limits::default(),
            delegates: BTreeMap::new(),
            servers: BTreeMap::new(),
            approvals: folders.approvals(),
        }
    }

    /// Returns the user's own files, which agents do not use; `None` for a user without a home.
    pub(crate) fn user_files(&self) -> Option<UserFiles> {
        let config = self.places.config.as_ref().map(|config| config.join("homing"));
        let data = self.approvals.as_ref().and_then(|path| path.parent());
        Some(UserFiles::new(self.places.home.as_ref()?, config.as_deref(), data))
    }

    /// Adds everything to a builder.
    pub(crate) fn add_to(self, builder: HomingBuilder) -> HomingBuilder {
        let project = self.read();
        #[cfg(feature = "teams")]
        let teams = self.find_teams(&project.files, project.trust);
        let (mut builder, hooks) = add_settings(builder, &project.files, project.trust);
        builder.diagnostics.extend(project.diagnostics);
        #[cfg(feature = "teams")]
        teams.add_to(&mut builder);
        builder.pending.extend(project.pending);
        builder.config.taint.project_is_untrusted = project.is_untrusted;
        builder.config.taint.secrets = Some(Arc::new(homing_tools::secret_files::in_reach));
        builder.registry.merge(project.registry);
        builder.tools.extensions.skills = Some(Arc::new(project.skills));
        self.add_tools(builder, hooks, &project.servers)
    }

    #[cfg(not(feature = "shell"))]
    fn add_tools(
        self,
        mut builder: HomingBuilder,
        hooks: Vec<Value>,
        servers: &BTreeMap<String, Value>,
    ) -> HomingBuilder {
        let missing = |what: &str, feature| missing_features::warning(&MissingFeature::new(what, feature));
        builder.diagnostics.extend((!hooks.is_empty()).then(|| missing("this project has hooks", "shell")));
        let has_servers = !(servers.is_empty() && self.servers.is_empty());
        builder.diagnostics.extend(has_servers.then(|| missing("there are MCP servers", "mcp")));
        self.add_file_tools(builder)
    }

    /// Adds the tools that run inside this process, without commands.
    pub(crate) fn add_file_tools(mut self, mut builder: HomingBuilder) -> HomingBuilder {
        self.tools.skills = builder.tools.extensions.skills.clone();
        let memories = MemoryFolders::new(&self.places);
        builder.tools.extensions.workspaces = Some(Arc::new(RunFolders { worktrees: None, memories }));
        builder.tools(files_tools(self.tools))
    }
}

/// The folders that runs work in beside the project: worktrees and memories.
pub(crate) struct RunFolders {
    /// Needs commands.
    pub(crate) worktrees: Option<Box<dyn Workspaces>>,
    pub(crate) memories: MemoryFolders,
}

impl Workspaces for RunFolders {
    fn enter<'a>(&'a self, run: Uuid, workdir: &'a Path) -> BoxFuture<'a, Result<Workspace, String>> {
        match &self.worktrees {
            Some(worktrees) => worktrees.enter(run, workdir),
            None => {
                Box::pin(async { Err("this host does not run commands, so it cannot create worktrees".to_owned()) })
            }
        }
    }

    fn memories(&self) -> Option<&dyn AgentMemories> {
        Some(&self.memories)
    }

    fn leave<'a>(&'a self, run: Uuid, workspace: &'a Workspace) -> BoxFuture<'a, Left> {
        match &self.worktrees {
            Some(worktrees) => worktrees.leave(run, workspace),
            None => Box::pin(async { Left::Removed }),
        }
    }
}

/// Chooses the folder for the private folders of runs.
///
/// A fixed name in the machine's temporary folder would belong to the first user who creates it. The user's own folders
/// cannot be reached by others; a user who has none gets an unpredictable name.
fn private_folder(folders: &Folders) -> PathBuf {
    let runtime = folders.runtime.as_ref().filter(|folder| folder.parent().is_some_and(is_private));
    let own = runtime.or(folders.state.as_ref()).cloned();
    own.unwrap_or_else(|| environment::temporary_folder().join(format!("homing-{}", Uuid::new_v4())))
}

/// Chooses the folder for worktrees. Kept work must outlast the login session, so this is never the runtime folder.
fn worktrees_folder(folders: &Folders) -> Option<PathBuf> {
    Some(folders.state.as_ref()?.join("worktrees"))
}

/// Adds the rules of settings files, and returns their hooks. Rules that deny or ask always hold; hooks and allowed calls need
/// trust.
fn add_settings(mut builder: HomingBuilder, files: &AuthorityFiles, trust: Trust) -> (HomingBuilder, Vec<Value>) {
    let mut hooks = Vec::new();
    let names = [".claude/settings.json", ".claude/settings.local.json"];
    for path in files.paths().filter(|path| names.iter().any(|name| path.ends_with(name))) {
        let name = path.display().to_string();
        match settings::ClaudeSettings::parse(&name, files.get(path).unwrap_or_default()) {
            Ok(settings) => {
                if trust == Trust::Untrusted && !settings.hooks(Trust::Trusted).is_null() {
                    let what = format!("the hooks of {name} do not run, because this project's files are not trusted");
                    builder.diagnostics.push(Diagnostic::warning(what));
                    builder.pending.push(PendingApproval::ProjectFiles);
                }
                let warnings = settings.warnings.iter().map(Diagnostic::warning);
                builder.diagnostics.extend(warnings);
                hooks.extend(Some(settings.hooks(trust)).filter(|hooks| !hooks.is_null()));
                let settled = settings.allowed(trust).to_vec();
                builder.permissions = builder.permissions.layer(settings.layer.settled(settled));
            }
            Err(error) => builder.diagnostics.push(Diagnostic::warning(error.to_string())),
        }
    }
    (builder, hooks)
}

/// Returns a builder with everything a coding agent needs.
#[cfg(all(feature = "providers", feature = "sqlite"))]
pub(crate) fn builder(folder: &Path) -> HomingBuilder {
    let builder = HomingBuilder::default().coding_setup(CodingSetup::from_env(folder)).workdir(folder);
    let builder = builder.keys_from_env().with_project_context();
    match Folders::from_env().journal() {
        Some(path) => builder.journal(path),
        None => builder,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn private_folders_are_out_of_reach_of_other_users() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().join("run");
        fs::create_dir(&runtime).unwrap();
        let state = Some(folder.path().join("state/homing"));
        let mut folders = Folders { runtime: Some(runtime.join("homing")), state: state.clone(), ..Folders::default() };
        let mode = |mode| fs::set_permissions(&runtime, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o700);
        assert_eq!(private_folder(&folders), runtime.join("homing"));
        for open in [0o755, 0o770, 0o777] {
            mode(open);
            assert_eq!(Some(private_folder(&folders)), state, "{open:o}");
        }
        assert_eq!(worktrees_folder(&folders), Some(folder.path().join("state/homing/worktrees")));
        folders = Folders::default();
        assert_ne!(
            private_folder(&folders),
            private_folder(&folders),
            "a name in the temporary folder must not be fixed"
        );
    }
}
