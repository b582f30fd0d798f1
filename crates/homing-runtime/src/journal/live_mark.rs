//! The present activity of a run, stored beside its facts: other processes show it, and after a crash it tells how much of a
//! reply had arrived. It is overwritten in place, so that nothing is recorded for each piece of a reply.

use std::collections::HashMap;

use homing_core::token_estimate;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Output tokens per second that no model with hidden reasoning exceeds. Faster ones stream their reasoning.
const HIDDEN_TOKENS_PER_SECOND: u64 = 500;

/// Time for which an owner may have lived after the last sign of life that it stored, in milliseconds.
const UNSEEN_MS: u64 = 1_500;

/// The present activity of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveMark {
    /// It waits until its next model call fits the budget.
    WaitingForBudget,
    /// A reply is arriving.
    Arriving(CallProgress),
}

/// The part of a reply that has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallProgress {
    /// Bytes of text, reasoning and arguments.
    pub bytes: u64,
    /// True if output has arrived that is not in `bytes`, such as the arguments of a call that come in one piece.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_more: bool,
    /// Milliseconds since the request was sent.
    pub elapsed_ms: u64,
}

impl CallProgress {
    /// An upper bound on the output tokens. If nothing was seen, the model may have reasoned in secret, and the time bounds
    /// its output.
    pub(crate) fn output_bound(&self) -> u64 {
        let seen = token_estimate::output_bound(self.bytes);
        if seen > 0 && !self.has_more {
            return seen;
        }
        // What arrived at once may have been made before; a second is the least that counts.
        seen.max(self.elapsed_ms.max(1_000).saturating_mul(HIDDEN_TOKENS_PER_SECOND).div_ceil(1_000))
    }

    /// The progress at a later time, if the reply went on arriving at the same rate.
    fn at(self, elapsed_ms: u64) -> Self {
        let later = elapsed_ms.max(self.elapsed_ms);
        let bytes = u128::from(self.bytes) * u128::from(later) / u128::from(self.elapsed_ms.max(1));
        Self { bytes: u64::try_from(bytes).unwrap_or(u64::MAX), elapsed_ms: later, ..self }
    }
}

/// The marks of a tree's runs, and the last sign of life of their owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveMarks {
    /// The marks, by run.
    pub runs: HashMap<Uuid, LiveMark>,
    /// Milliseconds since 1970 at which the owner was last seen; `None` if it is not known.
    pub seen_at: Option<u64>,
}

impl LiveMarks {
    /// The progress of the open call of `run` when its owner died, if it began `age_ms` before the owner was last seen.
    pub(crate) fn progress(&self, run: Uuid, age_ms: u64) -> CallProgress {
        let elapsed_ms = age_ms.saturating_add(UNSEEN_MS);
        match self.runs.get(&run) {
            Some(LiveMark::Arriving(progress)) => progress.at(elapsed_ms),
            // The first mark is stored after a second, so whatever has arrived before is bounded by the time.
            Some(LiveMark::WaitingForBudget) | None => CallProgress { bytes: 0, has_more: false, elapsed_ms },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_bounded_by_what_arrived_or_by_the_time() {
        let progress = |bytes, has_more, elapsed_ms| CallProgress { bytes, has_more, elapsed_ms }.output_bound();
        assert_eq!(progress(2_500, false, 60_000), 1_100, "the time does not count if everything was seen");
        assert_eq!(progress(0, false, 3_000), 1_500);
        assert_eq!(progress(0, false, 10), 500);
        assert_eq!(progress(250, true, 3_000), 1_500, "arguments that were not seen are bounded by the time");
    }

    #[test]
    fn progress_is_extrapolated_to_the_crash() {
        let run = Uuid::from_u128(1);
        let mark = CallProgress { bytes: 1_000, has_more: false, elapsed_ms: 2_000 };
        let marks = LiveMarks { runs: HashMap::from([(run, LiveMark::Arriving(mark))]), seen_at: Some(9) };
        assert_eq!(marks.progress(run, 2_500).bytes, 2_000);
        assert_eq!(marks.progress(run, 0).bytes, 1_000, "never less than what was stored");
        assert_eq!(marks.progress(Uuid::from_u128(2), 500).output_bound(), 1_000);
    }
}
