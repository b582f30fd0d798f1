//! What a parent's model reads about a run below it: short and factual. Who, how it ended, steps, then the answer.

use homing_core::{
    definition::OnFailure,
    fact::{CancelledBy, Ended, LimitHit, Outcome},
    limits::{Limit, usd},
    place::Place,
    run::Run,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{config::RuntimeConfig, live_tree::LiveTree};

/// The result of a delegation.
pub(crate) fn of_child(run: &Run, ended: &Ended, settings: &RuntimeConfig) -> String {
    let head = format!(
        "[{} · run {} · {} · {} turns, {} tool calls]",
        run.spawned.agent.name,
        run.place,
        how(&ended.outcome),
        run.own.turns,
        run.own.tool_calls
    );
    let answer = inline(run, &ended.text, settings.inline_answer);
    match (&ended.outcome, answer.trim().is_empty()) {
        (Outcome::Done, _) => format!("{head}\n{answer}"),
        (_, true) => format!("{head}\nIt had nothing to report by then."),
        (_, false) => format!("{head}\nWhat it had by then (partial):\n{answer}"),
    }
}

/// What a program reads about a run below it: facts by name, and the plain answer beside them. `may_fail` is the agent's
/// own word that its failure does not count, which only the program can act upon.
pub(crate) fn facts(run: &Run) -> Value {
    let (status, error, data, limit) = match run.ended.as_deref() {
        None => ("running", None, None, None),
        Some(ended) => {
            let error = (!ended.outcome.is_done()).then(|| how(&ended.outcome));
            (ended.outcome.status(), error, ended.data.clone(), limit_of(&ended.outcome))
        }
    };
    json!({
        "run": run.id, "place": run.place.to_string(), "agent": run.spawned.agent.name, "status": status, "error": error,
        "data": data, "limit": limit, "may_fail": run.spawned.agent.on_failure == OnFailure::Skip,
    })
}

fn limit_of(outcome: &Outcome) -> Option<&LimitHit> {
    match outcome {
        Outcome::Exhausted(hit) | Outcome::TimedOut(hit) => Some(hit),
        Outcome::Done | Outcome::Cancelled { .. } | Outcome::Failed { .. } => None,
    }
}

/// The limit of the run at `place`, or of one above it, that ended a run of which a program was told these facts.
pub(crate) fn own_limit(place: &Place, data: &Value) -> Option<LimitHit> {
    let runs = data.get("runs").and_then(Value::as_array).map_or_else(|| std::slice::from_ref(data), Vec::as_slice);
    let hits = runs.iter().filter_map(|facts| serde_json::from_value(facts.get("limit")?.clone()).ok());
    hits.into_iter().find(|hit: &LimitHit| place.is_within(&hit.place))
}

/// The same with the answer, for a report about several runs.
pub(crate) fn facts_and_answer(run: &Run) -> Value {
    let mut facts = facts(run);
    facts["output"] = json!(run.ended.as_ref().map(|ended| ended.text.as_str()));
    facts
}

/// A background child's result, as its parent is told.
pub(crate) fn of_background(run: &Run, ended: &Ended, settings: &RuntimeConfig) -> String {
    format!("A background run has ended.\n{}", of_child(run, ended, settings))
}

/// How a run ended, in a few words with the figures.
pub(crate) fn how(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Exhausted(LimitHit { name: Limit::Output, limit, spent, place }) => format!(
            "exhausted: replies of run {place} were cut off again and again, the last at {spent} of {limit} output tokens"
        ),
        Outcome::Exhausted(hit) | Outcome::TimedOut(hit) => {
            let status = outcome.status().replace('_', " ");
            let (limit, spent) = (amount(hit.name, hit.limit), amount(hit.name, hit.spent));
            format!("{status}: {} limit {limit} of run {}, spent {spent}", hit.name, hit.place)
        }
        Outcome::Cancelled { by } => format!("cancelled by {}", who(by)),
        Outcome::Failed { kind, message, .. } => format!("failed ({}): {message}", kind.name()),
    }
}

fn amount(limit: Limit, value: u64) -> String {
    match limit {
        Limit::Cost => usd(value),
        Limit::Wall | Limit::Work => format!("{:.1} s", value as f64 / 1_000.0),
        Limit::Turns
        | Limit::Depth
        | Limit::Tokens
        | Limit::ToolCalls
        | Limit::Children
        | Limit::Repeats
        | Limit::Compactions
        | Limit::Output => value.to_string(),
    }
}

fn who(by: &CancelledBy) -> String {
    match by {
        CancelledBy::Host => "the host".to_owned(),
        CancelledBy::Parent => "its parent".to_owned(),
        CancelledBy::ParentEnded => "the end of its parent".to_owned(),
        CancelledBy::Signal => "a signal".to_owned(),
        CancelledBy::Other(who) => who.clone(),
    }
}

/// A very long answer comes as its head and a handle that `read` opens.
fn inline(run: &Run, text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(most)];
    let lines = head.lines().count();
    format!(
        "{head}\n[… {} more bytes: read the rest with read(path=\"run:{}\", offset={lines})]",
        text.len() - head.len(),
        run.place
    )
}

/// Lines of the answer of a run below `top`.
pub(crate) fn read_answer(book: &LiveTree, top: Uuid, handle: &str, offset: u64, limit: u64) -> String {
    book.look(|tree| {
        let found = tree.runs().iter().find(|run| run.place.to_string() == handle && tree.is_below(run.id, top));
        let Some(ended) = found.and_then(|run| run.ended.as_ref()) else {
            return format!("there is no ended run {handle} below this one");
        };
        let (skip, take) =
            (usize::try_from(offset - 1).unwrap_or(usize::MAX), usize::try_from(limit).unwrap_or(usize::MAX));
        let lines: Vec<&str> = ended.text.lines().skip(skip).take(take).collect();
        if lines.is_empty() { format!("the answer has {} lines", ended.text.lines().count()) } else { lines.join("\n") }
    })
}
