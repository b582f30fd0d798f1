//! Client of the Model Context Protocol: servers are started on first use, and only approved tools can be called.

mod approvals;
mod config;
mod connection;
mod definitions;
mod oauth;
mod results;
mod sse_transport;
mod tool;

pub use approvals::{ApprovalState, McpApprovals};
pub use config::{ServerConfig, ServerConfigError, ServerPlace, UrlTransport};
pub use connection::{McpError, McpScope};
pub use definitions::{ListedTool, ToolListing, tools_prefix};
pub use oauth::OauthTokens;
