//! Doing things: the tools that read, search, change and fetch, and what keeps them within a run's authority.
//!
//! This room touches the user's files, processes and the public network. It knows nothing of models, of the journal or
//! of how runs are driven: a call is handed everything it may know in a `ToolContext`.

mod ask;
pub mod authority_files;
mod beneath;
mod changed;
pub mod diff;
mod edit;
mod fetch;
mod glob;
mod grep;
mod hits;
mod lenient;
mod ls;
mod page;
mod read;
mod replace;
mod rooted;
pub mod shell;
mod sight;
mod skill;
mod stamps;
mod think;
mod todo;
pub mod toolset;
mod tree;
pub mod typed;
mod walk;
mod wanted;
pub mod web;
pub mod websearch;
mod write;
