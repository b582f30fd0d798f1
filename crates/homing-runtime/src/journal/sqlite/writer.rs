//! The writer thread: takes requests from a queue and commits them in batches. It does not know what the requests mean, and
//! runs until its journal is dropped.
//!
//! Commits are grouped because a sync to disk takes about as long as hundreds of inserts, and every record must be synced
//! before anything acts on it. With a transaction per record, a thousand runs would wait for a thousand syncs, one after
//! the other. Instead the writer commits everything that was queued while the previous commit was being synced: under load
//! batches grow by themselves, and a single run still gets its commit at once. Two rules keep this correct. A record counts as
//! durable only after the commit of its batch, so replies and listeners are served after it, never before. And one bad
//! request must not fail its neighbours: each job runs in a savepoint, a record that does not fit closes its own tree, and
//! only an error of the disk fails the whole batch.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use homing_core::fact::Record;
use tokio::sync::oneshot;

use crate::journal::{
    Commit, FactListener, JournalError,
    sqlite::{row::Row, write_txn::WriteTxn, writer_gone},
};

/// Interval of the heartbeat, which is written while the process owns something.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The most requests of one commit, so that the first of them does not wait too long.
const MAX_BATCH: usize = 4096;

/// The time for which records that no caller waits for are held back. Usually a record that a caller waits for follows, and
/// they share its commit.
const LINGER: Duration = Duration::from_millis(1);

/// A request to the writer.
pub(super) enum WriteRequest {
    /// Write a record.
    Append { row: Box<Row>, reply: oneshot::Sender<Result<(), JournalError>> },
    /// Run a job within the transaction of its batch.
    Job(WriteJob),
    /// Run this between two batches.
    Between(Box<dyn FnOnce() + Send>),
    /// A caller waits for a record that is queued.
    Hurry,
    /// Write what is queued and end.
    Stop,
}

/// Acts within the transaction, and returns what to do once the result of the commit is known.
pub(super) type WriteJob = Box<dyn FnOnce(&mut WriteTxn) -> AfterCommit + Send>;

/// Runs once the result of the commit is known.
pub(super) type AfterCommit = Box<dyn FnOnce(&Result<(), JournalError>, &DurableListener) + Send>;

/// The listener that is called with every record once it is durable.
#[derive(Clone, Default)]
pub(super) struct DurableListener(pub(super) Arc<OnceLock<FactListener>>);

impl DurableListener {
    /// Calls the listener. Its panic does not concern the journal.
    pub(super) fn notify(&self, record: &Arc<Record>) {
        if let Some(listener) = self.0.get() {
            let _ = catch_unwind(AssertUnwindSafe(|| listener(record)));
        }
    }
}

/// The queue of the writer.
#[derive(Clone)]
pub(super) struct WriteQueue(pub(super) Sender<WriteRequest>);

impl WriteQueue {
    /// Queues a record; it is written sooner if the commit is awaited.
    pub(super) fn append(&self, row: Row) -> Commit {
        let (reply, result) = oneshot::channel();
        // If the writer is gone the request is dropped, and with it the reply: the receiver reports it.
        let _ = self.0.send(WriteRequest::Append { row: Box::new(row), reply });
        let queue = self.0.clone();
        Commit::Pending(Box::pin(async move {
            let _ = queue.send(WriteRequest::Hurry);
            result.await.unwrap_or_else(|_| Err(writer_gone()))
        }))
    }

    /// Runs `job` within a transaction, as a whole or not at all. Resolves once its result is durable.
    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut WriteTxn) -> Result<T, JournalError> + Send + 'static,
    ) -> impl Future<Output = Result<T, JournalError>> + Send + 'static {
        let (reply, result) = oneshot::channel();
        self.submit(job, move |done, _| {
            let _ = reply.send(done);
        });
        async move { result.await.unwrap_or_else(|_| Err(writer_gone())) }
    }

    /// Like [`WriteQueue::run`], but blocks the calling thread.
    pub(super) fn run_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut WriteTxn) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let (reply, result) = std::sync::mpsc::channel();
        self.submit(job, move |done, _| {
            let _ = reply.send(done);
        });
        result.recv().unwrap_or_else(|_| Err(writer_gone()))
    }

    /// Runs `job` within a transaction, then `after` with its result.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut WriteTxn) -> Result<T, JournalError> + Send + 'static,
        after: impl FnOnce(Result<T, JournalError>, &DurableListener) + Send + 'static,
    ) {
        let job: WriteJob = Box::new(move |txn| {
            let done = txn.all_or_nothing(job);
            Box::new(move |committed, listener| {
                let result = match (done, committed) {
                    (Ok(value), Ok(())) => Ok(value),
                    (Err(error), _) => Err(error),
                    (Ok(_), Err(error)) => Err(error.clone()),
                };
                after(result, listener);
            })
        });
        let _ = self.0.send(WriteRequest::Job(job));
    }
}

