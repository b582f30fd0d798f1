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
mod inbox;
mod index;
mod live_marks;
mod owner;
mod ownership;
mod prune;
mod query;
mod questions;
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
    sync::{Arc, Mutex, PoisonError, mpsc},
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
    inbox::Posted,
    prune::{Pruned, Retention},
    query::{Filter, FindError, RunRef, RunRow, SumBy, UsageSum, Which},
    questions::{FindQuestionError, JournalQuestion},
    replay::{CassetteReplay, Divergence},
};
use crate::journal::{
    AccountHold, Begun, Claim, Commit, FactListener, InboxRequest, Journal, JournalError, LiveMark, LiveMarks,
    sqlite::{
        failpoint::FailpointCounter,
        owner::Owner,
        rate_pauses::SharedPauses,
        row::Row,
        write_txn::WriteTxn,
        writer::{DurableListener, WriteQueue, WriteRequest},
    },
};

/// Options for opening a journal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The limits of accounts, by name.
    pub accounts: BTreeMap<String, Account>,
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
        let path = path.into();
        file::prepare(&path)?;
        let connection = schema::open_writer(&path)?;
        let (sender, receiver) = mpsc::channel();
        let (listener, me) = (DurableListener::default(), Owner::this());
        let txn = WriteTxn::new(connection, me.clone(), points(&options));
        let writer = std::thread::Builder::new()
            .name("homing-journal".to_owned())
            .spawn({
                let listener = listener.clone();
                move || writer::work(txn, &receiver, &listener)
            })
            .map_err(|error| JournalError::Unwritable(format!("cannot start the writer thread: {error}")))?;
        let journal = Self {
            path,
            options,
            queue: WriteQueue(sender),
            writer: Some(writer),
            listener,
            me,
            idle_readers: Mutex::default(),
            pauses: Mutex::default(),
        };
        journal.prune_if_due();
        Ok(Arc::new(journal))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request to the owner of a tree, which finds it in its [`Journal::inbox`].
    pub async fn post(&self, request: InboxRequest) -> Result<Posted, JournalError> {
        self.queue.run(move |txn| txn.inbox().post(&request)).await
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

    fn has_mail(&self) -> bool {
        let found = self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM inbox JOIN trees ON trees.id = inbox.tree WHERE owner = ?1)",
                )
                .and_then(|mut select| select.query_row([&self.me.id], |row| row.get(0)))
                .map_err(JournalError::from)
        });
        found.unwrap_or(false)
    }

    fn account(&self, name: &str) -> Account {
        self.options.accounts.get(name).copied().unwrap_or_default()
    }
}

#[cfg(any(test, feature = "failpoints"))]
fn points(options: &SqliteOptions) -> FailpointCounter {
    FailpointCounter::new(options.failpoint)
}

#[cfg(not(any(test, feature = "failpoints")))]
fn points(_: &SqliteOptions) -> FailpointCounter {
    FailpointCounter::default()
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

    fn claim(&self, tree: Uuid, claim: Claim) -> BoxFuture<'_, Result<u32, JournalError>> {
        Box::pin(self.queue.run(move |txn| txn.ownership().claim(tree, claim)))
    }

    fn release(&self, tree: Uuid) {
        self.queue.submit(move |txn| txn.ownership().release(tree), |_, _| ());
    }

    fn has_inbox(&self) -> bool {
        true
    }

    fn inbox(&self) -> BoxFuture<'_, Vec<InboxRequest>> {
        if !self.has_mail() {
            return Box::pin(std::future::ready(Vec::new()));
        }
        let taken = self.queue.run(|txn| txn.inbox().take());
        Box::pin(async move { taken.await.unwrap_or_default() })
    }

    fn pause_rate_limit(&self, key: &str, until: u64) {
        let name = key.to_owned();
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).pause(name.clone(), until);
        self.queue.submit(move |txn| rate_pauses::store(&txn.connection, &name, until), |_, _| ());
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
        self.queue.submit(move |txn| live_marks::store(&txn.connection, tree, run, mark), |_, _| ());
    }

    fn marks(&self, tree: Uuid) -> LiveMarks {
        self.read(|connection| live_marks::of_tree(connection, tree)).unwrap_or_default()
    }

    fn hold_at_account(&self, account: &str, hold: Reservation) -> BoxFuture<'_, Result<AccountHold, JournalError>> {
        let (name, account) = (account.to_owned(), self.account(account));
        Box::pin(self.queue.run(move |txn| txn.accounts().reserve(&name, account, hold)))
    }

    fn settle_at_account(&self, account: &str, hold: Reservation, used: Usage) {
        let name = account.to_owned();
        self.queue.submit(move |txn| txn.accounts().settle(&name, hold, used), |_, _| ());
    }
}

impl Drop for SqliteJournal {
    fn drop(&mut self) {
        let _ = self.queue.0.send(WriteRequest::Stop);
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

fn writer_gone() -> JournalError {
    JournalError::Unwritable("the writer thread has ended".to_owned())
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
