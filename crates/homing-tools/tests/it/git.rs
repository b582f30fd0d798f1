//! Git in hostile repositories (list B5 of the promises), and the `diff` tool.

#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::{path::Path, process::Command, sync::Arc};

use crate::tool_fixture::ToolFixture;
use homing_core::{authority::Layer, rule::Rule};
use homing_tools::{
    files::diff::PlainGit,
    shell::git_only_env_for,
    toolset::{ToolsConfig, files_tools},
};
use serde_json::json;

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git").args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Creates a repository with one commit; `None` if git is not installed.
fn fixture() -> Option<ToolFixture> {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("skipped: git is not installed");
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::split_paths(&path).map(|folder| folder.join("git")).find(|path| path.exists()).unwrap();
    let mut config = ToolsConfig::default();
    config.git = Some(Arc::new(PlainGit { program, path }));
    let fixture = ToolFixture::new(files_tools(config));
    let root = fixture.root();
    git(&root, &["init", "-q", "-b", "main"]);
    git(&root, &["config", "user.email", "a@example.org"]);
    git(&root, &["config", "user.name", "A"]);
    fixture.file("a.txt", "one\n");
    fixture.file("b.md", "one\n");
    fixture.file("secrets/key", "SECRET one\n");
    git(&root, &["add", "."]);
    git(&root, &["commit", "-q", "-m", "first"]);
    Some(fixture)
}

/// Configures the repository so that every program it can name leaves a mark.
fn make_hostile(fixture: &ToolFixture) {
    let root = fixture.root();
    let script = fixture.outside().join("evil.sh");
    std::fs::write(&script, format!("#!/bin/sh\necho \"$0 $*\" >> {}/OWNED\ncat\n", fixture.outside().display()))
        .unwrap();
    git(&root, &["config", "core.excludesFile", "/dev/null"]);
    Command::new("chmod").arg("+x").arg(&script).status().unwrap();
    let script = script.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "diff.external",
        "core.pager",
        "core.sshCommand",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.second.command",
        "gpg.program",
        "gpg.ssh.program",
        "core.editor",
        "pager.log",
        "pager.diff",
        "pager.status",
        "pager.show",
        "credential.helper",
        "core.askPass",
        "merge.evil.driver",
        "alias.log",
        "alias.lg",
        "core.alternateRefsCommand",
        "interactive.diffFilter",
        "sequence.editor",
    ] {
        let value = if key.starts_with("alias") { format!("!{script}") } else { script.to_owned() };
        git(&root, &["config", key, &value]);
    }
    for (key, value) in
        [("filter.evil.required", "true"), ("log.showSignature", "true"), ("diff.evil.cachetextconv", "false")]
    {
        git(&root, &["config", key, value]);
    }
    for hook in ["post-index-change", "pre-commit", "reference-transaction", "fsmonitor-watchman", "post-checkout"] {
        let hook = root.join(".git/hooks").join(hook);
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::copy(script, hook).unwrap();
    }
    std::fs::create_dir_all(root.join(".git/info")).unwrap();
    std::fs::write(root.join(".git/info/attributes"), "*.txt filter=evil diff=evil merge=evil\n*.md diff=second\n")
        .unwrap();
    std::fs::write(root.join("a.txt"), "one\ntwo\n").unwrap();
    std::fs::write(root.join("b.md"), "one\ntwo\n").unwrap();
    let _ = std::fs::remove_file(fixture.outside().join("OWNED"));
}

#[test]
#[rustfmt::skip]
fn b5_read_only_git_runs_no_program_of_a_hostile_repository() {
    let Some(fixture) = fixture() else { return };
    make_hostile(&fixture);
    let root = fixture.root();
    let marked = || std::fs::read_to_string(fixture.outside().join("OWNED")).unwrap_or_default();
    Command::new("git").args(["status"]).current_dir(&root).output().unwrap();
    assert!(!marked().is_empty(), "without protection the repository must run something");
    std::fs::remove_file(fixture.outside().join("OWNED")).unwrap();

    let settings = git(&root, &["config", "--list", "--name-only"]);
    assert_eq!(marked(), "", "listing the settings must run nothing");
    for args in [
        &["status"][..], &["diff"], &["diff", "HEAD"], &["diff", "--cached"], &["log", "-p"], &["show"], &["show", "HEAD:a.txt"],
        &["log", "--format=%G? %H"], &["grep", "one"], &["blame", "a.txt"], &["ls-files", "-m"], &["branch", "-a"], &["stash", "list"],
        &["describe", "--always", "--dirty"], &["diff-files", "-p"], &["diff-index", "-p", "HEAD"], &["shortlog", "HEAD"], &["cat-file", "-p", "HEAD"],
    ] {
        let output = Command::new("git").args(args).current_dir(&root).envs(git_only_env_for(settings.lines())).output().unwrap();
        assert_eq!(marked(), "", "git {args:?}");
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let diff = Command::new("git").args(["diff"]).current_dir(&root).envs(git_only_env_for(settings.lines())).output().unwrap();
    let diff = String::from_utf8_lossy(&diff.stdout);
    assert!(diff.contains("+two") && diff.contains("b/b.md"), "{diff}");
}

#[tokio::test]
async fn diff_works_in_a_hostile_repository() {
    let Some(fixture) = fixture() else { return };
    make_hostile(&fixture);
    fixture.file("new.txt", "new\n");
    let run = fixture.run();
    let text = run.ok("diff", json!({})).await;
    assert!(text.contains("diff --git a/a.txt b/a.txt") && text.contains("+two"), "{text}");
    assert!(text.contains("untracked files:\nnew.txt"), "{text}");
    assert!(!fixture.outside().join("OWNED").exists());
    for (key, value) in [("process", ""), ("clean", ""), ("required", "false")] {
        git(&fixture.root(), &["config", &format!("filter.evil.{key}"), value]);
    }
    git(&fixture.root(), &["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "add", "a.txt"]);
    let staged = run.ok("diff", json!({"staged": true})).await;
    assert!(staged.contains("a.txt") && !staged.contains("b.md"), "{staged}");
    let one = run.ok("diff", json!({"against": "HEAD", "path": "b.md"})).await;
    assert!(one.contains("b.md") && !one.contains("a.txt"), "{one}");
    assert!(run.refused("diff", json!({"against": "--output=x"})).await.contains("`against`"));
    assert!(run.refused("diff", json!({"against": "no-such-branch"})).await.contains("no-such-branch"));
    run.refused("diff", json!({"path": "../"})).await;
}

#[tokio::test]
async fn diff_leaves_out_files_that_may_not_be_read() {
    let Some(mut fixture) = fixture() else { return };
    fixture.file("secrets/key", "SECRET two\n");
    fixture.file("a.txt", "two\n");
    let deny = vec![Rule::calls("read", "secrets/**")];
    fixture.grant = fixture.grant.under(Layer::everything("user").deny(deny));
    let text = fixture.run().ok("diff", json!({})).await;
    assert!(text.contains("a.txt") && !text.contains("SECRET"), "{text}");
}

#[tokio::test]
async fn diff_outside_a_repository_is_an_error() {
    let Some(fixture) = fixture() else { return };
    std::fs::remove_dir_all(fixture.root().join(".git")).unwrap();
    let why = fixture.run().refused("diff", json!({})).await;
    assert!(why.to_lowercase().contains("not a git repository"), "{why}");
}
