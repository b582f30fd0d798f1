//! The journal on disk: one SQLite file that many processes share. It stores facts and the owners of trees; the meaning of
//! facts is defined by the fold in `homing_core`.
//!
//! One thread per process writes, in batches; readers use connections of their own. A tree has one owner at a time, which
//! every batch checks for every tree in it.

mod accounts;
mod append;
mod batch;
mod cassette;
mod changes;
mod check;
mod copy;
mod failpoint;
mod file;
mod find;
mod inbox;
mod index;
mod live_marks;
mod lock_holder;
mod migrate;
mod opening;
mod owner;
mod ownership;
mod prune;
mod query;
mod questions;
mod queue;
mod rate_pauses;
mod reader;
mod replay;
mod row;
mod schema;
mod wal_check;
mod write_txn;
mod writer;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use homing_core::{
    BoxFuture,
    fact::{Record, Reservation},
    message::Usage,
    tree::RunTree,
};
use rusqlite::Connection;
use uuid::Uuid;

#[cfg(any(test, feature = "failpoints"))]
pub use crate::journal::sqlite::failpoint::Failpoint;
pub use crate::journal::sqlite::{
    accounts::Account,
    cassette::{Cassette, CassetteError},
    changes::{Changes, JournalFeed},
    check::{JournalReport, check_file},
    copy::journal_name,
    find::{FindError, RunRef, tree_tag},
    inbox::Posted,
    lock_holder::LockHolder,
    opening::OpeningJournal,
    prune::{Pruned, Retention},
    query::{Filter, RunRow, SumBy, UsageSum, Which},
    questions::{FindQuestionError, JournalQuestion},
    replay::{CassetteReplay, Divergence},
};
use crate::journal::{
    AccountHold, Begun, Claim, Commit, FactListener, InboxRequest, Journal, JournalError, LiveMark, LiveMarks,
    sqlite::{
        owner::Owner,
        queue::{WriteQueue, WriteRequest, writer_gone},
        rate_pauses::SharedPauses,
        row::Row,
        writer::DurableListener,
    },
};

/// Options for opening a journal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The limits of accounts, by name.
    pub accounts: BTreeMap<String, Account>,
    /// Records this process as an owner at once, for a host that is about to begin trees. SQLite creates its log for that, which
    /// takes two syncs, while the host prepares; otherwise the first tree waits for them.
    pub begins_trees: bool,
    /// Releases a tree in the commit that ends it, and removes this process from the owners in that of the last tree, for a host that
    /// closes the journal then: the closing has nothing left to write. A tree that goes on has to be claimed again. Not for hosts that
    /// fork trees: a fork may begin with records in which a tree ended and was given more.
    pub closes_after_trees: bool,
    /// Retention of records, enforced in the background once a day. `None` keeps everything.
    pub retention: Option<Retention>,
    /// The point at which this process kills itself.
    #[cfg(any(test, feature = "failpoints"))]
    pub failpoint: Option<Failpoint>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            accounts: BTreeMap::new(),
            begins_trees: false,
            closes_after_trees: false,
            retention: Some(Retention::default()),
            #[cfg(any(test, feature = "failpoints"))]
            failpoint: None,
        }
    }
}

/// The journal on disk.
///
/// Reads are plain functions that use a connection of their own; writes go through one thread. Dropping the journal writes
/// what is queued and releases every tree.
pub struct SqliteJournal {
    path: PathBuf,
    options: SqliteOptions,
    queue: WriteQueue,
    writer: Option<JoinHandle<()>>,
    listener: DurableListener,
    me: Owner,
    idle_readers: Mutex<Vec<Connection>>,
    pauses: Mutex<SharedPauses>,
}

impl SqliteJournal {
    /// Opens the journal at `path`, and creates it if it is missing, readable by its owner only.
    ///
    /// Opening resumes no run and spends nothing. It does not look for damage either: see [`check_file`].
    ///
    /// # Errors
    /// Fails if the file cannot be opened for writing, is not a journal, or was written by a newer version.
    pub fn open(path: impl Into<PathBuf>, options: SqliteOptions) -> Result<Arc<Self>, JournalError> {
        OpeningJournal::begin(path, options)?.wait()
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request to the owner of a tree, which finds it in its [`Journal::inbox`].
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be written.
    pub async fn post(&self, request: InboxRequest) -> Result<Posted, JournalError> {
        self.queue.run(move |txn| txn.inbox().post(&request)).await
    }

    /// Runs `work` on the writer's thread while no transaction is open, such as to stop this process: a process that is stopped
    /// within a transaction would lock the journal for all others.
    pub fn between_writes(&self, work: impl FnOnce() + Send + 'static) {
        self.queue.send(WriteRequest::Between(Box::new(work)));
    }

    /// Runs `read` on a connection of its own.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, JournalError>) -> Result<T, JournalError> {
        let idle = self.idle_readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => schema::open_reader(&self.path)?,
        };
        let result = read(&connection);
        self.idle_readers.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        result
    }
}

