//! MCP server for agents, over stdio and over HTTP.
//!
//! A client delegates tasks with five tools: `delegate`, `wait`, `tell`, `cancel` and `runs`. The runs use the limits,
//! models, journal and sandbox of the host. Each client can access only the runs that it started, and they are cancelled
//! when it disconnects.
//!
//! The crate reads no files and no environment variables: a host passes a [`Homing`](homing::Homing) and [`ServerOptions`]
//! to [`serve_stdio`] or [`serve_http`].

mod args;
mod client;
mod earlier_runs;
mod elicitation;
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
pub use http::{HttpOptions, HttpServer, McpEndpoint, ServeError, serve_http};
pub use options::{ClientBudget, Reload, ServerOptions};
pub use stdio::{StdioError, serve_on, serve_stdio};
