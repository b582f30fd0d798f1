//! Hooks in the format of Claude Code's files: user commands that receive an event of a run and may object to it. The
//! caller is responsible for trust: hooks of untrusted files must not be passed in.

use std::{sync::Arc, time::Duration};

use homing_core::{
    BoxFuture,
    authority::{Grant, Network, Sandbox},
    hooks::{HookCall, HookDecision, HookEnding, HookNotes, HookRun, Hooks},
    tool::ToolOutput,
    tool_names,
};
use serde_json::{Value, json};

use crate::shell::commands::{Commands, ShellCommand};
use homing_sandbox::{
    PrivateFolder,
    process::{Captured, Collector, CommandEnd, CommandSpec, FinishedCommand, Input, Streams},
};

/// Default and maximum timeout of a hook.
const DEFAULT_TIME: Duration = Duration::from_secs(60);
const MAX_TIME: Duration = Duration::from_secs(600);

/// Maximum number of times that hooks may make a run continue.
const MAX_CONTINUES: u32 = 8;

/// The exit code with which a hook objects.
const EXIT_BLOCK: i32 = 2;

/// Runs hooks that are commands.
#[derive(Debug)]
pub struct CommandHooks {
    commands: Arc<Commands>,
    /// From the user's own files and trusted project files.
    config: HookConfig,
    /// The hooks of agents whose files were trusted when this host started; hooks of other agents do not run.
    agents: Vec<Value>,
}

/// The configured commands, each with its event and tool matcher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookConfig {
    hooks: Vec<Hook>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hook {
    event: String,
    matcher: String,
    command: String,
    time: Duration,
}

/// The decision of one hook.
#[derive(Debug, PartialEq)]
enum HookReply {
    /// No objection.
    Pass {
        for_model: Option<String>,
        args: Option<Value>,
    },
    Ask(String),
    Block(String),
    /// The hook failed, which does not stop the run.
    Failed(String),
}

impl HookConfig {
    /// Parses the `hooks` of a settings or agent file. Unsupported entries are left out and reported as warnings.
    pub fn parse(value: &Value) -> (Self, Vec<String>) {
        let (mut config, mut warnings) = (Self::default(), Vec::new());
        for (event, groups) in value.as_object().into_iter().flatten() {
            for group in groups.as_array().into_iter().flatten() {
                let matcher = group.get("matcher").and_then(Value::as_str).unwrap_or_default();
                for hook in group.get("hooks").and_then(Value::as_array).into_iter().flatten() {
                    match Hook::parse(event, matcher, hook) {
                        Ok(hook) => config.hooks.push(hook),
                        Err(why) => warnings.push(why),
                    }
                }
            }
        }
        (config, warnings)
    }

    /// Appends the hooks of another file.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.hooks.extend(other.hooks);
        self
    }

    fn matching<'a>(&'a self, events: &'a [&str], tool: Option<&'a str>) -> impl Iterator<Item = &'a Hook> {
        self.hooks.iter().filter(move |hook| {
            events.contains(&hook.event.as_str()) && tool.is_none_or(|tool| matches(&hook.matcher, tool))
        })
    }
}

impl Hook {
    fn parse(event: &str, matcher: &str, hook: &Value) -> Result<Self, String> {
        let kind = hook.get("type").and_then(Value::as_str).unwrap_or("command");
        let command = hook.get("command").and_then(Value::as_str).unwrap_or_default();
        if kind != "command" || command.is_empty() {
            return Err(format!("a {event} hook of type `{kind}` is ignored: only commands are supported"));
        }
        let seconds =
            hook.get("timeout").and_then(Value::as_f64).filter(|seconds| seconds.is_finite() && *seconds > 0.0);
        let time = seconds.map_or(DEFAULT_TIME, |seconds| Duration::from_secs_f64(seconds.min(MAX_TIME.as_secs_f64())));
        Ok(Self { event: event.to_owned(), matcher: matcher.to_owned(), command: command.to_owned(), time })
    }
}

