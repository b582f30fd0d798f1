//! A router: one agent names the kind of question, and a condition in code sends it to the right agent. Scripted model.

use std::sync::Arc;

use homing_core::{
    agent_builder::AgentBuilder,
    model::{ModelRequest, SingleModel},
    registry::Registry,
    scripted_model::{FunctionModel, call, last_words, say},
};
use homing_runtime::{Runtime, RuntimeParts, Task, journal::MemoryJournal};
use homing_teams::{Edge, FieldType, Graph, Node, Reducer, Team, TeamResult, install};
use serde_json::json;

/// A scripted model in place of a provider: answers as the agent whose prompt it gets.
fn scripted() -> Arc<SingleModel> {
    let decide = |request: ModelRequest<'_>| {
        Ok(match request.system {
            "You sort." => call([("answer", json!({"kind": "money", "sure": 0.9}))]),
            "You know money." => say(format!("About money: {}", last_words(&request))),
            _ => say("I answer anything."),
        })
    };
    Arc::new(SingleModel(Arc::new(FunctionModel::new("script/example", decide))))
}

/// Routes a question and returns the answer.
pub async fn example() -> Result<TeamResult, Box<dyn std::error::Error>> {
    let kinds = json!({
        "type": "object",
        "properties": {"kind": {"enum": ["money", "other"]}, "sure": {"type": "number"}},
        "required": ["kind", "sure"],
    });
    let graph = Graph::starting_at("sort")
        .field("kind", FieldType::String, Reducer::Replace, "")
        .field("sure", FieldType::Number, Reducer::Replace, 0)
        .node(Node::agent("sort", "sorter", "What kind of question is this? {{ task }}").schema(kinds))
        .node(Node::agent("money", "accountant", "{{ task }}"))
        .node(Node::agent("other", "generalist", "{{ task }}"))
        .edge(
            Edge::new("sort", "money").when("state.kind == 'money'").if_fn(|state| state["sure"].as_f64() > Some(0.5)),
        )
        .edge(Edge::new("sort", "other").otherwise());
    let agent = |name: &str, prompt: &str| AgentBuilder::new(name).description(name).prompt(prompt).build();
    let team = Team::new("router", graph)
        .agent(agent("sorter", "You sort.")?)
        .agent(agent("accountant", "You know money.")?)
        .agent(agent("generalist", "You know a bit of everything.")?);
    let mut parts = RuntimeParts::new(Registry::default(), scripted(), MemoryJournal::new());
    install(&mut parts, [team]).map_err(|problems| format!("{problems:?}"))?;
    let envelope = Runtime::new(parts).spawn(Task::new("router", "What does a run cost?"))?.wait().await;
    Ok(TeamResult::from(&envelope))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    std::io::Write::write_all(&mut std::io::stdout(), example().await?.answer.as_bytes())?;
    Ok(())
}
