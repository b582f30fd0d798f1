//! The live events of one tree, formatted once for all readers. Records come from the journal, whichever process wrote them;
//! transient notices come from the runs of this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use homing::{
    Event, JournalError, RunHandle,
    crates::{
        core::fact::Record,
        runtime::journal::sqlite::{JournalFeed, SqliteJournal},
    },
};
use tokio::sync::{broadcast, mpsc};
use uuid::Uuid;

use crate::sse;

/// Number of events that a reader may fall behind before it must read records from the journal again.
const BACKLOG: usize = 1_024;

/// Number of records that are read from the journal at once for a reader.
const PAGE: u64 = 500;

/// The live events of one tree.
pub(crate) struct TreeChannel {
    tree: Uuid,
    journal: Arc<SqliteJournal>,
    /// Position of the next record to send.
    next_seq: Mutex<u64>,
    sender: broadcast::Sender<LiveEvent>,
}

#[derive(Clone)]
struct LiveEvent {
    /// The position of a record; `None` for a notice.
    seq: Option<u64>,
    frame: Bytes,
}

impl TreeChannel {
    /// Sends the records that were written since the last call.
    pub(crate) fn advance(&self) -> Result<(), JournalError> {
        let mut next_seq = self.lock();
        for record in self.journal.follow(self.tree, *next_seq)? {
            *next_seq = record.seq + 1;
            self.send(Some(record.seq), record_frame(&record));
        }
        Ok(())
    }

    /// Sends the event of a run of this process. A record that follows others which were not sent yet is left to
    /// [`Self::advance`].
    fn forward(&self, event: &Event) {
        match event {
            Event::Fact(record) => {
                let mut next_seq = self.lock();
                if record.seq == *next_seq {
                    *next_seq = record.seq + 1;
                    self.send(Some(record.seq), record_frame(record));
                }
            }
            Event::Transient(_) => self.send(None, sse::frame("notice", None, &event.to_json().to_string())),
            Event::Missed(_) => (),
        }
    }

    fn send(&self, seq: Option<u64>, frame: Bytes) {
        // Without readers there is nothing to do.
        let _ = self.sender.send(LiveEvent { seq, frame });
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.next_seq.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record_frame(record: &Record) -> Bytes {
    sse::frame("record", Some(record.seq), &serde_json::to_string(record).unwrap_or_default())
}

/// The channels of the trees that have readers.
pub(crate) struct TreeChannels {
    journal: Arc<SqliteJournal>,
    open: Mutex<HashMap<Uuid, Weak<TreeChannel>>>,
}

impl TreeChannels {
    pub(crate) fn new(journal: Arc<SqliteJournal>) -> Self {
        Self { journal, open: Mutex::default() }
    }

    /// Returns true if no tree has a reader.
    pub(crate) fn is_empty(&self) -> bool {
        let mut open = self.lock();
        open.retain(|_, channel| channel.strong_count() > 0);
        open.is_empty()
    }

    /// Returns the channel of a tree, if it has readers.
    pub(crate) fn get(&self, tree: Uuid) -> Option<Arc<TreeChannel>> {
        self.lock().get(&tree)?.upgrade()
    }

    /// Returns the channel of a tree. The first reader creates it, and `live` finds the run if this process drives it.
    pub(crate) fn open(&self, tree: Uuid, next_seq: u64, live: impl FnOnce() -> Option<RunHandle>) -> Arc<TreeChannel> {
        let mut open = self.lock();
        if let Some(channel) = open.get(&tree).and_then(Weak::upgrade) {
            return channel;
        }
        let sender = broadcast::Sender::new(BACKLOG);
        let journal = self.journal.clone();
        let channel = Arc::new(TreeChannel { tree, journal, next_seq: Mutex::new(next_seq), sender });
        open.insert(tree, Arc::downgrade(&channel));
        drop(open);
        if let Some(run) = live() {
            forward_all(&channel, &run);
        }
        channel
    }

    /// Forwards the events of a run that this process began to drive, if its tree has readers.
    pub(crate) fn attach(&self, run: &RunHandle) {
        if let Some(channel) = self.get(run.tree_id()) {
            forward_all(&channel, run);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Weak<TreeChannel>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forwards the events of a run as long as its tree has readers.
fn forward_all(channel: &Arc<TreeChannel>, run: &RunHandle) {
    let mut events = run.events_from(*channel.lock());
    let channel = Arc::downgrade(channel);
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let Some(channel) = channel.upgrade() else { return };
            channel.forward(&event);
        }
    });
}

/// One reader of a tree's events.
pub(crate) struct TreeReader {
    pub(crate) channel: Arc<TreeChannel>,
    /// Position of the next record to send.
    pub(crate) next_seq: u64,
    pub(crate) sender: mpsc::Sender<Bytes>,
}

impl TreeReader {
    /// Sends events until the reader has gone.
    pub(crate) async fn feed(mut self) {
        let mut live = self.channel.sender.subscribe();
        if self.send_recorded().await.is_none() {
            return;
        }
        loop {
            let event = tokio::select! {
                () = self.sender.closed() => return,
                event = tokio::time::timeout(sse::HEARTBEAT, live.recv()) => event,
            };
            let sent = match event {
                Err(_) => self.sender.send(sse::COMMENT).await.ok(),
                Ok(Ok(event)) => self.send_live(event).await,
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => self.send_gap().await,
                Ok(Err(broadcast::error::RecvError::Closed)) => None,
            };
            if sent.is_none() {
                return;
            }
        }
    }

    /// Sends the records that are in the journal. Returns `None` once the reader has gone.
    async fn send_recorded(&mut self) -> Option<()> {
        loop {
            let (feed, tree, from) = (JournalFeed::new(self.channel.journal.clone()), self.channel.tree, self.next_seq);
            let page = tokio::task::spawn_blocking(move || feed.page(tree, from, PAGE)).await.ok()?.ok()?;
            let is_last = (page.len() as u64) < PAGE;
            for record in page {
                self.next_seq = record.seq + 1;
                self.sender.send(record_frame(&record)).await.ok()?;
            }
            if is_last {
                return Some(());
            }
        }
    }

    async fn send_live(&mut self, event: LiveEvent) -> Option<()> {
        match event.seq {
            // The journal gave it before.
            Some(seq) if seq < self.next_seq => Some(()),
            Some(seq) if seq > self.next_seq => self.send_recorded().await,
            Some(seq) => {
                self.next_seq = seq + 1;
                self.sender.send(event.frame).await.ok()
            }
            None => self.sender.send(event.frame).await.ok(),
        }
    }

    /// Tells a slow reader that it missed notices, and sends the records that it missed.
    async fn send_gap(&mut self) -> Option<()> {
        self.sender.send(sse::frame("gap", None, "{}")).await.ok()?;
        self.send_recorded().await
    }
}
