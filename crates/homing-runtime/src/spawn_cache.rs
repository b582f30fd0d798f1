//! `SpawnCache`: what the runs of one tree share when they are spawned.

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
/// agent.
///
/// The cache belongs to its tree and is emptied when the tree ends, so a long-lived runtime does not grow. Its keys
/// hold the grants they stand for, so that an address cannot be reused while an entry exists.
#[derive(Default)]
pub(crate) struct SpawnCache {
    authorities: Mutex<HashMap<(GrantKey, String), Authority>>,
    tools: Mutex<HashMap<(GrantKey, bool), Arc<RunTools>>>,
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

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.authorities.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.authorities.lock().unwrap().len() + self.tools.lock().unwrap().len()
    }
}
