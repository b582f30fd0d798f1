//! Whom a team names: whether they are there, and whether a team names itself in the end.

use std::collections::{HashMap, HashSet};

use homing_core::registry::Registry;

use crate::{
    check::Problem,
    graph::Work,
    memory,
    team::{Pattern, Team},
};

/// Who is named and is not there, and teams that contain themselves.
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
                || tools.is_none_or(|tools| tools.iter().any(|it| it == name))
        };
        for (path, name) in functions(team).filter(|(_, name)| !known(name)) {
            problems.push(Problem::new(path, format!("there is no tool `{name}`")).of(team));
        }
        if let Some(circle) = contains_itself(team, &teams) {
            let message = format!("the team contains itself: {}", circle.join(" → "));
            problems.push(Problem::new("name", message).of(team));
        }
    }
    problems
}

/// Everybody a team names, with the field that names them.
fn named(team: &Team) -> Vec<(String, &str)> {
    let numbered = |path: &str, names: &'_ [String]| -> Vec<String> {
        (0..names.len()).map(|at| format!("{path}[{at}]")).collect()
    };
    match &team.pattern {
        Pattern::Orchestrator(it) => {
            let head = [("orchestrator.coordinator".to_owned(), it.coordinator.as_str())];
            let workers =
                numbered("orchestrator.workers", &it.workers).into_iter().zip(it.workers.iter().map(String::as_str));
            head.into_iter().chain(workers).collect()
        }
        Pattern::Crew(it) => {
            let agents = it.tasks.iter().enumerate();
            let agents =
                agents.filter_map(|(at, task)| Some((format!("crew.tasks[{at}].agent"), task.agent.as_deref()?)));
            let members = numbered("crew.members", &it.members).into_iter().zip(it.members.iter().map(String::as_str));
            let manager = it.manager.iter().map(|name| ("crew.manager".to_owned(), name.as_str()));
            agents.chain(members).chain(manager).collect()
        }
        Pattern::Chat(it) => {
            let members = numbered("chat.members", &it.members).into_iter().zip(it.members.iter().map(String::as_str));
            let selector = it.selector.iter().map(|name| ("chat.selector".to_owned(), name.as_str()));
            let summary = it.summary.iter().map(|name| ("chat.summary".to_owned(), name.as_str()));
            members.chain(selector).chain(summary).collect()
        }
        Pattern::Graph(it) => {
            let nodes = it.nodes.iter().enumerate();
            let nodes = nodes.filter_map(|(at, node)| match node.work()? {
                Work::Agent(name) if node.team.is_some() => Some((format!("graph.nodes[{at}].team"), name)),
                Work::Agent(name) => Some((format!("graph.nodes[{at}].agent"), name)),
                Work::Tool(_) => None,
            });
            nodes.collect()
        }
        Pattern::Map(it) => {
            let reduce = it.reduce.iter().map(|reduce| ("map.reduce.agent".to_owned(), reduce.agent.as_str()));
            [("map.agent".to_owned(), it.agent.as_str())].into_iter().chain(reduce).collect()
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

/// The way from a team back to itself.
fn contains_itself<'a>(team: &'a Team, teams: &HashMap<&'a str, &'a Team>) -> Option<Vec<&'a str>> {
    let mut seen = HashSet::new();
    let mut ways = vec![vec![team.name.as_str()]];
    while let Some(way) = ways.pop() {
        let here = teams.get(way.last()?)?;
        for (_, member) in named(here) {
            let mut longer = way.clone();
            longer.push(member);
            if member == team.name {
                return Some(longer);
            }
            if teams.contains_key(member) && seen.insert(member) {
                ways.push(longer);
            }
        }
    }
    None
}
