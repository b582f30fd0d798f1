//! The journal on disk: one SQLite file that many processes share. It stores facts and who works on them; what facts mean
//! is the fold's business, in `homing_core`.
//!
//! One thread writes, each commit holding whatever was queued meanwhile; readers work beside it. A tree has
//! one owner at a time, and a batch checks that for every tree in it.

mod cassette;
mod check;
mod coordination;
mod failpoint;
mod file;
mod index;
mod owner;
mod prune;
mod query;
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
    fact::{LimitHit, Record, Reservation},
    message::Usage,
    tree::RunTree,
};
use rusqlite::Connection;
use uuid::Uuid;

#[cfg(any(test, feature = "failpoints"))]
pub use crate::journal::sqlite::failpoint::Failpoint;
pub use crate::journal::sqlite::{
    cassette::{Cassette, CassetteError},
    check::JournalReport,
    coordination::{Account, Posted},
    prune::{Pruned, Retention},
    query::{Filter, FindError, RunRef, RunRow, SumBy, UsageSum, Which},
    replay::{Divergence, Replay},
};
use crate::journal::{
    Begun, Claim, Commit, FactListener, InboxRequest, Journal, JournalError,
    sqlite::{
        coordination::SharedPauses,
        failpoint::Counter,
        owner::Owner,
        row::Row,
        write_txn::WriteTxn,
        writer::{Teller, WriteOrder, WriteQueue},
    },
};

/// How a journal is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// What accounts may spend, by name.
    pub accounts: BTreeMap<String, Account>,
    /// What is kept; looked after in the background, once a day. `None` keeps everything.
    pub retention: Option<Retention>,
    /// Where this process is to be killed.
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
/// Reads are plain functions that take a connection of their own; what is written goes through one thread. Dropping the
/// journal writes what is queued and lets go of every tree.
pub struct SqliteJournal {
    path: PathBuf,
    options: SqliteOptions,
    orders: WriteQueue,
    writer: Option<JoinHandle<()>>,
    teller: Teller,
    me: Owner,
    idle: Mutex<Vec<Connection>>,
    gates: Mutex<SharedPauses>,
}

impl SqliteJournal {
    /// Opens the journal at `path`; it is made where it is missing, for its owner's eyes only.
    ///
    /// Opening resumes nothing and spends nothing.
    pub fn open(path: impl Into<PathBuf>, options: SqliteOptions) -> Result<Arc<Self>, JournalError> {
        let path = path.into();
        file::prepare(&path)?;
        let connection = schema::open_writer(&path)?;
        let (sender, receiver) = mpsc::channel();
        let (teller, me) = (Teller::default(), Owner::this());
        let desk = WriteTxn::new(connection, me.clone(), points(&options));
        let writer = std::thread::Builder::new()
            .name("homing-journal".to_owned())
            .spawn({
                let teller = teller.clone();
                move || writer::work(desk, &receiver, &teller)
            })
            .map_err(|error| JournalError::Unwritable(format!("no thread for the writer: {error}")))?;
        let journal = Self {
            path,
            options,
            orders: WriteQueue(sender),
            writer: Some(writer),
            teller,
            me,
            idle: Mutex::default(),
            gates: Mutex::default(),
        };
        journal.prune_if_due();
        Ok(Arc::new(journal))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks the owner of a tree for something; the other side of [`Journal::inbox`].
    pub async fn post(&self, request: InboxRequest) -> Result<Posted, JournalError> {
        self.orders.ask(move |desk| desk.post(&request)).await
    }

    /// Runs `read` on a connection of its own.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, JournalError>) -> Result<T, JournalError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => schema::open_reader(&self.path)?,
        };
        let result = read(&connection);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        result
    }

    fn has_mail(&self) -> bool {
        let found = self.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM inbox JOIN trees ON trees.id = inbox.tree WHERE owner = ?1)",
                )
                .and_then(|mut it| it.query_row([&self.me.id], |row| row.get(0)))
                .map_err(|error| schema::said(&error))
        });
        found.unwrap_or(false)
    }

    fn account(&self, name: &str) -> Account {
        self.options.accounts.get(name).copied().unwrap_or_default()
    }
}

