//! Watches the journal for all readers of this server: one look per interval, however many readers there are.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use homing::{
    JournalError,
    crates::runtime::journal::sqlite::{Filter, JournalFeed, SqliteJournal},
};
use serde_json::json;
use tokio::sync::{Notify, broadcast, mpsc};
use uuid::Uuid;

use crate::{sse, tree_cache::TreeCache, tree_channel::TreeChannels, tree_row::TreeRow};

/// Time between two looks at the journal.
const INTERVAL: Duration = Duration::from_millis(100);

/// Time between two looks at trees that have not ended: a process that dies writes no record.
const LIVENESS: Duration = Duration::from_secs(1);

/// Number of changes that a reader of the list may fall behind.
const BACKLOG: usize = 256;

/// Watches the journal.
pub(crate) struct JournalWatch {
    pub(crate) journal: Arc<SqliteJournal>,
    pub(crate) feed: JournalFeed,
    pub(crate) cache: TreeCache,
    pub(crate) channels: TreeChannels,
    rows: broadcast::Sender<ListEvent>,
    wake: Notify,
    shown: Mutex<Shown>,
    /// Position of the journal at the last look; `None` before the first reader.
    seen: Mutex<Option<u64>>,
}

/// An event of the list of trees, with the position of the journal that it belongs to.
#[derive(Clone)]
struct ListEvent {
    position: u64,
    frame: Bytes,
}

/// The state that the readers of the list have seen last.
#[derive(Default)]
struct Shown {
    /// The trees that had not ended.
    open: HashMap<Uuid, TreeRow>,
    questions: u64,
}

impl JournalWatch {
    pub(crate) fn new(journal: Arc<SqliteJournal>) -> Arc<Self> {
        Arc::new(Self {
            cache: TreeCache::new(journal.clone()),
            channels: TreeChannels::new(journal.clone()),
            feed: JournalFeed::new(journal.clone()),
            journal,
            rows: broadcast::Sender::new(BACKLOG),
            wake: Notify::new(),
            shown: Mutex::default(),
            seen: Mutex::default(),
        })
    }

    /// Watches until the task is aborted. Without readers it does nothing.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut checked = Instant::now();
        loop {
            if self.rows.receiver_count() == 0 && self.channels.is_empty() {
                self.wake.notified().await;
            }
            let checks_liveness = checked.elapsed() >= LIVENESS;
            if checks_liveness {
                checked = Instant::now();
            }
            let watch = self.clone();
            // A journal that cannot be read now may be readable at the next look.
            let _ = tokio::task::spawn_blocking(move || watch.look(checks_liveness)).await;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Wakes the watch for a new reader.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn look(&self, checks_liveness: bool) -> Result<(), JournalError> {
        let (position, changed) = self.changes()?;
        self.cache.catch_up()?;
        for channel in changed.iter().filter_map(|tree| self.channels.get(*tree)) {
            channel.advance()?;
        }
        if self.rows.receiver_count() == 0 {
            return Ok(());
        }
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut trees: HashSet<Uuid> = changed.into_iter().collect();
        if checks_liveness {
            trees.extend(shown.open.keys());
        }
        if trees.is_empty() {
            return Ok(());
        }
        for row in self.rows_of(trees.into_iter().collect())? {
            if shown.open.get(&row.tree) == Some(&row) {
                continue;
            }
            self.send(position, "tree", &serde_json::to_string(&row).unwrap_or_default());
            if row.status.is_over() {
                shown.open.remove(&row.tree);
            } else {
                shown.open.insert(row.tree, row);
            }
        }
        let questions = shown.open.values().map(|row| row.summary.questions).sum();
        if shown.questions != questions {
            shown.questions = questions;
            self.send(position, "questions", &json!({"count": questions}).to_string());
        }
        Ok(())
    }

    /// Fixes the position from which changes are noticed. A reader calls it before it reads the present state, so that nothing
    /// is lost between the two.
    pub(crate) fn begin(&self) -> Result<(), JournalError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_none() {
            *seen = Some(self.feed.position()?);
        }
        Ok(())
    }

    /// Returns the position of the journal, and the trees that changed since the last look.
    fn changes(&self) -> Result<(u64, Vec<Uuid>), JournalError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = match *seen {
            Some(position) => self.feed.changes(position)?,
            None => return Ok((0, Vec::new())),
        };
        *seen = Some(changes.position);
        Ok((changes.position, changes.trees))
    }

    fn send(&self, position: u64, event: &str, data: &str) {
        let _ = self.rows.send(ListEvent { position, frame: sse::frame(event, Some(position), data) });
    }

    /// Returns the rows of these trees, oldest first.
    fn rows_of(&self, trees: Vec<Uuid>) -> Result<Vec<TreeRow>, JournalError> {
        let rows = self.journal.runs(&Filter { trees: Some(trees), ..Filter::default() })?;
        rows.into_iter().rev().map(|row| self.cache.row(row)).collect()
    }

    /// Returns the frames for a reader of the list: the trees that changed since `from`, and the number of open questions.
    fn since(&self, from: Option<u64>) -> Result<(u64, Vec<Bytes>), JournalError> {
        self.begin()?;
        let (position, trees) = match from {
            Some(from) => {
                let changes = self.feed.changes(from)?;
                (changes.position, changes.trees)
            }
            None => (self.feed.position()?, Vec::new()),
        };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if self.rows.receiver_count() <= 1 {
            // Nothing was shown while there was no other reader.
            let open = self.cache.rows(&Filter::default())?.into_iter().filter(|row| !row.status.is_over());
            shown.open = open.map(|row| (row.tree, row)).collect();
            shown.questions = shown.open.values().map(|row| row.summary.questions).sum();
        }
        let rows = if trees.is_empty() { Vec::new() } else { self.rows_of(trees)? };
        let mut frames: Vec<Bytes> = rows
            .iter()
            .map(|row| sse::frame("tree", Some(position), &serde_json::to_string(row).unwrap_or_default()))
            .collect();
        frames.push(sse::frame("questions", Some(position), &json!({"count": shown.questions}).to_string()));
        Ok((position, frames))
    }

    /// Sends the changes of the list to a reader until it has gone.
    pub(crate) async fn feed_list(self: Arc<Self>, from: Option<u64>, sender: mpsc::Sender<Bytes>) {
        let mut live = self.rows.subscribe();
        self.wake();
        let Some(mut position) = self.clone().send_since(from, &sender).await else { return };
        loop {
            let event = tokio::select! {
                () = sender.closed() => return,
                event = tokio::time::timeout(sse::HEARTBEAT, live.recv()) => event,
            };
            let sent = match event {
                Err(_) => sender.send(sse::COMMENT).await.ok().map(|()| position),
                Ok(Ok(event)) => sender.send(event.frame).await.ok().map(|()| event.position),
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => {
                    self.clone().send_since(Some(position), &sender).await
                }
                Ok(Err(broadcast::error::RecvError::Closed)) => None,
            };
            let Some(sent) = sent else { return };
            position = sent;
        }
    }

    async fn send_since(self: Arc<Self>, from: Option<u64>, sender: &mpsc::Sender<Bytes>) -> Option<u64> {
        let found = tokio::task::spawn_blocking(move || self.since(from)).await.ok()?;
        let (position, frames) = found.ok()?;
        for frame in frames {
            sender.send(frame).await.ok()?;
        }
        Some(position)
    }
}
