//! Hooks as Claude Code's files write them: commands of the user's that are told about a moment of a run and may object.
//! Whoever hands a configuration in vouches for it; hooks of untrusted files never get here.

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
    Private,
    process::{Captured, Collector, CommandEnd, CommandSpec, FinishedCommand, Input, Streams},
};

/// How long a hook may take unless it says otherwise, and at most.
const DEFAULT_TIME: Duration = Duration::from_secs(60);
const MAX_TIME: Duration = Duration::from_secs(600);

/// How often hooks may send a run back to work.
const MAX_GOING_ON: u32 = 8;

/// The exit code that objects.
const BLOCKS: i32 = 2;

/// Hooks that are commands.
#[derive(Debug)]
pub struct CommandHooks {
    commands: Arc<Commands>,
    /// From the user's own files and trusted project files.
    config: HookConfig,
    /// The hooks of agents that were believed when this host started; others do not run.
    agents: Vec<Value>,
}

/// Which commands belong to which moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookConfig {
    hooks: Vec<Hook>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hook {
    moment: String,
    matcher: String,
    command: String,
    time: Duration,
}

/// What one hook said.
#[derive(Debug, PartialEq)]
enum Said {
    /// Nothing against it.
    Fine {
        for_model: Option<String>,
        args: Option<Value>,
    },
    Ask(String),
    Block(String),
    /// It failed, which stops nobody.
    Failed(String),
}

impl HookConfig {
    /// Reads the `hooks` of a settings or agent file. What is not understood is left out and said.
    pub fn parse(value: &Value) -> (Self, Vec<String>) {
        let (mut config, mut warnings) = (Self::default(), Vec::new());
        for (moment, groups) in value.as_object().into_iter().flatten() {
            for group in groups.as_array().into_iter().flatten() {
                let matcher = group.get("matcher").and_then(Value::as_str).unwrap_or_default();
                for hook in group.get("hooks").and_then(Value::as_array).into_iter().flatten() {
                    match Hook::parse(moment, matcher, hook) {
                        Ok(hook) => config.hooks.push(hook),
                        Err(why) => warnings.push(why),
                    }
                }
            }
        }
        (config, warnings)
    }

    /// The same with the hooks of another file after it.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.hooks.extend(other.hooks);
        self
    }

    fn at<'a>(&'a self, moments: &'a [&str], tool: Option<&'a str>) -> impl Iterator<Item = &'a Hook> {
        self.hooks.iter().filter(move |hook| {
            moments.contains(&hook.moment.as_str()) && tool.is_none_or(|tool| matches(&hook.matcher, tool))
        })
    }
}

impl Hook {
    fn parse(moment: &str, matcher: &str, hook: &Value) -> Result<Self, String> {
        let kind = hook.get("type").and_then(Value::as_str).unwrap_or("command");
        let command = hook.get("command").and_then(Value::as_str).unwrap_or_default();
        if kind != "command" || command.is_empty() {
            return Err(format!("a hook of {moment} is left out: only commands are run, and this is `{kind}`"));
        }
        let seconds = hook.get("timeout").and_then(Value::as_f64).filter(|it| it.is_finite() && *it > 0.0);
        let time = seconds.map_or(DEFAULT_TIME, |it| Duration::from_secs_f64(it.min(MAX_TIME.as_secs_f64())));
        Ok(Self { moment: moment.to_owned(), matcher: matcher.to_owned(), command: command.to_owned(), time })
    }
}

/// `Edit|Write`, `mcp__github__.*`, `*`; names of every ecosystem stand for ours.
fn matches(matcher: &str, tool: &str) -> bool {
    let one = |pattern: &str| match pattern {
        "" | "*" | ".*" => true,
        _ => match pattern.strip_suffix(".*").or_else(|| pattern.strip_suffix('*')) {
            Some(prefix) => tool.starts_with(prefix),
            None => pattern == tool || tool_names::canonical(pattern) == Some(tool),
        },
    };
    matcher.trim_start_matches('^').trim_end_matches('$').split('|').any(|it| one(it.trim()))
}

impl CommandHooks {
    /// Hooks of these files, run with the machine's environment, without secrets.
    pub fn new(commands: Arc<Commands>, config: HookConfig) -> Self {
        Self { commands, config, agents: Vec::new() }
    }

    /// The same with the hooks that agents' own files bring: these and no others run for their agents. An agent in an old
    /// journal may have others, whose file nobody vouches for any more.
    #[must_use]
    pub fn with_agents(self, agents: Vec<Value>) -> Self {
        Self { agents, ..self }
    }

