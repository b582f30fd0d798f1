//! What can happen to a run: pairs of intent and answer, and a few interjections. The journal is an ordered list of these,
//! and everything else is a fold over it.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    authority::Authority,
    definition::AgentDefinition,
    limits::{Limit, Limits},
    message::{Message, Reply, ToolCall, ToolResult, Usage},
    model::AskFailure,
    place::Place,
    tool::{CallKey, Replay},
};

/// A fact, with whose it is and its position in its tree's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The tree; the id of its root run.
    pub tree: Uuid,
    /// Position in the tree's log, from 0, without gaps.
    pub seq: u64,
    /// Milliseconds since 1970, monotonic within one owner.
    pub at: u64,
    /// Which owner of the tree wrote it; grows with each resume.
    pub epoch: u32,
    /// Whose fact it is.
    pub run: Uuid,
    /// Where that run stands.
    pub place: Place,
    /// What happened.
    pub fact: Fact,
}

/// What can happen to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The run exists. Answered by `Ended`.
    Spawned(Arc<Spawned>),
    /// A model is about to be asked, one network attempt. Answered by `Replied` or `AskFailed`.
    Asked(Asked),
    /// The model answered.
    Replied {
        /// The answer, with its settled usage.
        reply: Arc<Reply>,
    },
    /// The attempt gave no answer.
    AskFailed {
        /// Why, and the words that had arrived.
        failure: AskFailure,
        /// What it is charged.
        charge: Usage,
    },
    /// A tool is about to act on the world. Answered by `Returned`.
    Called(Box<Called>),
    /// A tool answered; also written without `Called` where the call was refused before it began.
    Returned {
        /// Which call.
        key: CallKey,
        /// The answer.
        result: Arc<ToolResult>,
        /// Set where the call never began, or where the run's own limit is why it came to nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<CallRefusal>,
    },
    /// Somebody said something to the run: a follow-up, or a background child's result.
    Told {
        /// The run that said it; `None` is the host.
        from: Option<Uuid>,
        /// What was said.
        message: String,
    },
    /// Somebody asked the run to stop.
    Halted {
        /// Who.
        by: CancelledBy,
    },
    /// Older history is superseded by a summary. Nothing is rewritten.
    Compacted {
        /// What stands for it.
        summary: String,
        /// How many entries of the transcript it stands for.
        upto: usize,
    },
    /// The run was given more.
    Extended {
        /// What is added to each limit; `Default` adds nothing, `Unlimited` lifts it.
        more: Limits,
    },
    /// The run is over.
    Ended(Arc<Ended>),
}

impl Fact {
    /// The name of its kind, as in events and the journal.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Spawned(_) => "spawned",
            Self::Asked(_) => "asked",
            Self::Replied { .. } => "replied",
            Self::AskFailed { .. } => "ask_failed",
            Self::Called(_) => "called",
            Self::Returned { .. } => "returned",
            Self::Told { .. } => "told",
            Self::Halted { .. } => "halted",
            Self::Compacted { .. } => "compacted",
            Self::Extended { .. } => "extended",
            Self::Ended(_) => "ended",
        }
    }
}

/// How a run began: everything a resumed run needs, so that it sees what it saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spawned {
    /// The run it works for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Uuid>,
    /// The parent's call that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_call: Option<CallKey>,
    /// The ended run that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<Uuid>,
    /// Whether the parent goes on meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// The definition as it was at that moment; its prompt is in `system`.
    pub agent: Arc<AgentDefinition>,
    /// The prompt as rendered: body, skills, project instructions, environment.
    pub system: Arc<str>,
    /// What it is to do; its first user message, exactly.
    pub task: String,
    /// The keys it may see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, Value>,
    /// Messages it starts with, before the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherited: Vec<Message>,
    /// Its folder.
    pub workdir: PathBuf,
    /// What it may do.
    pub authority: Authority,
    /// What it may spend; nothing is left to defaults.
    pub limits: Limits,
    /// The models it may speak with, best first.
    pub models: Vec<String>,
    /// JSON schema of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Value>>,
    /// A command that must succeed before the run is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The submission's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The account that pays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Labels for finding it again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// What was repaired, replaced or lacking when it began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One attempt at asking a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// What for.
    pub purpose: Purpose,
    /// The model.
    pub model: String,
    /// The most the reply may have.
    pub max_output: u64,
    /// Fingerprint of what is sent, to compare a replay with.
    pub request_hash: u64,
    /// How large the input is at most.
    pub input_bound: u64,
    /// The most it may cost; held until it is known.
    pub hold: Reservation,
    /// Words added to the transcript before asking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nudge: Option<String>,
}

