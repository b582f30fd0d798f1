//! Checks a team before any model is called. Nothing is repaired: a team with errors does not start.

mod graph;
mod loops;
mod prompts;

use std::collections::{BTreeSet, HashMap, HashSet};

use homing_core::{
    agent_builder::is_name,
    diagnostic::{Diagnostic, Severity},
    registry::Registry,
    tool::ToolSpec,
};
use serde_json::Value;

use crate::{
    chat::{Chat, NextSpeaker},
    crew::{Crew, Process, script::in_order},
    limit_fields::LimitFields,
    map::Map,
    person::PERSON,
    references::references,
    team::{Pattern, Team},
    template,
};

/// A problem at a field of a team; the field is named by its path in the file.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) path: String,
    pub(crate) diagnostic: Diagnostic,
    /// Name of the team with the problem, if there are several.
    team: Option<String>,
}

impl Problem {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), diagnostic: Diagnostic::error(message), team: None }
    }

    /// A problem that does not keep the team from running.
    pub(crate) fn warning(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), diagnostic: Diagnostic::warning(message), team: None }
    }

    pub(crate) fn is_error(&self) -> bool {
        self.diagnostic.severity == Severity::Error
    }

    /// The same problem with a path that begins at an outer element.
    pub(crate) fn below(mut self, prefix: &str) -> Self {
        self.path = if self.path.is_empty() { prefix.to_owned() } else { format!("{prefix}.{}", self.path) };
        self
    }

    pub(crate) fn of(mut self, team: &Team) -> Self {
        self.team = Some(team.name.clone());
        self
    }
}

/// All problems of these teams, given these agents and tools.
pub(crate) fn problems(all: &[&Team], registry: &Registry, tools: &[ToolSpec]) -> Vec<Problem> {
    let structure = all.iter().flat_map(|team| structure(team));
    let missing = all.iter().flat_map(|team| missing_parameters(team));
    structure.chain(missing).chain(references(all, registry, tools)).collect()
}

