//! Skills: instructions that are read on demand, or stand in an agent's prompt from the start.

use std::{path::PathBuf, sync::Arc};

use crate::definition::Scope;

/// What is known of a skill without reading its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillCard {
    /// Unique within a library.
    pub name: String,
    /// When to use it.
    pub description: String,
    /// Its file.
    pub path: PathBuf,
    /// Where it came from.
    pub scope: Scope,
}

/// A skill with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Name, description, place.
    pub card: SkillCard,
    /// The instructions.
    pub body: String,
    /// Files beside it that the instructions may speak of, relative to its folder.
    pub resources: Vec<String>,
}

impl Skill {
    /// The skill as it stands in a prompt or a tool's answer.
    pub fn render(&self) -> String {
        let mut text = format!("<skill name=\"{}\">\n{}\n", escape(&self.card.name), self.body.trim());
        if !self.resources.is_empty() {
            let folder = self.card.path.parent().map(|it| it.display().to_string()).unwrap_or_default();
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

/// A place to look skills up. Cards are at hand, bodies are read when somebody wants them.
pub trait SkillLibrary: Send + Sync {
    /// What is known of every skill, in the order of names.
    fn list(&self) -> &[SkillCard];

    /// Reads a skill; `None` where there is no such skill, an error in words where its file cannot be read any more.
    fn get(&self, name: &str) -> Option<Result<Arc<Skill>, String>>;

    /// Whether there is such a skill.
    fn has(&self, name: &str) -> bool {
        self.list().iter().any(|card| card.name == name)
    }
}
