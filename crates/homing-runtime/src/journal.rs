//! Where facts are kept. The runtime writes through this seam and never asks what is behind it.

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
    message::Usage,
    tree::RunTree,
};
use uuid::Uuid;

/// Where facts are kept: durable before anything acts on them.
pub trait Journal: Send + Sync {
    /// Sets who is told of records once they are durable, in order. Called once, before anything is written.
    fn on_durable(&self, tell: FactListener);

    /// Begins a tree with its first record, and makes this process its owner.
    ///
    /// Where the record carries a submission key that is taken, nothing is written and the earlier tree is named: the
    /// look-up and the record are one transaction.
    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>>;

    /// Takes a record in. Records of one tree come in the order of their positions. What is returned need not be awaited.
    fn append(&self, record: Arc<Record>) -> Commit;

    /// All records of a tree, in order, checked.
    fn load(&self, tree: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>>;

    /// The tree that its records make.
    fn fold(&self, tree: Uuid) -> BoxFuture<'_, Result<RunTree, JournalError>> {
        Box::pin(async move {
            let mut fold = RunTree::default();
            for record in self.load(tree).await? {
                fold.apply(&record).map_err(|misfit| JournalError::Damaged(misfit.to_string()))?;
            }
            Ok(fold)
        })
    }

    /// The records of a tree from position `from` on.
    fn since(&self, tree: Uuid, from: u64) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        Box::pin(async move {
            let records = self.load(tree).await?;
            Ok(records.into_iter().filter(|record| record.seq >= from).collect())
        })
    }

    /// Makes this process the owner of a tree whose owner is gone, and says which epoch that is.
    fn claim(&self, tree: Uuid, claim: Claim) -> BoxFuture<'_, Result<u32, JournalError>>;

    /// The tree is over, or this process lets go of it.
    fn release(&self, tree: Uuid);

    /// What other processes want of trees that this process owns. Taken once.
    fn inbox(&self) -> BoxFuture<'_, Vec<InboxRequest>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Everybody who shares this gate is to wait until then, in milliseconds since 1970.
    fn pause_gate(&self, gate: &str, until: u64) {
        let _ = (gate, until);
    }

    /// Until when a gate is closed by any process.
    fn gate_closed_until(&self, gate: &str) -> Option<u64> {
        let _ = gate;
        None
    }

    /// Reserves at an account, which is one more ancestor that processes share. `None` is yes.
    fn hold_at_account(
        &self,
        account: &str,
        hold: Reservation,
    ) -> BoxFuture<'_, Result<Option<LimitHit>, JournalError>> {
        let _ = (account, hold);
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Turns a reservation at an account into what was used.
    fn settle_at_account(&self, account: &str, hold: Reservation, used: Usage) {
        let _ = (account, hold, used);
    }
}

/// Takes records that have become durable.
pub type FactListener = Arc<dyn Fn(&Arc<Record>) + Send + Sync>;

/// What became of a tree's first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It is written.
    New,
    /// The key is taken by this tree with the same task; nothing was written.
    Earlier(Uuid),
}

/// How hard to try to become a tree's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Only where the owner is gone.
    IfGone,
    /// Also where it lives but is stalled; it is fenced off from then on.
    Force,
}

/// What another process wants of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxRequest {
    /// Stop it.
    Cancel {
        /// The tree.
        tree: Uuid,
        /// The run.
        run: Uuid,
        /// Who asks.
        by: String,
    },
    /// Tell it something.
    Tell {
        /// The tree.
        tree: Uuid,
        /// The run.
        run: Uuid,
        /// What.
        message: String,
    },
}

