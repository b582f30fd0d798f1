//! Which back-ends work on this machine, found out by trying them. Whether a program is installed says little.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use homing_core::authority::{Network, Sandbox};

use crate::{
    command_env::{CommandEnv, GitHooks},
    landlock_seccomp,
    policy::{Access, SandboxOptions, SandboxPolicy},
    private_folder::Private,
    process::{Collector, CommandEnd, CommandSpec, Input, Launcher, ProcessLimits, Streams},
    toolchains,
};

/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(10);

/// The back-ends of this machine, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandboxes {
    /// The helper binary that they were tried with.
    pub helper: PathBuf,
    /// What works.
    pub ready: Vec<Backend>,
    /// What does not, and why, in words.
    pub failed: Vec<String>,
    /// What of the system commands can read: looked for once, because toolchains have many files.
    pub(super) system: Vec<PathBuf>,
}

/// Something that confines commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Namespaces and a root of its own.
    Bubblewrap {
        /// The program.
        program: PathBuf,
        /// What it can do here.
        variant: Variant,
    },
    /// Rules on files in the kernel, and a filter on system calls.
    Landlock {
        /// The kernel's version of it.
        version: u32,
        /// Whether a command can have a network of its own here.
        network: OwnNetwork,
    },
}

/// Whether a command can have a network of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnNetwork {
    /// It can: a loopback, and a way out to listed hosts.
    Possible,
    /// It cannot, so it has none.
    Impossible,
}

/// What bubblewrap can do on a machine: inside a container it can do less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// A user namespace, without which it needs to be root.
    pub user_namespace: bool,
    /// A `/proc` of its own.
    pub proc: bool,
}

const VARIANTS: [Variant; 4] = [
    Variant { user_namespace: true, proc: true },
    Variant { user_namespace: false, proc: true },
    Variant { user_namespace: true, proc: false },
    Variant { user_namespace: false, proc: false },
];

impl Sandboxes {
    /// None: every command is refused that is not explicitly unconfined.
    pub fn none(helper: impl Into<PathBuf>) -> Self {
        Self { helper: helper.into(), ready: Vec::new(), failed: Vec::new(), system: Vec::new() }
    }

    /// Tries each back-end with a command that does nothing, in a scratch folder.
    pub async fn probe(helper: &Path, surroundings: &CommandEnv, scratch: &Path) -> Self {
        let mut found = Self { system: toolchains::system(surroundings), ..Self::none(helper) };
        if let Some(program) = surroundings.find("bwrap", &[]) {
            let mut why = String::new();
            for variant in VARIANTS {
                let backend = Backend::Bubblewrap { program: program.clone(), variant };
                match found.attempt(&backend, surroundings, scratch).await {
                    Ok(()) => {
                        found.ready.push(backend);
                        break;
                    }
                    Err(error) => why = error,
                }
            }
            if found.ready.is_empty() {
                found.failed.push(format!("bubblewrap: {why}"));
            }
        } else {
            found.failed.push("bubblewrap is not installed".to_owned());
        }
        found.probe_landlock(surroundings, scratch).await;
        found
    }

    async fn probe_landlock(&mut self, surroundings: &CommandEnv, scratch: &Path) {
        let Some(version) = landlock_seccomp::landlock_version() else {
            self.failed.push("the kernel has no Landlock".to_owned());
            return;
        };
        let mut why = String::new();
        for network in [OwnNetwork::Possible, OwnNetwork::Impossible] {
            let backend = Backend::Landlock { version, network };
            match self.attempt(&backend, surroundings, scratch).await {
                Ok(()) => return self.ready.push(backend),
                Err(error) => why = error,
            }
        }
        self.failed.push(format!("Landlock: {why}"));
    }

    /// The one that is used.
    pub fn best(&self) -> Option<&Backend> {
        self.ready.first()
    }

    /// Whether commands can be held to a list of hosts.
    pub fn holds_to_hosts(&self) -> bool {
        match self.best() {
            Some(Backend::Bubblewrap { .. } | Backend::Landlock { network: OwnNetwork::Possible, .. }) => true,
            Some(Backend::Landlock { network: OwnNetwork::Impossible, .. }) | None => false,
        }
    }

    /// Only this one of those that work; nothing where it does not.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&Backend) -> bool) -> Self {
        let ready = self.ready.iter().filter(|it| wanted(it)).cloned().collect();
        Self { ready, ..self.clone() }
    }

    /// Why there is none, in words.
    pub fn why_not(&self) -> String {
        if self.failed.is_empty() { "none was looked for".to_owned() } else { self.failed.join("; ") }
    }

    async fn attempt(&self, backend: &Backend, surroundings: &CommandEnv, scratch: &Path) -> Result<(), String> {
        let alone = Self { ready: vec![backend.clone()], ..self.clone() };
        let private = Private { root: scratch.join(format!("probe-{}", uuid::Uuid::new_v4())) };
        let outcome = alone.run_nothing(surroundings, &private).await;
        private.remove();
        outcome
    }

    async fn run_nothing(&self, surroundings: &CommandEnv, private: &Private) -> Result<(), String> {
        let access = Access {
            sandbox: Sandbox::ReadOnly,
            read: vec![private.root.clone()],
            write: Vec::new(),
            network: Network::Off,
            way_out: None,
        };
        let options = SandboxOptions::default();
        let workdir = private.root.clone();
        let walls = SandboxPolicy::build(&access, self, surroundings, &options, private, &workdir, GitHooks::Off)
            .map_err(|refusal| refusal.to_string())?;
        let job = CommandSpec {
            argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), "exit 7".to_owned()],
            workdir,
            env: walls.env,
            input: Input::Nothing,
            jail: walls.jail,
            limits: ProcessLimits::default(),
            kept: Vec::new(),
            streams: Streams::Together,
            way_out: None,
        };
        let launcher = Launcher { helper: self.helper.clone() };
        let running = launcher.start(job).await.map_err(|error| error.to_string())?;
        let finished = running.finish(Collector::new(None), ATTEMPT, std::future::pending(), &mut |_| ()).await;
        match finished.ending {
            CommandEnd::Exited(7) => Ok(()),
            CommandEnd::Refused(why) => Err(why),
            ending => Err(format!("{ending:?} {}", finished.output.text.trim())),
        }
    }
}
