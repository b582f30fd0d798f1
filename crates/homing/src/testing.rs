//! Tests of agents without a key, a network or waiting.
//!
//! - **Scripted models.** [`model_fn`](crate::model_fn) computes replies from requests with [`say`], [`call`] and [`last_words`];
//!   a [`ScriptedModel`] plays a list.
//! - **Paused time.** The runtime reads tokio's clock, so in a test with `#[tokio::test(start_paused = true)]` retries, delays and
//!   time limits pass at once and in order.
//! - **Cassettes.** [`record`] keeps everything that models and tools answered in a run, and [`replay`] gives the same answers
//!   again and reports each request that differs (feature `sqlite`).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use homing::{AgentDefinition, Homing, Status, Task, testing::{AskFailure, ModelError, ScriptedModel, say}};
//!
//! // In a test: #[tokio::test(start_paused = true)]
//! let busy = ModelError::Busy { retry_after_ms: Some(60_000), reason: "slow down".to_owned() };
//! let model = ScriptedModel::new([Err(AskFailure::free(busy)), Ok(say("Hello."))]);
//! let homing = Homing::builder()
//!     .agent(AgentDefinition::new("greeter", "Greets", "Greet."))
//!     .own_model(Arc::new(model))
//!     .build()?;
//! let result = homing.spawn(Task::new("greeter", "hi"))?.await;
//! assert_eq!((result.status, result.output.as_str()), (Status::Done, "Hello."), "after a minute that took no time");
//! # Ok(())
//! # }
//! ```
//!
#![cfg_attr(
    feature = "sqlite",
    doc = "A cassette is recorded once, perhaps with a real model, and kept beside the tests:\n"
)]
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use homing::{AgentDefinition, Homing, HomingBuilder, Task, model_fn, testing::{Cassette, record, replay, say}};
//!
//! let agents = || Homing::builder().agent(AgentDefinition::new("greeter", "Greets", "Greet."));
//! let live = agents().own_model(model_fn("demo/live", |_| Ok(say("Hello.")))).build()?;
//! let text = record(&live.spawn(Task::new("greeter", "hi"))?).await?.write(&|text| text.to_owned())?;
//!
//! let (builder, tape) = replay(agents(), &Cassette::read(&text)?);
//! let homing = builder.build()?;
//! assert_eq!(homing.spawn(Task::new("greeter", "hi"))?.await.output, "Hello.");
//! assert!(tape.divergences().is_empty() && tape.unplayed().is_empty());
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "sqlite")]
use std::sync::Arc;

pub use homing_core::{
    model::{AskFailure, ModelError, ModelRequest, ToolChoice},
    scripted_model::{FunctionModel, ScriptedModel, call, last_words, say},
};
#[cfg(feature = "sqlite")]
pub use homing_runtime::journal::sqlite::{Cassette, CassetteError, CassetteReplay, Divergence};

#[cfg(feature = "sqlite")]
use crate::{Event, HomingBuilder, RunHandle};

/// Waits until the tree of a run has ended, and returns what its models and tools answered.
///
/// # Errors
///
/// Fails if the facts do not form a tree, as when they are those of a child run.
#[cfg(feature = "sqlite")]
pub async fn record(run: &RunHandle) -> Result<Cassette, CassetteError> {
    let (mut records, mut events) = (Vec::new(), run.events_from(0));
    while let Some(event) = events.next().await {
        match event {
            Event::Fact(record) => records.push(record),
            Event::Transient(_) | Event::Missed(_) => (),
        }
    }
    Cassette::from_records(records)
}

/// Makes a builder answer every model request and tool call from a cassette. Anything else about it, such as agents and tools, is
/// what the test compares with the recording. The second value reports what differed.
#[cfg(feature = "sqlite")]
pub fn replay(mut builder: HomingBuilder, cassette: &Cassette) -> (HomingBuilder, Arc<CassetteReplay>) {
    let replay = CassetteReplay::new(cassette);
    let (tools, listener) = (replay.clone(), replay.listener());
    builder.tools.extensions.wrap_tool = Some(Arc::new(move |tool| tools.tool(tool)));
    let models = replay.models(|name: &str| homing_core::model::ModelCard::free(name));
    (builder.models(models).on_fact(move |record| listener(record)), replay)
}
