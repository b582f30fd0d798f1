//! Lists the files of a folder. Links that leave the project or form loops are not followed. It reads no contents.

use std::{
    collections::HashSet,
    fs::{self, DirEntry},
    path::{self, Path, PathBuf},
    sync::Arc,
};

use homing_core::diagnostic::Diagnostic;

use crate::dialect::Depth;

/// The rule of diagnostics about files and folders that are not read.
pub(crate) const NOT_READ: &str = "not-read";
/// Deeper folders are not read.
const MAX_LEVELS: usize = 16;
/// The maximum number of files in one listing.
const MAX_FILES: usize = 100_000;

/// Selects the files to list.
#[derive(Clone, Copy)]
pub(crate) struct WalkFilter<'a> {
    pub(crate) depth: Depth,
    /// Endings of file names in lower case, with the dot.
    pub(crate) endings: &'a [&'a str],
    /// Links that lead out of this folder are not followed.
    pub(crate) fence: Option<&'a Path>,
    /// Names of folders that are not read.
    pub(crate) skipped: &'a [&'a str],
}

/// Files in the order of their paths, and problems with listing them.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// True if there is something that is not among the files, so that another filter may find it.
    is_partial: bool,
    followed: HashSet<PathBuf>,
}

/// Lists the files below `root`; a missing folder is treated as empty.
pub(crate) fn list(root: &Path, filter: WalkFilter<'_>) -> Listing {
    let mut listing = Listing::default();
    let Ok(metadata) = fs::symlink_metadata(root) else { return listing };
    if metadata.is_symlink() && !listing.may_follow(root, filter) {
        return listing;
    }
    listing.is_partial = metadata.is_symlink();
    listing.warn_if_world_writable(root);
    listing.folder(root, filter, 0);
    sort(&mut listing.files, root);
    listing
}

/// Sorts files below `root` in the order of their paths. Comparing components takes seven times as many instructions.
fn sort(files: &mut [PathBuf], root: &Path) {
    let start = root.as_os_str().len();
    // The end of a component comes before everything else that can follow its bytes.
    let rank = |byte: &u8| if path::is_separator(char::from(*byte)) { 0 } else { *byte };
    files.sort_by_cached_key(|file| {
        let below = file.as_os_str().as_encoded_bytes().get(start..).unwrap_or_default();
        below.iter().map(rank).collect::<Vec<u8>>()
    });
}

/// Lists a single file if it exists and is not a link out of the fence.
pub(crate) fn single(path: &Path, fence: Option<&Path>) -> Listing {
    let mut listing = Listing::default();
    let Ok(metadata) = fs::symlink_metadata(path) else { return listing };
    let filter = WalkFilter { depth: Depth::Flat, endings: &[], fence, skipped: &[] };
    if metadata.is_file() || (metadata.is_symlink() && path.is_file() && listing.may_follow(path, filter)) {
        listing.files.push(path.to_owned());
    }
    listing
}

