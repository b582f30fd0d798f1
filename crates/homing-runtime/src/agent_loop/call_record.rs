//! Records calls: their beginning before they act, their results, and refusals. Shared by tool calls and delegation.

use std::sync::Arc;

use homing_core::{
    fact::{CallRefusal, Called, Fact},
    json_text::JsonText,
    message::{Args, ToolCall, ToolResult},
    question::RequestedCall,
    rule::Rule,
    run::CallState,
    taint::Origin,
    tool::{Replay, ToolOutput},
};
use serde_json::{Value, json};

use crate::{
    agent_loop::{Interrupt, active_run::ActiveRun},
    journal::Commit,
    ledger::record_call,
};

/// A call that is not made, with the reason that is recorded and the text that the model reads.
#[derive(Debug)]
pub(crate) struct RefusedCall {
    pub(crate) why: CallRefusal,
    pub(crate) text: String,
}

impl RefusedCall {
    /// A mistake of the model: an unknown tool, or arguments that cannot be used.
    pub(crate) fn mistake(text: impl Into<String>) -> Self {
        Self { why: CallRefusal::Mistake, text: text.into() }
    }

    /// A denial by a rule, a hook or the user.
    pub(crate) fn denied(text: impl Into<String>) -> Self {
        Self { why: CallRefusal::Denied, text: text.into() }
    }

    /// A denial because the call needs approval and there is no user to approve it; `allow` are rules that would allow it.
    pub(crate) fn no_approver(allow: &[Rule]) -> Self {
        let text = "it needs approval, and no approver is available";
        let allow = allow.iter().map(Rule::to_string).collect();
        Self { why: CallRefusal::NoApprover { allow }, text: text.to_owned() }
    }

    /// A call that had begun when the process died and must not be repeated.
    pub(crate) fn outcome_unknown(name: &str) -> Self {
        let text = format!(
            "interrupted, outcome unknown: `{name}` had begun when the process died, and may or may not have had its \
             effect. It was not repeated. Check its effect before you try again."
        );
        Self { why: CallRefusal::OutcomeUnknown, text }
    }
}

/// The reason why a call has no output.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The call was not made; the run continues.
    Refused(RefusedCall),
    /// The run ends.
    Interrupted(Interrupt),
}

impl From<RefusedCall> for CallError {
    fn from(refused: RefusedCall) -> Self {
        Self::Refused(refused)
    }
}

impl From<Interrupt> for CallError {
    fn from(interrupt: Interrupt) -> Self {
        Self::Interrupted(interrupt)
    }
}

/// Records the calls of one run.
#[derive(Clone)]
pub(crate) struct CallRecorder {
    run: Arc<ActiveRun>,
}

impl CallRecorder {
    pub(crate) fn new(run: Arc<ActiveRun>) -> Self {
        Self { run }
    }

    /// Returns the canonical name of the tool, and its arguments as a JSON object. A call without them is recorded as refused.
    pub(crate) fn resolve_or_refuse(&self, state: &CallState) -> Option<(String, Value)> {
        self.resolve(state).map_err(|refused| self.refused(state, &state.call.name, refused)).ok()
    }

    fn resolve(&self, state: &CallState) -> Result<(String, Value), RefusedCall> {
        let tools = self.run.tools();
        let Some(spec) = tools.find(&state.call.name) else {
            let names: Vec<&str> = tools.toolbox.specs.iter().map(|spec| spec.name.as_str()).collect();
            let (name, names) = (&state.call.name, names.join(", "));
            return Err(RefusedCall::mistake(format!("there is no tool `{name}` here; you have: {names}")));
        };
        match &state.call.args {
            Args::Json(Value::Null) => Ok((spec.name.clone(), json!({}))),
            Args::Json(args @ Value::Object(_)) => Ok((spec.name.clone(), args.clone())),
            Args::Json(other) => Err(RefusedCall::mistake(format!(
                "the arguments of `{}` must be a JSON object, not {other}",
                spec.name
            ))),
            Args::Malformed(text) => {
                let head = &text[..text.floor_char_boundary(200)];
                Err(RefusedCall::mistake(format!("the arguments of `{}` are not valid JSON: {head}", spec.name)))
            }
        }
    }

    /// Records the beginning of a call as [`CallRecorder::note_begin`] does. The record is durable when this returns, so that after
    /// a crash a call that may have acted is known to have begun.
    pub(crate) async fn begin(
        &self,
        state: &CallState,
        name: &str,
        args: &Value,
        replay: Replay,
        allowed_by: String,
    ) -> Result<(), CallError> {
        let noted = self.note_begin(state, name, args, replay, allowed_by).await?;
        Ok(noted.await.map_err(Interrupt::Journal)?)
    }

    /// Records the beginning of a call, unless the limit of calls is reached or the run must land. Only a call that changes nothing
    /// may be made before the record is durable.
    pub(crate) async fn note_begin(
        &self,
        state: &CallState,
        name: &str,
        args: &Value,
        replay: Replay,
        allowed_by: String,
    ) -> Result<Commit, CallError> {
        if state.begun.is_some() {
            return Ok(Commit::Done(Ok(())));
        }
        if let Some(hit) = self.run.time_nearly_up() {
            let text = "not done: the time of this run is nearly up".to_owned();
            return Err(RefusedCall { why: CallRefusal::Limit(hit), text }.into());
        }
        let is_as_written =
            state.call.name == name && matches!(&state.call.args, Args::Json(written) if written == args);
        let call = if is_as_written {
            state.call.clone()
        } else {
            Arc::new(ToolCall { id: state.call.id.clone(), name: name.to_owned(), args: Args::Json(args.clone()) })
        };
        let trusts_project = !self.run.config().taint.project_is_untrusted;
        let origin = self.run.read(|run| Origin::of_call(name, &run.spawned.authority.own, trusts_project));
        let called = Called { key: state.key, call, replay, allowed_by, origin };
        match record_call(&self.run.tree, self.run.id(), called).await.map_err(Interrupt::Journal)? {
            Ok(commit) => Ok(commit),
            Err(hit) => {
                let text = format!("not done: the limit of {} tool calls is reached", hit.limit);
                Err(RefusedCall { why: CallRefusal::Limit(hit), text }.into())
            }
        }
    }

    /// Records the output of a call, and why it was refused or ended by a limit, if it was.
    pub(crate) fn returned(&self, state: &CallState, name: &str, output: ToolOutput, refused: Option<CallRefusal>) {
        let result = Arc::new(ToolResult {
            index: state.key.index,
            call_id: state.call.id.clone(),
            name: name.to_owned(),
            text: output.text,
            images: output.images,
            data: output.data.map(JsonText::from),
            is_error: output.is_error,
        });
        let is_denied = matches!(refused, Some(CallRefusal::Denied | CallRefusal::NoApprover { .. }));
        let denied = is_denied.then(|| {
            let agent = self.run.read(|run| run.spawned.agent.name.clone());
            let written = RequestedCall::written(agent, &state.call);
            Box::new(RequestedCall::new(written.agent, name, written.args))
        });
        drop(self.run.record(Fact::Returned { key: state.key, result, refused, denied }));
    }

    /// Records that a call was not made.
    pub(crate) fn refused(&self, state: &CallState, name: &str, refused: RefusedCall) {
        self.returned(state, name, ToolOutput::error(refused.text), Some(refused.why));
    }
}
