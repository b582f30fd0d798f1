//! Restores protected files that a command changed although they lie where it may write. Their state is recorded before the
//! command starts, and restored after every process it started has ended.
//!
//! Neither back-end can prevent all such changes. Landlock has no exceptions below a writable folder, so `.git/hooks` is
//! writable if the workspace is. Bubblewrap mounts protected paths read-only, but only those that exist: mounting over a
//! missing one would create it in the workspace, where git and builds would find it. So the supervisor, which outlives the
//! command and runs outside the sandbox, keeps the state and puts it back. It does this even if the host has been killed
//! meanwhile, since otherwise killing the host would be a way to keep a changed hook. Restoring happens only when no
//! process of the command is left, because a running one could change the files again or swap a folder on the way for a
//! link. The list of protected files comes with the request.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// Bounds of the recorded state. A file beyond them is compared but cannot be restored.
const MAX_BYTES: u64 = 8 << 20;
const MAX_ENTRIES: usize = 4_000;

/// Protected names below a folder that a command may write to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectedFiles {
    /// The folder.
    pub root: PathBuf,
    /// Relative names; they need not exist.
    pub names: Vec<PathBuf>,
    /// A relative name, such as a nested repository. If it no longer exists at the end, nothing is restored.
    #[serde(default)]
    pub unless_removed: Option<PathBuf>,
}

/// The recorded state of a path.
#[derive(Debug, PartialEq, Eq)]
enum FileState {
    Missing,
    File {
        stamp: FileStamp,
        mode: u32,
        bytes: Option<Vec<u8>>,
    },
    Folder {
        mode: u32,
        entries: BTreeMap<PathBuf, FileState>,
    },
    Link(PathBuf),
    /// A pipe, a socket, a device, or something that cannot be read.
    Other,
}

/// Distinguishes a changed file from an unchanged one. The kernel sets the change time, and programs cannot set it back.
#[derive(Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    size: u64,
    changed: i64,
    changed_nanos: i64,
}

/// The recorded states of a list of paths.
#[derive(Debug)]
pub(super) struct Snapshot {
    paths: Vec<RecordedPath>,
}

#[derive(Debug)]
struct RecordedPath {
    root: PathBuf,
    name: PathBuf,
    before: FileState,
    unless_removed: Option<PathBuf>,
}

#[derive(Default)]
struct SnapshotBudget {
    bytes: u64,
    entries: usize,
}

impl Snapshot {
    pub(super) fn of(protected: &[ProtectedFiles]) -> Self {
        let mut budget = SnapshotBudget::default();
        let mut paths = Vec::new();
        for ProtectedFiles { root, names, unless_removed } in protected {
            for name in names.iter().filter(|name| is_plain(name)) {
                let before = FileState::of(&root.join(name), &mut budget);
                let (root, unless_removed) = (root.clone(), unless_removed.as_ref().map(|name| root.join(name)));
                paths.push(RecordedPath { root, name: name.clone(), before, unless_removed });
            }
        }
        Self { paths }
    }

    /// Returns the paths that did not exist and can be removed while the command runs. They lie directly in a root, so no
    /// folder on the way can be replaced by a link meanwhile.
    pub(super) fn missing(&self) -> Vec<PathBuf> {
        let direct =
            self.paths.iter().filter(|path| path.before == FileState::Missing && path.name.components().count() == 1);
        direct.map(|path| path.root.join(&path.name)).collect()
    }

    /// Restores the paths that differ, and returns them.
    pub(super) fn restore(self) -> Vec<PathBuf> {
        let differing = self.paths.into_iter().filter(|recorded| {
            let RecordedPath { root, name, before, unless_removed } = recorded;
            let is_gone = unless_removed.as_ref().is_some_and(|path| path.symlink_metadata().is_err());
            !is_gone && (remove_link_on_the_way(root, name, before) || !before.matches(&root.join(name)))
        });
        let restore = |recorded: RecordedPath| {
            let path = recorded.root.join(recorded.name);
            let _ = recorded.before.restore(&path);
            path
        };
        differing.map(restore).collect()
    }
}

