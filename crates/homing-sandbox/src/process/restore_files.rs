//! Files that a command must not change although they lie where it may write: remembered before it starts, put back
//! after everybody it started has ended. This is the only guard where the kernel has no read-only view to offer, and
//! the second one for files that did not exist yet. Which files these are is not known here.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// More than this is not remembered; what is beyond it is only watched.
const MAX_BYTES: u64 = 8 << 20;
const MAX_ENTRIES: usize = 4_000;

/// Names below a folder that a command may write to, which must be the same afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFiles {
    /// The folder.
    pub root: PathBuf,
    /// Relative names; they need not exist.
    pub names: Vec<PathBuf>,
    /// A relative name without which none of this matters: when it is gone at the end, nothing is put back.
    #[serde(default)]
    pub unless_gone: Option<PathBuf>,
}

/// What stood at a path.
#[derive(Debug, PartialEq, Eq)]
enum FileState {
    Missing,
    File {
        mark: Mark,
        mode: u32,
        bytes: Option<Vec<u8>>,
    },
    Folder {
        mode: u32,
        entries: BTreeMap<PathBuf, FileState>,
    },
    Link(PathBuf),
    /// A pipe, a socket, a device; or something that cannot be read.
    Other,
}

/// Tells a file that was touched from one that was not. The kernel sets the last two, and nobody can set them back.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    inode: u64,
    size: u64,
    changed: i64,
    changed_nanos: i64,
}

/// The remembered state of a list of files.
#[derive(Debug)]
pub(super) struct Snapshot {
    paths: Vec<Remembered>,
}

#[derive(Debug)]
struct Remembered {
    root: PathBuf,
    name: PathBuf,
    before: FileState,
    unless_gone: Option<PathBuf>,
}

#[derive(Default)]
struct SnapshotBudget {
    bytes: u64,
    entries: usize,
}

impl Snapshot {
    pub(super) fn of(kept: &[KeptFiles]) -> Self {
        let mut budget = SnapshotBudget::default();
        let mut paths = Vec::new();
        for KeptFiles { root, names, unless_gone } in kept {
            for name in names.iter().filter(|name| is_plain(name)) {
                let before = FileState::of(&root.join(name), &mut budget);
                let (root, unless_gone) = (root.clone(), unless_gone.as_ref().map(|it| root.join(it)));
                paths.push(Remembered { root, name: name.clone(), before, unless_gone });
            }
        }
        Self { paths }
    }

    /// What was not there, and can be taken away while the command runs: it lies in a root itself, so that no folder on
    /// the way can be exchanged for a link meanwhile.
    pub(super) fn missing(&self) -> Vec<PathBuf> {
        let direct =
            self.paths.iter().filter(|it| it.before == FileState::Missing && it.name.components().count() == 1);
        direct.map(|it| it.root.join(&it.name)).collect()
    }

    /// Puts back what differs, and says what did.
    pub(super) fn put_back(self) -> Vec<PathBuf> {
        let differing = self.paths.into_iter().filter(|it| {
            let is_gone = it.unless_gone.as_ref().is_some_and(|path| path.symlink_metadata().is_err());
            !is_gone && (straighten(&it.root, &it.name, &it.before) || !it.before.holds(&it.root.join(&it.name)))
        });
        let put = |it: Remembered| {
            let path = it.root.join(it.name);
            let _ = it.before.restore(&path);
            path
        };
        differing.map(put).collect()
    }
}

/// Takes away what appears at these paths, as often as it does. What it had to take.
pub(super) fn take_away(paths: &[PathBuf]) -> Vec<PathBuf> {
    let appeared = |path: &&PathBuf| match path.symlink_metadata() {
        Err(_) => false,
        // Neither follows a link that takes the path's place in between.
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).is_ok(),
        Ok(_) => fs::remove_file(path).is_ok(),
    };
    paths.iter().filter(appeared).cloned().collect()
}

/// A name of ordinary components: nothing that climbs.
fn is_plain(name: &Path) -> bool {
    name.components().all(|it| matches!(it, Component::Normal(_))) && name.components().next().is_some()
}

/// A folder on the way that has become a link would lead us out of the root: such a link goes. `true` if one did.
fn straighten(root: &Path, name: &Path, before: &FileState) -> bool {
    let mut path = root.to_owned();
    for component in name.parent().into_iter().flat_map(Path::components) {
        path.push(component);
        let Ok(found) = path.symlink_metadata() else { return false };
        if !found.is_dir() {
            let led_before = found.is_symlink() && *before == FileState::Other;
            return !led_before && fs::remove_file(&path).is_ok();
        }
    }
    false
}

