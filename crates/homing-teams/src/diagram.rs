//! Teams as nodes and edges, for hosts that draw them.

use serde::Serialize;

use crate::{
    crew::Crew,
    graph::{Graph, Work, script::is_end},
    team::{Pattern, Team},
};

/// A team as nodes and edges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Diagram {
    /// The nodes.
    pub nodes: Vec<DiagramNode>,
    /// The edges.
    pub edges: Vec<DiagramEdge>,
}

/// A node of a diagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiagramNode {
    /// Identifies the node in its diagram: for graphs and crews the name of the node or task.
    pub id: String,
    /// Text to show: the name, and the agent or tool.
    pub label: String,
    /// `start`, `end`, `agent`, `tool`, `task`, `team` or `items`.
    pub kind: &'static str,
}

/// An edge of a diagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiagramEdge {
    /// The node that it leaves.
    pub from: String,
    /// The node that it enters.
    pub to: String,
    /// The condition under which it is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// Returns a team as nodes and edges.
pub fn diagram(team: &Team) -> Diagram {
    let mut diagram = Diagram::default();
    match &team.pattern {
        Pattern::Graph(graph) => diagram.graph(graph),
        Pattern::Crew(crew) => diagram.crew(crew),
        Pattern::Orchestrator(team) => diagram.star(&team.coordinator, "agent", &team.workers),
        Pattern::Chat(chat) => diagram.star("conversation", "team", &chat.members),
        Pattern::Script(_) => diagram.node(&team.name, "script", "team"),
        Pattern::Map(map) => {
            diagram.node("each", "each item", "items");
            diagram.node("agent", &map.agent, "agent");
            diagram.edge("each", "agent", None);
            if let Some(reduce) = &map.reduce {
                diagram.node("reduce", &reduce.agent, "agent");
                diagram.edge("agent", "reduce", None);
            }
        }
    }
    diagram
}

impl Diagram {
    fn node(&mut self, id: &str, label: &str, kind: &'static str) {
        self.nodes.push(DiagramNode { id: id.to_owned(), label: label.to_owned(), kind });
    }

    fn edge(&mut self, from: &str, to: &str, label: Option<String>) {
        self.edges.push(DiagramEdge { from: from.to_owned(), to: to.to_owned(), label });
    }

    fn star(&mut self, middle: &str, kind: &'static str, around: &[String]) {
        self.node(middle, middle, kind);
        for name in around {
            self.node(name, name, "agent");
            self.edge(middle, name, None);
        }
    }

    fn crew(&mut self, crew: &Crew) {
        for (at, task) in crew.tasks.iter().enumerate() {
            let agent = task.agent.as_deref().unwrap_or("chosen by the manager");
            self.node(&task.name, &format!("{}\n{agent}", task.name), "task");
            for from in crew.context(at) {
                self.edge(from, &task.name, task.when.clone());
            }
        }
    }

    fn graph(&mut self, graph: &Graph) {
        self.node("start", "start", "start");
        self.edge("start", &graph.start, None);
        for node in &graph.nodes {
            let names = || node.agents.names().join(", ");
            let (work, kind) = match node.work() {
                Some(Work::Agent(agent)) => (agent.to_string(), "agent"),
                Some(Work::OneOf(_)) => (format!("one of {}", names()), "agent"),
                Some(Work::Race(quorum)) => (format!("first {quorum} of {}", names()), "agent"),
                Some(Work::Tool(tool)) => (tool.to_string(), "tool"),
                None => (String::new(), "task"),
            };
            let each = if node.each.is_some() { " × each" } else { "" };
            self.node(&node.name, format!("{}{each}\n{work}", node.name).trim_end(), kind);
        }
        let has_end = graph.edges.iter().any(|edge| is_end(&edge.to));
        if has_end {
            self.node("end", "end", "end");
        }
        for edge in &graph.edges {
            let limit = edge.limit.map(|limit| format!("at most {limit}×"));
            let otherwise = edge.otherwise.then(|| "else".to_owned());
            let words: Vec<String> = [edge.when.clone(), otherwise, limit].into_iter().flatten().collect();
            let to = if is_end(&edge.to) { "end" } else { &edge.to };
            self.edge(&edge.from, to, (!words.is_empty()).then(|| words.join(", ")));
        }
    }
}
