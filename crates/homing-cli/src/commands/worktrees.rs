//! `homing worktrees`: lists the worktrees of isolated runs, shows their changes, merges and removes them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use homing::{CodingSetup, environment};
use homing_core::{
    sanitize,
    short_id::{MIN_ID_BEGINNING, short_id},
};
use homing_sandbox::git_folder;
use homing_tools::worktree::{KeptWorktree, kept_worktrees};
use serde_json::{Value, json};

use crate::{
    cli::changes::{WorktreesArgs, WorktreesCommand},
    exit::{Exit, Trouble, print},
    terminal,
};

pub(crate) fn run(args: &WorktreesArgs) -> anyhow::Result<Exit> {
    let repository = Repository::here()?;
    match args.command.as_ref().unwrap_or(&WorktreesCommand::List { json: false }) {
        WorktreesCommand::List { json } => repository.list(*json),
        WorktreesCommand::Diff(arg) => repository.diff(&repository.find(&arg.id)?),
        WorktreesCommand::Merge(arg) => repository.merge(&repository.find(&arg.id)?),
        WorktreesCommand::Remove { worktree, force } => repository.remove(&repository.find(&worktree.id)?, *force),
    }
}

/// The repository around the current folder, and the worktrees of runs that belong to it.
struct Repository {
    top: PathBuf,
    worktrees: Vec<KeptWorktree>,
}

impl Repository {
    fn here() -> Result<Self, Trouble> {
        let folder = environment::current_folder().unwrap_or_default();
        let folder = folder.canonicalize().unwrap_or(folder);
        let found = git_folder::locate(&folder, &[]);
        let found = found.ok_or_else(|| Trouble::usage(format!("{} is not in a git repository", folder.display())))?;
        let mut worktrees = kept_worktrees(&CodingSetup::from_env(&folder).worktrees);
        worktrees.retain(|worktree| worktree.git == found.common);
        Ok(Self { top: found.top, worktrees })
    }

