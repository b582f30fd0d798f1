//! Models: what answers an agent's requests.
//!
//! With the feature `providers`, [`HomingBuilder::keys_from_env`](crate::HomingBuilder::keys_from_env) finds the models of providers by
//! their API keys, and [`HomingBuilder::model`](crate::HomingBuilder::model) names the default one. The feature `genai` adds providers
//! without a wire of their own, such as Gemini. A model of the host is a [`model_fn`], or an implementation of [`Model`] with a
//! [`ModelCard`] that states its prices and limits; [`Models`] replaces the whole choice of models.
//!
//! A model makes one attempt per call. Retries, rate limits, budgets and timeouts belong to the runtime, so they apply to own models
//! too.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use homing::{AgentDefinition, Homing, Rates, Reply, Task, models::{FunctionModel, ModelCard}, testing::say, usd};
//!
//! let card = ModelCard::free("acme/large").rates(Rates::default().input(3_000_000).output(15_000_000));
//! let model = FunctionModel::with_card(card, |request| {
//!     let reply: Reply = say(format!("{} messages", request.messages.len()));
//!     let usage = reply.usage.input(1_000).output(100).cost_micros(4_500);
//!     Ok(reply.usage(usage))
//! });
//! let homing = Homing::builder()
//!     .agent(AgentDefinition::new("counter", "Counts", "Count."))
//!     .own_model(std::sync::Arc::new(model))
//!     .build()?;
//! let result = homing.spawn(Task::new("counter", "hi"))?.await;
//! assert_eq!((result.output.as_str(), usd(result.usage.cost_micros).as_str()), ("1 messages", "$0.0045"));
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "providers")]
#[doc(no_inline)]
pub use crate::{Catalog, ModelOptions};
#[doc(no_inline)]
pub use crate::{Message, Model, ModelCard, ModelChoice, Models, Part, Rates, Reply, StopReason, Usage, model_fn};
pub use homing_core::{
    json_text::JsonText,
    message::{MessageOrigin, ToolResult, TranscriptEntry},
    model::{
        Abilities, AskFailure, Charge, Delta, Effort, ModelError, ModelRequest, OnDelta, ResolvedModel, Sampling,
        ToolChoice, Toolbox,
    },
    scripted_model::FunctionModel,
};
#[cfg(feature = "providers")]
pub use homing_models::{Auth, GivenPrice, NoModelError, ProviderConfig, Providers, SamplingConfig, Timeouts, Wire};
