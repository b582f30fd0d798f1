//! The model calls of a run: the open one, and what is known from the last ones.

use std::sync::Arc;

use crate::{
    fact::{Asked, Purpose},
    ledger::{Margin, learned::ReplySize},
    message::Usage,
    model::{AskFailure, ModelError},
    token_estimate::LastAsk,
};

/// The open model call of a run, and the outcome of the previous ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskState {
    pub(super) open: Option<Arc<Asked>>,
    /// Attempts in a row that failed with `model`.
    pub(super) failed: u32,
    /// Model of the last attempt.
    pub(super) model: Option<String>,
    /// Error of the last attempt, if it failed.
    pub(super) last_error: Option<Box<ModelError>>,
    /// Text that had arrived when the last attempt failed.
    pub(super) partial: String,
    /// Size of the last request, as reported by the provider.
    pub(super) last_size: Option<LastAsk>,
    /// Output of the replies so far.
    pub(crate) reply_size: ReplySize,
    /// Margin of the last reservation.
    pub(crate) margin: Margin,
    /// Milliseconds of the slowest reply so far.
    pub(crate) slowest_ms: u64,
    /// Time of the last attempt by the tree's clock.
    pub(super) began: u64,
}

impl AskState {
    pub(super) fn begin(&mut self, asked: &Arc<Asked>, margin: Margin, clock: u64) {
        if self.model.as_ref() != Some(&asked.model) {
            self.model = Some(asked.model.clone());
            self.failed = 0;
        }
        self.open = Some(asked.clone());
        (self.margin, self.began) = (margin, clock);
    }

    /// Closes the open call because a reply arrived.
    pub(super) fn succeed(&mut self, used: &Usage, clock: u64) -> Option<Arc<Asked>> {
        let asked = self.open.take()?;
        self.slowest_ms = self.slowest_ms.max(clock.saturating_sub(self.began));
        if !used.estimated && asked.purpose == Purpose::Turn {
            self.reply_size.replied(used.output);
        }
        self.failed = 0;
        self.last_error = None;
        self.partial.clear();
        Some(asked)
    }

    /// Closes the open call because it failed.
    pub(super) fn fail(&mut self, failure: &AskFailure) -> Option<Arc<Asked>> {
        self.failed += 1;
        self.last_error = Some(Box::new(failure.error.clone()));
        if !failure.partial.is_empty() {
            self.partial.clone_from(&failure.partial);
        }
        self.open.take()
    }
}
