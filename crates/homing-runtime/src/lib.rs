//! Spawns runs, drives each to its end, and records what happens. Models, tools and the journal are supplied by the
//! host; this crate does not depend on files, providers or terminals.

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
pub mod journal;
mod ledger;
mod live_run;
mod live_tree;
mod on_demand;
mod prompt;
mod resume;
mod run_tools;
mod runtime;
mod scheduler;
mod spawn;
mod task;
mod transcript_lines;

pub use config::{RetryConfig, RuntimeConfig, TaintConfig};
pub use delegation::{ChildEnding, ChildReport, ChildReports};
pub use fork_tree::Fork;
pub use handle::{RunHandle, Statistics, aggregate};
pub use on_demand::OnDemand;
pub use prompt::PromptContext;
pub use runtime::{OnComplete, PermissionHandler, Runtime, RuntimeParts, SpawnError, Submission};
pub use task::Task;
