//! Crews: tasks for agents, and which task needs the results of which others.

pub(crate) mod hierarchy;
pub(crate) mod script;
use homing_core::registry::Registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{limit_fields::LimitFields, team::Team};

/// Tasks with dependencies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Crew {
    /// In which order tasks are done.
    pub process: Process,
    /// The tasks.
    pub tasks: Vec<CrewTask>,
    /// Who assigns and accepts, in a hierarchical process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// Whom the manager may choose from, for tasks without an agent; the agents of the file where this is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// How often a task is done at most before its result is taken as it is.
    #[serde(default = "three")]
    pub max_rounds: u32,
    /// The task whose result is the crew's; the last ones by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

fn three() -> u32 {
    3
}

/// In which order tasks are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// One after the other, as they are written; each sees the result of the one before unless it says otherwise.
    #[default]
    Sequential,
    /// As soon as the results that a task needs are there.
    Parallel,
    /// One after the other; a manager assigns tasks, and accepts results or sends them back.
    Hierarchical,
}

/// One task of a crew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CrewTask {
    /// Its name.
    pub name: String,
    /// Who does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// What is to be done: a template.
    pub description: String,
    /// What is to come out, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_output: Option<String>,
    /// What is to come out, as a JSON schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The tasks whose results it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<String>>,
    /// It is done only if this holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// What it may spend, each time.
    pub limits: LimitFields,
    /// How often it is tried again after a failure.
    pub retries: u32,
    /// What its failure means, after all retries.
    pub on_failure: OnFailure,
}

/// Consequence of a part that did not deliver, after all retries: one that failed, that was cancelled, or that a limit of
/// its own stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The rest goes on, and whoever needs the result reads that it failed and what there was by then. The team ends
    /// `failed` if it had to deliver this part: a crew's task that is the last or that others need; a graph's node whose
    /// failure no edge handles; the last contribution of a chat, and its selector; any item of a map.
    #[default]
    Report,
    /// The rest goes on without it, and the failure does not count.
    Skip,
    /// The team fails at once.
    Fail,
}

impl Crew {
    /// A crew that does its tasks one after the other.
    pub fn sequential() -> Self {
        Self { max_rounds: three(), ..Self::default() }
    }

    /// A crew that does at once whatever can be done at once.
    pub fn parallel() -> Self {
        Self { process: Process::Parallel, ..Self::sequential() }
    }

    /// A crew with a manager.
    pub fn hierarchical(manager: impl Into<String>) -> Self {
        Self { process: Process::Hierarchical, manager: Some(manager.into()), ..Self::sequential() }
    }

    /// One more task.
    #[must_use]
    pub fn task(mut self, task: CrewTask) -> Self {
        self.tasks.push(task);
        self
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.tasks.iter().position(|task| task.name == name)
    }

    /// The names of the tasks whose results the task at `at` gets to see.
    pub(crate) fn context(&self, at: usize) -> Vec<&str> {
        match (&self.tasks[at].context, self.process) {
            (Some(names), _) => names.iter().map(String::as_str).collect(),
            (None, Process::Parallel) => Vec::new(),
            (None, Process::Sequential | Process::Hierarchical) => {
                at.checked_sub(1).map(|before| self.tasks[before].name.as_str()).into_iter().collect()
            }
        }
    }

    /// Whom the manager may choose from.
    pub(crate) fn candidates<'a>(&'a self, team: &'a Team) -> Vec<&'a str> {
        let not_manager = |name: &&str| Some(*name) != self.manager.as_deref();
        match self.members.is_empty() {
            true => team.agents.iter().map(|agent| agent.name.as_str()).filter(not_manager).collect(),
            false => self.members.iter().map(String::as_str).collect(),
        }
    }

    pub(crate) fn members<'a>(&'a self, team: &'a Team) -> Vec<&'a str> {
        let workers = self.tasks.iter().filter_map(|task| task.agent.as_deref());
        let mut all: Vec<&str> = workers.collect();
        if self.process == Process::Hierarchical {
            all.extend(self.manager.as_deref());
            all.extend(self.candidates(team));
        }
        all
    }

    pub(crate) fn size(&self) -> u64 {
        let rounds = match self.process {
            Process::Sequential | Process::Parallel => 1,
            Process::Hierarchical => 1 + 2 * u64::from(self.max_rounds.max(1)),
        };
        self.tasks.iter().map(|task| rounds * (1 + u64::from(task.retries))).sum()
    }

    /// The tasks that nobody waits for, or the one that is named as the output.
    pub(crate) fn last_tasks(&self) -> Vec<usize> {
        if let Some(at) = self.output.as_deref().and_then(|name| self.position(name)) {
            return vec![at];
        }
        let needed: std::collections::HashSet<&str> = (0..self.tasks.len()).flat_map(|at| self.context(at)).collect();
        let sinks: Vec<usize> =
            (0..self.tasks.len()).filter(|at| !needed.contains(self.tasks[*at].name.as_str())).collect();
        match self.process {
            Process::Parallel => sinks,
            Process::Sequential | Process::Hierarchical => sinks.last().copied().into_iter().collect(),
        }
    }

    /// The schema of the crew's answer, where it is that of one task.
    pub(crate) fn schema(&self, registry: &Registry) -> Option<&Value> {
        let may_skip = |task: &CrewTask| match task.on_failure {
            OnFailure::Skip => true,
            OnFailure::Fail => false,
            OnFailure::Report => task
                .agent
                .as_deref()
                .and_then(|name| registry.get(name).ok())
                .is_some_and(|agent| agent.on_failure == homing_core::definition::OnFailure::Skip),
        };
        match self.last_tasks().as_slice() {
            // A crew whose last task may be left out cannot promise its form.
            [only] if self.tasks[*only].when.is_none() && !may_skip(&self.tasks[*only]) => {
                self.tasks[*only].schema.as_ref()
            }
            _ => None,
        }
    }
}

impl CrewTask {
    /// A task for an agent.
    pub fn new(name: impl Into<String>, agent: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), agent: Some(agent.into()), description: description.into(), ..Self::default() }
    }

    /// A task for whomever the manager chooses.
    pub fn unassigned(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), ..Self::default() }
    }

    /// The tasks whose results it needs.
    #[must_use]
    pub fn context<'a>(mut self, tasks: impl IntoIterator<Item = &'a str>) -> Self {
        self.context = Some(tasks.into_iter().map(str::to_owned).collect());
        self
    }

    /// What is to come out, in words.
    #[must_use]
    pub fn expects(mut self, output: impl Into<String>) -> Self {
        self.expected_output = Some(output.into());
        self
    }

    /// What is to come out, as a JSON schema.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// The condition under which it is done.
    #[must_use]
    pub fn when(mut self, condition: impl Into<String>) -> Self {
        self.when = Some(condition.into());
        self
    }

    /// What it may spend.
    #[must_use]
    pub fn limits(mut self, limits: LimitFields) -> Self {
        self.limits = limits;
        self
    }

    /// How often it is tried again after a failure.
    #[must_use]
    pub fn retries(mut self, times: u32) -> Self {
        self.retries = times;
        self
    }

    /// What its failure means.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = policy;
        self
    }
}
