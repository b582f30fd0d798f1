//! Rules that allow git's read-only commands start no program that the repository configures, inside the sandbox either.
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::command_fixture::{CommandFixture, again_as_ordinary_user, each, isolated::git};
use homing_core::authority::{Allow, Layer, Sandbox};

const PROGRAMS: &[&str] = &[
    "core.fsmonitor",
    "core.pager",
    "core.editor",
    "core.alternateRefsCommand",
    "diff.external",
    "diff.evil.command",
    "diff.evil.textconv",
    "filter.evil.clean",
    "filter.evil.smudge",
    "filter.evil.process",
    "merge.evil.driver",
    "gpg.program",
    "pager.log",
    "pager.diff",
    "pager.status",
    "interactive.diffFilter",
];

const COMMANDS: &[&str] = &[
    "git status",
    "git status --porcelain=2",
    "git diff",
    "git diff --stat",
    "git diff HEAD",
    "git diff --cached",
    "git log -p",
    "git log --stat -1",
    "git show HEAD",
    "git blame a.txt",
    "git grep one",
    "git cat-file -p HEAD:a.txt",
    "git ls-files -m",
    "git diff-files -p",
    "git diff-index -p HEAD",
    "git stash list",
    "git branch -vv",
    "git describe --always --dirty",
];

/// Creates a repository in which every program it can name creates the file `OWNED` at the top of the workspace.
fn hostile(folder: &Path, workspace: &Path) {
    fs::create_dir_all(folder).unwrap();
    git(folder, &["init", "-q", "-b", "main"]);
    fs::write(folder.join("a.txt"), "one\none\n").unwrap();
    git(folder, &["add", "."]);
    git(folder, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first"]);
    fs::write(folder.join("a.txt"), "one\ntwo\n").unwrap();
    fs::write(folder.join(".gitattributes"), "* diff=evil filter=evil merge=evil\n").unwrap();
    let script = workspace.join("evil.sh");
    fs::write(&script, format!("#!/bin/sh\necho \"$0 $*\" >> {}/OWNED\ncat\n", workspace.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for key in PROGRAMS {
        git(folder, &["config", key, script.to_str().unwrap()]);
    }
    git(folder, &["config", "filter.evil.required", "true"]);
}

async fn check(name: &str, fixture: &CommandFixture, rules: &[&str], commands: &[&str]) {
    let allow = Allow::Only(rules.iter().map(|rule| rule.parse().unwrap()).collect());
    let grant = fixture.grant(Sandbox::WorkspaceWrite).under(Layer::everything("test").allow(allow));
    let context = fixture.context(grant);
    for command in commands {
        let output = fixture.bash_with(&context, command).await;
        let owned = fs::read_to_string(fixture.workspace.join("OWNED")).unwrap_or_default();
        assert_eq!(owned, "", "{name}: {rules:?}: {command}: {}", output.text);
        assert!(!output.is_error, "{name}: {rules:?}: {command}: {}", output.text);
    }
}

#[tokio::test]
async fn b5_rules_that_allow_git_start_no_program_of_the_repository() {
    for (name, fixture) in each().await {
        hostile(&fixture.workspace, &fixture.workspace);
        check(name, &fixture, &["bash(git only)"], COMMANDS).await;
        check(name, &fixture, &["bash(git diff *)", "bash(git log *)"], &["git diff", "git log -p"]).await;
        // Without such a rule the repository's programs run, in the sandbox.
        fixture.bash("git diff").await;
        assert!(fixture.workspace.join("OWNED").exists(), "{name}: the repository is hostile");
    }
}

#[tokio::test]
async fn b5_other_repositories_below_start_no_program_either() {
    for (name, fixture) in each().await {
        git(&fixture.workspace, &["init", "-q", "-b", "main"]);
        hostile(&fixture.workspace.join("sub"), &fixture.workspace);
        let modules = "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n";
        fs::write(fixture.workspace.join(".gitmodules"), modules).unwrap();
        git(&fixture.workspace, &["add", ".gitmodules"]);
        let link = format!("160000,{},sub", "1".repeat(40));
        git(&fixture.workspace, &["update-index", "--add", "--cacheinfo", &link]);
        check(name, &fixture, &["bash(git only)"], &["git status", "git diff --stat", "git diff-files"]).await;
        let rules = ["bash(git only)", "bash(cd *)"];
        check(name, &fixture, &rules, &["cd sub && git status", "cd sub && git diff", "cd sub; git ls-files"]).await;
    }
}

#[tokio::test]
async fn b5_rules_that_allow_changing_git_start_no_program_of_the_repository() {
    for (name, fixture) in each().await {
        let workspace = &fixture.workspace;
        hostile(workspace, workspace);
        for key in ["core.sshCommand", "core.gitProxy", "credential.helper", "sequence.editor", "trailer.x.cmd"] {
            git(workspace, &["config", key, workspace.join("evil.sh").to_str().unwrap()]);
        }
        git(workspace, &["config", "user.name", "a"]);
        git(workspace, &["config", "user.email", "a@b"]);
        let rules = ["bash(git *)", "bash(cd *)"];
        let allow = Allow::Only(rules.iter().map(|rule| rule.parse().unwrap()).collect());
        let grant = fixture.grant(Sandbox::WorkspaceWrite).under(Layer::everything("test").allow(allow));
        let context = fixture.context(grant);
        let owned = || fs::read_to_string(workspace.join("OWNED")).unwrap_or_default();
        // A filter that is switched off could commit what it encrypts, so the command is refused.
        for command in
            ["git add a.txt", "git checkout a.txt", "git stash", "git commit -am x", "git status && git add ."]
        {
            let output = fixture.bash_with(&context, command).await;
            assert!(output.is_error && output.text.contains("names a program"), "{name}: {command}: {}", output.text);
            assert_eq!(owned(), "", "{name}: {command}");
        }
        for key in ["filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.gitProxy", "trailer.x.cmd"]
        {
            git(workspace, &["config", "--unset-all", key]);
        }
        git(workspace, &["config", "filter.evil.required", "false"]);
        for command in ["git add a.txt", "git commit -m second", "git merge HEAD", "git stash", "cd / && git reset -q"]
        {
            let output = fixture.bash_with(&context, command).await;
            assert_eq!(owned(), "", "{name}: {command}: {}", output.text);
            assert!(!output.is_error, "{name}: {command}: {}", output.text);
        }
        let output = fixture.bash_with(&context, "git init -q fresh").await;
        assert!(workspace.join("fresh/.git").is_dir(), "{name}: {}", output.text);
    }
}

#[test]
fn b5_git_rules_hold_for_an_ordinary_user() {
    again_as_ordinary_user(
        module_path!(),
        &[
            "b5_rules_that_allow_changing_git_start_no_program_of_the_repository",
            "b5_rules_that_allow_git_start_no_program_of_the_repository",
            "b5_other_repositories_below_start_no_program_either",
        ],
    );
}
