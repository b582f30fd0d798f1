//! The seam to language models: one request, one network attempt, one answer or the reason why not.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    BoxFuture,
    definition::ModelChoice,
    message::{Encoding, Reply, TranscriptEntry, Usage},
    tool::ToolSpec,
};

/// A language model, reached by whatever means: a provider, a program, a script.
pub trait Model: Send + Sync {
    /// What the runtime must know before it asks.
    fn card(&self) -> &ModelCard;

    /// Answers `request` in one attempt: no retries in here, the runtime does them.
    ///
    /// Streaming is this same call: deltas go to `on_delta` as they arrive. Dropping the future abandons the request.
    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>>;
}

/// Takes what arrives while a reply is being written.
pub type OnDelta<'a> = &'a (dyn Fn(Delta<'_>) + Send + Sync);

/// A piece of a reply that is still being written. Not a fact: it may be lost, and it is never journalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// More words.
    Text(&'a str),
    /// More thoughts.
    Thinking(&'a str),
    /// A call to this tool is being written.
    Call(&'a str),
}

/// What the runtime must know about a model before it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCard {
    /// `provider/model`.
    pub name: String,
    /// Who is rate-limited together: the provider and a fingerprint of the key, never the key.
    pub gate: String,
    /// What it costs; `None` where nobody knows.
    pub rates: Option<Rates>,
    /// Tokens that fit into one request and its reply, where known.
    pub context_window: Option<u64>,
    /// The most it can answer, where known.
    pub max_output: Option<u64>,
}

impl ModelCard {
    /// A model that costs nothing and has no known bounds: scripts, programs, local models.
    pub fn free(name: impl Into<String>) -> Self {
        let name = name.into();
        let gate = name.split('/').next().unwrap_or_default().to_owned();
        Self { name, gate, rates: Some(Rates::default()), context_window: None, max_output: None }
    }
}

/// Prices in micro-dollars per million tokens, so that money stays an integer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// Input that was neither read from nor written to a cache.
    pub input: u64,
    /// Input read from the cache.
    pub cached: u64,
    /// Input written to the cache.
    pub cache_write: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// Dearer prices for long requests, by the input size above which they apply to the whole request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<(u64, Rates)>,
}

impl Rates {
    /// The rates for a request of `input` tokens.
    fn at(&self, input: u64) -> &Self {
        self.above.iter().filter(|(from, _)| input > *from).max_by_key(|(from, _)| *from).map_or(self, |(_, it)| it)
    }

    /// What `usage` costs, rounded up.
    pub fn cost(&self, usage: &Usage) -> u64 {
        let rates = self.at(usage.input);
        let plain = usage.input.saturating_sub(usage.cached).saturating_sub(usage.cache_write);
        let parts = [
            (plain, rates.input),
            (usage.cached, rates.cached),
            (usage.cache_write, rates.cache_write),
            (usage.output, rates.output),
        ];
        let sum = parts.iter().map(|(tokens, rate)| u128::from(*tokens) * u128::from(*rate)).sum::<u128>();
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// The most that `input` and `output` tokens can cost, at the dearest price that can apply.
    pub fn worst(&self, input: u64, output: u64) -> u64 {
        let tiers = self.above.iter().filter(|(from, _)| input > *from).map(|(_, it)| it).chain([self]);
        let worst = tiers.map(|rates| {
            let dearest = rates.input.max(rates.cached).max(rates.cache_write);
            u128::from(input) * u128::from(dearest) + u128::from(output) * u128::from(rates.output)
        });
        u64::try_from(worst.max().unwrap_or(0).div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// Everything a model needs to answer.
#[derive(Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The agent's prompt, as rendered at spawn.
    pub system: &'a str,
    /// The transcript so far.
    pub messages: &'a [Arc<TranscriptEntry>],
    /// The tools on offer.
    pub tools: &'a Toolbox,
    /// Whether tools may, must or must not be called.
    pub choice: ToolChoice,
    /// The most tokens the reply may have.
    pub max_output: u64,
    /// How hard to think, where the model can choose.
    pub effort: Option<Effort>,
    /// How freely to choose words, where somebody said so; thousandths.
    pub temperature_milli: Option<u32>,
    /// Time left until the run's deadline; the call never outlasts it.
    pub time_left: Option<Duration>,
    /// The same for every attempt at the same step, for providers that know idempotency keys.
    pub key: &'a str,
}

/// The tools on offer, with what a wire made of them.
#[derive(Debug, Default)]
pub struct Toolbox {
    /// The tools' faces.
    pub specs: Vec<ToolSpec>,
    /// What the run's wire made of them.
    pub encoding: Encoding,
}

impl Toolbox {
    /// A box of these tools.
    pub fn new(specs: Vec<ToolSpec>) -> Self {
        Self { specs, encoding: Encoding::default() }
    }
}

/// Whether tools may be called in a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// Not now; the tools stay in the request because the history speaks of them.
    Off,
    /// At least one.
    Required,
}

/// How hard a model is to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Not at all.
    None,
    /// As little as possible.
    Minimal,
    /// A little.
    Low,
    /// Somewhat.
    Medium,
    /// Hard.
    High,
    /// Harder.
    Xhigh,
    /// As hard as it can.
    Max,
}

/// Where a runtime gets its models from.
pub trait Models: Send + Sync {
    /// What `choice` means for a child of a run that speaks with `parent`: names to try, best first, and remarks for people.
    fn resolve(&self, choice: &ModelChoice, parent: Option<&str>) -> Result<ResolvedModel, ModelError>;

    /// The model of that name.
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError>;
}

/// Models to try, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedModel {
    /// Names that [`Models::get`] knows.
    pub names: Vec<String>,
    /// What was replaced, and why.
    pub warnings: Vec<String>,
}

/// One model for everybody.
pub struct SingleModel(pub Arc<dyn Model>);

impl Models for SingleModel {
    fn resolve(&self, _: &ModelChoice, _: Option<&str>) -> Result<ResolvedModel, ModelError> {
        Ok(ResolvedModel { names: vec![self.0.card().name.clone()], warnings: Vec::new() })
    }

    fn get(&self, _: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(self.0.clone())
    }
}

/// A model call that gave no reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[error("{error}")]
pub struct AskFailure {
    /// Why.
    pub error: ModelError,
    /// What it costs all the same.
    pub charge: Charge,
    /// The words that had arrived.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub partial: String,
}

impl AskFailure {
    /// A failure before anything was billed.
    pub fn free(error: ModelError) -> Self {
        Self { error, charge: Charge::Nothing, partial: String::new() }
    }
}

/// What a failed attempt costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// The provider cannot have billed it.
    Nothing,
    /// It may have been billed, nobody knows how much: the whole hold.
    Hold,
    /// The provider said how much.
    Used(Usage),
}

/// Why a model did not answer, sorted by what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelError {
    /// Rate-limited or overloaded: everyone who shares the key waits, then tries again.
    #[error("the provider is busy: {reason}")]
    Busy {
        /// The provider's own advice, in milliseconds.
        retry_after_ms: Option<u64>,
        /// What it said.
        reason: String,
    },
    /// The connection or the stream broke, or went silent: this call may be tried again at once.
    #[error("the connection broke: {reason}")]
    Broken {
        /// How.
        reason: String,
    },
    /// The transcript no longer fits.
    #[error("the conversation no longer fits the model's context: {reason}")]
    ContextFull {
        /// What the provider said.
        reason: String,
    },
    /// The provider declined this content; the same request would be declined again.
    #[error("the provider declined: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
    /// The key is missing, wrong or not allowed to do this.
    #[error("not authorised: {reason}")]
    Unauthorized {
        /// What the provider said; never the key.
        reason: String,
    },
    /// The request cannot work as it is: unknown model, bad parameter, or an answer that is none.
    #[error("the model cannot be used: {reason}")]
    Unusable {
        /// Why.
        reason: String,
    },
    /// A team's program ends its run as failed: part of the work failed, or the program cannot go on.
    #[error("{reason}")]
    Team {
        /// The parts that failed, or what is wrong with the program.
        reason: String,
    },
    /// The run's time was up.
    #[error("out of time")]
    OutOfTime,
}

