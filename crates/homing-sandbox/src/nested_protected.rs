//! Finds protected paths further down in a workspace: nested repositories, submodules, worktrees, agent folders. The search
//! is bounded and read-only.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
};

use crate::{process::ProtectedFiles, protected_paths};

/// Bounds of the search, which runs before every command.
const MAX_SEEN: usize = 10_000;
const MAX_FOUND: usize = 24;
const MAX_DEPTH: usize = 6;

/// Folders of build output and dependencies, which are skipped.
const SKIPPED: &[&str] = &["node_modules", "target", ".venv", "venv", "__pycache__", ".tox", ".cache"];

/// Returns the protected paths below `root`, but not directly in it, nearest first.
pub(super) fn find(root: &Path) -> Vec<ProtectedFiles> {
    let (mut found, mut seen) = (Vec::new(), 0);
    let mut waiting = VecDeque::from([PathBuf::new()]);
    while let Some(folder) = waiting.pop_front() {
        for entry in fs::read_dir(root.join(&folder)).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_SEEN || found.len() >= MAX_FOUND {
                return found;
            }
            let name = entry.file_name();
            let (name, path) = (name.to_string_lossy(), folder.join(&name));
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_protected(&name) {
                // Paths in the root itself are protected more strictly, by the caller.
                found.extend((folder != Path::new("")).then(|| one(root, path, is_folder)));
            } else if is_folder && !SKIPPED.contains(&&*name) && path.components().count() < MAX_DEPTH {
                waiting.push_back(path);
            }
        }
    }
    found
}

fn is_protected(name: &str) -> bool {
    let lists = [
        protected_paths::FOLDERS,
        protected_paths::FILES,
        protected_paths::TOOL_FOLDERS,
        protected_paths::TOOL_FILES,
        &[".git", ".hg"],
    ];
    lists.iter().any(|list| list.contains(&name))
}

/// In a git or Mercurial folder only the files that decide what is executed are protected, because the program writes the others; everything else
/// is protected as a whole.
fn one(root: &Path, path: PathBuf, is_folder: bool) -> ProtectedFiles {
    let inside = |names: &[&str]| names.iter().map(|name| path.join(name)).collect();
    let names = match path.file_name().and_then(|name| name.to_str()) {
        Some(".git") if is_folder => inside(protected_paths::GIT),
        Some(".hg") => inside(protected_paths::HG),
        Some(_) | None => vec![path.clone()],
    };
    ProtectedFiles { root: root.to_owned(), names, unless_removed: Some(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_repositories_and_agent_folders_are_found_outside_build_output() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in [".git/hooks", "a/.git/hooks", "a/b/.claude/agents", "node_modules/x/.git", "deep/1/2/3/4/5/6/.git"]
        {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::create_dir_all(root.join("module")).unwrap();
        fs::write(root.join("module/.git"), "gitdir: ../.git/modules/module").unwrap();
        std::os::unix::fs::symlink(root.join("a"), root.join("link")).unwrap();
        let mut found: Vec<PathBuf> = find(root).into_iter().filter_map(|protected| protected.unless_removed).collect();
        found.sort();
        assert_eq!(found, ["a/.git", "a/b/.claude", "module/.git"].map(PathBuf::from));
    }

    #[test]
    fn search_for_nested_paths_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        for at in 0..200 {
            fs::create_dir_all(folder.path().join(format!("{at}/.git"))).unwrap();
        }
        assert_eq!(find(folder.path()).len(), MAX_FOUND);
    }
}
