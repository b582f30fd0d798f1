//! Protected paths stay protected, even if a command changes the folders around them.
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::{fs, os::unix::fs::symlink, path::Path};

use crate::command_fixture::{
    CommandFixture, again_as_ordinary_user, each,
    isolated::{Isolated, git, write_tool},
};
use homing_core::workspace::{Left, Workspaces};

/// Files that decide what git, agents and editors execute.
const PROTECTED: &[&str] = &[
    ".git/hooks/pre-commit",
    ".git/config",
    ".claude/agents/a.md",
    ".claude/settings.json",
    ".vscode/tasks.json",
    ".mcp.json",
    ".homing/agents/a.md",
    ".husky/pre-commit",
    ".idea/workspace.xml",
    ".envrc",
    ".devcontainer/devcontainer.json",
    ".hg/hgrc",
    ".jj/repo/config.toml",
    ".zed/tasks.json",
    "sub/.husky/pre-commit",
    "sub/.hg/hgrc",
];

fn write_all(root: &Path, names: &[&str], text: &str) {
    for name in names {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    }
}

/// Tries to write to the named files, and to create files beside them in folders that are protected as a whole.
async fn attack(fixture: &CommandFixture, what: &str, names: &[&str]) {
    let script: Vec<String> = names
        .iter()
        .map(|name| format!("mkdir -p $(dirname {name}); echo evil > {name}; echo evil > $(dirname {name})/new"))
        .collect();
    let output = fixture.bash(&format!("{{ {}; }} 2>/dev/null; true", script.join("; "))).await;
    for name in names {
        let path = fixture.workspace.join(name);
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, "ours", "{what}: {name}: {}", output.text);
        let is_whole = ["hooks", "agents", ".vscode"].iter().any(|folder| path.parent().unwrap().ends_with(folder));
        assert!(!is_whole || !path.with_file_name("new").exists(), "{what}: beside {name}: {}", output.text);
    }
}

