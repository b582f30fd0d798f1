//! Crews: tasks for agents, with dependencies between them.

pub(crate) mod check;
pub(crate) mod hierarchy;
pub(crate) mod script;

use homing_core::{registry::Registry, tool_names};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{crew::check::TaskCheck, limit_fields::LimitFields, team::Team};

/// Tasks with dependencies.
///
/// # Examples
///
/// ```
/// # use homing_teams as homing;
/// use homing::{Crew, CrewTask, Team};
///
/// let crew = Crew::sequential()
///     .task(CrewTask::new("find", "researcher", "Find facts about {{ task }}"))
///     .task(CrewTask::new("write", "writer", "Write about {{ results.find }}"));
/// assert_eq!(Team::new("report", crew).members(), ["researcher", "writer"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "Tasks with dependencies.")]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Crew {
    /// Order in which tasks are executed.
    pub process: Process,
    /// The tasks.
    pub tasks: Vec<CrewTask>,
    /// Agent that assigns tasks and accepts results, in a hierarchical process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// Agents the manager may choose from, for tasks without an agent; empty for all agents of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Maximum number of times a task is executed before its result is accepted as it is.
    #[serde(default = "three")]
    pub max_rounds: u32,
    /// Task whose result is the crew's answer; by default the last tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

fn three() -> u32 {
    3
}

/// Order in which tasks are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// One after the other, in file order; by default each task sees the result of the one before.
    #[default]
    Sequential,
    /// Each task as soon as the results it needs are available.
    Parallel,
    /// One after the other; a manager assigns tasks, and accepts or rejects results.
    Hierarchical,
}

/// One task of a crew.
///
/// # Examples
///
/// ```
/// # use homing_teams as homing;
/// use homing::CrewTask;
///
/// let task = CrewTask::new("write", "writer", "Write about {{ results.find }}").context(["find"]).retries(2);
/// assert_eq!(task.agent.as_deref(), Some("writer"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "One task of a crew.")]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CrewTask {
    /// Name of the task.
    pub name: String,
    /// Agent that executes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Instructions: a template.
    pub description: String,
    /// Description of the expected result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_output: Option<String>,
    /// JSON schema of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Tasks whose results it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<String>>,
    /// Check of the result, with feedback to the agent. In a hierarchical process the manager reviews results instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<TaskCheck>,
    /// File that gets the result, within the working folder and by the rules for `write`: a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_file: Option<String>,
    /// Condition: the task is skipped if it does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Limits of each execution.
    pub limits: LimitFields,
    /// Maximum number of retries after a failure.
    pub retries: u32,
    /// Consequence of a failure, after all retries.
    pub on_failure: OnTaskFailure,
}

/// Consequence of a task, node, speaker or item that did not deliver, after all retries: it failed, was cancelled, or was
/// stopped by its own limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "OnFailure")]
pub enum OnTaskFailure {
    /// The rest continues, and tasks that need the result see the failure and any partial output. The team ends `failed` if
    /// it had to deliver this part: a crew's task that is the last or that others need; a graph's node whose failure no
    /// edge handles; the last contribution of a chat, and its selector; any item of a map.
    #[default]
    Report,
    /// The rest continues without it, and the failure does not count.
    Skip,
    /// The team fails at once.
    Fail,
}

impl Crew {
    /// Creates a crew that executes its tasks one after the other.
    pub fn sequential() -> Self {
        Self { max_rounds: three(), ..Self::default() }
    }

    /// Creates a crew that executes each task as soon as its dependencies are done.
    pub fn parallel() -> Self {
        Self { process: Process::Parallel, ..Self::sequential() }
    }

    /// Creates a crew with a manager.
    pub fn hierarchical(manager: impl Into<String>) -> Self {
        Self { process: Process::Hierarchical, manager: Some(manager.into()), ..Self::sequential() }
    }

    /// Adds a task.
    #[must_use]
    pub fn task(mut self, task: CrewTask) -> Self {
        self.tasks.push(task);
        self
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.tasks.iter().position(|task| task.name == name)
    }

    /// Names of the tasks whose results the task at `at` sees.
    pub(crate) fn context(&self, at: usize) -> Vec<&str> {
        match (&self.tasks[at].context, self.process) {
            (Some(names), _) => names.iter().map(String::as_str).collect(),
            (None, Process::Parallel) => Vec::new(),
            (None, Process::Sequential | Process::Hierarchical) => {
                at.checked_sub(1).map(|before| self.tasks[before].name.as_str()).into_iter().collect()
            }
        }
    }

