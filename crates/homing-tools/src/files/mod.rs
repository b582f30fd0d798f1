//! The file tools, confined to the folders that a run may use.

pub(crate) mod atomic_write;
pub mod attach;
pub mod change_diff;
pub(crate) mod confined_open;
pub mod contents;
#[cfg(feature = "shell")]
pub mod diff;
pub(crate) mod edit;
pub(crate) mod file_versions;
pub(crate) mod glob;
pub(crate) mod grep;
pub(crate) mod ls;
mod media;
pub(crate) mod path_arg;
mod pdf_pages;
pub(crate) mod read;
pub mod restore;
pub(crate) mod search_results;
pub(crate) mod tree;
pub(crate) mod walk;
pub(crate) mod workspace_files;
pub(crate) mod write;
