//! The recorded state of one protected path: records it together with a copy of each file, compares it with what is there
//! later, and restores it. Names are stored as bytes, because a file name need not be valid UTF-8.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, Metadata, Permissions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// Bounds of the copies, which are made before every command. Beyond them the command is refused.
const MAX_BYTES: u64 = 256 << 20;
const MAX_ENTRIES: usize = 100_000;

/// Folders of a submodule's git folder that hold its content. They can be large, and nothing in them is executed.
const CONTENT: [&str; 2] = ["objects", "lfs"];

/// The recorded state of a path.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FileState {
    Missing,
    File {
        stamp: FileStamp,
        mode: u32,
        /// The number of its copy; `None` if the file could not be read.
        copy: Option<usize>,
    },
    Folder {
        mode: u32,
        entries: Vec<(OsString, FileState)>,
    },
    Link(OsString),
    /// A pipe, a socket, a device, or something that cannot be read.
    Other,
}

/// Distinguishes a changed file from an unchanged one. The kernel sets the change time, and programs cannot set it back.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStamp {
    inode: u64,
    size: u64,
    changed: i64,
    changed_nanos: i64,
}

/// A folder with numbered copies of files.
#[derive(Debug)]
pub(super) struct Copies {
    folder: PathBuf,
    count: usize,
    bytes: u64,
    entries: usize,
}

impl Copies {
    pub(super) fn in_folder(folder: PathBuf) -> Self {
        Self { folder, count: 0, bytes: 0, entries: 0 }
    }

    fn path(&self, copy: usize) -> PathBuf {
        self.folder.join(copy.to_string())
    }

    /// Copies a file; returns `None` if it cannot be read.
    fn add(&mut self, path: &Path, len: u64) -> io::Result<Option<usize>> {
        self.bytes += len;
        if self.bytes > MAX_BYTES {
            return Err(io::Error::other(format!("the protected files are larger than {} MiB", MAX_BYTES >> 20)));
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(from) = rustix::fs::open(path, flags, Mode::empty()) else { return Ok(None) };
        let mut to = File::create(self.path(self.count))?;
        // One byte more than announced, so that a growing file is noticed and does not fill the disk.
        if io::copy(&mut File::from(from).take(len + 1), &mut to)? > len {
            return Err(io::Error::other(format!("{} grows while it is copied", path.display())));
        }
        self.count += 1;
        Ok(Some(self.count - 1))
    }
}

impl FileState {
    /// Records the state of a path and copies its files.
    ///
    /// # Errors
    /// Fails if there is more to copy than the bounds allow, or if a copy cannot be written.
    pub(super) fn record(path: &Path, copies: &mut Copies) -> io::Result<Self> {
        // A command can change files behind a link only if they are writable by themselves.
        if path.parent().is_some_and(|parent| parent.canonicalize().is_ok_and(|real| real != parent)) {
            return Ok(Self::Other);
        }
        let is_modules = path.file_name().is_some_and(|name| name == "modules");
        Self::of(path, is_modules, copies)
    }

    fn of(path: &Path, is_modules: bool, copies: &mut Copies) -> io::Result<Self> {
        let Ok(found) = path.symlink_metadata() else { return Ok(Self::Missing) };
        copies.entries += 1;
        if copies.entries > MAX_ENTRIES {
            return Err(io::Error::other(format!("there are more than {MAX_ENTRIES} protected files")));
        }
        if found.is_symlink() {
            return Ok(fs::read_link(path).map_or(Self::Other, |to| Self::Link(to.into())));
        }
        if found.is_dir() {
            return Self::folder(path, &found, is_modules, copies);
        }
        if !found.is_file() {
            return Ok(Self::Other);
        }
        let copy = copies.add(path, found.len())?;
        Ok(Self::File { stamp: FileStamp::of(&found), mode: found.mode(), copy })
    }

