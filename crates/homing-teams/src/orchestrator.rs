//! Orchestrators: a coordinator with named workers. It is the only pattern that is led by a language model.

use std::collections::HashMap;

use homing_core::{authority::Allow, definition::AgentDefinition, rule::Rule, tool::ToolSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::team::registered;

/// A coordinator that delegates to workers.
///
/// # Examples
///
/// ```
/// # use homing_teams as homing;
/// use homing::{Orchestrator, Team};
///
/// let team = Team::new("newsroom", Orchestrator::new("editor").worker("reporter").worker("photographer"));
/// assert_eq!(team.members(), ["reporter", "photographer"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "A coordinator that delegates to workers.")]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Orchestrator {
    /// Agent that plans, delegates and writes the answer.
    pub coordinator: String,
    /// Agents it may delegate to.
    pub workers: Vec<String>,
}

impl Orchestrator {
    /// Creates an orchestrator with this coordinator.
    pub fn new(coordinator: impl Into<String>) -> Self {
        Self { coordinator: coordinator.into(), workers: Vec::new() }
    }

    /// Adds a worker.
    #[must_use]
    pub fn worker(mut self, name: impl Into<String>) -> Self {
        self.workers.push(name.into());
        self
    }

    /// The coordinator as the team's agent: its own tools, and delegation to these workers only.
    pub(crate) fn head(
        &self,
        coordinator: &AgentDefinition,
        host_tools: &[ToolSpec],
        team: AgentDefinition,
        names: &HashMap<String, String>,
    ) -> AgentDefinition {
        let own = match &coordinator.tools.allowed {
            Allow::All => host_tools.iter().map(|spec| Rule::tool(&spec.name)).collect(),
            Allow::Only(rules) => rules.iter().filter(|rule| !rule.names("delegate")).cloned().collect::<Vec<_>>(),
        };
        let workers = Rule::calls("delegate", registered(self.workers.iter().map(String::as_str), names));
        let mut head = coordinator.clone();
        (head.name, head.title, head.aliases) = (team.name, None, Vec::new());
        head.description = team.description;
        head.tools.allowed = Allow::Only(own.into_iter().chain([workers]).collect());
        head.tools.delegates = team.tools.delegates;
        head.limits = team.limits.or(head.limits);
        head.extra.metadata = team.extra.metadata;
        head
    }
}
