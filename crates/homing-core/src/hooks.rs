//! The seam to hooks: what the user's own commands have to say before and after a call, and at a run's start and end.
//! What a hook is made of, and who may have one, is not known here.

use std::path::PathBuf;

use serde_json::Value;
use uuid::Uuid;

use crate::{BoxFuture, tool::ToolOutput};

/// Somebody who is asked at certain moments of a run. The runtime calls it outside its loop.
pub trait Hooks: Send + Sync {
    /// A run begins. What comes back is told to the model together with the task.
    fn run_started<'a>(&'a self, run: &'a HookRun) -> BoxFuture<'a, HookNotes>;

    /// A call was allowed by the rules and is about to be made. A hook can only narrow: `Allow` lifts no denial.
    fn before_call<'a>(&'a self, run: &'a HookRun, call: &'a HookCall) -> BoxFuture<'a, HookDecision>;

    /// A call has returned. What comes back is told to the model after the result.
    fn after_call<'a>(
        &'a self,
        run: &'a HookRun,
        call: &'a HookCall,
        output: &'a ToolOutput,
    ) -> BoxFuture<'a, HookNotes>;

    /// A run is about to end `Done` with `text`. `goes_on` counts how often a hook has already sent it back to work.
    fn run_ending<'a>(&'a self, run: &'a HookRun, text: &'a str, goes_on: u32) -> BoxFuture<'a, HookEnding>;
}

/// The run that a hook is told about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRun {
    /// Its id.
    pub run: Uuid,
    /// Its agent.
    pub agent: String,
    /// Its folder.
    pub workdir: PathBuf,
    /// Whether somebody delegated to it, or it is a root.
    pub delegated: bool,
    /// The hooks of the agent's own file; hosts leave it `Null` unless that file is trusted.
    pub own_hooks: Value,
}

/// The call that a hook is told about.
#[derive(Clone, Debug, PartialEq)]
pub struct HookCall {
    /// The tool's name.
    pub tool: String,
    /// The arguments.
    pub args: Value,
}

/// What hooks have to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookNotes {
    /// Text for the model, each hook's on its own.
    pub for_model: Vec<String>,
    /// Text for people: a hook that failed or took too long.
    pub warnings: Vec<String>,
}

/// What hooks say about a call that is about to be made.
#[derive(Clone, Debug, PartialEq)]
pub enum HookDecision {
    /// Make it, with these arguments where a hook changed them. Changed arguments are checked against the rules again.
    Allow {
        /// The new arguments.
        args: Option<Value>,
        /// What else there is to say.
        notes: HookNotes,
    },
    /// A person must be asked first.
    Ask {
        /// Why.
        why: String,
    },
    /// Do not make it.
    Block {
        /// Why, in words the model can act on.
        why: String,
    },
}

/// What hooks say about a run that is about to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookEnding {
    /// Let it end.
    End(HookNotes),
    /// It is not finished: `why` becomes its next turn, within its limits.
    GoOn {
        /// What is still to be done.
        why: String,
    },
}
