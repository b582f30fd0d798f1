//! Web server for the runs of a journal: an HTTP API with server-sent events, a web interface, agents as models.
//!
//! It shows the runs of every process that uses the journal. Requests to act on a run go through the journal's inbox to the
//! process that owns it. The crate reads no configuration and no environment variables: a [`WebHost`] opens projects.

mod agent_call;
mod agui;
mod api;
mod assets;
mod call;
mod export;
mod gzip;
mod host;
mod openai;
mod openai_responses;
mod problem;
mod projects;
mod server;
mod sse;
mod token;
mod tree_cache;
mod tree_channel;
mod tree_row;
mod watch;

pub use export::page as export_page;
pub use homing_http::{TlsError, TlsFiles};
pub use host::{HostError, HostErrorKind, OpenProject, WebHost};
pub use server::{McpHandler, ServeError, WebOptions, WebServer, serve};
pub use token::{TokenError, TokenFile};
