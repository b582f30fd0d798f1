//! Interface to language models: one request, one network attempt, one reply or error.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::rates::Rates;
use crate::{
    BoxFuture,
    definition::ModelChoice,
    message::{Encoding, Image, Reply, TranscriptEntry, Usage},
    tool::ToolSpec,
};

/// A language model: a provider's, or one implemented in code.
///
/// # Examples
///
/// ```
/// # mod homing {
/// #     pub use homing_core::{BoxFuture, message::Reply, model::{self as models, Model, ModelCard}};
/// # }
/// use homing::{BoxFuture, Model, ModelCard, Reply, models::{AskFailure, Delta, ModelRequest, OnDelta}};
///
/// /// Answers with the number of messages.
/// struct Counter(ModelCard);
///
/// impl Model for Counter {
///     fn card(&self) -> &ModelCard {
///         &self.0
///     }
///
///     fn reply<'a>(&'a self, request: ModelRequest<'a>, on_delta: OnDelta<'a>) -> BoxFuture<'a, Result<Reply, AskFailure>> {
///         Box::pin(async move {
///             let text = format!("{} messages", request.messages.len());
///             on_delta(Delta::Text(&text));
///             Ok(Reply::text_only(text))
///         })
///     }
/// }
///
/// assert_eq!(Counter(ModelCard::free("acme/counter")).card().name, "acme/counter");
/// ```
pub trait Model: Send + Sync {
    /// Returns the model's card.
    fn card(&self) -> &ModelCard;

    /// Returns whether the model takes a reasoning effort. If not, [`ModelRequest::effort`] has no effect.
    fn takes_effort(&self) -> bool {
        true
    }

    /// Returns the names of the settings, of those given and those configured for the model, that its API does not have.
    fn ignored_settings(&self, _sampling: &Sampling) -> Vec<&'static str> {
        Vec::new()
    }

    /// Returns whether the model reads this image or document. Models of which this is not known are assumed to read it.
    fn reads(&self, image: &Image) -> bool {
        let card = self.card();
        let reads = |abilities: Abilities| if image.is_pdf() { abilities.pdf } else { abilities.images };
        !card.is_program() && card.abilities.is_none_or(reads)
    }

    /// Prepares for a request that may follow at once, for example by opening a connection. It is called in an async runtime, before
    /// the call is recorded, so nothing of a request may be sent.
    fn get_ready(&self) {}

    /// Replies to `request` in one attempt; the runtime does the retries.
    ///
    /// Parts of the reply are passed to `on_delta` as they arrive. Dropping the future abandons the request.
    ///
    /// # Errors
    ///
    /// Fails with the reason, which decides whether the runtime tries again, and with what the attempt costs.
    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>>;
}

