//! The walls around one command: what it may read and write, as files, sockets and environment, for whichever back-end
//! stands ready.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use homing_core::authority::{Grant, Network, Sandbox};

use crate::{
    bubblewrap,
    command_env::{CommandEnv, GitHooks, git_guards},
    private_folder::Private,
    probe::{Backend, OwnNetwork, Sandboxes},
    process::{Jail, KeptFiles, LandlockRules, Net, Sockets},
    protected_roots, proxy,
    roots::unswapped,
};

/// The user's additions to what commands may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxOptions {
    /// More folders and files to read.
    pub read: Vec<PathBuf>,
    /// More folders to change.
    pub write: Vec<PathBuf>,
    /// More variables to pass on; `NAME` or `PREFIX_*`. Secrets only when named in full.
    pub env: Vec<String>,
}

/// What a command may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// How it is confined.
    pub sandbox: Sandbox,
    /// Folders to read.
    pub read: Vec<PathBuf>,
    /// Folders to change.
    pub write: Vec<PathBuf>,
    /// Whether it may use the network.
    pub network: Network,
    /// The socket of a proxy that leads to the listed hosts, where they are listed and it can be held to them.
    pub way_out: Option<PathBuf>,
}

/// Everything a command is started with, besides itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPolicy {
    /// How it is confined.
    pub jail: Jail,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// What must be the same afterwards.
    pub kept: Vec<KeptFiles>,
}

/// A command that cannot be confined is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Nothing confines commands on this machine.
    #[error(
        "commands are refused, because nothing here can confine them ({0}); install bubblewrap, or switch the sandbox off with --sandbox off"
    )]
    NoSandbox(String),
    /// The private folder cannot be made, or another user could reach it.
    #[error("cannot use the private folder {path}: {why}")]
    Private {
        /// The folder.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

impl SandboxOptions {
    pub(super) fn passes(&self, name: &str) -> bool {
        self.env.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix) && !crate::is_secret(name),
            None => wanted == name,
        })
    }
}

impl Access {
    /// What a run's grant lets its commands touch, with the user's additions.
    pub fn of(grant: &Grant, options: &SandboxOptions) -> Self {
        let with = |roots: &[PathBuf], more: &[PathBuf]| roots.iter().chain(more).cloned().collect::<Vec<_>>();
        let writable = with(&grant.write, &options.write);
        let write = match grant.sandbox {
            Sandbox::ReadOnly => Vec::new(),
            Sandbox::WorkspaceWrite | Sandbox::Off => unswapped(&writable, &writable),
        };
        Self {
            sandbox: grant.sandbox,
            read: unswapped(&with(&grant.read, &options.read), &writable),
            write,
            network: grant.network.clone(),
            way_out: None,
        }
    }

    /// Whether the machine's network is the command's. A list of hosts is reached through a way out of its own.
    pub fn has_network(&self) -> bool {
        match &self.network {
            Network::On => true,
            Network::Off | Network::Hosts(_) => false,
        }
    }
}

impl SandboxPolicy {
    /// The walls for a command, with what stands ready on this machine. Nothing ready and not switched off: refused.
    pub fn build(
        access: &Access,
        sandboxes: &Sandboxes,
        surroundings: &CommandEnv,
        options: &SandboxOptions,
        private: &Private,
        workdir: &Path,
        hooks: GitHooks,
    ) -> Result<Self, PolicyError> {
        private.prepare(surroundings)?;
        let plan = SandboxSetup { access, system: &sandboxes.system, private, workdir };
        let (jail, tmp) = match (access.sandbox, sandboxes.best()) {
            (Sandbox::Off, _) => (Jail::Open, private.tmp()),
            (Sandbox::ReadOnly | Sandbox::WorkspaceWrite, Some(Backend::Bubblewrap { program, variant })) => {
                (bubblewrap::jail(&plan, program, *variant, &sandboxes.helper), PathBuf::from("/tmp"))
            }
            (Sandbox::ReadOnly | Sandbox::WorkspaceWrite, Some(Backend::Landlock { network, .. })) => {
                (Jail::Landlock(plan.landlock(*network)), private.tmp())
            }
            (Sandbox::ReadOnly | Sandbox::WorkspaceWrite, None) => {
                return Err(PolicyError::NoSandbox(sandboxes.why_not()));
            }
        };
        let mut env = surroundings.clean(options, private, &tmp);
        env.extend(git_guards(hooks));
        if let (Some(_), Network::Hosts(hosts)) = (&access.way_out, &access.network) {
            env.extend(proxy::env(hosts));
        }
        let kept = match access.sandbox {
            Sandbox::ReadOnly | Sandbox::Off => Vec::new(),
            Sandbox::WorkspaceWrite => protected_roots::in_roots(&access.write)
                .into_iter()
                .chain(protected_roots::below_roots(&access.write))
                .collect(),
        };
        Ok(Self { jail, env, kept })
    }
}

/// What a back-end builds its walls from.
pub(super) struct SandboxSetup<'a> {
    pub(super) access: &'a Access,
    /// What is readable besides the run's own folders.
    pub(super) system: &'a [PathBuf],
    pub(super) private: &'a Private,
    pub(super) workdir: &'a Path,
}

/// What programs want to know about the machine, which tells nothing about other processes.
const MACHINE: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
];

impl SandboxSetup<'_> {
    /// The files that must not change, for a back-end that can show them read-only.
    pub(super) fn kept(&self) -> Vec<KeptFiles> {
        protected_roots::in_roots(&self.access.write)
    }

    fn landlock(&self, network: OwnNetwork) -> LandlockRules {
        let mut read = self.system.to_vec();
        read.extend(MACHINE.iter().map(PathBuf::from));
        read.extend(self.access.read.iter().cloned());
        read.push(self.private.root.clone());
        let mut write = self.access.write.clone();
        match self.access.sandbox {
            Sandbox::ReadOnly => write.push(self.private.tmp()),
            Sandbox::WorkspaceWrite | Sandbox::Off => {
                write.extend(["home", "tmp", "cargo"].map(|name| self.private.root.join(name)));
            }
        }
        let own = Net::Own { way_out: self.access.way_out.clone() };
        // Landlock's rules on the network know ports but no addresses, so that a network of its own is the only bound.
        let (sockets, net) = match (self.access.has_network(), network) {
            (true, _) => (Sockets::Internet, Net::Machine),
            (false, OwnNetwork::Possible) => (Sockets::Internet, own),
            (false, OwnNetwork::Impossible) => (Sockets::None, Net::Machine),
        };
        LandlockRules { read, write, sockets, net }
    }
}
