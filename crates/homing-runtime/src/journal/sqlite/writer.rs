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
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use homing_core::fact::Record;
use tokio::sync::oneshot;

use crate::journal::{
    FactListener, JournalError,
    sqlite::{
        queue::{AfterCommit, AppendRequest, WriteJob, WriteQueue, WriteRequest},
        row::Row,
        write_txn::WriteTxn,
    },
};

/// Interval of the heartbeat, which is written while the process owns something.
const HEARTBEAT: Duration = Duration::from_secs(1);

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

/// Writes until it is stopped.
pub(super) fn work(mut txn: WriteTxn, queue: &WriteQueue, listener: &DurableListener) {
    let _closes = CloseOnDrop(queue);
    let mut last_beat = Instant::now();
    let mut is_open = true;
    while is_open {
        let mut batch = queue.take(txn.owns_something().then_some(HEARTBEAT));
        if let Some(stop) = batch.iter().position(|request| matches!(request, WriteRequest::Stop)) {
            batch.truncate(stop);
            is_open = false;
        }
        let between = take_between(&mut batch);
        if !batch.iter().all(|request| is_done(&txn, request)) {
            write(&mut txn, batch, listener);
            txn.copy_log_after_trees();
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

/// Closes the queue when the writer ends, even if it panics, so that no caller waits for it.
struct CloseOnDrop<'a>(&'a WriteQueue);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
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

/// Returns whether a request needs no transaction: the tree was released by the commit that ended it.
fn is_done(txn: &WriteTxn, request: &WriteRequest) -> bool {
    matches!(request, WriteRequest::Release(tree) if !txn.owns(*tree))
}

/// A request that waits for the result of the commit.
enum Uncommitted {
    Record { record: Arc<Record>, written: Result<(), JournalError>, reply: oneshot::Sender<Result<(), JournalError>> },
    Job(AfterCommit),
}

fn write(txn: &mut WriteTxn, batch: Vec<WriteRequest>, listener: &DurableListener) {
    txn.begin_batch(batch.iter().any(WriteRequest::lasts));
    let mut uncommitted = Vec::with_capacity(batch.len());
    let mut requests = batch.into_iter().peekable();
    while let Some(request) = requests.next() {
        match request {
            WriteRequest::Append(first) => {
                let more = std::iter::from_fn(|| match requests.next_if(WriteRequest::is_append) {
                    Some(WriteRequest::Append(next)) => Some(next),
                    Some(_) | None => None,
                });
                let appends = std::iter::once(first).chain(more).collect();
                append(txn, appends, &mut uncommitted);
            }
            WriteRequest::Job { work, .. } => uncommitted.extend(execute(txn, work)),
            WriteRequest::Release(tree) if !txn.owns(tree) => (),
            WriteRequest::Release(tree) => _ = txn.all_or_nothing(|txn| txn.ownership().release(tree)),
            WriteRequest::Between(_) | WriteRequest::Stop => (),
        }
    }
    let committed = txn.end_batch();
    for request in uncommitted {
        finish(request, &committed, listener);
    }
}

/// Appends records. Those of one tree become one row: the order between trees has no meaning.
fn append(txn: &mut WriteTxn, mut appends: Vec<AppendRequest>, uncommitted: &mut Vec<Uncommitted>) {
    appends.sort_by_key(|append| append.row.record.tree);
    let mut records = txn.records();
    let mut results = Vec::with_capacity(appends.len());
    for of_tree in appends.chunk_by(|one, next| one.row.record.tree == next.row.record.tree) {
        let rows: Vec<&Row> = of_tree.iter().map(|append| &*append.row).collect();
        let appended = records.append(&rows);
        results.extend((0..rows.len()).map(|at| appended.of(at)));
    }
    uncommitted.extend(appends.into_iter().zip(results).map(|(append, written)| {
        let AppendRequest { row, reply } = append;
        Uncommitted::Record { record: row.record, written, reply }
    }));
}

/// Runs a job. One that panics drops its reply, so its caller gets an error; the writer goes on.
fn execute(txn: &mut WriteTxn, job: WriteJob) -> Option<Uncommitted> {
    let finished = catch_unwind(AssertUnwindSafe(|| job(txn)));
    if finished.is_err() {
        txn.fail_batch("a write job panicked");
    }
    finished.ok().map(Uncommitted::Job)
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
