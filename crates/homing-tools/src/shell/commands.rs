//! Runs the commands of a run, each in the sandbox that the run's authority requires. The `bash` tool, hooks and the
//! host's own checks all use this module.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Once, PoisonError},
    time::Duration,
};

use homing_core::{
    authority::{Allow, Decision, Grant, Network, Sandbox},
    rule::{Rule, Subjects},
    tool::{Effect, ToolState},
    trace_context::TraceContext,
};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::shell::{GIT_ONLY, GitCommands, changing_git_config, git_commands, git_only_env, git_only_env_for};
use homing_sandbox::{
    Access, CommandEnv, GitHooks, PolicyError, PrivateFolder, SandboxOptions, SandboxPolicy, Sandboxes,
    denied_paths::{self, DeniedPaths},
    git_folder, private_folder,
    process::{
        Collector, CommandEnd, CommandSpec, FinishedCommand, Input, LaunchError, Launcher, ProcessLimits, Protection,
        Streams,
    },
    proxy::Proxy,
};

/// Lists the names of git's settings, and of those in the repository's `.gitmodules`.
const LIST_SETTINGS: &str = "git config --list --name-only; top=$(git rev-parse --show-toplevel 2>/dev/null) && \
    git config --file \"$top/.gitmodules\" --list --name-only 2>/dev/null";

/// Lists the names of the repository's own settings, without the user's.
const LIST_OWN_SETTINGS: &str = "git config --local --includes --list --name-only; \
    git config --worktree --includes --list --name-only";

/// Timeout for listing git's settings.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything needed to run commands on this machine.
#[derive(Debug)]
pub struct Commands {
    /// Starts and supervises processes.
    pub launcher: Launcher,
    /// The host's environment and home.
    pub host_env: CommandEnv,
    /// The user's additions to what commands may touch.
    pub options: SandboxOptions,
    /// The parent of the runs' private folders.
    pub private: PathBuf,
    /// Resource limits of one command.
    pub limits: ProcessLimits,
    sandboxes: OnceCell<Sandboxes>,
    swept: Once,
}

/// The reason why a command was not started.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The required sandbox cannot be set up.
    #[error(transparent)]
    Refused(#[from] PolicyError),
    /// The process cannot be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The repository's git settings cannot all be neutralised.
    #[error("this repository has too many git settings to run git safely")]
    TooManySettings,
    /// The repository's git settings cannot be listed.
    #[error("cannot list this repository's git settings, which may name programs: {0}")]
    UnknownSettings(String),
    /// A git command would start a program that the repository configures.
    #[error(
        "not run: this repository's setting `{0}` names a program, which the rules on commands do not allow git to start; \
         remove the setting, or allow the whole tool"
    )]
    RepositoryProgram(String),
}

/// A shell command of a run.
#[derive(Clone, Debug)]
pub struct ShellCommand<'a> {
    /// The command line for bash.
    pub command: &'a str,
    /// The working folder.
    pub workdir: &'a Path,
    /// The permissions of the run.
    pub grant: &'a Grant,
    /// Timeout.
    pub time: Duration,
    /// Position in a distributed trace, which the command finds in `TRACEPARENT`.
    pub trace: Option<&'a TraceContext>,
}

impl Commands {
    /// Creates the commands of this machine. Sandbox back-ends are probed when the first command needs one.
    pub fn new(helper: PathBuf, host_env: CommandEnv, options: SandboxOptions, private: PathBuf) -> Self {
        let launcher = Launcher { helper };
        let limits = ProcessLimits::default();
        Self { launcher, host_env, options, private, limits, sandboxes: OnceCell::new(), swept: Once::new() }
    }

    /// Uses these back-ends instead of probing.
    #[must_use]
    pub fn with_sandboxes(self, sandboxes: Sandboxes) -> Self {
        Self { sandboxes: OnceCell::new_with(Some(sandboxes)), ..self }
    }

    /// Returns the back-end of this machine that works, and why the ones before it do not.
    pub async fn sandboxes(&self) -> &Sandboxes {
        let probe = || Sandboxes::probe_best(&self.launcher.helper, &self.host_env, &self.private);
        self.sandboxes.get_or_init(probe).await
    }

