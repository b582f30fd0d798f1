//! Filters the folders that a run's grant lists: drops those that were replaced since, and nested ones.

use std::path::PathBuf;

/// Returns the roots that are still the folders they were. A command can replace a root that lies inside a writable one
/// by a link to any folder, and the next call would then get access to that folder.
pub fn unswapped(roots: &[PathBuf], writable: &[PathBuf]) -> Vec<PathBuf> {
    let is_itself = |root: &&PathBuf| {
        let is_unchanged = |outer: &PathBuf| {
            let below = root.strip_prefix(outer).ok()?;
            Some(root.canonicalize().ok()? == outer.canonicalize().ok()?.join(below))
        };
        let mut around = writable.iter().filter(|outer| root.starts_with(outer) && *outer != *root);
        around.all(|outer| is_unchanged(outer).unwrap_or(false))
    };
    roots.iter().filter(is_itself).cloned().collect()
}

/// Returns the roots that lie in no other root. Together they cover all of them.
pub fn outermost(roots: &[PathBuf]) -> impl Iterator<Item = &PathBuf> {
    roots.iter().filter(|root| !roots.iter().any(|outer| root.starts_with(outer) && outer != *root))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn root_replaced_by_a_link_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["w/a/b", "w/c", "secret", "real"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("secret"), at("w/link")).unwrap();
        symlink(at("real"), at("chosen")).unwrap();
        // No command can have created `chosen`, so this link is the user's choice.
        let roots = ["w", "w/a/b", "w/link", "chosen", "w/gone"].map(&at);
        assert_eq!(unswapped(&roots, &[at("w")]), ["w", "w/a/b", "chosen"].map(&at));
        assert_eq!(unswapped(&roots, &[]), roots);
        assert_eq!(outermost(&roots).cloned().collect::<Vec<_>>(), ["w", "chosen"].map(&at));
    }
}
