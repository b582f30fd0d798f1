//! Skills: instructions that are loaded on demand or included in an agent's prompt.

use std::{path::PathBuf, sync::Arc};

use crate::definition::Scope;

/// Metadata of a skill, known without reading its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillCard {
    /// Unique within a library.
    pub name: String,
    /// When to use it.
    pub description: String,
    /// Its file.
    pub path: PathBuf,
    /// Scope that it was found in.
    pub scope: Scope,
}

/// A skill with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Metadata.
    pub card: SkillCard,
    /// The instructions.
    pub body: String,
    /// Files that the instructions may refer to, relative to the skill's folder.
    pub resources: Vec<String>,
}

impl Skill {
    /// Renders the skill for a prompt or a tool result.
    pub fn render(&self) -> String {
        let mut text = format!("<skill name=\"{}\">\n{}\n", escape(&self.card.name), self.body.trim());
        if !self.resources.is_empty() {
            let folder = self.card.path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
            text.push_str(&format!("\nResources in {folder}:\n"));
            for resource in &self.resources {
                text.push_str(&format!("- {resource}\n"));
            }
        }
        text.push_str("</skill>");
        text
    }
}

fn escape(name: &str) -> String {
    name.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

/// A collection of skills. Metadata is in memory, bodies are read on demand.
pub trait SkillLibrary: Send + Sync {
    /// Returns the metadata of all skills, ordered by name.
    fn list(&self) -> &[SkillCard];

    /// Reads a skill. Returns `None` if there is no such skill, and an error message if its file cannot be read.
    fn get(&self, name: &str) -> Option<Result<Arc<Skill>, String>>;

    /// Returns whether there is such a skill.
    fn has(&self, name: &str) -> bool {
        self.list().iter().any(|card| card.name == name)
    }
}
