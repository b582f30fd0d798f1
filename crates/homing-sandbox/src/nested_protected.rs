//! Authority files further down in a workspace: nested repositories, submodules, worktrees, agent folders of parts. It looks
//! around, for a bounded time, and changes nothing.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
};

use crate::{process::KeptFiles, protected_paths};

/// How far it looks: every command pays for it.
const MOST_SEEN: usize = 10_000;
const MOST_FOUND: usize = 24;
const DEEPEST: usize = 6;

/// Folders that builds fill, and in which nobody works.
const PASSED_BY: &[&str] = &["node_modules", "target", ".venv", "venv", "__pycache__", ".tox", ".cache"];

/// What lies below `root`, and not in it, nearest first.
pub(super) fn kept(root: &Path) -> Vec<KeptFiles> {
    let (mut found, mut seen) = (Vec::new(), 0);
    let mut waiting = VecDeque::from([PathBuf::new()]);
    while let Some(folder) = waiting.pop_front() {
        for entry in fs::read_dir(root.join(&folder)).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MOST_SEEN || found.len() >= MOST_FOUND {
                return found;
            }
            let name = entry.file_name();
            let (name, path) = (name.to_string_lossy(), folder.join(&name));
            let is_folder = entry.file_type().is_ok_and(|it| it.is_dir());
            if is_authority(&name) {
                // What lies in the root itself is kept more strictly.
                found.extend((folder != Path::new("")).then(|| one(root, path, is_folder)));
            } else if is_folder && !PASSED_BY.contains(&&*name) && path.components().count() < DEEPEST {
                waiting.push_back(path);
            }
        }
    }
    found
}

fn is_authority(name: &str) -> bool {
    name == ".git" || protected_paths::FOLDERS.contains(&name) || protected_paths::FILES.contains(&name)
}

/// A git folder is changed by git, except for what decides what git runs; everything else is kept as a whole.
fn one(root: &Path, path: PathBuf, is_folder: bool) -> KeptFiles {
    let is_git = path.file_name().is_some_and(|name| name == ".git") && is_folder;
    let names = match is_git {
        true => protected_paths::GIT.iter().map(|name| path.join(name)).collect(),
        false => vec![path.clone()],
    };
    KeptFiles { root: root.to_owned(), names, unless_gone: Some(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_and_agent_folders_further_down_are_found_and_what_builds_fill_is_passed_by() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in [".git/hooks", "a/.git/hooks", "a/b/.claude/agents", "node_modules/x/.git", "deep/1/2/3/4/5/6/.git"]
        {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::create_dir_all(root.join("module")).unwrap();
        fs::write(root.join("module/.git"), "gitdir: ../.git/modules/module").unwrap();
        std::os::unix::fs::symlink(root.join("a"), root.join("link")).unwrap();
        let mut found: Vec<PathBuf> = kept(root).into_iter().filter_map(|it| it.unless_gone).collect();
        found.sort();
        assert_eq!(found, ["a/.git", "a/b/.claude", "module/.git"].map(PathBuf::from));
    }

    #[test]
    fn looking_around_ends() {
        let folder = tempfile::tempdir().unwrap();
        for at in 0..200 {
            fs::create_dir_all(folder.path().join(format!("{at}/.git"))).unwrap();
        }
        assert_eq!(kept(folder.path()).len(), MOST_FOUND);
    }
}
