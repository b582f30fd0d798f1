//! What is wrong with a team, before anything is asked or paid. It must not repair: a team that is wrong does not start.

use std::collections::{BTreeSet, HashMap, HashSet};

use homing_core::{agent_builder::is_name, diagnostic::Diagnostic, registry::Registry};
use serde_json::Value;

use crate::{
    chat::{Chat, NextSpeaker},
    crew::{Crew, Process, script::in_order},
    graph::{Graph, Node, Work, script::is_end, state},
    limit_fields::LimitFields,
    map::Map,
    references::references,
    team::{Pattern, Team},
    template,
};

/// Something wrong at a field of a team, which is named by its path in a file.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) path: String,
    pub(crate) diagnostic: Diagnostic,
    /// The team it is about, where that is one of several.
    team: Option<String>,
}

impl Problem {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), diagnostic: Diagnostic::error(message), team: None }
    }

    /// The same, seen from further up.
    pub(crate) fn below(mut self, prefix: &str) -> Self {
        self.path = if self.path.is_empty() { prefix.to_owned() } else { format!("{prefix}.{}", self.path) };
        self
    }

    pub(crate) fn of(mut self, team: &Team) -> Self {
        self.team = Some(team.name.clone());
        self
    }
}

/// Everything that is wrong with these teams among these agents and tools.
pub(crate) fn problems(all: &[&Team], registry: &Registry, tools: Option<&[String]>) -> Vec<Problem> {
    let structure = all.iter().flat_map(|team| structure(team));
    let missing = all.iter().flat_map(|team| missing_parameters(team));
    structure.chain(missing).chain(references(all, registry, tools)).collect()
}

/// Gives each problem the path of the team it is about, within the file of `top`.
pub(crate) fn below_the_right_team(top: &Team, problems: Vec<Problem>) -> Vec<Problem> {
    let mut prefixes = HashMap::new();
    collect_prefixes(top, String::new(), &mut prefixes);
    let place = |problem: Problem| match problem.team.as_ref().and_then(|name| prefixes.get(name)) {
        Some(prefix) if !prefix.is_empty() => problem.below(prefix),
        Some(_) | None => problem,
    };
    problems.into_iter().map(place).collect()
}

fn collect_prefixes(team: &Team, prefix: String, into: &mut HashMap<String, String>) {
    for (at, nested) in team.teams.iter().enumerate() {
        let dot = if prefix.is_empty() { "" } else { "." };
        collect_prefixes(nested, format!("{prefix}{dot}teams[{at}]"), into);
    }
    into.insert(team.name.clone(), prefix);
}

/// Parameters that still have no value.
pub(crate) fn missing_parameters(team: &Team) -> Vec<Problem> {
    let missing = team.parameters.iter().filter(|(_, value)| value.is_null());
    let problem = |(name, _): (&String, &Value)| {
        let mut problem = Problem::new(format!("parameters.{name}"), format!("the parameter `{name}` has no value"));
        problem.diagnostic.hint = Some(format!("give it with --set {name}=…"));
        problem.of(team)
    };
    missing.map(problem).collect()
}

/// What is wrong with a team in itself.
pub(crate) fn structure(team: &Team) -> Vec<Problem> {
    let mut found = Finder { team, problems: Vec::new() };
    if !is_name(&team.name) {
        found.say("name", format!("`{}` is no name for a team: lower-case letters, digits and -", team.name));
    }
    found.bounds("limits", &team.limits);
    if team.limits.max_turns.is_some() && !matches!(team.pattern, Pattern::Orchestrator(_)) {
        found.say("limits.max_turns", "a team has no turns of its own: limit those of its members");
    }
    for name in team.parameters.keys().filter(|name| RESERVED.contains(&name.as_str())) {
        found.say(format!("parameters.{name}"), format!("`{name}` is a name of its own and cannot be a parameter"));
    }
    match &team.pattern {
        Pattern::Orchestrator(it) => {
            if it.workers.is_empty() {
                found.say("orchestrator", "there are no workers");
            }
        }
        Pattern::Crew(crew) => found.crew(crew),
        Pattern::Chat(chat) => found.chat(chat),
        Pattern::Graph(graph) => found.graph(graph),
        Pattern::Map(map) => found.map(map),
    }
    found.problems.into_iter().map(|problem| problem.of(team)).collect()
}

