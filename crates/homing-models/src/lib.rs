//! Clients for language models: the provider table, wire formats, prices and model names.
//!
//! Each call makes one network attempt. The runtime retries, waits for rate limits and accounts for costs; the host reads
//! the environment and the configuration files.
//!
//! Without the feature `genai`, only providers of the native wires are available. Encrypted connections need `aws-lc-rs` or `ring`.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod address;
mod attachments;
mod aws;
mod classify_error;
mod event_reader;
#[cfg(fuzzing)]
pub mod fuzz;
#[cfg(feature = "genai")]
mod genai;
mod http;
mod model_list;
mod model_table;
pub mod names;
mod native_model;
mod prices;
mod provider;
mod provider_config;
mod provider_error;
mod provider_table;
mod rejected_reasoning;
mod sampling;
mod secret;
mod sse;
mod timeouts;
mod url;
mod wire;

pub use aws::{AwsCredentials, AwsProfile};
pub use prices::GivenPrice;
pub use provider::{Auth, ProviderRow, Providers};
pub use provider_config::{OneOrMore, ProviderConfig};
pub use provider_error::{NoModelError, RowError};
pub use sampling::SamplingConfig;
pub use timeouts::Timeouts;
pub use wire::{
    Delivery, Wire,
    chat::Quirks,
    reasoning::{KeepThinking, ReasoningReturn},
};
