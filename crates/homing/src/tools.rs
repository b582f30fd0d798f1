//! Tools: what agents can call.
//!
//! [`tool_fn`] makes a tool of an async function; the type of its arguments gives the schema. Implement [`Tool`] for more: the paths
//! and hosts of a call for permission rules, a preview for questions, progress. [`Replay`] says what happens to a call that was
//! interrupted by a crash: it is repeated, repeated under the same key, or reported as of unknown outcome.
//!
//! The built-in tools come with [`Homing::coding`](crate::Homing::coding) or a `CodingSetup`: files and search with the feature
//! `tools`, commands in a sandbox with `shell`, web pages with `web`, tools of MCP servers with `mcp`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use homing::{AgentDefinition, Homing, Replay, Task, model_fn, schemars::JsonSchema, testing::{call, last_words, say}, tool_fn};
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize, JsonSchema)]
//! struct Weather {
//!     /// The city.
//!     city: String,
//! }
//!
//! let weather = tool_fn("weather", "Returns the weather.", Replay::Safe, |_, Weather { city }| async move {
//!     if city == "Oslo" { Ok("snow".to_owned()) } else { Err(format!("{city} is not known")) }
//! });
//! let homing = Homing::builder()
//!     .agent(AgentDefinition::new("forecaster", "Knows the weather", "Answer with the tool."))
//!     .tool(weather)
//!     .own_model(model_fn("demo/m", |request| {
//!         Ok(if request.messages.len() == 1 { call([("weather", json!({"city": "Oslo"}))]) } else { say(last_words(&request)) })
//!     }))
//!     .build()?;
//! assert_eq!(homing.spawn(Task::new("forecaster", "Oslo?"))?.await.output, "snow");
//! # Ok(())
//! # }
//! ```

#[doc(no_inline)]
pub use crate::{Args, Extensions, Replay, Tool, ToolCall, ToolContext, ToolOutput, ToolSpec, ToolWrapper, tool_fn};
pub use homing_core::{
    authority::Authority,
    hooks::{HookCall, HookDecision, HookEnding, HookNotes, HookRun, Hooks},
    rule::{Subject, Subjects},
    tool::{CallHost, CallKey, Effect, ToolState},
    workspace::{Left, Workspace, Workspaces},
};
