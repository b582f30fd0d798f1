//! Decides whether a call may be made: permission rules, hooks, and approval by the user.

use std::sync::Arc;

use homing_core::{
    BoxFuture,
    authority::Decision,
    hooks::{HookCall, HookDecision},
    tool::{Answer, CallHost, Question, Tool, ToolContext},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    agent_loop::{
        active_run::ActiveRun,
        call_record::{CallError, RefusedCall},
    },
    event::TransientKind,
    live_run::LiveRun,
    live_tree::LiveTree,
    runtime::PermissionHandler,
    scheduler::Scheduler,
};

/// A call that may be made.
pub(crate) struct PermittedCall {
    pub(crate) args: Value,
    /// The rule or user that allows it.
    pub(crate) by: String,
    /// Notes of hooks for the model.
    pub(crate) notes: Vec<String>,
}

/// Decides about the calls of one run.
pub(crate) struct CallPermissions {
    run: Arc<ActiveRun>,
    scheduler: Arc<Scheduler>,
}

impl CallPermissions {
    pub(crate) fn new(run: Arc<ActiveRun>, scheduler: Arc<Scheduler>) -> Self {
        Self { run, scheduler }
    }

    /// Applies rules, then hooks. A hook may change the arguments; then the rules are applied again.
    pub(crate) async fn check(
        &self,
        tool: &dyn Tool,
        context: &ToolContext,
        args: Value,
    ) -> Result<PermittedCall, CallError> {
        let by = self.apply_rules(tool, context, &args).await?;
        let Some(hooks) = &self.run.runtime.parts.hooks else {
            return Ok(PermittedCall { args, by, notes: Vec::new() });
        };
        let call = HookCall { tool: tool.spec().name.clone(), args: args.clone() };
        let decision = self.scheduler.working(hooks.before_call(&self.run.hook_run(), &call)).await?;
        match decision {
            HookDecision::Allow { args: changed, notes } => {
                let notes = self.run.show_warnings(notes);
                let Some(args) = changed else { return Ok(PermittedCall { args, by, notes }) };
                let by = self.apply_rules(tool, context, &args).await?;
                Ok(PermittedCall { args, by, notes })
            }
            HookDecision::Ask { why } => {
                self.request_approval(context, &why, None).await?;
                Ok(PermittedCall { args, by, notes: Vec::new() })
            }
            HookDecision::Block { why } => Err(RefusedCall::denied(format!("blocked by a hook: {why}")).into()),
        }
    }

    /// Applies the run's permission rules, and returns what allows the call.
    async fn apply_rules(&self, tool: &dyn Tool, context: &ToolContext, args: &Value) -> Result<String, CallError> {
        let subjects = tool.subjects(context, args);
        let name = &tool.spec().name;
        match context.authority.own.decide(name, &subjects) {
            Decision::Allow { by } => Ok(by),
            Decision::Deny { why } => Err(RefusedCall::denied(why).into()),
            Decision::Ask { by } => {
                let text = format!("allow {} to call {name} with {args}?", context.agent);
                self.request_approval(context, &text, Some(by.clone())).await?;
                Ok(format!("the user; {by}"))
            }
        }
    }

    async fn request_approval(&self, context: &ToolContext, text: &str, rule: Option<String>) -> Result<(), CallError> {
        let question = Question { text: text.to_owned(), options: Vec::new(), key: context.key, rule };
        // A question that is open when the run must land is not answered in time.
        let answer = self.scheduler.waiting(self.scheduler.before_landing(context.ask(question))).await?;
        match answer.unwrap_or(Answer::Unavailable) {
            Answer::Yes => Ok(()),
            Answer::No | Answer::Text(_) => Err(RefusedCall::denied("the user declined").into()),
            Answer::Unavailable => Err(RefusedCall::no_approver().into()),
        }
    }
}

/// The services that a tool may use during a call.
pub(crate) struct ToolHost {
    tree: Arc<LiveTree>,
    live_run: Arc<LiveRun>,
    permission_handler: Option<Arc<dyn PermissionHandler>>,
    answer_within: std::time::Duration,
    pub(crate) stop: CancellationToken,
}

impl ToolHost {
    pub(crate) fn new(run: &ActiveRun) -> Self {
        Self {
            tree: run.tree.clone(),
            live_run: run.live_run.clone(),
            permission_handler: run.runtime.parts.asker.clone(),
            answer_within: run.config().answer_within,
            stop: run.live_run.stop.child_token(),
        }
    }
}

impl CallHost for ToolHost {
    fn cancelled(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop.cancelled())
    }

    fn progress(&self, text: &str) {
        self.tree.notify(&self.live_run, || TransientKind::Progress(text.to_owned()));
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            self.tree.notify(&self.live_run, || TransientKind::Question(Box::new(question.clone())));
            let Some(handler) = &self.permission_handler else { return Answer::Unavailable };
            let answer = tokio::time::timeout(self.answer_within, handler.ask(question));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => Answer::Unavailable,
                answer = answer => answer.unwrap_or(Answer::Unavailable),
            }
        })
    }

    fn returned(&self, tool: &str) -> Vec<Value> {
        self.tree.read(|tree| {
            let results = tree.runs().iter().flat_map(|run| run.results(tool)).filter(|result| !result.is_error);
            results.filter_map(|result| result.data.clone()).collect()
        })
    }
}
