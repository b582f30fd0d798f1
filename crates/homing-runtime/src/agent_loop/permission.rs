//! Decides whether a call may be made: permission rules, hooks, and approval by the user.

use std::{path::PathBuf, sync::Arc};

use homing_core::{
    authority::Decision,
    fact::CallRefusal,
    hooks::{HookCall, HookDecision, Hooks},
    question::{Answer, Question, RequestedCall},
    rule::{Rule, Subject, Subjects},
    taint::{TaintMode, uses_network},
    tool::{CallHost, CallKey, Tool, ToolContext, ToolSpec},
    tool_names,
    tree::RunTree,
};
use serde_json::{Value, json};

use crate::{
    agent_loop::{
        Interrupt,
        active_run::ActiveRun,
        call_record::{CallError, RefusedCall},
        call_text,
        tool_host::{self, ToolHost},
    },
    scheduler::Scheduler,
    segment::read_origins,
    skill_use,
};

/// Names a hook as the one that requires approval. It is not a rule, so no rule of the user makes it unnecessary.
const HOOK: &str = "(a hook)";

/// A call that may be made.
pub(crate) struct PermittedCall {
    pub(crate) args: Value,
    /// The rule or user that allows it.
    pub(crate) by: String,
    /// Notes of hooks for the model.
    pub(crate) notes: Vec<String>,
}

/// The decision of rules and hooks to allow a call.
struct AllowedCall {
    /// The arguments, if a hook changed them.
    changed: Option<Value>,
    by: String,
    notes: Vec<String>,
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

    /// Applies rules, then hooks. A denial names the tool and its command, file or host.
    pub(crate) async fn check(
        &self,
        tool: &dyn Tool,
        context: &ToolContext,
        args: Value,
    ) -> Result<PermittedCall, CallError> {
        match self.apply_rules_and_hooks(tool, context, &args).await {
            Ok(AllowedCall { changed, by, notes }) => Ok(PermittedCall { args: changed.unwrap_or(args), by, notes }),
            Err(CallError::Refused(RefusedCall {
                why: why @ (CallRefusal::Denied | CallRefusal::NoApprover { .. }),
                text,
            })) => {
                let call = call_text::summary(&tool.spec().name, &tool.subjects(context, &args), &args);
                Err(RefusedCall { why, text: format!("denied: {call}: {text}") }.into())
            }
            Err(other @ (CallError::Refused(_) | CallError::Interrupted(_))) => Err(other),
        }
    }

    /// Applies rules, then hooks. A hook may change the arguments; then the rules are applied again.
    async fn apply_rules_and_hooks(
        &self,
        tool: &dyn Tool,
        context: &ToolContext,
        args: &Value,
    ) -> Result<AllowedCall, CallError> {
        let by = self.apply_rules(tool, context, args).await?;
        match &self.run.runtime.parts.hooks {
            // Boxed, because few hosts have hooks.
            Some(hooks) => Box::pin(self.apply_hooks(&**hooks, tool, context, args, by)).await,
            None => Ok(AllowedCall { changed: None, by, notes: Vec::new() }),
        }
    }

    async fn apply_hooks(
        &self,
        hooks: &dyn Hooks,
        tool: &dyn Tool,
        context: &ToolContext,
        args: &Value,
        by: String,
    ) -> Result<AllowedCall, CallError> {
        let call = HookCall { tool: tool.spec().name.clone(), args: args.clone() };
        let decision = self.scheduler.working(hooks.before_call(&self.run.hook_run(), &call)).await?;
        match decision {
            HookDecision::Allow { args: changed, notes } => {
                let notes = self.run.show_warnings(notes);
                let by = match &changed {
                    Some(args) => self.apply_rules(tool, context, args).await?,
                    None => by,
                };
                Ok(AllowedCall { changed, by, notes })
            }
            HookDecision::Ask { why } => {
                let text = question_text(tool, context, &tool.subjects(context, args), args, Some(&why));
                let question = asked_about(tool, context, args, text).rule(HOOK.to_owned());
                Box::pin(self.request_approval(&*context.host, question, &[])).await?;
                Ok(AllowedCall { changed: None, by, notes: Vec::new() })
            }
            HookDecision::Block { why } => Err(RefusedCall::denied(format!("blocked by a hook: {why}")).into()),
        }
    }

