//! What a team would do: who, with which model, within which limits, at which cost at worst. It asks nobody.

use std::fmt;

use homing_core::{
    definition::AgentDefinition,
    limits::{Limits, usd},
};
use homing_runtime::RuntimeParts;

use crate::{
    crew::Process,
    graph::Work,
    limit_fields::LimitFields,
    team::{Pattern, Team},
};

/// What a team would do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The team.
    pub team: String,
    /// How the members work together.
    pub pattern: String,
    /// Who would be sent out.
    pub runs: Vec<Planned>,
    /// What the whole team may spend.
    pub limits: Limits,
    /// The most it can cost, in micro-dollars; `None` where nothing bounds it.
    pub worst_cost_micros: Option<u64>,
    /// Where that figure comes from, and what else is worth knowing.
    pub notes: Vec<String>,
}

/// Somebody who would be sent out.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Planned {
    /// What for: the task, the node, the member.
    pub name: String,
    /// Who.
    pub agent: String,
    /// With which models, best first; none for a function.
    pub models: Vec<String>,
    /// What each of its runs may spend.
    pub limits: Limits,
    /// How many runs there can be; `None` where only the team's limits say.
    pub at_most: Option<u64>,
    /// What it comes after.
    pub after: Vec<String>,
    /// Under which condition.
    pub when: Option<String>,
}

/// One who would be sent out, before anything is looked up.
struct Sketch<'a> {
    name: String,
    agent: &'a str,
    bounds: LimitFields,
    at_most: Option<u64>,
    after: Vec<String>,
    when: Option<String>,
}

/// Plans a team for a host that has these parts, whether it is installed there or not.
pub fn plan(team: &Team, parts: &RuntimeParts) -> Plan {
    let mut notes = Vec::new();
    let runs: Vec<Planned> = sketches(team).into_iter().map(|it| look_up(it, team, parts, &mut notes)).collect();
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
    }
    .to_owned()
}

fn sketches(team: &Team) -> Vec<Sketch<'_>> {
    let sketch = |name: &str, agent, bounds: &LimitFields, at_most| Sketch {
        name: name.to_owned(),
        agent,
        bounds: bounds.clone(),
        at_most,
        after: Vec::new(),
        when: None,
    };
    let none = LimitFields::default();
    match &team.pattern {
        Pattern::Orchestrator(it) => {
            let head = sketch("coordinator", &it.coordinator, &none, Some(1));
            let workers = it.workers.iter().map(|name| sketch(name, name, &none, None));
            [head].into_iter().chain(workers).collect()
        }
        Pattern::Crew(crew) => {
            let task = |(at, task): (usize, &crate::crew::CrewTask)| Sketch {
                name: task.name.clone(),
                agent: "",
                bounds: task.limits.clone(),
                at_most: Some((1 + u64::from(task.retries)) * rounds(crew)),
                after: crew.context(at).into_iter().map(str::to_owned).collect(),
                when: task.when.clone(),
            };
            let tasks = crew.tasks.iter().enumerate();
            let mut all: Vec<Sketch<'_>> =
                tasks.map(|(at, it)| Sketch { agent: it.agent.as_deref().unwrap_or("?"), ..task((at, it)) }).collect();
            let reviews = crew.tasks.len() as u64 * (1 + rounds(crew));
            let manager = crew.manager.as_deref().filter(|_| crew.process == Process::Hierarchical);
            all.extend(manager.map(|it| sketch("manager", it, &none, Some(reviews))));
            all
        }
        Pattern::Chat(chat) => {
            let rounds = Some(u64::from(chat.max_rounds));
            let members = chat.members.iter().map(|name| sketch(name, name, &chat.limits, rounds));
            let selector = chat.selector.iter().map(|name| sketch("selector", name, &none, rounds));
            let summary = chat.summary.iter().map(|name| sketch("summary", name, &chat.limits, Some(1)));
            members.chain(selector).chain(summary).collect()
        }
        Pattern::Graph(graph) => {
            let nodes = graph.nodes.iter().filter_map(|node| {
                let Work::Agent(agent) = node.work()? else { return None };
                let times = u64::from(graph.max_steps) * (1 + u64::from(node.retries));
                let at_most = node.each.is_none().then_some(times);
                let after =
                    graph.edges.iter().filter(|edge| edge.to == node.name).map(|edge| edge.from.clone()).collect();
                Some(Sketch { after, ..sketch(&node.name, agent, &node.limits, at_most) })
            });
            nodes.collect()
        }
        Pattern::Map(map) => {
            let items = (!map.items.is_empty()).then_some(map.items.len() as u64 * (1 + u64::from(map.retries)));
            let each = sketch("each item", &map.agent, &map.limits, items);
            let reduce = map.reduce.iter().map(|it| sketch("reduce", &it.agent, &it.limits, Some(1)));
            [each].into_iter().chain(reduce).collect()
        }
    }
}

fn rounds(crew: &crate::crew::Crew) -> u64 {
    match crew.process {
        Process::Sequential | Process::Parallel => 1,
        Process::Hierarchical => u64::from(crew.max_rounds.max(1)),
    }
}

fn look_up(sketch: Sketch<'_>, team: &Team, parts: &RuntimeParts, notes: &mut Vec<String>) -> Planned {
    let own = team.agents.iter().find(|agent| agent.name == sketch.agent);
    let agent: Option<&AgentDefinition> = own.or_else(|| parts.registry.get(sketch.agent).ok().map(|it| &**it));
    let models = match agent.map(|agent| parts.models.resolve(&agent.model, None)) {
        Some(Ok(resolved)) => {
            notes.extend(resolved.warnings.into_iter().map(|it| format!("{}: {it}", sketch.name)));
            resolved.names
        }
        Some(Err(error)) => {
            notes.push(format!("{}: no model: {error}", sketch.name));
            Vec::new()
        }
        None => {
            notes.push(format!("{}: the agent is not known yet", sketch.name));
            Vec::new()
        }
    };
    let own = agent.map(|agent| agent.limits).unwrap_or_default();
    let limits = sketch.bounds.limits().unwrap_or_default().tighter(own).or(Limits::delegated());
    let Sketch { name, agent, at_most, after, when, .. } = sketch;
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
                None => write!(f, " · as often as the team's limits allow")?,
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

/// The team's own limit, or what its members can spend together where that is less.
fn worst_cost(runs: &[Planned], limits: &Limits) -> (Option<u64>, String) {
    let each = |run: &Planned| Some(run.limits.cost_micros.value()?.saturating_mul(run.at_most?));
    let together: Option<u64> = runs.iter().map(each).try_fold(0_u64, |sum, it| Some(sum.saturating_add(it?)));
    match (limits.cost_micros.value(), together) {
        (Some(limit), Some(sum)) if sum < limit => {
            (Some(sum), format!("{} is what all members may spend together", usd(sum)))
        }
        (Some(limit), _) => (Some(limit), format!("{} is the team's own limit", usd(limit))),
        (None, Some(sum)) => (Some(sum), format!("{} is what all members may spend together", usd(sum))),
        (None, None) => (None, "nothing bounds the cost: set max_cost".to_owned()),
    }
}
