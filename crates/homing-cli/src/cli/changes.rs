//! Arguments of the commands about what runs changed.

use clap::{Args, Subcommand};

use super::run::JournalArgs;
use crate::completion;

const HONESTY: &str = "Changes by file tools are always recorded. Of commands, changes to files of the working folder that git does not ignore are
recorded, as far as the folder is small enough; what is not known is listed. Contents of up to 8 MB per file are kept.";

#[derive(Clone, Debug, Args)]
#[command(after_help = HONESTY)]
pub(crate) struct DiffArgs {
    /// Run ID; the runs below it are included.
    #[arg(default_value = "1", add = completion::run())]
    pub(crate) id: String,
    /// List the files only.
    #[arg(long)]
    pub(crate) stat: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "stat")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  homing undo 3fa9c2d1 --dry-run
  homing undo 3fa9c2d1
  homing undo 1.2                 only what the run 1.2 and the runs below it changed

If one of the files has changed since, nothing is undone. An undo is recorded as a run of its own, so it can be undone, too.")]
pub(crate) struct UndoArgs {
    /// Run ID; the runs below it are included.
    #[arg(add = completion::run())]
    pub(crate) id: String,
    /// Only show what would happen.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Undo the other changes even if some files have changed since.
    #[arg(long)]
    pub(crate) skip_conflicts: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A run with `isolation: worktree` works in a copy of the repository, on a branch of its own. If it changed something, its work is
committed on that branch when it ends."
)]
pub(crate) struct WorktreesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<WorktreesCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorktreesCommand {
    /// List the worktrees of this repository (the default).
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the changes of a worktree against the commit it started from.
    Diff(WorktreeArg),
    /// Merge the branch of a worktree into the current branch; on conflicts, name them and change nothing.
    Merge(WorktreeArg),
    /// Remove a worktree and its branch.
    Remove {
        #[command(flatten)]
        worktree: WorktreeArg,
        /// Even if its work is not merged.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct WorktreeArg {
    /// Run ID of the worktree, or its beginning.
    #[arg(add = completion::worktree())]
    pub(crate) id: String,
}
