//! The runtime's own knobs.

use std::time::Duration;

/// The runtime's own knobs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuntimeConfig {
    /// Runs that ask or act at once; the rest queue.
    pub max_runs: usize,
    /// Asks under way at once per provider and key.
    pub max_asks: usize,
    /// Tools that one run uses at once.
    pub max_tools: usize,
    /// The most a reply may have, in tokens.
    pub max_output: u64,
    /// The least output worth asking for.
    pub output_floor: u64,
    /// Output of the last turn of a run that reached a limit.
    pub landing_output: u64,
    /// Attempts at a broken connection before giving up on a model.
    pub max_attempts: u32,
    /// The longest pause between attempts where the provider names none.
    pub max_backoff: Duration,
    /// How long a person has to answer a question.
    pub answer_within: Duration,
    /// How long a tool has to return what it has when it is to stop.
    pub grace: Duration,
    /// Longest answer of a child that its parent's model reads whole, in bytes.
    pub inline_answer: usize,
    /// Trees that are kept in memory after their end.
    pub keep_ended: usize,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            max_runs: 16,
            max_asks: 16,
            max_tools: 16,
            max_output: 8_192,
            output_floor: 1_024,
            landing_output: 1_024,
            max_attempts: 6,
            max_backoff: Duration::from_secs(30),
            answer_within: Duration::from_secs(300),
            grace: Duration::from_secs(2),
            inline_answer: 24_000,
            keep_ended: 1_000,
        }
    }
}
