//! Counts the connections of an HTTP server. Those without a valid request so far are few and make room for newer ones, so
//! that strangers who only connect cannot keep a client with a token out.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Maximum numbers of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections that have sent a valid token; a request on the next one waits until one is closed.
    pub with_token: usize,
    /// Connections that have sent no valid token yet; the next one closes the oldest.
    pub without_token: usize,
}

/// The connections of a server.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    known: Arc<Semaphore>,
    /// The connections without a valid token, by age.
    unknown: Mutex<BTreeMap<u64, CancellationToken>>,
    next: AtomicU64,
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
        Arc::new(Self { limits, known, unknown: Mutex::default(), next: AtomicU64::new(0) })
    }

    /// Adds a connection. If there are too many without a valid token, the oldest of them is closed.
    pub(crate) fn add(self: &Arc<Self>) -> ConnectionSlot {
        let (number, evicted) = (self.next.fetch_add(1, Ordering::Relaxed), CancellationToken::new());
        let mut unknown = self.unknown();
        if unknown.len() >= self.limits.without_token
            && let Some((_, oldest)) = unknown.pop_first()
        {
            oldest.cancel();
        }
        unknown.insert(number, evicted.clone());
        ConnectionSlot { connections: self.clone(), number, evicted, permit: OnceCell::new() }
    }

    fn unknown(&self) -> MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
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
            self.connections.unknown().remove(&self.number);
            self.connections.known.clone().acquire_owned().await.ok()
        };
        self.permit.get_or_init(admit).await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.unknown().remove(&self.number);
    }
}
