//! PrivateFolder folders of runs, and the folder that they lie in. Each is opened by descriptor without following links, and its
//! owner and mode are checked before anything is written to it.

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

use crate::{command_env::CommandEnv, folder_owner, policy::PolicyError};

const NO_LINK: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Beginnings of the names of private folders; an ID follows.
const FOLDER_PREFIXES: [&str; 3] = ["hooks-", "git-", "probe-"];

/// The private folder of a run, outside its workspace: home, temporary files, caches. It is removed with the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateFolder {
    /// The folder.
    pub root: PathBuf,
}

/// Returns true if `path` is a folder that belongs to this user and is closed to all others. A link does not count.
pub fn is_private(path: &Path) -> bool {
    let stat = openat(CWD, path, NO_LINK, Mode::empty()).and_then(|folder| fstat(&folder));
    stat.is_ok_and(|stat| is_ours(&stat) && stat.st_mode & 0o077 == 0)
}

/// Opens a folder that only this user can write to, and creates it if it is missing.
///
/// # Errors
/// Fails if something else is in its place: a link, a folder of another user, or one that other users can write to.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("it has no parent folder"));
    };
    // The folders above are the user's or the system's choice, so links to them are followed.
    DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    let parent = openat(CWD, parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    create_closed(&parent, Path::new(name))
}

/// Opens a folder by its name in another one, and creates it if it is missing. Fails if other users can write to it.
fn create_closed(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    let folder = create(parent, name)?;
    let mode = fstat(&folder)?.st_mode & 0o7777;
    if mode & 0o022 != 0 {
        return Err(io::Error::other(format!("other users can write to it (mode {mode:04o})")));
    }
    Ok(folder)
}

/// Opens a folder by its name in another one, and creates it if it is missing. Fails if another user owns it.
fn create(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
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

impl PrivateFolder {
    /// The folder for temporary files.
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// The folder for copies of protected files, which all runs share. Commands cannot reach it.
    pub fn store(&self) -> PathBuf {
        self.root.with_file_name("restore")
    }

    /// Creates a private folder in `parent` and removes it again.
    ///
    /// # Errors
    /// Fails if commands could not get one there.
    pub fn try_in(parent: &Path, host: &CommandEnv) -> Result<(), PolicyError> {
        let folder = Self { root: parent.join(format!("probe-{}", uuid::Uuid::new_v4())) };
        let prepared = folder.prepare(host);
        folder.remove();
        prepared
    }

    /// Creates the folders with access for the user only. Package registries that the user already has are linked, so that
    /// builds work offline.
    ///
    /// # Errors
    ///
    /// Fails if a folder cannot be created, or if others than the user can write to it.
    pub fn prepare(&self, host: &CommandEnv) -> Result<(), PolicyError> {
        let refuse = |path: &Path, error: io::Error| PolicyError::PrivateFolder {
            path: path.to_owned(),
            why: error.to_string(),
        };
        let (parent, name) = (self.root.parent().unwrap_or(&self.root), self.root.file_name().unwrap_or_default());
        let parent = open(parent).map_err(|error| refuse(parent, error))?;
        fill(&parent, Path::new(name), host).map_err(|error| refuse(&self.root, error))
    }

    /// The environment of a command that uses this folder.
    pub fn env(&self, host: &CommandEnv, tmp: &Path) -> BTreeMap<String, String> {
        let path_of = |name: &str| self.root.join(name).display().to_string();
        let mut env = BTreeMap::from(
            [
                ("HOME", path_of("home")),
                ("TMPDIR", tmp.display().to_string()),
                ("XDG_CACHE_HOME", path_of("home/.cache")),
                ("CARGO_HOME", path_of("cargo")),
                ("npm_config_cache", path_of("home/.npm")),
                ("PIP_CACHE_DIR", path_of("home/.cache/pip")),
                ("GOCACHE", path_of("home/.cache/go-build")),
                ("GOPATH", path_of("home/go")),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let modules = host.home.join("go/pkg/mod");
        if modules.is_dir() {
            env.insert("GOMODCACHE".to_owned(), modules.display().to_string());
        }
        env
    }

    /// An empty file that cannot be opened, to be mounted over files that deny rules name.
    pub fn closed_file(&self) -> PathBuf {
        self.root.join("closed-file")
    }

    /// As [`PrivateFolder::closed_file`], for folders.
    pub fn closed_folder(&self) -> PathBuf {
        self.root.join("closed-folder")
    }

    /// Removes the folder.
    pub fn remove(&self) {
        // A folder that cannot be opened would stop the removal of the others.
        let _ = fs::remove_dir(self.closed_folder());
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Removes the private folders in `parent` whose process was killed.
pub fn sweep(parent: &Path) {
    if open(parent).is_err() {
        return;
    }
    let is_private = |name: &str| {
        let name = FOLDER_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        name.parse::<uuid::Uuid>().is_ok()
    };
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        let root = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && entry.file_name().to_str().is_some_and(is_private) && folder_owner::is_abandoned(&root) {
            PrivateFolder { root }.remove();
        }
    }
}

/// Creates a run's folder in `parent`, with everything in it.
fn fill(parent: &OwnedFd, name: &Path, host: &CommandEnv) -> io::Result<()> {
    let root = create_closed(parent, name)?;
    folder_owner::record(&root)?;
    // Commands may widen the modes of the folders in it; other users still cannot get past the folder itself.
    for name in ["home", "tmp", "output"] {
        create(&root, Path::new(name))?;
    }
    let closed = mkdirat(&root, "closed-folder", Mode::empty());
    let created = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let closed_file = openat(&root, "closed-file", created, Mode::empty()).map(drop);
    for outcome in [closed, closed_file] {
        outcome.or_else(|error| if error == Errno::EXIST { Ok(()) } else { Err(error) })?;
    }
    let cargo = create(&root, Path::new("cargo"))?;
    let users_cargo = host.var("CARGO_HOME").map_or(host.home.join(".cargo"), PathBuf::from);
    for name in ["git", "config.toml"] {
        link(&users_cargo.join(name), &cargo, Path::new(name))?;
    }
    // Commands can write here. If one has replaced the folder, its replacement is left alone and not followed.
    if let Ok(registry) = create(&cargo, Path::new("registry")) {
        for name in ["index", "cache"] {
            link(&users_cargo.join("registry").join(name), &registry, Path::new(name))?;
        }
    }
    Ok(())
}

/// Creates a link to `to` if that exists and the name is still free.
fn link(to: &Path, folder: &OwnedFd, name: &Path) -> io::Result<()> {
    if to.exists() && statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        symlinkat(to, folder, name)?;
    }
    Ok(())
}
