//! `SpawnCache`: what the runs of one tree, or the roots of one runtime, share when they are spawned.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
};

use homing_core::{
    authority::{Authority, Grant},
    definition::AgentDefinition,
};

use crate::run_tools::RunTools;

/// Authorities and tools that the runs of one tree share: a parent with a thousand children computes them once per
/// agent. The roots of a runtime that have its policy are like children of one parent.
///
/// The cache of a tree is emptied when the tree ends, and that of the roots has an entry for each registered agent at most, so a
/// long-lived runtime does not grow. Its keys hold the grants they stand for, so that an address cannot be reused while an
/// entry exists.
#[derive(Default)]
pub(crate) struct SpawnCache {
    authorities: Mutex<HashMap<(GrantKey, String), Authority>>,
    tools: Mutex<HashMap<(GrantKey, bool), Arc<RunTools>>>,
    texts: Mutex<HashMap<String, SharedTexts>>,
}

/// The texts of the last run of an agent. Runs of one agent usually have the same, and ten thousand copies of a prompt are many
/// megabytes.
struct SharedTexts {
    definition: Arc<AgentDefinition>,
    /// The definition as it is recorded.
    recorded: Arc<AgentDefinition>,
    system: Arc<str>,
}

/// A grant, compared by identity.
struct GrantKey(Arc<Grant>);

impl PartialEq for GrantKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for GrantKey {}

impl Hash for GrantKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl SpawnCache {
    /// The authority of children of this agent, which depends only on the parent's authority and the agent.
    pub(crate) fn child_authority(&self, parent: &Authority, agent: &AgentDefinition) -> Authority {
        let mut authorities = self.authorities.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (GrantKey(parent.grant.clone()), agent.name.clone());
        authorities.entry(key).or_insert_with(|| parent.child(agent)).clone()
    }

    /// Returns whether `own` is the grant that children of the agent get from this authority.
    pub(crate) fn is_shared(&self, parent: &Authority, agent: &str, own: &Arc<Grant>) -> bool {
        let authorities = self.authorities.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = authorities.get(&(GrantKey(parent.grant.clone()), agent.to_owned()));
        shared.is_some_and(|shared| Arc::ptr_eq(&shared.own, own))
    }

    /// The tools of runs with this grant, made on first use.
    pub(crate) fn tools(
        &self,
        own: &Arc<Grant>,
        may_delegate: bool,
        make: impl FnOnce() -> Arc<RunTools>,
    ) -> Arc<RunTools> {
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.entry((GrantKey(own.clone()), may_delegate)).or_insert_with(make).clone()
    }

    /// The definition of a run without its prompt, which is recorded rendered beside it, and the system prompt. Both are shared
    /// with the run of the agent before it if they are the same.
    pub(crate) fn texts(&self, agent: &Arc<AgentDefinition>, system: String) -> (Arc<AgentDefinition>, Arc<str>) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = texts.get_mut(&agent.name).filter(|shared| Arc::ptr_eq(&shared.definition, agent)) {
            if *shared.system != *system {
                shared.system = Arc::from(system);
            }
            return (shared.recorded.clone(), shared.system.clone());
        }
        let mut recorded = AgentDefinition::clone(agent);
        recorded.prompt = String::new();
        let (recorded, system): (_, Arc<str>) = (Arc::new(recorded), Arc::from(system));
        let shared = SharedTexts { definition: agent.clone(), recorded: recorded.clone(), system: system.clone() };
        texts.insert(agent.name.clone(), shared);
        (recorded, system)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.authorities.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.authorities.lock().unwrap().len() + self.tools.lock().unwrap().len() + self.texts.lock().unwrap().len()
    }
}
