//! Plans: the runs that a team would start, with their models, limits and worst-case cost. No model is called.

use std::fmt;

use homing_core::{
    definition::AgentDefinition,
    limits::{Cap, Limits, usd},
};
use homing_runtime::RuntimeParts;

use crate::{
    crew::Process,
    graph::Work,
    limit_fields::LimitFields,
    person,
    team::{Pattern, Team},
};

/// The plan of a team.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Name of the team.
    pub team: String,
    /// Name of its pattern.
    pub pattern: String,
    /// The runs it would start.
    pub runs: Vec<Planned>,
    /// Limits of the whole team.
    pub limits: Limits,
    /// Worst-case cost in micro-dollars; `None` if it is not limited.
    pub worst_cost_micros: Option<u64>,
    /// The source of that figure, and warnings.
    pub notes: Vec<String>,
}

/// Runs that a team would start for one purpose.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Planned {
    /// The task, node or member they are for.
    pub name: String,
    /// Name of the agent.
    pub agent: String,
    /// Models, in order of preference.
    pub models: Vec<String>,
    /// Limits of each run.
    pub limits: Limits,
    /// Maximum number of runs; `None` if only the team's limits bound it.
    pub at_most: Option<u64>,
    /// The tasks or nodes it follows.
    pub after: Vec<String>,
    /// Its condition.
    pub when: Option<String>,
}

/// An entry of the plan, before agent and models are looked up.
struct PlanEntry<'a> {
    name: String,
    agent: &'a str,
    limits: LimitFields,
    at_most: Option<u64>,
    after: Vec<String>,
    when: Option<String>,
}

/// Plans a team for a host with these parts, in which the team need not be installed.
pub fn plan(team: &Team, parts: &RuntimeParts) -> Plan {
    let mut notes = Vec::new();
    let runs: Vec<Planned> = entries(team).into_iter().map(|entry| look_up(entry, team, parts, &mut notes)).collect();
    let limits = team.effective_limits().or(Limits::root());
    let (worst_cost_micros, why) = worst_cost(&runs, &limits);
    notes.insert(0, why);
    Plan { team: team.name.clone(), pattern: pattern_name(team), runs, limits, worst_cost_micros, notes }
}

fn pattern_name(team: &Team) -> String {
    match &team.pattern {
        Pattern::Orchestrator(_) => "orchestrator",
        Pattern::Crew(crew) => match crew.process {
            Process::Sequential => "sequential crew",
            Process::Parallel => "parallel crew",
            Process::Hierarchical => "hierarchical crew",
        },
        Pattern::Chat(_) => "chat",
        Pattern::Graph(_) => "graph",
        Pattern::Map(_) => "map",
        Pattern::Script(_) => "script",
    }
    .to_owned()
}

fn entries(team: &Team) -> Vec<PlanEntry<'_>> {
    let none = LimitFields::default();
    match &team.pattern {
        Pattern::Orchestrator(team) => {
            let head = entry("coordinator", &team.coordinator, &none, Some(1));
            let workers = team.workers.iter().map(|name| entry(name, name, &none, None));
            [head].into_iter().chain(workers).collect()
        }
        Pattern::Crew(crew) => crew_entries(crew),
        Pattern::Chat(chat) => {
            let rounds = Some(u64::from(chat.max_rounds));
            let members = chat.members.iter().map(|name| entry(name, name, &chat.limits, rounds));
            let selector = chat.selector.iter().map(|name| entry("selector", name, &none, rounds));
            let summary = chat.summary.iter().map(|name| entry("summary", name, &chat.limits, Some(1)));
            members.chain(selector).chain(summary).collect()
        }
        Pattern::Graph(graph) => {
            let nodes = graph.nodes.iter().filter_map(|node| {
                let agent = match node.work()? {
                    Work::Agent(agent) => agent,
                    Work::OneOf(_) | Work::Race(_) => node.agents.names().first()?.as_str(),
                    Work::Tool(_) => return None,
                };
                let times = u64::from(graph.max_steps)
                    * (1 + u64::from(node.retries))
                    * node.agents.names().len().max(1) as u64;
                let at_most = node.each.is_none().then_some(times);
                let after =
                    graph.edges.iter().filter(|edge| edge.to == node.name).map(|edge| edge.from.clone()).collect();
                Some(PlanEntry { after, ..entry(&node.name, agent, &node.limits, at_most) })
            });
            nodes.collect()
        }
        Pattern::Script(_) => team.agents.iter().map(|agent| entry("agent()", &agent.name, &none, None)).collect(),
        Pattern::Map(map) => {
            let items = (!map.items.is_empty()).then_some(map.items.len() as u64 * (1 + u64::from(map.retries)));
            let each = entry("each item", &map.agent, &map.limits, items);
            let reduce = map.reduce.iter().map(|reduce| entry("reduce", &reduce.agent, &reduce.limits, Some(1)));
            [each].into_iter().chain(reduce).collect()
        }
    }
}

fn entry<'a>(name: &str, agent: &'a str, limits: &LimitFields, at_most: Option<u64>) -> PlanEntry<'a> {
    let (name, limits) = (name.to_owned(), limits.clone());
    PlanEntry { name, agent, limits, at_most, after: Vec::new(), when: None }
}

