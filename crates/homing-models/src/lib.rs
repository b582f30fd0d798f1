//! Asking language models: which providers there are, what they cost, how one question travels to one of them and what
//! came back — or why nothing did. Also the model that needs no provider at all.
//!
//! This room makes one network attempt per call. Retrying, waiting for a rate limit and paying are the runtime's; reading
//! the environment and configuration files is the host's.

mod classify_error;
mod event_reader;
#[cfg(fuzzing)]
pub mod fuzz;
mod genai;
mod http;
mod known_names;
pub mod names;
mod native_model;
mod output_limits;
mod prices;
mod provider;
mod provider_table;
mod secret;
mod sse;
mod wire;

pub use http::Timeouts;
pub use prices::GivenPrice;
pub use provider::{Auth, NoModelError, OneOrMore, ProviderConfig, ProviderRow, Providers};
pub use wire::{Delivery, Wire, chat::Quirks, reasoning::ReasoningReturn};
