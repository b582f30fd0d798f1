//! `{file:path}` in OpenCode's and Kilo's configuration.

use std::{fs, os::unix::fs::symlink, path::Path};

use homing_load::{Discovered, ParseOptions, Places, discover};
use tempfile::TempDir;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn discovered(root: &Path) -> Discovered {
    let mut places = Places::new(root.join("repo"));
    places.skip_built_in = true;
    discover(&places, &ParseOptions::default())
}

fn agent(prompt: &str) -> String {
    format!(r#"{{"agent": {{"a": {{"description": "d", "prompt": "{prompt}"}}}}}}"#)
}

#[test]
fn referenced_files_of_the_project_become_the_prompt() {
    let root = TempDir::new().unwrap();
    fs::create_dir_all(root.path().join("repo/.git")).unwrap();
    write(root.path(), "repo/prompts/p.txt", "You review {file:./q.txt}.\n");
    for file in ["opencode.json", "kilo.json"] {
        write(root.path(), &format!("repo/{file}"), &agent("{file:./prompts/p.txt} Be {file: prompts/p.txt}"));
        let found = discovered(root.path());
        let prompt = &found.registry.get("a").unwrap().prompt;
        assert_eq!(prompt, "You review {file:./q.txt}. Be You review {file:./q.txt}.", "{:?}", found.diagnostics);
        fs::remove_file(root.path().join("repo").join(file)).unwrap();
    }
    write(root.path(), "repo/.opencode/opencode.json", &agent("{file:../prompts/p.txt}"));
    assert!(discovered(root.path()).registry.get("a").unwrap().prompt.starts_with("You review"));
}

#[test]
fn references_do_not_leave_the_project() {
    let root = TempDir::new().unwrap();
    write(root.path(), "secret", "SECRET");
    write(root.path(), "repo/big.txt", &"x".repeat(2_000_000));
    symlink("../secret", root.path().join("repo/link.txt")).unwrap();
    let outside = root.path().join("secret");
    let named = [outside.to_str().unwrap(), "../secret", "./link.txt", "gone.txt", "big.txt", "."];
    let shown: Vec<String> = named
        .iter()
        .map(|name| {
            write(root.path(), "repo/opencode.json", &agent(&format!("{{file:{name}}}")));
            let found = discovered(root.path());
            assert!(!found.registry.has("a"), "{name}");
            let diagnostic = &found.diagnostics[0];
            assert_eq!((found.diagnostics.len(), diagnostic.line), (1, 1), "{:?}", found.diagnostics);
            diagnostic.message.rsplit("` ").next().unwrap().to_owned()
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @"
    is outside of the project
    is outside of the project
    is outside of the project
    cannot be read: No such file or directory (os error 2)
    has 2000000 bytes; the maximum is 1048576
    is not a regular file
    ");
}

#[test]
fn references_in_markdown_are_text() {
    let root = TempDir::new().unwrap();
    write(root.path(), "repo/.opencode/agent/a.md", "---\ndescription: d\n---\nRead {file:./p.txt}.\n");
    assert_eq!(discovered(root.path()).registry.get("a").unwrap().prompt, "Read {file:./p.txt}.");
}
