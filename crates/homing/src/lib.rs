//! Homing runs agents that are defined in files. Every run ends with a result: its answer, or the reason why there is none
//! together with what it had so far.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use homing::{Homing, Limits, Task};
//!
//! let homing = Homing::coding(".").build().await?;
//! let run = homing.spawn(Task::new("code-review", "Review the last commit").limits(Limits::default().cost_usd("0.50")?))?;
//! let mut events = run.events();
//! tokio::spawn(async move { while let Some(event) = events.next().await { eprintln!("{}", event.to_json()) } });
//! let result = run.wait().await;
//! println!("{}\n{}", result.output, result.tree());
//! # Ok(())
//! # }
//! ```
//!
//! [`Homing::builder`] is hermetic: it reads no environment variable, home folder, configuration or agent folder and writes no
//! file unless it is told to. There is no global state, so several instances can live in one process.
//! [`environment`] is the only module that reads the environment.

#[cfg(feature = "tools")]
mod agent_memory;
mod builder;
#[cfg(all(feature = "sqlite", feature = "tools"))]
mod cache;
#[cfg(feature = "providers")]
mod catalog;
#[cfg(feature = "tools")]
mod coding_preset;
pub mod environment;
#[cfg(feature = "tools")]
mod project;
mod project_context;
#[cfg(feature = "tools")]
mod servers;
#[cfg(all(feature = "tools", feature = "teams"))]
mod team_files;
mod tool_fn;
#[cfg(feature = "tools")]
mod user_files;

use std::{sync::Arc, time::Duration};

