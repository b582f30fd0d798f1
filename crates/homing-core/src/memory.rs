//! Interface to the notes that agents keep between runs. The host decides where they are.

use std::path::{Path, PathBuf};

use crate::definition::AgentDefinition;

/// The file of a memory folder whose beginning is part of the prompt.
pub const NOTES_FILE: &str = "MEMORY.md";

/// The folders in which agents keep notes between runs.
pub trait AgentMemories: Send + Sync {
    /// Returns the folder of an agent that has a memory.
    fn folder(&self, agent: &AgentDefinition) -> Option<PathBuf>;

    /// Returns the beginning of the notes in a folder; empty if there are none.
    fn notes(&self, folder: &Path) -> String;

    /// Creates the folder before a run that may write to it.
    ///
    /// # Errors
    /// Fails if the folder cannot be created or used.
    fn prepare(&self, folder: &Path) -> Result<(), String>;
}

/// Renders the section of a prompt about an agent's memory.
pub fn section(folder: &Path, notes: &str) -> String {
    let folder = folder.display();
    let notes = if notes.trim().is_empty() { "(empty)" } else { notes.trim() };
    format!(
        "<memory folder=\"{folder}\">\nYou keep notes between runs in this folder. Read its files when they help, and record what \
         you learn that later runs need. The beginning of {NOTES_FILE} follows; keep it short and move details into other \
         files of the folder.\n\n{notes}\n</memory>"
    )
}
