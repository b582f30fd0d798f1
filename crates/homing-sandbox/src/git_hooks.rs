//! Finds the folder that `core.hooksPath` names: git executes what lies in it, so it is protected like `.git/hooks`.
//!
//! The configuration is scanned, not interpreted: a value in another section or behind a condition also counts, because that
//! only protects more. Files that the configuration includes are not read.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use crate::git_folder;

/// The largest configuration that is read.
const MAX_CONFIG: u64 = 1 << 20;

/// Names of hooks, protected one by one if they lie directly in a root.
const HOOKS: &[&str] = &[
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-merge",
    "post-rewrite",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "prepare-commit-msg",
    "reference-transaction",
    "sendemail-validate",
];

/// Returns the configured folders of hooks inside `root`, relative to it.
pub fn configured(root: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        home.iter().flat_map(|home| [".gitconfig", ".config/git/config"].map(|name| home.join(name))).collect();
    let git = git_folder::locate(root, &[]);
    files.extend(git.iter().flat_map(|git| ["config", "config.worktree"].map(|name| git.common.join(name))));
    // Git resolves a relative path from the top of the worktree.
    let top = git.map_or_else(|| root.to_owned(), |git| git.top);
    let values = files.iter().filter_map(|file| read(file)).flat_map(|text| values(&text));
    values.flat_map(|value| inside(root, &top, &value, home)).collect()
}

fn read(path: &Path) -> Option<String> {
    let is_readable = path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() <= MAX_CONFIG);
    is_readable.then(|| fs::read(path).ok()).flatten().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the values of all settings named `hooksPath`.
fn values(text: &str) -> Vec<String> {
    let value = |line: &str| {
        // A setting may follow its section on the same line.
        let line = line.trim();
        let line = if line.starts_with('[') { line.rsplit_once(']')?.1.trim() } else { line };
        let (key, value) = line.split_once('=')?;
        let is_hooks_path = key.trim().eq_ignore_ascii_case("hooksPath");
        let value = value.split(['#', ';']).next()?.trim().replace(['"', '\\'], "");
        (is_hooks_path && !value.is_empty()).then_some(value)
    };
    text.lines().filter_map(value).collect()
}

fn inside(root: &Path, top: &Path, value: &str, home: Option<&Path>) -> Vec<PathBuf> {
    let path = match (value.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => top.join(value),
    };
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => (),
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(component),
        }
    }
    // The link itself is protected, and so is the folder that it leads to.
    let real = plain.canonicalize().ok().filter(|real| *real != plain);
    let below = [Some(plain), real].into_iter().flatten();
    below
        .filter_map(|path| path.strip_prefix(root).ok().map(Path::to_owned))
        .flat_map(
            |path| if path.as_os_str().is_empty() { HOOKS.iter().map(PathBuf::from).collect() } else { vec![path] },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &str, expected: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::write(root.join(".git/config"), config.replace("ROOT", root.to_str().unwrap())).unwrap();
        assert_eq!(configured(&root, None), expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{config}");
    }

    #[test]
    fn hooks_path_is_found_in_every_spelling() {
        check("[core]\n\tbare = false\n", &[]);
        check("[core]\n\thooksPath = tools/hooks\n", &["tools/hooks"]);
        check("[core] HooksPath=\"tools/hooks\" ; comment\n", &["tools/hooks"]);
        check("[core]\nhookspath = ./a/../hooks/\n", &["hooks"]);
        check("[core]\nhookspath = ROOT/hooks\n", &["hooks"]);
        check("[core]\nhookspath = /elsewhere\n", &[]);
        assert!(inside(Path::new("/w"), Path::new("/w"), ".", None).contains(&PathBuf::from("pre-commit")));
    }

    #[test]
    fn users_own_configuration_counts() {
        let (folder, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = folder.path().canonicalize().unwrap();
        fs::write(home.path().join(".gitconfig"), "[core]\n\thooksPath = hooks\n").unwrap();
        assert_eq!(configured(&root, Some(home.path())), [PathBuf::from("hooks")]);
    }
}