impl Listing {
    /// Returns true if there is nothing but these files.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_partial && self.diagnostics.is_empty()
    }

    fn warn(&mut self, path: &Path, message: impl Into<String>) {
        let path = Some(Arc::new(path.to_owned()));
        self.diagnostics.push(Diagnostic::warning(message).path(path));
    }

    /// Warns about something that is not read.
    fn skip(&mut self, path: &Path, message: impl Into<String>) {
        let path = Some(Arc::new(path.to_owned()));
        self.diagnostics.push(Diagnostic::warning(message).rule_id(NOT_READ).path(path));
    }

    fn folder(&mut self, folder: &Path, filter: WalkFilter<'_>, level: usize) {
        if level > MAX_LEVELS || self.files.len() > MAX_FILES {
            return self.skip(folder, "too many levels or files: this folder was read only in part");
        }
        match fs::read_dir(folder) {
            Ok(entries) => {
                entries.filter_map(Result::ok).for_each(|entry| self.entry(folder, &entry, filter, level));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => (),
            Err(error) => self.skip(folder, format!("the folder cannot be read: {error}")),
        }
    }

    fn entry(&mut self, folder: &Path, entry: &DirEntry, filter: WalkFilter<'_>, level: usize) {
        let Ok(kind) = entry.file_type() else { return self.is_partial = true };
        let file_name = entry.file_name();
        let name = file_name.to_string_lossy();
        let is_named = ends(&name, filter.endings);
        if kind.is_file() && is_named {
            // The path of the entry is made in two steps, the second of which moves it.
            let mut path = PathBuf::with_capacity(folder.as_os_str().len() + 1 + file_name.len());
            path.push(folder);
            path.push(&file_name);
            self.files.push(path);
        } else if kind.is_dir() && filter.depth == Depth::Deep && !filter.skipped.contains(&name.as_ref()) {
            self.folder(&entry.path(), filter, level + 1);
        } else {
            self.is_partial = true;
            if kind.is_symlink() {
                self.link(&entry.path(), &name, filter, level);
            } else if is_named && !kind.is_dir() {
                self.skip(&entry.path(), "not a regular file: skipped");
            }
        }
    }

    fn link(&mut self, path: &Path, name: &str, filter: WalkFilter<'_>, level: usize) {
        let named = ends(name, filter.endings);
        match fs::metadata(path) {
            Ok(target) if target.is_dir() => {
                let follow = filter.depth == Depth::Deep && !filter.skipped.contains(&name);
                if follow && self.may_follow(path, filter) {
                    self.folder(path, filter, level + 1);
                }
            }
            Ok(target) if named && target.is_file() => {
                if self.may_follow(path, filter) {
                    self.files.push(path.to_owned());
                }
            }
            Ok(_) if named => self.skip(path, "not a regular file: skipped"),
            Ok(_) => (),
            Err(_) if named => self.skip(path, "broken symbolic link: skipped"),
            Err(_) => (),
        }
    }

    /// Returns true if a link stays inside the fence and its target was not read before.
    fn may_follow(&mut self, link: &Path, filter: WalkFilter<'_>) -> bool {
        let Ok(target) = fs::canonicalize(link) else { return false };
        let fence = filter.fence.and_then(|fence| fs::canonicalize(fence).ok());
        if fence.is_some_and(|fence| !target.starts_with(fence)) {
            self.skip(link, "symbolic link out of the project: skipped");
            return false;
        }
        // A link to a folder that contains it would form a loop.
        let inside = fs::canonicalize(link.parent().unwrap_or(link)).is_ok_and(|parent| parent.starts_with(&target));
        !inside && self.followed.insert(target)
    }

    #[cfg(unix)]
    fn warn_if_world_writable(&mut self, folder: &Path) {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(folder).map_or(0, |metadata| metadata.permissions().mode());
        if mode & 0o1002 == 0o0002 {
            self.warn(folder, "any user of this machine can change the agents in this folder (fix: chmod o-w)");
        }
    }

    #[cfg(not(unix))]
    fn warn_if_world_writable(&mut self, _folder: &Path) {}
}

fn ends(name: &str, endings: &[&str]) -> bool {
    let has_ending = |ending: &str| {
        let tail = name.len().checked_sub(ending.len()).and_then(|start| name.get(start..));
        name == ending || tail.is_some_and(|tail| tail.len() < name.len() && tail.eq_ignore_ascii_case(ending))
    };
    endings.iter().any(|ending| has_ending(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_sorted_like_paths() {
        let names = ["b.md", "a/z.md", "a-b/c.md", "a.md", "a/b/c.md", "a b.md", "a/b.md", "A.md", "é.md", "a\u{1}.md"];
        for root in ["", ".", "/srv/agents", "/srv/agents/"] {
            let mut files: Vec<PathBuf> = names.iter().map(|name| Path::new(root).join(name)).collect();
            let mut expected = files.clone();
            expected.sort();
            sort(&mut files, Path::new(root));
            assert_eq!(files, expected);
        }
    }
}
