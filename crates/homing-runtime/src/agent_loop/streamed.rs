//! [`Streamed`]: how much of a reply has arrived, counted without a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use homing_core::model::Delta;
use tokio::time::Instant;

use crate::journal::CallProgress;

/// The part of a reply that has arrived.
pub(super) struct Streamed {
    began: Instant,
    bytes: AtomicU64,
    /// Milliseconds until the first piece arrived, plus one; zero if none has.
    first: AtomicU64,
    /// A call has begun, and none of its arguments has arrived.
    lacks_arguments: AtomicBool,
    /// A mark of it is stored.
    is_marked: AtomicBool,
}

impl Streamed {
    /// Begins to count.
    pub(super) fn new() -> Self {
        let (lacks_arguments, is_marked) = (AtomicBool::new(false), AtomicBool::new(false));
        let (bytes, first) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { began: Instant::now(), bytes, first, lacks_arguments, is_marked }
    }

    /// Counts a piece.
    pub(super) fn take(&self, delta: Delta<'_>) {
        let text = match delta {
            Delta::Text(text) | Delta::Thinking(text) => text,
            Delta::Call(name) => {
                self.lacks_arguments.store(true, Ordering::Relaxed);
                name
            }
            Delta::Arguments(text) => {
                self.lacks_arguments.store(false, Ordering::Relaxed);
                text
            }
        };
        self.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
        // Only the first piece reads the clock.
        if self.first.load(Ordering::Relaxed) == 0 {
            self.first.store(self.elapsed_ms().saturating_add(1), Ordering::Relaxed);
        }
    }

    /// The time until the first piece arrived; `None` if the reply came whole.
    pub(super) fn first_token_ms(&self) -> Option<u64> {
        self.first.load(Ordering::Relaxed).checked_sub(1)
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The part that has arrived so far.
    pub(super) fn progress(&self) -> CallProgress {
        CallProgress {
            bytes: self.bytes.load(Ordering::Relaxed),
            has_more: self.lacks_arguments.load(Ordering::Relaxed),
            elapsed_ms: self.elapsed_ms(),
        }
    }

    /// Notes that a mark is stored.
    pub(super) fn set_marked(&self) {
        self.is_marked.store(true, Ordering::Relaxed);
    }

    /// Returns whether a mark is stored.
    pub(super) fn is_marked(&self) -> bool {
        self.is_marked.load(Ordering::Relaxed)
    }
}
