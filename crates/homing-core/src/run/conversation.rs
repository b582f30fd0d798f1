//! The transcript of a run: what was said, what waits to be said, and how much of it a summary replaces.

use std::{ops::Deref, sync::Arc};

use super::{Run, cut::Cuts, nudges};
use crate::{
    fact::{CallRefusal, Spawned},
    message::{Message, MessageOrigin, ToolResult, TranscriptEntry},
};

/// The transcript of a run.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    /// Shared with the request of an open call, so that a turn of a long conversation does not copy the list.
    pub(super) entries: Arc<Vec<Arc<TranscriptEntry>>>,
    /// Number of entries that the latest summary replaces.
    pub(super) superseded: usize,
    /// Messages to the run that arrived while a call was open.
    waiting: Vec<String>,
    /// Reports of background children that ended while the run only waits for the rest of them.
    reports: Vec<String>,
    pub(super) compaction: Compaction,
    pub(crate) cuts: Cuts,
}

/// The messages of a request. They are shared with the transcript, which is copied if it grows meanwhile.
#[derive(Clone, Debug)]
pub struct SharedMessages {
    entries: Arc<Vec<Arc<TranscriptEntry>>>,
    from: usize,
}

impl SharedMessages {
    /// Returns the messages that the model of a run is sent, without copying the list.
    pub fn of(run: &Run) -> Self {
        Self { entries: run.conversation.entries.clone(), from: run.conversation.superseded }
    }

    /// Adds a message, which the transcript does not get.
    pub fn push(&mut self, entry: Arc<TranscriptEntry>) {
        let own = self.iter().cloned().chain([entry]).collect();
        *self = Self { entries: Arc::new(own), from: 0 };
    }
}

impl From<Arc<TranscriptEntry>> for SharedMessages {
    fn from(entry: Arc<TranscriptEntry>) -> Self {
        Self { entries: Arc::new(vec![entry]), from: 0 }
    }
}

impl Deref for SharedMessages {
    type Target = [Arc<TranscriptEntry>];

    fn deref(&self) -> &Self::Target {
        &self.entries[self.from..]
    }
}

/// Progress of shortening the history.
#[derive(Clone, Debug, Default)]
pub(super) struct Compaction {
    pub(super) pending: PendingCompaction,
    /// Compactions in a row without a turn between them.
    pub(super) in_a_row: u32,
    /// The run's turns at the last compaction.
    turns: u64,
}

/// A compaction that is under way.
#[derive(Clone, Debug, Default)]
pub(super) enum PendingCompaction {
    #[default]
    None,
    /// The history does not fit the model's context window.
    Needed,
    /// The model has written this summary.
    Summarized(String),
}

/// Compactions in a row without progress that end a run.
pub(super) const MAX_COMPACTIONS: u32 = 2;

impl Compaction {
    /// Returns whether there was a compaction, and no turn after it.
    pub(super) fn is_fresh(&self, turns: u64) -> bool {
        self.in_a_row > 0 && turns <= self.turns
    }

    /// Returns whether another compaction would not help, because the last ones did not.
    pub(super) fn is_futile(&self, turns: u64) -> bool {
        self.in_a_row >= MAX_COMPACTIONS && turns <= self.turns
    }

    /// Notes that the history does not fit. A summary that has already been written is used first.
    pub(super) fn need(&mut self) {
        if matches!(self.pending, PendingCompaction::None) {
            self.pending = PendingCompaction::Needed;
        }
    }

    fn done(&mut self, turns: u64) {
        self.pending = PendingCompaction::None;
        self.in_a_row = if turns > self.turns { 1 } else { self.in_a_row + 1 };
        self.turns = turns;
    }
}

/// Returns the origin of a message from another transcript. Facts record such messages without their origin, but a run that
/// continues an ended one must still see where that one got a larger budget.
fn inherited_origin(message: &Message) -> MessageOrigin {
    match message {
        Message::User { text, .. } if nudges::is_more_budget(text) => MessageOrigin::MoreBudget,
        Message::User { .. } | Message::Assistant(_) | Message::Tool(_) => MessageOrigin::Inherited,
    }
}