/// Matches a tool against `Edit|Write`, `mcp__github__.*` or `*`; tool names of other ecosystems are accepted.
fn matches(matcher: &str, tool: &str) -> bool {
    let matches_one = |pattern: &str| match pattern {
        "" | "*" | ".*" => true,
        _ => match pattern.strip_suffix(".*").or_else(|| pattern.strip_suffix('*')) {
            Some(prefix) => tool.starts_with(prefix),
            None => pattern == tool || tool_names::canonical(pattern) == Some(tool),
        },
    };
    matcher.trim_start_matches('^').trim_end_matches('$').split('|').any(|pattern| matches_one(pattern.trim()))
}

impl CommandHooks {
    /// Creates the hooks of a configuration. They run with the host's environment, without secrets.
    pub fn new(commands: Arc<Commands>, config: HookConfig) -> Self {
        Self { commands, config, agents: Vec::new() }
    }

    /// Adds the hooks of trusted agent files. An agent restored from an old journal may carry other hooks, whose file is
    /// no longer trusted; those do not run.
    #[must_use]
    pub fn with_agents(self, agents: Vec<Value>) -> Self {
        Self { agents, ..self }
    }

    /// Returns whether there is nothing to run, for whatever agent.
    pub fn is_empty(&self) -> bool {
        self.config.hooks.is_empty() && self.agents.is_empty()
    }

    /// Returns the host's hooks and those of the agent's own file.
    fn config(&self, run: &HookRun) -> HookConfig {
        let is_trusted = self.agents.contains(&run.own_hooks);
        let mut own = if is_trusted { HookConfig::parse(&run.own_hooks).0 } else { HookConfig::default() };
        // In an agent's file `Stop` means the end of that agent, even if it was delegated to.
        for hook in own.hooks.iter_mut().filter(|hook| run.delegated && hook.event == "Stop") {
            hook.event = "SubagentStop".to_owned();
        }
        self.config.clone().and(own)
    }

    async fn ask(&self, hook: &Hook, run: &HookRun, mut input: Value) -> HookReply {
        input["hook_event_name"] = hook.event.clone().into();
        input["session_id"] = run.run.to_string().into();
        input["cwd"] = run.workdir.display().to_string().into();
        input["agent_id"] = run.run.to_string().into();
        input["agent_type"] = run.agent.clone().into();
        match self.run(hook, run, input.to_string()).await {
            Ok(finished) => decision(&finished),
            Err(why) => HookReply::Failed(why),
        }
    }

    /// Runs a hook unconfined, as the user would, but without secrets in its environment.
    async fn run(&self, hook: &Hook, run: &HookRun, input: String) -> Result<FinishedCommand, String> {
        let open = Grant::new(Vec::new()).network(Network::On).sandbox(Sandbox::Off);
        let private = PrivateFolder { root: self.commands.private.join(format!("hooks-{}", run.run)) };
        let (workdir, time) = (&*run.workdir, hook.time);
        let command = ShellCommand { command: &hook.command, workdir, grant: &open, time, trace: None };
        let job = self.commands.job(&command, &private).await.map_err(|error| error.to_string())?;
        let mut env = job.env;
        env.insert("HOME".to_owned(), self.commands.host_env.home.display().to_string());
        env.insert("CLAUDE_PROJECT_DIR".to_owned(), run.workdir.display().to_string());
        env.insert("HOMING_PROJECT_DIR".to_owned(), run.workdir.display().to_string());
        let job = CommandSpec { env, input: Input::Text(input), streams: Streams::Apart, ..job };
        let running = self.commands.launcher.start(job).await.map_err(|error| error.to_string())?;
        let finished = running.finish(Collector::new(None), hook.time, std::future::pending(), &mut |_| ()).await;
        private.remove();
        Ok(finished)
    }

