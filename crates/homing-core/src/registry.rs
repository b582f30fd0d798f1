//! `Registry`: the known agent definitions, by name.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use crate::definition::AgentDefinition;

/// The known agent definitions, by name. Immutable in use: reloading builds a new one.
///
/// # Examples
///
/// ```
/// # use homing_core::registry as homing;
/// # use homing_core::definition::AgentDefinition;
/// use homing::Registry;
///
/// let agents: Registry = ["reviewer", "writer"].map(|name| AgentDefinition::new(name, "Works", "Work.")).into_iter().collect();
/// assert!(agents.has("writer"));
/// assert!(agents.get("reviwer").unwrap_err().to_string().contains("reviewer"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Registry {
    agents: BTreeMap<String, RegistryEntry>,
    aliases: BTreeMap<String, String>,
}

/// An agent definition and those of the same name that it shadows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RegistryEntry {
    /// The definition in effect.
    pub definition: Arc<AgentDefinition>,
    /// The shadowed definitions, the most recently shadowed first.
    pub shadows: Vec<Arc<AgentDefinition>>,
}

/// A name that no agent has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no agent named `{name}`{}; there are: {}", suggestion(.name, .known), .known.join(", "))]
#[non_exhaustive]
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
        match self.agents.entry(name) {
            Entry::Vacant(free) => {
                free.insert(RegistryEntry { definition, shadows: Vec::new() });
            }
            Entry::Occupied(mut taken) => {
                let registered = taken.get_mut();
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

    /// Adds all agents of another registry; they shadow those of the same name.
    pub fn merge(&mut self, other: Self) {
        for (name, mut entry) in other.agents {
            if let Some(shadowed) = self.agents.remove(&name) {
                entry.shadows.push(shadowed.definition);
                entry.shadows.extend(shadowed.shadows);
            }
            self.agents.insert(name, entry);
        }
        self.aliases.extend(other.aliases);
    }

    /// Returns all definitions, shadowed ones included.
    pub fn definitions(&self) -> impl Iterator<Item = &Arc<AgentDefinition>> {
        self.agents.values().flat_map(|entry| entry.shadows.iter().rev().chain([&entry.definition]))
    }

    /// Returns all definitions for changes, shadowed ones included. Names, titles and aliases must stay as they are.
    pub fn definitions_mut(&mut self) -> impl Iterator<Item = &mut AgentDefinition> {
        let all =
            self.agents.values_mut().flat_map(|entry| entry.shadows.iter_mut().rev().chain([&mut entry.definition]));
        all.map(Arc::make_mut)
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
        // Names come before titles and aliases, so that one agent's title cannot take another agent's name.
        let by_alias = || self.agents.get(self.aliases.get(&fold(name))?);
        let found = self.agents.get(name).or_else(|| self.agents.get(&fold(name))).or_else(by_alias);
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

/// Returns the Levenshtein distance of two names. Only the first 200 characters count, because names come from models and
/// files, and the time grows with the product of the lengths.
pub fn distance(a: &str, b: &str) -> usize {
    let head = |name: &str| name.chars().take(200).collect::<String>();
    strsim::levenshtein(&head(a), &head(b))
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
    fn merged_agents_shadow_those_of_the_same_name() {
        let mut registry = Registry::from_iter([AgentDefinition::new("plan", "host", "p")]);
        let mut other = Registry::from_iter([
            AgentDefinition::new("plan", "user", "p"),
            AgentDefinition { aliases: vec!["planner".into()], ..AgentDefinition::new("plan", "project", "p") },
        ]);
        other.definitions_mut().for_each(|definition| definition.prompt.push('!'));
        registry.merge(other);
        let entry = registry.registered("Planner").unwrap();
        let shadows: Vec<_> = entry.shadows.iter().map(|shadow| (&*shadow.description, &*shadow.prompt)).collect();
        assert_eq!((&*entry.definition.description, &*entry.definition.prompt), ("project", "p!"));
        assert_eq!(shadows, [("user", "p!"), ("host", "p")]);
    }

    #[test]
    fn agents_are_found_by_title() {
        let mut agent = AgentDefinition::new("code-reviewer", "d", "p");
        agent.title = Some("Code Reviewer".into());
        let registry = Registry::from_iter([agent]);
        assert!(registry.has("code reviewer"));
        let mut other = AgentDefinition::new("other", "d", "p");
        other.title = Some("Code-Reviewer".into());
        let registry = Registry::from_iter([other, AgentDefinition::new("code-reviewer", "d", "p")]);
        assert_eq!(registry.get("Code-Reviewer").unwrap().name, "code-reviewer", "names come before titles");
    }
}
