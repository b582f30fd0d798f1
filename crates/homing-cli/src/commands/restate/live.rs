//! The text of replies while they arrive at a worker, put in order with the records of their tree.
//!
//! Pieces and records come by different ways. A piece is shown once the record of its model call is known, and not after the record
//! of its reply.

use std::{collections::HashMap, sync::Arc};

use homing_core::fact::{Fact, Record};
use homing_restate::{LiveText, Server};
use homing_runtime::event::{Event, Transient, TransientKind};
use tokio::{sync::mpsc, task::AbortHandle};
use uuid::Uuid;

/// The text of the replies of one tree.
pub(super) struct LiveReplies {
    tree: Uuid,
    /// The worker that serves it, and the task that reads it.
    reader: Option<(String, AbortHandle)>,
    sender: mpsc::UnboundedSender<LiveText>,
    pieces: mpsc::UnboundedReceiver<LiveText>,
    /// Model calls in progress by run: the time of their record, and the bytes that are shown.
    open: HashMap<Uuid, (u64, usize)>,
    /// The latest call of each run, also if it has ended.
    latest: HashMap<Uuid, u64>,
    /// Pieces of calls whose record is not known yet.
    early: Vec<LiveText>,
}

impl LiveReplies {
    pub(super) fn new(tree: Uuid) -> Self {
        let (sender, pieces) = mpsc::unbounded_channel();
        Self { tree, reader: None, sender, pieces, open: HashMap::new(), latest: HashMap::new(), early: Vec::new() }
    }

    /// Reads from this worker, unless it is read already. If it cannot be reached, replies are shown when they are complete.
    pub(super) fn read_from(&mut self, server: &Server, worker: &str) {
        if self.reader.as_ref().is_some_and(|(known, _)| known == worker) {
            return;
        }
        self.stop();
        let (server, tree, url, sender) = (server.clone(), self.tree, worker.to_owned(), self.sender.clone());
        let reading = tokio::spawn(async move {
            let Ok(mut reader) = server.live_text(&url, tree).await else { return };
            while let Some(piece) = reader.next().await {
                if sender.send(piece).is_err() {
                    return;
                }
            }
        });
        self.reader = Some((worker.to_owned(), reading.abort_handle()));
    }

    fn stop(&mut self) {
        if let Some((_, reading)) = self.reader.take() {
            reading.abort();
        }
    }

    /// Waits for the next piece.
    pub(super) async fn next(&mut self) -> LiveText {
        match self.pieces.recv().await {
            Some(piece) => piece,
            None => std::future::pending().await,
        }
    }

    /// Returns whether there are pieces of calls whose record is not known yet.
    pub(super) fn waits_for_record(&self) -> bool {
        !self.early.is_empty()
    }

    /// Notes a record, and returns what may be shown after it.
    pub(super) fn take_record(&mut self, record: &Record) -> Vec<Event> {
        match &record.fact {
            Fact::Asked(_) => {
                self.open.insert(record.run, (record.at, 0));
                self.latest.insert(record.run, record.at);
            }
            Fact::Replied { .. } | Fact::AskFailed { .. } | Fact::Ended(_) => drop(self.open.remove(&record.run)),
            _ => return Vec::new(),
        }
        std::mem::take(&mut self.early).into_iter().filter_map(|piece| self.take(piece)).collect()
    }

    /// Returns the event that shows a piece. It is kept if the record of its call is not known yet.
    pub(super) fn take(&mut self, piece: LiveText) -> Option<Event> {
        if self.latest.get(&piece.run).is_none_or(|latest| *latest < piece.asked_at) {
            self.early.push(piece);
            return None;
        }
        let (asked_at, shown) = self.open.get_mut(&piece.run)?;
        // After a gap, the rest is shown with the whole reply.
        if *asked_at != piece.asked_at || piece.offset > *shown {
            return None;
        }
        let text = piece.text.get(*shown - piece.offset..).filter(|text| !text.is_empty())?.to_owned();
        *shown += text.len();
        let LiveText { run, place, .. } = piece;
        let (tree, at, kind) = (self.tree, crate::commands::runs::millis_now(), TransientKind::Text(text));
        Some(Event::Transient(Arc::new(Transient { tree, run, place, at, kind })))
    }
}

impl Drop for LiveReplies {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use homing_core::{
        model::{AskFailure, ModelError},
        place::Place,
    };
    use serde_json::json;

    use super::*;

    fn record(fact: Fact, at: u64) -> Record {
        Record { tree: Uuid::nil(), seq: 0, at, epoch: 1, run: Uuid::nil(), place: Place::root(), fact }
    }

    fn piece(asked_at: u64, offset: usize, text: &str) -> LiveText {
        LiveText { run: Uuid::nil(), place: Place::root(), asked_at, offset, text: text.to_owned() }
    }

    fn text(event: Option<Event>) -> Option<String> {
        match event {
            Some(Event::Transient(notice)) => match &notice.kind {
                TransientKind::Text(text) => Some(text.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    #[tokio::test]
    async fn pieces_are_shown_between_their_records() {
        let mut live = LiveReplies::new(Uuid::nil());
        assert_eq!(text(live.take(piece(5, 0, "Hel"))), None, "its record is not known yet");
        let none = json!({"tokens": 0, "cost_micros": 0});
        let asked = json!({"purpose": "turn", "model": "m", "max_output": 1, "request_hash": 0, "input_bound": 0,
            "hold": none, "landing": none});
        let asked = record(serde_json::from_value(json!({"asked": asked})).unwrap(), 5);
        assert_eq!(text(live.take_record(&asked).pop()), Some("Hel".to_owned()));
        assert_eq!(text(live.take(piece(5, 0, "Hello"))), Some("lo".to_owned()), "the part that is not shown");
        assert_eq!(text(live.take(piece(5, 9, "gap"))), None);
        let failure = AskFailure::free(ModelError::OutOfTime);
        let ended = Fact::AskFailed { failure: Box::new(failure), charge: Default::default() };
        live.take_record(&record(ended, 6));
        assert_eq!(text(live.take(piece(5, 5, " you"))), None, "the call has ended");
        assert_eq!(text(live.take(piece(7, 0, "again"))), None);
        assert_eq!(live.early.len(), 1, "the next call");
    }
}
