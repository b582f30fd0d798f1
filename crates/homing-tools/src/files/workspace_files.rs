//! Files within a run's roots: opened for reading, listed, and found a place to be written at.
//! What is in a file and which tool wants it is not known here.

use std::{
    ffi::OsString,
    fs::{File, Metadata},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use homing_core::{
    authority::Decision,
    rule::{Subject, Subjects},
    tool::ToolContext,
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
    protected_paths,
    protected_roots::is_git_folder,
    roots::{outermost, unswapped},
};

/// Opening must neither wait for the other end of a pipe nor take over a terminal.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// A regular file, open for reading.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) metadata: Metadata,
    /// Where it lies, all links resolved.
    pub(crate) real: PathBuf,
}

/// A folder that may be listed and searched, or a single file.
pub(crate) struct OpenFolder {
    /// Holds on to the folder itself, wherever its name may point by now.
    pub(crate) fd: OwnedFd,
    /// Where it lies, all links resolved.
    pub(crate) real: PathBuf,
}

/// What a path turned out to be.
pub(crate) enum FoundPath {
    File(Opened),
    Folder(OpenFolder),
}

/// A place where a file may be written.
pub(crate) struct Target {
    /// The folder it goes into.
    pub(crate) folder: OwnedFd,
    /// Its name in that folder.
    pub(crate) name: OsString,
    /// Both together, all links resolved.
    pub(crate) real: PathBuf,
    /// What is there now.
    pub(crate) existing: Option<Opened>,
}

/// A root, and the rest of a path below it.
struct Recurse {
    root: OwnedFd,
    rest: PathBuf,
}

/// Opens a regular file for reading.
pub(crate) fn open_file(context: &ToolContext, tool: &str, wanted: &RequestedPath) -> Result<Opened, String> {
    match find(context, tool, wanted)? {
        FoundPath::File(opened) => Ok(opened),
        FoundPath::Folder(_) => Err(format!("{} is a folder: use `ls` or `tree` to look into it", wanted.shown)),
    }
}

/// Opens a regular file or a folder for reading.
pub(crate) fn find(context: &ToolContext, tool: &str, wanted: &RequestedPath) -> Result<FoundPath, String> {
    let own = &context.authority.own;
    let roots = &unswapped(&own.read, &own.write);
    let fd = open_within(roots, &wanted.absolute, READ).map_err(|error| refusal(error, wanted, roots, "read"))?;
    let real = real_path(&fd, &wanted.absolute);
    if is_kernel_made(&real) {
        return Err(format!("{} belongs to the kernel and is not a file to read", wanted.shown));
    }
    rules_allow(context, tool, &real)?;
    inspect(fd, real, wanted)
}

fn inspect(fd: OwnedFd, real: PathBuf, wanted: &RequestedPath) -> Result<FoundPath, String> {
    let file = File::from(fd);
    let metadata = file.metadata().map_err(|error| format!("{}: {error}", wanted.shown))?;
    if metadata.is_dir() {
        return Ok(FoundPath::Folder(OpenFolder { fd: file.into(), real }));
    }
    if !metadata.is_file() {
        return Err(format!("{} is a pipe, socket or device; only regular files are read and written", wanted.shown));
    }
    Ok(FoundPath::File(Opened { file, metadata, real }))
}

fn is_kernel_made(real: &Path) -> bool {
    ["/proc", "/sys", "/dev"].iter().any(|it| real.starts_with(it)) && !real.starts_with("/dev/shm")
}

/// The rules once more, on the file that was opened in truth: between the first check and the opening a link may have
/// been changed. Questions were asked before the call; only a plain no is new here.
fn rules_allow(context: &ToolContext, tool: &str, real: &Path) -> Result<(), String> {
    let path = relative_real(context, real);
    match context.authority.own.decide(tool, &Subjects::Parts(vec![Subject::Path(path)])) {
        Decision::Deny { why } => Err(format!("not allowed: {why}")),
        Decision::Allow { .. } | Decision::Ask { .. } => Ok(()),
    }
}

