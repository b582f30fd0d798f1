//! Builds the sandbox policy of one command: files, sockets and environment, for the back-end that works on this machine.
//!
//! The policy is built anew for every command, from the grant and from the file system as it is now. An earlier command
//! may have replaced a folder by a link or created a repository, so nothing about the workspace is remembered between
//! commands. The policy is also complete before anything is started: the process that enforces it gets finished
//! arguments and decides nothing, so its behaviour does not depend on what the command does meanwhile. If no back-end
//! works, the command is refused. There is no weaker mode to fall back to, because a command that runs unconfined without
//! the user noticing is worse than one that does not run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use homing_core::authority::{Grant, Network, Sandbox};

use crate::{
    bubblewrap,
    command_env::{CommandEnv, GitHooks, git_guards},
    denied_paths::DeniedPaths,
    private_folder::PrivateFolder,
    probe::{Backend, OwnNetwork, Sandboxes},
    process::{CommandNetwork, Confinement, LandlockRules, ProtectedFiles, Protection, Restored, Sockets, recover},
    protected_roots, proxy,
    roots::{outermost, unswapped},
    seatbelt,
};

/// Folders and variables that the user adds to what commands may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxOptions {
    /// More folders and files to read.
    pub read: Vec<PathBuf>,
    /// More folders to change.
    pub write: Vec<PathBuf>,
    /// More variables to pass on; `NAME` or `PREFIX_*`. A pattern does not match secrets.
    pub env: Vec<String>,
    /// Permits local sockets, if the back-end is bubblewrap. A command can then also connect to the sockets of other programs
    /// that lie in its folders.
    pub unix_sockets: bool,
}

/// The files and network that a command may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The mode of confinement.
    pub sandbox: Sandbox,
    /// Folders to read.
    pub read: Vec<PathBuf>,
    /// Folders to change.
    pub write: Vec<PathBuf>,
    /// The network it may use.
    pub network: Network,
    /// The socket of the proxy to the listed hosts, if the network is a list of hosts and the back-end can enforce it.
    pub proxy_socket: Option<PathBuf>,
    /// Permits local sockets, if the back-end supports it.
    pub unix_sockets: bool,
    /// Paths that deny rules close to it.
    pub denied: DeniedPaths,
}

/// Confinement, environment and protected paths of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPolicy {
    /// The confinement.
    pub confinement: Confinement,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// Files that are restored if the command changes them.
    pub protected: Protection,
}

/// The reason for which a command cannot be confined and is not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No back-end works on this machine. Contains the reason for each of them.
    #[error("commands are refused because no sandbox is available ({0}); install bubblewrap, or turn the sandbox off")]
    NoSandbox(String),
    /// The private folder cannot be created, or other users can access it.
    #[error("cannot use the private folder {path}: {why}")]
    PrivateFolder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Deny rules on paths cannot be enforced for commands.
    #[error("commands are refused because these deny rules cannot be enforced for them: {rules}: {why}")]
    Denied {
        /// The rules or the paths that they match.
        rules: String,
        /// The reason.
        why: String,
    },
}

impl SandboxOptions {
    pub(super) fn passes(&self, name: &str) -> bool {
        self.env.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix) && !crate::is_secret(name),
            None => pattern == name,
        })
    }
}

impl Access {
    /// Combines a run's grant with the user's additions.
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
            proxy_socket: None,
            unix_sockets: options.unix_sockets,
            denied: DeniedPaths::default(),
        }
    }

    /// Returns true if the command uses the network of the machine. Listed hosts are reached through a proxy instead.
    pub fn has_network(&self) -> bool {
        match &self.network {
            Network::On => true,
            Network::Off | Network::Hosts(_) => false,
        }
    }
}

impl SandboxPolicy {
    /// Builds the policy for a command, with the best back-end of this machine.
    ///
    /// # Errors
    /// Fails if no back-end works and the sandbox is not off, if the private folder cannot be used, or if the back-end cannot
    /// enforce a deny rule on paths.
    pub fn build(
        access: &Access,
        sandboxes: &Sandboxes,
        host: &CommandEnv,
        options: &SandboxOptions,
        private: &PrivateFolder,
        workdir: &Path,
        hooks: GitHooks,
    ) -> Result<Self, PolicyError> {
        private.prepare(host)?;
        // Before anything is looked up in the folders: a path that an earlier command created may be removed.
        let recovered = recover(&private.store(), &canonical(&access.write));
        let setup = SandboxSetup { access, system: &sandboxes.system, private, workdir, home: &host.home };
        let (confinement, tmp) = match (access.sandbox, sandboxes.best()) {
            (Sandbox::Off, _) => (Confinement::None, private.tmp()),
            (Sandbox::ReadOnly | Sandbox::WorkspaceWrite, Some(Backend::Bubblewrap { program, features })) => {
                (bubblewrap::confinement(&setup, program, *features, &sandboxes.helper), PathBuf::from("/tmp"))
            }
            (Sandbox::ReadOnly | Sandbox::WorkspaceWrite, Some(Backend::Landlock { network, .. })) => {
                (Confinement::Landlock(setup.landlock(*network)?), private.tmp())
            }
            (Sandbox::ReadOnly | Sandbox::WorkspaceWrite, Some(Backend::Seatbelt { program })) => {
                (seatbelt::confinement(&setup, program)?, private.tmp())
            }
            (Sandbox::ReadOnly | Sandbox::WorkspaceWrite, None) => {
                return Err(PolicyError::NoSandbox(sandboxes.why_not()));
            }
        };
        let mut env = host.confined_env(options, private, &tmp);
        env.extend(git_guards(hooks));
        if let (Some(_), Network::Hosts(hosts)) = (&access.proxy_socket, &access.network) {
            env.extend(proxy::env(hosts));
        }
        let protected = Protection { recovered, ..setup.protection(&confinement)? };
        Ok(Self { confinement, env, protected })
    }
}

