//! Homing runs agents that are defined in files or in code. Every run ends with a result: its answer, or the reason why there is
//! none together with what it had so far; within its limits; after any crash.
//!
#![cfg_attr(all(feature = "shell", feature = "providers", feature = "sqlite"), doc = "```no_run")]
#![cfg_attr(not(all(feature = "shell", feature = "providers", feature = "sqlite")), doc = "```ignore")]
//! use homing::{Homing, Limits, Task};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     homing::run_helper_if_asked(); // agents' commands run below a second process of this program
//!     let homing = Homing::coding(".").build()?;
//!     let limits = Limits::default().cost_usd("0.50")?;
//!     let run = homing.spawn(Task::new("code-review", "Review the last commit").limits(limits))?;
//!     let mut events = run.events();
//!     tokio::spawn(async move { while let Some(event) = events.next().await { eprintln!("{}", event.to_json()) } });
//!     let result = run.await; // not an error, even if the run failed
//!     println!("{}\n{}", result.output, result.tree());
//!     Ok(())
//! }
//! ```
//!
//! [`Homing::coding`] finds agents, tools and API keys as the command line does. [`Homing::builder`] is hermetic: it reads no
//! environment variable, home folder, configuration or agent folder and writes no file unless it is told to. There is no global
//! state, so several instances can live in one process. [`environment`] is the only module that reads the environment.
//!
//! # Concepts
//!
//! | page | subject |
//! |---|---|
//! | [`agents`] | definitions in code and in files, the registry |
//! | [`tasks`] | tasks, runs, results, conversations |
//! | [`limits`] | money, tokens, time, calls and depth, for a whole tree |
//! | [`tools`] | tools from functions, built-in tools |
//! | [`models`] | providers, own models |
//! | [`events`] | facts and notices of a run tree |
//! | [`permissions`] | rules, questions, sandbox |
//! | [`journal`] | durable runs: resume, submit once, fork |
//! | `teams` | crews, chats, graphs, maps |
//! | [`testing`] | scripted models, paused time, cassettes |
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `sqlite` | the journal on disk | yes |
//! | `providers` | models of providers, and the offline model; without TLS only those with `http://` addresses | yes |
//! | `aws-lc-rs` | TLS for providers, also with post-quantum key exchange | yes |
//! | `ring` | TLS by ring instead, which is smaller and is compiled faster; `aws-lc-rs` must be off | |
//! | `http2` | one connection for all calls to a provider that supports HTTP/2 | yes |
//! | `genai` | providers without a wire of their own, such as Gemini | |
//! | `schemas` | answers that must match a JSON schema; `tools` and `teams` include it | yes |
//! | `tools` | file tools, project context, agents and skills from files | yes |
//! | `shell` | commands in a sandbox, hooks, worktrees | yes |
//! | `web` | the tools `fetch` and `websearch` | |
//! | `mcp` | tools of MCP servers, with OAuth | |
//! | `teams` | teams of agents | yes |
//! | `scripts` | workflow scripts in JavaScript | |
//! | `otel` | OpenTelemetry traces and metrics | |
//! | `unstable` | the crates behind this one, which may change in any version | |
//!
//! A definition that needs a feature which is off is an error that names it ([`MissingFeature`]).

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

pub mod agents;
pub mod environment;
pub mod events;
pub mod journal;
pub mod limits;
pub mod models;
pub mod permissions;
pub mod tasks;
#[cfg(feature = "teams")]
pub mod teams;
pub mod testing;
pub mod tools;

#[cfg(feature = "tools")]
mod agent_files;
#[cfg(feature = "tools")]
mod agent_memory;
#[cfg(feature = "tools")]
mod attach;
#[cfg(feature = "providers")]
mod aws_profile;
mod builder;
#[cfg(all(feature = "sqlite", feature = "tools"))]
mod cache;
#[cfg(feature = "providers")]
mod catalog;
#[cfg(feature = "tools")]
mod claude_plugins;
mod closures;
#[cfg(feature = "tools")]
mod coding_preset;
#[cfg(feature = "shell")]
mod commands;
mod missing_features;
#[cfg(feature = "tools")]
mod project;
#[cfg(feature = "tools")]
mod project_context;
#[cfg(feature = "mcp")]
mod servers;
#[cfg(all(feature = "tools", feature = "teams"))]
mod team_files;
mod tool_fn;
#[cfg(feature = "tools")]
mod user_files;

use std::{fmt, sync::Arc, time::Duration};

