//! Opens files and folders within a run's roots, and finds the targets of writes.

use std::{
    ffi::OsString,
    fs::{File, Metadata},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use homing_core::{
    authority::Decision,
    rule::{Subject, Subjects},
    tool::{Effect, ToolContext},
};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, statat},
    io::Errno,
};

use crate::files::{
    confined_open::{self, FOLDER, real_path},
    path_arg::{RequestedPath, canonical, relative_real},
};
use homing_sandbox::{
    git_hooks, protected_paths,
    protected_roots::is_git_folder,
    roots::{outermost, unswapped},
};

/// Flags for reading: opening must neither block on a pipe nor acquire a terminal.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// A regular file, open for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) metadata: Metadata,
    /// The path with all links resolved.
    pub(crate) real: PathBuf,
}

/// A folder, open for listing and searching.
pub(crate) struct OpenFolder {
    /// Refers to the folder itself, even if its name now leads elsewhere.
    pub(crate) fd: OwnedFd,
    /// The path with all links resolved.
    pub(crate) real: PathBuf,
}

/// The file or folder at a path.
pub(crate) enum FoundPath {
    File(OpenFile),
    Folder(OpenFolder),
}

/// The target of a write.
pub(crate) struct WriteTarget {
    /// The folder of the file.
    pub(crate) folder: OwnedFd,
    /// The name in that folder.
    pub(crate) name: OsString,
    /// The full path with all links resolved.
    pub(crate) real: PathBuf,
    /// The existing file, if any.
    pub(crate) existing: Option<OpenFile>,
}

/// A root, and the rest of a path below it.
struct RootedPath {
    root: OwnedFd,
    rest: PathBuf,
}

/// Opens a regular file for reading.
pub(crate) fn open_file(context: &ToolContext, tool: &str, requested: &RequestedPath) -> Result<OpenFile, String> {
    match find(context, tool, requested)? {
        FoundPath::File(opened) => Ok(opened),
        FoundPath::Folder(_) => Err(format!("{} is a folder: use `ls` or `tree`", requested.shown)),
    }
}

/// Opens a regular file or a folder for reading.
pub(crate) fn find(context: &ToolContext, tool: &str, requested: &RequestedPath) -> Result<FoundPath, String> {
    let own = &context.authority.own;
    let roots = &unswapped(&own.read, &own.write);
    let fd =
        open_within(roots, &requested.absolute, READ).map_err(|error| open_error(error, requested, roots, "read"))?;
    let real = real_path(&fd, &requested.absolute);
    if is_kernel_path(&real) {
        return Err(format!("{} is a kernel file system path and cannot be read", requested.shown));
    }
    rules_allow(context, tool, Effect::Reads, &real)?;
    inspect(fd, real, requested)
}

fn inspect(fd: OwnedFd, real: PathBuf, requested: &RequestedPath) -> Result<FoundPath, String> {
    let file = File::from(fd);
    let metadata = file.metadata().map_err(|error| format!("{}: {error}", requested.shown))?;
    if metadata.is_dir() {
        return Ok(FoundPath::Folder(OpenFolder { fd: file.into(), real }));
    }
    if !metadata.is_file() {
        return Err(format!("{} is a pipe, socket or device; only regular files are supported", requested.shown));
    }
    Ok(FoundPath::File(OpenFile { file, metadata, real }))
}

fn is_kernel_path(real: &Path) -> bool {
    ["/proc", "/sys", "/dev"].iter().any(|folder| real.starts_with(folder)) && !real.starts_with("/dev/shm")
}

/// Checks the rules again for the file that was opened: a link may have changed between the first check and the opening.
/// Approvals were requested before the call, so only a denial matters here.
pub(crate) fn rules_allow(context: &ToolContext, tool: &str, effect: Effect, real: &Path) -> Result<(), String> {
    let path = relative_real(context, real);
    match context.authority.own.decide(tool, effect, &Subjects::Parts(vec![Subject::Path(path)])) {
        Decision::Deny { why } => Err(format!("not allowed: {why}")),
        Decision::Allow { .. } | Decision::Ask { .. } => Ok(()),
    }
}

