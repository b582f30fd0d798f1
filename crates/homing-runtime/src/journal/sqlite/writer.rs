//! The one thread of a process that writes: it drains its queue and makes one commit of whatever was in it. It does not
//! know what the orders mean, and nothing makes it end but the end of its journal.

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
    sqlite::{gone, row::Row, write_txn::WriteTxn},
};

/// How often a process says that it lives while it owns something.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The most orders of one commit: beyond it the first of them would wait for nothing.
const BATCH: usize = 4096;

/// How long records wait that nobody waits for: most often one follows soon that somebody does wait for, and a commit is saved.
const LINGER: Duration = Duration::from_millis(1);

/// What the writer is asked to do.
pub(super) enum WriteOrder {
    /// Write a record.
    Append { row: Box<Row>, reply: oneshot::Sender<Result<(), JournalError>> },
    /// Anything else, within the transaction of its batch.
    Job(WriteJob),
    /// Somebody waits for what is queued.
    Hurry,
    /// Write what is queued and end.
    Stop,
}

/// Acts within the transaction, and says what is to be done once it is known whether the commit succeeded.
pub(super) type WriteJob = Box<dyn FnOnce(&mut WriteTxn) -> Finish + Send>;

/// What is to be done once it is known whether the commit succeeded.
pub(super) type Finish = Box<dyn FnOnce(&Result<(), JournalError>, &Teller) + Send>;

/// Tells of records that have become durable.
#[derive(Clone, Default)]
pub(super) struct Teller(pub(super) Arc<OnceLock<FactListener>>);

impl Teller {
    /// A listener that panics is its owner's trouble, not the journal's.
    pub(super) fn tell(&self, record: &Arc<Record>) {
        if let Some(tell) = self.0.get() {
            let _ = catch_unwind(AssertUnwindSafe(|| tell(record)));
        }
    }
}

/// The way to the writer.
#[derive(Clone)]
pub(super) struct WriteQueue(pub(super) Sender<WriteOrder>);

impl WriteQueue {
    /// Queues a record; it is written sooner if that is awaited.
    pub(super) fn append(&self, row: Row) -> Commit {
        let (reply, said) = oneshot::channel();
        // A writer that is gone drops the order, and with it the reply: the receiver says so.
        let _ = self.0.send(WriteOrder::Append { row: Box::new(row), reply });
        let orders = self.0.clone();
        Commit::Pending(Box::pin(async move {
            let _ = orders.send(WriteOrder::Hurry);
            said.await.unwrap_or_else(|_| Err(gone()))
        }))
    }

    /// Has `job` done within a transaction; all of it happens, or nothing. Resolves once that is durable.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut WriteTxn) -> Result<T, JournalError> + Send + 'static,
    ) -> impl Future<Output = Result<T, JournalError>> + Send + 'static {
        let (reply, said) = oneshot::channel();
        self.order(job, move |result, _| {
            let _ = reply.send(result);
        });
        async move { said.await.unwrap_or_else(|_| Err(gone())) }
    }

    /// Has `job` done within a transaction, then `after` with what became of it.
    pub(super) fn order<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut WriteTxn) -> Result<T, JournalError> + Send + 'static,
        after: impl FnOnce(Result<T, JournalError>, &Teller) + Send + 'static,
    ) {
        let job: WriteJob = Box::new(move |desk| {
            let done = desk.all_or_nothing(job);
            Box::new(move |committed, teller| {
                let result = match (done, committed) {
                    (Ok(value), Ok(())) => Ok(value),
                    (Err(error), _) => Err(error),
                    (Ok(_), Err(error)) => Err(error.clone()),
                };
                after(result, teller);
            })
        });
        let _ = self.0.send(WriteOrder::Job(job));
    }
}

/// Writes until it is told to stop, or until nobody is left who could tell it anything.
pub(super) fn work(mut desk: WriteTxn, orders: &Receiver<WriteOrder>, teller: &Teller) {
    let mut beaten = Instant::now();
    let mut open = true;
    while open {
        let mut batch = Vec::new();
        match wait(&desk, orders) {
            Ok(order) => batch.push(order),
            Err(RecvTimeoutError::Timeout) => (),
            Err(RecvTimeoutError::Disconnected) => open = false,
        }
        linger(&mut batch, orders);
        batch.extend(orders.try_iter().take(BATCH));
        batch.retain(|order| !matches!(order, WriteOrder::Hurry));
        if let Some(stop) = batch.iter().position(|order| matches!(order, WriteOrder::Stop)) {
            batch.truncate(stop);
            open = false;
        }
        if !batch.is_empty() {
            write(&mut desk, batch, teller);
        }
        if desk.owns_something() && beaten.elapsed() >= HEARTBEAT {
            desk.beat();
            beaten = Instant::now();
        }
    }
    desk.leave();
}

fn wait(desk: &WriteTxn, orders: &Receiver<WriteOrder>) -> Result<WriteOrder, RecvTimeoutError> {
    match desk.owns_something() {
        true => orders.recv_timeout(HEARTBEAT),
        false => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// Waits for an order that does not wait.
fn linger(batch: &mut Vec<WriteOrder>, orders: &Receiver<WriteOrder>) {
    let until = Instant::now() + LINGER;
    while batch.len() < BATCH && matches!(batch.last(), Some(WriteOrder::Append { .. })) {
        match orders.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(order) => batch.push(order),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What is to be done for one order once the commit is known.
enum Due {
    Record { record: Arc<Record>, written: Result<(), JournalError>, reply: oneshot::Sender<Result<(), JournalError>> },
    Other(Finish),
}

fn write(desk: &mut WriteTxn, batch: Vec<WriteOrder>, teller: &Teller) {
    desk.begin_batch();
    let due: Vec<Due> = batch.into_iter().filter_map(|order| carry_out(desk, order)).collect();
    let committed = desk.end_batch();
    for due in due {
        settle(due, &committed, teller);
    }
}

fn carry_out(desk: &mut WriteTxn, order: WriteOrder) -> Option<Due> {
    match order {
        WriteOrder::Append { row, reply } => {
            let written = desk.append(&row);
            Some(Due::Record { record: row.record, written, reply })
        }
        // A job that panics takes its reply with it, and nothing else: whoever waits for it hears that it failed.
        WriteOrder::Job(job) => match catch_unwind(AssertUnwindSafe(|| job(desk))) {
            Ok(finish) => Some(Due::Other(finish)),
            Err(_) => {
                desk.give_up("an order panicked");
                None
            }
        },
        WriteOrder::Hurry | WriteOrder::Stop => None,
    }
}

fn settle(due: Due, committed: &Result<(), JournalError>, teller: &Teller) {
    match due {
        Due::Record { record, written, reply } => {
            let result = written.and_then(|()| committed.clone());
            if result.is_ok() {
                teller.tell(&record);
            }
            let _ = reply.send(result);
        }
        Due::Other(finish) => {
            let _ = catch_unwind(AssertUnwindSafe(|| finish(committed, teller)));
        }
    }
}
