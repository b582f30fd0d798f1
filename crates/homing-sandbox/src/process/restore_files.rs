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
//!
//! The state and the copies are on disk, in a folder that no command can reach: their size is then not limited by memory,
//! and if the supervisor is killed, the host restores the files from there.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::{
    private_folder,
    process::file_state::{Copies, FileState},
};

/// The file with the recorded states in the folder of a snapshot. Its supervisor holds a lock on it.
const STATES: &str = "states.json";
/// The folder of the copies.
const COPIES: &str = "copies";
/// The folder in the store for files that recovery has replaced.
const REPLACED: &str = "replaced";

/// The protected files of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// The files, by the folder they lie in.
    pub files: Vec<ProtectedFiles>,
    /// The folder for copies of the files. No command may write to it.
    pub store: PathBuf,
    /// Files that were restored before, because the supervisor of an earlier command was killed.
    #[serde(default)]
    pub recovered: Restored,
}

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

/// The paths that differed from their recorded state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Paths in their recorded state again.
    pub restored: Vec<PathBuf>,
    /// Paths that could not be restored completely.
    pub failed: Vec<PathBuf>,
}

/// The recorded states of a list of paths. The folder with the copies is removed when this is restored.
#[derive(Debug)]
pub(super) struct Snapshot {
    paths: Vec<RecordedPath>,
    copies: Copies,
    folder: Option<PathBuf>,
    /// Locked as long as the supervisor lives.
    _states: Option<File>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RecordedPath {
    root: PathBuf,
    name: PathBuf,
    before: FileState,
    unless_removed: Option<PathBuf>,
}

impl Snapshot {
    /// Records the states of the protected files.
    ///
    /// # Errors
    /// Fails if the files exceed the bounds or if their copies cannot be written.
    pub(super) fn take(protection: &Protection) -> io::Result<Self> {
        if protection.files.is_empty() {
            return Ok(Self {
                paths: Vec::new(),
                copies: Copies::in_folder(PathBuf::new()),
                folder: None,
                _states: None,
            });
        }
        private_folder::open(&protection.store)?;
        let folder = protection.store.join(uuid::Uuid::new_v4().to_string());
        DirBuilder::new().mode(0o700).create(&folder)?;
        Self::record(protection, &folder).inspect_err(|_| drop(fs::remove_dir_all(&folder)))
    }

    fn record(protection: &Protection, folder: &Path) -> io::Result<Self> {
        let states = File::create(folder.join(STATES))?;
        rustix::fs::flock(&states, FlockOperation::NonBlockingLockExclusive)?;
        DirBuilder::new().mode(0o700).create(folder.join(COPIES))?;
        let mut copies = Copies::in_folder(folder.join(COPIES));
        let mut paths = Vec::new();
        for ProtectedFiles { root, names, unless_removed } in &protection.files {
            for name in names.iter().filter(|name| is_plain(name)) {
                let before = FileState::record(&root.join(name), &mut copies)?;
                let unless_removed = unless_removed.as_ref().map(|name| root.join(name));
                paths.push(RecordedPath { root: root.clone(), name: name.clone(), before, unless_removed });
            }
        }
        serde_json::to_writer(io::BufWriter::new(&states), &paths)?;
        Ok(Self { paths, copies, folder: Some(folder.to_owned()), _states: Some(states) })
    }

    /// Returns the paths that did not exist and can be removed while the command runs. They lie directly in a root, so no
    /// folder on the way can be replaced by a link meanwhile.
    pub(super) fn missing(&self) -> Vec<PathBuf> {
        let direct =
            self.paths.iter().filter(|path| path.before == FileState::Missing && path.name.components().count() == 1);
        direct.map(|path| path.root.join(&path.name)).collect()
    }

