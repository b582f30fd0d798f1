//! The program of a crew: starts tasks whose dependencies are done, waits for running ones, and builds the answer.

use std::{
    cell::LazyCell,
    collections::{HashMap, HashSet},
};

use homing_core::{place::Place, registry::Registry, tool_names};
use serde_json::{Value, json};

use crate::{
    crew::{Crew, CrewTask, OnTaskFailure, Process},
    failed,
    history::{History, JobResult, JobState},
    program::{DelegateCall, Move, TeamCall, TeamScript, wait_for_any},
    source::TeamSource,
    team::{Team, TemplateScope},
    template,
};

pub(crate) struct CrewScript {
    pub(crate) crew: Crew,
    pub(crate) candidates: Vec<String>,
    /// The candidates with their descriptions, one per line.
    pub(crate) described: String,
    scope: TemplateScope,
    source: TeamSource,
    /// The tasks whose results each task sees, by position.
    context: Vec<Vec<usize>>,
    /// The tasks that each task comes after, by position.
    after: Vec<Vec<usize>>,
    /// Positions of the tasks, each after all it depends on.
    order: Vec<usize>,
}

/// The state of a task.
enum TaskState {
    /// It waits for other tasks.
    Waiting,
    /// It starts or continues with this call.
    Open(TeamCall),
    /// It is running.
    Running(Place),
    /// It was skipped.
    Skipped,
    /// It has ended.
    Ended(Box<JobResult>),
}

impl TaskState {
    /// Returns whether the task is finished for good.
    fn is_over(&self) -> bool {
        match self {
            Self::Skipped | Self::Ended(_) => true,
            Self::Waiting | Self::Open(_) | Self::Running(_) => false,
        }
    }
}

/// The progress of one task.
pub(crate) enum TaskProgress {
    /// A member has to be started.
    Next(TeamCall),
    /// A member is running.
    Running(Place),
    /// It has ended.
    Ended(Box<JobResult>),
}

impl CrewScript {
    pub(crate) fn new(crew: &Crew, team: &Team, registry: &Registry) -> Self {
        let at: HashMap<&str, usize> =
            crew.tasks.iter().enumerate().map(|(at, task)| (task.name.as_str(), at)).collect();
        let positions =
            |names: Vec<&str>| names.into_iter().filter_map(|name| at.get(name).copied()).collect::<Vec<_>>();
        let context: Vec<Vec<usize>> = (0..crew.tasks.len()).map(|task| positions(crew.context(task))).collect();
        let after: Vec<Vec<usize>> = match crew.process {
            Process::Parallel => context.clone(),
            // One at a time, whatever results it sees.
            Process::Sequential | Process::Hierarchical => context
                .iter()
                .enumerate()
                .map(|(task, seen)| seen.iter().copied().chain(task.checked_sub(1)).collect())
                .collect(),
        };
        let order = in_order(&after);
        let candidates: Vec<String> = crew.candidates(team).into_iter().map(str::to_owned).collect();
        let described = described(&candidates, registry);
        let (scope, source) = (team.scope(), team.source.clone());
        Self { crew: crew.clone(), candidates, described, scope, source, context, after, order }
    }

    /// The state of every task; an error ends the crew. The tasks that are over stay so, and are taken from the turn before.
    fn states(&self, history: &History<'_>) -> Result<Vec<TaskState>, String> {
        let waiting = || self.crew.tasks.iter().map(|_| TaskState::Waiting).collect();
        let mut states: Vec<TaskState> = history.take_derived().unwrap_or_else(waiting);
        for at in &self.order {
            if states[*at].is_over() {
                continue;
            }
            states[*at] = TaskState::Waiting;
            if self.after[*at].iter().all(|before| states[*before].is_over()) {
                states[*at] = self.state(*at, history, &states)?;
            }
        }
        Ok(states)
    }