    fn folder(path: &Path, found: &Metadata, is_modules: bool, copies: &mut Copies) -> io::Result<Self> {
        let Ok(list) = fs::read_dir(path) else { return Ok(Self::Other) };
        let names: Vec<OsString> = list.flatten().map(|entry| entry.file_name()).collect();
        let is_git =
            is_modules && ["HEAD", "objects", "refs"].iter().all(|name| names.iter().any(|found| found == name));
        let mut entries = Vec::new();
        for name in names {
            let is_content = is_git && CONTENT.iter().any(|content| name == *content);
            let state = if is_content { Self::Other } else { Self::of(&path.join(&name), is_modules, copies)? };
            entries.push((name, state));
        }
        Ok(Self::Folder { mode: found.mode(), entries })
    }

    /// Returns true if the path is still in this state.
    pub(super) fn matches(&self, path: &Path, copies: &Copies) -> bool {
        let found = path.symlink_metadata();
        match (self, found) {
            (Self::Missing, found) => found.is_err(),
            (Self::Other, _) => true,
            (_, Err(_)) => false,
            (Self::File { stamp, mode, copy }, Ok(found)) => {
                let same = || copy.is_some_and(|copy| same_content(path, &copies.path(copy)).unwrap_or(false));
                found.is_file() && found.mode() == *mode && (*stamp == FileStamp::of(&found) || same())
            }
            (Self::Link(to), Ok(_)) => fs::read_link(path).is_ok_and(|target| target.as_os_str() == to),
            (Self::Folder { mode, entries }, Ok(found)) => {
                let names: Vec<OsString> = match fs::read_dir(path) {
                    Ok(list) => list.flatten().map(|entry| entry.file_name()).collect(),
                    Err(_) => return false,
                };
                let known = by_name(entries);
                found.is_dir()
                    && found.mode() == *mode
                    && names.iter().all(|name| known.contains_key(name))
                    && entries.iter().all(|(name, state)| state.matches(&path.join(name), copies))
            }
        }
    }

    /// Restores the path. Goes on after a failure, and returns the first one.
    pub(super) fn restore(&self, path: &Path, copies: &Copies) -> io::Result<()> {
        if self.matches(path, copies) {
            return Ok(());
        }
        match self {
            Self::Other => Ok(()),
            Self::Missing => remove(path),
            Self::Link(to) => {
                remove(path)?;
                symlink(to, path)
            }
            Self::File { copy: None, .. } => Err(io::Error::other("it could not be read before")),
            Self::File { mode, copy: Some(copy), .. } => {
                remove(path)?;
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::copy(copies.path(*copy), path)?;
                fs::set_permissions(path, Permissions::from_mode(*mode))
            }
            Self::Folder { mode, entries } => restore_folder(path, *mode, entries, copies),
        }
    }
}

fn by_name(entries: &[(OsString, FileState)]) -> BTreeMap<&OsString, &FileState> {
    entries.iter().map(|(name, state)| (name, state)).collect()
}

fn restore_folder(path: &Path, mode: u32, entries: &[(OsString, FileState)], copies: &Copies) -> io::Result<()> {
    if !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        remove(path)?;
        fs::create_dir_all(path)?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode | 0o700))?;
    let known = by_name(entries);
    let mut outcome = Ok(());
    for entry in fs::read_dir(path)?.flatten() {
        if !known.contains_key(&entry.file_name()) {
            outcome = outcome.and(remove(&entry.path()));
        }
    }
    for (name, state) in entries {
        outcome = outcome.and(state.restore(&path.join(name), copies));
    }
    outcome.and(fs::set_permissions(path, Permissions::from_mode(mode)))
}

fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(found) if found.is_dir() => {
            open_folders(path);
            fs::remove_dir_all(path)
        }
        Ok(_) => fs::remove_file(path),
    }
}

/// Makes the folders below a path writable, so that an ordinary user can remove what a command has closed.
fn open_folders(path: &Path) {
    let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    let folders = fs::read_dir(path).into_iter().flatten().flatten();
    folders
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .for_each(|entry| open_folders(&entry.path()));
}

fn same_content(a: &Path, b: &Path) -> io::Result<bool> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let len = a.read(&mut left)?;
        b.read_exact(&mut right[..len])?;
        if len == 0 || left[..len] != right[..len] {
            return Ok(len == 0);
        }
    }
}

impl FileStamp {
    fn of(found: &Metadata) -> Self {
        Self { inode: found.ino(), size: found.len(), changed: found.ctime(), changed_nanos: found.ctime_nsec() }
    }
}
