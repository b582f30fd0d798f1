//! Interface to the folders of runs: a run with `isolation: worktree` works on a copy of its parent's folder. How the copy
//! is made is up to the implementation.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::{BoxFuture, memory::AgentMemories};

/// Creates and removes folders for isolated runs.
pub trait Workspaces: Send + Sync {
    /// Creates a folder for `run` from `workdir`, or returns the existing one if the run is resumed.
    fn enter<'a>(&'a self, run: Uuid, workdir: &'a Path) -> BoxFuture<'a, Result<Workspace, String>>;

    /// Returns the folders in which agents keep notes between runs, if the host has them.
    fn memories(&self) -> Option<&dyn AgentMemories> {
        None
    }

    /// Called when the run has ended. Removes the folder if nothing in it has changed.
    fn leave<'a>(&'a self, run: Uuid, workspace: &'a Workspace) -> BoxFuture<'a, Left>;
}

/// The folder of an isolated run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Working folder of the run.
    pub workdir: PathBuf,
    /// Further paths it must be able to read, such as the repository that the folder belongs to.
    pub read: Vec<PathBuf>,
    /// Further paths it must be able to write, if it may write at all.
    pub write: Vec<PathBuf>,
}

/// Result of [`Workspaces::leave`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// It was removed, because nothing had changed.
    Removed,
    /// It was kept.
    Kept {
        /// Path of the folder.
        path: PathBuf,
        /// The branch and the number of changed files, or why the folder could not be removed.
        summary: String,
    },
}
