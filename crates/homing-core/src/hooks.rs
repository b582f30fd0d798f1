//! Interface to hooks: user-defined checks before and after a call, and at the start and end of a run. How a hook is
//! executed, and which hooks are trusted, is decided elsewhere.

use std::path::PathBuf;

use serde_json::Value;
use uuid::Uuid;

use crate::{BoxFuture, tool::ToolOutput};

/// Hooks that the runtime calls at certain points of a run, outside its agent loop.
pub trait Hooks: Send + Sync {
    /// Called when a run starts. The returned notes are added to the task.
    fn run_started<'a>(&'a self, run: &'a HookRun) -> BoxFuture<'a, HookNotes>;

    /// Called before a call that the rules allow. A hook can only restrict: `Allow` does not override a denial.
    fn before_call<'a>(&'a self, run: &'a HookRun, call: &'a HookCall) -> BoxFuture<'a, HookDecision>;

    /// Called after a call. The returned notes are added after the result.
    fn after_call<'a>(
        &'a self,
        run: &'a HookRun,
        call: &'a HookCall,
        output: &'a ToolOutput,
    ) -> BoxFuture<'a, HookNotes>;

    /// Called when a run is about to end as `Done` with `text`. `goes_on` counts how often a hook has already continued it.
    fn run_ending<'a>(&'a self, run: &'a HookRun, text: &'a str, goes_on: u32) -> BoxFuture<'a, HookEnding>;
}

/// Description of a run, for a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRun {
    /// The run's ID.
    pub run: Uuid,
    /// The agent's name.
    pub agent: String,
    /// The run's working folder.
    pub workdir: PathBuf,
    /// True if the run has a parent.
    pub delegated: bool,
    /// Hooks of the agent file; `Null` unless the file is trusted.
    pub own_hooks: Value,
}

/// Description of a call, for a hook.
#[derive(Clone, Debug, PartialEq)]
pub struct HookCall {
    /// The tool's name.
    pub tool: String,
    /// The arguments.
    pub args: Value,
}

/// Notes that hooks return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookNotes {
    /// Text for the model, one entry per hook.
    pub for_model: Vec<String>,
    /// Text for the user, such as that a hook failed or timed out.
    pub warnings: Vec<String>,
}

/// Decision of hooks on a call.
#[derive(Clone, Debug, PartialEq)]
pub enum HookDecision {
    /// The call may proceed. If a hook changed the arguments, they are checked against the rules again.
    Allow {
        /// The changed arguments, if any.
        args: Option<Value>,
        /// Further notes.
        notes: HookNotes,
    },
    /// The call needs the user's approval.
    Ask {
        /// The reason.
        why: String,
    },
    /// The call must not be made.
    Block {
        /// The reason, as shown to the model.
        why: String,
    },
}

/// Decision of hooks on a run that is about to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookEnding {
    /// The run may end.
    End(HookNotes),
    /// The run must continue, within its limits.
    GoOn {
        /// The reason, which becomes its next user message.
        why: String,
    },
}