    /// The host's hooks and those of the agent's own file.
    fn config(&self, run: &HookRun) -> HookConfig {
        let believed = self.agents.contains(&run.own_hooks);
        let mut own = if believed { HookConfig::parse(&run.own_hooks).0 } else { HookConfig::default() };
        // In an agent's file `StopSignal` means that agent's end, also when it was delegated to.
        for hook in own.hooks.iter_mut().filter(|hook| run.delegated && hook.moment == "Stop") {
            hook.moment = "SubagentStop".to_owned();
        }
        self.config.clone().and(own)
    }

    async fn ask(&self, hook: &Hook, run: &HookRun, mut input: Value) -> Said {
        input["hook_event_name"] = hook.moment.clone().into();
        input["session_id"] = run.run.to_string().into();
        input["cwd"] = run.workdir.display().to_string().into();
        input["agent_id"] = run.run.to_string().into();
        input["agent_type"] = run.agent.clone().into();
        match self.run(hook, run, input.to_string()).await {
            Ok(finished) => said(&finished),
            Err(why) => Said::Failed(why),
        }
    }

    /// The user's own commands are run as the user would, only without secrets in their environment.
    async fn run(&self, hook: &Hook, run: &HookRun, input: String) -> Result<FinishedCommand, String> {
        let open = Grant {
            layers: Vec::new(),
            read: Vec::new(),
            write: Vec::new(),
            network: Network::On,
            sandbox: Sandbox::Off,
        };
        let room = Private { root: self.commands.private.join(format!("hooks-{}", run.run)) };
        let command = ShellCommand { command: &hook.command, workdir: &run.workdir, grant: &open, time: hook.time };
        let job = self.commands.job(&command, &room).await.map_err(|error| error.to_string())?;
        let mut env = job.env;
        env.insert("HOME".to_owned(), self.commands.surroundings.home.display().to_string());
        env.insert("CLAUDE_PROJECT_DIR".to_owned(), run.workdir.display().to_string());
        env.insert("HOMING_PROJECT_DIR".to_owned(), run.workdir.display().to_string());
        let job = CommandSpec { env, input: Input::Text(input), streams: Streams::Apart, ..job };
        let running = self.commands.launcher.start(job).await.map_err(|error| error.to_string())?;
        let finished = running.finish(Collector::new(None), hook.time, std::future::pending(), &mut |_| ()).await;
        room.remove();
        Ok(finished)
    }

    /// All hooks of a moment, one after the other, with notes of what they said; stops at the first that objects.
    async fn consult(&self, run: &HookRun, moments: &[&str], tool: Option<&str>, input: Value) -> (Said, HookNotes) {
        let (config, mut notes, mut args) = (self.config(run), HookNotes::default(), None);
        let mut asks = None;
        for hook in config.at(moments, tool) {
            match self.ask(hook, run, input.clone()).await {
                Said::Fine { for_model, args: changed } => {
                    notes.for_model.extend(for_model);
                    args = changed.or(args);
                }
                Said::Ask(why) => asks = asks.or(Some(why)),
                Said::Failed(why) => notes.warnings.push(format!("hook `{}`: {why}", hook.command)),
                block @ Said::Block(_) => return (block, notes),
            }
        }
        (asks.map_or(Said::Fine { for_model: None, args }, Said::Ask), notes)
    }
}

/// What a hook's ending means.
fn said(finished: &FinishedCommand) -> Said {
    let words = |captured: &Captured| captured.text.trim().to_owned();
    match &finished.ending {
        CommandEnd::Exited(0) => said_well(&words(&finished.output)),
        CommandEnd::Exited(BLOCKS) => Said::Block(words(&finished.complaints)),
        CommandEnd::Exited(code) => Said::Failed(format!("exit code {code}: {}", words(&finished.complaints))),
        CommandEnd::Signalled(signal) => Said::Failed(format!("ended by signal {signal}")),
        CommandEnd::TimedOut => Said::Failed("its time was up".to_owned()),
        CommandEnd::Cancelled => Said::Failed("cancelled".to_owned()),
        CommandEnd::Refused(why) => Said::Failed(why.clone()),
    }
}

/// The words of a hook that has ended well: a JSON object that decides, or text for the model.
fn said_well(text: &str) -> Said {
    let Ok(json @ Value::Object(_)) = serde_json::from_str::<Value>(text) else {
        return Said::Fine { for_model: (!text.is_empty()).then(|| text.to_owned()), args: None };
    };
    let words = |pointer: &str| json.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let reason = |pointer: &str| words(pointer).unwrap_or_else(|| "a hook objects".to_owned());
    if json.get("continue") == Some(&Value::Bool(false)) {
        return Said::Block(reason("/stopReason"));
    }
    let specific = "/hookSpecificOutput/permissionDecision";
    match (words("/decision").as_deref(), words(specific).as_deref()) {
        (Some("block" | "deny"), _) => Said::Block(reason("/reason")),
        (_, Some("deny")) => Said::Block(reason("/hookSpecificOutput/permissionDecisionReason")),
        (_, Some("ask")) => Said::Ask(reason("/hookSpecificOutput/permissionDecisionReason")),
        (Some(_) | None, _) => Said::Fine {
            for_model: words("/hookSpecificOutput/additionalContext"),
            args: json.pointer("/hookSpecificOutput/updatedInput").filter(|it| it.is_object()).cloned(),
        },
    }
}

