//! The interface to the program that the server runs in.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use homing::{Homing, Limits, Rule, SpawnError, Task, Team, crates::core::BoxFuture};
use serde_json::Value;
use uuid::Uuid;

/// Opens projects for the server.
pub trait WebHost: Send + Sync + 'static {
    /// Opens the project of a folder: its agents, models and permissions, and these teams in addition.
    fn open<'a>(&'a self, folder: &'a Path, teams: Vec<Team>)
    -> BoxFuture<'a, Result<Arc<dyn OpenProject>, HostError>>;

    /// Returns a fingerprint of the agents in a folder. When it changes, the project is opened again.
    fn stamp(&self, folder: &Path) -> u64;
}

/// The agents, models and permissions of a project.
pub trait OpenProject: Send + Sync + 'static {
    /// Returns the agents with their runtime.
    fn homing(&self) -> &Homing;

    /// Adds the host's limits, model and account to a task.
    fn prepare(&self, task: Task, limits: Limits) -> Task;

    /// Returns what a task would do and could cost, without starting it.
    ///
    /// # Errors
    /// Fails if the task cannot be started.
    fn plan(&self, task: Task) -> Result<Value, HostError>;

    /// Returns the agents with their diagnostics.
    fn agents(&self) -> Value;

    /// Returns everything about one agent: its definition, its tools and why it has them.
    ///
    /// # Errors
    /// Fails if there is no such agent, or if it cannot run.
    fn agent(&self, name: &str) -> Result<Value, HostError>;

    /// Returns the name of the default model and those that the user's configuration names.
    fn models(&self) -> (Option<String>, Vec<String>);

    /// Returns the budget accounts with their limits in micro-dollars per day.
    fn accounts(&self) -> BTreeMap<String, Option<u64>>;

    /// Allows these calls in this project from now on, and returns a message for the user.
    ///
    /// # Errors
    /// Fails if the user's configuration cannot be written.
    fn allow_always(&self, rules: &[Rule]) -> Result<String, HostError>;

    /// Returns a text without the keys of providers, for a file that leaves the machine.
    fn redacted(&self, text: &str) -> String;

    /// Raises the limits of a run of a tree that other machines drive, and continues the tree if a limit had ended it. Returns a
    /// message for the user, or `None` if this machine drives the tree.
    ///
    /// # Errors
    /// Fails if the other machines cannot be reached or cannot continue it, or if the run has ended otherwise.
    fn raise_elsewhere(&self, tree: Uuid, run: Uuid, more: Limits) -> BoxFuture<'_, Result<Option<String>, HostError>>;

    /// Explains why a run was not started.
    fn spawn_error(&self, error: SpawnError) -> HostError;
}

/// The reason why the host refused something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    /// The kind of error.
    pub kind: HostErrorKind,
    /// The failure and its reason.
    pub message: String,
    /// Suggestion for the user.
    pub hint: Option<String>,
}

/// The kinds of errors of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostErrorKind {
    /// The request cannot be carried out as it is.
    Usage,
    /// A policy of the user refuses it.
    Refused,
    /// There is no such thing.
    NotFound,
    /// The configuration, or something else on the machine, does not allow it.
    Unavailable,
}