/// The input from which a back-end builds its arguments.
pub(super) struct SandboxSetup<'a> {
    pub(super) access: &'a Access,
    /// System folders and toolchains that are readable besides the run's own folders.
    pub(super) system: &'a [PathBuf],
    pub(super) private: &'a PrivateFolder,
    pub(super) workdir: &'a Path,
    /// The user's home, for git's configuration.
    pub(super) home: &'a Path,
}

/// Information about the machine that programs read, and that reveals nothing about other processes.
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
    /// Returns the protected paths, for a back-end that can mount them read-only.
    pub(super) fn protected(&self) -> Vec<ProtectedFiles> {
        protected_roots::in_roots(&self.access.write, self.home)
    }

    /// Returns the protected paths that must be restored after the command, because its back-end cannot make them read-only.
    fn protection(&self, confinement: &Confinement) -> Result<Protection, PolicyError> {
        match self.access.sandbox {
            Sandbox::ReadOnly | Sandbox::Off => return Ok(Protection::default()),
            Sandbox::WorkspaceWrite => (),
        }
        let mut files = self.protected();
        let store = self.private.store();
        match confinement {
            Confinement::Bubblewrap { .. } => files
                .iter_mut()
                .for_each(|files| files.names.retain(|name| !bubblewrap::is_mounted(&files.root.join(name)))),
            Confinement::Landlock(_) if self.is_writable(&store) => {
                let why = "it lies in a folder that commands may change, and only bubblewrap can except it".to_owned();
                return Err(PolicyError::PrivateFolder { path: store, why });
            }
            // Its rules hold for paths that do not exist, too, but compare real paths, not links.
            Confinement::Seatbelt { .. } => files.iter_mut().for_each(|files| {
                let is_linked = |path: PathBuf| path.symlink_metadata().is_ok() && !bubblewrap::is_mounted(&path);
                files.names.retain(|name| is_linked(files.root.join(name)));
            }),
            Confinement::Landlock(_) | Confinement::None => (),
        }
        files.extend(protected_roots::below_roots(&self.access.write));
        let denied = &self.access.denied;
        let restored = match confinement {
            Confinement::Landlock(_) => denied.read_only.as_slice(),
            // They are mounted read-only, or rules deny writing to them.
            Confinement::Bubblewrap { .. } | Confinement::Seatbelt { .. } | Confinement::None => &[],
        };
        let missing = if matches!(confinement, Confinement::Seatbelt { .. }) { &[] } else { denied.missing.as_slice() };
        files.extend(restored.iter().chain(missing).filter_map(|path| self.in_root(path)));
        Ok(Protection { files, store, recovered: Restored::default() })
    }

    /// Names a path from the outermost writable folder around it.
    fn in_root(&self, path: &Path) -> Option<ProtectedFiles> {
        let roots = canonical(&self.access.write);
        let root = outermost(&roots).find(|root| path.starts_with(root))?.clone();
        let name = path.strip_prefix(&root).ok()?.to_owned();
        Some(ProtectedFiles { root, names: vec![name], unless_removed: None })
    }

    /// Returns true if a path lies in a folder that the command may change.
    pub(super) fn is_writable(&self, path: &Path) -> bool {
        canonical(&self.access.write).iter().any(|root| path.starts_with(root))
    }

    fn landlock(&self, network: OwnNetwork) -> Result<LandlockRules, PolicyError> {
        // Without a rule for a folder, files that the command creates in it could not be opened.
        if let Some(path) = self.access.denied.unreadable.iter().find(|path| self.is_writable(path)) {
            return Err(PolicyError::Denied {
                rules: path.display().to_string(),
                why: "Landlock cannot make a path unreadable in a folder that commands may change; install bubblewrap"
                    .to_owned(),
            });
        }
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
        let own = CommandNetwork::Own { proxy_socket: self.access.proxy_socket.clone() };
        // Landlock's network rules cover ports but not addresses, so only a separate network namespace restricts hosts.
        let (sockets, net) = match (self.access.has_network(), network) {
            (true, _) => (Sockets::Internet, CommandNetwork::Machine),
            (false, OwnNetwork::Possible) => (Sockets::Internet, own),
            (false, OwnNetwork::Impossible) => (Sockets::None, CommandNetwork::Machine),
        };
        let (read, list) = around(read, &self.access.denied.unreadable);
        Ok(LandlockRules { read, list, write, sockets, net })
    }
}

fn canonical(roots: &[PathBuf]) -> Vec<PathBuf> {
    roots.iter().filter_map(|root| root.canonicalize().ok()).collect()
}

/// Splits readable paths so that they leave out the denied ones: paths to read, and folders that may only be listed.
fn around(paths: Vec<PathBuf>, denied: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut read, mut list, mut waiting) = (Vec::new(), Vec::new(), paths);
    while let Some(path) = waiting.pop() {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        if denied.iter().any(|denied| real.starts_with(denied)) {
            continue;
        }
        if denied.iter().any(|denied| denied.starts_with(&real)) {
            let entries = std::fs::read_dir(&real).into_iter().flatten().flatten();
            // A link needs no rule: the file behind it is checked.
            waiting.extend(entries.map(|entry| entry.path()).filter(|path| !path.is_symlink()));
            list.push(real);
        } else {
            read.push(path);
        }
    }
    (read, list)
}