pub use builder::{BuildError, Extensions, HomingBuilder, JournalChoice, Permissions, ToolWrapper};
#[cfg(all(feature = "sqlite", feature = "tools"))]
pub use cache::{Cached, Keep};
#[cfg(feature = "providers")]
pub use catalog::{Catalog, ModelOptions};
#[cfg(feature = "tools")]
pub use coding_preset::{CodingSetup, run_helper_if_asked, server_folders};
pub use environment::Folders;
pub use homing_core::{
    authority::{Allow, Grant, Layer, Network, Sandbox},
    definition::{AgentDefinition, Isolation, ModelChoice, OnFailure, PermissionMode, Scope},
    diagnostic::{Diagnostic, Severity},
    envelope::{Envelope, EnvelopeError, EnvelopeUsage, Status},
    fact::CancelledBy,
    limits::{Cap, Limit, Limits, usd},
    message::{Message, Reply},
    model::{Model, ModelCard, Models, Rates},
    registry::Registry,
    rule::Rule,
    tool::{Answer, Question, Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
pub use homing_runtime::{
    Fork, OnDemand, PermissionHandler, RunHandle, Runtime, RuntimeConfig, SpawnError, Statistics, Submission, Task,
    aggregate,
    event::{Event, Events},
    journal::{Claim, FactListener, JournalError},
};
#[cfg(feature = "tools")]
pub use project::KnownServer;
pub use project_context::project_context;
pub use tool_fn::tool_fn;

/// The crates behind this one, for hosts that need more than it re-exports.
pub mod crates {
    pub use homing_core as core;
    #[cfg(feature = "tools")]
    pub use homing_load as load;
    #[cfg(feature = "providers")]
    pub use homing_models as models;
    #[cfg(feature = "providers")]
    pub use homing_offline as offline;
    pub use homing_runtime as runtime;
    #[cfg(feature = "tools")]
    pub use homing_sandbox as sandbox;
    #[cfg(feature = "teams")]
    pub use homing_teams as teams;
    #[cfg(feature = "tools")]
    pub use homing_tools as tools;
}

/// Something that has no effect until the user approves it.
///
/// # Examples
///
/// ```
/// use homing::{Homing, PendingApproval};
///
/// fn hints(homing: &Homing) -> Vec<String> {
///     let hint = |pending: &PendingApproval| match pending {
///         PendingApproval::Server(name) => format!("approve the tools of {name}"),
///         _ => "trust the project".to_owned(),
///     };
///     homing.pending_approvals().iter().map(hint).collect()
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PendingApproval {
    /// The project's files: their hooks, MCP servers and wider permissions.
    ProjectFiles,
    /// The tools of the MCP server with this name.
    Server(String),
}

/// Agents, models, tools and a journal, with the runtime that runs tasks on them.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use homing::{Homing, Task};
///
/// let homing = Homing::coding(".").build().await?;
/// let result = homing.spawn(Task::new("explore", "Where are model calls retried?"))?.wait().await;
/// println!("{}", result.output);
/// # Ok(())
/// # }
/// ```
pub struct Homing {
    runtime: Runtime,
    registry: Arc<Registry>,
    diagnostics: Vec<Diagnostic>,
    pending: Vec<PendingApproval>,
    #[cfg(feature = "sqlite")]
    journal: Option<Arc<homing_runtime::journal::sqlite::SqliteJournal>>,
    _inbox: InboxWatch,
}

impl Homing {
    /// Returns a builder without agents, models and tools. It reads and writes nothing by itself.
    pub fn builder() -> HomingBuilder {
        HomingBuilder::default()
    }

    /// Returns a builder set up for coding: agents and skills of the project around `folder` and of the user, API keys from the
    /// environment, tools within `folder`, and the journal in the user's data folder.
    #[cfg(all(feature = "tools", feature = "providers", feature = "sqlite"))]
    pub fn coding(folder: impl Into<std::path::PathBuf>) -> HomingBuilder {
        coding_preset::builder(&folder.into())
    }

    /// Spawns a run for a task and returns its handle.
    ///
    /// # Errors
    ///
    /// Fails if the agent is unknown, no model is available for it, or a limit leaves nothing to spend.
    pub fn spawn(&self, task: Task) -> Result<RunHandle, SpawnError> {
        self.runtime.spawn(task)
    }

    /// Spawns a run once its task is recorded, or returns the earlier run that has the same key.
    ///
    /// # Errors
    ///
    /// Fails like [`Homing::spawn`], if the key was used for another task, or if the journal cannot be written.
    pub async fn submit(&self, task: Task) -> Result<Submission, SpawnError> {
        self.runtime.submit(task).await
    }

    /// Resumes a run tree of the journal whose process is gone. `more` is added to its limits.
    ///
    /// # Errors
    ///
    /// Fails if the tree is unknown, its process is alive, it crashed repeatedly, or the journal cannot be written.
    pub async fn resume(&self, tree: uuid::Uuid, claim: Claim, more: Limits) -> Result<RunHandle, SpawnError> {
        self.runtime.resume(tree, claim, more).await
    }

    /// Starts a new tree that begins with the facts of a recorded one up to a position, and continues from there. Nothing that
    /// was answered by then is asked or paid again.
    ///
    /// # Errors
    ///
    /// Fails if there is no such position, if the tree had ended by then, or if the journal fails.
    pub async fn fork(&self, tree: uuid::Uuid, fork: Fork) -> Result<RunHandle, SpawnError> {
        self.runtime.fork(tree, fork).await
    }

    /// Returns the runtime: all live runs, statistics, waiting for several runs.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the agents by name.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the diagnostics about agent files and settings.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Returns what has no effect until the user approves it.
    pub fn pending_approvals(&self) -> &[PendingApproval] {
        &self.pending
    }

    /// Returns the journal file, if there is one.
    #[cfg(feature = "sqlite")]
    pub fn journal(&self) -> Option<&Arc<homing_runtime::journal::sqlite::SqliteJournal>> {
        self.journal.as_ref()
    }

    /// Cancels all runs, waits up to `grace` for them to end, and returns their envelopes.
    pub async fn shutdown(&self, grace: Duration) -> Vec<Envelope> {
        self.runtime.shutdown(grace).await
    }
}

/// Handles requests of other processes about our runs. Stops when it is dropped.
struct InboxWatch(Option<tokio::task::JoinHandle<()>>);

impl InboxWatch {
    fn start(runtime: &Runtime) -> Self {
        let runtime = runtime.clone();
        Self(Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(250)).await;
                runtime.answer_inbox().await;
            }
        })))
    }
}

impl Drop for InboxWatch {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

/// Waits for a run and parses its structured answer as `T`.
///
/// # Errors
///
/// Fails if the run gave no structured answer or `T` cannot be parsed from it.
pub async fn wait_as<T: serde::de::DeserializeOwned>(run: &RunHandle) -> Result<T, NoData> {
    let envelope = run.wait().await;
    let data = envelope.data.clone().ok_or_else(|| NoData::None(Box::new(envelope.clone())))?;
    serde_json::from_value(data).map_err(|error| NoData::Misfit(error.to_string(), Box::new(envelope)))
}

/// An error of [`wait_as`]. Both variants hold the run's envelope.
#[derive(Debug, thiserror::Error)]
pub enum NoData {
    /// The run gave no structured answer.
    #[error("the run ended {} without a structured answer", .0.status.name())]
    None(Box<Envelope>),
    /// The answer does not match the type.
    #[error("the structured answer does not match the type: {0}")]
    Misfit(String, Box<Envelope>),
}

#[cfg(all(doctest, feature = "tools", feature = "providers", feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