impl Conversation {
    pub(super) fn new(spawned: &Spawned) -> Self {
        let task = spawned.task_message();
        let inherited = spawned.inherited.iter().cloned();
        let inherited = inherited.map(|message| {
            let origin = inherited_origin(&message);
            TranscriptEntry::with_origin(message, origin)
        });
        let task = TranscriptEntry::with_origin(task, MessageOrigin::Task);
        Self {
            entries: Arc::new(inherited.chain([task]).collect()),
            superseded: 0,
            waiting: Vec::new(),
            reports: Vec::new(),
            compaction: Compaction::default(),
            cuts: Cuts::default(),
        }
    }

    pub(super) fn push(&mut self, message: Message) {
        self.push_entry(TranscriptEntry::new(message));
    }

    /// Adds the result of a call.
    pub(super) fn push_result(&mut self, result: Arc<ToolResult>, refusal: Option<CallRefusal>) {
        self.push_entry(TranscriptEntry::with_refusal(result, refusal));
    }

    /// Adds a user message of this origin.
    pub(super) fn add(&mut self, text: impl Into<String>, origin: MessageOrigin) {
        self.push_entry(TranscriptEntry::with_origin(Message::user(text), origin));
    }

    fn push_entry(&mut self, entry: Arc<TranscriptEntry>) {
        Arc::make_mut(&mut self.entries).push(entry);
    }

    /// Keeps a message until [`Self::deliver`]. Messages wait until no call is open, so that the transcript shows what the
    /// model knew when it replied.
    pub(super) fn hold(&mut self, message: &str) {
        self.waiting.push(message.to_owned());
    }

    /// Keeps the report of a background child until [`Self::deliver_reports`].
    pub(super) fn hold_report(&mut self, report: &str) {
        self.reports.push(report.to_owned());
    }

    /// Adds the reports of background children that were kept.
    pub(super) fn deliver_reports(&mut self) {
        for report in std::mem::take(&mut self.reports) {
            self.add(report, MessageOrigin::Message);
        }
    }

    /// Adds the messages that waited.
    pub(super) fn deliver(&mut self) {
        for message in std::mem::take(&mut self.waiting) {
            self.add(message, MessageOrigin::Message);
        }
    }

    pub(super) fn last(&self) -> Option<&Message> {
        self.entries.last().map(|entry| &entry.message)
    }

    /// Returns the entries that the model is sent.
    pub(super) fn current(&self) -> &[Arc<TranscriptEntry>] {
        &self.entries[self.superseded..]
    }

    /// Returns the texts of the model's replies in this run, the latest first. What the run that it continues said is not its result.
    pub(super) fn reply_texts(&self) -> impl Iterator<Item = String> {
        let own = self.entries.iter().rev().filter(|entry| entry.origin != MessageOrigin::Inherited);
        own.filter_map(|entry| match &entry.message {
            Message::Assistant(reply) => Some(reply.text()),
            Message::User { .. } | Message::Tool(_) => None,
        })
    }

    /// Returns the latest text of the model that is not blank: `partial`, the text of a failed call, or a reply.
    pub(super) fn latest_text(&self, partial: &str) -> String {
        if !partial.trim().is_empty() {
            return self.with_cut_text(partial);
        }
        let joined = self.joined_text();
        if !joined.trim().is_empty() {
            return joined;
        }
        self.reply_texts().find(|text| !text.trim().is_empty()).unwrap_or_default()
    }

    /// Lets `summary` replace the first `upto` entries in future requests.
    pub(super) fn supersede(&mut self, spawned: &Spawned, summary: &str, upto: usize, turns: u64) {
        let upto = upto.clamp(self.superseded, self.entries.len());
        let text = format!("The task:\n{}\n\nSummary of what happened so far:\n{summary}", spawned.task);
        // A summary describes attached images only in words, so they stay.
        let message = Message::User { text, images: spawned.attachments.clone() };
        let summary = TranscriptEntry::with_origin(message, MessageOrigin::Summary);
        Arc::make_mut(&mut self.entries).insert(upto, summary);
        self.superseded = upto;
        self.compaction.done(turns);
    }
}
