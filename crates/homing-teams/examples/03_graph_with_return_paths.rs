//! A graph: a lead decides who is needed, and every path leads back to the lead. Runs on a scripted model.

use std::sync::Arc;

use homing_core::{
    agent_builder::AgentBuilder,
    model::{ModelRequest, SingleModel},
    registry::Registry,
    scripted_model::{FunctionModel, last_words, say},
};
use homing_runtime::{Runtime, RuntimeParts, Task, journal::MemoryJournal};
use homing_teams::{Edge, FieldType, Graph, Node, Reducer, Team, TeamResult, install};

/// A scripted model in place of a provider: answers as the agent whose prompt it gets.
fn scripted() -> Arc<SingleModel> {
    let decide = |request: ModelRequest<'_>| {
        let task = last_words(&request);
        Ok(match request.system {
            "You lead." if task.ends_with("0 notes") => say("needs_research"),
            "You lead." if task.ends_with("1 notes") => say("needs_writing"),
            "You lead." => say("finished"),
            "You research." => say("Ants rest in winter."),
            _ => say(format!("Report: {task}")),
        })
    };
    Arc::new(SingleModel(Arc::new(FunctionModel::new("script/example", decide))))
}

/// Runs the graph and returns its result.
pub async fn example() -> Result<TeamResult, Box<dyn std::error::Error>> {
    let graph = Graph::starting_at("lead")
        .field("next", FieldType::String, Reducer::Replace, "")
        .field("notes", FieldType::List, Reducer::Append, Vec::<String>::new())
        .node(Node::agent("lead", "lead", "{{ task }}: {{ state.notes | length }} notes").writes("next"))
        .node(Node::agent("research", "researcher", "{{ task }}").writes("notes"))
        .node(Node::agent("write", "writer", "{{ state.notes | join(' ') }}").writes("notes"))
        .edge(Edge::new("lead", "research").when("state.next == 'needs_research'").limit(3))
        .edge(Edge::new("lead", "write").when("state.next == 'needs_writing'").limit(3))
        .edge(Edge::end("lead").otherwise())
        .edge(Edge::new("research", "lead"))
        .edge(Edge::new("write", "lead"))
        .output("{{ state.notes | last }}");
    let agent = |name: &str, prompt: &str| AgentBuilder::new(name).description(name).prompt(prompt).build();
    let team = Team::new("desk", graph)
        .agent(agent("lead", "You lead.")?)
        .agent(agent("researcher", "You research.")?)
        .agent(agent("writer", "You write.")?);
    let mut parts = RuntimeParts::new(Registry::default(), scripted(), MemoryJournal::new());
    install(&mut parts, [team]).map_err(|problems| format!("{problems:?}"))?;
    let envelope = Runtime::new(parts).spawn(Task::new("desk", "ants"))?.wait().await;
    Ok(TeamResult::from(&envelope))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{}", example().await?.answer)?;
    Ok(())
}
