//! Folders that a run may touch, as its grant lists them, and what has become of them since.

use std::path::PathBuf;

/// Those roots that are still the folders they were. A root that lies inside a writable one can be taken away by a
/// command and replaced by a link to any folder, which the next call would then be given.
pub fn unswapped(roots: &[PathBuf], writable: &[PathBuf]) -> Vec<PathBuf> {
    let is_itself = |root: &&PathBuf| {
        let stays = |outer: &PathBuf| {
            let below = root.strip_prefix(outer).ok()?;
            Some(root.canonicalize().ok()? == outer.canonicalize().ok()?.join(below))
        };
        let mut around = writable.iter().filter(|it| root.starts_with(it) && *it != *root);
        around.all(|outer| stays(outer).unwrap_or(false))
    };
    roots.iter().filter(is_itself).cloned().collect()
}

/// Those roots that lie in no other one. Together they cover all of them.
pub fn outermost(roots: &[PathBuf]) -> impl Iterator<Item = &PathBuf> {
    roots.iter().filter(|root| !roots.iter().any(|it| root.starts_with(it) && it != *root))
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
        // A link that no command can have made is the user's word.
        let roots = ["w", "w/a/b", "w/link", "chosen", "w/gone"].map(&at);
        assert_eq!(unswapped(&roots, &[at("w")]), ["w", "w/a/b", "chosen"].map(&at));
        assert_eq!(unswapped(&roots, &[]), roots);
        assert_eq!(outermost(&roots).cloned().collect::<Vec<_>>(), ["w", "chosen"].map(&at));
    }
}
