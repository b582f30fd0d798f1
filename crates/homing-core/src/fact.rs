//! Facts: everything that can happen to a run. The journal is an ordered list of facts, and all other state is folded from
//! it. Most facts come in pairs, one before an action and one after it, so that a crash between them is visible.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

pub use crate::reservation::Reservation;
use crate::{
    authority::Authority,
    definition::AgentDefinition,
    limits::{Limit, Limits},
    message::{Image, Message, Reply, ToolCall, ToolResult, Usage},
    model::AskFailure,
    place::Place,
    question::{Answer, Question, QuestionId, RequestedCall},
    taint::Origin,
    tool::{CallKey, Replay},
};

/// A fact with its run and its position in the journal of its tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The tree: the ID of its root run.
    pub tree: Uuid,
    /// Position in the tree's journal, from 0, without gaps.
    pub seq: u64,
    /// Milliseconds since 1970, monotonic within one owner.
    pub at: u64,
    /// Number of the owning process that wrote it; grows with each resume. [`INHERITED`] for the facts that a fork took over.
    pub epoch: u32,
    /// The run.
    pub run: Uuid,
    /// The run's place.
    pub place: Place,
    /// The fact.
    pub fact: Fact,
}

/// The epoch of facts that a fork took over from another tree: no process has it.
pub const INHERITED: u32 = 0;

impl Record {
    /// Returns whether a fork took this fact over from another tree, which paid for it.
    pub fn is_inherited(&self) -> bool {
        self.epoch == INHERITED
    }
}

/// Something that happened to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The run was created. Ends with `Ended`.
    Spawned(Arc<Spawned>),
    /// A model call, one network attempt, is about to start. Ends with `Replied` or `AskFailed`.
    Asked(Arc<Asked>),
    /// The model replied.
    Replied {
        /// The reply, with its settled usage.
        reply: Arc<Reply>,
        /// Milliseconds from the request to the first piece of the reply, if it was streamed. It is not a part of the reply,
        /// because later requests contain that, and their fingerprints must not depend on time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_token_ms: Option<u64>,
    },
    /// The model call failed.
    AskFailed {
        /// The error and the text that had arrived. Boxed, as are raised limits, because a fact is as large as its largest form.
        failure: Box<AskFailure>,
        /// Usage that is charged for it.
        charge: Usage,
    },
    /// A tool call is about to start. Ends with `Returned`.
    Called(Box<Called>),
    /// A tool call returned. Written without `Called` if the call was not executed.
    Returned {
        /// The call.
        key: CallKey,
        /// The result.
        result: Arc<ToolResult>,
        /// Reason why the call was not executed, if it was not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<CallRefusal>,
        /// The call, if the rules or the user denied it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        denied: Option<Box<RequestedCall>>,
    },
    /// The run asks the user, and the call waits. Ends with `Answered`, or with the call.
    Questioned {
        /// ID of the question.
        id: QuestionId,
        /// The question.
        question: Box<Question>,
    },
    /// A question was answered.
    Answered {
        /// The question.
        id: QuestionId,
        /// The answer.
        answer: Answer,
        /// The user or process that answered.
        by: String,
    },
    /// The run received a message: from the host, its parent or a background child.
    Told {
        /// The sending run; `None` is the host.
        from: Option<Uuid>,
        /// The message.
        message: String,
    },
    /// The run was asked to stop.
    Halted {
        /// Origin of the request.
        by: CancelledBy,
    },
    /// A summary replaces the older history in future requests. The history itself is kept.
    Compacted {
        /// The summary.
        summary: String,
        /// Number of transcript entries that it replaces.
        upto: usize,
    },
    /// The run's limits were raised.
    Extended {
        /// Amount added to each limit; `Default` adds nothing, `Unlimited` removes the limit.
        more: Box<Limits>,
    },
    /// The run ended.
    Ended(Arc<Ended>),
}

