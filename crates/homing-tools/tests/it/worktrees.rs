//! Worktrees of runs: created, used, and kept or removed.

use std::{fs, path::Path, process::Command};

use crate::command_fixture::{CommandFixture, each};
use homing_core::{
    authority::Sandbox,
    workspace::{Left, Workspaces},
};
use homing_tools::worktree::GitWorktrees;

fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git").args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn repository(fixture: &CommandFixture) -> GitWorktrees {
    git(&fixture.workspace, &["init", "-q", "-b", "main"]);
    fs::create_dir(fixture.workspace.join("sub")).unwrap();
    fs::write(fixture.workspace.join("sub/a"), "a").unwrap();
    git(&fixture.workspace, &["add", "."]);
    git(&fixture.workspace, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]);
    // A hostile repository: each of these settings would run a program.
    let evil = format!("touch {}/evil; cat", fixture.outside.display());
    for setting in ["core.fsmonitor", "core.pager"] {
        git(&fixture.workspace, &["config", setting, &evil]);
    }
    let hook = fixture.workspace.join(".git/hooks/post-checkout");
    fs::write(&hook, format!("#!/bin/sh\n{evil}")).unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let folder = fixture.folder.path().canonicalize().unwrap().join("worktrees");
    GitWorktrees { commands: fixture.commands.clone(), folder, sandbox: Sandbox::WorkspaceWrite }
}

#[tokio::test]
async fn unchanged_worktree_is_removed_and_a_changed_one_kept() {
    for (name, fixture) in each().await {
        let worktrees = repository(&fixture);
        let run = uuid::Uuid::new_v4();
        let place = worktrees.enter(run, &fixture.workspace.join("sub")).await.unwrap();
        assert_eq!(fs::read_to_string(place.workdir.join("a")).unwrap(), "a", "{name}");
        assert!(place.workdir.ends_with("sub"));
        assert_eq!(worktrees.enter(run, &fixture.workspace.join("sub")).await.unwrap(), place, "resumed");
        assert_eq!(worktrees.leave(run, &place).await, Left::Removed, "{name}");
        assert!(!place.workdir.exists());
        assert_eq!(git(&fixture.workspace, &["branch", "--list", "homing/*"]), "", "{name}");

        let run = uuid::Uuid::new_v4();
        let place = worktrees.enter(run, &fixture.workspace).await.unwrap();
        let mut grant = fixture.grant(Sandbox::WorkspaceWrite);
        (grant.read, grant.write) = (place.read.clone(), place.write.clone());
        let context = fixture.context(grant).workdir(place.workdir.clone());
        let tool = homing_tools::shell::bash::Bash::new(fixture.commands.clone());
        let command =
            "echo b > b && git add b && git -c user.name=a -c user.email=a@b commit -qm b && git log --oneline | wc -l";
        let output = homing_core::tool::Tool::call(&tool, &context, serde_json::json!({"command": command})).await;
        assert_eq!(output.text, "2", "{name}");
        let attack = format!("echo evil >> {0}/.git/config; echo evil > {0}/.git/hooks/x", fixture.workspace.display());
        homing_core::tool::Tool::call(&tool, &context, serde_json::json!({"command": attack})).await;
        assert!(!fs::read_to_string(fixture.workspace.join(".git/config")).unwrap().contains("evil\n"), "{name}");
        assert!(!fixture.workspace.join(".git/hooks/x").exists(), "{name}");
        fs::write(place.workdir.join("uncommitted"), "c").unwrap();
        match worktrees.leave(run, &place).await {
            Left::Kept { path, summary } => {
                let status = git(&path, &["-c", "core.fsmonitor=", "status", "--porcelain"]);
                assert_eq!(status, "", "{name}: everything is committed: {summary}");
                let branch = format!("homing/{run}");
                assert_eq!(git(&fixture.workspace, &["log", "--format=%s", &branch]).lines().count(), 3, "{name}");
                let kept = homing_tools::worktree::kept_worktrees(&worktrees.folder);
                assert_eq!((kept.len(), &kept[0].path, &kept[0].branch), (1, &path, &branch), "{name}");
                assert!(path.join("b").exists() && summary.contains("new commits"), "{name}: {summary}");
            }
            Left::Removed => panic!("{name}: work was thrown away"),
        }
        assert_eq!(fixture.files(&fixture.outside), Vec::<String>::new(), "{name}: a program of the repository ran");
    }
}

