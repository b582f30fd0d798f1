//! `Journal`: the durable log of facts, as the runtime uses it, and two implementations in memory.

mod live_mark;
#[cfg(feature = "sqlite")]
pub mod sqlite;
use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll},
};

use homing_core::{
    BoxFuture,
    fact::{Fact, LimitHit, Record, Reservation},
    limits::Limits,
    message::Usage,
    question::{Answer, QuestionId},
    tree::RunTree,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use live_mark::{CallProgress, LiveMark, LiveMarks};

use crate::placement::Placement;

/// The durable log of facts. The runtime acts on a fact only once it is durable.
pub trait Journal: Send + Sync {
    /// Sets the listener that is called with every durable record, in order. Called once, before anything is written.
    fn on_durable(&self, listener: FactListener);

    /// Returns whether records can be read back.
    fn stores(&self) -> bool {
        true
    }

    /// Returns whether other processes can send requests about this process's trees.
    fn has_inbox(&self) -> bool {
        false
    }

    /// Begins a tree with its first record, and makes this process its owner.
    ///
    /// If the record has a submission key that is taken, nothing is written and the earlier tree is returned. The
    /// look-up and the write are one transaction.
    ///
    /// # Errors
    ///
    /// Fails if the key was used for another task, or if the record cannot be written.
    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>>;

    /// Begins a tree without a submission key, like [`Journal::begin`], but without waiting: records may be appended at once, and
    /// are written with the first one or after it. If the first one cannot be written, they fail with its error.
    ///
    /// Returns `false` and does nothing if the journal has to be waited for.
    fn begin_ahead(&self, first: &Arc<Record>) -> bool {
        let _ = first;
        false
    }

    /// Appends a record. The records of one tree are passed in the order of their positions. The commit need not be
    /// awaited.
    fn append(&self, record: Arc<Record>) -> Commit;

    /// Loads all records of a tree, in order, and checks them.
    ///
    /// # Errors
    ///
    /// Fails if there is no such tree, its records were pruned or are damaged, or they cannot be read.
    fn load(&self, tree: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>>;

    /// Folds the records of a tree.
    fn fold(&self, tree: Uuid) -> BoxFuture<'_, Result<RunTree, JournalError>> {
        Box::pin(async move {
            let mut fold = RunTree::default();
            for record in self.load(tree).await? {
                fold.apply(&record).map_err(|error| JournalError::Damaged(error.to_string()))?;
            }
            Ok(fold)
        })
    }

    /// Loads the records of a tree from position `from` on.
    fn since(&self, tree: Uuid, from: u64) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        Box::pin(async move {
            let records = self.load(tree).await?;
            Ok(records.into_iter().filter(|record| record.seq >= from).collect())
        })
    }

    /// Loads the first records of a tree from position `from` on: `limit` of them, or more if the journal can only load them all at
    /// once.
    fn page(&self, tree: Uuid, from: u64, limit: u64) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        let _ = limit;
        self.since(tree, from)
    }

    /// Makes this process the owner of a tree whose owner is gone, and returns the new epoch.
    ///
    /// # Errors
    ///
    /// Fails if there is no such tree, or its owner is alive and `claim` does not force it.
    fn claim(&self, tree: Uuid, claim: Claim) -> BoxFuture<'_, Result<u32, JournalError>>;

    /// Gives up the ownership of a tree, because it has ended or this process stops driving it.
    fn release(&self, tree: Uuid);

    /// Takes the requests of other processes about trees that this process owns.
    fn inbox(&self) -> BoxFuture<'_, Vec<InboxRequest>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Pauses the calls of all processes that share this rate limiter until then, in milliseconds since 1970.
    fn pause_rate_limit(&self, key: &str, until: u64) {
        let _ = (key, until);
    }

    /// The time until which any process has paused a rate limiter.
    fn rate_limited_until(&self, key: &str) -> Option<u64> {
        let _ = key;
        None
    }

    /// Learns of pauses that other processes have set; `None` if that takes no request.
    fn refresh_rate_limit<'a>(&'a self, key: &'a str) -> Option<BoxFuture<'a, ()>> {
        let _ = key;
        None
    }

    /// Returns how runs are placed on other workers, if they can be.
    fn placement(&self) -> Option<Arc<dyn Placement>> {
        None
    }

    /// Stores what a run is doing now, or removes it. A mark is not a fact and may be lost.
    fn mark(&self, tree: Uuid, run: Uuid, mark: Option<LiveMark>) {
        let _ = (tree, run, mark);
    }

    /// Returns what the runs of a tree were doing when it was last stored.
    fn marks(&self, tree: Uuid) -> LiveMarks {
        let _ = tree;
        LiveMarks::default()
    }

    /// Reserves at an account, which processes share, for the model call of a run.
    fn hold_at_account<'a>(
        &'a self,
        account: &'a str,
        run: Uuid,
        hold: Reservation,
    ) -> BoxFuture<'a, Result<AccountHold, JournalError>> {
        let _ = (account, run, hold);
        Box::pin(std::future::ready(Ok(AccountHold::Held)))
    }

    /// Replaces the reservation of a run at an account by what was used.
    fn settle_at_account(&self, account: &str, run: Uuid, hold: Reservation, used: Usage) {
        let _ = (account, run, hold, used);
    }

    /// Charges an account for a call that was in progress when the owner of its run died. A journal that knows which owners are
    /// dead has charged the reservation already.
    fn charge_interrupted(&self, account: &str, run: Uuid, used: Usage) {
        let _ = (account, run, used);
    }
}