impl Fact {
    /// Returns the name of its kind, as in events and the journal.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Spawned(_) => "spawned",
            Self::Asked(_) => "asked",
            Self::Replied { .. } => "replied",
            Self::AskFailed { .. } => "ask_failed",
            Self::Called(_) => "called",
            Self::Returned { .. } => "returned",
            Self::Questioned { .. } => "questioned",
            Self::Answered { .. } => "answered",
            Self::Told { .. } => "told",
            Self::Halted { .. } => "halted",
            Self::Compacted { .. } => "compacted",
            Self::Extended { .. } => "extended",
            Self::Ended(_) => "ended",
        }
    }
}

/// Everything that a run was created with, so that it can be resumed unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spawned {
    /// The parent run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Uuid>,
    /// The parent's call that spawned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_call: Option<CallKey>,
    /// The ended run whose transcript it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<Uuid>,
    /// True if the parent continues without waiting for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// True if it begins a segment of its tree, which any worker may drive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub placed: bool,
    /// The agent definition at spawn; its prompt is in `system`.
    pub agent: Arc<AgentDefinition>,
    /// The rendered system prompt: body, skills, project instructions, environment.
    pub system: Arc<str>,
    /// The task, exactly as in its first user message.
    pub task: String,
    /// Images and documents that were attached to the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Image>,
    /// Context variables that it can see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, Value>,
    /// Messages before the task, from the parent's transcript.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherited: Vec<Message>,
    /// Working folder.
    pub workdir: PathBuf,
    /// Project that the tree belongs to; recorded of root runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<PathBuf>,
    /// Authority.
    pub authority: Authority,
    /// Limits, with defaults already applied.
    pub limits: Limits,
    /// True if its cost limit is the default, not one that was asked for: it does not forbid children without a known price.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_cost: bool,
    /// Models that it may use, preferred first.
    pub models: Vec<String>,
    /// JSON schema of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Value>>,
    /// Command that must succeed before the run is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Milliseconds that the run waits before its first step, as a retry does.
    #[serde(default, skip_serializing_if = "crate::is_zero")]
    pub delay_ms: u64,
    /// Idempotency key of the submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Budget account to charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Labels for searching.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Warnings at spawn: what was repaired, replaced or missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The tag of a run that observes its parent. Its value is the position up to which it has seen the parent's tree.
pub const OBSERVES: &str = "observes";

/// The tag of a root whose tree is driven by the workers of a Restate server. Its value is the server's address.
pub const ON_RESTATE: &str = "on-restate";

impl Spawned {
    /// Returns the task as a message, with what is attached to it.
    pub fn task_message(&self) -> Message {
        Message::User { text: self.task.clone(), images: self.attachments.clone() }
    }

    /// Returns whether prose is an answer although there is a schema: the schema is the agent's own, and it is optional.
    pub fn accepts_prose(&self) -> bool {
        let defaults = &self.agent.task;
        defaults.schema_optional && defaults.schema.as_ref() == self.schema.as_deref()
    }
}

/// One attempt at a model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Purpose of the call.
    pub purpose: Purpose,
    /// The model.
    pub model: String,
    /// Maximum number of output tokens.
    pub max_output: u64,
    /// Fingerprint of the request, to detect differences in a replay.
    pub request_hash: u64,
    /// Upper bound on the input tokens.
    pub input_bound: u64,
    /// Upper bound on the cost, reserved until the usage is known.
    pub hold: Reservation,
    /// Upper bound on the cost of the run's last turn, held in addition from now until the run ends.
    #[serde(default, skip_serializing_if = "Reservation::is_zero")]
    pub landing: Reservation,
    /// Instruction added to the transcript before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nudge: Option<String>,
}

/// Reason why a call was not executed, or its result does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallRefusal {
    /// The model made a mistake: there is no such tool, or its arguments are not valid.
    Mistake,
    /// The runtime handled the call itself, as it does with `answer`.
    NoTool,
    /// The rules or the user denied it.
    Denied,
    /// It needs approval, and no approver was available.
    NoApprover {
        /// Rules that would allow the call; none if no rule would, such as when a hook requires the approval.
        allow: Vec<String>,
    },
    /// A limit was reached; the run gets its last turn.
    Limit(LimitHit),
    /// It had begun before a crash, may have had an effect, and must not be repeated.
    OutcomeUnknown,
}

