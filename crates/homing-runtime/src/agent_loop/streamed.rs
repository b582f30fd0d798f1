//! [`Streamed`]: how much of a reply has arrived, counted without a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use homing_core::model::Delta;
use tokio::time::Instant;

use crate::journal::CallProgress;

/// The part of a reply that has arrived.
pub(super) struct Streamed {
    began: Instant,
    bytes: AtomicU64,
    /// A call has begun, and none of its arguments has arrived.
    lacks_arguments: AtomicBool,
    /// A mark of it is stored.
    is_marked: AtomicBool,
}

impl Streamed {
    /// Begins to count.
    pub(super) fn new() -> Self {
        let (lacks_arguments, is_marked) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { began: Instant::now(), bytes: AtomicU64::new(0), lacks_arguments, is_marked }
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
    }

    /// The part that has arrived so far.
    pub(super) fn progress(&self) -> CallProgress {
        CallProgress {
            bytes: self.bytes.load(Ordering::Relaxed),
            has_more: self.lacks_arguments.load(Ordering::Relaxed),
            elapsed_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
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
