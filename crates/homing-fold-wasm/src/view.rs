//! `View`: the state of a tree at one position, in the form that pages show.

use std::collections::BTreeMap;

use homing_core::{
    envelope::{Status, status},
    fact::{CancelledBy, Ended, LimitHit, Outcome, Reservation},
    limits::Limit,
    question::OpenQuestion,
    run::{Run, Totals},
};
use serde::Serialize;
use uuid::Uuid;

use crate::{
    Folded,
    timeline::{RunTimes, Segment, shorten, subject},
};

/// Longest task and answer in a row, in bytes. The facts have the whole texts.
const MAX_TEXT: usize = 400;

/// The state of a tree at one position.
#[derive(Serialize)]
pub struct View<'a> {
    /// Number of records that it includes.
    pub position: u64,
    /// Number of records that there are.
    pub total: u64,
    /// Time of the first record, in milliseconds since 1970.
    pub start: u64,
    /// Time of the last included record, in milliseconds since the first one.
    pub now: u64,
    /// True if nothing can happen before the user answers a question.
    pub parked: bool,
    /// Questions that wait for an answer.
    pub questions: Vec<OpenQuestion>,
    /// The states of the nodes of a team, if the root is one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<&'a str, Status>,
    /// The runs in the order in which they were spawned; the root is first.
    pub rows: Vec<Row<'a>>,
}

/// One run.
#[derive(Serialize)]
pub struct Row<'a> {
    /// Run ID.
    pub run: Uuid,
    /// Its place.
    pub place: String,
    /// Position of its parent in the list of rows.
    pub parent: Option<usize>,
    /// The agent and its model.
    #[serde(flatten)]
    pub who: Who<'a>,
    /// The first line of its task.
    pub task: String,
    /// Status as far as the facts show it; they do not show whether a process works on the run.
    pub status: Status,
    /// True if it was asked to stop.
    pub stopping: bool,
    /// Usage of this run.
    pub own: Figures,
    /// Usage of this run and all runs below it.
    pub subtree: Figures,
    /// Amount that is held by open calls and for landings, of this run and all runs below it.
    pub held: Reservation,
    /// Its limits that have a number.
    pub limits: BTreeMap<&'static str, u64>,
    /// Its current call, or what it waits for.
    pub activity: Option<Activity>,
    /// Reasons for a user to look at it.
    pub trouble: Vec<Trouble>,
    /// The first line of its answer, once it has ended.
    pub answer: Option<String>,
    /// When things happened.
    #[serde(flatten)]
    pub times: Times<'a>,
}

/// The agent of a run.
#[derive(Serialize)]
pub struct Who<'a> {
    /// Name of the agent.
    pub agent: &'a str,
    /// The model of its last call, or the first of its list.
    pub model: &'a str,
    /// Reasoning effort, if one is set.
    pub effort: Option<String>,
    /// True if its parent does not wait for it.
    pub background: bool,
    /// Tags.
    pub tags: &'a BTreeMap<String, String>,
}

/// When things happened to a run, in milliseconds since the first record of the tree.
#[derive(Serialize)]
pub struct Times<'a> {
    /// Creation.
    pub spawned: u64,
    /// First step.
    pub began: Option<u64>,
    /// End.
    pub ended: Option<u64>,
    /// Everything that it did and waited for.
    pub segments: &'a [Segment],
}

/// Usage of one or more runs.
#[derive(Serialize)]
pub struct Figures {
    /// Tokens sent.
    pub input: u64,
    /// Of these, read from a cache.
    pub cached: u64,
    /// Tokens received.
    pub output: u64,
    /// Millionths of a US dollar.
    pub cost_micros: u64,
    /// Of these, the part that is an upper estimate.
    pub at_most_micros: u64,
    /// Model replies.
    pub turns: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Runs below.
    pub children: u64,
}

/// The current call of a run, or what it waits for.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Activity {
    /// `model`, `tool`, `person`, `children` or `waiting`.
    pub kind: &'static str,
    /// The model, or the tool with its most telling argument.
    pub text: String,
    /// Calls whose outcome is not known if no process works on the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at_risk: Vec<String>,
}

/// A reason for a user to look at a run.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// `question`, `failed`, `limit`, `unknown`, `denied` or `retrying`.
    pub kind: &'static str,
    /// Explanation.
    pub text: String,
}

impl<'a> View<'a> {
    /// Creates the view of a state; `total` is the number of records that there are.
    pub fn new(folded: &'a Folded, total: u64) -> Self {
        let Folded { tree, timeline } = folded;
        let rows = tree.runs().iter().zip(timeline.runs()).map(|(run, times)| Row::new(run, times)).collect();
        Self {
            position: tree.next_seq(),
            total,
            start: timeline.start(),
            now: timeline.now(),
            parked: tree.is_parked(),
            questions: tree.open_questions(),
            nodes: nodes(folded),
            rows,
        }
    }
}