impl Journal for SqliteJournal {
    fn on_durable(&self, listener: FactListener) {
        let _ = self.listener.0.set(listener);
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        let row = match Row::new(first) {
            Ok(row) => row,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let (reply, result) = tokio::sync::oneshot::channel();
        let record = row.record.clone();
        self.queue.submit(
            move |txn| txn.records().begin(&row),
            move |begun, listener| {
                if begun == Ok(Begun::New) {
                    listener.notify(&record);
                }
                let _ = reply.send(begun);
            },
        );
        Box::pin(async move { result.await.unwrap_or_else(|_| Err(writer_gone())) })
    }

    fn begin_ahead(&self, first: &Arc<Record>) -> bool {
        let Ok(row) = Row::new(first.clone()) else { return false };
        self.queue.run_with_next(Box::new(move |txn| {
            let begun = txn.begin_ahead(&row);
            Box::new(move |committed, listener| {
                if begun.is_ok() && committed.is_ok() {
                    listener.notify(&row.record);
                }
            })
        }));
        true
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        match Row::new(record) {
            Ok(row) => self.queue.append(row),
            Err(error) => Commit::Done(Err(error)),
        }
    }

    fn load(&self, tree: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        let path = self.path.clone();
        Box::pin(run_blocking(move || reader::records(&schema::open_reader(&path)?, tree, 0)))
    }

    fn fold(&self, tree: Uuid) -> BoxFuture<'_, Result<RunTree, JournalError>> {
        let path = self.path.clone();
        Box::pin(run_blocking(move || reader::tree(&schema::open_reader(&path)?, tree)))
    }

    fn since(&self, tree: Uuid, from: u64) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        let path = self.path.clone();
        Box::pin(run_blocking(move || reader::records(&schema::open_reader(&path)?, tree, from)))
    }

    fn page(&self, tree: Uuid, from: u64, limit: u64) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        let path = self.path.clone();
        Box::pin(run_blocking(move || reader::page(&schema::open_reader(&path)?, tree, from, limit)))
    }

    fn claim(&self, tree: Uuid, claim: Claim) -> BoxFuture<'_, Result<u32, JournalError>> {
        Box::pin(self.queue.run(move |txn| txn.ownership().claim(tree, claim)))
    }

    fn release(&self, tree: Uuid) {
        self.queue.send(WriteRequest::Release(tree));
    }

    fn has_inbox(&self) -> bool {
        true
    }

    fn inbox(&self) -> BoxFuture<'_, Vec<InboxRequest>> {
        if !self.read(|connection| Ok(has_mail(connection, &self.me)?)).unwrap_or(false) {
            return Box::pin(std::future::ready(Vec::new()));
        }
        let taken = self.queue.run(|txn| txn.inbox().take());
        Box::pin(async move { taken.await.unwrap_or_default() })
    }

    fn pause_rate_limit(&self, key: &str, until: u64) {
        let name = key.to_owned();
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).pause(name.clone(), until);
        self.queue.note(move |txn| rate_pauses::store(&txn.connection, &name, until));
    }

    fn rate_limited_until(&self, key: &str) -> Option<u64> {
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        if pauses.is_stale() {
            let _ = self.read(|connection| {
                pauses.refresh(connection);
                Ok(())
            });
        }
        pauses.paused_until(key)
    }

    fn mark(&self, tree: Uuid, run: Uuid, mark: Option<LiveMark>) {
        self.queue.note(move |txn| txn.ownership().mark(tree, run, mark));
    }

    fn marks(&self, tree: Uuid) -> LiveMarks {
        self.read(|connection| live_marks::of_tree(connection, tree)).unwrap_or_default()
    }

    fn hold_at_account<'a>(
        &'a self,
        account: &'a str,
        _: Uuid,
        hold: Reservation,
    ) -> BoxFuture<'a, Result<AccountHold, JournalError>> {
        let (name, account) = (account.to_owned(), self.options.accounts.get(account).copied().unwrap_or_default());
        Box::pin(self.queue.run(move |txn| txn.accounts().reserve(&name, account, hold)))
    }

    fn settle_at_account(&self, account: &str, _: Uuid, hold: Reservation, used: Usage) {
        let name = account.to_owned();
        self.queue.submit(move |txn| txn.accounts().settle(&name, hold, used), |_, _| ());
    }
}

impl Drop for SqliteJournal {
    fn drop(&mut self) {
        begin_close(self);
        if let Some(writer) = self.writer.take()
            && writer.thread().id() != std::thread::current().id()
        {
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Begins to close a journal, for a host that has nothing more to record: what is queued is written, every tree is released
/// and the log is emptied while the caller goes on. Dropping the journal waits for that.
pub fn begin_close(journal: &SqliteJournal) {
    // The last connection that is closed empties the log. The writer's has synced the folder of the log before, a reader's has not.
    journal.idle_readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    journal.queue.send(WriteRequest::Stop);
}

/// Takes the requests about trees that workers drive, for a host that passes them on.
///
/// # Errors
/// Fails if the journal cannot be read or written.
pub async fn take_for_workers(journal: &SqliteJournal) -> Result<Vec<InboxRequest>, JournalError> {
    if !journal.read(|connection| Ok(has_any_mail(connection)?))? {
        return Ok(Vec::new());
    }
    journal.queue.run(|txn| txn.inbox().take_for_workers()).await
}

/// Returns whether there are requests about any tree.
fn has_any_mail(connection: &Connection) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM inbox)")?.query_row([], |row| row.get(0))
}

/// Returns whether other processes have sent requests about trees of this process.
fn has_mail(connection: &Connection, me: &Owner) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM inbox JOIN trees ON trees.id = inbox.tree WHERE owner = ?1)";
    connection.prepare_cached(sql)?.query_row([&me.id], |row| row.get(0))
}

/// Runs `work` on a thread that may block.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
) -> Result<T, JournalError> {
    if tokio::runtime::Handle::try_current().is_ok() {
        return tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(writer_gone()));
    }
    let (reply, result) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || reply.send(work()));
    result.await.unwrap_or_else(|_| Err(writer_gone()))
}
