//! `CodingSetup`: agents and skills of a project and its user, file tools, commands in a sandbox, rules of settings files. A
//! project's files can only narrow until they are trusted.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use homing_core::{
    BoxFuture,
    diagnostic::Diagnostic,
    limits::Limits,
    memory::AgentMemories,
    rule::Rule,
    tool::Tool,
    workspace::{Left, Workspace, Workspaces},
};
use homing_load::{ParseOptions, Places};
use homing_sandbox::{CommandEnv, SandboxOptions, is_private};
use homing_tools::{
    files::contents::ContentStore,
    hooks::{CommandHooks, HookConfig},
    mcp::ServerConfig,
    shell::{bash::Bash, command_changes::CommandChanges, commands::Commands, sandboxed_git::SandboxedGit},
    toolset::{ToolsConfig, files_tools},
    trust::{
        AuthorityFiles, TrustStore,
        settings::{self, Trust},
    },
    worktree::GitWorktrees,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    Folders, HomingBuilder, PendingApproval, agent_memory::MemoryFolders, claude_plugins, environment, servers::serve,
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
    /// The program that supervises commands: its `main` must call [`run_helper_if_asked`].
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
            helper: own_helper(),
            without_commands: false,
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

    fn add_tools(
        mut self,
        mut builder: HomingBuilder,
        hooks: HookConfig,
        servers: &BTreeMap<String, Value>,
    ) -> HomingBuilder {
        self.tools.skills = builder.tools.extensions.skills.clone();
        let memories = MemoryFolders::new(&self.places);
        let Some(helper) = self.helper.filter(|_| !self.without_commands) else {
            builder.tools.extensions.workspaces = Some(Arc::new(RunFolders { worktrees: None, memories }));
            return builder.tools(files_tools(self.tools));
        };
        let home = self.places.home.clone().unwrap_or_else(|| self.private.join("home"));
        let command_env = CommandEnv { home, env: self.env };
        // A server of the user takes precedence over one of the project with the same name.
        let mut common = servers.clone();
        common.extend(self.servers);
        let known =
            common.iter().chain(builder.registry.definitions().flat_map(|agent| &agent.integrations.mcp_servers));
        let known = known.filter_map(|(name, value)| ServerConfig::parse(name, value).ok());
        let secrets: Vec<String> = known.flat_map(|config| config.secrets(&command_env)).collect();
        builder.config.secrets = builder.config.secrets.and(secrets);
        let commands = Arc::new(Commands::new(helper, command_env, self.sandbox, self.private.clone()));
        builder.tools.commands = Some(commands.clone());
        self.tools.git = Some(Arc::new(SandboxedGit { commands: commands.clone() }));
        let folders = server_folders(&self.places);
        let served = serve(&common, &mut builder.registry, self.approvals.as_deref(), &commands, folders);
        builder.diagnostics.extend(served.diagnostics);
        builder.pending.extend(served.pending);
        builder.tools.agent_tools = served.agent_tools;
        let agent_hooks = builder
            .registry
            .definitions()
            .map(|agent| agent.integrations.hooks.clone())
            .filter(|hooks| !hooks.is_null());
        let hooks = CommandHooks::new(commands.clone(), hooks).with_agents(agent_hooks.collect());
        let contents = self.tools.contents.clone();
        let changes = contents.map(|contents| Arc::new(CommandChanges::new(contents, self.worktrees.clone())));
        let bash: Arc<dyn Tool> = Arc::new(Bash::new(commands.clone()).with_changes(changes));
        let sandbox = homing_core::authority::Sandbox::WorkspaceWrite;
        let extensions = &mut builder.tools.extensions;
        extensions.hooks = Some(Arc::new(hooks));
        let worktrees = Some(GitWorktrees { commands, folder: self.worktrees, sandbox });
        extensions.workspaces = Some(Arc::new(RunFolders { worktrees, memories }));
        builder.tools(files_tools(self.tools)).tools(served.tools).tool(bash)
    }
}

/// The folders that runs work in beside the project: worktrees and memories.
struct RunFolders {
    /// Needs commands.
    worktrees: Option<GitWorktrees>,
    memories: MemoryFolders,
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

/// Returns the folder in which MCP servers work, then the project's other folders. No server's program may be in one of them.
pub fn server_folders(places: &Places) -> Vec<PathBuf> {
    let around = places.project_folders().into_iter().filter(|folder| *folder != places.cwd);
    [places.cwd.clone()].into_iter().chain(around).collect()
}

/// Adds the rules of settings files. Rules that deny or ask always hold; hooks and allowed calls need trust.
fn add_settings(mut builder: HomingBuilder, files: &AuthorityFiles, trust: Trust) -> (HomingBuilder, HookConfig) {
    let mut hooks = HookConfig::default();
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
                let (config, warnings) = HookConfig::parse(&settings.hooks(trust));
                builder.diagnostics.extend(warnings.into_iter().map(Diagnostic::warning));
                hooks = hooks.and(config);
                let settled = settings.allowed(trust).to_vec();
                builder.permissions = builder.permissions.layer(settings.layer.settled(settled));
            }
            Err(error) => builder.diagnostics.push(Diagnostic::warning(error.to_string())),
        }
    }
    (builder, hooks)
}

/// Set once this program has shown that it can be started as its own helper.
static IS_HELPER: OnceLock<()> = OnceLock::new();

/// Makes this program the helper that supervises commands. Call it first in `main`: commands are started below a second
/// process of this program, in which this function does not return.
///
/// # Examples
///
/// ```no_run
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     homing::run_helper_if_asked();
///     let homing = homing::Homing::coding(".").build()?;
///     // …
///     Ok(())
/// }
/// ```
pub fn run_helper_if_asked() {
    homing_sandbox::process::run_helper_if_asked(std::env::args_os());
    let _ = IS_HELPER.set(());
}

/// Returns this program if it can be its own helper, otherwise the program `homing-helper` beside it.
fn own_helper() -> Option<PathBuf> {
    let program = environment::executable().ok()?;
    if IS_HELPER.get().is_some() {
        return Some(program);
    }
    let beside = program.parent()?.join("homing-helper");
    beside.is_file().then_some(beside)
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
