//! Asking language models: which providers there are, what they cost, how one question travels to one of them and what
//! came back — or why nothing did. Also the model that needs no provider at all.
//!
//! This room makes one network attempt per call. Retrying, waiting for a rate limit and paying are the runtime's; reading
//! the environment and configuration files is the host's.

mod builtin;
mod errors;
mod foreign;
#[cfg(fuzzing)]
pub mod fuzz;
mod http;
mod known_names;
pub mod names;
mod offline;
mod output_limits;
mod prices;
mod provider;
mod reader;
mod remote;
mod secret;
mod sse;
mod wire;

pub use http::Clocks;
pub use offline::Offline;
pub use prices::GivenPrice;
pub use provider::{Auth, NoModel, OneOrMore, ProviderConfig, ProviderRow, Providers};
pub use wire::{Delivery, Wire, chat::Quirks, reasoning::ReasoningReturn};
