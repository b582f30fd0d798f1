//! Finds out which back-ends work on this machine by running a command in each. That a program is installed does not mean
//! that it works, for example inside a container.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use homing_core::authority::{Network, Sandbox};

use crate::{
    command_env::{CommandEnv, GitHooks},
    denied_paths::DeniedPaths,
    landlock_seccomp,
    policy::{Access, SandboxOptions, SandboxPolicy},
    private_folder::PrivateFolder,
    process::{Collector, CommandEnd, CommandSpec, Input, Launcher, ProcessLimits, Protection, Streams},
    toolchains,
};

/// Time limit for one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// The program that starts others under Seatbelt. It comes with macOS, so it is not looked up in `PATH`.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// The back-ends of this machine, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandboxes {
    /// The helper binary that they were tried with.
    pub helper: PathBuf,
    /// The back-ends that work.
    pub ready: Vec<Backend>,
    /// One message for each back-end that does not work.
    pub failed: Vec<String>,
    /// System folders and toolchains that commands can read. They are searched only once, because toolchains have many files.
    pub(super) system: Vec<PathBuf>,
}

/// A mechanism that confines commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Namespaces and a separate root file system.
    Bubblewrap {
        /// The program.
        program: PathBuf,
        /// The features that work here.
        features: BubblewrapFeatures,
    },
    /// Landlock rules on files, and a seccomp filter on system calls.
    Landlock {
        /// The Landlock version of the kernel.
        version: u32,
        /// Support for a separate network per command.
        network: OwnNetwork,
    },
    /// Seatbelt, the sandbox of macOS.
    Seatbelt {
        /// The program `sandbox-exec`.
        program: PathBuf,
    },
}

/// Support for a separate network per command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnNetwork {
    /// A command gets its own loopback, and a proxy to listed hosts.
    Possible,
    /// A command without full network access gets no network at all.
    Impossible,
}

/// The features of bubblewrap that work on a machine. Inside a container fewer do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BubblewrapFeatures {
    /// A user namespace. Without it bubblewrap must run as root.
    pub user_namespace: bool,
    /// A separate `/proc`.
    pub proc: bool,
}

const FEATURE_SETS: [BubblewrapFeatures; 4] = [
    BubblewrapFeatures { user_namespace: true, proc: true },
    BubblewrapFeatures { user_namespace: false, proc: true },
    BubblewrapFeatures { user_namespace: true, proc: false },
    BubblewrapFeatures { user_namespace: false, proc: false },
];

impl Sandboxes {
    /// No back-end at all: every command is refused unless the sandbox is off.
    pub fn none(helper: impl Into<PathBuf>) -> Self {
        Self { helper: helper.into(), ready: Vec::new(), failed: Vec::new(), system: Vec::new() }
    }

    /// Tries each back-end with a trivial command, in a scratch folder.
    pub async fn probe(helper: &Path, host: &CommandEnv, scratch: &Path) -> Self {
        let mut found = Self::probe_best(helper, host, scratch).await;
        if matches!(found.best(), Some(Backend::Bubblewrap { .. })) {
            found.probe_landlock(host, scratch).await;
        }
        found
    }

    /// Tries the back-ends until one works. The others are neither tried nor listed.
    pub async fn probe_best(helper: &Path, host: &CommandEnv, scratch: &Path) -> Self {
        let mut found = Self { system: toolchains::system(host), ..Self::none(helper) };
        // Without it every back-end would fail, for a reason that is not its own.
        if let Err(error) = PrivateFolder::try_in(scratch, host) {
            found.failed.push(error.to_string());
            return found;
        }
        if cfg!(target_os = "macos") {
            found.probe_seatbelt(host, scratch).await;
            return found;
        }
        if let Some(program) = host.find("bwrap", &[]) {
            let mut why = String::new();
            for features in FEATURE_SETS {
                let backend = Backend::Bubblewrap { program: program.clone(), features };
                match found.attempt(&backend, host, scratch).await {
                    Ok(()) => {
                        found.ready.push(backend);
                        return found;
                    }
                    Err(error) => why = error,
                }
            }
            found.failed.push(format!("bubblewrap: {why}"));
        } else {
            found.failed.push("bubblewrap is not installed".to_owned());
        }
        found.probe_landlock(host, scratch).await;
        found
    }