/// Called with every record once it is durable. Must not block.
pub type FactListener = Arc<dyn Fn(&Arc<Record>) + Send + Sync>;

/// The result of reserving at an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountHold {
    /// The amount is reserved.
    Held,
    /// It does not fit now, but may fit when other reservations are settled.
    Later,
    /// It does not fit, because this limit is reached.
    Full(LimitHit),
}

/// The result of beginning a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The first record is written.
    New,
    /// An earlier tree has the same key and task; nothing was written.
    Earlier(Uuid),
}

/// The conditions under which to take over a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Only if the owner is gone.
    IfGone,
    /// Even if the owner is alive; it can no longer write to the tree.
    Force,
}

/// A request of another process about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxRequest {
    /// Cancel the run.
    Cancel {
        /// The tree.
        tree: Uuid,
        /// The run.
        run: Uuid,
        /// The requesting user or process.
        by: String,
    },
    /// Send the run a message.
    Tell {
        /// The tree.
        tree: Uuid,
        /// The run.
        run: Uuid,
        /// The message.
        message: String,
    },
    /// Raise the limits of the run.
    Extend {
        /// The tree.
        tree: Uuid,
        /// The run.
        run: Uuid,
        /// Amount added to each limit.
        more: Limits,
    },
    /// Answer a question of the run.
    Answer {
        /// The tree.
        tree: Uuid,
        /// The run.
        run: Uuid,
        /// The question.
        question: QuestionId,
        /// The answer.
        answer: Answer,
        /// The answering user or process.
        by: String,
    },
}

/// The reason why the journal failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// It cannot be written: disk full, IO error, lost permission.
    #[error("the journal cannot be written: {0}")]
    Unwritable(String),
    /// Its file was deleted or replaced while it was in use, so nothing that is written to it can be read again.
    #[error("the journal {0} was deleted or replaced while it was in use")]
    Gone(String),
    /// Another process has been writing for too long.
    #[error("the journal is locked by {}", holder.as_deref().unwrap_or("another process"))]
    Locked {
        /// The other process, if it is known: its ID, its command line, and whether it is stopped.
        holder: Option<String>,
        /// The process ID of a holder that is stopped.
        stopped: Option<u32>,
    },
    /// Its records contradict each other or fail their checks.
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    /// It was written by a newer version, or contains something unknown.
    #[error("the journal cannot be read by this version: {0}")]
    Unknown(String),
    /// Another process owns the tree.
    #[error("run {tree} belongs to process {pid} on {host}, which is still alive")]
    Owned {
        /// The tree.
        tree: Uuid,
        /// The owner's process id.
        pid: u32,
        /// The owner's machine.
        host: String,
    },
    /// This process is no longer the owner.
    #[error("run {tree} was taken over by another process")]
    Fenced {
        /// The tree.
        tree: Uuid,
    },
    /// The records of the tree were pruned; its result and totals are kept.
    #[error("the records of run {0} were pruned; only its result and its totals are kept")]
    Pruned(Uuid),
    /// There is no such tree.
    #[error("there is no run {0} in the journal")]
    NoSuchTree(Uuid),
    /// The submission key is taken by another task.
    #[error("the key `{key}` was already used for another task")]
    KeyTaken {
        /// The key.
        key: String,
    },
    /// The owners of the tree crashed repeatedly at the same step.
    #[error("run {tree} crashed {times} times at the same step")]
    CrashLoop {
        /// The tree.
        tree: Uuid,
        /// The number of crashes.
        times: u32,
    },
}

/// Resolves once a record is durable.
pub enum Commit {
    /// The result is known.
    Done(Result<(), JournalError>),
    /// The writer will report the result.
    Pending(BoxFuture<'static, Result<(), JournalError>>),
}

impl Future for Commit {
    type Output = Result<(), JournalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(result) => Poll::Ready(result.clone()),
            Self::Pending(result) => result.as_mut().poll(context),
        }
    }
}

