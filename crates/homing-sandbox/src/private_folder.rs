//! Folders of this user's alone: the one in which runs get their private folders, and these themselves. Each is opened by
//! descriptor, without following a link, and checked before anything is put into it.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, mkdirat, openat, statat, symlinkat},
    io::Errno,
    process::geteuid,
};

use crate::{command_env::CommandEnv, policy::PolicyError};

const NO_LINK: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder of a run's own, outside its workspace: home, temporary files, caches. It goes with the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Private {
    /// The folder.
    pub root: PathBuf,
}

/// Whether a folder belongs to this user and is closed to all others. A link is not.
pub fn is_users_alone(path: &Path) -> bool {
    let stat = openat(CWD, path, NO_LINK, Mode::empty()).and_then(|folder| fstat(&folder));
    stat.is_ok_and(|it| is_ours(&it) && it.st_mode & 0o077 == 0)
}

/// Opens a folder that only this user can write to, and makes it if it is missing.
///
/// # Errors
/// Fails if something else is in its place: a link, a folder of another user, or one that other users can write to.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("it is not a folder in another one"));
    };
    // The folders above are the user's or the system's choice, so links to them are followed.
    DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let parent = openat(CWD, parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    make_closed(&parent, Path::new(name))
}

/// Opens a folder by its name in another one, and makes it if it is missing. Nobody else may be able to write to it.
fn make_closed(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    let folder = make(parent, name)?;
    let mode = fstat(&folder)?.st_mode & 0o7777;
    if mode & 0o022 != 0 {
        return Err(io::Error::other(format!("other users can write to it (mode {mode:04o})")));
    }
    Ok(folder)
}

/// Opens a folder of this user's by its name in another one, and makes it if it is missing.
fn make(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => (),
        Err(error) => return Err(error.into()),
    }
    let folder = openat(parent, name, NO_LINK, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => io::Error::other("it is a link or a file, not a folder"),
        error => error.into(),
    })?;
    let stat = fstat(&folder)?;
    if !is_ours(&stat) {
        return Err(io::Error::other(format!("it belongs to another user (id {})", stat.st_uid)));
    }
    Ok(folder)
}

fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == geteuid().as_raw()
}

impl Private {
    /// Where temporary files go.
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Makes the folders, for the user alone. Registries that were fetched before are linked, so that builds work offline.
    pub fn prepare(&self, surroundings: &CommandEnv) -> Result<(), PolicyError> {
        let refuse =
            |path: &Path, error: io::Error| PolicyError::Private { path: path.to_owned(), why: error.to_string() };
        let (around, name) = (self.root.parent().unwrap_or(&self.root), self.root.file_name().unwrap_or_default());
        let around = open(around).map_err(|error| refuse(around, error))?;
        fill(&around, Path::new(name), surroundings).map_err(|error| refuse(&self.root, error))
    }

    /// The environment of a command that uses this folder.
    pub fn env(&self, surroundings: &CommandEnv, tmp: &Path) -> BTreeMap<String, String> {
        let place = |name: &str| self.root.join(name).display().to_string();
        let mut env = BTreeMap::from(
            [
                ("HOME", place("home")),
                ("TMPDIR", tmp.display().to_string()),
                ("XDG_CACHE_HOME", place("home/.cache")),
                ("CARGO_HOME", place("cargo")),
                ("npm_config_cache", place("home/.npm")),
                ("PIP_CACHE_DIR", place("home/.cache/pip")),
                ("GOCACHE", place("home/.cache/go-build")),
                ("GOPATH", place("home/go")),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let modules = surroundings.home.join("go/pkg/mod");
        if modules.is_dir() {
            env.insert("GOMODCACHE".to_owned(), modules.display().to_string());
        }
        env
    }

    /// Takes the folder away.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Makes a run's folder in `around`, with everything in it.
fn fill(around: &OwnedFd, name: &Path, surroundings: &CommandEnv) -> io::Result<()> {
    let root = make_closed(around, name)?;
    // Commands may open the folders in it wider; others cannot get that far.
    for name in ["home", "tmp", "output"] {
        make(&root, Path::new(name))?;
    }
    let cargo = make(&root, Path::new("cargo"))?;
    let theirs = surroundings.var("CARGO_HOME").map_or(surroundings.home.join(".cargo"), PathBuf::from);
    for name in ["git", "config.toml"] {
        link(&theirs.join(name), &cargo, Path::new(name))?;
    }
    // Commands write in here: what they have put in its place is theirs to use, and not followed.
    if let Ok(registry) = make(&cargo, Path::new("registry")) {
        for name in ["index", "cache"] {
            link(&theirs.join("registry").join(name), &registry, Path::new(name))?;
        }
    }
    Ok(())
}

/// Links to what exists, unless something stands at the name already.
fn link(to: &Path, folder: &OwnedFd, name: &Path) -> io::Result<()> {
    if to.exists() && statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        symlinkat(to, folder, name)?;
    }
    Ok(())
}
