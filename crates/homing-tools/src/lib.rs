//! The built-in tools (files, search, shell, web, MCP client) and the checks that keep them within a run's authority.
//!
//! This crate touches the user's files, processes and the network. It does not depend on models, the journal or the
//! agent loop: a call receives its context as a `ToolContext`, and hosts pass environment and home as values.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod ask;
pub mod files;
#[cfg(feature = "shell")]
pub mod hooks;
mod lenient_args;
#[cfg(feature = "mcp")]
pub mod mcp;
mod result_filter;
pub mod secret_files;
#[cfg(feature = "shell")]
pub mod shell;
mod skill;
mod think;
mod todo;
pub mod toolset;
pub mod trust;
pub mod typed_tool;
#[cfg(feature = "web")]
pub mod web;
#[cfg(feature = "shell")]
pub mod worktree;
