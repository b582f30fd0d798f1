//! `Envelope`: the JSON result of a run, the same shape for every outcome and every child.

use std::{str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    fact::{FailureKind, LimitHit, Outcome},
    message::Usage,
    place::Place,
    question::OpenQuestion,
    receipts::Receipts,
    run::{Run, Totals},
    tree::RunTree,
};

/// The JSON result of a run. Within one version `v`, fields are only added.
///
/// # Examples
///
/// ```
/// # use homing_core::envelope as homing;
/// use homing::{Envelope, Status};
///
/// fn summary(result: &Envelope) -> String {
///     match result.status {
///         Status::Done => result.output.clone(),
///         status => format!("{} after {} turns: {}", status.name(), result.subtree.turns, result.output),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Envelope {
    /// Version of this format.
    pub v: u32,
    /// Run ID.
    pub run: Uuid,
    /// Its place.
    pub place: Place,
    /// Name of the agent.
    pub agent: String,
    /// Name of the model.
    pub model: String,
    /// Status.
    pub status: Status,
    /// The answer, or the latest text if the run did not finish.
    pub output: String,
    /// The structured answer, if a schema was given, or the results of a team, even if it did not finish.
    pub data: Option<Arc<Value>>,
    /// True if `output` is not the complete answer.
    pub partial: bool,
    /// The error, if the run failed.
    pub error: Option<EnvelopeError>,
    /// The limit that ended the run, if one did.
    pub limit: Option<LimitHit>,
    /// Usage of this run.
    pub usage: EnvelopeUsage,
    /// Usage of this run and all runs below it.
    pub subtree: EnvelopeUsage,
    /// Usage that the root of a fork took over from the tree it was made from. It is not part of `usage` and `subtree`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<InheritedUsage>,
    /// True if the `until` command succeeded; null if there is no such command.
    pub verified: Option<bool>,
    /// Warnings: what was repaired, replaced or missing.
    pub warnings: Vec<String>,
    /// Messages of the calls that were denied.
    pub denied: Vec<String>,
    /// Rules that would allow the calls which were denied because no approver was available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs_approval: Vec<String>,
    /// Questions of this run and of all runs below it that wait for an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<OpenQuestion>,
    /// True if the run can be resumed.
    pub resumable: bool,
    /// Receipts from the facts of the run; absent if it changed, ran and reached nothing.
    #[serde(default, skip_serializing_if = "Receipts::is_empty")]
    pub receipts: Receipts,
    /// Child runs.
    pub children: Vec<Envelope>,
}

impl Envelope {
    /// Creates the result of a task that failed before a run could start.
    pub fn not_started(agent: impl Into<String>, error: EnvelopeError) -> Self {
        Self {
            v: 1,
            run: Uuid::nil(),
            place: Place::root(),
            agent: agent.into(),
            model: String::new(),
            status: Status::Failed,
            output: String::new(),
            data: None,
            partial: true,
            error: Some(error),
            limit: None,
            usage: EnvelopeUsage::default(),
            subtree: EnvelopeUsage::default(),
            inherited: None,
            verified: None,
            warnings: Vec::new(),
            denied: Vec::new(),
            needs_approval: Vec::new(),
            questions: Vec::new(),
            resumable: false,
            receipts: Receipts::default(),
            children: Vec::new(),
        }
    }
}

/// Status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// Not started yet.
    Queued,
    /// Making model or tool calls.
    Running,
    /// Waiting for child runs, or for an answer of the user.
    Waiting,
    /// Its process died; it can be resumed.
    Interrupted,
    /// Finished.
    Done,
    /// Ended by a limit.
    Exhausted,
    /// Ended by a time limit.
    TimedOut,
    /// Cancelled.
    Cancelled,
    /// Failed.
    Failed,
}

impl Status {
    /// All statuses.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Running,
        Self::Waiting,
        Self::Interrupted,
        Self::Done,
        Self::Exhausted,
        Self::TimedOut,
        Self::Cancelled,
        Self::Failed,
    ];

    /// Returns the name used in envelopes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Interrupted => "interrupted",
            Self::Done => "done",
            Self::Exhausted => "exhausted",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// Returns whether the run has ended.
    pub fn is_over(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Waiting | Self::Interrupted => false,
            Self::Done | Self::Exhausted | Self::TimedOut | Self::Cancelled | Self::Failed => true,
        }
    }
}

