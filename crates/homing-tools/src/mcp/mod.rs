//! Client of the Model Context Protocol: servers are started on first use, and only approved tools can be called.

mod approvals;
mod config;
mod connection;
mod definitions;
mod results;
mod tool;

pub use approvals::{ApprovalState, McpApprovals};
// The former names, until the hosts use the new ones.
pub use config::{ServerConfig, ServerConfigError, ServerPlace};
pub use connection::{McpError, McpScope};
pub use definitions::{ListedTool, ToolListing, tools_prefix};
