//! The landing: the last model call of a run that reached a limit, in which it reports what it has.
//!
//! Its cost is held in addition to every other call of the run, so it must be small and known beforehand. It therefore does
//! not send the conversation, which grows, but a digest of bounded length, and no tools. If the budget has room for the
//! whole conversation when the time comes, that is sent instead.

use crate::{
    fact::Reservation,
    model::Rates,
    token_estimate::{message_tokens, request_tokens},
};

/// The system prompt of a landing that sends a digest.
pub const PROMPT: &str = "You finish the work of an agent that has reached a limit. You get its task and a digest of what it did. \
     Write its report from this alone: results first, then what is missing.";

/// The size of a landing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LandingSize {
    /// Maximum length of the digest, in bytes.
    pub digest: usize,
    /// Maximum output tokens.
    pub output: u64,
}

/// The sizes to choose from, the largest first. Each is half of the one before, so that a small budget is not used up by
/// what is kept for its end.
const SIZES: [LandingSize; 4] = [
    LandingSize { digest: 8_000, output: 1_024 },
    LandingSize { digest: 4_000, output: 512 },
    LandingSize { digest: 2_000, output: 256 },
    LandingSize { digest: 1_000, output: 128 },
];

impl LandingSize {
    /// Returns the sizes with at most `most_output` output tokens, the largest first.
    pub fn all(most_output: u64) -> impl DoubleEndedIterator<Item = Self> + Clone {
        SIZES.into_iter().map(move |size| Self { output: size.output.min(most_output), ..size })
    }

    /// Returns an upper bound on the input tokens.
    pub fn input(self) -> u64 {
        request_tokens(PROMPT.len() as u64) + message_tokens(self.digest as u64)
    }

    /// Returns the most that the landing can cost.
    pub fn hold(self, price: &Rates, margin: super::Margin) -> Reservation {
        margin.of(Reservation {
            tokens: self.input().saturating_add(self.output),
            cost_micros: price.worst(self.input(), self.output),
        })
    }
}