/// Opens a file below a folder that was walked.
pub(crate) fn open_below(folder: &OpenFolder, rest: &Path) -> Option<File> {
    let file = File::from(confined_open::open(&folder.fd, rest, READ | OFlags::NOFOLLOW).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

/// Returns true if `rest` exists below the folder, without opening it.
pub(crate) fn exists_below(folder: &OpenFolder, rest: &Path) -> bool {
    let parent = rest.parent().unwrap_or(Path::new(""));
    let Some(name) = rest.file_name() else { return true };
    let Ok(parent) = confined_open::open(&folder.fd, parent, FOLDER) else { return false };
    statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Finds the target of a write and creates the folders above it.
pub(crate) fn target(context: &ToolContext, tool: &str, requested: &RequestedPath) -> Result<WriteTarget, String> {
    let roots = &context.authority.own.write;
    unprotected(roots, &requested.absolute, requested)?;
    let refuse = |error| open_error(error, requested, roots, "write");
    let target = match open_within(roots, &requested.absolute, READ) {
        Ok(fd) => {
            let real = real_path(&fd, &requested.absolute);
            match inspect(fd, real, requested)? {
                FoundPath::Folder(_) => return Err(format!("{} is a folder, not a file", requested.shown)),
                FoundPath::File(opened) => existing(roots, opened).map_err(refuse)?,
            }
        }
        Err(Errno::NOENT) => fresh(roots, requested).map_err(refuse)?,
        Err(error) => return Err(refuse(error)),
    };
    unprotected(roots, &target.real, requested)?;
    rules_allow(context, tool, Effect::Changes, &target.real)?;
    Ok(target)
}

/// Uses the folder of the file itself, not of a link to it: replacing the link would leave the file unchanged.
fn existing(roots: &[PathBuf], opened: OpenFile) -> Result<WriteTarget, Errno> {
    let (Some(parent), Some(name)) = (opened.real.parent(), opened.real.file_name()) else { return Err(Errno::ISDIR) };
    let folder = open_within(roots, parent, FOLDER)?;
    Ok(WriteTarget { folder, name: name.to_owned(), real: opened.real.clone(), existing: Some(opened) })
}

fn fresh(roots: &[PathBuf], requested: &RequestedPath) -> Result<WriteTarget, Errno> {
    let (Some(parent), Some(name)) = (requested.absolute.parent(), requested.absolute.file_name()) else {
        return Err(Errno::ISDIR);
    };
    let folder = make_folders(roots, parent)?;
    // A dangling link: its target may be outside the roots.
    if let Ok(stat) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
        && FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
    {
        return Err(Errno::LOOP);
    }
    let real = real_path(&folder, parent).join(name);
    Ok(WriteTarget { folder, name: name.to_owned(), real, existing: None })
}

fn make_folders(roots: &[PathBuf], path: &Path) -> Result<OwnedFd, Errno> {
    match open_within(roots, path, FOLDER) {
        Err(Errno::NOENT) => (),
        opened => return opened,
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::NOENT) };
    let above = make_folders(roots, parent)?;
    match mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => openat(&above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()),
        Err(error) => Err(error),
    }
}

fn unprotected(roots: &[PathBuf], path: &Path, requested: &RequestedPath) -> Result<(), String> {
    let below = |root: &PathBuf| {
        let rest = path.strip_prefix(root).or_else(|_| path.strip_prefix(canonical(root))).ok()?;
        let in_git = || is_git_folder(root, roots).then(|| protected_paths::protects_in_git(rest)).flatten();
        let in_hooks = || {
            let hooks = git_hooks::configured(&canonical(root), None);
            hooks
                .iter()
                .any(|hooks| rest.starts_with(hooks))
                .then(|| "git executes the hooks in this folder".to_owned())
        };
        protected_paths::protects(rest).or_else(in_git).or_else(in_hooks)
    };
    // The folder with an agent's memory is inside a protected one, and a root of this agent alone.
    let is_memory = |root: &&PathBuf| protected_paths::is_agent_memory(root) && path.starts_with(root);
    let memory: Vec<PathBuf> = roots.iter().filter(is_memory).cloned().collect();
    let roots = if memory.is_empty() { roots } else { &memory };
    match roots.iter().find_map(below) {
        None => Ok(()),
        Some(why) => Err(format!(
            "{} may not be written by an agent: {why}. Describe the change in your answer, so that the user can make it",
            requested.shown
        )),
    }
}

/// Opens `path` below its root. If a link leaves the root, its target is tried once more, because it may be in another
/// root; the second attempt is confined to a root like the first.
fn open_within(roots: &[PathBuf], path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    match open_as_written(roots, path, flags) {
        Err(Errno::XDEV) => {
            let real = canonical(path);
            if real == path { Err(Errno::XDEV) } else { open_as_written(roots, &real, flags) }
        }
        opened => opened,
    }
}

fn open_as_written(roots: &[PathBuf], path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let below = below(roots, path).ok_or(Errno::XDEV)?;
    confined_open::open(&below.root, &below.rest, flags)
}

/// Finds the root of `path`. Links in the path of a root are followed, because the user chose it; but a root inside another
/// root may have been replaced by a link, so the outermost root is opened.
fn below(roots: &[PathBuf], path: &Path) -> Option<RootedPath> {
    let mut as_written = outermost(roots).filter_map(|root| Some((root, path.strip_prefix(root).ok()?.to_owned())));
    let (root, rest) = as_written.next().or_else(|| {
        outermost(roots).find_map(|root| Some((root, path.strip_prefix(root.canonicalize().ok()?).ok()?.to_owned())))
    })?;
    let root = rustix::fs::open(root, FOLDER, Mode::empty()).ok()?;
    Some(RootedPath { root, rest })
}

fn open_error(error: Errno, requested: &RequestedPath, roots: &[PathBuf], verb: &str) -> String {
    let path = &requested.shown;
    match error {
        Errno::XDEV if roots.is_empty() => format!("this run has no permission to {verb} files"),
        Errno::XDEV => {
            let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
            format!("{path} is outside the folders that this run may {verb}: {}", roots.join(", "))
        }
        Errno::NOENT => format!("{path} does not exist; use `glob` or `ls` to find files"),
        Errno::LOOP => format!("{path} is a link that is dangling, circular or leads outside"),
        Errno::NOTDIR => format!("{path} does not exist: a parent is not a folder"),
        Errno::NAMETOOLONG => format!("{path} is too long for this system"),
        Errno::NXIO => format!("{path} is a pipe, socket or device; only regular files are supported"),
        error => format!("cannot open {path}: {error}"),
    }
}