#[tokio::test]
async fn root_made_to_look_like_a_git_folder_stays_protected() {
    for (name, fixture) in each().await {
        write_all(&fixture.workspace, PROTECTED, "ours");
        fixture.bash("mkdir -p objects refs; touch HEAD").await;
        assert!(fixture.workspace.join("HEAD").exists(), "{name}");
        attack(&fixture, name, PROTECTED).await;
        // Protected paths that did not exist are removed, too.
        fixture
            .bash("mkdir -p .cursor .github/agents; echo evil > .cursor/x; echo evil > .github/agents/x; true")
            .await;
        assert!(
            !fixture.workspace.join(".cursor").exists() && !fixture.workspace.join(".github/agents").exists(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn bare_repository_as_root_stays_protected_without_its_head() {
    for (name, fixture) in each().await {
        git(&fixture.workspace, &["init", "-q", "--bare"]);
        let names = ["hooks/pre-commit", ".mcp.json", ".claude/settings.json"];
        write_all(&fixture.workspace, &names, "ours");
        let config = fs::read_to_string(fixture.workspace.join("config")).unwrap();
        fixture.bash("mv HEAD h; mv objects o; mv refs r").await;
        assert!(!fixture.workspace.join("HEAD").exists(), "{name}");
        attack(&fixture, name, &names).await;
        fixture.bash("echo evil > config; echo evil > config.worktree").await;
        assert_eq!(fs::read_to_string(fixture.workspace.join("config")).unwrap(), config, "{name}");
        assert!(!fixture.workspace.join("config.worktree").exists(), "{name}");
    }
}

#[tokio::test]
async fn separate_git_folder_in_the_workspace_is_protected() {
    for (name, fixture) in each().await {
        let store = fixture.workspace.join("store");
        git(&fixture.workspace, &["init", "-q", "--separate-git-dir", store.to_str().unwrap()]);
        write_all(&fixture.workspace, &["store/hooks/pre-commit"], "ours");
        attack(&fixture, name, &["store/hooks/pre-commit"]).await;
        fs::remove_file(fixture.workspace.join(".git")).unwrap();
        symlink("store", fixture.workspace.join(".git")).unwrap();
        attack(&fixture, name, &["store/hooks/pre-commit"]).await;
    }
}

#[tokio::test]
async fn isolated_run_cannot_change_other_worktrees_or_git_hooks() {
    for (name, fixture) in each().await {
        let isolated = Isolated::new(&fixture).await;
        let at = |path: &str| fixture.workspace.join(".git").join(path);
        let common = fs::read_to_string(at("worktrees/users/commondir")).unwrap();
        let shown = at("").display().to_string();
        let attack = format!(
            "cd {shown}; echo evil > worktrees/users/commondir; echo evil > worktrees/users/config.worktree; mv HEAD H; true"
        );
        fixture.bash_with(&isolated.context, &attack).await;
        assert!(!at("HEAD").exists(), "{name}");
        let attack = format!("cd {shown}; echo evil > hooks/x; echo evil >> config; mv H HEAD; true");
        fixture.bash_with(&isolated.context, &attack).await;
        assert_eq!(fs::read_to_string(at("worktrees/users/commondir")).unwrap(), common, "{name}");
        assert!(!at("worktrees/users/config.worktree").exists() && !at("hooks/x").exists(), "{name}");
        assert!(!fs::read_to_string(at("config")).unwrap().contains("evil"), "{name}");
        let file = write_tool();
        for path in ["hooks/pre-commit", "config.worktree", "worktrees/users/config.worktree"] {
            let args = serde_json::json!({"path": at(path), "content": "evil"});
            let output = file.call(&isolated.context, args).await;
            assert!(output.is_error && !at(path).exists(), "{name}: {path}: {}", output.text);
        }
        // Ordinary work is still possible.
        let commit = "echo y > new && git add new && git -c user.name=a -c user.email=a@b commit -qm b && git log --oneline | wc -l";
        let output = fixture.bash_with(&isolated.context, commit).await;
        assert_eq!(output.text, "2", "{name}");
        match isolated.worktrees.leave(isolated.run, &isolated.workspace).await {
            Left::Kept { summary, .. } => assert!(summary.contains("new commits"), "{name}: {summary}"),
            Left::Removed => panic!("{name}: work was thrown away"),
        }
    }
}

#[tokio::test]
async fn folder_that_hooks_path_names_is_protected() {
    for (name, fixture) in each().await {
        git(&fixture.workspace, &["init", "-q"]);
        git(&fixture.workspace, &["config", "core.hooksPath", "tools/hooks"]);
        write_all(&fixture.workspace, &["tools/hooks/pre-commit"], "ours");
        fixture.bash("mv tools moved; mkdir -p tools/hooks; echo evil > tools/hooks/pre-commit; true").await;
        attack(&fixture, name, &["tools/hooks/pre-commit"]).await;
        let context = fixture.context(fixture.grant(homing_core::authority::Sandbox::WorkspaceWrite));
        let args = serde_json::json!({"path": "tools/hooks/post-commit", "content": "evil"});
        let output = write_tool().call(&context, args).await;
        assert!(output.is_error && output.text.contains("hooks"), "{name}: {}", output.text);
        assert!(!fixture.workspace.join("tools/hooks/post-commit").exists(), "{name}");
        let output = fixture.bash("echo fine > tools/other && cat tools/other").await;
        assert_eq!(output.text, "fine", "{name}");
    }
}

#[tokio::test]
async fn closing_a_folder_does_not_hide_changes_in_it() {
    for (name, fixture) in each().await {
        write_all(&fixture.workspace, &[".git/config", "sub/.git/config", "sub/.claude/settings.json"], "ours");
        let attack = "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > .git/config; \
            echo evil > sub/.git/config; echo evil > sub/.claude/settings.json; \
            chmod 000 sub/.claude sub/.git sub .git/hooks .git; true";
        let output = fixture.bash(attack).await;
        for path in [".git/config", "sub/.git/config", "sub/.claude/settings.json"] {
            let text = fs::read_to_string(fixture.workspace.join(path)).unwrap_or_default();
            assert_eq!(text, "ours", "{name}: {path}: {}", output.text);
        }
        assert!(!fixture.workspace.join(".git/hooks").exists(), "{name}: {}", output.text);
    }
}

#[tokio::test]
async fn many_and_large_protected_files_are_restored() {
    for (name, fixture) in each().await {
        let agents = fixture.workspace.join(".claude/agents");
        fs::create_dir_all(&agents).unwrap();
        for at in 0..4_500 {
            fs::write(agents.join(format!("{at}.md")), format!("agent {at}")).unwrap();
        }
        let large = vec![b'x'; 9 << 20];
        fs::write(fixture.workspace.join(".claude/large"), &large).unwrap();
        let output = fixture
            .bash("truncate -s 0 .claude/agents/*; rm .claude/agents/7.md; echo evil >> .claude/large; true")
            .await;
        let changed = (0..4_500)
            .filter(|at| fs::read_to_string(agents.join(format!("{at}.md"))).ok() != Some(format!("agent {at}")));
        assert_eq!(changed.count(), 0, "{name}: {}", output.text);
        assert!(fs::read(fixture.workspace.join(".claude/large")).unwrap() == large, "{name}: {}", output.text);
        assert!(!output.text.contains("not restored"), "{name}: {}", output.text);
    }
}

#[tokio::test]
async fn command_is_refused_if_its_protected_files_cannot_be_saved() {
    for (name, fixture) in each().await {
        fs::create_dir(fixture.workspace.join(".claude")).unwrap();
        let large = fs::File::create(fixture.workspace.join(".claude/large")).unwrap();
        large.set_len(1 << 30).unwrap();
        let output = fixture.bash("echo evil >> .claude/large; echo ran").await;
        // Under bubblewrap the file is read-only and needs no copy.
        let is_refused = output.is_error && output.text.contains("larger than 256 MiB");
        assert!(is_refused != (name == "bubblewrap"), "{name}: {}", output.text);
        assert_eq!(large.metadata().unwrap().len(), 1 << 30, "{name}: {}", output.text);
    }
}

#[tokio::test]
async fn every_removed_path_is_reported_however_short_the_command() {
    let names = [".devcontainer", ".envrc", ".husky", ".idea", ".zed", "recipe.yaml"];
    for (name, fixture) in each().await {
        for pause in ["", "; sleep 0.01", "; sleep 0.02", "; sleep 0.03"].repeat(3) {
            let output = fixture.bash(&format!("touch {}{pause}", names.join(" "))).await;
            let missed = names.iter().filter(|path| !output.text.contains(**path)).collect::<Vec<_>>();
            assert!(missed.is_empty() && !output.text.contains("not restored"), "{name}: {missed:?}: {}", output.text);
            assert_eq!(fixture.files(&fixture.workspace), Vec::<String>::new(), "{name}");
        }
    }
}

#[test]
fn protected_paths_stay_protected_for_an_ordinary_user() {
    again_as_ordinary_user(
        module_path!(),
        &[
            "closing_a_folder_does_not_hide_changes_in_it",
            "folder_that_hooks_path_names_is_protected",
            "many_and_large_protected_files_are_restored",
            "command_is_refused_if_its_protected_files_cannot_be_saved",
            "root_made_to_look_like_a_git_folder_stays_protected",
            "bare_repository_as_root_stays_protected_without_its_head",
            "separate_git_folder_in_the_workspace_is_protected",
            "isolated_run_cannot_change_other_worktrees_or_git_hooks",
        ],
    );
}
