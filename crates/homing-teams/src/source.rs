//! The file of a team, so that an error of its program names the line of the task, node or rule.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    team::{Pattern, Team},
    yaml_positions::YamlPositions,
};

/// The file of a team and the positions of its parts; empty for a team that was made in code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TeamSource {
    path: String,
    /// Lines and columns by path, such as `graph.nodes[2]`.
    positions: BTreeMap<String, (u32, u32)>,
}

impl TeamSource {
    /// The prefix of a message about a part of the team, such as `team.yaml:7:5: `.
    pub(crate) fn at(&self, part: &str) -> String {
        match self.positions.get(part) {
            Some((line, column)) => format!("{}:{line}:{column}: ", self.path),
            None if self.path.is_empty() => String::new(),
            None => format!("{}: ", self.path),
        }
    }
}

impl Team {
    /// The team with the positions of its parts in the file at `path`.
    pub(crate) fn with_source(mut self, path: Option<&Path>, positions: &YamlPositions) -> Self {
        if let Some(path) = path {
            self.set_source(&path.display().to_string(), "", positions);
        }
        self
    }

    fn set_source(&mut self, path: &str, prefix: &str, positions: &YamlPositions) {
        let position = |part: String| {
            let found = positions.find(&format!("{prefix}{part}"));
            (part, found)
        };
        self.source = TeamSource { path: path.to_owned(), positions: parts(self).into_iter().map(position).collect() };
        for (at, team) in self.teams.iter_mut().enumerate() {
            team.set_source(path, &format!("{prefix}teams[{at}]."), positions);
        }
    }
}

/// The paths of the parts whose templates and conditions can fail.
fn parts(team: &Team) -> Vec<String> {
    let numbered = |path: &str, count: usize| (0..count).map(|at| format!("{path}[{at}]")).collect::<Vec<_>>();
    let named = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    match &team.pattern {
        Pattern::Orchestrator(_) | Pattern::Script(_) => Vec::new(),
        Pattern::Crew(crew) => numbered("crew.tasks", crew.tasks.len()),
        Pattern::Chat(chat) => [named(&["chat"]), numbered("chat.rules", chat.rules.len())].concat(),
        Pattern::Graph(graph) => [
            named(&["graph", "graph.output"]),
            numbered("graph.nodes", graph.nodes.len()),
            numbered("graph.edges", graph.edges.len()),
        ]
        .concat(),
        Pattern::Map(_) => named(&["map", "map.each", "map.reduce"]),
    }
}