/// The submission keys of a journal in memory, each with the first record of its tree.
#[derive(Default)]
struct SubmissionKeys(Mutex<HashMap<String, Arc<Record>>>);

impl SubmissionKeys {
    /// Returns the tree that has the key of `first`, or reserves the key for `first`.
    fn earlier(&self, first: &Arc<Record>) -> Result<Option<Uuid>, JournalError> {
        let Fact::Spawned(spawned) = &first.fact else { return Ok(None) };
        let Some(key) = &spawned.key else { return Ok(None) };
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(earlier) = keys.get(key) else {
            keys.insert(key.clone(), first.clone());
            return Ok(None);
        };
        let is_same = match &earlier.fact {
            Fact::Spawned(before) => {
                before.task == spawned.task
                    && before.attachments == spawned.attachments
                    && before.agent.name == spawned.agent.name
            }
            _ => false,
        };
        if is_same { Ok(Some(earlier.tree)) } else { Err(JournalError::KeyTaken { key: key.clone() }) }
    }
}

/// A journal that stores nothing but submission keys: no run can be resumed.
#[derive(Default)]
pub struct NullJournal {
    keys: SubmissionKeys,
    listener: OnceLock<FactListener>,
}

impl NullJournal {
    fn notify(&self, record: &Arc<Record>) {
        if let Some(listener) = self.listener.get() {
            listener(record);
        }
    }
}

impl Journal for NullJournal {
    fn on_durable(&self, listener: FactListener) {
        let _ = self.listener.set(listener);
    }

    fn stores(&self) -> bool {
        false
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        let begun = self.keys.earlier(&first).map(|earlier| earlier.map_or(Begun::New, Begun::Earlier));
        if begun == Ok(Begun::New) {
            self.notify(&first);
        }
        Box::pin(std::future::ready(begun))
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        self.notify(&record);
        Commit::Done(Ok(()))
    }

    fn load(&self, tree: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        Box::pin(std::future::ready(Err(JournalError::NoSuchTree(tree))))
    }

    fn claim(&self, tree: Uuid, _: Claim) -> BoxFuture<'_, Result<u32, JournalError>> {
        Box::pin(std::future::ready(Err(JournalError::NoSuchTree(tree))))
    }

    fn release(&self, _: Uuid) {}
}

/// A journal in memory, lost when the process ends.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_runtime::journal; }
/// use homing::journal::MemoryJournal;
///
/// // Homing::builder().journal(JournalChoice::Own(journal.clone())) lets a test read the records of a run.
/// let journal = MemoryJournal::new();
/// assert!(journal.records(uuid::Uuid::nil()).is_empty());
/// ```
#[derive(Default)]
pub struct MemoryJournal {
    trees: Mutex<HashMap<Uuid, Vec<Arc<Record>>>>,
    keys: SubmissionKeys,
    listener: OnceLock<FactListener>,
}

impl std::fmt::Debug for MemoryJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryJournal").finish_non_exhaustive()
    }
}

impl MemoryJournal {
    /// An empty journal.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A journal with these records.
    pub fn with(records: impl IntoIterator<Item = Arc<Record>>) -> Arc<Self> {
        let memory = Self::default();
        for record in records {
            memory.push(record);
        }
        Arc::new(memory)
    }

    /// The records of a tree.
    pub fn records(&self, tree: Uuid) -> Vec<Arc<Record>> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner).get(&tree).cloned().unwrap_or_default()
    }

    fn push(&self, record: Arc<Record>) {
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        trees.entry(record.tree).or_default().push(record);
    }

    fn store(&self, record: Arc<Record>) {
        if let Some(listener) = self.listener.get() {
            listener(&record);
        }
        self.push(record);
    }
}

impl Journal for MemoryJournal {
    fn on_durable(&self, listener: FactListener) {
        let _ = self.listener.set(listener);
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        Box::pin(async move {
            if let Some(earlier) = self.keys.earlier(&first)? {
                return Ok(Begun::Earlier(earlier));
            }
            self.store(first);
            Ok(Begun::New)
        })
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        self.store(record);
        Commit::Done(Ok(()))
    }

    fn load(&self, tree: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        let records = self.records(tree);
        Box::pin(async move { if records.is_empty() { Err(JournalError::NoSuchTree(tree)) } else { Ok(records) } })
    }

    fn claim(&self, tree: Uuid, _: Claim) -> BoxFuture<'_, Result<u32, JournalError>> {
        let last = self.records(tree).last().map(|record| record.epoch);
        Box::pin(async move { last.map(|epoch| epoch + 1).ok_or(JournalError::NoSuchTree(tree)) })
    }

    fn release(&self, _: Uuid) {}
}