#[tokio::test]
async fn folder_without_a_repository_is_refused_with_a_reason() {
    for (name, fixture) in each().await {
        let worktrees = GitWorktrees {
            commands: fixture.commands.clone(),
            folder: fixture.outside.clone(),
            sandbox: Sandbox::ReadOnly,
        };
        let why = worktrees.enter(uuid::Uuid::new_v4(), &fixture.workspace).await.unwrap_err();
        assert!(why.contains("not a git repository"), "{name}: {why}");
        // A `.git` file that points to a private folder does not make that folder a repository.
        fs::write(fixture.workspace.join(".git"), "gitdir: /root/.ssh").unwrap();
        assert!(worktrees.enter(uuid::Uuid::new_v4(), &fixture.workspace).await.is_err());
    }
}

#[tokio::test]
async fn sandboxed_git_runs_no_program_of_the_repository() {
    use homing_tools::{files::diff::GitRunner, shell::sandboxed_git::SandboxedGit};
    for (name, fixture) in each().await {
        repository(&fixture);
        let evil = format!("touch {}/evil; touch evil; cat", fixture.outside.display());
        git(&fixture.workspace, &["config", "diff.x.textconv", &evil]);
        git(&fixture.workspace, &["config", "filter.x.clean", &evil]);
        fs::write(fixture.workspace.join(".gitattributes"), "* diff=x filter=x\n").unwrap();
        fs::write(fixture.workspace.join("sub/a"), "b\n".repeat(40_000)).unwrap();
        let runner = SandboxedGit { commands: fixture.commands.clone() };
        let context = fixture.context(fixture.grant(Sandbox::WorkspaceWrite));
        let call = async |args: &[&str], most: usize| {
            runner.git(&context, args.iter().map(|arg| (*arg).to_owned()).collect(), most).await
        };
        let log = call(&["log", "--format=%s"], 100).await.unwrap();
        assert_eq!((log.stdout.as_str(), log.was_cut), ("a\n", false), "{name}");
        let diff = call(&["diff"], 60_000).await.unwrap();
        assert!(diff.was_cut && diff.stdout.len() == 60_000 && diff.stdout.contains("+b\n"), "{name}");
        assert!(call(&["no-such-command"], 100).await.is_err());
        assert!(fixture.files(&fixture.outside).is_empty(), "{name}: a program of the repository ran");
        assert!(!fixture.workspace.join("evil").exists(), "{name}: a program of the repository ran");
    }
}

#[tokio::test]
async fn git_works_in_a_linked_worktree_of_the_user() {
    for (name, fixture) in each().await {
        repository(&fixture);
        let linked = fixture.folder.path().canonicalize().unwrap().join("linked");
        git(&fixture.workspace, &["-c", "core.hooksPath=/dev/null", "worktree", "add", "-q", linked.to_str().unwrap()]);
        let mut grant = fixture.grant(Sandbox::WorkspaceWrite);
        (grant.read, grant.write) = (vec![linked.clone()], vec![linked.clone()]);
        let context = fixture.context(grant).workdir(linked);
        let tool = homing_tools::shell::bash::Bash::new(fixture.commands.clone());
        let output =
            homing_core::tool::Tool::call(&tool, &context, serde_json::json!({"command": "git log --oneline | wc -l"}))
                .await;
        assert_eq!(output.text, "1", "{name}");
    }
}

#[tokio::test]
async fn r23_git_only_shell_runs_no_repository_program_without_a_sandbox() {
    use homing_core::authority::{Allow, Layer};
    let fixture =
        CommandFixture::with(homing_sandbox::Sandboxes::none(crate::command_fixture::HELPER), |commands| commands);
    repository(&fixture);
    let evil = format!("touch {}/evil; cat", fixture.outside.display());
    git(&fixture.workspace, &["config", "diff.x.textconv", &evil]);
    git(&fixture.workspace, &["config", "diff.external", &evil]);
    fs::write(fixture.workspace.join(".gitattributes"), "* diff=x\n").unwrap();
    fs::write(fixture.workspace.join("sub/a"), "b").unwrap();
    let mut grant = fixture.grant(Sandbox::Off);
    let allow = Allow::Only(vec!["bash(git only)".parse().unwrap()]);
    grant.layers.push(std::sync::Arc::new(Layer::everything("agent code-review").allow(allow)));
    let context = fixture.context(grant);
    let tool = homing_tools::shell::bash::Bash::new(fixture.commands.clone());
    for command in ["git status --short", "git diff", "git log -p", "git show"] {
        let output = homing_core::tool::Tool::call(&tool, &context, serde_json::json!({"command": command})).await;
        assert!(!output.is_error, "{command}: {}", output.text);
        assert!(fixture.files(&fixture.outside).is_empty(), "{command} ran a program of the repository");
    }
}
