//! Maps: the same task for every item of a list, each in its own run, with the results in the order of the list.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use homing_core::envelope::Envelope;

use crate::{
    crew::OnTaskFailure,
    failed,
    graph::state::brief,
    history::{History, JobResult, JobState},
    limit_fields::LimitFields,
    program::{DelegateCall, Move, TeamCall, TeamScript},
    source::TeamSource,
    team::{Team, TemplateScope},
    template,
};

/// The same task for every item of a list.
///
/// # Examples
///
/// ```
/// # use homing_teams as homing;
/// use homing::{Map, Team};
///
/// let map = Map::new("translator", "Translate {{ item }} to French").items(["one", "two"]);
/// assert_eq!(Team::new("words", map).members(), ["translator"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "The same task for every item of a list.")]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Map {
    /// Agent that works on each item.
    pub agent: String,
    /// Task for each item: a template over `item`, `index` and `task`.
    pub each: String,
    /// The items. If empty, the team's task is the list: a JSON array, or one item per line.
    pub items: Vec<Value>,
    /// JSON schema of the result of one item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Limits of each item.
    pub limits: LimitFields,
    /// Maximum number of retries of an item after a failure.
    pub retries: u32,
    /// Consequence of an item that failed, after all retries. By default the other items are done and reduced, and the map
    /// ends `failed` with all results; `skip` lets it end `done`; `fail` omits the reduction.
    pub on_failure: OnTaskFailure,
    /// Run that combines all results at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reduce: Option<Box<Reduce>>,
}

/// A run that combines all results into one answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Reduce {
    /// Agent that combines the results.
    pub agent: String,
    /// Its task, which the results follow: a template over `task` and `results`.
    pub task: String,
    /// Limits of the run.
    pub limits: LimitFields,
}

/// The result of one item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MapResult {
    /// The item.
    pub item: Value,
    /// Status of its run.
    pub status: String,
    /// Its answer.
    pub output: String,
    /// Its structured answer.
    pub data: Option<Value>,
    /// The error, if it failed.
    pub error: Option<String>,
}

impl Map {
    /// Creates a map with an agent and a task that contains `{{ item }}`.
    pub fn new(agent: impl Into<String>, each: impl Into<String>) -> Self {
        Self { agent: agent.into(), each: each.into(), ..Self::default() }
    }

    /// Adds items.
    #[must_use]
    pub fn items(mut self, items: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        self.items.extend(items.into_iter().map(Into::into));
        self
    }

    /// Sets the limits of each item.
    #[must_use]
    pub fn limits(mut self, limits: LimitFields) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the consequence of an item that failed.
    #[must_use]
    pub fn on_failure(mut self, policy: OnTaskFailure) -> Self {
        self.on_failure = policy;
        self
    }

    /// Sets the run that combines all results into one answer.
    #[must_use]
    pub fn reduce(mut self, agent: impl Into<String>, task: impl Into<String>) -> Self {
        let limits = LimitFields::default();
        self.reduce = Some(Box::new(Reduce { agent: agent.into(), task: task.into(), limits }));
        self
    }

    pub(crate) fn agents(&self) -> Vec<&str> {
        [self.agent.as_str()].into_iter().chain(self.reduce.as_ref().map(|reduce| reduce.agent.as_str())).collect()
    }

    pub(crate) fn size(&self) -> Option<u64> {
        // Items that are given as the task are not known yet.
        let is_known = !self.items.is_empty();
        is_known.then(|| self.items.len() as u64 * (1 + u64::from(self.retries)) + 1)
    }

    /// The items of a team with this task.
    fn items_of(&self, task: &str) -> Cow<'_, [Value]> {
        if !self.items.is_empty() {
            return Cow::Borrowed(&self.items);
        }
        match serde_json::from_str::<Value>(task) {
            Ok(Value::Array(items)) => items.into(),
            Ok(_) | Err(_) => task.lines().map(str::trim).filter(|line| !line.is_empty()).map(Value::from).collect(),
        }
    }
}

