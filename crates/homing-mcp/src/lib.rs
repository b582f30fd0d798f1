//! Serves agents to MCP clients over stdio and over HTTP: a client delegates, and our limits, models, journal and sandbox
//! hold. It knows neither files nor environment nor terminals: a host hands it a [`Homing`](homing::Homing) and options.
//!
//! Each client reaches its own runs only, and what it started ends with it.

mod args;
mod asker;
mod attend;
mod client;
mod guard;
mod handler;
mod http;
mod options;
mod report;
mod resources;
mod schema;
mod served;
mod stdio;

pub use asker::McpAsker;
pub use http::{HttpOptions, HttpServer, ServeError, serve_http};
pub use options::{Budget, Options, Reload};
pub use stdio::{StdioError, serve_on, serve_stdio};
