//! `AgentFiles`: agents from a file, a folder or a JSON text.

use std::path::Path;

use homing_core::{
    definition::{AgentDefinition, Scope},
    diagnostic::Diagnostic,
};
use homing_load::{ParseOptions, Parsed, Recurse, load_file, load_folder, parse_json};

/// Agents that were read from files, for [`HomingBuilder::agent_files`](crate::HomingBuilder::agent_files).
///
/// # Examples
///
/// ```
/// use homing::{AgentFiles, Homing};
///
/// # fn main() -> Result<(), homing::NoAgent> {
/// let helper = AgentFiles::load_json(r#"{"helper": {"description": "Helps", "prompt": "Help."}}"#)?;
/// let builder = Homing::builder().agent_files(helper);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentFiles {
    /// The agents.
    pub definitions: Vec<AgentDefinition>,
    /// Problems in the files.
    pub diagnostics: Vec<Diagnostic>,
}

/// An error of [`AgentFiles`]: a file, folder or text defines no agent.
#[derive(Debug, thiserror::Error)]
#[error("{origin} defines no agent{}", .diagnostics.iter().map(|problem| format!("\n{problem}")).collect::<String>())]
#[non_exhaustive]
pub struct NoAgent {
    /// The file, folder or text.
    pub origin: String,
    /// Problems in it.
    pub diagnostics: Vec<Diagnostic>,
}

impl AgentFiles {
    /// Reads the agents in a file.
    ///
    /// # Errors
    ///
    /// Fails if the file defines no agent.
    pub fn load_file(path: impl AsRef<Path>) -> Result<Self, NoAgent> {
        let path = path.as_ref();
        Self::new(&path.display().to_string(), [load_file(path, Scope::CommandLine, &ParseOptions::default())])
    }

    /// Reads the agents in the files of a folder and the folders below it.
    ///
    /// # Errors
    ///
    /// Fails if no file defines an agent.
    pub fn load_dir(folder: impl AsRef<Path>) -> Result<Self, NoAgent> {
        let folder = folder.as_ref();
        let parsed = load_folder(folder, Recurse::Yes, Scope::CommandLine, &ParseOptions::default());
        Self::new(&folder.display().to_string(), parsed)
    }

    /// Reads the agents in a JSON text: one agent, or an object of agents by name.
    ///
    /// # Errors
    ///
    /// Fails if it defines no agent.
    pub fn load_json(json: &str) -> Result<Self, NoAgent> {
        Self::new("the JSON text", [parse_json(json, Scope::CommandLine, &ParseOptions::default())])
    }

    fn new(origin: &str, parsed: impl IntoIterator<Item = Parsed>) -> Result<Self, NoAgent> {
        let mut files = Self { definitions: Vec::new(), diagnostics: Vec::new() };
        for parsed in parsed {
            files.definitions.extend(parsed.definitions);
            files.diagnostics.extend(parsed.diagnostics);
        }
        if files.definitions.is_empty() {
            return Err(NoAgent { origin: origin.to_owned(), diagnostics: files.diagnostics });
        }
        Ok(files)
    }
}