/// A word that is not a status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a status: use one of {known}", known = Status::ALL.map(Status::name).join(", "))]
pub struct UnknownStatus(pub String);

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Self, UnknownStatus> {
        let found = Self::ALL.into_iter().find(|status| status.name() == text);
        found.ok_or_else(|| UnknownStatus(text.to_owned()))
    }
}

impl From<&Outcome> for Status {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Exhausted(_) => Self::Exhausted,
            Outcome::TimedOut(_) => Self::TimedOut,
            Outcome::Cancelled { .. } => Self::Cancelled,
            Outcome::Failed { .. } => Self::Failed,
        }
    }
}

/// Error of a failed run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EnvelopeError {
    /// Name of a [`FailureKind`], or a kind of the host's own, such as `usage`.
    pub kind: String,
    /// Message for the user.
    pub message: String,
    /// True if a later attempt may succeed.
    pub retryable: bool,
    /// Suggestion for the user. The default comes from [`FailureKind::hint`]; hosts may replace it.
    pub hint: Option<String>,
}

impl EnvelopeError {
    /// Creates an error that no later attempt avoids, without a suggestion.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: message.into(), retryable: false, hint: None }
    }

    /// Returns the kind of failure, unless the host uses a kind of its own.
    pub fn failure_kind(&self) -> Option<FailureKind> {
        FailureKind::from_name(&self.kind)
    }
}

/// Usage figures of an envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EnvelopeUsage {
    /// Tokens sent, cached ones included.
    pub input: u64,
    /// Of these, read from a cache.
    pub cached: u64,
    /// Tokens received.
    pub output: u64,
    /// Millionths of a US dollar.
    pub cost_micros: u64,
    /// True if part of it is a worst-case estimate, because a provider reported no usage.
    pub estimated: bool,
    /// Of `cost_micros`, the part that is such an estimate: the cost was at most this.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub at_most_micros: u64,
    /// Model replies.
    pub turns: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Milliseconds from the first step to the end.
    pub wall_ms: u64,
}

/// Usage that a fork took over: another tree paid for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedUsage {
    /// Tokens sent, cached ones included.
    pub input: u64,
    /// Tokens received.
    pub output: u64,
    /// Millionths of a US dollar.
    pub cost_micros: u64,
}

impl EnvelopeUsage {
    /// Adds the usage of another run. The time becomes the longer one, because runs may work side by side.
    pub fn add(&mut self, more: &Self) {
        self.input += more.input;
        self.cached += more.cached;
        self.output += more.output;
        self.cost_micros += more.cost_micros;
        self.estimated |= more.estimated;
        self.at_most_micros += more.at_most_micros;
        self.turns += more.turns;
        self.tool_calls += more.tool_calls;
        self.wall_ms = self.wall_ms.max(more.wall_ms);
    }

    fn new(totals: &Totals, wall_ms: u64) -> Self {
        Self {
            input: totals.usage.input,
            cached: totals.usage.cached,
            output: totals.usage.output,
            cost_micros: totals.usage.cost_micros,
            estimated: totals.usage.estimated,
            at_most_micros: totals.at_most_micros,
            turns: totals.turns,
            tool_calls: totals.tool_calls,
            wall_ms,
        }
    }
}

/// The usage that a fork took over, for its root.
fn inherited(tree: &RunTree, run: &Run) -> Option<InheritedUsage> {
    let Usage { input, output, cost_micros, .. } = tree.inherited;
    let is_fork = run.spawned.parent.is_none() && (input, output, cost_micros) != (0, 0, 0);
    is_fork.then_some(InheritedUsage { input, output, cost_micros })
}