impl ModelError {
    /// Whether another attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Broken { .. } => true,
            Self::ContextFull { .. }
            | Self::Refused { .. }
            | Self::Unauthorized { .. }
            | Self::Unusable { .. }
            | Self::Team { .. }
            | Self::OutOfTime => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_rounded_up_and_cached_tokens_are_not_paid_twice() {
        let rates =
            Rates { input: 3_000_000, cached: 300_000, cache_write: 3_750_000, output: 15_000_000, above: vec![] };
        let usage = Usage { input: 1_000, cached: 900, output: 10, ..Usage::default() };
        assert_eq!(rates.cost(&usage), 300 + 270 + 150);
        assert_eq!(rates.cost(&Usage { input: 1, cached: 1, ..Usage::default() }), 1);
        assert_eq!(rates.worst(1_000, 10), 3_750 + 150);
    }

    #[test]
    fn the_long_context_price_holds_for_the_whole_request() {
        let long = Rates { input: 6_000_000, output: 22_500_000, ..Rates::default() };
        let rates = Rates { input: 3_000_000, output: 15_000_000, above: vec![(200_000, long)], ..Rates::default() };
        assert_eq!(rates.cost(&Usage { input: 200_000, ..Usage::default() }), 600_000);
        assert_eq!(rates.cost(&Usage { input: 200_001, ..Usage::default() }), 1_200_006);
        assert_eq!(rates.worst(200_001, 0), 1_200_006);
    }
}