/// Callback for the parts of a reply that is being streamed.
pub type OnDelta<'a> = &'a (dyn Fn(Delta<'_>) + Send + Sync);

/// A part of a reply that is being streamed. It is not a fact: it is never journalled and may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// Text.
    Text(&'a str),
    /// Reasoning.
    Thinking(&'a str),
    /// Start of a call of this tool.
    Call(&'a str),
    /// A part of the arguments of a call, as JSON text.
    Arguments(&'a str),
}

/// Known properties of a model: prices and limits.
///
/// # Examples
///
/// ```
/// # use homing_core::model as homing;
/// use homing::{ModelCard, Rates};
///
/// let card = ModelCard::free("acme/large").rates(Rates::default().input(3_000_000).output(15_000_000));
/// assert_eq!(card.name, "acme/large");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelCard {
    /// `provider/model`.
    pub name: String,
    /// Name of the rate limiter: the provider and a fingerprint of the key, never the key itself.
    pub rate_limit_key: String,
    /// Prices; `None` if they are not known.
    pub rates: Option<Rates>,
    /// Maximum number of tokens in a request and its reply, if known.
    pub context_window: Option<u64>,
    /// Maximum number of output tokens, if known.
    pub max_output: Option<u64>,
    /// Abilities, if known.
    pub abilities: Option<Abilities>,
}

/// Abilities of a model, as published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// It reasons before it replies.
    pub reasoning: bool,
    /// It reads images.
    pub images: bool,
    /// It reads PDF files.
    pub pdf: bool,
    /// It calls tools.
    pub tools: bool,
}

impl Abilities {
    /// Returns the names of the abilities that the model has.
    pub fn names(self) -> Vec<&'static str> {
        let all = [("reasoning", self.reasoning), ("images", self.images), ("PDF", self.pdf), ("tools", self.tools)];
        all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
    }
}

impl ModelCard {
    /// Returns whether the model is a program, which uses no tokens. Nothing is reserved for it, so that a team can always
    /// report.
    pub fn is_program(&self) -> bool {
        self.max_output == Some(0)
    }

    /// Creates the card of a model that is free and has no known limits: models in code, local models.
    pub fn free(name: impl Into<String>) -> Self {
        let name = name.into();
        let rate_limit_key = name.split('/').next().unwrap_or_default().to_owned();
        Self {
            name,
            rate_limit_key,
            rates: Some(Rates::default()),
            context_window: None,
            max_output: None,
            abilities: None,
        }
    }
}

/// A request to a model.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ModelRequest<'a> {
    /// The system prompt, as rendered at spawn.
    pub system: &'a str,
    /// The transcript.
    pub messages: &'a [Arc<TranscriptEntry>],
    /// The available tools.
    pub tools: &'a Toolbox,
    /// Permission or obligation to call tools.
    pub choice: ToolChoice,
    /// Maximum number of output tokens.
    pub max_output: u64,
    /// Reasoning effort, if the model supports it.
    pub effort: Option<Effort>,
    /// Sampling temperature in thousandths, if set.
    pub temperature_milli: Option<u32>,
    /// Further settings of the agent.
    pub sampling: &'a Sampling,
    /// Time until the run's deadline, which is also the call's.
    pub time_left: Option<Duration>,
    /// Idempotency key, the same for every attempt at the same step.
    pub key: &'a str,
}

/// Settings of a request beside effort and temperature. Absent ones are left to the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// Seed for providers that can repeat a reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Share of the most likely tokens to choose from, in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p_milli: Option<u32>,
    /// Class of service, such as `flex` or `priority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
}

impl Sampling {
    /// No settings.
    pub const NONE: Self = Self { seed: None, top_p_milli: None, service_tier: None };

    /// Returns whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns these settings, with those of `other` where they are absent.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            seed: self.seed.or(other.seed),
            top_p_milli: self.top_p_milli.or(other.top_p_milli),
            service_tier: self.service_tier.or_else(|| other.service_tier.clone()),
        }
    }

    /// Returns the names of the settings that are present, as in agent files.
    pub fn names(&self) -> Vec<&'static str> {
        let set = [
            ("seed", self.seed.is_some()),
            ("top_p", self.top_p_milli.is_some()),
            ("service_tier", self.service_tier.is_some()),
        ];
        set.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
    }
}

/// The available tools with their cached encoding.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Toolbox {
    /// Specifications of the tools.
    pub specs: Vec<ToolSpec>,
    /// Cached encoding for the run's wire.
    pub encoding: Encoding,
    /// The names of the tools.
    pub names: Arc<[String]>,
}

impl Toolbox {
    /// Creates a toolbox of these tools.
    pub fn new(specs: Vec<ToolSpec>) -> Self {
        let names = specs.iter().map(|spec| spec.name.clone()).collect();
        Self { specs, encoding: Encoding::default(), names }
    }
}

/// Permission or obligation to call tools in a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No calls; the tools stay in the request because the history refers to them.
    Off,
    /// At least one call.
    Required,
    /// A call of this tool.
    Tool(&'static str),
}

/// Reasoning effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// No reasoning.
    None,
    /// Minimal.
    Minimal,
    /// Low.
    Low,
    /// Medium.
    Medium,
    /// High.
    High,
    /// Very high.
    Xhigh,
    /// The maximum.
    Max,
}

