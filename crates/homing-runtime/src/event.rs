//! Events for subscribers: facts once they are durable, and transient notices that may be lost.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

pub use futures_util::Stream;
use futures_util::stream::{self, StreamExt};
use homing_core::{
    fact::{Fact, Record},
    place::Place,
    question::{Question, RequestedCall},
};
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;
use uuid::Uuid;

use crate::journal::Journal;

/// Records that a subscriber that fell behind loads at once. Those of a large tree take hundreds of megabytes together.
const PAGE: usize = 1_000;

/// An event of a tree.
///
/// # Examples
///
/// ```
/// # use homing_runtime::event as homing;
/// use homing::Event;
///
/// fn line(event: &Event) -> String {
///     match event.denied() {
///         Some(call) => format!("{} may not call {} with {}", call.agent, call.tool, call.args),
///         None => event.to_json().to_string(),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub enum Event {
    /// A durable fact.
    Fact(Arc<Record>),
    /// A transient notice; it has no position and may be lost.
    Transient(Arc<Transient>),
    /// The number of events that the subscriber fell behind, because it was too slow. The facts among them follow.
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
    /// The run waits until other runs release budget that is reserved for their calls.
    WaitingForBudget,
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
            Self::WaitingForBudget => "waiting_for_budget",
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
    /// Returns the question to the user, if this is the notice of one.
    pub fn question(&self) -> Option<&Question> {
        match self {
            Self::Transient(notice) => match &notice.kind {
                TransientKind::Question(question) => Some(question),
                _ => None,
            },
            Self::Fact(_) | Self::Missed(_) => None,
        }
    }

    /// Returns the call that was denied, if this is the fact of a denial.
    pub fn denied(&self) -> Option<&RequestedCall> {
        match self {
            Self::Fact(record) => match &record.fact {
                Fact::Returned { denied, .. } => denied.as_deref(),
                _ => None,
            },
            Self::Transient(_) | Self::Missed(_) => None,
        }
    }

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
        TransientKind::Queued | TransientKind::WaitingForBudget => json!({}),
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

/// The events of a run and its descendants, as a [`Stream`].
///
/// Facts arrive in order and without gaps. A slow subscriber does not slow the run down: it misses transient notices, and
/// [`Event::Missed`] reports how many events it fell behind before the missed facts follow.
///
/// # Examples
///
/// ```
/// # use homing_runtime::event as homing;
/// use homing::{Event, Events};
///
/// async fn facts(mut events: Events) -> usize {
///     let mut facts = 0;
///     while let Some(event) = events.next().await {
///         facts += usize::from(matches!(event, Event::Fact(_)));
///     }
///     facts
/// }
/// ```
pub struct Events(Pin<Box<dyn Stream<Item = Event> + Send>>);

impl Events {
    /// Returns the next event, or `None` once the tree has ended and all events were returned.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.next().await
    }

    /// Subscribes from the fact at position `from` on.
    pub(crate) fn new(
        records: TreeRecords,
        receiver: broadcast::Receiver<Event>,
        past: Past,
        to: SubscribedTo,
        from: u64,
    ) -> Self {
        let has_gap = past == Past::Recorded;
        let feed = Feed { records, receiver, to, next_seq: from, backlog: VecDeque::new(), has_gap };
        Self(Box::pin(stream::unfold(feed, async |mut feed| feed.next().await.map(|event| (event, feed)))))
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.as_mut().poll_next(context)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// Pieces of replies and of reasoning in a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pieces {
    /// They are returned.
    Included,
    /// They are left out, and not sent at all while no other subscriber reads them.
    LeftOut,
}

/// A token that every subscriber holds that reads pieces of replies, so that the tree can count them.
pub(crate) type TextReader = Arc<()>;

/// The events that a subscriber gets.
pub(crate) struct SubscribedTo {
    /// Of this run and its descendants.
    pub(crate) top: Place,
    /// With pieces of replies.
    pub(crate) text_reader: Option<TextReader>,
}

/// The facts that a tree has published before a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// Nothing: all facts will be live events, so the journal need not be read.
    Empty,
    /// Facts, perhaps.
    Recorded,
}

/// The recorded facts of one tree, from the journal or, if it stores nothing, from memory.
#[derive(Clone)]
pub(crate) struct TreeRecords {
    pub(crate) tree: Uuid,
    pub(crate) journal: Arc<dyn Journal>,
    /// The records of a tree whose journal stores nothing.
    pub(crate) kept: Option<Arc<Mutex<Vec<Arc<Record>>>>>,
}

