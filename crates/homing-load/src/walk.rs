//! Lists the files of a folder without being led astray by links, pipes and devices. It reads no contents.

use std::{
    collections::HashSet,
    fs::{self, DirEntry},
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::diagnostic::Diagnostic;

use crate::dialect::Depth;

/// Deeper folders are not looked into.
const MAX_LEVELS: usize = 16;
/// What one folder may hold before we stop listing it.
const MAX_FILES: usize = 100_000;

/// What to list.
#[derive(Clone, Copy)]
pub(crate) struct WalkFilter<'a> {
    pub(crate) depth: Depth,
    /// Endings in lower case, with their dot.
    pub(crate) endings: &'a [&'a str],
    /// Links may not lead out of this folder, where there is one.
    pub(crate) fence: Option<&'a Path>,
    /// Folders that are not looked into.
    pub(crate) skipped: &'a [&'a str],
}

/// Files in the order of their paths, and what could not be listed.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    followed: HashSet<PathBuf>,
}

/// Lists the files below `root`; a missing folder is an empty one.
pub(crate) fn list(root: &Path, wanted: WalkFilter<'_>) -> Listing {
    let mut listing = Listing::default();
    let Ok(metadata) = fs::symlink_metadata(root) else { return listing };
    if metadata.is_symlink() && !listing.may_follow(root, wanted) {
        return listing;
    }
    listing.warn_if_anyone_can_write(root);
    listing.folder(root, wanted, 0);
    listing.files.sort();
    listing
}

/// One file, where it is there and no link leads out of the fence.
pub(crate) fn single(path: &Path, fence: Option<&Path>) -> Listing {
    let mut listing = Listing::default();
    let Ok(metadata) = fs::symlink_metadata(path) else { return listing };
    let wanted = WalkFilter { depth: Depth::Flat, endings: &[], fence, skipped: &[] };
    if metadata.is_file() || (metadata.is_symlink() && path.is_file() && listing.may_follow(path, wanted)) {
        listing.files.push(path.to_owned());
    }
    listing
}

impl Listing {
    fn warn(&mut self, path: &Path, message: impl Into<String>) {
        let path = Some(Arc::new(path.to_owned()));
        self.diagnostics.push(Diagnostic { path, ..Diagnostic::warning(message) });
    }

    fn folder(&mut self, folder: &Path, wanted: WalkFilter<'_>, level: usize) {
        if level > MAX_LEVELS || self.files.len() > MAX_FILES {
            return self.warn(folder, "too deep or too many files; not everything in this folder was read");
        }
        match fs::read_dir(folder) {
            Ok(entries) => entries.filter_map(Result::ok).for_each(|it| self.entry(&it, wanted, level)),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => (),
            Err(error) => self.warn(folder, format!("the folder cannot be read: {error}")),
        }
    }

    fn entry(&mut self, entry: &DirEntry, wanted: WalkFilter<'_>, level: usize) {
        let Ok(kind) = entry.file_type() else { return };
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if kind.is_file() {
            if ends(&name, wanted.endings) {
                self.files.push(entry.path());
            }
        } else if kind.is_dir() {
            if wanted.depth == Depth::Deep && !wanted.skipped.contains(&name.as_ref()) {
                self.folder(&entry.path(), wanted, level + 1);
            }
        } else if kind.is_symlink() {
            self.link(&entry.path(), &name, wanted, level);
        } else if ends(&name, wanted.endings) {
            self.warn(&entry.path(), "is not a regular file; it was skipped");
        }
    }

    fn link(&mut self, path: &Path, name: &str, wanted: WalkFilter<'_>, level: usize) {
        let named = ends(name, wanted.endings);
        match fs::metadata(path) {
            Ok(target) if target.is_dir() => {
                let follow = wanted.depth == Depth::Deep && !wanted.skipped.contains(&name);
                if follow && self.may_follow(path, wanted) {
                    self.folder(path, wanted, level + 1);
                }
            }
            Ok(target) if named && target.is_file() => {
                if self.may_follow(path, wanted) {
                    self.files.push(path.to_owned());
                }
            }
            Ok(_) if named => self.warn(path, "is not a regular file; it was skipped"),
            Ok(_) => (),
            Err(_) if named => self.warn(path, "is a link that leads nowhere; it was skipped"),
            Err(_) => (),
        }
    }

    /// Each target is followed once, and never out of the fence.
    fn may_follow(&mut self, link: &Path, wanted: WalkFilter<'_>) -> bool {
        let Ok(target) = fs::canonicalize(link) else { return false };
        let fence = wanted.fence.and_then(|it| fs::canonicalize(it).ok());
        if fence.is_some_and(|it| !target.starts_with(it)) {
            self.warn(link, "is a link out of the project; it was skipped");
            return false;
        }
        // A folder that contains the link would be listed again and again.
        let inside = fs::canonicalize(link.parent().unwrap_or(link)).is_ok_and(|it| it.starts_with(&target));
        !inside && self.followed.insert(target)
    }

    #[cfg(unix)]
    fn warn_if_anyone_can_write(&mut self, folder: &Path) {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(folder).map_or(0, |it| it.permissions().mode());
        if mode & 0o1002 == 0o0002 {
            self.warn(folder, "everybody on this machine can change the agents in this folder (chmod o-w)");
        }
    }

    #[cfg(not(unix))]
    fn warn_if_anyone_can_write(&mut self, _folder: &Path) {}
}

fn ends(name: &str, endings: &[&str]) -> bool {
    let tail = |it: &&str| name.len() > it.len() && name.is_char_boundary(name.len() - it.len());
    endings.iter().any(|it| name == *it || (tail(it) && name[name.len() - it.len()..].eq_ignore_ascii_case(it)))
}
