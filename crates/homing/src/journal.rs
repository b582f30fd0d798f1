//! The journal: the durable log of what happened, from which runs are resumed, replayed and forked.
//!
//! With the feature `sqlite`, `.journal("runs.db")` records every fact in a file that many processes can share. Each step is in it
//! before it takes effect. After a crash, [`Homing::resume`](crate::Homing::resume) goes on where the tree stopped, and
//! [`Homing::submit`](crate::Homing::submit) with the same key returns the same run: nothing that was answered is asked again, and a
//! call that may have had its effect is not repeated. [`Homing::fork`](crate::Homing::fork) starts a new tree from any position of a
//! recorded one. Without a journal, which is the default of [`Homing::builder`](crate::Homing::builder), a crash loses all runs.
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! use homing::{AgentDefinition, Homing, Task, model_fn, testing::say};
//!
//! let open = |words: &'static str| {
//!     Homing::builder()
//!         .agent(AgentDefinition::new("poet", "Writes", "Write."))
//!         .own_model(model_fn("demo/poet", move |_| Ok(say(words))))
//!         .journal(folder.join("runs.db"))
//!         .build()
//! };
//! let first = open("An ode.")?.submit("ode-1", Task::new("poet", "write")).await?.await;
//! // Another process, another answer of the model: the recorded result counts.
//! let second = open("Something else.")?.submit("ode-1", Task::new("poet", "write")).await?.await;
//! assert_eq!((first.run, first.output), (second.run, second.output));
//! # Ok(())
//! # }
//! ```

#[doc(no_inline)]
pub use crate::{Claim, FactListener, Fork, JournalChoice, JournalError};
#[cfg(feature = "sqlite")]
pub use homing_runtime::journal::sqlite::{
    Account, Filter, FindError, FindQuestionError, JournalQuestion, JournalReport, Posted, Pruned, Retention, RunRef,
    RunRow, SqliteJournal, SqliteOptions, SumBy, UsageSum, Which,
};
pub use homing_runtime::journal::{Begun, Commit, InboxRequest, Journal, MemoryJournal};
