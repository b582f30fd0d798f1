//! The same task for every item of a list, each by a run of its own, and the results in the order of the list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use homing_core::envelope::Envelope;

use crate::{
    crew::OnFailure,
    failed,
    graph::state::brief,
    history::{Done, History, JobState},
    limit_fields::LimitFields,
    program::{Errand, Move, TeamCall, TeamScript},
    team::{Team, TemplateScope},
    template,
};

/// The same task for every item of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Map {
    /// Who works on each item.
    pub agent: String,
    /// What is to be done with each: a template over `item`, `index` and `task`.
    pub each: String,
    /// The items; where there are none, the team's task is the list: a JSON array, or one item a line.
    pub items: Vec<Value>,
    /// JSON schema of the result of one item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// What each item may cost.
    pub limits: LimitFields,
    /// How often an item is tried again after a failure.
    pub retries: u32,
    /// Consequence of an item that failed, after all retries. By default the other items are done and reduced, and the map
    /// ends `failed` with all results; `skip` lets it end `done`; `fail` leaves out what is made of the results.
    pub on_failure: OnFailure,
    /// What is made of all results in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reduce: Option<Reduce>,
}

/// One more run that makes one answer of all results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reduce {
    /// Who does it.
    pub agent: String,
    /// What is to be done with the results, which follow it: a template over `task` and `results`.
    pub task: String,
    /// What it may spend.
    pub limits: LimitFields,
}

/// What came of one item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MapResult {
    /// The item.
    pub item: Value,
    /// How its run ended.
    pub status: String,
    /// Its answer.
    pub output: String,
    /// Its answer for programs.
    pub data: Option<Value>,
    /// What went wrong.
    pub error: Option<String>,
}

impl Map {
    /// A task, with `{{ item }}` in it, for an agent.
    pub fn new(agent: impl Into<String>, each: impl Into<String>) -> Self {
        Self { agent: agent.into(), each: each.into(), ..Self::default() }
    }

    /// The items.
    #[must_use]
    pub fn items(mut self, items: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        self.items.extend(items.into_iter().map(Into::into));
        self
    }

    /// What each item may spend.
    #[must_use]
    pub fn limits(mut self, limits: LimitFields) -> Self {
        self.limits = limits;
        self
    }

    /// Consequence of an item that failed.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = policy;
        self
    }

    /// One more run that makes one answer of all results.
    #[must_use]
    pub fn reduce(mut self, agent: impl Into<String>, task: impl Into<String>) -> Self {
        self.reduce = Some(Reduce { agent: agent.into(), task: task.into(), limits: LimitFields::default() });
        self
    }

    pub(crate) fn agents(&self) -> Vec<&str> {
        [self.agent.as_str()].into_iter().chain(self.reduce.as_ref().map(|it| it.agent.as_str())).collect()
    }

    pub(crate) fn size(&self) -> u64 {
        // Items that come with the task are not known yet; there may be a thousand.
        let items = if self.items.is_empty() { 1_000 } else { self.items.len() as u64 };
        items * (1 + u64::from(self.retries)) + 1
    }

    /// The items of a team whose task is this.
    fn items_of(&self, task: &str) -> Vec<Value> {
        if !self.items.is_empty() {
            return self.items.clone();
        }
        match serde_json::from_str::<Value>(task) {
            Ok(Value::Array(items)) => items,
            Ok(_) | Err(_) => task.lines().map(str::trim).filter(|line| !line.is_empty()).map(Value::from).collect(),
        }
    }
}