    /// The agents that the manager may choose from.
    pub(crate) fn candidates<'a>(&'a self, team: &'a Team) -> Vec<&'a str> {
        let not_manager = |name: &&str| Some(*name) != self.manager.as_deref();
        if self.members.is_empty() {
            team.agents.iter().map(|agent| agent.name.as_str()).filter(not_manager).collect()
        } else {
            self.members.iter().map(String::as_str).collect()
        }
    }

    pub(crate) fn members<'a>(&'a self, team: &'a Team) -> Vec<&'a str> {
        let workers = self.tasks.iter().filter_map(|task| task.agent.as_deref());
        let judges = self.tasks.iter().filter_map(|task| task.check.as_ref()?.agent.as_deref());
        let mut all: Vec<&str> = workers.chain(judges).collect();
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
        let tries = |task: &CrewTask| task.check.as_ref().map_or(1, |check| 2 * u64::from(check.tries.max(1)));
        self.tasks.iter().map(|task| rounds * tries(task) * (1 + u64::from(task.retries))).sum()
    }

    /// The tools that checks of results and output files need.
    pub(crate) fn tools(&self) -> Vec<&str> {
        let has_command = |task: &CrewTask| task.check.as_ref().is_some_and(|check| check.command.is_some());
        let commands = self.tasks.iter().any(has_command).then_some(tool_names::BASH);
        let files = self.tasks.iter().any(|task| task.output_file.is_some()).then_some(tool_names::WRITE);
        commands.into_iter().chain(files).collect()
    }

    /// The task named as the output, or the tasks that no other task depends on.
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

    /// The schema of the crew's answer, if it is the answer of one task.
    pub(crate) fn schema(&self, registry: &Registry) -> Option<&Value> {
        let may_skip = |task: &CrewTask| match task.on_failure {
            OnTaskFailure::Skip => true,
            OnTaskFailure::Fail => false,
            OnTaskFailure::Report => task
                .agent
                .as_deref()
                .and_then(|name| registry.get(name).ok())
                .is_some_and(|agent| agent.task.on_failure == homing_core::definition::OnFailure::Skip),
        };
        match self.last_tasks().as_slice() {
            // If the last task may be skipped, its schema cannot be promised.
            [only] if self.tasks[*only].when.is_none() && !may_skip(&self.tasks[*only]) => {
                self.tasks[*only].schema.as_ref()
            }
            _ => None,
        }
    }
}

impl CrewTask {
    /// Creates a task for an agent.
    pub fn new(name: impl Into<String>, agent: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), agent: Some(agent.into()), description: description.into(), ..Self::default() }
    }

    /// Creates a task for which the manager chooses the agent.
    pub fn unassigned(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), ..Self::default() }
    }

    /// Tasks whose results it needs.
    #[must_use]
    pub fn context<'a>(mut self, tasks: impl IntoIterator<Item = &'a str>) -> Self {
        self.context = Some(tasks.into_iter().map(str::to_owned).collect());
        self
    }

    /// Description of the expected result.
    #[must_use]
    pub fn expects(mut self, output: impl Into<String>) -> Self {
        self.expected_output = Some(output.into());
        self
    }

    /// JSON schema of the result.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Sets the check of the result.
    #[must_use]
    pub fn check(mut self, check: TaskCheck) -> Self {
        self.check = Some(check);
        self
    }

    /// Sets the file that gets the result.
    #[must_use]
    pub fn output_file(mut self, path: impl Into<String>) -> Self {
        self.output_file = Some(path.into());
        self
    }

    /// Sets the condition: the task is skipped if it does not hold.
    #[must_use]
    pub fn when(mut self, condition: impl Into<String>) -> Self {
        self.when = Some(condition.into());
        self
    }

    /// Sets the limits of each execution.
    #[must_use]
    pub fn limits(mut self, limits: LimitFields) -> Self {
        self.limits = limits;
        self
    }

    /// Maximum number of retries after a failure.
    #[must_use]
    pub fn retries(mut self, times: u32) -> Self {
        self.retries = times;
        self
    }

    /// Sets the consequence of a failure, after all retries.
    #[must_use]
    pub fn on_failure(mut self, policy: OnTaskFailure) -> Self {
        self.on_failure = policy;
        self
    }
}