/// Purpose of a model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The next turn.
    Turn,
    /// The last turn before a limit ends the run: no tools, report the results so far.
    Landing(LimitHit),
    /// Another attempt at an answer that was empty or did not match its schema.
    Repair,
    /// A summary of the history; the reply does not enter the transcript.
    Compaction,
}

/// A tool call that is about to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Called {
    /// Its identity and idempotency key.
    pub key: CallKey,
    /// The call, with the canonical name of the tool.
    pub call: Arc<ToolCall>,
    /// Treatment of the call in a resumed run.
    pub replay: Replay,
    /// The rule or the user decision that allowed it.
    pub allowed_by: String,
    /// Origin of untrusted content that it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// Origin of a request to stop a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CancelledBy {
    /// The host.
    Host,
    /// The parent's model.
    Parent,
    /// The parent run ended.
    ParentEnded,
    /// A signal to the process.
    Signal,
    /// Another process, through the journal.
    Other(String),
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The outcome.
    pub outcome: Outcome,
    /// The answer, or the latest text if the run did not finish.
    pub text: String,
    /// The structured answer, if a schema was given, or the results of a team, even if it did not finish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Arc<Value>>,
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The agent finished.
    Done,
    /// A limit ended it.
    Exhausted(LimitHit),
    /// A time limit ended it.
    TimedOut(LimitHit),
    /// It was cancelled.
    Cancelled {
        /// Origin of the request.
        by: CancelledBy,
    },
    /// It failed.
    Failed {
        /// Kind of failure.
        kind: FailureKind,
        /// Message for the user.
        message: String,
        /// True if a later attempt may succeed.
        retryable: bool,
    },
}

impl Outcome {
    /// Returns the name of its status.
    pub fn status(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Exhausted(_) => "exhausted",
            Self::TimedOut(_) => "timed_out",
            Self::Cancelled { .. } => "cancelled",
            Self::Failed { .. } => "failed",
        }
    }

    /// Returns whether the agent finished.
    pub fn is_done(&self) -> bool {
        *self == Self::Done
    }

    /// Creates a failure that is not retryable.
    pub fn failed(kind: FailureKind, message: impl Into<String>) -> Self {
        Self::Failed { kind, message: message.into(), retryable: false }
    }
}

/// A limit that was reached, with its figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitHit {
    /// The limit.
    pub name: Limit,
    /// Its value.
    pub limit: u64,
    /// Amount spent.
    pub spent: u64,
    /// Place of the run that has the limit.
    pub place: Place,
}

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The model could not be reached, or gave no answer.
    Model,
    /// The API key is missing or wrong.
    Auth,
    /// The model, the provider or the policy declined.
    Refused,
    /// The answer did not match its schema.
    Schema,
    /// A defect in Homing or in a tool.
    Panic,
    /// The journal could not be written.
    Journal,
    /// The configuration cannot work.
    Config,
    /// The process died repeatedly at the same step.
    CrashLoop,
    /// A team failed: part of its work failed, or its program could not continue.
    Team,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Model,
        Self::Auth,
        Self::Refused,
        Self::Schema,
        Self::Panic,
        Self::Journal,
        Self::Config,
        Self::CrashLoop,
        Self::Team,
    ];

    /// Finds the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns a suggestion for the user, if there is one.
    ///
    /// It names no commands or options, because hosts differ in them. A host that has better advice matches on the kind.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            Self::Auth => Some("check the provider's API key"),
            Self::Model => Some("try again later, or use another model"),
            Self::Schema => Some("simplify the schema, or use a model that is better at structured output"),
            Self::Journal => Some("free disk space or use another journal, then resume the run"),
            Self::CrashLoop => Some("inspect the last step of the run before you resume it"),
            Self::Team => Some("inspect the runs of the team; set `on_failure: skip` for parts that may fail"),
            Self::Panic => Some("this is a bug: please report it with the message"),
            Self::Refused | Self::Config => None,
        }
    }

    /// Returns the name used in envelopes.
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
