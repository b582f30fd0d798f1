//! Spawns runs, drives each to its end, and records what happens. It knows neither files nor providers nor terminals:
//! models, tools and the journal are handed to it.

mod ask;
mod book;
mod call;
mod compaction;
mod drive;
mod driver;
pub mod environment;
pub mod event;
mod family;
mod gate;
mod handle;
pub mod journal;
mod log;
mod prompt;
mod report;
mod resume;
mod runtime;
mod settings;
mod slots;
mod spawn;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod task;

pub use handle::{RunHandle, Statistics, aggregate};
pub use prompt::Setting;
pub use runtime::{Asker, OnComplete, Parts, Runtime, SpawnError, Submission};
pub use settings::Settings;
pub use task::Task;
