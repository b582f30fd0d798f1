//! The program of a crew: which tasks can begin, which are under way, and what the crew answers in the end.

use std::{
    cell::LazyCell,
    collections::{HashMap, HashSet},
};

use serde_json::{Value, json};

use crate::{
    crew::{Crew, CrewTask, OnFailure, Process},
    failed,
    history::{Done, History, JobState},
    program::{Errand, Move, TeamCall, TeamScript, wait_for_any},
    team::{Team, TemplateScope},
    template,
};

pub(crate) struct CrewScript {
    pub(crate) crew: Crew,
    pub(crate) candidates: Vec<String>,
    scope: TemplateScope,
    /// Which tasks each one sees, and which it comes after, by position.
    context: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    /// Positions, each after all that it depends on.
    order: Vec<usize>,
}

/// How a task stands.
enum State {
    /// It needs others first.
    Waiting,
    /// It can begin, or go on, with this call.
    Open(TeamCall),
    /// It is under way.
    Running(String),
    /// It was left out.
    Skipped,
    /// It is behind us.
    Over(Done),
}

/// How one task gets on, whoever is asked about it.
pub(crate) enum Progress {
    /// Somebody is to be sent out.
    Next(TeamCall),
    /// Somebody is out.
    Running(String),
    /// It is behind us.
    Over(Box<Done>),
}

impl CrewScript {
    pub(crate) fn new(crew: &Crew, team: &Team) -> Self {
        let at: HashMap<&str, usize> =
            crew.tasks.iter().enumerate().map(|(at, task)| (task.name.as_str(), at)).collect();
        let positions =
            |names: Vec<&str>| names.into_iter().filter_map(|name| at.get(name).copied()).collect::<Vec<_>>();
        let context: Vec<Vec<usize>> = (0..crew.tasks.len()).map(|it| positions(crew.context(it))).collect();
        let after: Vec<Vec<usize>> = match crew.process {
            Process::Parallel => context.clone(),
            // One at a time, whatever it sees of the others.
            Process::Sequential | Process::Hierarchical => context
                .iter()
                .enumerate()
                .map(|(it, seen)| seen.iter().copied().chain(it.checked_sub(1)).collect())
                .collect(),
        };
        let order = in_order(&after);
        let candidates = crew.candidates(team).into_iter().map(str::to_owned).collect();
        Self { crew: crew.clone(), candidates, scope: team.scope(), context, after, order }
    }

    /// Every task's state; an error ends the crew.
    fn states(&self, past: &History<'_>) -> Result<Vec<State>, String> {
        let mut states: Vec<State> = self.crew.tasks.iter().map(|_| State::Waiting).collect();
        for at in &self.order {
            if self.after[*at].iter().all(|before| matches!(states[*before], State::Over(_) | State::Skipped)) {
                states[*at] = self.state(*at, past, &states)?;
            }
        }
        Ok(states)
    }

    /// What a task's templates see. Only what it waits for: that must not depend on who happened to be faster.
    fn scope_of(&self, at: usize, past: &History<'_>, states: &[State]) -> Value {
        let visible = self.after[at].iter().chain(&self.context[at]).filter_map(|it| {
            let shown = match &states[*it] {
                State::Over(done) => done.in_scope(),
                State::Skipped => json!({"status": "skipped", "output": "", "data": null, "error": null}),
                State::Waiting | State::Open(_) | State::Running(_) => return None,
            };
            Some((self.crew.tasks[*it].name.clone(), shown))
        });
        self.scope.with(past.task, [("results", Value::Object(visible.collect()))])
    }

    fn state(&self, at: usize, past: &History<'_>, states: &[State]) -> Result<State, String> {
        let task = &self.crew.tasks[at];
        let told = |why: String| format!("task `{}`: {why}", task.name);
        // Most tasks are behind us or under way, and need no scope to say so.
        let scope = LazyCell::new(|| self.scope_of(at, past, states));
        if let Some(condition) = &task.when
            && !template::holds(condition, &scope).map_err(told)?
        {
            return Ok(State::Skipped);
        }
        let progress = match self.crew.process {
            Process::Sequential | Process::Parallel => self.plain(at, past, || self.text(at, &scope)),
            Process::Hierarchical => self.managed(at, past, &scope),
        };
        match progress.map_err(told)? {
            Progress::Next(call) => Ok(State::Open(call)),
            Progress::Running(place) => Ok(State::Running(place)),
            Progress::Over(done) if done.is_done() => Ok(State::Over(*done)),
            Progress::Over(done) => match failed::policy(task.on_failure, &done) {
                OnFailure::Report => Ok(State::Over(*done)),
                OnFailure::Skip => Ok(State::Skipped),
                OnFailure::Fail => Err(failed::part(&format!("task `{}`", task.name), &done)),
            },
        }
    }

    /// A task that its agent does, and that is that.
    fn plain(
        &self,
        at: usize,
        past: &History<'_>,
        text: impl FnOnce() -> Result<String, String>,
    ) -> Result<Progress, String> {
        let task = &self.crew.tasks[at];
        match past.stand(&format!("task/{}", task.name), task.retries) {
            JobState::Over(done) => Ok(Progress::Over(Box::new(done))),
            JobState::Running { place } => Ok(Progress::Running(place)),
            JobState::Open { id } => {
                let text = text()?;
                let agent = task.agent.as_deref().unwrap_or_default();
                Ok(Progress::Next(self.errand(task, agent, text).call(id)))
            }
        }
    }