    /// Runs all hooks of an event in order and collects their notes; stops at the first that objects.
    async fn consult(
        &self,
        run: &HookRun,
        events: &[&str],
        tool: Option<&str>,
        input: Value,
    ) -> (HookReply, HookNotes) {
        let (config, mut notes, mut args) = (self.config(run), HookNotes::default(), None);
        let mut asks = None;
        for hook in config.matching(events, tool) {
            match self.ask(hook, run, input.clone()).await {
                HookReply::Pass { for_model, args: changed } => {
                    notes.for_model.extend(for_model);
                    args = changed.or(args);
                }
                HookReply::Ask(why) => asks = asks.or(Some(why)),
                HookReply::Failed(why) => notes.warnings.push(format!("hook `{}`: {why}", hook.command)),
                block @ HookReply::Block(_) => return (block, notes),
            }
        }
        (asks.map_or(HookReply::Pass { for_model: None, args }, HookReply::Ask), notes)
    }
}

/// Turns the end of a hook's process into its decision.
fn decision(finished: &FinishedCommand) -> HookReply {
    let text = |captured: &Captured| captured.text.trim().to_owned();
    match &finished.ending {
        CommandEnd::Exited(0) => parse_output(&text(&finished.output)),
        CommandEnd::Exited(EXIT_BLOCK) => HookReply::Block(text(&finished.stderr)),
        CommandEnd::Exited(code) => HookReply::Failed(format!("exit code {code}: {}", text(&finished.stderr))),
        CommandEnd::Signalled(signal) => HookReply::Failed(format!("ended by signal {signal}")),
        CommandEnd::TimedOut => HookReply::Failed("timed out".to_owned()),
        CommandEnd::Cancelled => HookReply::Failed("cancelled".to_owned()),
        CommandEnd::Refused(why) => HookReply::Failed(why.clone()),
    }
}

/// Parses the output of a hook that exited with 0: a JSON object with a decision, or text for the model.
fn parse_output(text: &str) -> HookReply {
    let Ok(json @ Value::Object(_)) = serde_json::from_str::<Value>(text) else {
        return HookReply::Pass { for_model: (!text.is_empty()).then(|| text.to_owned()), args: None };
    };
    let field = |pointer: &str| json.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let reason = |pointer: &str| field(pointer).unwrap_or_else(|| "a hook objected".to_owned());
    if json.get("continue") == Some(&Value::Bool(false)) {
        return HookReply::Block(reason("/stopReason"));
    }
    let specific = "/hookSpecificOutput/permissionDecision";
    match (field("/decision").as_deref(), field(specific).as_deref()) {
        (Some("block" | "deny"), _) => HookReply::Block(reason("/reason")),
        (_, Some("deny")) => HookReply::Block(reason("/hookSpecificOutput/permissionDecisionReason")),
        (_, Some("ask")) => HookReply::Ask(reason("/hookSpecificOutput/permissionDecisionReason")),
        (Some(_) | None, _) => HookReply::Pass {
            for_model: field("/hookSpecificOutput/additionalContext"),
            args: json.pointer("/hookSpecificOutput/updatedInput").filter(|it| it.is_object()).cloned(),
        },
    }
}

/// Describes a call in the form that hooks written for Claude Code expect.
fn call_input(call: &HookCall) -> Value {
    let mut input = call.args.clone();
    if let (Some(path), "read" | "write" | "edit") = (call.args.get("path").cloned(), call.tool.as_str()) {
        input["file_path"] = path;
    }
    json!({"tool_name": claude_name(&call.tool), "tool_input": input})
}

fn claude_name(tool: &str) -> &str {
    match tool {
        "bash" => "Bash",
        "read" => "Read",
        "write" => "Write",
        "edit" => "Edit",
        "glob" => "Glob",
        "grep" => "Grep",
        "ls" => "LS",
        "fetch" => "WebFetch",
        "websearch" => "WebSearch",
        "delegate" => "Task",
        "todo" => "TodoWrite",
        "skill" => "Skill",
        other => other,
    }
}

impl Hooks for CommandHooks {
    fn run_started<'a>(&'a self, run: &'a HookRun) -> BoxFuture<'a, HookNotes> {
        Box::pin(async move {
            let events: &[&str] = if run.delegated { &["SubagentStart"] } else { &["SessionStart"] };
            let (decision, mut notes) = self.consult(run, events, None, json!({"source": "startup"})).await;
            if let HookReply::Block(why) | HookReply::Ask(why) = decision {
                notes.warnings.push(format!("a hook objected to the start of the run, which has no effect: {why}"));
            }
            notes
        })
    }

