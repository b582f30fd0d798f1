//! `Registry`: the known agent definitions, by name.

use std::{collections::BTreeMap, sync::Arc};

use crate::definition::AgentDefinition;

/// The known agent definitions, by name. Immutable in use: reloading builds a new one.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    agents: BTreeMap<String, RegistryEntry>,
    aliases: BTreeMap<String, String>,
}

/// An agent definition and those of the same name that it shadows.
#[derive(Clone, Debug)]
pub struct RegistryEntry {
    /// The definition in effect.
    pub definition: Arc<AgentDefinition>,
    /// The shadowed definitions, the most recently shadowed first.
    pub shadows: Vec<Arc<AgentDefinition>>,
}

/// A name that no agent has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no agent named `{name}`{}; there are: {}", suggestion(.name, .known), .known.join(", "))]
pub struct UnknownAgent {
    /// The requested name.
    pub name: String,
    /// The names that exist.
    pub known: Vec<String>,
}

impl Registry {
    /// Adds an agent; an earlier one of the same name is shadowed.
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

    /// Adds several agents; later ones shadow earlier ones.
    pub fn register_all(&mut self, definitions: impl IntoIterator<Item = AgentDefinition>) {
        for definition in definitions {
            self.register(definition);
        }
    }

    /// Looks up an agent by name, title or alias, ignoring case.
    ///
    /// # Errors
    /// Fails if there is no such agent.
    pub fn get(&self, name: &str) -> Result<&Arc<AgentDefinition>, UnknownAgent> {
        self.registered(name).map(|entry| &entry.definition)
    }

    /// Like [`Self::get`], but includes shadowed definitions.
    ///
    /// # Errors
    /// Fails if there is no such agent.
    pub fn registered(&self, name: &str) -> Result<&RegistryEntry, UnknownAgent> {
        let by_alias = || self.agents.get(self.aliases.get(&fold(name))?);
        let found = self.agents.get(name).or_else(by_alias).or_else(|| self.agents.get(&name.trim().to_lowercase()));
        found.ok_or_else(|| UnknownAgent { name: name.to_owned(), known: self.names().map(str::to_owned).collect() })
    }

    /// Returns whether there is such an agent.
    pub fn has(&self, name: &str) -> bool {
        self.registered(name).is_ok()
    }

    /// Returns all agents, ordered by name.
    pub fn all(&self) -> impl Iterator<Item = &RegistryEntry> {
        self.agents.values()
    }

    /// Returns the agents that are offered to models, ordered by name.
    pub fn offered(&self) -> impl Iterator<Item = &RegistryEntry> {
        self.all().filter(|entry| entry.definition.execution.offered_to.includes_models())
    }

    /// Returns all names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// Returns the number of agents.
    pub fn len(&self) -> usize {
        self.agents.len()
    }

    /// Returns whether there are no agents.
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
    let near = known.iter().map(|candidate| (distance(&fold(name), candidate), candidate)).min();
    match near {
        Some((edits, candidate)) if edits <= 2.max(name.len() / 4) => format!(" (did you mean `{candidate}`?)"),
        Some(_) | None => String::new(),
    }
}

/// Returns the Levenshtein distance of two names, considering at most 200 characters of each.
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
    fn r7_registry_registers_gets_lists_and_suggests() {
        let mut registry = Registry::default();
        registry.register(AgentDefinition::new("explore", "first", "p"));
        registry.register_all([AgentDefinition::new("explore", "second", "p"), AgentDefinition::new("plan", "d", "p")]);
        assert_eq!(registry.names().collect::<Vec<_>>(), ["explore", "plan"]);
        assert_eq!(registry.get("explore").unwrap().description, "second");
        assert_eq!(registry.registered("explore").unwrap().shadows[0].description, "first");
        assert!(registry.has("Plan") && !registry.has("unknown"));
        let error = registry.get("explor").unwrap_err().to_string();
        assert_eq!(error, "there is no agent named `explor` (did you mean `explore`?); there are: explore, plan");
    }

    #[test]
    fn agents_are_found_by_title() {
        let mut agent = AgentDefinition::new("code-reviewer", "d", "p");
        agent.title = Some("Code Reviewer".into());
        let registry = Registry::from_iter([agent]);
        assert!(registry.has("code reviewer"));
    }
}
