//! Lists the protected paths in the folders that a command may write to. A command can create, move and remove what lies
//! around them, so the content of a folder can only add to the list, never shorten it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{git_folder, git_hooks, nested_protected, process::ProtectedFiles, protected_paths, roots::outermost};

/// The largest git configuration that is read.
const MAX_CONFIG: u64 = 1 << 20;

/// Returns the protected paths directly in each root, including those that do not exist.
///
/// Each is named from the outermost root around it, which no command can replace. A root further in can be replaced by a
/// link, and restoring files through that link would change the folder that it leads to.
pub fn in_roots(write: &[PathBuf], home: &Path) -> Vec<ProtectedFiles> {
    let roots = folders(write);
    let outer = |root: &PathBuf| outermost(&roots).find(|outer| root.starts_with(outer)).unwrap_or(root).clone();
    let protected = |root: &PathBuf| {
        let outer = outer(root);
        let below = root.strip_prefix(&outer).unwrap_or(Path::new(""));
        let names = names(root, &roots, home).into_iter().map(|name| below.join(name)).collect();
        ProtectedFiles { root: outer, names, unless_removed: None }
    };
    roots.iter().map(protected).collect()
}

/// Returns the protected paths further down that exist now. Inside the sandbox such folders stay ordinary ones, because
/// builds create and remove them.
pub fn below_roots(write: &[PathBuf]) -> Vec<ProtectedFiles> {
    outermost(&folders(write)).flat_map(|root| nested_protected::find(root)).collect()
}

fn folders(write: &[PathBuf]) -> Vec<PathBuf> {
    write.iter().filter_map(|root| root.canonicalize().ok()).filter(|root| root.is_dir()).collect()
}

fn names(root: &Path, roots: &[PathBuf], home: &Path) -> Vec<PathBuf> {
    let hooks = git_hooks::configured(root, Some(home));
    let mut names: Vec<PathBuf> = protected_paths::names().chain(dot_git(root)).chain(hooks).collect();
    if is_git_folder(root, roots) {
        names.extend(protected_paths::GIT.iter().map(PathBuf::from));
    }
    names.into_iter().flat_map(|name| not_granted(root, name, roots)).collect()
}

/// Returns the protected paths of the root's `.git`, and of the git folder that it names if that lies in the root too.
fn dot_git(root: &Path) -> Vec<PathBuf> {
    let git = root.join(".git");
    let in_folder = |folder: &Path| protected_paths::GIT.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    let named = match git.symlink_metadata() {
        Ok(found) if found.is_symlink() => git.canonicalize().ok(),
        Ok(found) if !found.is_dir() => git_folder::named_by(&git),
        Ok(_) | Err(_) => return in_folder(Path::new(".git")),
    };
    let mut names = vec![PathBuf::from(".git")];
    names.extend(named.as_deref().and_then(|folder| folder.strip_prefix(root).ok()).map(in_folder).unwrap_or_default());
    names
}

/// Returns true if a root is itself a git folder: a bare repository, or the repository of a run's worktree.
///
/// It is one if the roots contain a git folder together with the files of one of its worktrees. Otherwise the folder's
/// content decides. A command can remove `HEAD`, but not the configuration, which is protected once it marks a repository.
pub fn is_git_folder(root: &Path, roots: &[PathBuf]) -> bool {
    let of_worktree = |own: &Path, common: &Path| own.parent().is_some_and(|parent| parent == common.join("worktrees"));
    root.file_name().is_some_and(|name| name == ".git")
        || roots.iter().any(|other| of_worktree(other, root) || of_worktree(root, other))
        || git_folder::looks_like_one(root)
        || has_git_config(root)
}

fn has_git_config(root: &Path) -> bool {
    let config = root.join("config");
    let is_readable = config.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() <= MAX_CONFIG);
    // Git writes this setting into the configuration of every repository.
    is_readable
        && fs::read(config)
            .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).to_lowercase().contains("repositoryformatversion"))
}

/// Returns the name, unless the grant makes it writable. If only something inside is writable, such as a worktree's own git
/// files, the rest of the folder stays protected.
fn not_granted(root: &Path, name: PathBuf, roots: &[PathBuf]) -> Vec<PathBuf> {
    let path = root.join(&name);
    if roots.contains(&path) {
        return Vec::new();
    }
    if !roots.iter().any(|inner| inner.starts_with(&path)) {
        return vec![name];
    }
    let inside = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| name.join(entry.file_name()));
    inside.flat_map(|name| not_granted(root, name, roots)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(root: &Path, roots: &[PathBuf]) -> Vec<String> {
        names(root, roots, Path::new("/nonexistent")).iter().map(|name| name.display().to_string()).collect()
    }

    #[test]
    fn files_in_a_root_only_add_protected_paths() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let before = names_of(&root, std::slice::from_ref(&root));
        assert!(before.contains(&".git/hooks".to_owned()) && !before.contains(&"hooks".to_owned()));
        fs::create_dir(root.join("objects")).unwrap();
        fs::create_dir(root.join("refs")).unwrap();
        fs::write(root.join("HEAD"), "").unwrap();
        let after = names_of(&root, std::slice::from_ref(&root));
        assert!(before.iter().all(|name| after.contains(name)) && after.contains(&"hooks".to_owned()));
        fs::remove_file(root.join("HEAD")).unwrap();
        fs::write(root.join("config"), "[core]\n\tRepositoryFormatVersion = 0\n").unwrap();
        assert_eq!(names_of(&root, std::slice::from_ref(&root)), after);
    }

    #[test]
    fn other_worktrees_stay_protected_beside_a_granted_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("r.git");
        for name in ["worktrees/own", "worktrees/other"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let roots = [root.clone(), root.join("worktrees/own")];
        let of_repository = names_of(&root, &roots);
        assert!(of_repository.contains(&"worktrees/other".to_owned()) && of_repository.contains(&"hooks".to_owned()));
        assert!(!of_repository.iter().any(|name| name == "worktrees" || name.starts_with("worktrees/own")));
        assert!(names_of(&roots[1], &roots).contains(&"commondir".to_owned()));
    }
}
