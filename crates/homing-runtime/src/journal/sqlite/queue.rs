//! The queue of the writer thread: callers add requests, the writer takes what is queued.
//!
//! A caller rarely waits for its record at once: usually more records follow, and the last of them is awaited. So a record alone
//! wakes the writer only if it sleeps, and the writer then waits a moment for a request that cannot wait.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::journal::{
    Commit, JournalError,
    sqlite::{row::Row, write_txn::WriteTxn, writer::DurableListener},
};

/// The most requests of one commit, so that the first of them does not wait too long.
const MAX_BATCH: usize = 4096;

/// The time for which records that no caller waits for are held back. Usually a record that a caller waits for follows, and
/// they share its commit.
const LINGER: Duration = Duration::from_millis(1);

/// A request to the writer.
pub(super) enum WriteRequest {
    /// Write a record.
    Append(AppendRequest),
    /// Run a job within the transaction of its batch. `lasts` if its effect must survive a power failure, `can_wait` if a record
    /// that a caller waits for follows.
    Job { work: WriteJob, lasts: bool, can_wait: bool },
    /// Let go of a tree. It need not survive a power failure: the owner is gone then.
    Release(Uuid),
    /// Run this between two batches.
    Between(Box<dyn FnOnce() + Send>),
    /// Write what is queued and end.
    Stop,
}

/// A request to write a record.
pub(super) struct AppendRequest {
    pub(super) row: Box<Row>,
    pub(super) reply: oneshot::Sender<Result<(), JournalError>>,
}

impl WriteRequest {
    /// Returns whether it writes a record.
    pub(super) fn is_append(&self) -> bool {
        matches!(self, Self::Append(_))
    }

    /// Returns whether it is written only a moment later, unless a request that cannot wait follows.
    fn can_wait(&self) -> bool {
        matches!(self, Self::Append(_) | Self::Job { can_wait: true, .. })
    }

    /// Returns whether its effect must survive a power failure, so that the commit has to wait for the disk.
    pub(super) fn lasts(&self) -> bool {
        matches!(self, Self::Append(_) | Self::Job { lasts: true, .. })
    }
}

/// Acts within the transaction, and returns what to do once the result of the commit is known.
pub(super) type WriteJob = Box<dyn FnOnce(&mut WriteTxn) -> AfterCommit + Send>;

/// Runs once the result of the commit is known.
pub(super) type AfterCommit = Box<dyn FnOnce(&Result<(), JournalError>, &DurableListener) + Send>;

/// The queue of the writer.
#[derive(Clone, Default)]
pub(super) struct WriteQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queued: Mutex<Queued>,
    changed: Condvar,
}

#[derive(Default)]
struct Queued {
    requests: Vec<WriteRequest>,
    /// A request cannot wait.
    is_urgent: bool,
    is_closed: bool,
    writer: Writer,
}

/// The state of the writer.
#[derive(Default)]
enum Writer {
    /// It writes, and looks at the queue afterwards.
    #[default]
    Busy,
    /// It waits for a request.
    Asleep,
    /// It waits a moment for a request that cannot wait.
    Lingers,
}

impl WriteQueue {
    /// Queues a record; it is written sooner if the commit is awaited.
    pub(super) fn append(&self, row: Row) -> Commit {
        let (reply, result) = oneshot::channel();
        // If the writer is gone the request is dropped, and with it the reply: the receiver reports it.
        self.send(WriteRequest::Append(AppendRequest { row: Box::new(row), reply }));
        let queue = self.clone();
        Commit::Pending(Box::pin(async move {
            queue.hurry();
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
        self.begin(job).wait()
    }

    /// Like [`WriteQueue::run_blocking`], but the calling thread goes on and waits later.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut WriteTxn) -> Result<T, JournalError> + Send + 'static,
    ) -> BegunJob<T> {
        let (reply, result) = std::sync::mpsc::channel();
        self.submit(job, move |done, _| {
            let _ = reply.send(done);
        });
        BegunJob(result)
    }

    /// Runs `job` within a transaction, then `after` with its result.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut WriteTxn) -> Result<T, JournalError> + Send + 'static,
        after: impl FnOnce(Result<T, JournalError>, &DurableListener) + Send + 'static,
    ) {
        self.send(WriteRequest::Job { work: Self::job(job, after), lasts: true, can_wait: false });
    }

    /// Runs `job` within a transaction. After a power failure its effect may be missing, although a process that is killed keeps it:
    /// the commit does not wait for the disk unless another request of its batch does.
    pub(super) fn note(&self, job: impl FnOnce(&mut WriteTxn) -> Result<(), JournalError> + Send + 'static) {
        self.send(WriteRequest::Job { work: Self::job(job, |_, _| ()), lasts: false, can_wait: false });
    }

    /// Runs `job` within a transaction, together with the next record that a caller waits for if it follows soon.
    pub(super) fn run_with_next(&self, job: WriteJob) {
        self.send(WriteRequest::Job { work: job, lasts: true, can_wait: true });
    }

    fn job<T: Send + 'static>(
        job: impl FnOnce(&mut WriteTxn) -> Result<T, JournalError> + Send + 'static,
        after: impl FnOnce(Result<T, JournalError>, &DurableListener) + Send + 'static,
    ) -> WriteJob {
        Box::new(move |txn| {
            let done = txn.all_or_nothing(job);
            Box::new(move |committed, listener| {
                let result = match (done, committed) {
                    (Ok(value), Ok(())) => Ok(value),
                    (Err(error), _) => Err(error),
                    (Ok(_), Err(error)) => Err(error.clone()),
                };
                after(result, listener);
            })
        })
    }

