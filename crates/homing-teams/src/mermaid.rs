//! Team diagrams in mermaid syntax.

use crate::{
    crew::Crew,
    graph::{Graph, Work, script::is_end},
    team::{Pattern, Team},
};

/// The team as a mermaid flow chart.
pub fn mermaid(team: &Team) -> String {
    let lines = match &team.pattern {
        Pattern::Graph(graph) => of_graph(graph),
        Pattern::Crew(crew) => of_crew(crew),
        Pattern::Orchestrator(team) => star(&team.coordinator, &team.workers),
        Pattern::Chat(chat) => star("conversation", &chat.members),
        Pattern::Script(_) => vec!["  script[\"script\"] --> agents[\"agents\"]".to_owned()],
        Pattern::Map(map) => {
            let mut lines = vec![format!("  each[\"each item\"] --> agent[\"{}\"]", quoted(&map.agent))];
            lines.extend(map.reduce.iter().map(|reduce| format!("  agent --> reduce[\"{}\"]", quoted(&reduce.agent))));
            lines
        }
    };
    format!("flowchart TD\n{}\n", lines.join("\n"))
}

/// Escapes characters that would end a label.
fn quoted(text: &str) -> String {
    text.replace('"', "#quot;").replace(['\n', '\r'], " ")
}

fn star(middle: &str, around: &[String]) -> Vec<String> {
    let mut lines = vec![format!("  m[\"{}\"]", quoted(middle))];
    lines.extend(around.iter().enumerate().map(|(at, name)| format!("  m <--> w{at}[\"{}\"]", quoted(name))));
    lines
}

fn of_crew(crew: &Crew) -> Vec<String> {
    let at: std::collections::HashMap<&str, usize> =
        crew.tasks.iter().enumerate().map(|(at, task)| (task.name.as_str(), at)).collect();
    let mut lines = Vec::new();
    for (to, task) in crew.tasks.iter().enumerate() {
        let agent = task.agent.as_deref().unwrap_or("chosen by the manager");
        lines.push(format!("  t{to}[\"{}<br/>{}\"]", quoted(&task.name), quoted(agent)));
        for from in crew.context(to).into_iter().filter_map(|name| at.get(name)) {
            lines.push(match &task.when {
                Some(condition) => format!("  t{from} -->|\"{}\"| t{to}", quoted(condition)),
                None => format!("  t{from} --> t{to}"),
            });
        }
    }
    lines
}

fn of_graph(graph: &Graph) -> Vec<String> {
    let at: std::collections::HashMap<&str, usize> =
        graph.nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let id = |name: &str| match at.get(name) {
        Some(at) => format!("n{at}"),
        None => "finish".to_owned(),
    };
    let mut lines = vec![format!("  begin((start)) --> {}", id(&graph.start))];
    for (at, node) in graph.nodes.iter().enumerate() {
        let (name, each) = (quoted(&node.name), if node.each.is_some() { " × each" } else { "" });
        lines.push(match node.work() {
            Some(Work::Agent(agent)) => format!("  n{at}[\"{name}{each}<br/>{}\"]", quoted(agent)),
            Some(Work::OneOf(_)) => {
                format!("  n{at}[\"{name}{each}<br/>one of {}\"]", quoted(&node.agents.names().join(", ")))
            }
            Some(Work::Race(quorum)) => {
                let agents = quoted(&node.agents.names().join(", "));
                format!("  n{at}[\"{name}{each}<br/>first {quorum} of {agents}\"]")
            }
            Some(Work::Tool(tool)) => format!("  n{at}[/\"{name}{each}<br/>{}\"/]", quoted(tool)),
            None => format!("  n{at}[\"{name}\"]"),
        });
    }
    for edge in &graph.edges {
        let limit = edge.limit.map(|limit| format!("at most {limit}×"));
        let otherwise = edge.otherwise.then(|| "else".to_owned());
        let in_code = edge.test.as_ref().map(|_| "in code".to_owned());
        let words: Vec<String> = [edge.when.clone(), in_code, otherwise, limit].into_iter().flatten().collect();
        let (from, to) = (id(&edge.from), id(&edge.to));
        lines.push(if words.is_empty() {
            format!("  {from} --> {to}")
        } else {
            format!("  {from} -->|\"{}\"| {to}", quoted(&words.join(", ")))
        });
    }
    if graph.edges.iter().any(|edge| is_end(&edge.to)) {
        lines.push("  finish((end))".to_owned());
    }
    lines
}
