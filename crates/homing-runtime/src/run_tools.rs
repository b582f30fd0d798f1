//! The tools of a run: as its model sees them, and those its agents supply.

use std::sync::Arc;

use homing_core::{
    message::{FNV_START, fnv},
    model::Toolbox,
    tool::{Tool, ToolSpec},
    tool_names,
};

/// Tools that the agents of a run and its ancestors supply, the nearest agent's first.
pub(crate) type AgentTools = Arc<[Arc<dyn Tool>]>;

/// The tools of a run, as its model sees them.
pub(crate) struct RunTools {
    pub(crate) toolbox: Toolbox,
    /// The size of their specifications, which every request carries.
    pub(crate) bytes: u64,
    /// A fingerprint of their specifications.
    pub(crate) hash: u64,
}

impl RunTools {
    pub(crate) fn new(specs: Vec<ToolSpec>) -> Arc<Self> {
        let json = serde_json::to_vec(&specs).unwrap_or_default();
        let bytes = if specs.is_empty() { 0 } else { json.len() as u64 };
        Arc::new(Self { toolbox: Toolbox::new(specs), bytes, hash: fnv(FNV_START, &json) })
    }

    /// The tool that the model calls `name`, which may be another ecosystem's name for it.
    pub(crate) fn find(&self, name: &str) -> Option<&ToolSpec> {
        let has = |wanted: &str| self.toolbox.specs.iter().find(|spec| spec.name == wanted);
        has(name).or_else(|| has(tool_names::canonical(name)?))
    }
}

/// The way in which a call is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// By a run's delegation: delegate, wait, tell, cancel.
    Delegation,
    /// By the runtime: the structured answer of a run.
    Answer,
    /// By a tool.
    Tool,
}

/// Classifies a call by the name that the model used.
///
/// The only place in this crate where the name of a tool decides how a call is carried out.
pub(crate) fn call_kind(name: &str) -> CallKind {
    let name = tool_names::canonical(name).unwrap_or(name);
    if tool_names::is_delegation(name) {
        CallKind::Delegation
    } else if name == tool_names::ANSWER {
        CallKind::Answer
    } else {
        CallKind::Tool
    }
}
