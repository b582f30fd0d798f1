//! Tasks and runs: what an agent is asked to do, and the handle and result of its work.
//!
//! [`Homing::spawn`](crate::Homing::spawn) starts a run for a [`Task`] and returns its [`RunHandle`]. Awaiting the handle gives the
//! [`Envelope`], which is never an error: a run that failed, was cancelled or reached a limit has its status, the reason and what it
//! had so far. [`Homing::submit`](crate::Homing::submit) takes a key, under which the same task is never run twice.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use homing::{AgentDefinition, Homing, Status, Task, model_fn, testing::{last_words, say}};
//!
//! let homing = Homing::builder()
//!     .agent(AgentDefinition::new("echo", "Repeats", "Repeat."))
//!     .own_model(model_fn("demo/echo", |request| Ok(say(last_words(&request)))))
//!     .build()?;
//! let run = homing.spawn(Task::new("echo", "one").tag("ticket", "42"))?;
//! let result = run.wait().await;
//! assert_eq!((result.status, result.output.as_str()), (Status::Done, "one"));
//!
//! // A conversation: a message to a run that has ended starts a run that begins with its messages.
//! let next = run.tell("two")?;
//! assert_eq!(next.await.output, "two");
//! assert_eq!(homing.wait_all().await.len(), 2);
//! # Ok(())
//! # }
//! ```

#[doc(no_inline)]
pub use crate::{
    AttachedContent, Attachment, CancelledBy, Envelope, EnvelopeError, EnvelopeUsage, FailureKind, Fork, NoData,
    RunHandle, SpawnError, Statistics, Status, Submission, Task, aggregate,
};
pub use homing_core::{receipts::Receipts, run::Run, tree::RunTree};
