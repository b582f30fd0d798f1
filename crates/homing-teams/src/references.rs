//! References of teams to agents, teams and tools: they must exist and fit, and a team must not contain itself.

use std::collections::{HashMap, HashSet};

use homing_core::{
    authority::Allow,
    registry::{Registry, distance},
    tool::ToolSpec,
    tool_names,
};
use serde_json::Value;

use crate::{
    check::Problem,
    graph::{Node, Work},
    memory, person,
    team::{Pattern, Team},
};

/// References that cannot be resolved or do not fit, and teams that contain themselves.
pub(crate) fn references(all: &[&Team], registry: &Registry, tools: &[ToolSpec]) -> Vec<Problem> {
    let teams: HashMap<&str, &Team> = all.iter().map(|team| (team.name.as_str(), *team)).collect();
    let mut problems = Vec::new();
    for team in all {
        let mut report = |path: String, message: String| problems.push(Problem::new(path, message).of(team));
        for (path, name) in named(team) {
            if !teams.contains_key(name)
                && let Err(unknown) = registry.get(name)
            {
                report(path, unknown.to_string());
            }
        }
        if person::takes_part(team)
            && find(team, tool_names::ASK, tools).is_none()
            && let Some((path, _)) = named(team).into_iter().find(|(_, name)| *name == person::PERSON)
        {
            report(path, "a person is asked with the tool `ask`, which is not available here".to_owned());
        }
        for (at, node) in nodes(team).iter().enumerate() {
            let path = format!("graph.nodes[{at}]");
            if let Some(tool) = &node.tool {
                tool_problems(team, node, tool, tools)
                    .into_iter()
                    .for_each(|(key, why)| report(format!("{path}{key}"), why));
            }
            if let (Some(Work::Agent(name)), Some(_)) = (node.work(), &node.schema)
                && let Some(why) = teams.get(name).and_then(|team| lacks_data(team, registry))
            {
                report(format!("{path}.schema"), why);
            }
        }
        for (path, name) in member_tools(team).filter(|(_, name)| !is_known_tool(team, name, tools)) {
            report(path, unknown_tool(&name, tools));
        }
        if let Some(cycle) = contains_itself(team, &teams) {
            report("name".to_owned(), format!("the team contains itself: {}", cycle.join(" → ")));
        }
    }
    problems
}

/// The tools that the members of a team name, each with the field that names it.
fn member_tools(team: &Team) -> impl Iterator<Item = (String, String)> {
    team.agents.iter().enumerate().flat_map(|(at, agent)| {
        let rules = match &agent.tools.allowed {
            Allow::All => &[][..],
            Allow::Only(rules) => rules.as_slice(),
        };
        let named = rules.iter().enumerate();
        named
            .map(move |(position, rule)| (format!("agents[{at}].tools[{position}]"), rule.tool.clone()))
            .collect::<Vec<_>>()
    })
}

/// Returns whether a tool may exist. The tools of MCP servers are known only once the servers run.
fn is_known_tool(team: &Team, name: &str, tools: &[ToolSpec]) -> bool {
    name.contains('*')
        || name.starts_with("mcp__")
        || tool_names::canonical(name).is_some()
        || memory::NAMES.contains(&name)
        || find(team, name, tools).is_some()
}

fn unknown_tool(name: &str, tools: &[ToolSpec]) -> String {
    let mut known: Vec<&str> = tools.iter().map(|spec| spec.name.as_str()).collect();
    for name in tool_names::all() {
        known.push(name);
    }
    let near = known.into_iter().min_by_key(|known| distance(known, name)).filter(|known| distance(known, name) <= 2);
    let hint = near.map(|known| format!(" (did you mean `{known}`?)")).unwrap_or_default();
    format!("there is no tool `{name}`{hint}")
}

fn find<'a>(team: &'a Team, name: &str, tools: &'a [ToolSpec]) -> Option<&'a ToolSpec> {
    let own = team.tools.iter().map(|tool| tool.spec());
    own.chain(tools.iter()).find(|spec| spec.name == name)
}

/// Problems of a node that calls a tool, each with the key of the node.
fn tool_problems(team: &Team, node: &Node, tool: &str, tools: &[ToolSpec]) -> Vec<(String, String)> {
    let Some(spec) = find(team, tool, tools) else {
        let is_memory = team.memory && memory::NAMES.contains(&tool);
        return if is_memory { Vec::new() } else { vec![(".tool".to_owned(), unknown_tool(tool, tools))] };
    };
    let none = serde_json::Map::new();
    let args = node.args.as_object().unwrap_or(&none);
    let required =
        spec.schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let missing = required.filter(|key| !args.contains_key(*key));
    let mut problems: Vec<(String, String)> =
        missing.map(|key| (".args".to_owned(), format!("`{tool}` needs the argument `{key}`"))).collect();
    let properties = spec.schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    // Templates have their value only later.
    for (key, value) in args.iter().filter(|(_, value)| !value.to_string().contains('{')) {
        let Some(schema) = properties.get(key) else { continue };
        let fits = jsonschema::validator_for(schema).map_or(true, |validator| validator.is_valid(value));
        if !fits {
            problems.push((format!(".args.{key}"), format!("the argument `{key}` of `{tool}` cannot be {value}")));
        }
    }
    problems
}

/// The reason why a team cannot answer with the data that a schema describes.
fn lacks_data(team: &Team, registry: &Registry) -> Option<String> {
    let why = match &team.pattern {
        Pattern::Orchestrator(_) | Pattern::Graph(_) => return None,
        Pattern::Crew(crew) if crew.schema(registry).is_some() => return None,
        Pattern::Crew(_) => "a crew, whose last task has no schema of its own",
        Pattern::Chat(_) => "a chat, whose data is the conversation",
        Pattern::Map(_) => "a map, whose data is the list of results",
        Pattern::Script(_) => "a script, whose data contains its result",
    };
    Some(format!("`schema` cannot be met: `{}` is {why}", team.name))
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
            let judges = crew.tasks.iter().enumerate().filter_map(|(at, task)| {
                Some((format!("crew.tasks[{at}].check.agent"), task.check.as_ref()?.agent.as_deref()?))
            });
            let agents = agents.chain(judges);
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
                Work::OneOf(_) | Work::Race(_) | Work::Tool(_) => None,
            });
            let several = graph.nodes.iter().enumerate().flat_map(|(at, node)| {
                let names = node.agents.names().iter().enumerate();
                names.map(move |(position, name)| (format!("graph.nodes[{at}].agents[{position}]"), name.as_str()))
            });
            nodes.chain(several).collect()
        }
        Pattern::Map(map) => {
            let reduce = map.reduce.iter().map(|reduce| ("map.reduce.agent".to_owned(), reduce.agent.as_str()));
            [("map.agent".to_owned(), map.agent.as_str())].into_iter().chain(reduce).collect()
        }
        // Its names are known only when it runs.
        Pattern::Script(_) => Vec::new(),
    }
}

fn nodes(team: &Team) -> &[Node] {
    match &team.pattern {
        Pattern::Graph(graph) => &graph.nodes,
        Pattern::Orchestrator(_) | Pattern::Crew(_) | Pattern::Chat(_) | Pattern::Map(_) | Pattern::Script(_) => &[],
    }
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