/// Why the journal does not do what it is asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// It cannot be written: disk full, IO error, lost permission.
    #[error("the journal cannot be written: {0}")]
    Unwritable(String),
    /// What is written cannot be believed.
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    /// It was written by a newer version, or holds something unknown.
    #[error("the journal cannot be read by this version: {0}")]
    Unknown(String),
    /// Somebody else owns the tree.
    #[error(
        "run {tree} belongs to process {pid} on {host}, which is still alive: cancel it there, or take it over with --force"
    )]
    Owned {
        /// The tree.
        tree: Uuid,
        /// The owner's process id.
        pid: u32,
        /// The owner's machine.
        host: String,
    },
    /// This process was the owner and is not any more.
    #[error("run {tree} was taken over by another process")]
    Fenced {
        /// The tree.
        tree: Uuid,
    },
    /// There is no such tree.
    #[error("there is no run {0} in the journal")]
    NoSuchTree(Uuid),
    /// The submission key is taken by another task.
    #[error("the key `{key}` was used for another task: choose another key")]
    KeyTaken {
        /// The key.
        key: String,
    },
    /// The tree's owners died again and again at the same step.
    #[error("run {tree} crashed {times} times at the same step: resume it with --force to try once more")]
    CrashLoop {
        /// The tree.
        tree: Uuid,
        /// How often.
        times: u32,
    },
}

/// Resolves once a record is durable.
pub enum Commit {
    /// It is already decided.
    Done(Result<(), JournalError>),
    /// The writer will say.
    Pending(BoxFuture<'static, Result<(), JournalError>>),
}

impl Future for Commit {
    type Output = Result<(), JournalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(result) => Poll::Ready(result.clone()),
            Self::Pending(said) => said.as_mut().poll(context),
        }
    }
}

/// A journal that keeps nothing: a crash loses everything, and nothing can be resumed.
#[derive(Default)]
pub struct NullJournal(OnceLock<FactListener>);

impl NullJournal {
    fn tell(&self, record: &Arc<Record>) {
        if let Some(tell) = self.0.get() {
            tell(record);
        }
    }
}

impl Journal for NullJournal {
    fn on_durable(&self, tell: FactListener) {
        let _ = self.0.set(tell);
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        self.tell(&first);
        Box::pin(std::future::ready(Ok(Begun::New)))
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        self.tell(&record);
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

/// A journal that forgets everything with its process.
#[derive(Default)]
pub struct MemoryJournal {
    trees: Mutex<HashMap<Uuid, Vec<Arc<Record>>>>,
    keys: Mutex<HashMap<String, Uuid>>,
    tell: OnceLock<FactListener>,
}

impl MemoryJournal {
    /// An empty journal.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A journal that begins with these records.
    pub fn with(records: impl IntoIterator<Item = Arc<Record>>) -> Arc<Self> {
        let memory = Self::default();
        for record in records {
            memory.push(record);
        }
        Arc::new(memory)
    }

    /// Everything it holds of a tree.
    pub fn records(&self, tree: Uuid) -> Vec<Arc<Record>> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner).get(&tree).cloned().unwrap_or_default()
    }

    fn push(&self, record: Arc<Record>) {
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        trees.entry(record.tree).or_default().push(record);
    }

    fn take(&self, record: Arc<Record>) {
        if let Some(tell) = self.tell.get() {
            tell(&record);
        }
        self.push(record);
    }

    /// The tree that has the key of `first`, or `None` after noting that it is taken by `first` now.
    fn earlier(&self, first: &Record) -> Result<Option<Uuid>, JournalError> {
        let Fact::Spawned(spawned) = &first.fact else { return Ok(None) };
        let Some(key) = &spawned.key else { return Ok(None) };
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(earlier) = keys.get(key).copied() else {
            keys.insert(key.clone(), first.tree);
            return Ok(None);
        };
        let records = self.records(earlier);
        let same = records.first().is_some_and(|record| match &record.fact {
            Fact::Spawned(before) => before.task == spawned.task && before.agent.name == spawned.agent.name,
            _ => false,
        });
        if same { Ok(Some(earlier)) } else { Err(JournalError::KeyTaken { key: key.clone() }) }
    }
}

impl Journal for MemoryJournal {
    fn on_durable(&self, tell: FactListener) {
        let _ = self.tell.set(tell);
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        Box::pin(async move {
            if let Some(earlier) = self.earlier(&first)? {
                return Ok(Begun::Earlier(earlier));
            }
            self.take(first);
            Ok(Begun::New)
        })
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        self.take(record);
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
