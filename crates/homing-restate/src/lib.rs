//! Runs on many machines. A Restate server keeps the facts of every run tree, gives each tree to one worker, and gives it to
//! another one if that worker dies.
//!
//! The agent loop is that of `homing_runtime`: this crate implements its [`Journal`](homing_runtime::journal::Journal) over the
//! server and resumes trees from it. Restate's own journal holds one entry per tree, because facts are the only record of
//! what happened. The types of Restate's SDK do not leave this crate.

mod account_object;
mod accounts;
mod attempt;
mod bodies;
mod definitions;
mod journal;
mod kept_trees;
mod ledger_object;
mod live;
mod protocol;
mod rate_limits;
mod run_workflow;
mod segments;
mod server;
mod submit;
mod tree_object;
mod worker;
mod writer;

pub use accounts::AccountLimits;
pub use journal::RestateJournal;
pub use kept_trees::{Raise, Raised};
pub use live::{LiveReader, LiveText};
pub use protocol::{Deleted, Preflight};
pub use segments::Spread;
pub use server::{MIN_VERSION, Server, ServerError};
pub use submit::{Page, Submission, Submitted, needs_workspace};
pub use worker::{RuntimeSource, Worker, WorkerOptions};