/// Removes whatever exists at these paths, and returns those where something did.
pub(super) fn remove_appeared(paths: &[PathBuf]) -> Vec<PathBuf> {
    let appeared = |path: &&PathBuf| match path.symlink_metadata() {
        Err(_) => false,
        // Neither call follows a link that replaces the path in between.
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).is_ok(),
        Ok(_) => fs::remove_file(path).is_ok(),
    };
    paths.iter().filter(appeared).cloned().collect()
}

/// Returns true if the name has only ordinary components, no `..` or `/`.
fn is_plain(name: &Path) -> bool {
    name.components().all(|component| matches!(component, Component::Normal(_))) && name.components().next().is_some()
}

/// Removes a link that has replaced a folder on the way to a path, because it would lead out of the root. Returns true if
/// it removed one.
fn remove_link_on_the_way(root: &Path, name: &Path, before: &FileState) -> bool {
    let mut path = root.to_owned();
    for component in name.parent().into_iter().flat_map(Path::components) {
        path.push(component);
        let Ok(found) = path.symlink_metadata() else { return false };
        if !found.is_dir() {
            let was_link = found.is_symlink() && *before == FileState::Other;
            return !was_link && fs::remove_file(&path).is_ok();
        }
    }
    false
}

impl FileState {
    fn of(path: &Path, budget: &mut SnapshotBudget) -> Self {
        // A command can change files behind a link only if they are writable by themselves.
        if path.parent().is_some_and(|parent| parent.canonicalize().is_ok_and(|real| real != parent)) {
            return Self::Other;
        }
        let Ok(found) = path.symlink_metadata() else { return Self::Missing };
        budget.entries += 1;
        if found.is_symlink() {
            return fs::read_link(path).map_or(Self::Other, Self::Link);
        }
        if found.is_dir() && budget.entries < MAX_ENTRIES {
            return Self::folder(path, &found, budget);
        }
        if !found.is_file() {
            return Self::Other;
        }
        budget.bytes += found.len();
        let bytes = if budget.bytes <= MAX_BYTES { fs::read(path).ok() } else { None };
        Self::File { stamp: FileStamp::of(&found), mode: found.mode(), bytes }
    }

    fn folder(path: &Path, found: &Metadata, budget: &mut SnapshotBudget) -> Self {
        let Ok(list) = fs::read_dir(path) else { return Self::Other };
        let names = list.flatten().map(|entry| PathBuf::from(entry.file_name()));
        let entries = names.map(|name| (name.clone(), Self::of(&path.join(name), budget))).collect();
        Self::Folder { mode: found.mode(), entries }
    }

    /// Returns true if the path is still in this state.
    fn matches(&self, path: &Path) -> bool {
        let found = path.symlink_metadata();
        match (self, found) {
            (Self::Missing, found) => found.is_err(),
            (Self::Other, _) => true,
            (_, Err(_)) => false,
            (Self::File { stamp, mode, bytes }, Ok(found)) => {
                let same = || bytes.as_ref().is_some_and(|bytes| fs::read(path).is_ok_and(|found| found == *bytes));
                found.is_file() && found.mode() == *mode && (*stamp == FileStamp::of(&found) || same())
            }
            (Self::Link(to), Ok(_)) => fs::read_link(path).is_ok_and(|target| target == *to),
            (Self::Folder { mode, entries }, Ok(found)) => {
                let names: Vec<PathBuf> = match fs::read_dir(path) {
                    Ok(list) => list.flatten().map(|entry| entry.file_name().into()).collect(),
                    Err(_) => return false,
                };
                found.is_dir()
                    && found.mode() == *mode
                    && names.iter().all(|name| entries.contains_key(name))
                    && entries.iter().all(|(name, state)| state.matches(&path.join(name)))
            }
        }
    }

    fn restore(&self, path: &Path) -> io::Result<()> {
        if self.matches(path) {
            return Ok(());
        }
        match self {
            Self::Other => Ok(()),
            Self::Missing => remove(path),
            Self::Link(to) => {
                remove(path)?;
                symlink(to, path)
            }
            Self::File { bytes: None, .. } => Ok(()),
            Self::File { mode, bytes: Some(bytes), .. } => {
                remove(path)?;
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::write(path, bytes)?;
                fs::set_permissions(path, Permissions::from_mode(*mode))
            }
            Self::Folder { mode, entries } => restore_folder(path, *mode, entries),
        }
    }
}

