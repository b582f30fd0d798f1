//! Spawns runs, drives each to its end, and records what happens. It knows neither files nor providers nor terminals:
//! models, tools and the journal are handed to it.

mod agent_loop;
pub mod clock;
mod config;
mod delegation;
pub mod event;
mod handle;
pub mod journal;
mod live_tree;
mod prompt;
mod resume;
mod runtime;
mod scheduler;
mod spawn;
mod task;
mod transcript_lines;

pub use config::RuntimeConfig;
pub use handle::{RunHandle, Statistics, aggregate};
pub use prompt::PromptContext;
pub use runtime::{OnComplete, PermissionHandler, Runtime, RuntimeParts, SpawnError, Submission};
pub use task::Task;
