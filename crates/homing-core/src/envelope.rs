//! What a run's end looks like to everybody else: one shape for every ending and for every child.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    fact::{FailureKind, LimitHit, Outcome},
    place::Place,
    run::{Run, Totals},
    tree::RunTree,
};

/// The result of a run. Fields are only ever added within one `v`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Version of this shape.
    pub v: u32,
    /// The run.
    pub run: Uuid,
    /// Its place.
    pub place: Place,
    /// Who worked.
    pub agent: String,
    /// With which model.
    pub model: String,
    /// How it ended, or how it is going.
    pub status: Status,
    /// Its answer, or what it had by then.
    pub output: String,
    /// The answer for programs.
    pub data: Option<Value>,
    /// Whether `output` is less than the whole answer.
    pub partial: bool,
    /// What went wrong.
    pub error: Option<EnvelopeError>,
    /// The limit that was reached.
    pub limit: Option<LimitHit>,
    /// What this run used.
    pub usage: EnvelopeUsage,
    /// What this run and everything below it used.
    pub subtree: EnvelopeUsage,
    /// Whether the check of `--until` succeeded; null where there was none.
    pub verified: Option<bool>,
    /// What was repaired, replaced or lacking.
    pub warnings: Vec<String>,
    /// Calls that policy refused.
    pub denied: Vec<String>,
    /// Whether `resume` can go on with it.
    pub resumable: bool,
    /// The runs below it.
    pub children: Vec<Envelope>,
}

/// How a run ended, or how it is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It has not begun.
    Queued,
    /// It asks or acts.
    Running,
    /// It waits for runs below it.
    Waiting,
    /// Its process died.
    Interrupted,
    /// It had its last word.
    Done,
    /// A limit stopped it.
    Exhausted,
    /// Its time was up.
    TimedOut,
    /// Somebody stopped it.
    Cancelled,
    /// It could not go on.
    Failed,
}

impl Status {
    /// The name used in envelopes and on the command line.
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

    /// Whether the run is over.
    pub fn is_over(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Waiting | Self::Interrupted => false,
            Self::Done | Self::Exhausted | Self::TimedOut | Self::Cancelled | Self::Failed => true,
        }
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

/// What went wrong, for people and for scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeError {
    /// One of the kinds of [`FailureKind`], or `usage` for a command that could not be understood.
    pub kind: String,
    /// What happened.
    pub message: String,
    /// Whether the same may work later.
    pub retryable: bool,
    /// What to try.
    pub hint: Option<String>,
}

/// Figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeUsage {
    /// Tokens sent, cached ones included.
    pub input: u64,
    /// Of these, read from a cache.
    pub cached: u64,
    /// Tokens received.
    pub output: u64,
    /// Millionths of a US dollar.
    pub cost_micros: u64,
    /// Whether some of it is our worst case because a provider did not say.
    pub estimated: bool,
    /// Replies.
    pub turns: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Milliseconds from first step to end.
    pub wall_ms: u64,
}

impl EnvelopeUsage {
    fn new(tally: &Totals, wall_ms: u64) -> Self {
        Self {
            input: tally.usage.input,
            cached: tally.usage.cached,
            output: tally.usage.output,
            cost_micros: tally.usage.cost_micros,
            estimated: tally.usage.estimated,
            turns: tally.turns,
            tool_calls: tally.tool_calls,
            wall_ms,
        }
    }
}

impl Envelope {
    /// The envelope of `run` as its tree stands, children included.
    pub fn new(tree: &RunTree, run: &Run) -> Self {
        let children = tree.children(run).map(|child| Self::new(tree, child)).collect();
        let ending = run.ended.clone().unwrap_or_else(|| run.ending(Outcome::Done).into());
        let status = status(run);
        let wall_ms = run.wall_ms(tree.clock());
        let (error, limit) = notes(run.ended.as_ref().map(|ended| &ended.outcome));
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
            verified: run.verified(),
            warnings: run.spawned.warnings.clone(),
            denied: run.denied.clone(),
            resumable: is_resumable(run),
            children,
        }
    }

    /// Every envelope of the tree, this one first.
    pub fn all(&self) -> Vec<&Self> {
        let below = self.children.iter().flat_map(Self::all);
        [self].into_iter().chain(below).collect()
    }

    /// The tree as indented lines: place, agent, status, figures.
    pub fn tree(&self) -> String {
        let line = |it: &Self| {
            let indent = "  ".repeat(it.place.depth());
            let tokens = it.usage.input + it.usage.output;
            let cost = crate::limits::usd(it.usage.cost_micros);
            format!(
                "{indent}{} {} {} · {} turns · {tokens} tokens · {cost}",
                it.place,
                it.agent,
                it.status.name(),
                it.usage.turns
            )
        };
        self.all().into_iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// How a run is going, as far as facts tell; whether its process lives, they do not.
pub fn status(run: &Run) -> Status {
    match &run.ended {
        Some(ended) => Status::from(&ended.outcome),
        None if run.began.is_none() => Status::Queued,
        None if run.is_waiting() => Status::Waiting,
        None => Status::Running,
    }
}

fn notes(outcome: Option<&Outcome>) -> (Option<EnvelopeError>, Option<LimitHit>) {
    match outcome {
        None | Some(Outcome::Done | Outcome::Cancelled { .. }) => (None, None),
        Some(Outcome::Exhausted(hit) | Outcome::TimedOut(hit)) => (None, Some(hit.clone())),
        Some(Outcome::Failed { kind, message, retryable }) => {
            let note = EnvelopeError {
                kind: kind.name().to_owned(),
                message: message.clone(),
                retryable: *retryable,
                hint: hint(*kind).map(str::to_owned),
            };
            (Some(note), None)
        }
    }
}

fn hint(kind: FailureKind) -> Option<&'static str> {
    match kind {
        FailureKind::Auth => Some("check the provider's key; `homing doctor` says which one is missing"),
        FailureKind::Model => Some("try again later, or another model with --model"),
        FailureKind::Schema => Some("simplify the schema, or use a model that is better at structured answers"),
        FailureKind::Journal => Some("make room on the disk or choose another file with --journal, then resume"),
        FailureKind::CrashLoop => Some("look at the last step with `homing show`, then `homing resume --force`"),
        FailureKind::Team => {
            Some("see each run of the team with `homing show`; a part that may fail takes `on_failure: skip`")
        }
        FailureKind::Panic => Some("this is a defect: please report it with the message"),
        FailureKind::Refused | FailureKind::Config => None,
    }
}

fn is_resumable(run: &Run) -> bool {
    match run.ended.as_ref().map(|ended| &ended.outcome) {
        None | Some(Outcome::Exhausted(_) | Outcome::TimedOut(_)) => true,
        Some(Outcome::Failed { kind, .. }) => matches!(kind, FailureKind::Journal),
        Some(Outcome::Done | Outcome::Cancelled { .. }) => false,
    }
}