    /// Applies the run's permission rules, and returns what allows the call.
    async fn apply_rules(&self, tool: &dyn Tool, context: &ToolContext, args: &Value) -> Result<String, CallError> {
        let subjects = tool.subjects(context, args);
        let ToolSpec { name, effect, .. } = tool.spec();
        let skills = self.run.runtime.parts.skills.as_deref();
        match self.run.read(|run| skill_use::grant(skills, run)).decide(name, *effect, &subjects) {
            Decision::Allow { by } => self.apply_taint(tool, context, &subjects, args, by).await,
            Decision::Deny { why } => Err(RefusedCall::denied(why).into()),
            Decision::Ask { by } => {
                // Boxed like all questions, because few calls need one.
                Box::pin(self.ask_about_call(tool, context, &subjects, args, (None, by.clone()))).await?;
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
        read_origins(&self.run.tree).await.map_err(Interrupt::from)?;
        // Runs of a tree exchange texts, so content that one of them read may steer all of them.
        let read = |tree: &RunTree| tree.origins().iter().map(|origin| origin.description()).collect::<Vec<_>>();
        let read = self.run.tree.read(read);
        let Some(secret) = (!read.is_empty()).then(|| self.secret_in_reach(context)).flatten() else { return Ok(by) };
        let why = format!("this run has read {} and can read {}", read.join(", "), secret.display());
        if mode == TaintMode::Deny {
            return Err(RefusedCall::denied(format!("{why}, so it may not use the network")).into());
        }
        let rule = format!("{name} (untrusted content and secrets)");
        let asked = Box::pin(self.ask_about_call(tool, context, subjects, args, (Some(&why), rule))).await;
        asked.map_err(|error| match error {
            CallError::Refused(refused) => RefusedCall { text: format!("{why}; {}", refused.text), ..refused }.into(),
            interrupted @ CallError::Interrupted(_) => interrupted,
        })?;
        Ok(format!("the user; {why}"))
    }

    /// Returns a file with secrets that the run can read. It is searched for once; the run's folders and rules do not change.
    fn secret_in_reach(&self, context: &ToolContext) -> Option<PathBuf> {
        let find = self.run.config().taint.secrets.as_ref()?;
        let found = || find(&context.authority.own, &context.workdir);
        self.run.live_run.secret_in_reach.get_or_init(found).clone()
    }

    /// Asks the user about a call that `rule` does not allow without approval, for a reason if there is another one.
    async fn ask_about_call(
        &self,
        tool: &dyn Tool,
        context: &ToolContext,
        subjects: &Subjects,
        args: &Value,
        (why, rule): (Option<&str>, String),
    ) -> Result<(), CallError> {
        let name = &tool.spec().name;
        let text = question_text(tool, context, subjects, args, why);
        let exact = Rule::exactly(name, subjects);
        // Rules cannot express every call; then only one for the whole tool would allow it.
        let allow = if exact.is_empty() { vec![Rule::tool(name)] } else { exact.clone() };
        let question = asked_about(tool, context, args, text).rule(rule).exact(exact);
        self.request_approval(&*context.host, question, &allow).await
    }

    /// Asks the user whether the run may delegate to `agent`, because of `rule`.
    pub(crate) async fn ask_about_delegation(
        &self,
        key: CallKey,
        agent: &str,
        task: &str,
        rule: String,
    ) -> Result<(), CallError> {
        let subjects = Subjects::Parts(vec![Subject::Name(agent.to_owned())]);
        let caller = self.run.read(|run| run.spawned.agent.name.clone());
        let caller = call_text::asking_agent(&caller, &self.run.live_run.place);
        let mut text = call_text::question(&caller, tool_names::DELEGATE, &subjects, &Value::Null);
        text.push_str(&call_text::indented(task));
        let exact = Rule::exactly(tool_names::DELEGATE, &subjects);
        let allow = exact.clone();
        let host = ToolHost::new(&self.run, None, None);
        let args_hash = tool_host::args_hash(&json!({"agent": agent, "task": task}));
        let question = Question::new(text, key).rule(rule).exact(exact).args_hash(args_hash);
        self.request_approval(&host, question, &allow).await
    }

    /// Asks the user. The rules `allow` would make the question unnecessary.
    async fn request_approval(&self, host: &dyn CallHost, question: Question, allow: &[Rule]) -> Result<(), CallError> {
        // A question that is open when the run must land is not answered in time.
        let answer = self.scheduler.waiting(self.scheduler.before_landing(host.ask(question))).await?;
        match answer.unwrap_or(Answer::Unavailable) {
            Answer::Yes => Ok(()),
            Answer::No => Err(RefusedCall::denied("the user declined").into()),
            Answer::Text(why) => Err(RefusedCall::denied(format!("the user declined: {why}")).into()),
            _ => Err(RefusedCall::no_approver(allow).into()),
        }
    }
}

/// Creates the question about a call. A hook may have changed its arguments since the model wrote them.
fn asked_about(tool: &dyn Tool, context: &ToolContext, args: &Value, text: String) -> Question {
    let call = RequestedCall::new(&*context.agent, &tool.spec().name, args.clone());
    Question::new(text, context.key).call(call).args_hash(tool_host::args_hash(args))
}

/// Returns the text of the question about a call, with what it would change and the reason for asking.
fn question_text(
    tool: &dyn Tool,
    context: &ToolContext,
    subjects: &Subjects,
    args: &Value,
    why: Option<&str>,
) -> String {
    let agent = call_text::asking_agent(&context.agent, &context.place);
    let mut text = call_text::question(&agent, &tool.spec().name, subjects, args);
    text.extend(tool.preview(context, args).map(|preview| call_text::indented(&preview)));
    text.extend(why.map(call_text::indented));
    text
}
