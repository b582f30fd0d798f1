//! Homing runs agents that are files, and every agent that is sent out comes back: with its answer, or with the reason why
//! not and whatever it had by then.
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
//! [`Homing::builder`] is hermetic: it reads no environment, home, configuration or agent folder and writes no file unless
//! it is asked to. There are no globals; several instances live in one process.

mod builder;
#[cfg(all(feature = "sqlite", feature = "tools"))]
mod cache;
#[cfg(feature = "providers")]
mod catalog;
#[cfg(feature = "tools")]
mod coding_preset;
mod folders;
#[cfg(feature = "tools")]
mod project;
mod project_context;
#[cfg(feature = "tools")]
mod servers;
mod tool_fn;

use std::{sync::Arc, time::Duration};

pub use builder::{BuildError, HomingBuilder};
#[cfg(all(feature = "sqlite", feature = "tools"))]
pub use cache::{Cached, Keep};
#[cfg(feature = "providers")]
pub use catalog::{Catalog, ModelOptions};
#[cfg(feature = "tools")]
pub use coding_preset::{CodingSetup, run_helper_if_asked, server_folders};
pub use folders::Folders;
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
    PermissionHandler, RunHandle, Runtime, RuntimeConfig, SpawnError, Statistics, Submission, Task, aggregate,
    event::{Event, Events},
    journal::{Claim, FactListener, JournalError},
};
#[cfg(feature = "tools")]
pub use project::KnownServer;
pub use project_context::surroundings;
pub use tool_fn::tool_fn;

/// The rooms behind this facade, for those who need all of them.
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

/// Everything in one: agents, models, tools, journal, and the runtime over them.
pub struct Homing {
    runtime: Runtime,
    registry: Arc<Registry>,
    diagnostics: Vec<Diagnostic>,
    #[cfg(feature = "sqlite")]
    journal: Option<Arc<homing_runtime::journal::sqlite::SqliteJournal>>,
    _inbox: InboxWatch,
}

impl Homing {
    /// An empty one: no agents but those you add, no models, no tools, nothing read and nothing written.
    pub fn builder() -> HomingBuilder {
        HomingBuilder::default()
    }

    /// A coding agent's set-up in one call: the agents and skills of the project around `folder` and of the user, keys
    /// from the environment, the tools within `folder`, the journal where the platform keeps data.
    #[cfg(all(feature = "tools", feature = "providers", feature = "sqlite"))]
    pub fn coding(folder: impl Into<std::path::PathBuf>) -> HomingBuilder {
        HomingBuilder::default().coding(folder.into())
    }

    /// Starts a task.
    pub fn spawn(&self, task: Task) -> Result<RunHandle, SpawnError> {
        self.runtime.spawn(task)
    }

    /// Starts a task once it is durable, or says which earlier run has its key.
    pub async fn submit(&self, task: Task) -> Result<Submission, SpawnError> {
        self.runtime.submit(task).await
    }

    /// Goes on with a tree of the journal whose process is gone; `more` adds to its limits.
    pub async fn resume(&self, tree: uuid::Uuid, claim: Claim, more: Limits) -> Result<RunHandle, SpawnError> {
        self.runtime.resume(tree, claim, more).await
    }

    /// The runtime: every run in hand, statistics, waiting for many.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The agents that are known.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What there was to say about files and settings.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// The journal on disk, where there is one.
    #[cfg(feature = "sqlite")]
    pub fn journal(&self) -> Option<&Arc<homing_runtime::journal::sqlite::SqliteJournal>> {
        self.journal.as_ref()
    }

    /// Ends every run, each with its envelope.
    pub async fn shutdown(&self, grace: Duration) -> Vec<Envelope> {
        self.runtime.shutdown(grace).await
    }
}

/// Watches for what other processes want of our runs; stops with its owner.
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

/// Waits for a structured answer and reads it as `T`.
pub async fn wait_as<T: serde::de::DeserializeOwned>(run: &RunHandle) -> Result<T, NoData> {
    let envelope = run.wait().await;
    let data = envelope.data.clone().ok_or_else(|| NoData::None(Box::new(envelope.clone())))?;
    serde_json::from_value(data).map_err(|error| NoData::Misfit(error.to_string(), Box::new(envelope)))
}

/// Why there is no structured answer.
#[derive(Debug, thiserror::Error)]
pub enum NoData {
    /// The run gave none; its envelope says why.
    #[error("the run ended {} without a structured answer", .0.status.name())]
    None(Box<Envelope>),
    /// It does not fit the type.
    #[error("the structured answer does not fit: {0}")]
    Misfit(String, Box<Envelope>),
}

#[cfg(all(doctest, feature = "tools", feature = "providers", feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
