//! Things that took time and are over: a run, an ask, a call. Spans and figures are both made of these and of nothing else.

use std::sync::Arc;

use homing_core::{
    fact::{Asked, CallRefusal, Called, Ended, Spawned},
    message::{Reply, ToolResult, Usage},
    model::AskFailure,
    place::Place,
    tool::CallKey,
};
use uuid::Uuid;

use crate::span::SpanId;

/// Something that took time and is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Activity<TransientKind> {
    /// The tree it belongs to.
    pub tree: Uuid,
    /// The run whose it is.
    pub run: Uuid,
    /// Where that run stands.
    pub place: Place,
    /// How that run began.
    pub spawned: Arc<Spawned>,
    /// Its span.
    pub id: SpanId,
    /// The span around it; none around a tree's root.
    pub within: Option<SpanId>,
    /// Milliseconds since 1970.
    pub from: u64,
    /// Milliseconds since 1970.
    pub to: u64,
    /// What it was.
    pub what: TransientKind,
}

impl<TransientKind> Activity<TransientKind> {
    /// How long it took, in seconds.
    pub fn seconds(&self) -> f64 {
        self.to.saturating_sub(self.from) as f64 / 1e3
    }
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// How it ended.
    pub ended: Arc<Ended>,
    /// What it used itself, without its children.
    pub used: Usage,
    /// Milliseconds from being sent out to its first step; `None` where it never made one.
    pub queued_ms: Option<u64>,
}

/// One attempt at asking a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// What was asked.
    pub asked: Asked,
    /// The reply, or why there is none.
    pub answer: Result<Arc<Reply>, AskFailure>,
    /// What it was charged.
    pub used: Usage,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Which.
    pub key: CallKey,
    /// What was called; `None` where the call was refused before it began.
    pub called: Option<Box<Called>>,
    /// What came of it.
    pub result: Arc<ToolResult>,
    /// Why it never began, or came to nothing.
    pub refused: Option<CallRefusal>,
}