/// What hooks written for Claude Code expect a call to look like.
fn told(call: &HookCall) -> Value {
    let mut input = call.args.clone();
    if let (Some(path), "read" | "write" | "edit") = (call.args.get("path").cloned(), call.tool.as_str()) {
        input["file_path"] = path;
    }
    json!({"tool_name": theirs(&call.tool), "tool_input": input})
}

fn theirs(tool: &str) -> &str {
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
            let moments: &[&str] = if run.delegated { &["SubagentStart"] } else { &["SessionStart"] };
            let (said, mut notes) = self.consult(run, moments, None, json!({"source": "startup"})).await;
            if let Said::Block(why) | Said::Ask(why) = said {
                notes.warnings.push(format!("a hook objects to the start, which it cannot: {why}"));
            }
            notes
        })
    }

    fn before_call<'a>(&'a self, run: &'a HookRun, call: &'a HookCall) -> BoxFuture<'a, HookDecision> {
        Box::pin(async move {
            let (said, notes) = self.consult(run, &["PreToolUse"], Some(&call.tool), told(call)).await;
            match said {
                Said::Block(why) => HookDecision::Block { why },
                Said::Ask(why) => HookDecision::Ask { why },
                Said::Fine { args, .. } => HookDecision::Allow { args, notes },
                Said::Failed(_) => HookDecision::Allow { args: None, notes },
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
            let mut input = told(call);
            input["tool_response"] = json!({"text": output.text, "is_error": output.is_error});
            let (said, mut notes) = self.consult(run, &["PostToolUse"], Some(&call.tool), input).await;
            if let Said::Block(why) | Said::Ask(why) = said {
                notes.for_model.push(why);
            }
            notes
        })
    }

    fn run_ending<'a>(&'a self, run: &'a HookRun, text: &'a str, goes_on: u32) -> BoxFuture<'a, HookEnding> {
        Box::pin(async move {
            let moments: &[&str] = if run.delegated { &["SubagentStop"] } else { &["Stop"] };
            let input = json!({"stop_hook_active": goes_on > 0, "last_assistant_message": text});
            let (said, mut notes) = self.consult(run, moments, None, input).await;
            match said {
                Said::Block(why) if goes_on < MAX_GOING_ON => HookEnding::GoOn { why },
                Said::Block(why) => {
                    notes.warnings.push(format!("a hook still objects after {goes_on} times: {why}"));
                    HookEnding::End(notes)
                }
                Said::Fine { .. } | Said::Ask(_) | Said::Failed(_) => HookEnding::End(notes),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_speak_of_tools_by_any_name() {
        assert!(matches("", "bash") && matches("*", "bash") && matches("Bash", "bash"));
        assert!(matches("Edit|Write", "write") && !matches("Edit|Write", "read"));
        assert!(matches("mcp__github__.*", "mcp__github__get") && !matches("mcp__github__.*", "mcp__gitlab__get"));
    }

    #[test]
    fn the_words_of_a_hook_decide() {
        assert_eq!(said_well(""), Said::Fine { for_model: None, args: None });
        assert_eq!(said_well("hello"), Said::Fine { for_model: Some("hello".into()), args: None });
        assert_eq!(said_well(r#"{"decision":"block","reason":"no"}"#), Said::Block("no".into()));
        assert_eq!(said_well(r#"{"continue":false,"stopReason":"stop"}"#), Said::Block("stop".into()));
        let deny = r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"not here"}}"#;
        assert_eq!(said_well(deny), Said::Block("not here".into()));
        let changed = r#"{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":{"command":"ls"}}}"#;
        assert_eq!(said_well(changed), Said::Fine { for_model: None, args: Some(json!({"command": "ls"})) });
    }

    #[test]
    fn what_is_no_command_is_left_out_and_said() {
        let value = json!({"PreToolUse": [{"matcher": "Bash", "hooks": [
            {"type": "prompt", "prompt": "is this fine?"}, {"type": "command", "command": "true", "timeout": 1e300}]}]});
        let (config, warnings) = HookConfig::parse(&value);
        assert_eq!((config.hooks.len(), warnings.len()), (1, 1));
        assert_eq!(config.hooks[0].time, MAX_TIME);
        assert_eq!(HookConfig::parse(&json!("nonsense")).0, HookConfig::default());
    }
}
