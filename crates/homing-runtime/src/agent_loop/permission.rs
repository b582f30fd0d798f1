//! Decides whether a call may be made: permission rules, hooks, and approval by the user.

use std::{collections::BTreeSet, sync::Arc};

use homing_core::{
    authority::Decision,
    hooks::{HookCall, HookDecision},
    question::{Answer, Question},
    rule::{Rule, Subjects},
    taint::{Origin, TaintMode, uses_network},
    tool::{Tool, ToolContext, ToolSpec},
};
use serde_json::Value;

use crate::{
    agent_loop::{
        active_run::ActiveRun,
        call_record::{CallError, RefusedCall},
        call_text, tool_host,
    },
    scheduler::Scheduler,
};

/// The origin of a question that a hook asks, in place of a rule. It cannot be parsed as one, so none is suggested.
const HOOK: &str = "(a hook)";

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
                let question = Question {
                    args_hash: tool_host::args_hash(&args),
                    rule: Some(HOOK.to_owned()),
                    ..Question::new(why, context.key)
                };
                self.request_approval(context, question, &[]).await?;
                Ok(PermittedCall { args, by, notes: Vec::new() })
            }
            HookDecision::Block { why } => Err(RefusedCall::denied(format!("blocked by a hook: {why}")).into()),
        }
    }

    /// Applies the run's permission rules, and returns what allows the call.
    async fn apply_rules(&self, tool: &dyn Tool, context: &ToolContext, args: &Value) -> Result<String, CallError> {
        let subjects = tool.subjects(context, args);
        let ToolSpec { name, effect, .. } = tool.spec();
        match context.authority.own.decide(name, *effect, &subjects) {
            Decision::Allow { by } => self.apply_taint(tool, context, &subjects, args, by).await,
            Decision::Deny { why } => Err(RefusedCall::denied(why).into()),
            Decision::Ask { by } => {
                let text = call_text::question(&context.agent, name, &subjects, args);
                self.ask_about_call(context, name, &subjects, args, text, by.clone()).await?;
                Ok(format!("the user; {by}"))
            }
        }
    }

    /// Asks before a call that could send secrets away because untrusted content told it to, unless the user approved the
    /// call in advance. `by` is what allows the call otherwise.
    async fn apply_taint(
        &self,
        tool: &dyn Tool,
        context: &ToolContext,
        subjects: &Subjects,
        args: &Value,
        by: String,
    ) -> Result<String, CallError> {
        let (name, own) = (&tool.spec().name, &context.authority.own);
        let mode = self.run.read(|run| run.spawned.agent.execution.taint.unwrap_or_default());
        if mode == TaintMode::Off || !uses_network(tool.spec(), own) || own.is_approved(name, subjects) {
            return Ok(by);
        }
        // Runs of a tree exchange texts, so content that one of them read may steer all of them.
        let origins: BTreeSet<Origin> = self
            .run
            .tree
            .read(|tree| tree.runs().iter().flat_map(|run| run.effects().origins.iter().copied()).collect());
        let finder = self.run.config().taint.secrets.as_ref().filter(|_| !origins.is_empty());
        let Some(secret) = finder.and_then(|find| find(own, &context.workdir)) else { return Ok(by) };
        let read: Vec<&str> = origins.into_iter().map(Origin::description).collect();
        let why = format!("this run has read {} and can read {}", read.join(", "), secret.display());
        if mode == TaintMode::Deny {
            return Err(RefusedCall::denied(format!("denied: {why}, so it may not use the network")).into());
        }
        let text = format!("{}\n  {why}", call_text::question(&context.agent, name, subjects, args));
        let rule = format!("{name} (untrusted content and secrets)");
        self.ask_about_call(context, name, subjects, args, text, rule).await?;
        Ok(format!("the user; {why}"))
    }

    /// Asks the user about a call that `rule` does not allow without approval.
    async fn ask_about_call(
        &self,
        context: &ToolContext,
        tool: &str,
        subjects: &Subjects,
        args: &Value,
        text: String,
        rule: String,
    ) -> Result<(), CallError> {
        let exact = Rule::exactly(tool, subjects);
        // Rules cannot express every call; then only one for the whole tool would allow it.
        let allow = if exact.is_empty() { vec![Rule::tool(tool)] } else { exact.clone() };
        let args_hash = tool_host::args_hash(args);
        let question = Question { args_hash, rule: Some(rule), exact, ..Question::new(text, context.key) };
        self.request_approval(context, question, &allow).await
    }

    /// Asks the user. The rules `allow` would make the question unnecessary.
    async fn request_approval(
        &self,
        context: &ToolContext,
        question: Question,
        allow: &[Rule],
    ) -> Result<(), CallError> {
        // A question that is open when the run must land is not answered in time.
        let answer = self.scheduler.waiting(self.scheduler.before_landing(context.ask(question))).await?;
        match answer.unwrap_or(Answer::Unavailable) {
            Answer::Yes => Ok(()),
            Answer::No => Err(RefusedCall::denied("the user declined").into()),
            Answer::Text(why) => Err(RefusedCall::denied(format!("the user declined: {why}")).into()),
            Answer::Unavailable => Err(RefusedCall::no_approver(allow).into()),
        }
    }
}
