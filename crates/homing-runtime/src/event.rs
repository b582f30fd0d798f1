//! Events for subscribers: facts once they are durable, and transient notices that may be lost.

use std::sync::Arc;

use homing_core::{fact::Record, place::Place, tool::Question};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use uuid::Uuid;

/// An event of a tree.
#[derive(Clone, Debug)]
pub enum Event {
    /// A durable fact.
    Fact(Arc<Record>),
    /// A transient notice; it has no position and may be lost.
    Transient(Arc<Transient>),
    /// The number of events that the subscriber missed, because it was too slow. Facts can be read from the journal.
    Missed(u64),
}

/// A transient notice about a run.
#[derive(Clone, Debug)]
pub struct Transient {
    /// The tree.
    pub tree: Uuid,
    /// The run.
    pub run: Uuid,
    /// The place of the run.
    pub place: Place,
    /// Milliseconds since 1970.
    pub at: u64,
    /// The kind of notice, with its contents.
    pub kind: TransientKind,
}

/// The kinds of transient notices.
#[derive(Clone, Debug, PartialEq)]
pub enum TransientKind {
    /// The run waits for a slot.
    Queued,
    /// An attempt failed, and another follows.
    Retrying {
        /// The time until the next attempt, in milliseconds.
        in_ms: u64,
        /// The reason.
        reason: String,
    },
    /// A tool reports progress.
    Progress(String),
    /// The user is asked a question.
    Question(Box<Question>),
    /// A piece of the model's reply.
    Text(String),
    /// A piece of the model's reasoning.
    Thinking(String),
    /// A warning for the user.
    Warning(String),
}

impl TransientKind {
    fn kind(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Retrying { .. } => "retrying",
            Self::Progress(_) => "progress",
            Self::Question(_) => "question",
            Self::Text(_) => "text",
            Self::Thinking(_) => "thinking",
            Self::Warning(_) => "warning",
        }
    }
}

impl Event {
    /// The event as one JSON object: `{tree, seq, at, run, place, kind, …}`; transient notices have no `seq`.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Fact(record) => record_json(record),
            Self::Transient(notice) => notice_json(notice),
            Self::Missed(count) => json!({"kind": "missed", "count": count}),
        }
    }
}

fn record_json(record: &Record) -> Value {
    let mut object = Map::new();
    object.insert("tree".into(), json!(record.tree));
    object.insert("seq".into(), json!(record.seq));
    object.insert("at".into(), json!(record.at));
    object.insert("run".into(), json!(record.run));
    object.insert("place".into(), json!(record.place));
    object.insert("kind".into(), json!(record.fact.kind()));
    let body = serde_json::to_value(&record.fact).unwrap_or_default();
    if let Some(Value::Object(fields)) = body.as_object().and_then(|variant| variant.values().next()) {
        for (key, value) in fields {
            object.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    Value::Object(object)
}

fn notice_json(notice: &Transient) -> Value {
    let mut value = json!({
        "tree": notice.tree, "at": notice.at, "run": notice.run, "place": notice.place, "kind": notice.kind.kind(),
    });
    let more = match &notice.kind {
        TransientKind::Queued => json!({}),
        TransientKind::Retrying { in_ms, reason } => json!({"in_ms": in_ms, "reason": reason}),
        TransientKind::Progress(text)
        | TransientKind::Text(text)
        | TransientKind::Thinking(text)
        | TransientKind::Warning(text) => json!({"text": text}),
        TransientKind::Question(question) => json!({"question": question}),
    };
    if let (Some(object), Value::Object(more)) = (value.as_object_mut(), more) {
        object.extend(more);
    }
    value
}

/// The events of a run and its descendants.
pub struct Events {
    pub(crate) receiver: broadcast::Receiver<Event>,
    pub(crate) top: Place,
}

impl Events {
    /// Returns the next event, or `None` once the tree has ended and all events were returned.
    ///
    /// A slow subscriber does not slow the run down: it misses events, and [`Event::Missed`] reports how many.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            match self.receiver.recv().await {
                Ok(event) if self.concerns(&event) => return Some(event),
                Ok(_) => (),
                Err(broadcast::error::RecvError::Lagged(missed)) => return Some(Event::Missed(missed)),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    fn concerns(&self, event: &Event) -> bool {
        match event {
            Event::Fact(record) => record.place.is_within(&self.top),
            Event::Transient(notice) => notice.place.is_within(&self.top),
            Event::Missed(_) => true,
        }
    }
}