    async fn probe_seatbelt(&mut self, host: &CommandEnv, scratch: &Path) {
        let backend = Backend::Seatbelt { program: PathBuf::from(SANDBOX_EXEC) };
        match self.attempt(&backend, host, scratch).await {
            Ok(()) => self.ready.push(backend),
            Err(error) => self.failed.push(format!("Seatbelt: {error}")),
        }
    }

    async fn probe_landlock(&mut self, host: &CommandEnv, scratch: &Path) {
        let Some(version) = landlock_seccomp::landlock_version() else {
            self.failed.push("the kernel has no Landlock".to_owned());
            return;
        };
        let mut why = String::new();
        for network in [OwnNetwork::Possible, OwnNetwork::Impossible] {
            let backend = Backend::Landlock { version, network };
            match self.attempt(&backend, host, scratch).await {
                Ok(()) => return self.ready.push(backend),
                Err(error) => why = error,
            }
        }
        self.failed.push(format!("Landlock: {why}"));
    }

    /// Returns the back-end that is used.
    pub fn best(&self) -> Option<&Backend> {
        self.ready.first()
    }

    /// Returns true if commands can be restricted to a list of hosts.
    pub fn can_restrict_hosts(&self) -> bool {
        match self.best() {
            Some(
                Backend::Bubblewrap { .. }
                | Backend::Landlock { network: OwnNetwork::Possible, .. }
                | Backend::Seatbelt { .. },
            ) => true,
            Some(Backend::Landlock { network: OwnNetwork::Impossible, .. }) | None => false,
        }
    }

    /// Keeps only the working back-ends that `wanted` accepts.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&Backend) -> bool) -> Self {
        let ready = self.ready.iter().filter(|backend| wanted(backend)).cloned().collect();
        Self { ready, ..self.clone() }
    }

    /// Returns a message that explains why no back-end works.
    pub fn why_not(&self) -> String {
        if self.failed.is_empty() { "no back-end was tried".to_owned() } else { self.failed.join("; ") }
    }

    async fn attempt(&self, backend: &Backend, host: &CommandEnv, scratch: &Path) -> Result<(), String> {
        let only_this = Self { ready: vec![backend.clone()], ..self.clone() };
        let private = PrivateFolder { root: scratch.join(format!("probe-{}", uuid::Uuid::new_v4())) };
        let outcome = only_this.run_trivial(host, &private).await;
        private.remove();
        outcome
    }

    async fn run_trivial(&self, host: &CommandEnv, private: &PrivateFolder) -> Result<(), String> {
        let access = Access {
            sandbox: Sandbox::ReadOnly,
            read: vec![private.root.clone()],
            write: Vec::new(),
            network: Network::Off,
            proxy_socket: None,
            unix_sockets: false,
            denied: DeniedPaths::default(),
        };
        let options = SandboxOptions::default();
        let workdir = private.root.clone();
        let policy = SandboxPolicy::build(&access, self, host, &options, private, &workdir, GitHooks::Off)
            .map_err(|refusal| refusal.to_string())?;
        let job = CommandSpec {
            argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), "exit 7".to_owned()],
            workdir,
            env: policy.env,
            input: Input::Nothing,
            confinement: policy.confinement,
            limits: ProcessLimits::default(),
            protected: Protection::default(),
            streams: Streams::Together,
            proxy: None,
        };
        let launcher = Launcher { helper: self.helper.clone() };
        let running = launcher.start(job).await.map_err(|error| error.to_string())?;
        let finished = running.finish(Collector::new(None), ATTEMPT_TIMEOUT, std::future::pending(), &mut |_| ()).await;
        match finished.ending {
            CommandEnd::Exited(7) => Ok(()),
            CommandEnd::Refused(why) => Err(why),
            ending => Err(format!("{ending:?} {}", finished.output.text.trim())),
        }
    }
}
