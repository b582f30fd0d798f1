//! Commands of a run: each in the sandbox that the run's authority asks for, or not at all. The one place where walls,
//! processes and authority meet; the shell tool and a host's own checks (`--until`) both go through it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use homing_core::{
    authority::{Allow, Grant, Network, Sandbox},
    tool::ToolState,
};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::shell::{GIT_ONLY, git_only_env, git_only_env_for, only_looks_with_git};
use homing_sandbox::{
    Access, CommandEnv, GitHooks, PolicyError, Private, SandboxOptions, SandboxPolicy, Sandboxes, git_folder,
    private_folder,
    process::{Collector, CommandSpec, FinishedCommand, Input, LaunchError, Launcher, ProcessLimits, Streams, WayOut},
    proxy::Proxy,
};

/// How long git may take to list its settings.
const LISTING: Duration = Duration::from_secs(10);

/// What commands are run with on this machine.
#[derive(Debug)]
pub struct Commands {
    /// Starts and watches over processes.
    pub launcher: Launcher,
    /// The host's environment and home.
    pub surroundings: CommandEnv,
    /// The user's additions to what commands may touch.
    pub options: SandboxOptions,
    /// Where runs get their private folders.
    pub private: PathBuf,
    /// What one command may take.
    pub limits: ProcessLimits,
    sandboxes: OnceCell<Sandboxes>,
}

/// A command that was not run.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It cannot be confined as it must be.
    #[error(transparent)]
    Refused(#[from] PolicyError),
    /// It cannot be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Git may not be run in this repository.
    #[error("this repository has too many settings to be looked at safely")]
    TooManySettings,
}

/// A shell command of a run.
#[derive(Clone, Debug)]
pub struct ShellCommand<'a> {
    /// For bash.
    pub command: &'a str,
    /// Where.
    pub workdir: &'a Path,
    /// What the run may do.
    pub grant: &'a Grant,
    /// For how long.
    pub time: Duration,
}

impl Commands {
    /// Commands with the back-ends that work here; they are tried when the first command needs one.
    pub fn new(helper: PathBuf, surroundings: CommandEnv, options: SandboxOptions, private: PathBuf) -> Self {
        let launcher = Launcher { helper };
        let limits = ProcessLimits::default();
        Self { launcher, surroundings, options, private, limits, sandboxes: OnceCell::new() }
    }

    /// The same with these back-ends and no others.
    #[must_use]
    pub fn with_sandboxes(self, sandboxes: Sandboxes) -> Self {
        Self { sandboxes: OnceCell::new_with(Some(sandboxes)), ..self }
    }

    /// The back-ends of this machine.
    pub async fn sandboxes(&self) -> &Sandboxes {
        let probe = || Sandboxes::probe(&self.launcher.helper, &self.surroundings, &self.private);
        self.sandboxes.get_or_init(probe).await
    }