impl TreeRecords {
    pub(crate) fn new(tree: Uuid, journal: Arc<dyn Journal>) -> Self {
        // A run with one tool call has eight records.
        let kept = (!journal.stores()).then(|| Arc::new(Mutex::new(Vec::with_capacity(8))));
        Self { tree, journal, kept }
    }

    /// Keeps a record if the journal does not.
    pub(crate) fn keep(&self, record: &Arc<Record>) {
        if let Some(kept) = &self.kept {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(record.clone());
        }
    }

    /// Returns the first durable records from position `from` on, at most a page of them. A tree whose first record is not yet
    /// written has none.
    async fn page(&self, from: u64) -> Vec<Arc<Record>> {
        match &self.kept {
            Some(kept) => {
                let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let first = kept.partition_point(|record| record.seq < from);
                kept[first..].iter().take(PAGE).cloned().collect()
            }
            None => self.journal.page(self.tree, from, PAGE as u64).await.unwrap_or_default(),
        }
    }
}

/// The state of a subscription: recorded facts first, then live events.
struct Feed {
    records: TreeRecords,
    receiver: broadcast::Receiver<Event>,
    to: SubscribedTo,
    /// The position of the next fact to return.
    next_seq: u64,
    /// Recorded facts to return before live events.
    backlog: VecDeque<Arc<Record>>,
    /// Facts between the backlog and the next live event may be missing.
    has_gap: bool,
}

impl Feed {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.backlog.is_empty() && self.has_gap {
                self.backlog = self.records.page(self.next_seq).await.into();
                self.has_gap = self.backlog.len() >= PAGE;
            }
            let event = match self.backlog.pop_front() {
                Some(record) => Event::Fact(record),
                None => match self.receiver.recv().await {
                    Ok(event) => event,
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        self.has_gap = true;
                        Event::Missed(missed)
                    }
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
            };
            if self.is_new(&event) && self.concerns(&event) {
                return Some(event);
            }
        }
    }

    /// Returns false for a fact that was returned before: it can be both in the backlog and in the live events.
    fn is_new(&mut self, event: &Event) -> bool {
        let Event::Fact(record) = event else { return true };
        let is_new = record.seq >= self.next_seq;
        self.next_seq = self.next_seq.max(record.seq + 1);
        is_new
    }

    fn concerns(&self, event: &Event) -> bool {
        match event {
            Event::Fact(record) => record.place.is_within(&self.to.top),
            Event::Transient(notice) => {
                let is_piece = matches!(notice.kind, TransientKind::Text(_) | TransientKind::Thinking(_));
                notice.place.is_within(&self.to.top) && (!is_piece || self.to.text_reader.is_some())
            }
            Event::Missed(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use homing_core::fact::CancelledBy;

    use super::*;
    use crate::journal::{MemoryJournal, NullJournal};

    async fn positions(journal: Arc<dyn Journal>, records: &[Arc<Record>], from: u64) -> Vec<u64> {
        let kept = TreeRecords::new(Uuid::nil(), journal);
        records.iter().for_each(|record| kept.keep(record));
        // The sender is gone, as it is once a tree has ended.
        let receiver = broadcast::Sender::new(1).subscribe();
        let to = SubscribedTo { top: Place::root(), text_reader: None };
        let events = Events::new(kept, receiver, Past::Recorded, to, from);
        let seq = |event: Event| match event {
            Event::Fact(record) => record.seq,
            Event::Transient(_) | Event::Missed(_) => panic!("only facts are recorded"),
        };
        events.map(seq).collect().await
    }

    #[tokio::test]
    async fn subscriber_gets_every_record_of_a_tree_with_many_pages() {
        let record = |seq| {
            let (tree, run, place) = (Uuid::nil(), Uuid::nil(), Place::root());
            Arc::new(Record { tree, seq, at: 0, epoch: 1, run, place, fact: Fact::Halted { by: CancelledBy::Signal } })
        };
        for count in [0, 1, PAGE as u64, 2 * PAGE as u64 + 500] {
            let records: Vec<_> = (0..count).map(record).collect();
            for from in [0, count / 2] {
                let expected: Vec<u64> = (from..count).collect();
                let memory = MemoryJournal::with(records.iter().cloned());
                assert_eq!(positions(memory, &records, from).await, expected, "{count} from {from}");
                assert_eq!(
                    positions(Arc::new(NullJournal::default()), &records, from).await,
                    expected,
                    "{count} from {from}"
                );
            }
        }
    }
}