impl Envelope {
    /// Creates the envelope of `run` and its children from the current state of the tree.
    pub fn new(tree: &RunTree, run: &Run) -> Self {
        let children: Vec<Self> = tree.children(run).map(|child| Self::new(tree, child)).collect();
        let below = children.iter().flat_map(|child| child.questions.iter().cloned());
        let ending = run.ended.clone().unwrap_or_else(|| run.ending(Outcome::Done).into());
        let status = status(run);
        let wall_ms = run.work.wall_ms(tree.clock.now);
        let (error, limit) = error_and_limit(run.ended.as_ref().map(|ended| &ended.outcome));
        Self {
            v: 1,
            run: run.id,
            place: run.place.clone(),
            agent: run.spawned.agent.name.clone(),
            model: run.spawned.models.first().cloned().unwrap_or_default(),
            status,
            output: ending.text.clone(),
            data: ending.data.clone(),
            partial: status != Status::Done,
            error,
            limit,
            usage: EnvelopeUsage::new(&run.own, wall_ms),
            subtree: EnvelopeUsage::new(&run.subtree, wall_ms),
            inherited: inherited(tree, run),
            verified: crate::run::verified(run),
            warnings: run.spawned.warnings.clone(),
            denied: run.effects().denied.to_vec(),
            needs_approval: run.effects().needs_approval.to_vec(),
            questions: run.questions().open().chain(below).collect(),
            resumable: is_resumable(run),
            receipts: run.effects().receipts.clone(),
            children,
        }
    }

    /// Returns this envelope and all below it, parents first.
    pub fn all(&self) -> Vec<&Self> {
        let below = self.children.iter().flat_map(Self::all);
        [self].into_iter().chain(below).collect()
    }

    /// Formats the tree as indented lines of place, agent, status and figures.
    pub fn tree(&self) -> String {
        let line = |envelope: &Self| {
            let Self { place, agent, status, usage, .. } = envelope;
            let indent = "  ".repeat(place.depth());
            let tokens = usage.input + usage.output;
            let cost = crate::limits::usd(usage.cost_micros);
            let turns = if usage.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", usage.turns) };
            format!("{indent}{place} {agent} {} · {turns} · {tokens} tokens · {cost}", status.name())
        };
        self.all().into_iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the status of a run as far as its facts show it. They do not show whether its process is alive.
pub fn status(run: &Run) -> Status {
    match &run.ended {
        Some(ended) => Status::from(&ended.outcome),
        None if run.began().is_none() => Status::Queued,
        None if run.is_waiting() => Status::Waiting,
        None => Status::Running,
    }
}

fn error_and_limit(outcome: Option<&Outcome>) -> (Option<EnvelopeError>, Option<LimitHit>) {
    match outcome {
        None | Some(Outcome::Done | Outcome::Cancelled { .. }) => (None, None),
        Some(Outcome::Exhausted(hit) | Outcome::TimedOut(hit)) => (None, Some(hit.clone())),
        Some(Outcome::Failed { kind, message, retryable }) => {
            let error = EnvelopeError {
                kind: kind.name().to_owned(),
                message: message.clone(),
                retryable: *retryable,
                hint: kind.hint().map(str::to_owned),
            };
            (Some(error), None)
        }
    }
}

fn is_resumable(run: &Run) -> bool {
    match run.ended.as_ref().map(|ended| &ended.outcome) {
        None | Some(Outcome::Exhausted(_) | Outcome::TimedOut(_)) => true,
        Some(Outcome::Failed { kind: FailureKind::Journal, retryable, .. }) => *retryable,
        Some(Outcome::Failed { .. }) => false,
        Some(Outcome::Done | Outcome::Cancelled { .. }) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_parse_from_their_names() {
        for status in Status::ALL {
            assert_eq!(status.name().parse(), Ok(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
        }
        let unknown = "finished".parse::<Status>().unwrap_err().to_string();
        assert!(unknown.starts_with("`finished` is not a status: use one of queued, running,"), "{unknown}");
    }

    #[test]
    fn failure_kinds_are_found_by_name_and_hints_name_no_options() {
        for kind in FailureKind::ALL {
            assert_eq!(FailureKind::from_name(kind.name()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert!(kind.hint().is_none_or(|hint| !hint.contains("--") && !hint.contains("homing ")), "{kind:?}");
        }
        assert_eq!(FailureKind::from_name("usage"), None);
    }
}
