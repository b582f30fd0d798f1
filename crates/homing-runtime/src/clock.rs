//! Time, ids and chance, handed in from outside, so that a simulation repeats byte for byte.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use uuid::Uuid;

/// Where time, ids and chance come from.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970. Never goes back within one process, whatever is done to the wall clock.
    fn now_ms(&self) -> u64;

    /// An id that nobody else has; later ones sort later.
    fn fresh_id(&self) -> Uuid;

    /// A number below `bound`, or 0 where that is 0.
    fn roll(&self, bound: u64) -> u64;
}

/// The real world: the wall clock as it was at the start, moved on by the monotonic one.
pub struct SystemClock {
    started_wall_ms: u64,
    started: Instant,
}

impl SystemClock {
    /// Looks at the wall clock once.
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
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
