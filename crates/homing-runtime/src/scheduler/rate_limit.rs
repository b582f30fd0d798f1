//! One rate limiter per provider and key: when the provider asks for a pause, all runs that share the key wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use homing_core::BoxFuture;

use crate::{
    clock::{Clock, IdSource},
    journal::Journal,
    scheduler::fair_semaphore::FairSemaphore,
};

/// The rate limiters of all providers, made on first use.
pub(crate) struct RateLimiters {
    max_calls: usize,
    /// Few providers, which every call looks up: comparing their names takes less time than a hash.
    by_name: Mutex<BTreeMap<String, Arc<RateLimiter>>>,
}

/// Limits the calls to one provider with one key.
pub(crate) struct RateLimiter {
    name: String,
    /// Limits the model calls in progress at once.
    pub(crate) calls: Arc<FairSemaphore>,
    paused_until: Mutex<u64>,
}

impl RateLimiters {
    pub(crate) fn new(max_calls: usize) -> Self {
        Self { max_calls, by_name: Mutex::default() }
    }

    pub(crate) fn get(&self, name: &str) -> Arc<RateLimiter> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rate_limiter) = by_name.get(name) {
            return rate_limiter.clone();
        }
        let calls = FairSemaphore::new(self.max_calls);
        let rate_limiter = Arc::new(RateLimiter { name: name.to_owned(), calls, paused_until: Mutex::new(0) });
        by_name.insert(name.to_owned(), rate_limiter.clone());
        rate_limiter
    }
}

impl RateLimiter {
    /// Stops all calls until then, in milliseconds since 1970. An earlier time than before changes nothing.
    pub(crate) fn pause_until(&self, until: u64, journal: &dyn Journal) {
        let mut paused_until = self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        if until > *paused_until {
            *paused_until = until;
            journal.pause_rate_limit(&self.name, until);
        }
    }

    /// Learns of pauses that other processes have set, if that takes a request.
    pub(crate) fn refresh<'a>(&'a self, journal: &'a dyn Journal) -> Option<BoxFuture<'a, ()>> {
        journal.refresh_rate_limit(&self.name)
    }

    /// The time to wait before the next call, if calls are paused. Jitter spreads the calls that follow a pause.
    pub(crate) fn pause(&self, clock: &dyn Clock, ids: &dyn IdSource, journal: &dyn Journal) -> Option<Duration> {
        let here = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        let until = here.max(journal.rate_limited_until(&self.name).unwrap_or(0));
        if until == 0 {
            return None;
        }
        let left = until.checked_sub(clock.now_ms()).filter(|left| *left > 0)?;
        let jitter = ids.roll((left / 10).clamp(50, 2_000));
        Some(Duration::from_millis(left + jitter))
    }
}
