//! Finds files with secrets that a run can read, by their names. The search is bounded; contents are not read.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

use homing_core::{
    authority::{Decision, Grant},
    rule::{Subject, Subjects},
    tool::Effect,
    tool_names,
};

use crate::files::path_arg::relative;

/// Bounds of the search.
const MAX_ENTRIES: usize = 5_000;
const MAX_DEPTH: usize = 3;

/// Folders of build output and dependencies, which are skipped.
const SKIPPED: &[&str] = &[".git", "node_modules", "target", ".venv", "venv", "__pycache__"];

/// Names of files that hold secrets.
const NAMES: &[&str] = &[
    ".env",
    ".git-credentials",
    ".htpasswd",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
];

/// Endings of files that hold keys.
const ENDINGS: &[&str] = &[".jks", ".key", ".keystore", ".p12", ".pem", ".pfx"];

/// Returns a file with secrets that a run with this grant can read; `None` if none is found.
pub fn in_reach(grant: &Grant, workdir: &Path) -> Option<PathBuf> {
    let tools =
        [(tool_names::READ, Effect::Reads), (tool_names::GREP, Effect::Reads), (tool_names::BASH, Effect::Commands)];
    if !tools.iter().any(|(tool, effect)| grant.shows(tool, *effect)) {
        return None;
    }
    let mut folders: VecDeque<(PathBuf, usize)> = grant.read.iter().map(|root| (root.clone(), 0)).collect();
    let mut seen = 0;
    while let Some((folder, depth)) = folders.pop_front() {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_ENTRIES {
                return None;
            }
            let name = entry.file_name();
            let (name, path) = (name.to_string_lossy(), entry.path());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    if depth < MAX_DEPTH && !SKIPPED.contains(&&*name) {
                        folders.push_back((path, depth + 1));
                    }
                }
                Ok(_) if is_secret(&name) && may_read(grant, &path, workdir) => return Some(path),
                Ok(_) | Err(_) => (),
            }
        }
    }
    None
}

/// Returns whether a file of this name usually holds secrets. Examples such as `.env.example` do not.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    let is_example = ["example", "sample", "template", "dist"].iter().any(|word| name.ends_with(word));
    let is_env = name.starts_with(".env.") && !is_example;
    is_env || NAMES.contains(&name.as_str()) || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

fn may_read(grant: &Grant, path: &Path, workdir: &Path) -> bool {
    let subjects = Subjects::Parts(vec![Subject::Path(relative(path, workdir))]);
    !matches!(grant.decide(tool_names::READ, Effect::Reads, &subjects), Decision::Deny { .. })
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use homing_core::authority::{Layer, Network, Sandbox};

    use super::*;

    #[test]
    fn secret_files_are_found_unless_a_rule_denies_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let grant = |deny: &[&str]| {
            let deny = deny.iter().map(|rule| rule.parse().unwrap()).collect();
            let layers = vec![Arc::new(Layer::everything("test").deny(deny))];
            let (read, write) = (vec![root.clone()], Vec::new());
            Grant::new(layers).read(read).write(write).network(Network::On).sandbox(Sandbox::WorkspaceWrite)
        };
        fs::create_dir_all(root.join("node_modules/x")).unwrap();
        fs::write(root.join("node_modules/x/.env"), "").unwrap();
        fs::write(root.join(".env.example"), "").unwrap();
        assert_eq!(in_reach(&grant(&[]), &root), None);
        fs::create_dir(root.join("deploy")).unwrap();
        fs::write(root.join("deploy/server.pem"), "").unwrap();
        assert_eq!(in_reach(&grant(&[]), &root), Some(root.join("deploy/server.pem")));
        assert_eq!(in_reach(&grant(&["read(*.pem)"]), &root), None);
        fs::write(root.join(".env"), "").unwrap();
        assert_eq!(in_reach(&grant(&["read(*.pem)"]), &root), Some(root.join(".env")));
        assert_eq!(in_reach(&grant(&["read", "grep", "bash"]), &root), None, "no tool can read it");
    }
}