/// The results of a map that has ended, in the order of its items; empty if the output is not a list of results.
pub fn map_results(envelope: &Envelope) -> Vec<MapResult> {
    envelope.output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

pub(crate) struct MapScript {
    map: Map,
    scope: TemplateScope,
    source: TeamSource,
}

impl MapScript {
    pub(crate) fn new(map: &Map, team: &Team) -> Self {
        Self { map: map.clone(), scope: team.scope(), source: team.source.clone() }
    }

    fn call(&self, id: String, index: usize, item: &Value, task: &str) -> Result<TeamCall, String> {
        let scope = self.scope.with(task, [("item", item.clone()), ("index", json!(index))]);
        let text = template::render(&self.map.each, &scope)?;
        let (agent, schema, limits) = (&self.map.agent, self.map.schema.as_ref(), &self.map.limits);
        Ok(DelegateCall { agent, task: text, schema, limits, background: false }.call(id))
    }

    fn lines(&self, history: &History<'_>) -> String {
        let line = |result: MapResult| serde_json::to_string(&result).unwrap_or_default();
        let items = self.map.items_of(history.own_task);
        let mut lines = String::new();
        for (index, item) in items.iter().enumerate() {
            lines.push_str(if index > 0 { "\n" } else { "" });
            lines.push_str(&line(self.item_result(index, item, history)));
        }
        lines
    }

    /// The result of an item, which may not have ended.
    fn item_result(&self, index: usize, item: &Value, history: &History<'_>) -> MapResult {
        let item = item.clone();
        match self.item(index, history) {
            Some(JobResult { status, output, data, error, .. }) => {
                MapResult { item, status: status.name().to_owned(), output, data, error }
            }
            None => MapResult { item, status: "open".to_owned(), output: String::new(), data: None, error: None },
        }
    }

    /// The result of an item that has ended.
    fn item(&self, index: usize, history: &History<'_>) -> Option<JobResult> {
        history.result(&format!("item/{index}"), self.map.retries)
    }

    /// Descriptions of the items that failed and count.
    fn failed(&self, items: &[Value], history: &History<'_>) -> Vec<String> {
        let part = |(index, item): (usize, &Value)| {
            let done = self.item(index, history).filter(|done| !done.is_done())?;
            let counts = failed::policy(self.map.on_failure, &done) != OnTaskFailure::Skip;
            counts.then(|| failed::part(&format!("item {index}, {}", brief(item)), &done))
        };
        items.iter().enumerate().filter_map(part).collect()
    }

    /// The last move of a map, once every item has ended.
    fn end(&self, items: &[Value], history: &History<'_>) -> Move {
        let failed = self.failed(items, history);
        let why = || format!("{} of {} items failed: {}", failed.len(), items.len(), failed::listed(&failed));
        // Without any result there is nothing to reduce, and `fail` spends no more.
        let is_hopeless = failed.len() == items.len() || self.map.on_failure == OnTaskFailure::Fail;
        if !failed.is_empty() && is_hopeless {
            return Move::Fail { why: why() };
        }
        match self.map.reduce.as_ref().map(|reduce| self.reduce(reduce, history)) {
            Some(unfinished @ Move::Act { .. }) => unfinished,
            Some(Move::Fail { why: of_reduce }) if !failed.is_empty() => {
                Move::Fail { why: format!("{of_reduce}; {}", why()) }
            }
            Some(failure @ Move::Fail { .. }) => failure,
            Some(Move::Answer { .. }) | None if !failed.is_empty() => Move::Fail { why: why() },
            Some(answer @ Move::Answer { .. }) => answer,
            None => Move::Answer { text: self.lines(history), data: None },
        }
    }

    fn reduce(&self, reduce: &Reduce, history: &History<'_>) -> Move {
        let done = match history.job("reduce", 0) {
            JobState::Ended(done) => done,
            // Foreground delegations never stay running.
            JobState::Running { place } => return Move::Fail { why: format!("run {place} is still running") },
            JobState::Open { id } => {
                let results = self.lines(history);
                let scope = self.scope.with(&history.task, [("results", json!(results))]);
                return match template::render(&reduce.task, &scope) {
                    Err(why) => Move::Fail { why: format!("{}reduce: {why}", self.source.at("map.reduce")) },
                    Ok(text) => {
                        let task = format!("{text}\n\nResults, one per line:\n{results}");
                        let call = DelegateCall {
                            agent: &reduce.agent,
                            task,
                            schema: None,
                            limits: &reduce.limits,
                            background: false,
                        };
                        Move::Act { words: "Next: reduce".to_owned(), calls: vec![call.call(id)] }
                    }
                };
            }
        };
        if done.is_done() {
            Move::Answer { text: done.output, data: None }
        } else {
            Move::Fail { why: failed::part("reduce", &done) }
        }
    }
}

impl TeamScript for MapScript {
    fn next(&self, history: &History<'_>) -> Move {
        let items = self.map.items_of(history.own_task);
        let mut calls = Vec::new();
        for (index, item) in items.iter().enumerate() {
            if let JobState::Open { id } = history.job(&format!("item/{index}"), self.map.retries) {
                match self.call(id, index, item, &history.task) {
                    Ok(call) => calls.push(call),
                    Err(why) => return Move::Fail { why: format!("{}each: {why}", self.source.at("map.each")) },
                }
            }
        }
        if !calls.is_empty() {
            return Move::Act { words: format!("Next: {} of {} items", calls.len(), items.len()), calls };
        }
        if items.is_empty() {
            return Move::Fail { why: format!("{}there are no items", self.source.at("map")) };
        }
        self.end(&items, history)
    }

    fn results(&self, history: &History<'_>) -> Value {
        let reduced = history.result("reduce", 0).filter(JobResult::is_done).map(|done| done.output);
        let items = self.map.items_of(history.own_task);
        let result = |(index, item)| json!(self.item_result(index, item, history));
        let results: Value = items.iter().enumerate().map(result).collect();
        // Moved, because `json!` would copy the results.
        [("items".to_owned(), results), ("reduced".to_owned(), reduced.into())]
            .into_iter()
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    fn so_far(&self, history: &History<'_>) -> String {
        let lines = self.lines(history);
        match history.result("reduce", 0).map(|done| done.output).filter(|text| !text.trim().is_empty()) {
            Some(reduced) => format!("{}\n\nResults, one per line:\n{lines}", reduced.trim_end()),
            None if lines.is_empty() => "There were no items.".to_owned(),
            None => lines,
        }
    }
}
