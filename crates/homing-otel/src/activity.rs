//! Finished activities: runs, model calls and tool calls. Spans and metrics are made from these alone.

use std::sync::Arc;

use homing_core::{
    fact::{Asked, CallRefusal, Called, Ended, Spawned},
    message::{Reply, ToolResult, TranscriptEntry, Usage},
    model::AskFailure,
    place::Place,
    tool::CallKey,
    trace_context::{SpanId, TraceContext},
};
use uuid::Uuid;

/// A finished activity of a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Activity<Detail> {
    /// The tree it belongs to.
    pub tree: Uuid,
    /// The run it belongs to.
    pub run: Uuid,
    /// The place of that run in its tree.
    pub place: Place,
    /// The fact with which that run began.
    pub spawned: Arc<Spawned>,
    /// The ID of its span.
    pub id: SpanId,
    /// The span around it; `None` for the root of a tree.
    pub parent: Option<SpanId>,
    /// Start, in milliseconds since 1970.
    pub from: u64,
    /// End, in milliseconds since 1970.
    pub to: u64,
    /// The position in a distributed trace that the caller of the tree sent.
    pub sent: Option<Arc<TraceContext>>,
    /// The part that depends on the kind of activity.
    pub detail: Detail,
}

impl<Detail> Activity<Detail> {
    /// Returns its duration in seconds.
    pub fn seconds(&self) -> f64 {
        self.to.saturating_sub(self.from) as f64 / 1e3
    }
}

/// A finished run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunActivity {
    /// The fact with which it ended.
    pub ended: Arc<Ended>,
    /// Its own usage, without its children.
    pub used: Usage,
    /// Milliseconds from its start to its first step; `None` if it made none.
    pub queued_ms: Option<u64>,
}

/// One attempt of a model call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AskActivity {
    /// The request.
    pub asked: Asked,
    /// The reply, or the failure.
    pub answer: Result<Arc<Reply>, AskFailure>,
    /// Its usage.
    pub used: Usage,
    /// Milliseconds until the first piece of the reply, if it was streamed.
    pub first_token_ms: Option<u64>,
    /// The messages of the request, if bodies are exported; `None` for a summary, whose request is not recorded.
    pub input: Option<Vec<Arc<TranscriptEntry>>>,
}

/// A finished tool call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallActivity {
    /// The key of the call.
    pub key: CallKey,
    /// The call; `None` if it was refused before it began.
    pub called: Option<Box<Called>>,
    /// The result.
    pub result: Arc<ToolResult>,
    /// The reason for which it was not executed, if it was not.
    pub refused: Option<CallRefusal>,
}
