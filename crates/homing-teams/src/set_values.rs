//! Other values for a recorded team that continues from the middle: its parameters, and the state of a graph.

use std::collections::BTreeMap;

use homing_core::{definition::AgentDefinition, registry::Registry, tree::RunTree};
use serde_json::{Map as Object, Value};

use crate::{
    graph::{StateValues, script::GraphScript, state},
    history::History,
    recorded::{RECORD, names_of, record, recorded},
    team::{Pattern, Team},
};

/// The agent of the team at the root of `tree`, with these values from now on: fields of a graph's state, or parameters. `None`
/// if the root is not a team.
///
/// # Errors
/// Fails if the team has no such value, if the type of a field does not fit, or if a part of the team is code.
pub fn with_values(tree: &RunTree, values: &BTreeMap<String, Value>) -> Result<Option<AgentDefinition>, String> {
    let Some(root) = tree.root() else { return Ok(None) };
    let Some(mut team) = recorded(&root.spawned) else { return Ok(None) };
    let mut of_state = Object::new();
    for (name, value) in values {
        match &team.pattern {
            Pattern::Graph(graph) if graph.state.contains_key(name) => {
                state::set(graph, &mut Object::new(), name, value.clone())?;
                of_state.insert(name.clone(), value.clone());
            }
            Pattern::Script(_) => drop(team.parameters.insert(name.clone(), value.clone())),
            _ if team.parameters.contains_key(name) => drop(team.parameters.insert(name.clone(), value.clone())),
            _ => return Err(format!("the team `{}` has no value `{name}`", team.name)),
        }
    }
    if !of_state.is_empty() {
        let step = step(&team, tree);
        if let Pattern::Graph(graph) = &mut team.pattern {
            graph.set.push(StateValues { step, values: of_state });
        }
    }
    let names = names_of(&root.spawned.agent);
    let record = record(&team, &names).ok_or_else(|| format!("a part of the team `{}` is code", team.name))?;
    let mut agent = AgentDefinition::clone(&root.spawned.agent);
    agent.extra.metadata.insert(RECORD.to_owned(), record);
    Ok(Some(agent))
}

/// The step at which a graph is.
fn step(team: &Team, tree: &RunTree) -> u32 {
    let (Pattern::Graph(graph), Some(root)) = (&team.pattern, tree.root()) else { return 0 };
    // The agents that have worked, since only their results matter.
    let known = tree.runs().iter().map(|run| AgentDefinition::clone(&run.spawned.agent));
    let registry: Registry = known.chain(team.agents.iter().cloned()).collect();
    GraphScript::new(graph, team, &registry).steps(&History::new(root.messages()))
}
