//! The `bash` tool: runs a shell command in the run's folder. The sandbox limits what the command can touch, permission
//! rules decide which commands may run; this module checks arguments and reports the result.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use homing_core::{
    BoxFuture,
    authority::{Grant, Network, Sandbox},
    rule::Subjects,
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use serde_json::{Value, json};

use crate::shell::{
    self,
    command_changes::CommandChanges,
    commands::{Commands, ShellCommand},
};
use homing_sandbox::process::{CommandEnd, FinishedCommand};

/// Maximum length of a command; Linux limits one argument of a program to 128 KiB.
const MAX_COMMAND: usize = 100 << 10;

const DEFAULT_TIME: Duration = Duration::from_secs(120);
const MAX_TIME: Duration = Duration::from_secs(600);

/// Minimum time between two progress updates.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The `bash` tool.
pub struct Bash {
    spec: ToolSpec,
    commands: Arc<Commands>,
    changes: Option<Arc<CommandChanges>>,
}

/// The checked arguments of a call.
#[derive(Debug, PartialEq, Eq)]
struct BashArgs {
    command: String,
    time: Duration,
}

impl Bash {
    /// Creates the tool.
    pub fn new(commands: Arc<Commands>) -> Self {
        Self { spec: spec(), commands, changes: None }
    }

    /// Records which files commands change.
    #[must_use]
    pub fn with_changes(self, changes: Option<Arc<CommandChanges>>) -> Self {
        Self { changes, ..self }
    }

    async fn run(&self, context: &ToolContext, args: BashArgs) -> ToolOutput {
        let private = self.commands.private_folder(context.key.run, &context.state);
        let grant = &context.authority.own;
        let trace = context.trace.as_ref();
        let command = ShellCommand { command: &args.command, workdir: &context.workdir, grant, time: args.time, trace };
        if !context.workdir.is_dir() {
            return ToolOutput::error(format!("the working folder {} no longer exists", context.workdir.display()));
        }
        let mut shown = Instant::now() - PROGRESS_INTERVAL;
        let mut show = |bytes: &[u8]| {
            if shown.elapsed() >= PROGRESS_INTERVAL {
                shown = Instant::now();
                context.progress(&String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(2_000)..]));
            }
        };
        let before = match &self.changes {
            Some(changes) => Some((changes, changes.before(context).await)),
            None => None,
        };
        let finished = match self.commands.run(command, &private, context.cancelled(), &mut show).await {
            Ok(finished) => finished,
            Err(error) => return ToolOutput::error(error.to_string()),
        };
        let mut output = output(&finished, args.time, self.network_note(grant).await);
        if let (Some((changes, before)), Some(data)) = (before, &mut output.data) {
            changes.add_to(data, before).await;
        }
        output
    }

    /// Returns the network limits to report after a failed command, since they may be the cause.
    async fn network_note(&self, grant: &Grant) -> Option<String> {
        match (&grant.network, grant.sandbox) {
            (Network::On | Network::Off, _) | (_, Sandbox::Off) => None,
            (Network::Hosts(hosts), _) if self.commands.sandboxes().await.can_restrict_hosts() => {
                Some(format!("commands can reach only these hosts, over http and https: {}", hosts.join(", ")))
            }
            (Network::Hosts(_), _) => Some(
                "commands have no network here, because this machine cannot limit them to a list of hosts; `fetch` can \
                 reach the hosts"
                    .to_owned(),
            ),
        }
    }
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn subjects(&self, _: &ToolContext, args: &Value) -> Subjects {
        match args.get("command").and_then(Value::as_str) {
            Some(command) => shell::subjects(command),
            None => Subjects::Unclear("the command is missing".to_owned()),
        }
    }

    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            match BashArgs::check(&args) {
                Ok(args) => self.run(context, args).await,
                Err(why) => ToolOutput::error(why),
            }
        })
    }
}

/// The specification of the tool.
pub fn spec() -> ToolSpec {
    let description = "Runs a command with bash in the working folder and returns its output (stdout and stderr \
        together) and exit code. Each call is a new shell: `cd` and variables do not carry over. Commands run in a \
        sandbox: only the workspace can be changed, and there may be no network. Background processes end with the \
        call. Long output is returned as its head and tail, with the full output in a file. There is no terminal and \
        no input; use non-interactive flags. Prefer the tools for reading, searching and editing files over cat, grep \
        and sed.";
    let schema = json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command line for bash."},
            "timeout": {"type": "number", "description": "Timeout in seconds (default: 120, maximum: 600)."},
            "description": {"type": "string", "description": "Optional short description of the command."}
        },
        "required": ["command"]
    });
    ToolSpec::new("bash".to_owned(), description, schema)
        .replay(Replay::Unsafe)
        .effect(homing_core::tool::Effect::Commands)
}