#[cfg(any(test, feature = "failpoints"))]
fn points(options: &SqliteOptions) -> Counter {
    Counter::new(options.failpoint)
}

#[cfg(not(any(test, feature = "failpoints")))]
fn points(_: &SqliteOptions) -> Counter {
    Counter::default()
}

impl Journal for SqliteJournal {
    fn on_durable(&self, tell: FactListener) {
        let _ = self.teller.0.set(tell);
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        let row = match Row::new(first) {
            Ok(row) => row,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let (reply, said) = tokio::sync::oneshot::channel();
        let record = row.record.clone();
        self.orders.order(
            move |desk| desk.begin(&row),
            move |begun, teller| {
                if begun == Ok(Begun::New) {
                    teller.tell(&record);
                }
                let _ = reply.send(begun);
            },
        );
        Box::pin(async move { said.await.unwrap_or_else(|_| Err(gone())) })
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        match Row::new(record) {
            Ok(row) => self.orders.append(row),
            Err(error) => Commit::Done(Err(error)),
        }
    }

    fn load(&self, tree: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        let path = self.path.clone();
        Box::pin(aside(move || reader::records(&schema::open_reader(&path)?, tree, 0)))
    }

    fn fold(&self, tree: Uuid) -> BoxFuture<'_, Result<RunTree, JournalError>> {
        let path = self.path.clone();
        Box::pin(aside(move || reader::tree(&schema::open_reader(&path)?, tree)))
    }

    fn since(&self, tree: Uuid, from: u64) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        let path = self.path.clone();
        Box::pin(aside(move || reader::records(&schema::open_reader(&path)?, tree, from)))
    }

    fn claim(&self, tree: Uuid, claim: Claim) -> BoxFuture<'_, Result<u32, JournalError>> {
        Box::pin(self.orders.ask(move |desk| desk.claim(tree, claim)))
    }

    fn release(&self, tree: Uuid) {
        self.orders.order(move |desk| desk.release(tree), |_, _| ());
    }

    fn inbox(&self) -> BoxFuture<'_, Vec<InboxRequest>> {
        if !self.has_mail() {
            return Box::pin(std::future::ready(Vec::new()));
        }
        let taken = self.orders.ask(WriteTxn::take_inbox);
        Box::pin(async move { taken.await.unwrap_or_default() })
    }

    fn pause_gate(&self, gate: &str, until: u64) {
        let gate = gate.to_owned();
        self.gates.lock().unwrap_or_else(PoisonError::into_inner).close(gate.clone(), until);
        self.orders.order(move |desk| desk.close_gate(&gate, until), |_, _| ());
    }

    fn gate_closed_until(&self, gate: &str) -> Option<u64> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.is_stale() {
            let _ = self.read(|connection| {
                gates.refresh(connection);
                Ok(())
            });
        }
        gates.closed_until(gate)
    }

    fn hold_at_account(
        &self,
        account: &str,
        hold: Reservation,
    ) -> BoxFuture<'_, Result<Option<LimitHit>, JournalError>> {
        let (name, account) = (account.to_owned(), self.account(account));
        Box::pin(self.orders.ask(move |desk| desk.hold(&name, account, hold)))
    }

    fn settle_at_account(&self, account: &str, hold: Reservation, used: Usage) {
        let name = account.to_owned();
        self.orders.order(move |desk| desk.settle(&name, hold, used), |_, _| ());
    }
}

impl Drop for SqliteJournal {
    fn drop(&mut self) {
        let _ = self.orders.0.send(WriteOrder::Stop);
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

fn gone() -> JournalError {
    JournalError::Unwritable("the writer is gone".to_owned())
}

/// Runs what may take long on a thread where that hurts nobody.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
) -> Result<T, JournalError> {
    if tokio::runtime::Handle::try_current().is_ok() {
        return tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(gone()));
    }
    let (reply, said) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || reply.send(work()));
    said.await.unwrap_or_else(|_| Err(gone()))
}
