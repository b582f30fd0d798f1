//! Doing things: the tools that read, search, change, run and fetch, and what keeps them within a run's authority.
//!
//! This room touches the user's files, processes and the public network. It knows nothing of models, of the journal or
//! of how runs are driven: a call is handed everything it may know in a `ToolContext`, and hosts hand in environment
//! and home as values.

mod ask;
pub mod authority_files;
pub mod bash;
mod beneath;
mod changed;
pub mod commands;
pub mod diff;
mod edit;
mod fetch;
pub mod git;
mod git_folder;
mod glob;
mod grep;
mod hits;
pub mod hooks;
mod lenient;
mod ls;
pub mod mcp;
mod page;
pub mod process;
mod proxy;
mod read;
mod replace;
mod rooted;
mod roots;
pub mod sandbox;
pub mod settings;
pub mod shell;
mod sight;
mod skill;
mod stamps;
mod think;
mod todo;
pub mod toolset;
mod tree;
pub mod trust;
pub mod typed;
mod walk;
mod wanted;
pub mod web;
pub mod websearch;
pub mod worktree;
mod write;
