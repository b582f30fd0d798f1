//! A run in a separate worktree, and helpers for its tests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use homing_core::{
    authority::Sandbox,
    tool::{Tool, ToolContext},
    workspace::{Workspace, Workspaces},
};
use homing_tools::worktree::GitWorktrees;

use super::CommandFixture;

pub fn git(folder: &Path, args: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.hooksPath=/dev/null"];
    let output = Command::new("git").args(identity).args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn write_tool() -> std::sync::Arc<dyn Tool> {
    let tools = homing_tools::toolset::files_tools(homing_tools::toolset::ToolsConfig::default());
    tools.into_iter().find(|tool| tool.spec().name == "write").unwrap()
}

/// A run in a separate worktree, in a folder two levels down, as the runtime sets it up.
pub struct Isolated {
    pub worktrees: GitWorktrees,
    pub run: uuid::Uuid,
    pub workspace: Workspace,
    pub context: ToolContext,
}

impl Isolated {
    pub async fn new(fixture: &CommandFixture) -> Self {
        git(&fixture.workspace, &["init", "-q", "-b", "main"]);
        fs::create_dir_all(fixture.workspace.join("a/b")).unwrap();
        fs::write(fixture.workspace.join("a/b/file"), "x").unwrap();
        git(&fixture.workspace, &["add", "."]);
        git(&fixture.workspace, &["commit", "-qm", "a"]);
        let root = fixture.folder.path().canonicalize().unwrap();
        git(&fixture.workspace, &["worktree", "add", "-q", root.join("users").to_str().unwrap()]);
        let worktrees = GitWorktrees {
            commands: fixture.commands.clone(),
            folder: root.join("trees"),
            sandbox: Sandbox::WorkspaceWrite,
        };
        let run = uuid::Uuid::new_v4();
        let workspace = worktrees.enter(run, &fixture.workspace.join("a/b")).await.unwrap();
        let with = |roots: &[PathBuf]| [std::slice::from_ref(&workspace.workdir), roots].concat();
        let grant = fixture.grant(Sandbox::WorkspaceWrite).read(with(&workspace.read)).write(with(&workspace.write));
        let context = fixture.context(grant).workdir(workspace.workdir.clone());
        Self { worktrees, run, workspace, context }
    }
}