    /// Restores the paths that differ, and returns them.
    pub(super) fn restore(self) -> Restored {
        let restored = restore_all(&self.paths, &self.copies, |_| ());
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
        restored
    }
}

/// Restores the files of commands whose supervisor was killed, as far as they lie in these roots.
///
/// Time may have passed since then, and the user may have changed such a file: what is replaced is copied to the store first. A
/// state is believed only for roots that the caller may write to anyway.
pub(crate) fn recover(store: &Path, roots: &[PathBuf]) -> Restored {
    let mut all = Restored::default();
    let entries = fs::read_dir(store).into_iter().flatten().flatten().filter(|entry| entry.file_name() != REPLACED);
    for folder in entries.map(|entry| entry.path()) {
        let Ok(states) = File::open(folder.join(STATES)) else { continue };
        // The lock of a living supervisor is left alone.
        if rustix::fs::flock(&states, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let Ok(paths) = serde_json::from_reader::<_, Vec<RecordedPath>>(io::BufReader::new(&states)) else {
            // Killed before the command was started.
            let _ = fs::remove_dir_all(&folder);
            continue;
        };
        if paths.iter().all(|path| !path.root.exists()) {
            let _ = fs::remove_dir_all(&folder);
            continue;
        }
        if !paths.iter().all(|path| roots.contains(&path.root) && is_plain(&path.name)) {
            continue;
        }
        let aside = store.join(REPLACED).join(folder.file_name().unwrap_or_default());
        let restored =
            restore_all(&paths, &Copies::in_folder(folder.join(COPIES)), |path| drop(copy_aside(path, &aside)));
        all.restored.extend(restored.restored);
        all.failed.extend(restored.failed);
        let _ = fs::remove_dir_all(&folder);
    }
    all
}

fn restore_all(paths: &[RecordedPath], copies: &Copies, before_each: impl Fn(&Path)) -> Restored {
    let mut all = Restored::default();
    for RecordedPath { root, name, before, unless_removed } in paths {
        let path = root.join(name);
        open_way(root, name, 0o500);
        let is_gone = unless_removed.as_ref().is_some_and(|path| path.symlink_metadata().is_err());
        let is_same = || !remove_link_on_the_way(root, name, before) && before.matches(&path, copies);
        if is_gone || is_same() {
            continue;
        }
        open_way(root, name, 0o700);
        before_each(&path);
        let list = if before.restore(&path, copies).is_ok() { &mut all.restored } else { &mut all.failed };
        list.push(path);
    }
    all
}

/// Copies what is at a path into a folder. No process of the command is left that could swap it for a link meanwhile.
fn copy_aside(path: &Path, folder: &Path) -> io::Result<()> {
    let to = folder.join(path.file_name().unwrap_or_default());
    let found = path.symlink_metadata()?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if found.is_symlink() {
        return symlink(fs::read_link(path)?, to);
    }
    if found.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(&to)?;
        return fs::read_dir(path)?.flatten().try_for_each(|entry| copy_aside(&entry.path(), &to));
    }
    if found.is_file() { fs::copy(path, to).map(drop) } else { Ok(()) }
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

/// Gives the user these rights to the folders on the way to a path, which a command may have closed to hide a change.
fn open_way(root: &Path, name: &Path, bits: u32) {
    let mut path = root.to_owned();
    for component in std::iter::once(None).chain(name.parent().into_iter().flat_map(Path::components).map(Some)) {
        path.extend(component);
        let Ok(found) = path.symlink_metadata() else { return };
        if found.is_dir() && found.mode() & bits != bits {
            let _ = fs::set_permissions(&path, Permissions::from_mode(found.mode() | 0o700));
        }
    }
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
        let files = vec![ProtectedFiles { root: root.clone(), names, unless_removed: None }];
        let store = tempfile::tempdir().unwrap();
        let snapshot =
            Snapshot::take(&Protection { files, store: store.path().join("restore"), ..Default::default() }).unwrap();
        change(&root);
        let reverted = snapshot.restore();
        let restored = restored.iter().map(|name| root.join(name)).collect();
        assert_eq!(reverted, Restored { restored, failed: Vec::new() });
        assert_eq!(fs::read_dir(store.path().join("restore")).unwrap().count(), 0, "the copies are removed");
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
        let store = root.join("store");
        let snapshot =
            Snapshot::take(&Protection { files: vec![protected("a"), protected("b")], store, ..Default::default() })
                .unwrap();
        fs::remove_dir_all(root.join("a")).unwrap();
        fs::write(root.join("b/.git/config"), "evil").unwrap();
        assert_eq!(snapshot.restore().restored, [root.join("b/.git/config")]);
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