    fn find(&self, id: &str) -> Result<KeptWorktree, Trouble> {
        let id = id.trim_start_matches("homing/").to_lowercase();
        if id.len() < MIN_ID_BEGINNING {
            let least = format!("give at least {MIN_ID_BEGINNING} characters of its ID");
            return Err(Trouble::usage(format!("`{id}` is too short to find a worktree: {least}")));
        }
        // Runs of the same time share the beginning of their IDs, so the random end is accepted, too.
        let is_it = |worktree: &&KeptWorktree| {
            let run = worktree.run.to_string();
            run.starts_with(&id) || short_id(worktree.run).starts_with(&id)
        };
        let mut found = self.worktrees.iter().filter(is_it);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) => Err(Trouble::usage(format!("several worktrees begin with `{id}`"))),
            (None, _) => Err(Trouble::usage(format!("there is no worktree `{id}` of this repository"))
                .hint("`homing worktrees` lists them")),
        }
    }

    fn list(&self, as_json: bool) -> anyhow::Result<Exit> {
        if as_json {
            let rows: Vec<Value> = self.worktrees.iter().map(|worktree| self.row(worktree)).collect();
            print(&terminal::json(&json!(rows)))?;
            return Ok(Exit::Done);
        }
        if self.worktrees.is_empty() {
            terminal::say("no worktrees; agents with `isolation: worktree` work in one");
        }
        for worktree in &self.worktrees {
            let row = self.row(worktree);
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            print(&sanitize::inert(&format!(
                "{}  {:<11}  {}\n  {}",
                short_id(worktree.run),
                text("state"),
                text("changes"),
                text("path")
            )))?;
        }
        Ok(Exit::Done)
    }

    fn row(&self, worktree: &KeptWorktree) -> Value {
        let stat = git(&self.top, &["diff", "--shortstat", &range(worktree)]);
        let changes = if stat.status.success() { text(&stat.stdout) } else { "the branch is missing".to_owned() };
        json!({
            "run": worktree.run,
            "branch": worktree.branch,
            "path": worktree.path,
            "base": worktree.base,
            "state": self.state(worktree),
            "changes": if changes.is_empty() { "no commits".to_owned() } else { changes },
        })
    }

    fn state(&self, worktree: &KeptWorktree) -> &'static str {
        if !worktree.path.is_dir() {
            "missing"
        } else if has_uncommitted(worktree) {
            "uncommitted"
        } else if self.is_merged(worktree) {
            "merged"
        } else {
            "not merged"
        }
    }

    fn is_merged(&self, worktree: &KeptWorktree) -> bool {
        git(&self.top, &["merge-base", "--is-ancestor", &worktree.branch, "HEAD"]).status.success()
    }

    fn diff(&self, worktree: &KeptWorktree) -> anyhow::Result<Exit> {
        let diff = checked(git(&self.top, &["diff", "--no-ext-diff", "--no-textconv", &range(worktree)]))?;
        if !diff.is_empty() {
            print(&sanitize::inert(&diff))?;
        }
        if has_uncommitted(worktree) {
            terminal::say("note: there are uncommitted changes; the run has not ended");
        }
        Ok(Exit::Done)
    }

    /// Merges a branch. Conflicts are found without touching the working folder.
    fn merge(&self, worktree: &KeptWorktree) -> anyhow::Result<Exit> {
        if has_uncommitted(worktree) {
            return Err(Trouble::usage(format!("{} has uncommitted changes", worktree.path.display()))
                .hint("they are committed when the run ends; resume it with `homing resume`")
                .into());
        }
        if self.is_merged(worktree) {
            terminal::say("already merged");
            return Ok(Exit::Done);
        }
        let tried =
            git(&self.top, &["merge-tree", "--write-tree", "--name-only", "--messages", "HEAD", &worktree.branch]);
        if tried.status.code() == Some(1) {
            let report = text(&tried.stdout);
            let mut files = report.lines().skip(1).take_while(|line| !line.is_empty());
            files.try_for_each(|file| print(&format!("conflict: {}", sanitize::inert_line(file))))?;
            terminal::say("nothing was merged, because of these conflicts");
            terminal::say(&format!("hint: merge and resolve them with `git merge {}`", worktree.branch));
            return Ok(Exit::Failed);
        }
        checked(tried)?;
        let merged = checked(git(&self.top, &["merge", "--no-ff", "--no-edit", "--stat", &worktree.branch]))?;
        print(&sanitize::inert(&merged))?;
        terminal::say(&format!(
            "merged {}; `homing worktrees remove {}` removes the worktree",
            worktree.branch,
            short_id(worktree.run)
        ));
        Ok(Exit::Done)
    }

    fn remove(&self, worktree: &KeptWorktree, force: bool) -> anyhow::Result<Exit> {
        let is_safe = !has_uncommitted(worktree) && self.is_merged(worktree);
        if !is_safe && !force {
            return Err(Trouble::usage(format!("the work of {} is not merged", worktree.branch))
                .hint("merge it with `homing worktrees merge`, or remove it with --force")
                .into());
        }
        if worktree.path.is_dir() {
            let path = worktree.path.display().to_string();
            checked(git(&self.top, &["worktree", "remove", "--force", &path]))?;
        }
        // The branch may be gone already.
        let _ = git(&self.top, &["branch", "--quiet", "-D", &worktree.branch]);
        std::fs::remove_file(&worktree.record)
            .map_err(|error| Trouble::config(format!("cannot remove {}: {error}", worktree.record.display())))?;
        terminal::say(&format!("removed {}", worktree.branch));
        Ok(Exit::Done)
    }
}

fn range(worktree: &KeptWorktree) -> String {
    format!("{}..{}", worktree.base, worktree.branch)
}

fn has_uncommitted(worktree: &KeptWorktree) -> bool {
    worktree.path.is_dir() && !git(&worktree.path, &["status", "--porcelain"]).stdout.is_empty()
}

/// Runs git as the user would, without its pager.
fn git(folder: &Path, args: &[&str]) -> Output {
    let output = Command::new("git").arg("--no-pager").args(args).current_dir(folder).output();
    output.unwrap_or_else(|error| Output {
        status: std::os::unix::process::ExitStatusExt::from_raw(127 << 8),
        stdout: Vec::new(),
        stderr: format!("cannot run git: {error}").into_bytes(),
    })
}

fn checked(output: Output) -> Result<String, Trouble> {
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(Trouble::config(text(&output.stderr))) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