impl BashArgs {
    fn check(args: &Value) -> Result<Self, String> {
        let command = args.get("command").ok_or("`command` is missing: bash needs {\"command\": \"…\"}")?;
        let command = command.as_str().ok_or("`command` must be a string")?;
        if command.contains('\0') {
            return Err("`command` contains a NUL byte".to_owned());
        }
        if command.trim().is_empty() {
            return Err("`command` is empty".to_owned());
        }
        if command.len() > MAX_COMMAND {
            return Err(format!("`command` is longer than {MAX_COMMAND} bytes: write it to a file and run that"));
        }
        Ok(Self { command: command.to_owned(), time: time(args.get("timeout")) })
    }
}

/// Reads a timeout in seconds. Values of 1000 and more are milliseconds, as other harnesses use them; an invalid value
/// means the default.
fn time(requested: Option<&Value>) -> Duration {
    let number = match requested {
        Some(Value::String(text)) => text.trim().parse::<f64>().ok(),
        Some(value) => value.as_f64(),
        None => None,
    };
    match number {
        Some(seconds) if seconds > 0.0 && seconds < 1_000.0 => Duration::from_secs_f64(seconds).min(MAX_TIME),
        Some(millis) if millis >= 1_000.0 => Duration::from_secs_f64((millis / 1_000.0).min(MAX_TIME.as_secs_f64())),
        Some(_) | None => DEFAULT_TIME,
    }
}

/// Describes the result of a command for the model.
fn output(finished: &FinishedCommand, time: Duration, network: Option<String>) -> ToolOutput {
    let FinishedCommand { ending, output, reverted, not_restored, limit, stderr: _ } = finished;
    let mut text = output.text.trim_end_matches('\n').to_owned();
    let mut add = |line: String| {
        let gap = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!("{gap}[{line}]"));
    };
    match ending {
        CommandEnd::Exited(0) => (),
        CommandEnd::Exited(code) => add(format!("exit code {code}")),
        CommandEnd::Signalled(signal) => add(format!("killed by signal {signal}")),
        CommandEnd::TimedOut => add(format!("timed out after {} s", time.as_secs_f64())),
        CommandEnd::Cancelled => add("cancelled".to_owned()),
        CommandEnd::Refused(why) => add(format!("not run: {why}")),
    }
    if let Some(limit) = limit {
        add(format!("resource_limit: the command reached its limit of {limit}"));
    }
    if let Some(file) = &output.file {
        add(format!("{} bytes of output in total, in {}", output.total, file.display()));
    }
    let list = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    if !reverted.is_empty() {
        add(format!("restored, because commands must not change these paths: {}", list(reverted)));
    }
    if !not_restored.is_empty() {
        add(format!(
            "warning: changed although commands must not change these paths, and not restored: {}",
            list(not_restored)
        ));
    }
    if let (Some(note), CommandEnd::Exited(1..)) = (network, ending) {
        add(note);
    }
    if text.is_empty() {
        text.push_str("[no output]");
    }
    let is_error = *ending != CommandEnd::Exited(0) || !reverted.is_empty() || !not_restored.is_empty();
    ToolOutput::text(text).data(data(finished)).is_error(is_error)
}

fn data(finished: &FinishedCommand) -> Value {
    let (code, signal) = match finished.ending {
        CommandEnd::Exited(code) => (Some(code), None),
        CommandEnd::Signalled(signal) => (None, Some(signal)),
        CommandEnd::TimedOut | CommandEnd::Cancelled | CommandEnd::Refused(_) => (None, None),
    };
    json!({
        "exit_code": code,
        "signal": signal,
        "timed_out": finished.ending == CommandEnd::TimedOut,
        "bytes": finished.output.total,
        "file": finished.output.file,
        "limit": finished.limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t8_invalid_timeouts_fall_back_to_the_default() {
        let seconds = |value: Value| time(Some(&value)).as_secs_f64();
        assert_eq!(seconds(json!(5)), 5.0);
        assert_eq!(seconds(json!(0.5)), 0.5);
        assert_eq!(seconds(json!(30_000)), 30.0);
        assert_eq!(seconds(json!(-1)), 120.0);
        assert_eq!(seconds(json!(0)), 120.0);
        assert_eq!(seconds(json!(1e18)), 600.0);
        assert_eq!(seconds(json!("7")), 7.0);
        assert_eq!(seconds(json!("soon")), 120.0);
        assert_eq!(seconds(json!(null)), 120.0);
        assert_eq!(time(None), DEFAULT_TIME);
    }

    #[test]
    fn t1_t6_t7_bad_arguments_get_a_message() {
        let refused = |args: Value| BashArgs::check(&args).unwrap_err();
        assert!(refused(json!([])).contains("missing"));
        assert!(refused(json!({"command": 1})).contains("string"));
        assert!(refused(json!({"command": "a\0b"})).contains("NUL"));
        assert!(refused(json!({"command": " "})).contains("empty"));
        assert!(refused(json!({"command": "x".repeat(1 << 20)})).contains("file"));
        assert!(BashArgs::check(&json!({"command": "ls", "description": "lists", "more": 1})).is_ok());
    }
}