/// Opens a file of a folder that was walked, by its path below that folder.
pub(crate) fn open_below(folder: &OpenFolder, rest: &Path) -> Option<File> {
    let file = File::from(confined_open::open(&folder.fd, rest, READ | OFlags::NOFOLLOW).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

/// Whether `rest` is there below the folder, without opening it.
pub(crate) fn exists_below(folder: &OpenFolder, rest: &Path) -> bool {
    let parent = rest.parent().unwrap_or(Path::new(""));
    let Some(name) = rest.file_name() else { return true };
    let Ok(parent) = confined_open::open(&folder.fd, parent, FOLDER) else { return false };
    statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Finds the place that `wanted` names for writing, and makes the folders above it.
pub(crate) fn target(context: &ToolContext, tool: &str, wanted: &RequestedPath) -> Result<Target, String> {
    let roots = &context.authority.own.write;
    unprotected(roots, &wanted.absolute, wanted)?;
    let refuse = |error| refusal(error, wanted, roots, "write");
    let target = match open_within(roots, &wanted.absolute, READ) {
        Ok(fd) => {
            let real = real_path(&fd, &wanted.absolute);
            match inspect(fd, real, wanted)? {
                FoundPath::Folder(_) => return Err(format!("{} is a folder, not a file", wanted.shown)),
                FoundPath::File(opened) => existing(roots, opened).map_err(refuse)?,
            }
        }
        Err(Errno::NOENT) => fresh(roots, wanted).map_err(refuse)?,
        Err(error) => return Err(refuse(error)),
    };
    unprotected(roots, &target.real, wanted)?;
    rules_allow(context, tool, &target.real)?;
    Ok(target)
}

/// The folder of the file itself, not of a link that led to it: replacing a link would leave its target as it was.
fn existing(roots: &[PathBuf], opened: Opened) -> Result<Target, Errno> {
    let (Some(parent), Some(name)) = (opened.real.parent(), opened.real.file_name()) else { return Err(Errno::ISDIR) };
    let folder = open_within(roots, parent, FOLDER)?;
    Ok(Target { folder, name: name.to_owned(), real: opened.real.clone(), existing: Some(opened) })
}

fn fresh(roots: &[PathBuf], wanted: &RequestedPath) -> Result<Target, Errno> {
    let (Some(parent), Some(name)) = (wanted.absolute.parent(), wanted.absolute.file_name()) else {
        return Err(Errno::ISDIR);
    };
    let folder = make_folders(roots, parent)?;
    // A link to nowhere: what it points at may be anywhere.
    if let Ok(stat) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
        && FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
    {
        return Err(Errno::LOOP);
    }
    let real = real_path(&folder, parent).join(name);
    Ok(Target { folder, name: name.to_owned(), real, existing: None })
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

fn unprotected(roots: &[PathBuf], path: &Path, wanted: &RequestedPath) -> Result<(), String> {
    let below = |root: &PathBuf| {
        let rest = path.strip_prefix(root).or_else(|_| path.strip_prefix(canonical(root))).ok()?;
        let in_git = || is_git_folder(root, roots).then(|| protected_paths::protects_in_git(rest)).flatten();
        protected_paths::protects(rest).or_else(in_git)
    };
    match roots.iter().find_map(below) {
        None => Ok(()),
        Some(why) => Err(format!(
            "{} may not be written by an agent: {why}. Say in your answer what should stand there; a person can put it there.",
            wanted.shown
        )),
    }
}

/// Opens `path` below whichever root it lies in. A link that leaves its root is tried once more at the place where it
/// leads, because that may be inside, too; the second opening is held to a root like the first.
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

/// The root that `path` lies in. A root is the user's word, so links on the way to it are followed; but one that lies in
/// another root can have been replaced by a link, so the outer one is what is opened.
fn below(roots: &[PathBuf], path: &Path) -> Option<Recurse> {
    let mut as_written = outermost(roots).filter_map(|root| Some((root, path.strip_prefix(root).ok()?.to_owned())));
    let (root, rest) = as_written.next().or_else(|| {
        outermost(roots).find_map(|root| Some((root, path.strip_prefix(root.canonicalize().ok()?).ok()?.to_owned())))
    })?;
    let root = rustix::fs::open(root, FOLDER, Mode::empty()).ok()?;
    Some(Recurse { root, rest })
}

fn refusal(error: Errno, wanted: &RequestedPath, roots: &[PathBuf], verb: &str) -> String {
    let path = &wanted.shown;
    match error {
        Errno::XDEV if roots.is_empty() => format!("this run may not {verb} any files"),
        Errno::XDEV => {
            let roots: Vec<String> = roots.iter().map(|it| it.display().to_string()).collect();
            format!("{path} lies outside the folders this run may {verb}: {}", roots.join(", "))
        }
        Errno::NOENT => format!("{path} does not exist; `glob` or `ls` shows what does"),
        Errno::LOOP => format!("{path} is a link that leads nowhere, in a circle or out"),
        Errno::NOTDIR => format!("{path} does not exist: something above it is not a folder"),
        Errno::NAMETOOLONG => format!("{path} is too long a name for this system"),
        Errno::NXIO => format!("{path} is a pipe, socket or device; only regular files are read and written"),
        error => format!("{path} cannot be opened: {error}"),
    }
}
