//! Doing things: the tools that read, search, change, run and fetch, and what keeps them within a run's authority.
//!
//! This room touches the user's files, processes and the public network. It knows nothing of models, of the journal or
//! of how runs are driven: a call is handed everything it may know in a `ToolContext`, and hosts hand in environment
//! and home as values.

mod ask;
pub mod files;
pub mod hooks;
mod lenient_args;
pub mod mcp;
mod result_filter;
pub mod shell;
mod skill;
mod think;
mod todo;
pub mod toolset;
pub mod trust;
pub mod typed_tool;
pub mod web;
pub mod worktree;
