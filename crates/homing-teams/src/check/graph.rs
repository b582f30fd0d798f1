//! Checks of graphs: nodes, edges, joins and the fields of the state.

use std::collections::{BTreeSet, HashSet};

use homing_core::tool_names;

use super::{Checker, Problem, head, texts};
use crate::{
    graph::{
        Graph, Node, Work,
        script::{COMMAND, is_end},
        state,
    },
    shell_template,
};

impl Checker<'_> {
    pub(super) fn graph(&mut self, graph: &Graph) {
        if graph.nodes.is_empty() {
            self.report("graph.nodes", "there are no nodes");
        }
        self.unique("graph.nodes", graph.nodes.iter().map(|node| node.name.as_str()));
        let names: HashSet<&str> = graph.nodes.iter().map(|node| node.name.as_str()).collect();
        if !names.contains(graph.start.as_str()) {
            self.report("graph.start", format!("there is no node `{}` to start at", graph.start));
        }
        self.state(graph);
        for (at, node) in graph.nodes.iter().enumerate() {
            self.node(graph, node, &format!("graph.nodes[{at}]"), &names);
        }
        self.edges(graph, &names);
        if let Some(output) = &graph.output {
            let used = self.template("graph.output", output, &["state", "failures", "step"]);
            self.fields(graph, "graph.output", &used);
        }
        // What leads where is known only if all names are.
        if self.problems.iter().all(|problem| !problem.is_error()) {
            self.reachability(graph);
        }
    }

    fn state(&mut self, graph: &Graph) {
        for (name, field) in &graph.state {
            if let Some(why) = state::reducer_misfit(field) {
                self.report(format!("graph.state.{name}.reducer"), format!("`{name}`: {why}"));
            } else if !state::default_fits(field) {
                let message = format!("the default of `{name}` does not have its type");
                self.report(format!("graph.state.{name}.default"), message);
            }
        }
    }

    fn edges(&mut self, graph: &Graph, names: &HashSet<&str>) {
        for (at, edge) in graph.edges.iter().enumerate() {
            let path = format!("graph.edges[{at}]");
            if !names.contains(edge.from.as_str()) {
                self.report(format!("{path}.from"), format!("there is no node `{}`", edge.from));
            }
            if !names.contains(edge.to.as_str()) && !is_end(&edge.to) {
                self.report(
                    format!("{path}.to"),
                    format!("there is no node `{}`; use `end` to end the graph", edge.to),
                );
            }
            if let Some(condition) = &edge.when {
                let used = self.condition(&format!("{path}.when"), condition, &["state", "failures", "step"]);
                self.fields(graph, &format!("{path}.when"), &used);
            }
        }
    }

    fn node(&mut self, graph: &Graph, node: &Node, path: &str, names: &HashSet<&str>) {
        if is_end(&node.name) {
            self.report(format!("{path}.name"), "`end` is reserved and cannot be a node");
        }
        match node.work() {
            None => self.report(path, format!("the node `{}` needs one of agent, team, tool", node.name)),
            Some(Work::Agent(_) | Work::OneOf(_) | Work::Race(_)) if node.task.trim().is_empty() => {
                self.report(path, format!("the node `{}` has no task", node.name));
            }
            Some(Work::Tool(_)) if !(node.args.is_object() || node.args.is_null()) => {
                self.report(format!("{path}.args"), "arguments must be an object");
            }
            Some(Work::OneOf(_)) if node.agents.names().is_empty() => {
                self.report(format!("{path}.agent"), "an agent that a template chooses needs `agents` to choose from");
            }
            Some(Work::Race(quorum)) if quorum == 0 || quorum > node.agents.names().len() => {
                let message = format!(
                    "a quorum of {quorum} needs at least as many `agents`, and there are {}",
                    node.agents.names().len()
                );
                self.report(format!("{path}.agents"), message);
            }
            Some(Work::Agent(_) | Work::OneOf(_) | Work::Race(_) | Work::Tool(_)) => (),
        }
        let joined = node.join.names().len();
        if let Some(first) = node.join.first().filter(|first| *first == 0 || *first > joined) {
            let message = format!("the join waits for the first {first} of {joined} nodes");
            self.report(format!("{path}.join"), message);
        }
        if !node.agents.names().is_empty() && matches!(node.work(), Some(Work::Agent(_) | Work::Tool(_))) {
            self.report(
                format!("{path}.agents"),
                "`agents` has no effect without a template in `agent`, or as `{first: N, of: […]}`",
            );
        }
        self.limits(&format!("{path}.limits"), &node.limits);
        self.schema(&format!("{path}.schema"), node.schema.as_ref());
        if let Some(field) = node.writes.as_ref().filter(|field| !graph.state.contains_key(*field)) {
            self.report(format!("{path}.writes"), format!("the state has no `{field}`"));
        }
        self.join(graph, node, path, names);
        let mut provided = vec!["state", "failures", "step"];
        let mut used = BTreeSet::new();
        if let Some(list) = &node.each {
            used.extend(self.condition(&format!("{path}.each"), list, &provided));
            provided.extend(["item", "index"]);
        }
        used.extend(self.template(&format!("{path}.task"), &node.task, &provided));
        if let Some(Work::OneOf(template)) = node.work() {
            used.extend(self.template(&format!("{path}.agent"), template, &provided));
        }
        for text in texts(&node.args) {
            used.extend(self.template(&format!("{path}.args"), text, &provided));
        }
        self.fields(graph, path, &used);
        if let (Some(tool_names::BASH), Some(command)) = (node.tool.as_deref(), node.args.get(COMMAND)) {
            self.command(format!("{path}.args.{COMMAND}"), command.as_str().unwrap_or_default());
        }
    }

    /// Checks that values in a command can be quoted, and warns about those that become shell code.
    fn command(&mut self, path: String, command: &str) {
        let found = shell_template::check(command);
        if let Some(raw) = found.raw {
            let message = format!("`{raw}` is inserted as shell code: the author of its value runs commands");
            let mut problem = Problem::warning(path.clone(), message);
            problem.diagnostic = problem.diagnostic.hint("remove `safe`: values are quoted as one word");
            self.problems.push(problem);
        }
        if let Some(error) = found.error {
            self.report(path, error);
        }
    }

    fn join(&mut self, graph: &Graph, node: &Node, path: &str, names: &HashSet<&str>) {
        for (at, name) in node.join.names().iter().enumerate() {
            if !names.contains(name.as_str()) {
                self.report(format!("{path}.join[{at}]"), format!("there is no node `{name}`"));
            } else if !graph.edges.iter().any(|edge| edge.from == *name && edge.to == node.name) {
                self.report(format!("{path}.join[{at}]"), format!("no edge leads from `{name}` to `{}`", node.name));
            }
        }
    }

    /// Checks that the fields of the state that are used are declared.
    fn fields(&mut self, graph: &Graph, path: &str, used: &BTreeSet<String>) {
        for name in used.iter().filter_map(|name| name.strip_prefix("state.")).map(head) {
            if !graph.state.contains_key(name) {
                self.report(path, format!("the state has no `{name}`"));
            }
        }
    }
}
