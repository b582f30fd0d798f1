//! The seam to workspaces of one's own: a run with `isolation: worktree` works on a copy of its parent's folder.
//! How such a copy is made is not known here.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::BoxFuture;

/// Somebody who makes and takes back folders for runs.
pub trait Workspaces: Send + Sync {
    /// A folder for `run`, made from `workdir`. A run that is resumed gets the folder that it had.
    fn enter<'a>(&'a self, run: Uuid, workdir: &'a Path) -> BoxFuture<'a, Result<Workspace, String>>;

    /// The run has ended: the folder goes when nothing in it has changed, and stays when something has.
    fn leave<'a>(&'a self, run: Uuid, workspace: &'a Workspace) -> BoxFuture<'a, Left>;
}

/// A folder of a run's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Where the run works.
    pub workdir: PathBuf,
    /// What it must be able to read besides, such as the repository that the folder belongs to.
    pub read: Vec<PathBuf>,
    /// What it must be able to change besides, if it may change anything.
    pub write: Vec<PathBuf>,
}

/// What became of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing had changed, and it is gone.
    Removed,
    /// It is still there.
    Kept {
        /// Where.
        path: PathBuf,
        /// What is in it, in words: the branch, how many files changed; or why it could not be removed.
        summary: String,
    },
}
