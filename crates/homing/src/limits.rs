//! Limits: what a run and everything below it may spend.
//!
//! [`Limits`] bound money, tokens, turns, tool calls, child runs, depth and time. They are reserved before they are spent, at the run
//! and at each of its ancestors, so a tree never exceeds the limits of its root. A run that reaches one gets a last turn without
//! tools, in which it reports what it has; its status is then [`Exhausted`](crate::Status::Exhausted) or
//! [`TimedOut`](crate::Status::TimedOut). A limit that is not set has a default; [`Limits::unlimited`] removes it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use homing::{AgentDefinition, Homing, Limit, Limits, Replay, Status, Task, model_fn, testing::{ToolChoice, call, say}, tool_fn};
//! use serde_json::{Value, json};
//!
//! let homing = Homing::builder()
//!     .agent(AgentDefinition::new("restless", "Never stops", "Search everywhere."))
//!     .tool(tool_fn("look", "Looks.", Replay::Safe, |_, _: Value| async { Ok("nothing here".to_owned()) }))
//!     .own_model(model_fn("demo/restless", |request| {
//!         let is_last = request.choice == ToolChoice::Off;
//!         Ok(if is_last { say("Nothing so far.") } else { call([("look", json!({"at": request.messages.len()}))]) })
//!     }))
//!     .build()?;
//! let limits = Limits::default().turns(4).cost_usd("0.50")?.wall(Duration::from_secs(60)).unlimited(Limit::Tokens);
//! let result = homing.spawn(Task::new("restless", "search").limits(limits))?.await;
//! assert_eq!((result.status, result.output.as_str(), result.partial), (Status::Exhausted, "Nothing so far.", true));
//! assert_eq!(result.limit.unwrap().name, Limit::Turns);
//! # Ok(())
//! # }
//! ```

#[doc(no_inline)]
pub use crate::{Cap, Limit, Limits, usd};
pub use homing_core::{fact::LimitHit, limits::AmountError};