#[cfg(feature = "tools")]
pub use agent_files::{AgentFiles, NoAgent};
#[cfg(feature = "tools")]
pub use attach::{AttachError, AttachFilesError};
pub use builder::{BuildError, Extensions, HomingBuilder, IntoRule, JournalChoice, Permissions, ToolWrapper};
#[cfg(all(feature = "sqlite", feature = "tools"))]
pub use cache::{Cached, Keep};
#[cfg(feature = "providers")]
pub use catalog::{Catalog, ModelOptions};
pub use closures::{ask_fn, model_fn};
#[cfg(feature = "tools")]
pub use coding_preset::CodingSetup;
#[cfg(feature = "shell")]
pub use commands::run_helper_if_asked;
pub use environment::Folders;
pub use homing_core::{
    BoxFuture,
    agent_builder::{AgentBuildError, AgentBuilder},
    authority::{Allow, Grant, Layer, Network, Sandbox},
    definition::{AgentDefinition, Isolation, ModelChoice, OnFailure, PermissionMode, Scope},
    diagnostic::{Diagnostic, Severity},
    envelope::{Envelope, EnvelopeError, EnvelopeUsage, Status},
    fact::{CancelledBy, FailureKind},
    limits::{Cap, Limit, Limits, usd},
    message::{Args, AttachedContent, Attachment, Image, Message, Part, Reply, StopReason, ToolCall, Usage},
    model::{Model, ModelCard, Models, Rates},
    question::{OpenQuestion, QuestionId, QuestionKind, RequestedCall},
    redaction::Secrets,
    registry::Registry,
    rule::Rule,
    tool::{Answer, Question, Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
pub use homing_runtime::{
    AnswerError, Fork, NoData, OnDemand, OnQuestion, PermissionHandler, RetryConfig, RunHandle, Runtime, RuntimeConfig,
    SpawnError, Statistics, Submission, TaintConfig, Task, aggregate,
    event::{Event, Events},
    journal::{Claim, FactListener, JournalError},
};
#[cfg(feature = "teams")]
pub use homing_teams::{Chat, Crew, CrewTask, Graph, Map, Orchestrator, Team, TeamResult};
pub use missing_features::MissingFeature;
#[cfg(feature = "mcp")]
pub use project::KnownServer;
#[cfg(feature = "tools")]
pub use project_context::project_context;
#[cfg(feature = "providers")]
pub use secrecy;
#[cfg(feature = "mcp")]
pub use servers::server_folders;
pub use tool_fn::tool_fn;
pub use {homing_runtime::event::Stream, schemars, serde_json, uuid};

#[cfg(feature = "otel")]
pub use homing_otel as otel;

/// The crates behind this one, for hosts that need more than it re-exports. They may change in any version.
#[cfg(feature = "unstable")]
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
/// let homing = Homing::coding(".").build()?;
/// let result = homing.spawn(Task::new("explore", "Where are model calls retried?"))?.await;
/// println!("{}", result.output);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Homing {
    runtime: Runtime,
    registry: Arc<Registry>,
    diagnostics: Arc<[Diagnostic]>,
    pending: Arc<[PendingApproval]>,
    #[cfg(feature = "sqlite")]
    journal: Option<Arc<homing_runtime::journal::sqlite::SqliteJournal>>,
    #[cfg(feature = "shell")]
    commands: Option<Arc<homing_tools::shell::commands::Commands>>,
}

impl fmt::Debug for Homing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Homing").field("agents", &self.registry.len()).finish_non_exhaustive()
    }
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

    /// Spawns a run once its task is recorded under `key`. If the task was submitted before with this key, returns that run
    /// instead: with its recorded result if it has ended, live if it is running here, and resumed if its process is gone.
    ///
    /// # Errors
    ///
    /// Fails like [`Homing::spawn`], if the key was used for another task, if another process is driving the run
    /// ([`JournalError::Owned`]), or if the journal cannot be read or written.
    pub async fn submit(&self, key: impl Into<String>, task: Task) -> Result<RunHandle, SpawnError> {
        match self.runtime.submit(key, task).await? {
            Submission::New(run) => Ok(run),
            Submission::Earlier(tree) => match self.runtime.get(tree) {
                Some(run) => Ok(run),
                None => self.resume(tree, Claim::IfGone, Limits::default()).await,
            },
        }
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

    /// Returns the runs that were started here, oldest first. Child runs are reached through their root's handle.
    pub fn runs(&self) -> Vec<RunHandle> {
        self.runtime.roots()
    }

    /// Waits for all runs that were started here and returns their envelopes, oldest first.
    pub async fn wait_all(&self) -> Vec<Envelope> {
        self.runtime.wait_all(&self.runs()).await
    }

    /// Tries the sandbox that commands run in, and returns the reason if none works. Commands are refused then, unless the sandbox
    /// is off. The result is kept, so the first command need not wait for it.
    #[cfg(feature = "shell")]
    pub async fn sandbox_problem(&self) -> Option<String> {
        let sandboxes = self.commands.as_ref()?.sandboxes().await;
        sandboxes.best().is_none().then(|| sandboxes.why_not())
    }

    /// Cancels all runs, waits up to `grace` for them to end, and returns their envelopes.
    pub async fn shutdown(&self, grace: Duration) -> Vec<Envelope> {
        self.runtime.shutdown(grace).await
    }
}

#[cfg(all(doctest, feature = "tools", feature = "providers", feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
