//! The specifications of the delegation tools, as models see them.

use homing_core::{
    definition::AgentDefinition,
    tool::{Effect, Replay, ToolSpec},
    tool_names,
};
use serde_json::{Value, json};

use crate::{
    catalog::{Catalog, Detail, Entry},
    on_demand::search_tool,
};

/// The longest description of an agent, in bytes: published descriptions are pages long, and every turn pays for them.
const MAX_DESCRIPTION: usize = 400;

/// The size of the list of agents, in bytes. A longer list has shorter descriptions, then only names, then a search tool.
const MAX_LISTING: usize = 24_000;

/// The delegation tools of a run that may delegate to these agents, and a note if they do not describe all agents in full;
/// none if there are no agents.
pub(crate) fn specs<'a>(agents: impl Iterator<Item = &'a AgentDefinition>) -> (Vec<ToolSpec>, Option<String>) {
    let agents: Vec<&AgentDefinition> = agents.collect();
    if agents.is_empty() {
        return (Vec::new(), None);
    }
    let catalog = Catalog::new(agents.iter().map(|agent| entry(agent)));
    let (count, search) = (catalog.len(), tool_names::FIND_AGENTS);
    let detail = catalog.detail(MAX_DESCRIPTION, MAX_LISTING);
    let (listing, note) = match detail {
        Detail::Described(MAX_DESCRIPTION) => (catalog.listing(detail), None),
        Detail::Described(bytes) => {
            (catalog.listing(detail), Some(format!("the descriptions of {count} agents are cut to {bytes} bytes")))
        }
        Detail::Names => (catalog.listing(detail), Some(format!("{count} agents are listed without descriptions"))),
        Detail::Search => {
            let listing = format!(" {count}, too many to list. Find them with `{search}`.");
            (listing, Some(format!("{count} agents are not listed: the model finds them with `{search}`")))
        }
    };
    let mut specs = delegation_specs(&listing, &agents, detail);
    if detail == Detail::Names || detail == Detail::Search {
        let about =
            format!("Finds agents for `delegate` by words of their names and descriptions. There are {count} agents.");
        specs.push(search_tool(search, about));
    }
    (specs, note)
}

/// Agents that can be delegated to, listed as briefly as their number demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentListing {
    /// One line for each agent, or all names in one line; empty if there are too many.
    pub text: String,
    /// The agents are described, so that their names need not be given elsewhere to be known.
    pub is_described: bool,
}

impl AgentListing {
    /// Lists agents by name and description, within the budget of the list in requests.
    pub fn new<'a>(agents: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let catalog = Catalog::new(agents.into_iter().map(|(name, description)| Entry { name, description }));
        let detail = catalog.detail(MAX_DESCRIPTION, MAX_LISTING);
        Self { text: catalog.listing(detail), is_described: matches!(detail, Detail::Described(_)) }
    }
}

/// An agent as an entry of a catalog.
pub(crate) fn entry(agent: &AgentDefinition) -> Entry<'_> {
    Entry { name: &agent.name, description: &agent.description }
}

fn delegation_specs(listing: &str, agents: &[&AgentDefinition], detail: Detail) -> Vec<ToolSpec> {
    let delegate = format!(
        "Delegates a task to another agent, which works on its own and returns its answer. Several calls in one reply run \
         in parallel. The agent does not see this conversation: put everything it needs into the task, and say what it \
         must report.\n\nAgents:{listing}"
    );
    let run = json!({"type": "string", "description": "Place of a run you started, such as 1.2"});
    let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
    let agent = match detail {
        Detail::Described(_) => json!({"type": "string", "enum": names, "description": "Agent to run"}),
        // The names would be sent twice.
        Detail::Names | Detail::Search => json!({"type": "string", "description": "Agent to run"}),
    };
    vec![
        spec(
            "delegate",
            delegate,
            Replay::Keyed,
            &["agent", "task"],
            json!({
                "agent": agent,
                "task": {"type": "string", "description": "Complete description of the task"},
                "timeout": {"type": "number", "description": "Maximum time in seconds"},
                "background": {"type": "boolean", "description": "Return at once; the result is sent to you later"},
            }),
        ),
        spec(
            "wait",
            "Waits for background runs. Their results are sent to you when they end.".into(),
            Replay::Safe,
            &[],
            json!({
                "runs": {"type": "array", "items": run, "description": "Runs to wait for (default: all)"},
                "any": {"type": "boolean", "description": "Return when the first of them has ended"},
            }),
        ),
        spec(
            "tell",
            "Sends a message to a run you started. A run that has ended continues with it and answers again.".into(),
            Replay::Keyed,
            &["run", "message"],
            json!({"run": run, "message": {"type": "string"}}),
        ),
        spec(
            "cancel",
            "Stops a run you started and returns what it had.".into(),
            Replay::Safe,
            &["run"],
            json!({"run": run}),
        ),
    ]
}

fn spec(name: &str, description: String, replay: Replay, required: &[&str], properties: Value) -> ToolSpec {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    ToolSpec::new(name, description, schema).replay(replay).effect(Effect::Delegates)
}