/// A source of models.
///
/// # Examples
///
/// ```
/// # mod homing {
/// #     pub use homing_core::{definition::ModelChoice, model::{self as models, Model, Models}};
/// # }
/// use std::sync::Arc;
///
/// use homing::{Model, ModelChoice, Models, models::{ModelError, ResolvedModel}};
///
/// /// One model for everything.
/// struct Only(Arc<dyn Model>);
///
/// impl Models for Only {
///     fn resolve(&self, _: &ModelChoice, _: Option<&str>) -> Result<ResolvedModel, ModelError> {
///         Ok(ResolvedModel { names: vec![self.0.card().name.clone()], warnings: Vec::new() })
///     }
///
///     fn get(&self, _: &str) -> Result<Arc<dyn Model>, ModelError> {
///         Ok(self.0.clone())
///     }
/// }
/// ```
pub trait Models: Send + Sync {
    /// Resolves `choice` for a child of a run that uses the model `parent`.
    ///
    /// # Errors
    /// Fails if no suitable model is available.
    fn resolve(&self, choice: &ModelChoice, parent: Option<&str>) -> Result<ResolvedModel, ModelError>;

    /// Returns the model of that name.
    ///
    /// # Errors
    /// Fails if there is no such model, or it is not available.
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError>;

    /// Returns the keys that requests carry, so that they are removed from replies, results and errors.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Models to try, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedModel {
    /// Names for [`Models::get`].
    pub names: Vec<String>,
    /// Warnings for the user, such as that a model was replaced.
    pub warnings: Vec<String>,
}

/// A source that has one model, whatever name is requested.
pub struct SingleModel(pub Arc<dyn Model>);

impl Models for SingleModel {
    fn resolve(&self, _: &ModelChoice, _: Option<&str>) -> Result<ResolvedModel, ModelError> {
        Ok(ResolvedModel { names: vec![self.0.card().name.clone()], warnings: Vec::new() })
    }

    fn get(&self, _: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(self.0.clone())
    }
}

/// A failed model call.
///
/// # Examples
///
/// ```
/// # use homing_core::model as models;
/// use models::{AskFailure, ModelError};
///
/// let failure = AskFailure::free(ModelError::Busy { retry_after_ms: Some(2_000), reason: "slow down".to_owned() });
/// assert!(failure.error.is_retryable());
/// assert_eq!(failure.to_string(), "the provider is busy: slow down");
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[error("{error}")]
#[non_exhaustive]
pub struct AskFailure {
    /// The error.
    pub error: ModelError,
    /// Cost of the failed attempt.
    pub charge: Charge,
    /// Text that had arrived.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub partial: String,
}

impl AskFailure {
    /// Creates a failure that costs nothing.
    pub fn free(error: ModelError) -> Self {
        Self { error, charge: Charge::Nothing, partial: String::new() }
    }
}

/// Cost of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// Nothing: the provider cannot have billed it.
    Nothing,
    /// The whole reservation: it may have been billed, and the amount is unknown.
    Hold,
    /// Usage that the provider reported.
    Used(Usage),
}

/// Error of a model call. The variants differ in how to handle them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelError {
    /// Rate-limited or overloaded. All calls that share the key wait before the next attempt.
    #[error("the provider is busy: {reason}")]
    Busy {
        /// Delay that the provider asks for, in milliseconds.
        retry_after_ms: Option<u64>,
        /// The provider's message.
        reason: String,
    },
    /// The connection could not be established, broke or stalled. The call may be repeated at once.
    #[error("connection failed: {reason}")]
    Broken {
        /// Details.
        reason: String,
    },
    /// The transcript exceeds the context window.
    #[error("the conversation no longer fits the model's context: {reason}")]
    ContextFull {
        /// The provider's message.
        reason: String,
    },
    /// The provider declined this content; the same request would be declined again.
    #[error("the provider declined: {reason}")]
    Refused {
        /// The provider's message.
        reason: String,
    },
    /// The API key is missing, wrong or lacks permission.
    #[error("not authorised: {reason}")]
    Unauthorized {
        /// The provider's message; never contains the key.
        reason: String,
    },
    /// The request cannot succeed as it is: unknown model, bad parameter, or a response that cannot be parsed.
    #[error("the model cannot be used: {reason}")]
    Unusable {
        /// Details.
        reason: String,
    },
    /// A team failed: part of its work failed, or its program cannot continue.
    #[error("{reason}")]
    Team {
        /// The failed parts, or the error of the program.
        reason: String,
        /// The results that there are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Arc<Value>>,
    },
    /// The run's time limit was reached.
    #[error("out of time")]
    OutOfTime,
}

impl ModelError {
    /// Returns whether another attempt may succeed.
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
