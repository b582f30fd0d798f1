//! [`RejectedReasoning`]: recovers from encrypted reasoning that the provider cannot decrypt, for example because a run is
//! resumed with the key of another organization. The next attempt leaves it out; otherwise the run could never go on.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use homing_core::{
    message::TranscriptEntry,
    model::{AskFailure, ModelError},
};

/// The conversations whose reasoning was rejected, by the fingerprint of their first message.
#[derive(Default)]
pub(crate) struct RejectedReasoning(Mutex<HashSet<u64>>);

impl RejectedReasoning {
    /// Returns true if the reasoning in `messages` was rejected before.
    pub(crate) fn contains(&self, messages: &[Arc<TranscriptEntry>]) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !known.is_empty() && fingerprint(messages).is_some_and(|conversation| known.contains(&conversation))
    }

    /// Makes a failure retryable if its reason is the reasoning in `messages`, which the next attempt leaves out.
    pub(crate) fn note(&self, messages: &[Arc<TranscriptEntry>], failure: AskFailure) -> AskFailure {
        match &failure.error {
            ModelError::Unusable { reason } if reason.to_lowercase().contains("encrypted content") => {
                let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let is_new = fingerprint(messages).is_some_and(|conversation| known.insert(conversation));
                if !is_new {
                    return failure;
                }
                AskFailure::new(ModelError::Broken { reason: reason.clone() }, failure.charge).partial(failure.partial)
            }
            _ => failure,
        }
    }
}

fn fingerprint(messages: &[Arc<TranscriptEntry>]) -> Option<u64> {
    messages.first().map(|entry| entry.hash())
}
