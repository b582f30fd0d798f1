//! One gate per provider and key: when the provider says "later", everybody who shares the key waits.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{clock::Clock, journal::Journal, scheduler::fair_semaphore::FairSemaphore};

/// The gates of all providers, made on first use.
pub(crate) struct RateLimiters {
    max_asks: usize,
    gates: Mutex<HashMap<String, Arc<RateLimiter>>>,
}

/// One provider and key.
pub(crate) struct RateLimiter {
    name: String,
    /// Asks under way at once.
    pub(crate) asks: Arc<FairSemaphore>,
    closed_until: Mutex<u64>,
}

impl RateLimiters {
    pub(crate) fn new(max_asks: usize) -> Self {
        Self { max_asks, gates: Mutex::default() }
    }

    pub(crate) fn get(&self, name: &str) -> Arc<RateLimiter> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(name) {
            return gate.clone();
        }
        let gate =
            RateLimiter { name: name.to_owned(), asks: FairSemaphore::new(self.max_asks), closed_until: Mutex::new(0) };
        let gate = Arc::new(gate);
        gates.insert(name.to_owned(), gate.clone());
        gate
    }
}

impl RateLimiter {
    /// The provider wants everybody to wait.
    pub(crate) fn close(&self, until: u64, journal: &dyn Journal) {
        let mut closed = self.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        if until > *closed {
            *closed = until;
            journal.pause_gate(&self.name, until);
        }
    }

    /// How long to wait before asking; on release everybody comes a little later than everybody else.
    pub(crate) fn wait(&self, environment: &dyn Clock, journal: &dyn Journal) -> Option<Duration> {
        let here = *self.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        let until = here.max(journal.gate_closed_until(&self.name).unwrap_or(0));
        let left = until.checked_sub(environment.now_ms()).filter(|left| *left > 0)?;
        let jitter = environment.roll((left / 10).clamp(50, 2_000));
        Some(Duration::from_millis(left + jitter))
    }
}