impl FileState {
    fn of(path: &Path, budget: &mut SnapshotBudget) -> Self {
        // Beyond a link lies what the command can only change if it may change it anyway.
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
        Self::File { mark: Mark::of(&found), mode: found.mode(), bytes }
    }

    fn folder(path: &Path, found: &Metadata, budget: &mut SnapshotBudget) -> Self {
        let Ok(list) = fs::read_dir(path) else { return Self::Other };
        let names = list.flatten().map(|entry| PathBuf::from(entry.file_name()));
        let entries = names.map(|name| (name.clone(), Self::of(&path.join(name), budget))).collect();
        Self::Folder { mode: found.mode(), entries }
    }

    /// Whether the path is still as it was.
    fn holds(&self, path: &Path) -> bool {
        let found = path.symlink_metadata();
        match (self, found) {
            (Self::Missing, found) => found.is_err(),
            (Self::Other, _) => true,
            (_, Err(_)) => false,
            (Self::File { mark, mode, bytes }, Ok(found)) => {
                let same = || bytes.as_ref().is_some_and(|bytes| fs::read(path).is_ok_and(|it| it == *bytes));
                found.is_file() && found.mode() == *mode && (*mark == Mark::of(&found) || same())
            }
            (Self::Link(to), Ok(_)) => fs::read_link(path).is_ok_and(|it| it == *to),
            (Self::Folder { mode, entries }, Ok(found)) => {
                let names: Vec<PathBuf> = match fs::read_dir(path) {
                    Ok(list) => list.flatten().map(|entry| entry.file_name().into()).collect(),
                    Err(_) => return false,
                };
                found.is_dir()
                    && found.mode() == *mode
                    && names.iter().all(|name| entries.contains_key(name))
                    && entries.iter().all(|(name, state)| state.holds(&path.join(name)))
            }
        }
    }

    fn restore(&self, path: &Path) -> io::Result<()> {
        if self.holds(path) {
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

impl Mark {
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
        put_back: &[&str],
    ) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for (name, text) in before {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), text).unwrap();
        }
        let names = names.iter().map(PathBuf::from).collect();
        let memory = Snapshot::of(&[KeptFiles { root: root.clone(), names, unless_gone: None }]);
        change(&root);
        let reverted = memory.put_back();
        let expected: Vec<PathBuf> = put_back.iter().map(|name| root.join(name)).collect();
        assert_eq!(reverted, expected);
        for (name, text) in before {
            assert_eq!(fs::read_to_string(root.join(name)).unwrap(), *text, "{name}");
        }
        folder
    }

    #[test]
    fn what_is_untouched_is_left_alone() {
        check(&[(".git/config", "a"), ("src/a", "x")], &[".git/config", ".git/hooks"], |_| (), &[]);
    }

    #[test]
    fn p14_what_was_missing_goes_again() {
        let change = |root: &Path| {
            fs::create_dir_all(root.join(".git/hooks")).unwrap();
            fs::write(root.join(".git/hooks/pre-commit"), "evil").unwrap();
        };
        let folder = check(&[(".git/config", "a")], &[".git/config", ".git/hooks"], change, &[".git/hooks"]);
        assert!(!folder.path().join(".git/hooks").exists());
    }

    #[test]
    fn what_was_changed_deleted_or_added_is_put_back() {
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
    fn p14_a_nested_repository_may_go_but_not_change() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["a/.git", "b/.git"] {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::write(root.join(name).join("config"), "x").unwrap();
        }
        let kept = |name: &str| KeptFiles {
            root: root.clone(),
            names: vec![Path::new(name).join(".git/config")],
            unless_gone: Some(Path::new(name).join(".git")),
        };
        let memory = Snapshot::of(&[kept("a"), kept("b")]);
        fs::remove_dir_all(root.join("a")).unwrap();
        fs::write(root.join("b/.git/config"), "evil").unwrap();
        assert_eq!(memory.put_back(), [root.join("b/.git/config")]);
        assert!(!root.join("a").exists() && fs::read_to_string(root.join("b/.git/config")).unwrap() == "x");
    }

    #[test]
    fn a_folder_that_became_a_link_does_not_lead_out() {
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