    pub(crate) fn errand<'a>(&self, task: &'a CrewTask, agent: &'a str, text: String) -> Errand<'a> {
        let background = self.crew.process == Process::Parallel;
        Errand { agent, task: text, schema: task.schema.as_ref(), bounds: &task.limits, background }
    }

    /// The task in full: what is to be done, what is to come out, what is there already.
    pub(crate) fn text(&self, at: usize, scope: &Value) -> Result<String, String> {
        let task = &self.crew.tasks[at];
        let mut text = template::render(&task.description, scope)?;
        if let Some(expected) = &task.expected_output {
            text.push_str(&format!("\n\nWhat is expected: {}", template::render(expected, scope)?));
        }
        let seen: Vec<String> = self.context[at].iter().filter_map(|it| self.result_of(*it, scope)).collect();
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

    /// The crew's answer: the result of its last task, or of its last tasks.
    fn answer(&self, states: &[State]) -> Move {
        let last = self.crew.last_tasks();
        let failed = self.not_delivered(&last, states);
        if !failed.is_empty() {
            return Move::Fail { why: failed::listed(&failed) };
        }
        let results: Vec<(&str, &Done)> = last.iter().filter_map(|at| self.over(states, *at)).collect();
        match results.as_slice() {
            [(_, only)] => Move::Answer { text: only.output.clone(), data: only.data.clone() },
            // Where the last tasks were skipped, what was done before them is what there is.
            [] => Move::Answer { text: self.report(states), data: None },
            several => {
                let parts: Vec<String> = several.iter().map(|(name, done)| section(name, done)).collect();
                Move::Answer { text: parts.join("\n\n"), data: None }
            }
        }
    }

    /// The tasks that failed and that the crew had to deliver: its last ones, and those whose results others need.
    fn not_delivered(&self, last: &[usize], states: &[State]) -> Vec<String> {
        let needed: HashSet<usize> = self.context.iter().flatten().chain(last).copied().collect();
        let over = (0..states.len()).filter(|at| needed.contains(at)).filter_map(|at| self.over(states, at));
        let failed = over.filter(|(_, done)| !done.is_done());
        failed.map(|(name, done)| failed::part(&format!("task `{name}`"), done)).collect()
    }

    fn over<'a>(&'a self, states: &'a [State], at: usize) -> Option<(&'a str, &'a Done)> {
        match &states[at] {
            State::Over(done) => Some((&self.crew.tasks[at].name, done)),
            State::Waiting | State::Open(_) | State::Running(_) | State::Skipped => None,
        }
    }

    fn report(&self, states: &[State]) -> String {
        let over = (0..states.len()).filter_map(|at| self.over(states, at));
        let parts: Vec<String> = over.map(|(name, done)| section(name, done)).collect();
        if parts.is_empty() { "No task was done.".to_owned() } else { parts.join("\n\n") }
    }
}

fn section(name: &str, done: &Done) -> String {
    let head = if done.is_done() { format!("## {name}") } else { format!("## {name} (not done: {})", done.why()) };
    format!("{head}\n{}", done.output.trim())
}

impl TeamScript for CrewScript {
    fn next(&self, past: &History<'_>) -> Move {
        let mut states = match self.states(past) {
            Ok(states) => states,
            Err(why) => return Move::Fail { why },
        };
        let (mut calls, mut running) = (Vec::new(), Vec::new());
        for state in &mut states {
            match std::mem::replace(state, State::Waiting) {
                State::Open(call) => calls.push(call),
                State::Running(place) => running.push(place),
                other @ (State::Waiting | State::Skipped | State::Over(_)) => *state = other,
            }
        }
        match (calls.is_empty(), running.is_empty()) {
            (false, _) => {
                let names: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
                Move::Act { words: format!("Next: {}", names.join(", ")), calls }
            }
            (true, false) => Move::Act { words: String::new(), calls: vec![wait_for_any(running)] },
            (true, true) => self.answer(&states),
        }
    }

    fn so_far(&self, past: &History<'_>) -> String {
        // A condition that cannot be judged is why the crew stops, not a reason to lose what others have done.
        self.states(past).map_or_else(|_| self.results_alone(past), |states| self.report(&states))
    }
}

impl CrewScript {
    /// What came of a task the last time it was done.
    fn last_result(&self, task: &CrewTask, past: &History<'_>) -> Option<Done> {
        match self.crew.process {
            Process::Sequential | Process::Parallel => past.done(&format!("task/{}", task.name), task.retries),
            Process::Hierarchical => (1..=self.crew.max_rounds.max(1))
                .rev()
                .find_map(|round| past.done(&format!("task/{}/{round}", task.name), task.retries)),
        }
    }

    fn results_alone(&self, past: &History<'_>) -> String {
        let done = |task: &CrewTask| Some(section(&task.name, &self.last_result(task, past)?));
        let parts: Vec<String> = self.crew.tasks.iter().filter_map(done).collect();
        if parts.is_empty() { "No task was done.".to_owned() } else { parts.join("\n\n") }
    }
}

/// Positions, each after all that it depends on; what stands in a circle is left out.
pub(crate) fn in_order(after: &[Vec<usize>]) -> Vec<usize> {
    let mut open: Vec<usize> = after.iter().map(Vec::len).collect();
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); after.len()];
    for (at, before) in after.iter().enumerate() {
        for it in before {
            followers[*it].push(at);
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