/// Returns the states of a team's nodes: that of an open job if there is one, otherwise that of the latest.
fn nodes(folded: &Folded) -> BTreeMap<&str, Status> {
    let mut nodes = BTreeMap::new();
    let is_team =
        folded.tree.root().is_some_and(|root| root.spawned.models.iter().any(|model| model.starts_with("team/")));
    let Some(times) = folded.timeline.runs().first().filter(|_| is_team) else { return nodes };
    for job in &times.jobs {
        let run = folded.tree.spawned_by(job.key).next_back().map(status);
        let state = run.unwrap_or(match job.succeeded {
            None => Status::Running,
            Some(true) => Status::Done,
            Some(false) => Status::Failed,
        });
        let known = nodes.entry(job.node.as_str()).or_insert(state);
        if known.is_over() {
            *known = state;
        }
    }
    nodes
}

impl<'a> Row<'a> {
    fn new(run: &'a Run, times: &'a RunTimes) -> Self {
        let spawned = &run.spawned;
        let effort = spawned.agent.model.effort.and_then(|effort| serde_json::to_value(effort).ok());
        Self {
            run: run.id,
            place: run.place.to_string(),
            parent: times.parent,
            who: Who {
                agent: &spawned.agent.name,
                model: run.asked_model().or(spawned.models.first().map(String::as_str)).unwrap_or_default(),
                effort: effort.and_then(|effort| Some(effort.as_str()?.to_owned())),
                background: spawned.background,
                tags: &spawned.tags,
            },
            task: shorten(&spawned.task, MAX_TEXT),
            status: status(run),
            stopping: run.halted().is_some() && run.ended.is_none(),
            own: Figures::from(&run.own),
            subtree: Figures::from(&run.subtree),
            held: run.held,
            limits: limits(run),
            activity: activity(run, times),
            trouble: trouble(run, times),
            answer: run.ended.as_ref().map(|ended| shorten(&ended.text, MAX_TEXT)),
            times: Times { spawned: times.spawned, began: times.began, ended: times.ended, segments: &times.segments },
        }
    }
}

impl From<&Totals> for Figures {
    fn from(totals: &Totals) -> Self {
        Self {
            input: totals.usage.input,
            cached: totals.usage.cached,
            output: totals.usage.output,
            cost_micros: totals.usage.cost_micros,
            at_most_micros: totals.at_most_micros,
            turns: totals.turns,
            tool_calls: totals.tool_calls,
            children: totals.children,
        }
    }
}

fn limits(run: &Run) -> BTreeMap<&'static str, u64> {
    Limit::SETTABLE.into_iter().filter_map(|limit| Some((limit.name(), run.limits.cap(limit).value()?))).collect()
}

fn activity(run: &Run, times: &RunTimes) -> Option<Activity> {
    if run.ended.is_some() {
        return None;
    }
    let is = |kind, text| Some(Activity { kind, text, at_risk: times.at_risk().map(str::to_owned).collect() });
    if let Some(question) = run.questions().open().next() {
        return is("person", shorten(&question.question.text, MAX_TEXT));
    }
    if let Some(asked) = run.open_ask() {
        return is("model", asked.model.clone());
    }
    let begun: Vec<String> =
        run.open_calls().iter().filter(|state| state.begun.is_some()).map(|state| subject(&state.call)).collect();
    match (run.is_waiting(), begun.first()) {
        (true, _) => is("children", String::new()),
        (false, Some(call)) if begun.len() > 1 => is("tool", format!("{call} and {} more", begun.len() - 1)),
        (false, Some(call)) => is("tool", call.clone()),
        (false, None) => is("waiting", String::new()),
    }
}

fn trouble(run: &Run, times: &RunTimes) -> Vec<Trouble> {
    let mut found: Vec<Trouble> = Vec::new();
    let mut add = |kind, text: &str| found.push(Trouble { kind, text: shorten(text, MAX_TEXT) });
    for question in run.questions().open() {
        add("question", &question.question.text);
    }
    if let Some(ended) = &run.ended {
        ended_badly(ended, &mut add);
    }
    for call in &times.unknown_outcomes {
        add("unknown", call);
    }
    for denied in run.effects().denied {
        add("denied", denied);
    }
    if let (None, Some(error)) = (&run.ended, run.last_error()) {
        add("retrying", &error.to_string());
    }
    found
}

fn ended_badly(ended: &Ended, add: &mut impl FnMut(&'static str, &str)) {
    match &ended.outcome {
        Outcome::Done => (),
        Outcome::Failed { message, .. } => add("failed", message),
        Outcome::Exhausted(hit) | Outcome::TimedOut(hit) => add("limit", &limit_text(hit)),
        Outcome::Cancelled { by: CancelledBy::Signal } => add("cancelled", "stopped by a signal"),
        Outcome::Cancelled { .. } => (),
    }
}

/// Returns a limit that was reached in words, with the place of the run that has it.
fn limit_text(hit: &LimitHit) -> String {
    use homing_core::limits::Cap;
    let LimitHit { name, limit, spent, place } = hit;
    let (limit, spent) = (name.shown(Cap::At(*limit)), name.shown(Cap::At(*spent)));
    let name = name.name().replace('_', " ");
    format!("reached the limit of {limit} for {name} ({spent} used) of run {place}")
}
