//! Time, ids and randomness. The host supplies them, so that a simulation repeats byte for byte.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;
use uuid::Uuid;

/// The current time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970. Never goes back within one process, even if the wall clock is set back.
    fn now_ms(&self) -> u64;
}

/// Unique ids and random numbers.
pub trait IdSource: Send + Sync {
    /// A unique id; later ids sort after earlier ones.
    fn fresh_id(&self) -> Uuid;

    /// A random number below `bound`, or 0 if `bound` is 0.
    fn roll(&self, bound: u64) -> u64;
}

/// The clock and the ids of a runtime. A simulation replaces both.
#[derive(Clone)]
pub struct Sources {
    /// The current time.
    pub clock: Arc<dyn Clock>,
    /// Ids of runs, and jitter.
    pub ids: Arc<dyn IdSource>,
}

impl Default for Sources {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock::new()), ids: Arc::new(RandomIds) }
    }
}

/// The wall clock as read once at the start, advanced by the monotonic clock.
pub struct SystemClock {
    started_wall_ms: u64,
    started: Instant,
}

impl SystemClock {
    /// Reads the wall clock once.
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { started_wall_ms: millis(since), started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        self.started_wall_ms + millis(self.started.elapsed())
    }
}

/// Version 7 UUIDs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn fresh_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn roll(&self, bound: u64) -> u64 {
        // The tail of a v7 id is random; jitter needs no better source.
        let random = u64::from_be_bytes(Uuid::now_v7().into_bytes()[8..].try_into().expect("eight bytes"));
        if bound == 0 { 0 } else { random % bound }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000).saturating_add(u64::from(duration.subsec_millis()))
}