    /// The values that the templates of a task see: only tasks it waits for, so that they do not depend on timing.
    fn scope_of(&self, at: usize, history: &History<'_>, states: &[TaskState]) -> Value {
        let visible = self.after[at].iter().chain(&self.context[at]).filter_map(|task| {
            let shown = match &states[*task] {
                TaskState::Ended(done) => done.in_scope(),
                TaskState::Skipped => json!({"status": "skipped", "output": "", "data": null, "error": null}),
                TaskState::Waiting | TaskState::Open(_) | TaskState::Running(_) => return None,
            };
            Some((self.crew.tasks[*task].name.clone(), shown))
        });
        self.scope.with(&history.task, [("results", Value::Object(visible.collect()))])
    }

    fn state(&self, at: usize, history: &History<'_>, states: &[TaskState]) -> Result<TaskState, String> {
        let task = &self.crew.tasks[at];
        let in_task =
            |why: String| format!("{}task `{}`: {why}", self.source.at(&format!("crew.tasks[{at}]")), task.name);
        // Most tasks have ended or are running, and then no scope is needed.
        let scope = LazyCell::new(|| self.scope_of(at, history, states));
        if let Some(condition) = &task.when
            && !template::holds(condition, &scope).map_err(in_task)?
        {
            return Ok(TaskState::Skipped);
        }
        let progress = match self.crew.process {
            Process::Sequential | Process::Parallel => match &task.check {
                Some(check) => self.text(at, &scope).and_then(|text| self.checked(task, check, &text, history)),
                None => self.plain(at, history, || self.text(at, &scope)),
            },
            Process::Hierarchical => self.managed(at, history, &scope),
        };
        let progress = progress.and_then(|progress| match progress {
            TaskProgress::Ended(done) if done.is_done() && task.output_file.is_some() => {
                self.with_file(task, *done, history, &scope)
            }
            other => Ok(other),
        });
        match progress.map_err(in_task)? {
            TaskProgress::Next(call) => Ok(TaskState::Open(call)),
            TaskProgress::Running(place) => Ok(TaskState::Running(place)),
            TaskProgress::Ended(done) if done.is_done() => Ok(TaskState::Ended(done)),
            TaskProgress::Ended(done) => match failed::policy(task.on_failure, &done) {
                OnTaskFailure::Report => Ok(TaskState::Ended(done)),
                OnTaskFailure::Skip => Ok(TaskState::Skipped),
                OnTaskFailure::Fail => Err(failed::part(&format!("task `{}`", task.name), &done)),
            },
        }
    }

    /// The progress of a task whose result is also written to a file. A file that cannot be written fails the task.
    fn with_file(
        &self,
        task: &CrewTask,
        mut done: JobResult,
        history: &History<'_>,
        scope: &Value,
    ) -> Result<TaskProgress, String> {
        let path = task.output_file.as_deref().unwrap_or_default();
        match history.job(&format!("file/{}", task.name), 0) {
            JobState::Open { id } => {
                let content = done.data.as_ref().map_or_else(|| done.output.clone(), |data| format!("{data:#}"));
                let args = json!({"path": template::render(path, scope)?, "content": content});
                Ok(TaskProgress::Next(TeamCall { id, tool: tool_names::WRITE.to_owned(), args }))
            }
            JobState::Running { place } => Ok(TaskProgress::Running(place)),
            JobState::Ended(written) => {
                if !written.is_done() {
                    done.status = written.status;
                    done.error = Some(format!("the result could not be written: {}", written.why()));
                }
                Ok(TaskProgress::Ended(Box::new(done)))
            }
        }
    }

    /// The progress of a task without a manager.
    fn plain(
        &self,
        at: usize,
        history: &History<'_>,
        text: impl FnOnce() -> Result<String, String>,
    ) -> Result<TaskProgress, String> {
        let task = &self.crew.tasks[at];
        match history.job(&format!("task/{}", task.name), task.retries) {
            JobState::Ended(done) => Ok(TaskProgress::Ended(Box::new(done))),
            JobState::Running { place } => Ok(TaskProgress::Running(place)),
            JobState::Open { id } => {
                let text = text()?;
                let agent = task.agent.as_deref().unwrap_or_default();
                Ok(TaskProgress::Next(self.delegate_call(task, agent, text).call(id)))
            }
        }
    }