/// Writes until it is stopped or all senders of the queue are dropped.
pub(super) fn work(mut txn: WriteTxn, queue: &Receiver<WriteRequest>, listener: &DurableListener) {
    let mut last_beat = Instant::now();
    let mut is_open = true;
    while is_open {
        let mut batch = Vec::new();
        match next_request(&txn, queue) {
            Ok(request) => batch.push(request),
            Err(RecvTimeoutError::Timeout) => (),
            Err(RecvTimeoutError::Disconnected) => is_open = false,
        }
        linger(&mut batch, queue);
        batch.extend(queue.try_iter().take(MAX_BATCH));
        batch.retain(|request| !matches!(request, WriteRequest::Hurry));
        if let Some(stop) = batch.iter().position(|request| matches!(request, WriteRequest::Stop)) {
            batch.truncate(stop);
            is_open = false;
        }
        let between = take_between(&mut batch);
        if !batch.is_empty() {
            write(&mut txn, batch, listener);
        }
        for work in between {
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
        if txn.owns_something() && last_beat.elapsed() >= HEARTBEAT {
            txn.beat();
            last_beat = Instant::now();
        }
    }
    txn.leave();
}

/// Takes the work that must not run within a transaction out of a batch.
fn take_between(batch: &mut Vec<WriteRequest>) -> Vec<Box<dyn FnOnce() + Send>> {
    let mut between = Vec::new();
    for request in std::mem::take(batch) {
        match request {
            WriteRequest::Between(work) => between.push(work),
            other => batch.push(other),
        }
    }
    between
}

/// Waits for the next request; while the process owns something, no longer than until the next heartbeat.
fn next_request(txn: &WriteTxn, queue: &Receiver<WriteRequest>) -> Result<WriteRequest, RecvTimeoutError> {
    if txn.owns_something() {
        queue.recv_timeout(HEARTBEAT)
    } else {
        queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
    }
}

/// Waits up to [`LINGER`] for a request that cannot wait.
fn linger(batch: &mut Vec<WriteRequest>, queue: &Receiver<WriteRequest>) {
    let until = Instant::now() + LINGER;
    while batch.len() < MAX_BATCH && matches!(batch.last(), Some(WriteRequest::Append { .. })) {
        match queue.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(request) => batch.push(request),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A request that waits for the result of the commit.
enum Uncommitted {
    Record { record: Arc<Record>, written: Result<(), JournalError>, reply: oneshot::Sender<Result<(), JournalError>> },
    Job(AfterCommit),
}

fn write(txn: &mut WriteTxn, batch: Vec<WriteRequest>, listener: &DurableListener) {
    txn.begin_batch();
    let uncommitted: Vec<Uncommitted> = batch.into_iter().filter_map(|request| execute(txn, request)).collect();
    let committed = txn.end_batch();
    for request in uncommitted {
        finish(request, &committed, listener);
    }
}

fn execute(txn: &mut WriteTxn, request: WriteRequest) -> Option<Uncommitted> {
    match request {
        WriteRequest::Append { row, reply } => {
            let written = txn.records().append(&row);
            Some(Uncommitted::Record { record: row.record, written, reply })
        }
        // A job that panics drops its reply, so its caller gets an error; the writer goes on.
        WriteRequest::Job(job) => {
            let finished = catch_unwind(AssertUnwindSafe(|| job(txn)));
            if finished.is_err() {
                txn.fail_batch("a write job panicked");
            }
            finished.ok().map(Uncommitted::Job)
        }
        WriteRequest::Between(_) | WriteRequest::Hurry | WriteRequest::Stop => None,
    }
}

fn finish(request: Uncommitted, committed: &Result<(), JournalError>, listener: &DurableListener) {
    match request {
        Uncommitted::Record { record, written, reply } => {
            let result = written.and_then(|()| committed.clone());
            if result.is_ok() {
                listener.notify(&record);
            }
            let _ = reply.send(result);
        }
        Uncommitted::Job(after) => {
            let _ = catch_unwind(AssertUnwindSafe(|| after(committed, listener)));
        }
    }
}