    fn before_call<'a>(&'a self, run: &'a HookRun, call: &'a HookCall) -> BoxFuture<'a, HookDecision> {
        Box::pin(async move {
            let (decision, notes) = self.consult(run, &["PreToolUse"], Some(&call.tool), call_input(call)).await;
            match decision {
                HookReply::Block(why) => HookDecision::Block { why },
                HookReply::Ask(why) => HookDecision::Ask { why },
                HookReply::Pass { args, .. } => HookDecision::Allow { args, notes },
                HookReply::Failed(_) => HookDecision::Allow { args: None, notes },
            }
        })
    }

    fn after_call<'a>(
        &'a self,
        run: &'a HookRun,
        call: &'a HookCall,
        output: &'a ToolOutput,
    ) -> BoxFuture<'a, HookNotes> {
        Box::pin(async move {
            let mut input = call_input(call);
            input["tool_response"] = json!({"text": output.text, "is_error": output.is_error});
            let (decision, mut notes) = self.consult(run, &["PostToolUse"], Some(&call.tool), input).await;
            if let HookReply::Block(why) | HookReply::Ask(why) = decision {
                notes.for_model.push(why);
            }
            notes
        })
    }

    fn run_ending<'a>(&'a self, run: &'a HookRun, text: &'a str, goes_on: u32) -> BoxFuture<'a, HookEnding> {
        Box::pin(async move {
            let events: &[&str] = if run.delegated { &["SubagentStop"] } else { &["Stop"] };
            let input = json!({"stop_hook_active": goes_on > 0, "last_assistant_message": text});
            let (decision, mut notes) = self.consult(run, events, None, input).await;
            match decision {
                HookReply::Block(why) if goes_on < MAX_CONTINUES => HookEnding::GoOn { why },
                HookReply::Block(why) => {
                    notes
                        .warnings
                        .push(format!("a hook still objects after making the run continue {goes_on} times: {why}"));
                    HookEnding::End(notes)
                }
                HookReply::Pass { .. } | HookReply::Ask(_) | HookReply::Failed(_) => HookEnding::End(notes),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_accept_tool_names_of_any_ecosystem() {
        assert!(matches("", "bash") && matches("*", "bash") && matches("Bash", "bash"));
        assert!(matches("Edit|Write", "write") && !matches("Edit|Write", "read"));
        assert!(matches("mcp__github__.*", "mcp__github__get") && !matches("mcp__github__.*", "mcp__gitlab__get"));
    }

    #[test]
    fn hook_output_decides() {
        assert_eq!(parse_output(""), HookReply::Pass { for_model: None, args: None });
        assert_eq!(parse_output("hello"), HookReply::Pass { for_model: Some("hello".into()), args: None });
        assert_eq!(parse_output(r#"{"decision":"block","reason":"no"}"#), HookReply::Block("no".into()));
        assert_eq!(parse_output(r#"{"continue":false,"stopReason":"stop"}"#), HookReply::Block("stop".into()));
        let deny = r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"not here"}}"#;
        assert_eq!(parse_output(deny), HookReply::Block("not here".into()));
        let changed = r#"{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":{"command":"ls"}}}"#;
        assert_eq!(parse_output(changed), HookReply::Pass { for_model: None, args: Some(json!({"command": "ls"})) });
    }

    #[test]
    fn hooks_that_are_not_commands_are_reported() {
        let value = json!({"PreToolUse": [{"matcher": "Bash", "hooks": [
            {"type": "prompt", "prompt": "is this fine?"}, {"type": "command", "command": "true", "timeout": 1e300}]}]});
        let (config, warnings) = HookConfig::parse(&value);
        assert_eq!((config.hooks.len(), warnings.len()), (1, 1));
        assert_eq!(config.hooks[0].time, MAX_TIME);
        assert_eq!(HookConfig::parse(&json!("nonsense")).0, HookConfig::default());
    }
}
