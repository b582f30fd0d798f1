//! Core types and rules of Homing: agent definitions, authority, limits, facts, and the fold that turns facts into runs.
//!
//! This crate does no IO and reads no clock, environment or randomness. It also builds for wasm32.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

pub mod agent_builder;
pub mod authority;
pub mod changes;
pub mod definition;
pub mod diagnostic;
pub mod duration;
pub mod envelope;
pub mod fact;
pub mod hooks;
pub mod id_map;
pub mod json_text;
pub mod ledger;
pub mod limits;
pub mod memory;
pub mod message;
pub mod model;
pub mod place;
pub mod question;
pub mod rates;
pub mod receipts;
pub mod redaction;
pub mod registry;
mod reservation;
pub mod rule;
pub mod run;
pub mod sanitize;
pub mod scripted_model;
mod setters;
pub mod short_id;
pub mod skill;
pub mod taint;
pub mod token_estimate;
pub mod tool;
pub mod tool_names;
pub mod trace_context;
pub mod tree;
pub mod workspace;

use std::{future::Future, pin::Pin};

/// The boxed future that the object-safe traits return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_zero(value: &u64) -> bool {
    *value == 0
}
