//! Reports about a child run: text for the model of its parent, and a [`ChildReport`] for a program.

use homing_core::{
    definition::OnFailure,
    envelope::Status,
    fact::{CancelledBy, Ended, LimitHit, Outcome},
    limits::{Cap, Limit},
    place::Place,
    run::Run,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::live_tree::LiveTree;

/// The report about a child run that `delegate`, `wait`, `tell` and `cancel` return as data to a caller that is a
/// program, that is, one that passes `report: "facts"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildReport {
    /// The child's run id.
    pub run: Uuid,
    /// Its place in the tree.
    pub place: Place,
    /// Its agent.
    pub agent: String,
    /// Its status; `running` for a child that was started in the background.
    pub status: Status,
    /// Its ending, if it has ended.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<ChildEnding>,
    /// Its whole answer, in a report about several runs; `delegate`, `tell` and `cancel` return the answer as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// The ending of a child run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildEnding {
    /// The reason, if it is not done.
    pub error: Option<String>,
    /// Its structured answer.
    pub data: Option<Value>,
    /// The limit that ended it.
    pub limit: Option<LimitHit>,
    /// True if its agent's definition says that a failure may be ignored.
    pub may_fail: bool,
    /// Tokens that it and the runs below it used, input and output together.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
}

/// The data that `wait` returns to a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildReports {
    /// The runs that have ended.
    pub runs: Vec<ChildReport>,
}

impl ChildReport {
    /// A report about a child that was started in the background. It may have ended by now; the program learns that by
    /// waiting.
    pub(crate) fn started(run: &Run) -> Self {
        let agent = run.spawned.agent.name.clone();
        Self { run: run.id, place: run.place.clone(), agent, status: Status::Running, ending: None, output: None }
    }

    /// A report about a child that has ended, without its answer.
    pub(crate) fn ended(run: &Run, ended: &Ended) -> Self {
        let ending = ChildEnding {
            error: (!ended.outcome.is_done()).then(|| describe(&ended.outcome)),
            data: ended.data.as_deref().cloned(),
            limit: limit_of(&ended.outcome).cloned(),
            may_fail: run.spawned.agent.task.on_failure == OnFailure::Skip,
            tokens: run.subtree.usage.tokens(),
        };
        Self { status: Status::from(&ended.outcome), ending: Some(ending), ..Self::started(run) }
    }

    /// A report about a child that has ended, with its answer.
    pub(crate) fn with_answer(run: &Run, ended: &Ended) -> Self {
        Self { output: Some(ended.text.clone()), ..Self::ended(run, ended) }
    }

    /// The limit that ended the child, if it is a limit of the run at `place` or of one of its ancestors.
    pub(crate) fn limit_above(&self, place: &Place) -> Option<&LimitHit> {
        self.ending.as_ref()?.limit.as_ref().filter(|hit| place.is_within(&hit.place))
    }
}

fn is_zero(tokens: &u64) -> bool {
    *tokens == 0
}

fn limit_of(outcome: &Outcome) -> Option<&LimitHit> {
    match outcome {
        Outcome::Exhausted(hit) | Outcome::TimedOut(hit) => Some(hit),
        Outcome::Done | Outcome::Cancelled { .. } | Outcome::Failed { .. } => None,
    }
}

/// The report that the parent's model reads: agent, place, outcome and counts in one line, then the answer, of which at most
/// `inline_answer` bytes are shown.
pub(crate) fn text(run: &Run, ended: &Ended, inline_answer: usize) -> String {
    let head = format!(
        "[{} · run {} · {} · {} turns, {} tool calls]",
        run.spawned.agent.name,
        run.place,
        describe(&ended.outcome),
        run.own.turns,
        run.own.tool_calls
    );
    let answer = cut_answer(run, &ended.text, inline_answer);
    match (&ended.outcome, answer.trim().is_empty()) {
        (Outcome::Done, _) => format!("{head}\n{answer}"),
        (_, true) => format!("{head}\nIt had nothing to report by then."),
        (_, false) => format!("{head}\nWhat it had by then (partial):\n{answer}"),
    }
}

/// The message that a parent gets when a background child ends.
pub(crate) fn background_text(run: &Run, ended: &Ended, inline_answer: usize) -> String {
    format!("A background run has ended.\n{}", text(run, ended, inline_answer))
}

/// An outcome in a few words, with the figures of a limit.
pub(crate) fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Exhausted(LimitHit { name: Limit::Output, limit, spent, place }) => format!(
            "exhausted: replies of run {place} were cut off repeatedly, the last at {spent} of {limit} output tokens"
        ),
        Outcome::Exhausted(hit) | Outcome::TimedOut(hit) => {
            let status = outcome.status().replace('_', " ");
            let (limit, spent) = (amount(hit.name, hit.limit), amount(hit.name, hit.spent));
            format!("{status}: {} limit {limit} of run {}, spent {spent}", hit.name, hit.place)
        }
        Outcome::Cancelled { by } => format!("cancelled by {}", cancelled_by(by)),
        Outcome::Failed { kind, message, .. } => format!("failed ({}): {message}", kind.name()),
    }
}

fn amount(limit: Limit, value: u64) -> String {
    limit.shown(Cap::At(value))
}

fn cancelled_by(by: &CancelledBy) -> String {
    match by {
        CancelledBy::Host => "the host".to_owned(),
        CancelledBy::Parent => "its parent".to_owned(),
        CancelledBy::ParentEnded => "the end of its parent".to_owned(),
        CancelledBy::Signal => "a signal".to_owned(),
        CancelledBy::Other(name) => name.clone(),
        _ => "an unknown request".to_owned(),
    }
}

/// A long answer is cut, with a path under which `read` returns the rest.
fn cut_answer(run: &Run, text: &str, most: usize) -> String {
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

/// Lines of the answer of the run at `place`, which must be below `top`.
pub(crate) fn read_answer(tree: &LiveTree, top: Uuid, place: &str, offset: u64, limit: u64) -> String {
    tree.read(|tree| {
        let found = tree.runs().iter().find(|run| run.place.to_string() == place && tree.is_below(run.id, top));
        let Some(ended) = found.and_then(|run| run.ended.as_ref()) else {
            return format!("there is no ended run {place} below this one");
        };
        let skip = usize::try_from(offset - 1).unwrap_or(usize::MAX);
        let take = usize::try_from(limit).unwrap_or(usize::MAX);
        let lines: Vec<&str> = ended.text.lines().skip(skip).take(take).collect();
        if lines.is_empty() { format!("the answer has {} lines", ended.text.lines().count()) } else { lines.join("\n") }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn child_reports_keep_their_json() {
        let started = json!({
            "run": "00000000-0000-0000-0000-000000000001", "place": "1.2", "agent": "worker", "status": "running",
        });
        let mut ended = started.clone();
        for (key, value) in [("status", json!("done")), ("error", Value::Null), ("data", Value::Null)] {
            ended[key] = value;
        }
        (ended["limit"], ended["may_fail"]) = (Value::Null, json!(true));
        let mut with_answer = ended.clone();
        with_answer["output"] = json!("text");
        for (json, is_ended) in [(started, false), (ended, true), (with_answer, true)] {
            let report: ChildReport = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(report.ending.is_some(), is_ended, "{json}");
            assert_eq!(serde_json::to_value(&report).unwrap(), json);
        }
    }
}
