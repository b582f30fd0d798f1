//! Counts the connections of an HTTP server. Those without a valid request so far are few and make room for newer ones, so
//! that strangers who only connect cannot keep a client with a token out.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Maximum numbers of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections that have sent a valid token; a request on the next one waits until one is closed.
    pub with_token: usize,
    /// Connections that have sent no valid token yet; the next one closes the oldest.
    pub without_token: usize,
}

/// Time that a connection has for its first request before another one may take its place. A client that opens many at once would
/// otherwise close its own.
const GRACE: Duration = Duration::from_millis(200);

/// The connections of a server.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    known: Arc<Semaphore>,
    /// The connections without a valid token, by age.
    unknown: Mutex<BTreeMap<u64, Unknown>>,
    /// Notified when there is one fewer of them.
    fewer: Notify,
    next: AtomicU64,
}

/// A connection without a valid token.
struct Unknown {
    since: Instant,
    evicted: CancellationToken,
}

/// One connection, until it is dropped.
pub(crate) struct ConnectionSlot {
    connections: Arc<Connections>,
    number: u64,
    evicted: CancellationToken,
    permit: OnceCell<Option<OwnedSemaphorePermit>>,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        let known = Arc::new(Semaphore::new(limits.with_token));
        Arc::new(Self { limits, known, unknown: Mutex::default(), fewer: Notify::new(), next: AtomicU64::new(0) })
    }

    /// Adds a connection. If there are too many without a valid token, the oldest of them is closed, as soon as it has had time for a
    /// request.
    pub(crate) async fn add(self: &Arc<Self>) -> ConnectionSlot {
        while let Some(until) = self.full_until() {
            let _ = tokio::time::timeout_at(until, self.fewer.notified()).await;
        }
        let (number, evicted) = (self.next.fetch_add(1, Ordering::Relaxed), CancellationToken::new());
        let mut unknown = self.unknown();
        if unknown.len() >= self.limits.without_token
            && let Some((_, oldest)) = unknown.pop_first()
        {
            oldest.evicted.cancel();
        }
        unknown.insert(number, Unknown { since: Instant::now(), evicted: evicted.clone() });
        drop(unknown);
        ConnectionSlot { connections: self.clone(), number, evicted, permit: OnceCell::new() }
    }

    /// The time until which there is no room, and none can be made.
    fn full_until(&self) -> Option<Instant> {
        let unknown = self.unknown();
        let (_, oldest) = unknown.first_key_value().filter(|_| unknown.len() >= self.limits.without_token)?;
        let until = oldest.since + GRACE;
        (until > Instant::now()).then_some(until)
    }

    fn remove_unknown(&self, number: u64) {
        if self.unknown().remove(&number).is_some() {
            self.fewer.notify_one();
        }
    }

    fn unknown(&self) -> MutexGuard<'_, BTreeMap<u64, Unknown>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Returns once the connection must be closed to make room.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Counts the connection as one of a client with a token, and waits until there is room for it.
    pub(crate) async fn has_token(&self) {
        let admit = || async {
            self.connections.remove_unknown(self.number);
            self.connections.known.clone().acquire_owned().await.ok()
        };
        self.permit.get_or_init(admit).await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.remove_unknown(self.number);
    }
}
