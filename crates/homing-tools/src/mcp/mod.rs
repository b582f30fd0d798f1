//! Tools that other programs offer over the Model Context Protocol: started when they are first needed, believed as far
//! as they were approved. Which servers there are, and who may use them, is decided elsewhere.

mod approvals;
mod config;
mod connection;
mod definitions;
mod results;
mod tool;

pub use approvals::{PinState, Pins};
pub use config::{ServerConfig, ServerConfigError, ServerPlace};
pub use connection::{McpError, McpScope};
pub use definitions::{Offer, OfferedTool, tools_prefix};