/// Why a call never began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallRefusal {
    /// There is no such tool, or its arguments cannot be read: the model's mistake.
    Mistake,
    /// No tool was needed: the runtime itself took it, as it does with `answer`.
    NoTool,
    /// Rules or a person said no.
    Denied,
    /// No more calls were left; the run lands.
    Limit(LimitHit),
    /// It had begun before a crash, may have acted, and must not be repeated.
    OutcomeUnknown,
}

/// What a model is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The next turn.
    Turn,
    /// The last permitted turn: tools off, report what you have.
    Landing(LimitHit),
    /// Another try at an answer that was empty or did not fit its schema.
    Repair,
    /// A summary of the history; it does not enter the transcript.
    Compaction,
}

/// A promise to pay at most this much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Tokens, in and out.
    pub tokens: u64,
    /// Micro-dollars.
    pub cost_micros: u64,
}

impl std::ops::AddAssign for Reservation {
    fn add_assign(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
    }
}

impl std::ops::SubAssign for Reservation {
    fn sub_assign(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_sub(other.tokens);
        self.cost_micros = self.cost_micros.saturating_sub(other.cost_micros);
    }
}

/// A call that is about to act.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Called {
    /// Its identity and idempotency key.
    pub key: CallKey,
    /// What is called, under our name for it.
    pub call: ToolCall,
    /// What a resumed run may do about it.
    pub replay: Replay,
    /// The rule or the person that allowed it.
    pub allowed_by: String,
}

/// Who asked a run to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelledBy {
    /// The person or program that started the tree.
    Host,
    /// The parent's model.
    Parent,
    /// The run above it ended.
    ParentEnded,
    /// A signal to the process.
    Signal,
    /// Another process, through the journal.
    Other(String),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub outcome: Outcome,
    /// Its last word, or what it had by then.
    pub text: String,
    /// The same for programs, where a schema was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// The ways to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The agent had its last word.
    Done,
    /// A limit stopped it.
    Exhausted(LimitHit),
    /// Its time was up.
    TimedOut(LimitHit),
    /// Somebody stopped it.
    Cancelled {
        /// Who.
        by: CancelledBy,
    },
    /// It could not go on.
    Failed {
        /// What kind of thing went wrong.
        kind: FailureKind,
        /// What exactly, for people.
        message: String,
        /// Whether the same may work later.
        retryable: bool,
    },
}

impl Outcome {
    /// The name of its status.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Exhausted(_) => "exhausted",
            Self::TimedOut(_) => "timed_out",
            Self::Cancelled { .. } => "cancelled",
            Self::Failed { .. } => "failed",
        }
    }

    /// Whether the agent had its last word.
    pub fn is_done(&self) -> bool {
        *self == Self::Done
    }

    /// A failure that trying again would not mend.
    pub fn failed(kind: FailureKind, message: impl Into<String>) -> Self {
        Self::Failed { kind, message: message.into(), retryable: false }
    }
}

/// The limit that was reached, with its figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitHit {
    /// Which.
    pub name: Limit,
    /// Its value.
    pub limit: u64,
    /// What was spent or held against it.
    pub spent: u64,
    /// The run whose limit it is.
    pub place: Place,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The model could not be asked, or gave no answer.
    Model,
    /// The key is missing or wrong.
    Auth,
    /// The provider, or our policy, declined.
    Refused,
    /// The answer never fitted its schema.
    Schema,
    /// A defect of ours or of a tool.
    Panic,
    /// The journal could not be written.
    Journal,
    /// What was asked for cannot work.
    Config,
    /// Its process died at the same step again and again.
    CrashLoop,
    /// A team did not deliver: part of its work failed, or its own program could not go on.
    Team,
}

impl FailureKind {
    /// The name used in envelopes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Auth => "auth",
            Self::Refused => "refused",
            Self::Schema => "schema",
            Self::Panic => "panic",
            Self::Journal => "journal",
            Self::Config => "config",
            Self::CrashLoop => "crash_loop",
            Self::Team => "team",
        }
    }
}
