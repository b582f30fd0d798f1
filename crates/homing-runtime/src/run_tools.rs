//! The tools of a run: as its model sees them, and those its agents supply.

use std::sync::Arc;

use homing_core::{
    message::{FNV_START, fnv},
    model::Toolbox,
    tool::{Tool, ToolSpec},
    tool_names,
};

use crate::on_demand::{self, OfferedTools, OnDemand};

/// Tools that the agents of a run and its ancestors supply, the nearest agent's first.
pub(crate) type AgentTools = Arc<[Arc<dyn Tool>]>;

/// The tools of a run, as its model sees them.
pub(crate) struct RunTools {
    /// The tools that requests carry.
    pub(crate) toolbox: Toolbox,
    /// The tools that the model must find and load first.
    pub(crate) on_demand: Arc<[ToolSpec]>,
    /// Notes for the user about what requests leave out.
    pub(crate) notes: Vec<String>,
    /// The size of their specifications, which every request carries.
    pub(crate) bytes: u64,
    /// A fingerprint of their specifications.
    pub(crate) hash: u64,
}

impl RunTools {
    /// Tools of which some may be offered on demand.
    pub(crate) fn new(specs: Vec<ToolSpec>, most: OnDemand, mut notes: Vec<String>) -> Arc<Self> {
        let json = encode(&specs);
        if on_demand::are_surely_sent(&specs, json.len(), most) {
            return Arc::new(Self::encoded(specs, &json, Arc::from([]), notes));
        }
        let OfferedTools { sent, on_demand } = on_demand::split(specs, most);
        notes.extend(on_demand::note(&on_demand));
        Arc::new(Self::of(sent, on_demand.into(), notes))
    }

    /// The tools that one request carries.
    #[cfg(feature = "sqlite")]
    pub(crate) fn of_request(specs: Vec<ToolSpec>) -> Self {
        Self::of(specs, Arc::from([]), Vec::new())
    }

    /// The same tools after these were loaded.
    pub(crate) fn with_loaded(&self, loaded: &[String]) -> Arc<Self> {
        let sent = on_demand::with_loaded(&self.toolbox.specs, &self.on_demand, loaded);
        Arc::new(Self::of(sent, self.on_demand.clone(), self.notes.clone()))
    }

    fn of(sent: Vec<ToolSpec>, on_demand: Arc<[ToolSpec]>, notes: Vec<String>) -> Self {
        let json = encode(&sent);
        Self::encoded(sent, &json, on_demand, notes)
    }

    /// The tools to send, of which `json` is the encoding.
    fn encoded(sent: Vec<ToolSpec>, json: &[u8], on_demand: Arc<[ToolSpec]>, notes: Vec<String>) -> Self {
        let bytes = if sent.is_empty() { 0 } else { json.len() as u64 };
        Self { toolbox: Toolbox::new(sent), on_demand, notes, bytes, hash: fnv(FNV_START, json) }
    }

    /// The tool that the model calls `name`, which may be another ecosystem's name for it.
    pub(crate) fn find(&self, name: &str) -> Option<&ToolSpec> {
        // A model may know a tool that it has not loaded, from a listing or an earlier run.
        let all = || self.toolbox.specs.iter().chain(&*self.on_demand);
        let has = |wanted: &str| all().find(|spec| spec.name == wanted);
        has(name).or_else(|| has(tool_names::canonical(name)?))
    }
}

fn encode(specs: &[ToolSpec]) -> Vec<u8> {
    serde_json::to_vec(specs).unwrap_or_default()
}

/// The way in which a call is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// By a run's delegation: delegate, wait, tell, cancel.
    Delegation,
    /// By the runtime: the structured answer of a run.
    Answer,
    /// By the runtime: a search for tools or agents.
    Search,
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
    } else if tool_names::is_answer_or_search(name) {
        CallKind::Search
    } else {
        CallKind::Tool
    }
}
