//! Another runtime with the same parts, for a host that runs trees with definitions and a journal of their own.

use std::sync::Arc;

use homing_core::registry::Registry;

use crate::{journal::Journal, runtime::RuntimeParts};

impl RuntimeParts {
    /// The same parts with other definitions and another journal.
    pub fn with(&self, registry: Registry, journal: Arc<dyn Journal>) -> Self {
        Self {
            registry: Arc::new(registry),
            models: self.models.clone(),
            tools: self.tools.clone(),
            agent_tools: self.agent_tools.clone(),
            skills: self.skills.clone(),
            journal,
            sources: self.sources.clone(),
            policy: self.policy.clone(),
            workdir: self.workdir.clone(),
            prompt_context: self.prompt_context.clone(),
            hooks: self.hooks.clone(),
            workspaces: self.workspaces.clone(),
            permission_handler: self.permission_handler.clone(),
            on_fact: self.on_fact.clone(),
            config: self.config.clone(),
        }
    }
}