    /// Runs a command to its end; see [`homing_sandbox::process::Running::finish`].
    ///
    /// # Errors
    ///
    /// Fails if no sandbox is available, the policy cannot be applied, or the command cannot be started.
    pub async fn run(
        &self,
        command: ShellCommand<'_>,
        private: &PrivateFolder,
        cancelled: impl Future<Output = ()> + Send,
        on_output: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<FinishedCommand, CommandError> {
        let mut job = self.job(&command, private).await?;
        self.neutralise_git(&command, &mut job).await?;
        let output = private.root.join("output").join(format!("{}.txt", Uuid::new_v4()));
        let running = self.launcher.start(job).await?;
        Ok(running.finish(Collector::new(Some(output)), command.time, cancelled, on_output).await)
    }

    /// Keeps git from starting programs that a repository configures, if rules limit commands by patterns: a rule that allows
    /// git must not allow those programs. For read-only commands this also holds without a sandbox, where nothing else stops
    /// them.
    async fn neutralise_git(&self, command: &ShellCommand<'_>, job: &mut CommandSpec) -> Result<(), CommandError> {
        let (git, has_patterns) = (git_commands(command.command), has_patterns(command.grant));
        let is_restricted = command.grant.sandbox == Sandbox::Off || has_patterns;
        match git {
            GitCommands::Changing | GitCommands::ChangingAmongOthers if has_patterns => {
                let settings = self.list_settings(job, LIST_OWN_SETTINGS).await?;
                let config = changing_git_config(settings.lines()).map_err(CommandError::RepositoryProgram)?;
                add_git_config(job, config);
            }
            _ if is_git_only(command.grant) => job.env.extend(self.neutral_git(job).await?),
            GitCommands::OnlyReadOnly | GitCommands::ReadOnlyAmongOthers if is_restricted => {
                job.env.extend(self.neutral_git(job).await?);
            }
            GitCommands::None
            | GitCommands::Changing
            | GitCommands::ChangingAmongOthers
            | GitCommands::OnlyReadOnly
            | GitCommands::ReadOnlyAmongOthers => return Ok(()),
        }
        // Another program of the line may change to a folder whose repository has other settings.
        if matches!(git, GitCommands::ReadOnlyAmongOthers | GitCommands::ChangingAmongOthers) {
            job.env.extend(pinned_repository(command.workdir));
        }
        Ok(())
    }

    /// Returns the environment in which git runs no program configured by the repository of `job`.
    pub(crate) async fn neutral_git(&self, job: &CommandSpec) -> Result<Vec<(String, String)>, CommandError> {
        Ok(git_only_env_for(self.list_settings(job, LIST_SETTINGS).await?.lines()))
    }

    /// Returns the names of git's settings that `list` prints. Listing runs no program.
    async fn list_settings(&self, job: &CommandSpec, list: &str) -> Result<String, CommandError> {
        let argv = ["bash", "--noprofile", "--norc", "-c", list].map(str::to_owned).to_vec();
        let mut env = job.env.clone();
        env.extend(git_only_env());
        let listing = CommandSpec { argv, env, input: Input::Nothing, protected: Protection::default(), ..job.clone() };
        let running = self.launcher.start(listing).await?;
        let finished = running.finish(Collector::new(None), LIST_TIMEOUT, std::future::pending(), &mut |_| ()).await;
        match &finished.ending {
            // Git fails where its settings cannot be read, and so does the command itself.
            CommandEnd::Exited(_) => (),
            CommandEnd::Refused(why) => return Err(CommandError::UnknownSettings(why.clone())),
            CommandEnd::Signalled(_) | CommandEnd::TimedOut | CommandEnd::Cancelled => {
                return Err(CommandError::UnknownSettings("listing them did not finish".to_owned()));
            }
        }
        if finished.output.total > finished.output.text.len() as u64 {
            return Err(CommandError::TooManySettings);
        }
        Ok(finished.output.text)
    }

    /// Prepares a command with its sandbox, ready to start.
    pub(crate) async fn job(
        &self,
        command: &ShellCommand<'_>,
        private: &PrivateFolder,
    ) -> Result<CommandSpec, CommandError> {
        // Before probing: a back-end that fails because of an invalid private folder would be reported as broken.
        private.prepare(&self.host_env)?;
        // After it: the folder of a resumed run belongs to this process now.
        self.sweep_once();
        let mut access = Access::of(command.grant, &self.options);
        // In a linked worktree of the user, git must be able to read the repository. A folder that this run may only read
        // may be writable for another run, so all folders of the grant count as roots.
        let grant = command.grant;
        let roots: Vec<PathBuf> =
            [&grant.read, &grant.write, &self.options.write].into_iter().flatten().cloned().collect();
        access.read.extend(git_folder::readable(command.workdir, &roots));
        let none = Sandboxes::none(&self.launcher.helper);
        let sandboxes = match access.sandbox {
            Sandbox::Off => &none,
            Sandbox::ReadOnly | Sandbox::WorkspaceWrite => self.sandboxes().await,
        };
        let hooks = git_hooks(command.grant);
        let proxy = start_proxy(&access, sandboxes, private);
        access.proxy_socket = proxy.as_ref().map(|proxy| proxy.socket.clone());
        access.denied = match access.sandbox {
            Sandbox::ReadOnly | Sandbox::WorkspaceWrite => find_denied(grant, &access, command.workdir).await?,
            Sandbox::Off => DeniedPaths::default(),
        };
        let (host_env, options) = (&self.host_env, &self.options);
        let mut policy = SandboxPolicy::build(&access, sandboxes, host_env, options, private, command.workdir, hooks)?;
        if let Some(trace) = command.trace {
            policy.env.insert("TRACEPARENT".to_owned(), trace.to_string());
            policy.env.extend(trace.state.clone().map(|state| ("TRACESTATE".to_owned(), state)));
        }
        Ok(CommandSpec {
            argv: ["bash", "--noprofile", "--norc", "-c", command.command].map(str::to_owned).to_vec(),
            workdir: command.workdir.to_owned(),
            env: policy.env,
            input: Input::Nothing,
            confinement: policy.confinement,
            limits: self.limits.clone(),
            protected: policy.protected,
            streams: Streams::Together,
            proxy,
        })
    }

    /// Removes private folders of killed processes, once, in the background.
    fn sweep_once(&self) {
        self.swept.call_once(|| {
            let parent = self.private.clone();
            std::thread::spawn(move || private_folder::sweep(&parent));
        });
    }

    /// Returns the private folder of a run. It is removed when the run's tool state is dropped.
    pub fn private_folder(&self, run: Uuid, state: &ToolState) -> Arc<PrivateFolder> {
        state.get::<RunFolder>().get_or_make(|| PrivateFolder { root: self.private.join(run.to_string()) })
    }
}

/// Finds the paths that deny rules close to commands. Large folders take a while, so a thread of its own searches them.
async fn find_denied(grant: &Grant, access: &Access, workdir: &Path) -> Result<DeniedPaths, PolicyError> {
    if denied_paths::rules(grant).is_empty() {
        return Ok(DeniedPaths::default());
    }
    let (grant, access, workdir) = (grant.clone(), access.clone(), workdir.to_owned());
    let search = tokio::task::spawn_blocking(move || DeniedPaths::find(&grant, &access, &workdir));
    search.await.unwrap_or_else(|error| Err(PolicyError::Denied { rules: String::new(), why: error.to_string() }))
}

/// Starts the proxy to the hosts that a command may reach. Without a back-end that can enforce the list there is none.
fn start_proxy(access: &Access, sandboxes: &Sandboxes, private: &PrivateFolder) -> Option<Arc<Proxy>> {
    match &access.network {
        Network::Hosts(hosts) if access.sandbox != Sandbox::Off && sandboxes.can_restrict_hosts() => {
            Proxy::start(&private.root, hosts).ok().map(Arc::new)
        }
        Network::Hosts(_) | Network::Off | Network::On => None,
    }
}

/// Disables the repository's hooks for read-only runs and for runs that may only use git.
fn git_hooks(grant: &Grant) -> GitHooks {
    match (grant.sandbox, is_git_only(grant)) {
        (Sandbox::ReadOnly, _) | (_, true) => GitHooks::Off,
        (Sandbox::WorkspaceWrite | Sandbox::Off, false) => GitHooks::Run,
    }
}

/// Adds settings for git to those that a command already gets through its environment.
fn add_git_config(job: &mut CommandSpec, config: Vec<(String, &'static str)>) {
    let count = |env: &BTreeMap<String, String>| env.get("GIT_CONFIG_COUNT").and_then(|count| count.parse().ok());
    let first: usize = count(&job.env).unwrap_or(0);
    job.env.insert("GIT_CONFIG_COUNT".to_owned(), (first + config.len()).to_string());
    for (at, (key, value)) in config.into_iter().enumerate() {
        job.env.insert(format!("GIT_CONFIG_KEY_{}", first + at), key);
        job.env.insert(format!("GIT_CONFIG_VALUE_{}", first + at), value.to_owned());
    }
}

/// Returns variables that make git use the repository of `workdir`, whose settings are known, in every folder.
fn pinned_repository(workdir: &Path) -> Vec<(String, String)> {
    let Some(git) = git_folder::locate(workdir, &[]) else { return Vec::new() };
    let variables = [("GIT_DIR", git.top.join(".git")), ("GIT_WORK_TREE", git.top)];
    variables.map(|(name, path)| (name.to_owned(), path.display().to_string())).to_vec()
}

/// Returns true if a layer allows the shell only by patterns, or if it needs approval and patterns give it in advance.
fn has_patterns(grant: &Grant) -> bool {
    let only_patterns = |rules: &[Rule]| {
        let mut named = rules.iter().filter(|rule| rule.names("bash")).peekable();
        named.peek().is_some() && named.all(|rule| rule.pattern.is_some())
    };
    let asks = matches!(grant.decide("bash", Effect::Commands, &Subjects::None), Decision::Ask { .. });
    grant.layers.iter().any(|layer| {
        let is_limited = match &layer.allow {
            Allow::All => false,
            Allow::Only(rules) => only_patterns(rules),
        };
        is_limited || (asks && only_patterns(&layer.settled))
    })
}

/// Returns true if a layer allows the shell only for git.
fn is_git_only(grant: &Grant) -> bool {
    grant.layers.iter().any(|layer| match &layer.allow {
        Allow::All => false,
        Allow::Only(rules) => rules.iter().any(|rule| rule.tool == "bash" && rule.pattern.as_deref() == Some(GIT_ONLY)),
    })
}

/// A run's private folder, created on first use.
#[derive(Default)]
struct RunFolder(Mutex<Option<Arc<PrivateFolder>>>);

impl RunFolder {
    fn get_or_make(&self, make: impl FnOnce() -> PrivateFolder) -> Arc<PrivateFolder> {
        let mut folder = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        folder.get_or_insert_with(|| Arc::new(make())).clone()
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let folder = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Removing large caches takes time, and the state may be dropped in an async task.
        if let Some(folder) = folder {
            std::thread::spawn(move || folder.remove());
        }
    }
}