    /// Adds a request. It is dropped if the writer is gone.
    pub(super) fn send(&self, request: WriteRequest) {
        let can_wait = request.can_wait();
        let mut queued = self.lock();
        if queued.is_closed {
            return;
        }
        queued.requests.push(request);
        queued.is_urgent |= !can_wait;
        self.wake(&queued);
    }

    /// Has the writer write what is queued now.
    fn hurry(&self) {
        let mut queued = self.lock();
        if !queued.requests.is_empty() {
            queued.is_urgent = true;
            self.wake(&queued);
        }
    }

    fn wake(&self, queued: &Queued) {
        let must_wake = match queued.writer {
            Writer::Busy => false,
            Writer::Asleep => true,
            Writer::Lingers => queued.is_urgent || queued.requests.len() >= MAX_BATCH,
        };
        if must_wake {
            self.0.changed.notify_one();
        }
    }

    /// Takes what is queued, for one commit. Waits at most this long for the first request, if a time is given.
    pub(super) fn take(&self, longest: Option<Duration>) -> Vec<WriteRequest> {
        let mut queued = self.lock();
        let until = longest.map(|longest| Instant::now() + longest);
        while queued.requests.is_empty() {
            queued.writer = Writer::Asleep;
            queued = self.wait(queued, until);
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
        let until = Instant::now() + LINGER;
        while !queued.requests.is_empty() && !queued.is_urgent && queued.requests.len() < MAX_BATCH {
            queued.writer = Writer::Lingers;
            queued = self.wait(queued, Some(until));
            if Instant::now() >= until {
                break;
            }
        }
        queued.writer = Writer::Busy;
        if queued.requests.len() <= MAX_BATCH {
            queued.is_urgent = false;
            return std::mem::take(&mut queued.requests);
        }
        let rest = queued.requests.split_off(MAX_BATCH);
        std::mem::replace(&mut queued.requests, rest)
    }

    fn wait<'a>(&self, queued: MutexGuard<'a, Queued>, until: Option<Instant>) -> MutexGuard<'a, Queued> {
        let changed = &self.0.changed;
        match until {
            None => changed.wait(queued).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                changed.wait_timeout(queued, left).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Drops what is queued, and everything that is added later: the writer ends.
    pub(super) fn close(&self) {
        let mut queued = self.lock();
        queued.is_closed = true;
        // Dropped without the lock: a caller that waits for a reply may use the queue again.
        let requests = std::mem::take(&mut queued.requests);
        drop(queued);
        drop(requests);
    }

    fn lock(&self) -> MutexGuard<'_, Queued> {
        self.0.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that the writer runs while the thread that began it does something else.
pub(super) struct BegunJob<T>(std::sync::mpsc::Receiver<Result<T, JournalError>>);

impl<T> BegunJob<T> {
    /// Blocks until the result is durable.
    pub(super) fn wait(self) -> Result<T, JournalError> {
        self.0.recv().unwrap_or_else(|_| Err(writer_gone()))
    }
}

pub(super) fn writer_gone() -> JournalError {
    JournalError::Unwritable("the writer thread has ended".to_owned())
}
