//! The words and the rules of Homing: what an agent is, what it may do, what it may spend, and what happened to it.
//!
//! This room touches nothing: no files, no network, no clock, no environment, no randomness, no async runtime.
//! Everything here can be tested by calling it.

pub mod agent_builder;
pub mod authority;
pub mod definition;
pub mod diagnostic;
pub mod duration;
pub mod envelope;
pub mod fact;
pub mod hooks;
pub mod limits;
pub mod message;
pub mod model;
pub mod place;
pub mod registry;
pub mod rule;
pub mod run;
pub mod sanitize;
pub mod scripted_model;
pub mod skill;
pub mod token_estimate;
pub mod tool;
pub mod tool_names;
pub mod tree;
pub mod workspace;

use std::{future::Future, pin::Pin};

/// The future that the object-safe seams return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