/// Names that templates see whatever the parameters are.
const RESERVED: [&str; 9] = ["task", "results", "state", "failures", "step", "item", "index", "round", "last"];

struct Finder<'a> {
    team: &'a Team,
    problems: Vec<Problem>,
}

impl Finder<'_> {
    fn say(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::new(path, message));
    }

    fn bounds(&mut self, path: &str, bounds: &LimitFields) {
        if let Err(why) = bounds.limits() {
            self.say(path, why);
        }
    }

    fn unique<'b>(&mut self, path: &str, names: impl Iterator<Item = &'b str>) {
        let mut seen = HashSet::new();
        for (at, name) in names.enumerate() {
            if name.trim().is_empty() || name.contains('/') || name.contains('#') {
                self.say(
                    format!("{path}[{at}].name"),
                    format!("`{name}` is no name: it must not be empty or have / or #"),
                );
            } else if !seen.insert(name) {
                self.say(format!("{path}[{at}].name"), format!("there are two of the name `{name}`"));
            }
        }
    }

    /// A template may use parameters, the task, and what the pattern offers.
    fn template(&mut self, path: &str, text: &str, offers: &[&str]) -> BTreeSet<String> {
        self.names(path, template::names(text), offers)
    }

    fn condition(&mut self, path: &str, text: &str, offers: &[&str]) -> BTreeSet<String> {
        self.names(path, template::names_in_condition(text), offers)
    }

    fn names(
        &mut self,
        path: &str,
        names: Result<BTreeSet<String>, template::TemplateError>,
        offers: &[&str],
    ) -> BTreeSet<String> {
        let names = match names {
            Ok(names) => names,
            Err(problem) => {
                self.say(path, format!("{} (line {} of the template)", problem.message, problem.line));
                return BTreeSet::new();
            }
        };
        let known = |name: &str| name == "task" || offers.contains(&name) || self.team.parameters.contains_key(name);
        let unknown: Vec<&str> = names.iter().map(|name| head(name)).filter(|name| !known(name)).collect();
        if let Some(name) = unknown.first() {
            let mut there: Vec<&str> = self.team.parameters.keys().map(String::as_str).collect();
            there.extend(["task"].iter().chain(offers));
            let message = format!("`{name}` is not there; there are: {}", there.join(", "));
            self.say(path, message);
        }
        names
    }

    fn crew(&mut self, crew: &Crew) {
        if crew.tasks.is_empty() {
            self.say("crew.tasks", "there are no tasks");
        }
        self.unique("crew.tasks", crew.tasks.iter().map(|task| task.name.as_str()));
        let at: HashMap<&str, usize> = crew.tasks.iter().enumerate().map(|(at, it)| (it.name.as_str(), at)).collect();
        if let Some(name) = crew.output.as_deref().filter(|name| !at.contains_key(name)) {
            self.say("crew.output", format!("there is no task `{name}`"));
        }
        if crew.process == Process::Hierarchical && crew.manager.is_none() {
            self.say("crew", "a hierarchical crew needs a `manager`");
        }
        for it in 0..crew.tasks.len() {
            self.crew_task(crew, it, &at);
        }
        self.circles(crew, &at);
    }

    fn crew_task(&mut self, crew: &Crew, it: usize, at: &HashMap<&str, usize>) {
        let (task, path) = (&crew.tasks[it], format!("crew.tasks[{it}]"));
        if task.description.trim().is_empty() {
            self.say(&path, format!("the task `{}` has no description", task.name));
        }
        let chosen = crew.process == Process::Hierarchical && !crew.candidates(self.team).is_empty();
        if task.agent.is_none() && !chosen {
            self.say(&path, format!("the task `{}` has no agent", task.name));
        }
        for (index, name) in
            task.context.iter().flatten().enumerate().filter(|(_, name)| !at.contains_key(name.as_str()))
        {
            self.say(format!("{path}.context[{index}]"), format!("there is no task `{name}`"));
        }
        self.bounds(&format!("{path}.limits"), &task.limits);
        self.schema(&format!("{path}.schema"), task.schema.as_ref());
        let mut used = self.template(&format!("{path}.description"), &task.description, &["results"]);
        if let Some(expected) = &task.expected_output {
            used.extend(self.template(&format!("{path}.expected_output"), expected, &["results"]));
        }
        if let Some(condition) = &task.when {
            used.extend(self.condition(&format!("{path}.when"), condition, &["results"]));
        }
        let mut visible = crew.context(it);
        visible.extend((crew.process != Process::Parallel && it > 0).then(|| crew.tasks[it - 1].name.as_str()));
        for name in used.iter().filter_map(|name| name.strip_prefix("results.")).map(head) {
            if !visible.contains(&name) {
                self.say(&path, format!("`results.{name}` is used, but `{name}` is not in the task's context"));
            }
        }
    }

    fn schema(&mut self, path: &str, schema: Option<&Value>) {
        if schema.is_some_and(|schema| !schema.is_object()) {
            self.say(path, "a schema is an object");
        }
    }

    fn circles(&mut self, crew: &Crew, at: &HashMap<&str, usize>) {
        let sequential = crew.process != Process::Parallel;
        let after: Vec<Vec<usize>> = (0..crew.tasks.len())
            .map(|it| {
                let seen = crew.context(it).into_iter().filter_map(|name| at.get(name).copied());
                seen.chain(it.checked_sub(1).filter(|_| sequential)).collect()
            })
            .collect();
        let order: HashSet<usize> = in_order(&after).into_iter().collect();
        let stuck: Vec<usize> = (0..after.len()).filter(|it| !order.contains(it)).collect();
        let Some(first) = stuck.first() else { return };
        let circle = circle_from(*first, &after, &order);
        let names: Vec<&str> = circle.iter().map(|it| crew.tasks[*it].name.as_str()).collect();
        let why = if sequential { " (in a sequential crew each task comes after the one before it)" } else { "" };
        let at = circle.first().copied().unwrap_or(*first);
        self.say(
            format!("crew.tasks[{at}].context"),
            format!("tasks wait for each other: {}{why}", circle_words(&names)),
        );
    }

    fn chat(&mut self, chat: &Chat) {
        if chat.members.is_empty() {
            self.say("chat.members", "nobody takes part");
        }
        if chat.max_rounds == 0 {
            self.say("chat.max_rounds", "`max_rounds` must be above 0");
        }
        self.bounds("chat.limits", &chat.limits);
        match chat.next {
            NextSpeaker::Model if chat.selector.is_none() => self.say("chat", "`next: model` needs a `selector`"),
            NextSpeaker::Rule if chat.rules.is_empty() => self.say("chat", "`next: rule` needs `rules`"),
            NextSpeaker::RoundRobin | NextSpeaker::Rule | NextSpeaker::Model | NextSpeaker::Handoff => (),
        }
        for (at, rule) in chat.rules.iter().enumerate() {
            self.condition(&format!("chat.rules[{at}].when"), &rule.when, &["last", "round"]);
            if !chat.members.contains(&rule.speaker) {
                self.say(format!("chat.rules[{at}].speaker"), format!("`{}` does not take part", rule.speaker));
            }
        }
    }

    fn graph(&mut self, graph: &Graph) {
        if graph.nodes.is_empty() {
            self.say("graph.nodes", "there are no nodes");
        }
        self.unique("graph.nodes", graph.nodes.iter().map(|node| node.name.as_str()));
        let names: HashSet<&str> = graph.nodes.iter().map(|node| node.name.as_str()).collect();
        if !names.contains(graph.start.as_str()) {
            self.say("graph.start", format!("there is no node `{}` to start at", graph.start));
        }
        for (name, _) in graph.state.iter().filter(|(_, field)| !state::default_fits(field)) {
            self.say(format!("graph.state.{name}.default"), format!("the default of `{name}` is not of its type"));
        }
        for (at, node) in graph.nodes.iter().enumerate() {
            self.node(graph, node, &format!("graph.nodes[{at}]"), &names);
        }
        for (at, edge) in graph.edges.iter().enumerate() {
            let path = format!("graph.edges[{at}]");
            if !names.contains(edge.from.as_str()) {
                self.say(format!("{path}.from"), format!("there is no node `{}`", edge.from));
            }
            if !names.contains(edge.to.as_str()) && !is_end(&edge.to) {
                self.say(format!("{path}.to"), format!("there is no node `{}`; the end is called `end`", edge.to));
            }
            if let Some(condition) = &edge.when {
                let used = self.condition(&format!("{path}.when"), condition, &["state", "failures", "step"]);
                self.fields(graph, &format!("{path}.when"), &used);
            }
        }
        if let Some(output) = &graph.output {
            let used = self.template("graph.output", output, &["state", "failures", "step"]);
            self.fields(graph, "graph.output", &used);
        }
    }

    fn node(&mut self, graph: &Graph, node: &Node, path: &str, names: &HashSet<&str>) {
        if is_end(&node.name) {
            self.say(format!("{path}.name"), "`end` is the end and cannot be a node");
        }
        match node.work() {
            None => self.say(path, format!("the node `{}` needs one of agent, team, tool", node.name)),
            Some(Work::Agent(_)) if node.task.trim().is_empty() => {
                self.say(path, format!("the node `{}` has no task", node.name));
            }
            Some(Work::Tool(_)) if !(node.args.is_object() || node.args.is_null()) => {
                self.say(format!("{path}.args"), "arguments are values by name");
            }
            Some(Work::Agent(_) | Work::Tool(_)) => (),
        }
        self.bounds(&format!("{path}.limits"), &node.limits);
        self.schema(&format!("{path}.schema"), node.schema.as_ref());
        if let Some(field) = node.writes.as_ref().filter(|field| !graph.state.contains_key(*field)) {
            self.say(format!("{path}.writes"), format!("the state has no `{field}`"));
        }
        for (at, name) in node.join.iter().enumerate() {
            if !names.contains(name.as_str()) {
                self.say(format!("{path}.join[{at}]"), format!("there is no node `{name}`"));
            } else if !graph.edges.iter().any(|edge| edge.from == *name && edge.to == node.name) {
                self.say(format!("{path}.join[{at}]"), format!("no edge leads from `{name}` to `{}`", node.name));
            }
        }
        let mut offers = vec!["state", "failures", "step"];
        let mut used = BTreeSet::new();
        if let Some(list) = &node.each {
            used.extend(self.condition(&format!("{path}.each"), list, &offers));
            offers.extend(["item", "index"]);
        }
        used.extend(self.template(&format!("{path}.task"), &node.task, &offers));
        for text in texts(&node.args) {
            used.extend(self.template(&format!("{path}.args"), text, &offers));
        }
        self.fields(graph, path, &used);
    }

    /// The values of the state that are used must be declared.
    fn fields(&mut self, graph: &Graph, path: &str, used: &BTreeSet<String>) {
        for name in used.iter().filter_map(|name| name.strip_prefix("state.")).map(head) {
            if !graph.state.contains_key(name) {
                self.say(path, format!("the state has no `{name}`"));
            }
        }
    }

    fn map(&mut self, map: &Map) {
        if map.each.trim().is_empty() {
            self.say("map.each", "there is nothing to do for each item");
        }
        self.bounds("map.limits", &map.limits);
        self.schema("map.schema", map.schema.as_ref());
        self.template("map.each", &map.each, &["item", "index"]);
        if let Some(reduce) = &map.reduce {
            self.bounds("map.reduce.limits", &reduce.limits);
            self.template("map.reduce.task", &reduce.task, &["results"]);
        }
    }
}

fn head(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Every text in a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// A circle in words; of a long one, its beginning.
fn circle_words(names: &[&str]) -> String {
    match names {
        [first @ .., last] if first.len() > 12 => format!("{} → … → {last}", first[..12].join(" → ")),
        _ => names.join(" → "),
    }
}

/// Follows what `start` waits for, among those that are stuck, until it comes back to where it was.
fn circle_from(start: usize, after: &[Vec<usize>], order: &HashSet<usize>) -> Vec<usize> {
    let (mut path, mut at) = (Vec::new(), start);
    let mut seen = HashMap::new();
    loop {
        if let Some(from) = seen.insert(at, path.len()) {
            path.drain(..from);
            path.push(at);
            return path;
        }
        path.push(at);
        match after[at].iter().find(|it| !order.contains(it)) {
            Some(next) => at = *next,
            None => return path,
        }
    }
}