    pub(crate) fn delegate_call<'a>(&self, task: &'a CrewTask, agent: &'a str, text: String) -> DelegateCall<'a> {
        let background = self.runs_in_background();
        DelegateCall { agent, task: text, schema: task.schema.as_ref(), limits: &task.limits, background }
    }

    pub(super) fn runs_in_background(&self) -> bool {
        self.crew.process == Process::Parallel
    }

    /// The full text of a task: its description, the expected result, and the results of earlier tasks.
    pub(crate) fn text(&self, at: usize, scope: &Value) -> Result<String, String> {
        let task = &self.crew.tasks[at];
        let mut text = template::render(&task.description, scope)?;
        if let Some(expected) = &task.expected_output {
            text.push_str(&format!("\n\nExpected result: {}", template::render(expected, scope)?));
        }
        let seen: Vec<String> = self.context[at].iter().filter_map(|task| self.result_of(*task, scope)).collect();
        if !seen.is_empty() {
            text.push_str(&format!("\n\nResults of earlier tasks:\n\n{}", seen.join("\n\n")));
        }
        Ok(text)
    }

    fn result_of(&self, at: usize, scope: &Value) -> Option<String> {
        let task = &self.crew.tasks[at];
        let result = scope.get("results")?.get(&task.name)?;
        let field = |key: &str| result.get(key).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
        match field("status").as_str() {
            "done" => Some(format!("## {}\n{}", task.name, field("output"))),
            "skipped" => None,
            _ => {
                Some(format!("## {} (not done: {})\n{}", task.name, field("error"), field("output")).trim().to_owned())
            }
        }
    }

    /// The crew's answer: the results of its last tasks.
    fn answer(&self, states: &[TaskState]) -> Move {
        let last = self.crew.last_tasks();
        let failed = self.not_delivered(&last, states);
        if !failed.is_empty() {
            return Move::Fail { why: failed::listed(&failed) };
        }
        let results: Vec<(&str, &JobResult)> = last.iter().filter_map(|at| self.over(states, *at)).collect();
        match results.as_slice() {
            [(_, only)] => Move::Answer { text: only.output.clone(), data: only.data.clone() },
            // If the last tasks were skipped, the answer is the report of the others.
            [] => Move::Answer { text: self.report(states), data: None },
            several => {
                let parts: Vec<String> = several.iter().map(|(name, done)| section(name, done)).collect();
                Move::Answer { text: parts.join("\n\n"), data: None }
            }
        }
    }

    /// The tasks that failed and that the crew had to deliver: its last ones, and those whose results others need.
    fn not_delivered(&self, last: &[usize], states: &[TaskState]) -> Vec<String> {
        let needed: HashSet<usize> = self.context.iter().flatten().chain(last).copied().collect();
        let over = (0..states.len()).filter(|at| needed.contains(at)).filter_map(|at| self.over(states, at));
        let failed = over.filter(|(_, done)| !done.is_done());
        failed.map(|(name, done)| failed::part(&format!("task `{name}`"), done)).collect()
    }

    fn over<'a>(&'a self, states: &'a [TaskState], at: usize) -> Option<(&'a str, &'a JobResult)> {
        match &states[at] {
            TaskState::Ended(done) => Some((&self.crew.tasks[at].name, done)),
            TaskState::Waiting | TaskState::Open(_) | TaskState::Running(_) | TaskState::Skipped => None,
        }
    }

    fn report(&self, states: &[TaskState]) -> String {
        let over = (0..states.len()).filter_map(|at| self.over(states, at));
        let parts: Vec<String> = over.map(|(name, done)| section(name, done)).collect();
        if parts.is_empty() { "No task has ended.".to_owned() } else { parts.join("\n\n") }
    }
}

fn section(name: &str, done: &JobResult) -> String {
    let head = if done.is_done() { format!("## {name}") } else { format!("## {name} (not done: {})", done.why()) };
    format!("{head}\n{}", done.output.trim())
}