/// The results of a map that has ended, in the order of its items. Empty where it ended in something else.
pub fn map_results(envelope: &Envelope) -> Vec<MapResult> {
    envelope.output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

pub(crate) struct MapScript {
    map: Map,
    scope: TemplateScope,
}

impl MapScript {
    pub(crate) fn new(map: &Map, team: &Team) -> Self {
        Self { map: map.clone(), scope: team.scope() }
    }

    fn call(&self, id: String, index: usize, item: &Value, task: &str) -> Result<TeamCall, String> {
        let scope = self.scope.with(task, [("item", item.clone()), ("index", json!(index))]);
        let text = template::render(&self.map.each, &scope)?;
        let (agent, schema, bounds) = (&self.map.agent, self.map.schema.as_ref(), &self.map.limits);
        Ok(Errand { agent, task: text, schema, bounds, background: false }.call(id))
    }

    fn lines(&self, past: &History<'_>) -> String {
        let items = self.map.items_of(past.task);
        let line = |(index, item): (usize, &Value)| {
            let Done { status, output, data, error, .. } = self.item(index, past).unwrap_or_else(Done::open);
            serde_json::to_string(&MapResult { item: item.clone(), status, output, data, error }).unwrap_or_default()
        };
        items.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
    }

    /// What came of an item that is over.
    fn item(&self, index: usize, past: &History<'_>) -> Option<Done> {
        past.done(&format!("item/{index}"), self.map.retries)
    }

    /// The items that failed and count, each in the words of the map's own failure.
    fn failed(&self, items: &[Value], past: &History<'_>) -> Vec<String> {
        let part = |(index, item): (usize, &Value)| {
            let done = self.item(index, past).filter(|done| !done.is_done())?;
            let counts = failed::policy(self.map.on_failure, &done) != OnFailure::Skip;
            counts.then(|| failed::part(&format!("item {index}, {}", brief(item)), &done))
        };
        items.iter().enumerate().filter_map(part).collect()
    }

    /// The end of a map of which every item is over.
    fn end(&self, items: &[Value], past: &History<'_>) -> Move {
        let failed = self.failed(items, past);
        let why = || format!("{} of {} items failed: {}", failed.len(), items.len(), failed::listed(&failed));
        // Nothing can be made of nothing, and `fail` spends no more.
        let is_hopeless = failed.len() == items.len() || self.map.on_failure == OnFailure::Fail;
        if !failed.is_empty() && is_hopeless {
            return Move::Fail { why: why() };
        }
        match self.map.reduce.as_ref().map(|reduce| self.reduce(reduce, past)) {
            Some(unfinished @ Move::Act { .. }) => unfinished,
            Some(Move::Fail { why: of_reduce }) if !failed.is_empty() => {
                Move::Fail { why: format!("{of_reduce}; {}", why()) }
            }
            Some(failure @ Move::Fail { .. }) => failure,
            Some(Move::Answer { .. }) | None if !failed.is_empty() => Move::Fail { why: why() },
            Some(answer @ Move::Answer { .. }) => answer,
            None => Move::Answer { text: self.lines(past), data: None },
        }
    }

    fn reduce(&self, reduce: &Reduce, past: &History<'_>) -> Move {
        let done = match past.stand("reduce", 0) {
            JobState::Over(done) => done,
            // Foreground delegations never stay under way.
            JobState::Running { place } => return Move::Fail { why: format!("run {place} is still under way") },
            JobState::Open { id } => {
                let results = self.lines(past);
                let scope = self.scope.with(past.task, [("results", json!(results))]);
                return match template::render(&reduce.task, &scope) {
                    Err(why) => Move::Fail { why: format!("reduce: {why}") },
                    Ok(text) => {
                        let task = format!("{text}\n\nResults, one a line:\n{results}");
                        let errand = Errand {
                            agent: &reduce.agent,
                            task,
                            schema: None,
                            bounds: &reduce.limits,
                            background: false,
                        };
                        Move::Act { words: "Next: reduce".to_owned(), calls: vec![errand.call(id)] }
                    }
                };
            }
        };
        match done.is_done() {
            true => Move::Answer { text: done.output, data: None },
            false => Move::Fail { why: failed::part("reduce", &done) },
        }
    }
}

impl TeamScript for MapScript {
    fn next(&self, past: &History<'_>) -> Move {
        let items = self.map.items_of(past.task);
        let mut calls = Vec::new();
        for (index, item) in items.iter().enumerate() {
            if let JobState::Open { id } = past.stand(&format!("item/{index}"), self.map.retries) {
                match self.call(id, index, item, past.task) {
                    Ok(call) => calls.push(call),
                    Err(why) => return Move::Fail { why: format!("each: {why}") },
                }
            }
        }
        if !calls.is_empty() {
            return Move::Act { words: format!("Next: {} of {} items", calls.len(), items.len()), calls };
        }
        if items.is_empty() {
            return Move::Fail { why: "there are no items".to_owned() };
        }
        self.end(&items, past)
    }

    fn so_far(&self, past: &History<'_>) -> String {
        let lines = self.lines(past);
        match past.done("reduce", 0).map(|done| done.output).filter(|text| !text.trim().is_empty()) {
            Some(reduced) => format!("{}\n\nResults, one a line:\n{lines}", reduced.trim_end()),
            None if lines.is_empty() => "There were no items.".to_owned(),
            None => lines,
        }
    }
}
