//! Spawns runs, drives each to its end, and records what happens. Models, tools and the journal are supplied by the
//! host; this crate does not depend on files, providers or terminals.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod agent_loop;
mod agent_memory;
mod catalog;
pub mod clock;
mod config;
mod cost_limit;
mod delegation;
pub mod event;
mod fork;
mod fork_tree;
mod handle;
mod host_parts;
mod inbox;
pub mod journal;
mod ledger;
mod live_run;
mod live_tree;
mod live_trees;
mod observers;
mod on_demand;
pub mod placement;
mod project;
mod prompt;
mod questions;
mod resume;
mod reuse_parts;
mod run_tools;
mod runtime;
mod scheduler;
mod segment;
mod segment_requests;
mod skill_use;
mod spawn;
mod spawn_cache;
mod spawn_error;
mod task;
mod transcript_lines;

pub use config::{OnQuestion, RetryConfig, RuntimeConfig, TaintConfig};
pub use delegation::{AgentListing, ChildEnding, ChildReport, ChildReports};
pub use fork_tree::Fork;
pub use handle::{NoData, RunHandle, Statistics, aggregate};
pub use on_demand::OnDemand;
pub use project::project_folder;
pub use prompt::PromptContext;
pub use questions::{AnswerError, answer_in_journal};
pub use resume::continues;
pub use runtime::{PermissionHandler, Runtime, RuntimeParts, SpawnError, Submission};
pub use segment::{learn_news, settle_share};
pub use task::Task;
