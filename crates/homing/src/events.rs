//! Events: everything that happens in a run tree, while it happens.
//!
//! [`RunHandle::events`](crate::RunHandle::events) is a [`Stream`] of [`Event`]s of a run and all runs below it;
//! [`events_from(0)`](crate::RunHandle::events_from) begins with the first, however late it is called. Facts are durable before they
//! are seen and arrive in order and without gaps. Transient notices (pieces of a reply, progress, questions) may be missed by a slow
//! reader. [`HomingBuilder::on_fact`](crate::HomingBuilder::on_fact) sees the facts of all runs.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use homing::{AgentDefinition, Homing, Permissions, Replay, Task, events::Event, model_fn, testing::{call, say}, tool_fn};
//! use serde_json::{Value, json};
//!
//! let homing = Homing::builder()
//!     .agent(AgentDefinition::new("pusher", "Pushes", "Push."))
//!     .tool(tool_fn("push", "Pushes.", Replay::Unsafe, |_, _: Value| async { Ok("pushed".to_owned()) }))
//!     .permissions(Permissions::default().ask(["push"])) // no handler: denied
//!     .own_model(model_fn("demo/m", |request| {
//!         Ok(if request.messages.len() == 1 { call([("push", json!({"to": "main"}))]) } else { say("I may not.") })
//!     }))
//!     .build()?;
//! let run = homing.spawn(Task::new("pusher", "go"))?;
//! let (mut kinds, mut denied) = (Vec::new(), Vec::new());
//! let mut events = run.events_from(0);
//! while let Some(event) = events.next().await {
//!     denied.extend(event.denied().cloned());
//!     if let Event::Fact(record) = event {
//!         kinds.push(record.fact.kind());
//!     }
//! }
//! assert_eq!((kinds.first(), kinds.last()), (Some(&"spawned"), Some(&"ended")));
//! assert_eq!((denied[0].agent.as_str(), denied[0].tool.as_str(), &denied[0].args), ("pusher", "push", &json!({"to": "main"})));
//! # Ok(())
//! # }
//! ```

#[doc(no_inline)]
pub use crate::{Event, Events, RequestedCall, Stream};
pub use homing_core::{
    fact::{Asked, CallRefusal, Called, Ended, Fact, Outcome, Record, Spawned},
    place::Place,
};
pub use homing_runtime::event::{Transient, TransientKind};
