//! A root of its own for a command, built by bubblewrap from what it may touch. Only arguments are made here.

use std::path::{Path, PathBuf};

use homing_core::authority::Sandbox;

use crate::{
    policy::SandboxSetup,
    probe::Variant,
    process::{Jail, Sockets},
};

/// Where the helper stands inside.
const HELPER: &str = "/run/homing-helper";

/// How large a temporary folder in memory may become.
const TMPFS_BYTES: &str = "536870912";

/// Something to be seen inside.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mount {
    ReadOnly(PathBuf),
    Writable(PathBuf),
    /// In memory, gone with the command.
    Memory,
    Link(PathBuf),
}

pub(super) fn jail(plan: &SandboxSetup<'_>, program: &Path, variant: Variant, helper: &Path) -> Jail {
    let mut args: Vec<String> =
        ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"].map(str::to_owned).to_vec();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|it| (*it).to_owned()));
    if variant.user_namespace {
        add(&["--unshare-user"]);
    }
    if !plan.access.has_network() {
        add(&["--unshare-net"]);
    }
    add(&["--cap-drop", "ALL", "--as-pid-1", "--hostname", "homing", "--dev", "/dev"]);
    if variant.proc {
        // Read-only as a whole: to the kernel root inside is root, and in `/proc/sys` lies what the machine runs.
        add(&["--proc", "/proc", "--remount-ro", "/proc"]);
    }
    for (path, mount) in mounts(plan) {
        mount.add_to(&mut args, &path);
    }
    let mut add = |words: &[&str]| args.extend(words.iter().map(|it| (*it).to_owned()));
    add(&["--ro-bind", &helper.display().to_string(), HELPER, "--remount-ro", "/"]);
    let workdir = plan.workdir.display().to_string();
    add(&["--chdir", &workdir]);
    Jail::Bubblewrap {
        program: program.to_owned(),
        args,
        helper: HELPER.into(),
        sockets: Sockets::Namespaced,
        way_out: plan.access.way_out.clone(),
    }
}

/// All mounts, outer folders before inner ones, so that what is said of the inner one holds.
fn mounts(plan: &SandboxSetup<'_>) -> Vec<(PathBuf, Mount)> {
    let mut mounts: Vec<(PathBuf, Mount)> = plan.system.iter().flat_map(|it| seen(it)).collect();
    mounts.extend(plan.access.read.iter().flat_map(|it| seen(it)));
    mounts.extend(private(plan));
    for root in plan.access.write.iter().filter_map(|it| it.canonicalize().ok()) {
        mounts.push((root.clone(), Mount::Writable(root)));
    }
    mounts.extend(kept(plan));
    // A later word on the same path replaces an earlier one, and depth decides the order.
    let mut ordered: Vec<(PathBuf, Mount)> = Vec::new();
    for (path, mount) in mounts {
        ordered.retain(|(it, _)| *it != path);
        ordered.push((path, mount));
    }
    ordered.sort_by_key(|(path, _)| path.components().count());
    ordered
}

/// A readable path: itself, and where it is a link, the link and what it leads to.
fn seen(path: &Path) -> Vec<(PathBuf, Mount)> {
    let Ok(real) = path.canonicalize() else { return Vec::new() };
    let shown = (real.clone(), Mount::ReadOnly(real.clone()));
    match path.read_link() {
        Ok(target) => vec![(path.to_owned(), Mount::Link(target)), shown],
        Err(_) if real == path => vec![shown],
        // A folder on the way is a link: the thing itself is shown under both names.
        Err(_) => vec![(path.to_owned(), Mount::ReadOnly(real)), shown],
    }
}

fn private(plan: &SandboxSetup<'_>) -> Vec<(PathBuf, Mount)> {
    let root = &plan.private.root;
    let tmp = PathBuf::from("/tmp");
    match plan.access.sandbox {
        Sandbox::ReadOnly => vec![(root.clone(), Mount::ReadOnly(root.clone())), (tmp, Mount::Memory)],
        Sandbox::WorkspaceWrite | Sandbox::Off => {
            let mut mounts =
                vec![(root.clone(), Mount::ReadOnly(root.clone())), (tmp, Mount::Writable(plan.private.tmp()))];
            let writable = ["home", "tmp", "cargo"].map(|name| root.join(name));
            mounts.extend(writable.map(|it| (it.clone(), Mount::Writable(it))));
            mounts
        }
    }
}

/// Authority files that exist are shown read-only. The folders around them become mounts as well: a mount cannot be
/// renamed, and so nothing can be put in its place.
fn kept(plan: &SandboxSetup<'_>) -> Vec<(PathBuf, Mount)> {
    let mut mounts = Vec::new();
    for kept in plan.kept() {
        for name in &kept.names {
            let path = kept.root.join(name);
            if !path.symlink_metadata().is_ok_and(|found| !found.is_symlink())
                || path.canonicalize().ok() != Some(path.clone())
            {
                continue;
            }
            let around = path.ancestors().skip(1).take_while(|it| **it != kept.root);
            mounts.extend(around.map(|it| (it.to_owned(), Mount::Writable(it.to_owned()))));
            mounts.push((path.clone(), Mount::ReadOnly(path)));
        }
    }
    mounts
}

impl Mount {
    fn add_to(&self, args: &mut Vec<String>, path: &Path) {
        let path = path.display().to_string();
        let mut add = |words: &[&str]| args.extend(words.iter().map(|it| (*it).to_owned()));
        match self {
            Self::ReadOnly(from) => add(&["--ro-bind", &from.display().to_string(), &path]),
            Self::Writable(from) => add(&["--bind", &from.display().to_string(), &path]),
            Self::Memory => add(&["--size", TMPFS_BYTES, "--tmpfs", &path]),
            Self::Link(target) => add(&["--symlink", &target.display().to_string(), &path]),
        }
    }
}
