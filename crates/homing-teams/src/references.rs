//! References of teams to agents, teams and tools: whether they exist, and whether a team contains itself.

use std::collections::{HashMap, HashSet};

use homing_core::registry::Registry;

use crate::{
    check::Problem,
    graph::Work,
    memory,
    team::{Pattern, Team},
};

/// References that cannot be resolved, and teams that contain themselves.
pub(crate) fn references(all: &[&Team], registry: &Registry, tools: Option<&[String]>) -> Vec<Problem> {
    let teams: HashMap<&str, &Team> = all.iter().map(|team| (team.name.as_str(), *team)).collect();
    let mut problems = Vec::new();
    for team in all {
        for (path, name) in named(team) {
            if !teams.contains_key(name)
                && let Err(unknown) = registry.get(name)
            {
                problems.push(Problem::new(path, unknown.to_string()).of(team));
            }
        }
        let own: Vec<&str> = team.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
        let known = |name: &str| {
            own.contains(&name)
                || (team.memory && memory::NAMES.contains(&name))
                || tools.is_none_or(|tools| tools.iter().any(|tool| tool == name))
        };
        for (path, name) in functions(team).filter(|(_, name)| !known(name)) {
            problems.push(Problem::new(path, format!("there is no tool `{name}`")).of(team));
        }
        if let Some(cycle) = contains_itself(team, &teams) {
            let message = format!("the team contains itself: {}", cycle.join(" → "));
            problems.push(Problem::new("name", message).of(team));
        }
    }
    problems
}

/// The agents and teams that a team names, each with the field that names it.
fn named(team: &Team) -> Vec<(String, &str)> {
    let numbered = |path: &str, names: &'_ [String]| -> Vec<String> {
        (0..names.len()).map(|at| format!("{path}[{at}]")).collect()
    };
    match &team.pattern {
        Pattern::Orchestrator(team) => {
            let head = [("orchestrator.coordinator".to_owned(), team.coordinator.as_str())];
            let workers = numbered("orchestrator.workers", &team.workers)
                .into_iter()
                .zip(team.workers.iter().map(String::as_str));
            head.into_iter().chain(workers).collect()
        }
        Pattern::Crew(crew) => {
            let agents = crew.tasks.iter().enumerate();
            let agents =
                agents.filter_map(|(at, task)| Some((format!("crew.tasks[{at}].agent"), task.agent.as_deref()?)));
            let members =
                numbered("crew.members", &crew.members).into_iter().zip(crew.members.iter().map(String::as_str));
            let manager = crew.manager.iter().map(|name| ("crew.manager".to_owned(), name.as_str()));
            agents.chain(members).chain(manager).collect()
        }
        Pattern::Chat(chat) => {
            let members =
                numbered("chat.members", &chat.members).into_iter().zip(chat.members.iter().map(String::as_str));
            let selector = chat.selector.iter().map(|name| ("chat.selector".to_owned(), name.as_str()));
            let summary = chat.summary.iter().map(|name| ("chat.summary".to_owned(), name.as_str()));
            members.chain(selector).chain(summary).collect()
        }
        Pattern::Graph(graph) => {
            let nodes = graph.nodes.iter().enumerate();
            let nodes = nodes.filter_map(|(at, node)| match node.work()? {
                Work::Agent(name) if node.team.is_some() => Some((format!("graph.nodes[{at}].team"), name)),
                Work::Agent(name) => Some((format!("graph.nodes[{at}].agent"), name)),
                Work::Tool(_) => None,
            });
            nodes.collect()
        }
        Pattern::Map(map) => {
            let reduce = map.reduce.iter().map(|reduce| ("map.reduce.agent".to_owned(), reduce.agent.as_str()));
            [("map.agent".to_owned(), map.agent.as_str())].into_iter().chain(reduce).collect()
        }
    }
}

fn functions(team: &Team) -> impl Iterator<Item = (String, &str)> {
    let nodes = match &team.pattern {
        Pattern::Graph(graph) => graph.nodes.as_slice(),
        Pattern::Orchestrator(_) | Pattern::Crew(_) | Pattern::Chat(_) | Pattern::Map(_) => &[],
    };
    nodes.iter().enumerate().filter_map(|(at, node)| Some((format!("graph.nodes[{at}].tool"), node.tool.as_deref()?)))
}

/// A path of references from a team back to itself.
fn contains_itself<'a>(team: &'a Team, teams: &HashMap<&'a str, &'a Team>) -> Option<Vec<&'a str>> {
    let mut seen = HashSet::new();
    let mut paths = vec![vec![team.name.as_str()]];
    while let Some(path) = paths.pop() {
        let here = teams.get(path.last()?)?;
        for (_, member) in named(here) {
            let mut longer = path.clone();
            longer.push(member);
            if member == team.name {
                return Some(longer);
            }
            if teams.contains_key(member) && seen.insert(member) {
                paths.push(longer);
            }
        }
    }
    None
}