/// Prefixes each problem with the path of its team within the file of `top`.
pub(crate) fn with_team_paths(top: &Team, problems: Vec<Problem>) -> Vec<Problem> {
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

/// Parameters that have no value yet.
pub(crate) fn missing_parameters(team: &Team) -> Vec<Problem> {
    let missing = team.parameters.iter().filter(|(_, value)| value.is_null());
    let problem = |(name, _): (&String, &Value)| {
        let mut problem = Problem::new(format!("parameters.{name}"), format!("the parameter `{name}` has no value"));
        problem.diagnostic.hint = Some(format!("set a value for `{name}`"));
        problem.of(team)
    };
    missing.map(problem).collect()
}

/// Problems of a team that do not depend on agents and tools.
pub(crate) fn structure(team: &Team) -> Vec<Problem> {
    let mut checker = Checker { team, problems: Vec::new() };
    if !is_name(&team.name) {
        checker
            .report("name", format!("`{}` is not a valid team name: use lower-case letters, digits and -", team.name));
    }
    checker.reserved_names();
    checker.limits("limits", &team.limits);
    let has_replies = matches!(team.pattern, Pattern::Orchestrator(_));
    if team.limits.max_turns.is_some() && !has_replies {
        checker.report("limits.max_turns", "a team has no turns of its own: set `max_turns` for its members");
    }
    if team.limits.max_output.is_some() && !has_replies {
        checker.report("limits.max_output", "a team has no replies of its own: set `max_output` for its members");
    }
    for name in team.parameters.keys().filter(|name| RESERVED.contains(&name.as_str())) {
        checker.report(format!("parameters.{name}"), format!("`{name}` is reserved and cannot be a parameter"));
    }
    checker.prompts();
    match &team.pattern {
        Pattern::Orchestrator(orchestrator) => {
            if orchestrator.workers.is_empty() {
                checker.report("orchestrator", "there are no workers");
            }
        }
        Pattern::Crew(crew) => checker.crew(crew),
        Pattern::Chat(chat) => checker.chat(chat),
        Pattern::Graph(graph) => checker.graph(graph),
        Pattern::Map(map) => checker.map(map),
        Pattern::Script(_) if cfg!(feature = "scripts") => (),
        Pattern::Script(_) => checker.report(
            "",
            format!(
                "the team {} is a workflow script, which needs the feature `scripts` of the crate `homing`",
                team.name
            ),
        ),
    }
    checker.problems.into_iter().map(|problem| problem.of(team)).collect()
}

/// Names that templates always see, besides the parameters.
const RESERVED: [&str; 9] = ["task", "results", "state", "failures", "step", "item", "index", "round", "last"];

struct Checker<'a> {
    team: &'a Team,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn report(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::new(path, message));
    }

    /// `person` is the user, in every team.
    fn reserved_names(&mut self) {
        let message = format!("`{PERSON}` is reserved: it is the user, who is asked and answers");
        if self.team.name == PERSON {
            self.report("name", message.clone());
        }
        if let Some(at) = self.team.agents.iter().position(|agent| agent.name == PERSON) {
            self.report(format!("agents[{at}].name"), message);
        }
    }

    fn limits(&mut self, path: &str, limits: &LimitFields) {
        if let Err(why) = limits.limits() {
            self.report(path, why);
        }
    }

    fn unique<'b>(&mut self, path: &str, names: impl Iterator<Item = &'b str>) {
        let mut seen = HashSet::new();
        for (at, name) in names.enumerate() {
            if name.trim().is_empty() || name.contains('/') || name.contains('#') {
                self.report(
                    format!("{path}[{at}].name"),
                    format!("`{name}` is not a valid name: it must not be empty or contain / or #"),
                );
            } else if !seen.insert(name) {
                self.report(format!("{path}[{at}].name"), format!("the name `{name}` is used twice"));
            }
        }
    }

    /// Checks a template, which may use parameters, the task, and the names that the pattern provides.
    fn template(&mut self, path: &str, text: &str, provided: &[&str]) -> BTreeSet<String> {
        self.names(path, template::names(text), provided)
    }

    fn condition(&mut self, path: &str, text: &str, provided: &[&str]) -> BTreeSet<String> {
        self.names(path, template::names_in_condition(text), provided)
    }

    fn names(
        &mut self,
        path: &str,
        names: Result<BTreeSet<String>, template::TemplateError>,
        provided: &[&str],
    ) -> BTreeSet<String> {
        let names = match names {
            Ok(names) => names,
            Err(problem) => {
                self.report(path, format!("{} (line {} of the template)", problem.message, problem.line));
                return BTreeSet::new();
            }
        };
        let is_known =
            |name: &str| name == "task" || provided.contains(&name) || self.team.parameters.contains_key(name);
        let unknown: Vec<&str> = names.iter().map(|name| head(name)).filter(|name| !is_known(name)).collect();
        if let Some(name) = unknown.first() {
            let mut known: Vec<&str> = self.team.parameters.keys().map(String::as_str).collect();
            known.extend(["task"].iter().chain(provided));
            let message = format!("unknown name `{name}`; known names: {}", known.join(", "));
            self.report(path, message);
        }
        names
    }

    fn crew(&mut self, crew: &Crew) {
        if crew.tasks.is_empty() {
            self.report("crew.tasks", "there are no tasks");
        }
        self.unique("crew.tasks", crew.tasks.iter().map(|task| task.name.as_str()));
        let at: HashMap<&str, usize> =
            crew.tasks.iter().enumerate().map(|(at, task)| (task.name.as_str(), at)).collect();
        if let Some(name) = crew.output.as_deref().filter(|name| !at.contains_key(name)) {
            self.report("crew.output", format!("there is no task `{name}`"));
        }
        if crew.process == Process::Hierarchical && crew.manager.is_none() {
            self.report("crew", "a hierarchical crew needs a `manager`");
        }
        for task in 0..crew.tasks.len() {
            self.crew_task(crew, task, &at);
        }
        self.cycles(crew, &at);
    }

    fn crew_task(&mut self, crew: &Crew, index: usize, at: &HashMap<&str, usize>) {
        let (task, path) = (&crew.tasks[index], format!("crew.tasks[{index}]"));
        if task.description.trim().is_empty() {
            self.report(&path, format!("the task `{}` has no description", task.name));
        }
        let manager_chooses = crew.process == Process::Hierarchical && !crew.candidates(self.team).is_empty();
        if task.agent.is_none() && !manager_chooses {
            self.report(&path, format!("the task `{}` has no agent", task.name));
        }
        for (position, name) in
            task.context.iter().flatten().enumerate().filter(|(_, name)| !at.contains_key(name.as_str()))
        {
            self.report(format!("{path}.context[{position}]"), format!("there is no task `{name}`"));
        }
        self.limits(&format!("{path}.limits"), &task.limits);
        self.schema(&format!("{path}.schema"), task.schema.as_ref());
        self.task_check(crew, index, &path);
        let mut used = self.template(&format!("{path}.description"), &task.description, &["results"]);
        if let Some(expected) = &task.expected_output {
            used.extend(self.template(&format!("{path}.expected_output"), expected, &["results"]));
        }
        if let Some(file) = &task.output_file {
            used.extend(self.template(&format!("{path}.output_file"), file, &["results"]));
        }
        if let Some(condition) = &task.when {
            used.extend(self.condition(&format!("{path}.when"), condition, &["results"]));
        }
        let mut visible = crew.context(index);
        visible.extend((crew.process != Process::Parallel && index > 0).then(|| crew.tasks[index - 1].name.as_str()));
        for name in used.iter().filter_map(|name| name.strip_prefix("results.")).map(head) {
            if !visible.contains(&name) {
                self.report(&path, format!("`results.{name}` is used, but `{name}` is not in the task's context"));
            }
        }
    }

    fn task_check(&mut self, crew: &Crew, index: usize, path: &str) {
        let Some(check) = &crew.tasks[index].check else { return };
        let path = format!("{path}.check");
        self.schema(&format!("{path}.schema"), check.schema.as_ref());
        if check.schema.is_none() && check.command.is_none() && check.agent.is_none() {
            self.report(&path, "the check needs one of schema, command, agent");
        }
        if check.tries == 0 {
            self.report(format!("{path}.tries"), "`tries` must be above 0");
        }
        if crew.process == Process::Hierarchical {
            self.report(&path, "in a hierarchical crew the manager reviews results; remove `check`");
        }
    }

    fn schema(&mut self, path: &str, schema: Option<&Value>) {
        match schema {
            None => (),
            Some(schema) if !schema.is_object() => self.report(path, "a schema must be an object"),
            Some(schema) => {
                if let Err(error) = jsonschema::meta::validate(schema) {
                    let at = error.instance_path().to_string().replace('/', ".");
                    self.report(format!("{path}{at}"), format!("not a valid JSON schema: {error}"));
                }
            }
        }
    }

    fn cycles(&mut self, crew: &Crew, at: &HashMap<&str, usize>) {
        let sequential = crew.process != Process::Parallel;
        let after: Vec<Vec<usize>> = (0..crew.tasks.len())
            .map(|task| {
                let seen = crew.context(task).into_iter().filter_map(|name| at.get(name).copied());
                seen.chain(task.checked_sub(1).filter(|_| sequential)).collect()
            })
            .collect();
        let order: HashSet<usize> = in_order(&after).into_iter().collect();
        let stuck: Vec<usize> = (0..after.len()).filter(|task| !order.contains(task)).collect();
        let Some(first) = stuck.first() else { return };
        let cycle = cycle_from(*first, &after, &order);
        let names: Vec<&str> = cycle.iter().map(|task| crew.tasks[*task].name.as_str()).collect();
        let why = if sequential { " (in a sequential crew each task comes after the one before it)" } else { "" };
        let at = cycle.first().copied().unwrap_or(*first);
        self.report(
            format!("crew.tasks[{at}].context"),
            format!("tasks wait for each other: {}{why}", cycle_text(&names)),
        );
    }

    fn chat(&mut self, chat: &Chat) {
        if chat.members.is_empty() {
            self.report("chat.members", "the chat has no members");
        }
        if chat.max_rounds == 0 {
            self.report("chat.max_rounds", "`max_rounds` must be above 0");
        }
        self.limits("chat.limits", &chat.limits);
        match chat.next {
            NextSpeaker::Model if chat.selector.is_none() => self.report("chat", "`next: model` needs a `selector`"),
            NextSpeaker::Rule if chat.rules.is_empty() => self.report("chat", "`next: rule` needs `rules`"),
            NextSpeaker::RoundRobin | NextSpeaker::Rule | NextSpeaker::Model | NextSpeaker::Handoff => (),
        }
        if !chat.rules.is_empty() && chat.next != NextSpeaker::Rule {
            self.report("chat.rules", "`rules` have no effect without `next: rule`");
        }
        for (at, rule) in chat.rules.iter().enumerate() {
            self.condition(&format!("chat.rules[{at}].when"), &rule.when, &["last", "round"]);
            if !chat.members.contains(&rule.speaker) {
                self.report(
                    format!("chat.rules[{at}].speaker"),
                    format!("`{}` is not a member of the chat", rule.speaker),
                );
            }
        }
    }

    fn map(&mut self, map: &Map) {
        if map.each.trim().is_empty() {
            self.report("map.each", "`each` is empty");
        }
        self.limits("map.limits", &map.limits);
        self.schema("map.schema", map.schema.as_ref());
        self.template("map.each", &map.each, &["item", "index"]);
        if let Some(reduce) = &map.reduce {
            self.limits("map.reduce.limits", &reduce.limits);
            self.template("map.reduce.task", &reduce.task, &["results"]);
        }
    }
}

fn head(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// All strings in a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// A cycle as text; of a long one, the beginning.
fn cycle_text(names: &[&str]) -> String {
    match names {
        [first @ .., last] if first.len() > 12 => format!("{} → … → {last}", first[..12].join(" → ")),
        _ => names.join(" → "),
    }
}

/// A cycle that `start` leads into, among the tasks that are not in `order`.
fn cycle_from(start: usize, after: &[Vec<usize>], order: &HashSet<usize>) -> Vec<usize> {
    let (mut path, mut at) = (Vec::new(), start);
    let mut seen = HashMap::new();
    loop {
        if let Some(from) = seen.insert(at, path.len()) {
            path.drain(..from);
            path.push(at);
            return path;
        }
        path.push(at);
        match after[at].iter().find(|task| !order.contains(task)) {
            Some(next) => at = *next,
            None => return path,
        }
    }
}