impl TeamScript for CrewScript {
    fn next(&self, history: &History<'_>) -> Move {
        let mut states = match self.states(history) {
            Ok(states) => states,
            Err(why) => return Move::Fail { why },
        };
        let (mut calls, mut running) = (Vec::new(), Vec::new());
        for state in &mut states {
            match state {
                TaskState::Waiting | TaskState::Skipped | TaskState::Ended(_) => continue,
                TaskState::Open(_) | TaskState::Running(_) => (),
            }
            match std::mem::replace(state, TaskState::Waiting) {
                TaskState::Open(call) => calls.push(call),
                TaskState::Running(place) => running.push(place),
                TaskState::Waiting | TaskState::Skipped | TaskState::Ended(_) => (),
            }
        }
        let next = match (calls.is_empty(), running.is_empty()) {
            (false, _) => {
                let names: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
                Move::Act { words: format!("Next: {}", names.join(", ")), calls }
            }
            (true, false) => Move::Act { words: String::new(), calls: vec![wait_for_any(running)] },
            (true, true) => self.answer(&states),
        };
        history.keep_derived(states);
        next
    }

    fn results(&self, history: &History<'_>) -> Value {
        let states = self.states(history).unwrap_or_default();
        let result = |(at, task): (usize, &CrewTask)| {
            let shown = match states.get(at) {
                Some(TaskState::Skipped) => json!({"status": "skipped"}),
                Some(TaskState::Ended(done)) => done.in_scope(),
                Some(TaskState::Waiting | TaskState::Open(_) | TaskState::Running(_)) | None => {
                    self.last_result(task, history).map_or_else(|| json!({"status": "open"}), |done| done.in_scope())
                }
            };
            (task.name.clone(), shown)
        };
        let tasks: serde_json::Map<String, Value> = self.crew.tasks.iter().enumerate().map(result).collect();
        json!({"tasks": tasks})
    }

    fn so_far(&self, history: &History<'_>) -> String {
        // If a condition cannot be evaluated the crew stops, but the results of other tasks are kept.
        self.states(history).map_or_else(|_| self.results_alone(history), |states| self.report(&states))
    }
}

/// Agents with their descriptions, one per line, so that a model can choose among them.
pub(crate) fn described(names: &[String], registry: &Registry) -> String {
    let line = |name: &String| {
        let description = registry.get(name).map(|agent| agent.description.trim().to_owned()).unwrap_or_default();
        if description.is_empty() { format!("- {name}") } else { format!("- {name}: {description}") }
    };
    names.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl CrewScript {
    /// The last result of a task.
    fn last_result(&self, task: &CrewTask, history: &History<'_>) -> Option<JobResult> {
        let rounds = match (self.crew.process, &task.check) {
            (Process::Sequential | Process::Parallel, None) => {
                return history.result(&format!("task/{}", task.name), task.retries);
            }
            (Process::Sequential | Process::Parallel, Some(check)) => check.tries,
            (Process::Hierarchical, _) => self.crew.max_rounds,
        };
        let result = |round| history.result(&format!("task/{}/{round}", task.name), task.retries);
        (1..=rounds.max(1)).rev().find_map(result)
    }

    fn results_alone(&self, history: &History<'_>) -> String {
        let done = |task: &CrewTask| Some(section(&task.name, &self.last_result(task, history)?));
        let parts: Vec<String> = self.crew.tasks.iter().filter_map(done).collect();
        if parts.is_empty() { "No task has ended.".to_owned() } else { parts.join("\n\n") }
    }
}

/// Positions, each after all it depends on; those in a cycle are left out.
pub(crate) fn in_order(after: &[Vec<usize>]) -> Vec<usize> {
    let mut open: Vec<usize> = after.iter().map(Vec::len).collect();
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); after.len()];
    for (at, before) in after.iter().enumerate() {
        for dependency in before {
            followers[*dependency].push(at);
        }
    }
    let mut ready: std::collections::VecDeque<usize> = (0..after.len()).filter(|at| open[*at] == 0).collect();
    let mut order = Vec::with_capacity(after.len());
    while let Some(at) = ready.pop_front() {
        order.push(at);
        for next in &followers[at] {
            open[*next] -= 1;
            if open[*next] == 0 {
                ready.push_back(*next);
            }
        }
    }
    order
}
