//! Every agent that is known, by name.

use std::{collections::BTreeMap, sync::Arc};

use crate::definition::AgentDefinition;

/// Every agent that is known, by name. A value: reloading builds a new one.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    agents: BTreeMap<String, RegistryEntry>,
    aliases: BTreeMap<String, String>,
}

/// An agent together with those of the same name that it hides.
#[derive(Clone, Debug)]
pub struct RegistryEntry {
    /// The one that counts.
    pub definition: Arc<AgentDefinition>,
    /// The hidden ones, the most recently hidden first.
    pub shadows: Vec<Arc<AgentDefinition>>,
}

/// No agent has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no agent named `{name}`{}; there are: {}", suggestion(.name, .known), .known.join(", "))]
pub struct UnknownAgent {
    /// The name that was asked for.
    pub name: String,
    /// The names that exist.
    pub known: Vec<String>,
}

impl Registry {
    /// Adds an agent; one of the same name is hidden by it and remembered.
    pub fn register(&mut self, definition: impl Into<Arc<AgentDefinition>>) {
        let definition: Arc<AgentDefinition> = definition.into();
        let name = definition.name.clone();
        for alias in definition.title.iter().chain(&definition.aliases) {
            self.aliases.insert(fold(alias), name.clone());
        }
        match self.agents.get_mut(&name) {
            None => {
                self.agents.insert(name, RegistryEntry { definition, shadows: Vec::new() });
            }
            Some(registered) => {
                let hidden = std::mem::replace(&mut registered.definition, definition);
                registered.shadows.insert(0, hidden);
            }
        }
    }

    /// Adds many; later ones hide earlier ones.
    pub fn register_all(&mut self, definitions: impl IntoIterator<Item = AgentDefinition>) {
        for definition in definitions {
            self.register(definition);
        }
    }

    /// Looks an agent up by its name, its title or an alias; upper and lower case are the same.
    pub fn get(&self, name: &str) -> Result<&Arc<AgentDefinition>, UnknownAgent> {
        self.registered(name).map(|it| &it.definition)
    }

    /// Like [`Self::get`], with what the agent hides.
    pub fn registered(&self, name: &str) -> Result<&RegistryEntry, UnknownAgent> {
        let by_alias = || self.agents.get(self.aliases.get(&fold(name))?);
        let found = self.agents.get(name).or_else(by_alias).or_else(|| self.agents.get(&name.trim().to_lowercase()));
        found.ok_or_else(|| UnknownAgent { name: name.to_owned(), known: self.names().map(str::to_owned).collect() })
    }

    /// Whether there is such an agent.
    pub fn has(&self, name: &str) -> bool {
        self.registered(name).is_ok()
    }

    /// Every agent, in the order of names.
    pub fn all(&self) -> impl Iterator<Item = &RegistryEntry> {
        self.agents.values()
    }

    /// Every name, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// How many agents there are.
    pub fn len(&self) -> usize {
        self.agents.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }
}

impl FromIterator<AgentDefinition> for Registry {
    fn from_iter<I: IntoIterator<Item = AgentDefinition>>(definitions: I) -> Self {
        let mut registry = Self::default();
        registry.register_all(definitions);
        registry
    }
}

fn fold(name: &str) -> String {
    name.trim().to_lowercase()
}

fn suggestion(name: &str, known: &[String]) -> String {
    let near = known.iter().map(|it| (distance(&fold(name), it), it)).min();
    match near {
        Some((steps, it)) if steps <= 2.max(name.len() / 4) => format!(" (did you mean `{it}`?)"),
        Some(_) | None => String::new(),
    }
}

/// Levenshtein distance; names are short, so the plain table will do.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(200).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(200).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r7_registry_registers_gets_lists_and_says_what_exists() {
        let mut registry = Registry::default();
        registry.register(AgentDefinition::new("explore", "first", "p"));
        registry.register_all([AgentDefinition::new("explore", "second", "p"), AgentDefinition::new("plan", "d", "p")]);
        assert_eq!(registry.names().collect::<Vec<_>>(), ["explore", "plan"]);
        assert_eq!(registry.get("explore").unwrap().description, "second");
        assert_eq!(registry.registered("explore").unwrap().shadows[0].description, "first");
        assert!(registry.has("Plan") && !registry.has("nobody"));
        let error = registry.get("explor").unwrap_err().to_string();
        assert_eq!(error, "there is no agent named `explor` (did you mean `explore`?); there are: explore, plan");
    }

    #[test]
    fn a_title_is_as_good_as_a_name() {
        let mut agent = AgentDefinition::new("code-reviewer", "d", "p");
        agent.title = Some("Code Reviewer".into());
        let registry = Registry::from_iter([agent]);
        assert!(registry.has("code reviewer"));
    }
}
