//! Checks of what leads where in a graph: nodes that are never reached, joins that cannot be complete, loops without an end.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Checker, Problem, cycle_from, cycle_text};
use crate::{
    crew::script::in_order,
    graph::{Edge, Graph},
};

impl Checker<'_> {
    pub(super) fn reachability(&mut self, graph: &Graph) {
        let reached = reached_without(graph, None);
        for (at, node) in graph.nodes.iter().enumerate() {
            if !reached.contains(node.name.as_str()) {
                let message = format!("the node `{}` is never reached: no edge leads to it from the start", node.name);
                self.problems.push(Problem::warning(format!("graph.nodes[{at}].name"), message));
            }
            let before =
                if node.join.names().is_empty() { HashSet::new() } else { reached_without(graph, Some(&node.name)) };
            let late = |name: &&String| !before.contains(name.as_str());
            for (position, name) in node.join.names().iter().enumerate().filter(|(_, name)| late(name)) {
                let why = if reached.contains(name.as_str()) {
                    format!("comes only after `{}`", node.name)
                } else {
                    "is never reached".to_owned()
                };
                let message = format!("the join cannot be complete: `{name}` {why}");
                self.report(format!("graph.nodes[{at}].join[{position}]"), message);
            }
        }
        self.endless_loops(graph, &reached);
    }

    /// Reports loops of edges that are always taken: only `max_steps` would end them.
    fn endless_loops(&mut self, graph: &Graph, reached: &HashSet<&str>) {
        let at: HashMap<&str, usize> =
            graph.nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
        for edge in graph.edges.iter().filter(|edge| is_always_taken(edge) && reached.contains(edge.from.as_str())) {
            let (Some(from), Some(to)) = (at.get(edge.from.as_str()), at.get(edge.to.as_str())) else { continue };
            // A join may wait for ever, and then the loop is not taken.
            if graph.nodes[*to].join.names().is_empty() {
                after[*from].push(*to);
            }
        }
        let order: HashSet<usize> = in_order(&after).into_iter().collect();
        let stuck: Vec<usize> = (0..after.len()).filter(|node| !order.contains(node)).collect();
        let Some(cycle) = stuck.iter().map(|node| cycle_from(*node, &after, &order)).find(|path| is_cycle(path)) else {
            return;
        };
        let names: Vec<&str> = cycle.iter().map(|node| graph.nodes[*node].name.as_str()).collect();
        let message = format!("endless loop: {}; give one of its edges a condition or a limit", cycle_text(&names));
        self.report(format!("graph.nodes[{}].name", cycle[0]), message);
    }
}

fn is_cycle(path: &[usize]) -> bool {
    path.len() > 1 && path.first() == path.last()
}

fn is_always_taken(edge: &Edge) -> bool {
    edge.when.is_none() && edge.test.is_none() && edge.limit.is_none() && !edge.otherwise
}

/// The nodes that can be reached from the start without passing through `closed`.
fn reached_without<'a>(graph: &'a Graph, closed: Option<&str>) -> HashSet<&'a str> {
    let mut out: HashMap<&str, Vec<&str>> = HashMap::new();
    for edge in &graph.edges {
        out.entry(edge.from.as_str()).or_default().push(&edge.to);
    }
    let mut reached: HashSet<&str> = HashSet::from([graph.start.as_str()]);
    let mut open = VecDeque::from([graph.start.as_str()]);
    while let Some(name) = open.pop_front() {
        if Some(name) == closed {
            continue;
        }
        let next = out.get(name).into_iter().flatten().copied();
        open.extend(next.filter(|next| reached.insert(next)));
    }
    reached
}
