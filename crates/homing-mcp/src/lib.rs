//! Serves agents to MCP clients over stdio and over HTTP: a client delegates, and our limits, models, journal and sandbox
//! hold. It knows neither files nor environment nor terminals: a host hands it a [`Homing`](homing::Homing) and options.
//!
//! Each client reaches its own runs only, and what it started ends with it.

mod args;
mod client;
mod elicitation;
mod guard;
mod handler;
mod http;
mod options;
mod resources;
mod run_report;
mod server_state;
mod stdio;
mod tools;
mod wait_for_runs;

pub use elicitation::ElicitationHandler;
pub use http::{HttpOptions, HttpServer, ServeError, serve_http};
pub use options::{ClientBudget, Reload, ServerOptions};
pub use stdio::{StdioError, serve_on, serve_stdio};
