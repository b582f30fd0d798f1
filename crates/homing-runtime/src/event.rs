//! What subscribers see: facts once they are durable, and passing things that may be lost.

use std::sync::Arc;

use homing_core::{fact::Record, place::Place, tool::Question};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use uuid::Uuid;

/// Something that happened in a tree.
#[derive(Clone, Debug)]
pub enum Event {
    /// A fact, durable.
    Fact(Arc<Record>),
    /// Something passing; it has no position and may be lost.
    Transient(Arc<Transient>),
    /// The subscriber was too slow and missed so many events; facts can be read again from the journal.
    Missed(u64),
}

/// Something passing.
#[derive(Clone, Debug)]
pub struct Transient {
    /// The tree.
    pub tree: Uuid,
    /// The run.
    pub run: Uuid,
    /// Its place.
    pub place: Place,
    /// Milliseconds since 1970.
    pub at: u64,
    /// What.
    pub what: TransientKind,
}

/// Passing things.
#[derive(Clone, Debug, PartialEq)]
pub enum TransientKind {
    /// The run waits for a slot.
    Queued,
    /// An attempt failed and another follows.
    Retrying {
        /// After so many milliseconds.
        in_ms: u64,
        /// Why.
        reason: String,
    },
    /// A tool says what it is doing.
    Progress(String),
    /// A person is asked.
    Question(Box<Question>),
    /// The model is writing.
    Text(String),
    /// The model is thinking.
    Thinking(String),
    /// Something worth a person's attention.
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
    /// The event as one JSON object: `{tree, seq, at, run, place, kind, …}`; passing things have no `seq`.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Fact(record) => record_json(record),
            Self::Transient(passing) => passing_json(passing),
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
    if let Some(Value::Object(fields)) = body.as_object().and_then(|it| it.values().next()) {
        for (key, value) in fields {
            object.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    Value::Object(object)
}

fn passing_json(passing: &Transient) -> Value {
    let mut value = json!({
        "tree": passing.tree, "at": passing.at, "run": passing.run, "place": passing.place, "kind": passing.what.kind(),
    });
    let more = match &passing.what {
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

/// The events of a run and of everything below it.
pub struct Events {
    pub(crate) receiver: broadcast::Receiver<Event>,
    pub(crate) top: Place,
}

impl Events {
    /// The next event; `None` once the tree is over and everything was seen.
    ///
    /// A slow subscriber slows nobody: it misses events and is told how many.
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
            Event::Transient(passing) => passing.place.is_within(&self.top),
            Event::Missed(_) => true,
        }
    }
}