fn crew_entries(crew: &crate::crew::Crew) -> Vec<PlanEntry<'_>> {
    let none = LimitFields::default();
    let task = |(at, task): (usize, &crate::crew::CrewTask)| PlanEntry {
        name: task.name.clone(),
        agent: "",
        limits: task.limits.clone(),
        at_most: Some((1 + u64::from(task.retries)) * rounds(crew) * tries(task)),
        after: crew.context(at).into_iter().map(str::to_owned).collect(),
        when: task.when.clone(),
    };
    let tasks = crew.tasks.iter().enumerate();
    let mut all: Vec<PlanEntry<'_>> =
        tasks.map(|(at, each)| PlanEntry { agent: each.agent.as_deref().unwrap_or("?"), ..task((at, each)) }).collect();
    let reviews = crew.tasks.len() as u64 * (1 + rounds(crew));
    let manager = crew.manager.as_deref().filter(|_| crew.process == Process::Hierarchical);
    let judges = crew.tasks.iter().filter_map(|task| {
        let agent = task.check.as_ref()?.agent.as_deref()?;
        Some(entry(&format!("check of {}", task.name), agent, &none, Some(tries(task))))
    });
    all.extend(judges);
    all.extend(manager.map(|name| entry("manager", name, &none, Some(reviews))));
    all
}

fn tries(task: &crate::crew::CrewTask) -> u64 {
    task.check.as_ref().map_or(1, |check| u64::from(check.tries.max(1)))
}

fn rounds(crew: &crate::crew::Crew) -> u64 {
    match crew.process {
        Process::Sequential | Process::Parallel => 1,
        Process::Hierarchical => u64::from(crew.max_rounds.max(1)),
    }
}

fn look_up(entry: PlanEntry<'_>, team: &Team, parts: &RuntimeParts, notes: &mut Vec<String>) -> Planned {
    let person = person::definition();
    let own = team.agents.iter().find(|agent| agent.name == entry.agent);
    let own = own.or_else(|| (entry.agent == person::PERSON).then_some(&person));
    let agent: Option<&AgentDefinition> = own.or_else(|| parts.registry.get(entry.agent).ok().map(|agent| &**agent));
    let models = match agent.map(|agent| parts.models.resolve(&agent.model.choice, None)) {
        // The user costs nothing.
        _ if entry.agent == person::PERSON => Vec::new(),
        Some(Ok(resolved)) => {
            notes.extend(resolved.warnings.into_iter().map(|warning| format!("{}: {warning}", entry.name)));
            resolved.names
        }
        Some(Err(error)) => {
            notes.push(format!("{}: no model: {error}", entry.name));
            Vec::new()
        }
        None => {
            notes.push(format!("{}: unknown agent", entry.name));
            Vec::new()
        }
    };
    let own = agent.map(|agent| agent.limits).unwrap_or_default();
    let mut limits = entry.limits.limits().unwrap_or_default().tighter(own).or(Limits::delegated());
    if entry.agent == person::PERSON {
        limits.cost_micros = Cap::At(0);
    }
    let PlanEntry { name, agent, at_most, after, when, .. } = entry;
    Planned { name, agent: agent.to_owned(), models, limits, at_most, after, when }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.team, self.pattern)?;
        for run in &self.runs {
            write!(f, "  {}: {}", run.name, run.agent)?;
            if !run.models.is_empty() {
                write!(f, " · {}", run.models.join(", "))?;
            }
            match run.at_most {
                Some(times) => write!(f, " · at most {times}×")?,
                None => write!(f, " · number bounded by the team's limits")?,
            }
            if let Some(cost) = run.limits.cost_micros.value() {
                write!(f, " · {} each", usd(cost))?;
            }
            if !run.after.is_empty() {
                write!(f, " · after {}", run.after.join(", "))?;
            }
            if let Some(condition) = &run.when {
                write!(f, " · if {condition}")?;
            }
            writeln!(f)?;
        }
        let worst = self.worst_cost_micros.map_or_else(|| "unbounded".to_owned(), usd);
        write!(f, "worst case: {worst}")?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  {note}"))
    }
}

/// The team's own limit, or the sum of its members' limits if that is less.
fn worst_cost(runs: &[Planned], limits: &Limits) -> (Option<u64>, String) {
    let each = |run: &Planned| Some(run.limits.cost_micros.value()?.saturating_mul(run.at_most?));
    let together: Option<u64> = runs.iter().map(each).try_fold(0_u64, |sum, cost| Some(sum.saturating_add(cost?)));
    match (limits.cost_micros.value(), together) {
        (Some(limit), Some(sum)) if sum < limit => (Some(sum), format!("{} is the sum of all member limits", usd(sum))),
        (Some(limit), _) => (Some(limit), format!("{} is the team's own limit", usd(limit))),
        (None, Some(sum)) => (Some(sum), format!("{} is the sum of all member limits", usd(sum))),
        (None, None) => (None, "the cost is not limited: set max_cost".to_owned()),
    }
}