fn restore_folder(path: &Path, mode: u32, entries: &BTreeMap<PathBuf, FileState>) -> io::Result<()> {
    if !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        remove(path)?;
        fs::create_dir_all(path)?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode | 0o700))?;
    for entry in fs::read_dir(path)?.flatten() {
        if !entries.contains_key(Path::new(&entry.file_name())) {
            remove(&entry.path())?;
        }
    }
    for (name, state) in entries {
        state.restore(&path.join(name))?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(found) if found.is_dir() => {
            let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
            fs::remove_dir_all(path)
        }
        Ok(_) => fs::remove_file(path),
    }
}

impl FileStamp {
    fn of(found: &Metadata) -> Self {
        Self { inode: found.ino(), size: found.len(), changed: found.ctime(), changed_nanos: found.ctime_nsec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        before: &[(&str, &str)],
        names: &[&str],
        change: impl FnOnce(&Path),
        restored: &[&str],
    ) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for (name, text) in before {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), text).unwrap();
        }
        let names = names.iter().map(PathBuf::from).collect();
        let snapshot = Snapshot::of(&[ProtectedFiles { root: root.clone(), names, unless_removed: None }]);
        change(&root);
        let reverted = snapshot.restore();
        let expected: Vec<PathBuf> = restored.iter().map(|name| root.join(name)).collect();
        assert_eq!(reverted, expected);
        for (name, text) in before {
            assert_eq!(fs::read_to_string(root.join(name)).unwrap(), *text, "{name}");
        }
        folder
    }

    #[test]
    fn unchanged_files_are_left_alone() {
        check(&[(".git/config", "a"), ("src/a", "x")], &[".git/config", ".git/hooks"], |_| (), &[]);
    }

    #[test]
    fn p14_created_protected_files_are_removed() {
        let change = |root: &Path| {
            fs::create_dir_all(root.join(".git/hooks")).unwrap();
            fs::write(root.join(".git/hooks/pre-commit"), "evil").unwrap();
        };
        let folder = check(&[(".git/config", "a")], &[".git/config", ".git/hooks"], change, &[".git/hooks"]);
        assert!(!folder.path().join(".git/hooks").exists());
    }

    #[test]
    fn changed_deleted_and_added_files_are_restored() {
        let change = |root: &Path| {
            fs::write(root.join(".git/config"), "evil").unwrap();
            fs::remove_file(root.join(".claude/settings.json")).unwrap();
            fs::write(root.join(".claude/agents.md"), "evil").unwrap();
        };
        let before = [(".git/config", "a"), (".claude/settings.json", "{}")];
        let folder = check(&before, &[".git/config", ".claude"], change, &[".git/config", ".claude"]);
        assert!(!folder.path().join(".claude/agents.md").exists());
    }

    #[test]
    fn p14_nested_repository_may_be_removed_but_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["a/.git", "b/.git"] {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::write(root.join(name).join("config"), "x").unwrap();
        }
        let protected = |name: &str| ProtectedFiles {
            root: root.clone(),
            names: vec![Path::new(name).join(".git/config")],
            unless_removed: Some(Path::new(name).join(".git")),
        };
        let snapshot = Snapshot::of(&[protected("a"), protected("b")]);
        fs::remove_dir_all(root.join("a")).unwrap();
        fs::write(root.join("b/.git/config"), "evil").unwrap();
        assert_eq!(snapshot.restore(), [root.join("b/.git/config")]);
        assert!(!root.join("a").exists() && fs::read_to_string(root.join("b/.git/config")).unwrap() == "x");
    }

    #[test]
    fn restoring_does_not_follow_a_link_out_of_the_root() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("config"), "theirs").unwrap();
        let change = |root: &Path| {
            fs::rename(root.join(".git"), root.join("moved")).unwrap();
            symlink(outside.path(), root.join(".git")).unwrap();
        };
        check(&[(".git/config", "a")], &[".git/config"], change, &[".git/config"]);
        assert_eq!(fs::read_to_string(outside.path().join("config")).unwrap(), "theirs");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}
