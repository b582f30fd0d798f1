//! Builds the arguments of bubblewrap for a command. Nothing is executed here.
//!
//! Bubblewrap starts with an empty root file system and mounts only what the command may see. Listing what is visible,
//! instead of hiding what is not, means that a forgotten entry is a command that fails and not a file that leaks. Mounts
//! are ordered from outer to inner folders, because a later mount covers an earlier one at the same place: a read-only
//! `.git/hooks` must come after the writable workspace around it. The root, `/proc` and the protected paths are then
//! remounted or bound read-only, since a command may be root in its namespace and could otherwise change them there.

use std::path::{Path, PathBuf};

use homing_core::authority::Sandbox;

use crate::{
    policy::SandboxSetup,
    probe::BubblewrapFeatures,
    process::{Confinement, Sockets},
};

/// The path of the helper inside.
const HELPER: &str = "/run/homing-helper";

/// Maximum size of a temporary folder in memory.
const TMPFS_BYTES: &str = "536870912";

/// A path that is visible inside.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mount {
    ReadOnly(PathBuf),
    Writable(PathBuf),
    /// A folder in memory that ends with the command.
    Memory,
    Link(PathBuf),
}

/// Builds the confinement of a command.
pub(super) fn confinement(
    setup: &SandboxSetup<'_>,
    program: &Path,
    features: BubblewrapFeatures,
    helper: &Path,
) -> Confinement {
    let mut args: Vec<String> =
        ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
            .map(str::to_owned)
            .to_vec();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    if features.user_namespace {
        add(&["--unshare-user"]);
    }
    if !setup.access.has_network() {
        add(&["--unshare-net"]);
    }
    add(&["--cap-drop", "ALL", "--as-pid-1", "--hostname", "homing", "--dev", "/dev"]);
    if features.proc {
        // Read-only as a whole: the kernel treats root inside as root, and `/proc/sys` controls the machine.
        add(&["--proc", "/proc", "--remount-ro", "/proc"]);
    }
    for (path, mount) in mounts(setup) {
        mount.add_to(&mut args, &path);
    }
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["--ro-bind", &helper.display().to_string(), HELPER, "--remount-ro", "/"]);
    let workdir = setup.workdir.display().to_string();
    add(&["--chdir", &workdir]);
    Confinement::Bubblewrap {
        program: program.to_owned(),
        args,
        helper: HELPER.into(),
        sockets: if setup.access.unix_sockets { Sockets::Namespaced } else { Sockets::Internet },
        proxy_socket: setup.access.proxy_socket.clone(),
    }
}

/// Returns all mounts, outer folders before inner ones, so that inner mounts take precedence.
fn mounts(setup: &SandboxSetup<'_>) -> Vec<(PathBuf, Mount)> {
    let mut mounts: Vec<(PathBuf, Mount)> = setup.system.iter().flat_map(|path| visible(path)).collect();
    mounts.extend(setup.access.read.iter().flat_map(|path| visible(path)));
    mounts.extend(private(setup));
    for root in setup.access.write.iter().filter_map(|root| root.canonicalize().ok()) {
        mounts.push((root.clone(), Mount::Writable(root)));
    }
    mounts.extend(protected(setup));
    // If the workspace is the home folder, the saved files of all runs lie in it.
    let store = setup.private.store();
    mounts.extend(setup.is_writable(&store).then_some((store, Mount::Memory)));
    let denied = &setup.access.denied;
    mounts.retain(|(path, mount)| {
        let is_below = |denied: &PathBuf| path.starts_with(denied);
        let is_reopened = matches!(mount, Mount::Writable(_)) && denied.read_only.iter().any(is_below);
        !is_reopened && !denied.unreadable.iter().any(is_below)
    });
    let added = denied_mounts(setup, &mounts);
    mounts.extend(added);
    // A later mount of the same path replaces an earlier one; the depth of the path decides the order.
    let mut ordered: Vec<(PathBuf, Mount)> = Vec::new();
    for (path, mount) in mounts {
        ordered.retain(|(known, _)| *known != path);
        ordered.push((path, mount));
    }
    ordered.sort_by_key(|(path, _)| path.components().count());
    ordered
}

/// Returns the mounts of a readable path: the path itself, and if it is a link, the link and its target.
fn visible(path: &Path) -> Vec<(PathBuf, Mount)> {
    let Ok(real) = path.canonicalize() else { return Vec::new() };
    let shown = (real.clone(), Mount::ReadOnly(real.clone()));
    match path.read_link() {
        Ok(target) => vec![(path.to_owned(), Mount::Link(target)), shown],
        Err(_) if real == path => vec![shown],
        // A folder on the way is a link, so the content is mounted under both names.
        Err(_) => vec![(path.to_owned(), Mount::ReadOnly(real)), shown],
    }
}