    /// Runs a command to its end; see [`homing_sandbox::process::Running::finish`].
    pub async fn run(
        &self,
        command: ShellCommand<'_>,
        room: &Private,
        cancelled: impl Future<Output = ()> + Send,
        on_output: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<FinishedCommand, CommandError> {
        let mut job = self.job(&command, room).await?;
        // Without a sandbox nothing else holds what a repository's settings would have git run while it looks.
        let looks = command.grant.sandbox == Sandbox::Off && only_looks_with_git(command.command);
        if looks || is_git_only(command.grant) {
            let neutral = match command.grant.sandbox {
                Sandbox::ReadOnly | Sandbox::WorkspaceWrite => git_only_env(),
                Sandbox::Off => self.neutral_git(&job).await?,
            };
            job.env.extend(neutral);
        }
        let output = room.root.join("output").join(format!("{}.txt", Uuid::new_v4()));
        let running = self.launcher.start(job).await?;
        Ok(running.finish(Collector::new(Some(output)), command.time, cancelled, on_output).await)
    }

    /// The environment in which git runs nothing of the repository's choosing, where `job` would run.
    pub(crate) async fn neutral_git(&self, job: &CommandSpec) -> Result<Vec<(String, String)>, CommandError> {
        // Listing settings runs nothing; each program that they name is then neutralised by its name.
        let argv = ["git", "config", "--list", "--name-only"].map(str::to_owned).to_vec();
        let mut env = job.env.clone();
        env.extend(git_only_env());
        let listing = CommandSpec { argv, env, input: Input::Nothing, kept: Vec::new(), ..job.clone() };
        let running = self.launcher.start(listing).await?;
        let finished = running.finish(Collector::new(None), LISTING, std::future::pending(), &mut |_| ()).await;
        if finished.output.total > finished.output.text.len() as u64 {
            return Err(CommandError::TooManySettings);
        }
        Ok(git_only_env_for(finished.output.text.lines()))
    }

    /// A command with its walls, ready to be started.
    pub(crate) async fn job(&self, command: &ShellCommand<'_>, room: &Private) -> Result<CommandSpec, CommandError> {
        // First of all: a back-end that is tried in a folder which is refused would be blamed for it.
        room.prepare(&self.surroundings)?;
        let mut access = Access::of(command.grant, &self.options);
        // In a worktree of the user's, git must be able to look into the repository that it belongs to. A run that may
        // only read is given what another one could write, so every folder of the grant counts.
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
        let way_out = way_out(&access, sandboxes, room);
        access.way_out = way_out.as_ref().map(|it| it.0.socket.clone());
        let walls =
            SandboxPolicy::build(&access, sandboxes, &self.surroundings, &self.options, room, command.workdir, hooks)?;
        Ok(CommandSpec {
            argv: ["bash", "--noprofile", "--norc", "-c", command.command].map(str::to_owned).to_vec(),
            workdir: command.workdir.to_owned(),
            env: walls.env,
            input: Input::Nothing,
            jail: walls.jail,
            limits: self.limits.clone(),
            kept: walls.kept,
            streams: Streams::Together,
            way_out,
        })
    }

    /// Takes away private folders that a killed process has left behind: those of runs that are not alive any more.
    pub fn sweep(&self, is_alive: impl Fn(Uuid) -> bool) {
        if private_folder::open(&self.private).is_err() {
            return;
        }
        let entries = self.private.read_dir().into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse::<Uuid>().ok()?, entry.path())));
        named.filter(|(run, _)| !is_alive(*run)).for_each(|(_, root)| Private { root }.remove());
    }

    /// The private folder of the run whose state this is. It goes when the state goes.
    pub fn room(&self, run: Uuid, state: &ToolState) -> Arc<Private> {
        state.get::<WorkFolder>().of(|| Private { root: self.private.join(run.to_string()) })
    }
}

/// The way to the hosts that a command may reach, where it can be held to them; elsewhere it has none.
fn way_out(access: &Access, sandboxes: &Sandboxes, room: &Private) -> Option<WayOut> {
    match &access.network {
        Network::Hosts(hosts) if access.sandbox != Sandbox::Off && sandboxes.holds_to_hosts() => {
            Proxy::start(&room.root, hosts).ok().map(|proxy| WayOut(Arc::new(proxy)))
        }
        Network::Hosts(_) | Network::Off | Network::On => None,
    }
}

/// Where nothing may change, or only git is allowed, a repository's hooks have no business.
fn git_hooks(grant: &Grant) -> GitHooks {
    match (grant.sandbox, is_git_only(grant)) {
        (Sandbox::ReadOnly, _) | (_, true) => GitHooks::Off,
        (Sandbox::WorkspaceWrite | Sandbox::Off, false) => GitHooks::Run,
    }
}

/// Whether some layer lets the shell be used for git alone.
fn is_git_only(grant: &Grant) -> bool {
    grant.layers.iter().any(|layer| match &layer.allow {
        Allow::All => false,
        Allow::Only(rules) => rules.iter().any(|it| it.tool == "bash" && it.pattern.as_deref() == Some(GIT_ONLY)),
    })
}

/// A run's private folder, made on first use.
#[derive(Default)]
struct WorkFolder(Mutex<Option<Arc<Private>>>);

impl WorkFolder {
    fn of(&self, make: impl FnOnce() -> Private) -> Arc<Private> {
        let mut room = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        room.get_or_insert_with(|| Arc::new(make())).clone()
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let room = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Caches can be large, and whoever drops a run's state may be an async task.
        if let Some(room) = room {
            std::thread::spawn(move || room.remove());
        }
    }
}
