//! The dependencies of the workspace: their licences and sources, and what else they resolve beside.
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::{fs, path::Path, process::Command};

use serde_json::Value;

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The strings of a list in `deny.toml`.
fn denied_or_allowed(key: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = text.split_once(&format!("\n{key} = [")).unwrap().1.split_once("\n]").unwrap().0;
    let lines = list.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(|line| line.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Returns whether an SPDX expression allows one of the licences: one side of `OR`, both sides of `AND`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let words = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = words.split_whitespace().collect();
    let (result, rest) = any(&words, allowed);
    assert!(rest.is_empty(), "cannot read the licence `{expression}`");
    result
}

fn any<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    let (mut result, mut rest) = all(words, allowed);
    while let ["OR", after @ ..] = rest {
        let (next, left) = all(after, allowed);
        (result, rest) = (result | next, left);
    }
    (result, rest)
}

fn all<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    let (mut result, mut rest) = one(words, allowed);
    while let ["AND", after @ ..] = rest {
        let (next, left) = one(after, allowed);
        (result, rest) = (result & next, left);
    }
    (result, rest)
}

fn one<'a>(words: &'a [&'a str], allowed: &[String]) -> (bool, &'a [&'a str]) {
    match words {
        ["(", after @ ..] => {
            let (result, rest) = any(after, allowed);
            (result, rest.strip_prefix(&[")"]).unwrap_or(&[]))
        }
        [name, "WITH", exception, rest @ ..] => (allowed.contains(&format!("{name} WITH {exception}")), rest),
        [name, rest @ ..] => (allowed.iter().any(|allowed| allowed == name), rest),
        [] => (false, &[]),
    }
}

#[test]
fn licences_are_read_as_expressions() {
    let allowed = ["MIT".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
    for good in
        ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "(GPL-2.0 OR MIT) AND MIT", "Apache-2.0 WITH LLVM-exception"]
    {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT OR X) AND Y", ""] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

#[test]
fn dependencies_have_permitted_licences_and_sources() {
    let (allowed, banned) = (denied_or_allowed("allow"), denied_or_allowed("deny"));
    assert!(allowed.len() > 5 && banned.len() > 1, "{allowed:?} {banned:?}");
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = match serde_json::from_slice(&metadata.stdout) {
        Ok(metadata) => metadata,
        // A package for another platform was never downloaded.
        Err(_) => return eprintln!("skipped: {}", String::from_utf8_lossy(&metadata.stderr)),
    };
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 200, "{}", packages.len());
    for package in packages {
        let (name, licence) = (package["name"].as_str().unwrap(), package["license"].as_str().unwrap_or_default());
        let source = package["source"].as_str();
        assert!(!banned.iter().any(|banned| banned == name), "{name} is banned");
        assert!(source.is_none_or(|source| source.starts_with("registry+")), "{name} comes from {source:?}");
        assert!(source.is_none() || is_allowed(licence, &allowed), "{name} has the licence `{licence}`");
    }
}

/// Only one crate of a program may link SQLite, so the range of `rusqlite` must contain the version that others use.
#[test]
fn resolves_beside_other_users_of_sqlite() {
    let others = [
        ("sqlx", r#"{ version = "0.9", default-features = false, features = ["sqlite", "runtime-tokio"] }"#),
        ("diesel", r#"{ version = "2.3", features = ["sqlite"] }"#),
        ("sea-orm", r#"{ version = "2", features = ["sqlx-sqlite", "runtime-tokio-rustls"] }"#),
    ];
    let homing = env!("CARGO_MANIFEST_DIR");
    for (name, version) in others {
        let folder = tempfile::tempdir().unwrap();
        let manifest = format!(
            "[package]\nname = \"beside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\nhoming = {{ path = '{homing}' }}\n{name} = {version}\n"
        );
        fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        fs::write(folder.path().join("src/lib.rs"), "").unwrap();
        let done = Command::new(env!("CARGO")).arg("generate-lockfile").current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        let is_conflict = said.contains("failed to select a version") && said.contains("links to the native library");
        assert!(!is_conflict, "beside {name}: {said}");
        if !done.status.success() {
            eprintln!("skipped {name}: it cannot be resolved without a registry: {said}");
            continue;
        }
        let lock = fs::read_to_string(folder.path().join("Cargo.lock")).unwrap();
        assert_eq!(lock.matches("name = \"libsqlite3-sys\"").count(), 1, "beside {name}");
    }
}
