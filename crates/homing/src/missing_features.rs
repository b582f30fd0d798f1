//! Parts of definitions that need a feature of this crate which is turned off. A definition that the host gives is then an error;
//! one in a project's files only a warning, because a file must not keep the host from starting.

use homing_core::definition::{AgentDefinition, Isolation};
#[cfg(feature = "tools")]
use homing_core::diagnostic::Diagnostic;
use homing_core::registry::Registry;

/// Something that needs a feature of this crate which is turned off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}, which needs the feature `{feature}` of the crate `homing`")]
#[non_exhaustive]
pub struct MissingFeature {
    /// Description of what needs it, such as `agent db has MCP servers`.
    pub what: String,
    /// The feature.
    pub feature: &'static str,
}

impl MissingFeature {
    pub(crate) fn new(what: impl Into<String>, feature: &'static str) -> Self {
        Self { what: what.into(), feature }
    }
}

/// Fails if an agent needs a feature that this build lacks.
pub(crate) fn check(agents: &Registry) -> Result<(), MissingFeature> {
    agents.definitions().find_map(|agent| of_agent(agent)).map_or(Ok(()), Err)
}

/// Returns the first feature that an agent needs and this build lacks.
pub(crate) fn of_agent(agent: &AgentDefinition) -> Option<MissingFeature> {
    let needs = [
        (!cfg!(feature = "mcp") && !agent.integrations.mcp_servers.is_empty(), "has MCP servers", "mcp"),
        (!cfg!(feature = "schemas") && agent.task.schema.is_some(), "has a schema for its answer", "schemas"),
        (!cfg!(feature = "shell") && !agent.integrations.hooks.is_null(), "has hooks", "shell"),
        (!cfg!(feature = "shell") && agent.execution.isolation == Isolation::Worktree, "works in a worktree", "shell"),
    ];
    let (_, what, feature) = needs.into_iter().find(|(is_missing, ..)| *is_missing)?;
    Some(MissingFeature::new(format!("agent {} {what}", agent.name), feature))
}

/// The same as a warning about files.
#[cfg(feature = "tools")]
pub(crate) fn warning(missing: &MissingFeature) -> Diagnostic {
    Diagnostic::warning(missing.to_string())
}