fn private(setup: &SandboxSetup<'_>) -> Vec<(PathBuf, Mount)> {
    let root = &setup.private.root;
    let tmp = PathBuf::from("/tmp");
    match setup.access.sandbox {
        Sandbox::ReadOnly => vec![(root.clone(), Mount::ReadOnly(root.clone())), (tmp, Mount::Memory)],
        Sandbox::WorkspaceWrite | Sandbox::Off => {
            let mut mounts =
                vec![(root.clone(), Mount::ReadOnly(root.clone())), (tmp, Mount::Writable(setup.private.tmp()))];
            let writable = ["home", "tmp", "cargo"].map(|name| root.join(name));
            mounts.extend(writable.map(|path| (path.clone(), Mount::Writable(path))));
            mounts
        }
    }
}

/// Returns true if a protected path is mounted read-only: it exists, and no link is on the way to it.
pub(super) fn is_mounted(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| !found.is_symlink()) && path.canonicalize().is_ok_and(|real| real == path)
}

/// Mounts protected paths that exist read-only. The folders around them become mounts as well, because a mount point cannot
/// be renamed or replaced. Paths that do not exist cannot be mounted without creating them in the workspace; the supervisor
/// removes those if they appear.
fn protected(setup: &SandboxSetup<'_>) -> Vec<(PathBuf, Mount)> {
    let mut mounts = Vec::new();
    for protected in setup.protected() {
        for name in &protected.names {
            let path = protected.root.join(name);
            if !is_mounted(&path) {
                continue;
            }
            let around = path.ancestors().skip(1).take_while(|folder| **folder != protected.root);
            mounts.extend(around.map(|folder| (folder.to_owned(), Mount::Writable(folder.to_owned()))));
            mounts.push((path.clone(), Mount::ReadOnly(path)));
        }
    }
    mounts
}

/// Mounts paths that deny rules name, closed or read-only. The folders around them become mounts as well, unless they are
/// already, because a mount point cannot be renamed.
fn denied_mounts(setup: &SandboxSetup<'_>, mounts: &[(PathBuf, Mount)]) -> Vec<(PathBuf, Mount)> {
    let denied = &setup.access.denied;
    let is_below = |folder: &Path| denied.read_only.iter().any(|denied| folder.starts_with(denied));
    let around = denied.read_only.iter().chain(&denied.unreadable).flat_map(|path| {
        path.ancestors().skip(1).take_while(|folder| folder.parent().is_some_and(|outer| setup.is_writable(outer)))
    });
    let mut added: Vec<(PathBuf, Mount)> = around
        .filter(|folder| !is_below(folder) && !mounts.iter().any(|(path, _)| path == folder))
        .map(|folder| (folder.to_owned(), Mount::Writable(folder.to_owned())))
        .collect();
    let closed = |path: &PathBuf| {
        let from = if path.is_dir() { setup.private.closed_folder() } else { setup.private.closed_file() };
        (path.clone(), Mount::ReadOnly(from))
    };
    let read_only = |path: &PathBuf| (path.clone(), Mount::ReadOnly(path.clone()));
    added.extend(denied.read_only.iter().map(read_only).chain(denied.unreadable.iter().map(closed)));
    // A folder that is reached through a link is mounted under a second name, where the file must be closed, too.
    let other_names = mounts.iter().flat_map(|(path, mount)| {
        let from = match mount {
            Mount::ReadOnly(from) | Mount::Writable(from) if from != path => Some(from),
            Mount::ReadOnly(_) | Mount::Writable(_) | Mount::Memory | Mount::Link(_) => None,
        };
        let below = from.into_iter().flat_map(|from| denied.unreadable.iter().map(move |denied| (from, denied)));
        below.filter_map(|(from, denied)| Some((path.join(denied.strip_prefix(from).ok()?), closed(denied).1)))
    });
    added.extend(other_names.collect::<Vec<_>>());
    added
}

impl Mount {
    fn add_to(&self, args: &mut Vec<String>, path: &Path) {
        let path = path.display().to_string();
        let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
        match self {
            Self::ReadOnly(from) => add(&["--ro-bind", &from.display().to_string(), &path]),
            Self::Writable(from) => add(&["--bind", &from.display().to_string(), &path]),
            Self::Memory => add(&["--size", TMPFS_BYTES, "--tmpfs", &path]),
            Self::Link(target) => add(&["--symlink", &target.display().to_string(), &path]),
        }
    }
}
