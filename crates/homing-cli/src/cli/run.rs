//! Arguments of `homing run`, and those that several commands share: models, limits, permissions, journal.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use homing_core::{
    authority::Sandbox,
    limits::{Cap, Limit, Limits},
    rule::Rule,
};

use super::{restate::PlaceArgs, values};
use crate::{completion, print_result::Form, watch::Show};

const EXAMPLES: &str = "Examples:
  homing run \"where are model calls retried?\"
  homing run --agent code-review \"review the last commit\"
  git diff | homing run --agent code-review \"review this\"
  homing run --attach screen.png \"why does the page look like this? compare @src/page.css\"
  homing run --max-cost 0.50 --timeout 5m --json \"…\" > result.json
  homing run --agent code --until 'cargo test' \"make the tests pass\"
  homing run --detach \"…\"        start it in the background; `homing show ID --follow` follows it
  homing run --plan \"…\"          show what it would do and cost, without running it

Exit codes: 0 done, 1 failed, 2 usage or keys, 3 a limit was reached, 4 refused by policy, 5 provider unavailable,
6 waiting for an answer, 130/143/129 stopped by a signal.";

/// The agent of a run without `--agent`.
pub(crate) const DEFAULT_AGENT: &str = "general";

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// Agent to run: its name, or the path of its file.
    #[arg(long, short, value_name = "NAME|FILE", default_value = DEFAULT_AGENT, add = completion::agent())]
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) input: TaskArgs,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Plugin folder; may be given several times.
    #[arg(long, value_name = "DIR", help_heading = "Task")]
    pub(crate) plugin: Vec<PathBuf>,
    /// JSON schema that the answer must match.
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub(crate) schema: Option<PathBuf>,
    /// Set a variable for `{{KEY}}` in prompts.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = values::pair, help_heading = "Task")]
    pub(crate) set: Vec<(String, String)>,
    /// Idempotency key: a second run with the same key attaches to the first one or shows its result.
    #[arg(long, help_heading = "Task")]
    pub(crate) key: Option<String>,
    /// Reuse the recorded result of an earlier run with the same agent, task, model and files.
    #[arg(long, conflicts_with_all = ["key", "record", "replay", "until"], help_heading = "Task")]
    pub(crate) cache: bool,
    /// Label to find the run by.
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = values::pair, help_heading = "Task")]
    pub(crate) tags: Vec<(String, String)>,
    /// Continue until this command succeeds; its output becomes the next turn.
    #[arg(long, value_name = "CMD", help_heading = "Result")]
    pub(crate) until: Option<String>,
    /// Show what would happen and what it could cost, without running anything.
    #[arg(long, help_heading = "Result")]
    pub(crate) plan: bool,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
    #[command(flatten)]
    pub(crate) background: BackgroundArgs,
    #[command(flatten, next_help_heading = "Result")]
    pub(crate) output: OutputArgs,
}

/// A recording to write or to replay.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RecordingArgs {
    /// Record the run tree in this file, for --replay.
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub(crate) record: Option<PathBuf>,
    /// Take replies and tool results from this recording instead of models and tools; needs no API key.
    #[arg(long, value_name = "FILE", conflicts_with = "record", help_heading = "Result")]
    pub(crate) replay: Option<PathBuf>,
}

/// A run that goes on without its terminal.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct BackgroundArgs {
    /// Start the run in the background, print its ID and exit. Questions wait for `homing answer`.
    #[arg(long, conflicts_with_all = ["plan", "record", "replay", "cache", "events"], help_heading = "Result")]
    pub(crate) detach: bool,
    /// Be the process in the background.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

/// The task of a run, the files that belong to it, and the place where it works.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TaskArgs {
    /// Task for the agent. `-` reads it from standard input; piped input is appended to a task on the command line. `/NAME
    /// ARGUMENTS` runs a skill.
    #[arg(value_name = "TASK")]
    pub(crate) task: Vec<String>,
    /// File to attach: an image, a PDF document or a text; may be given several times. A word `@PATH` of the task attaches a
    /// file of the working folder.
    #[arg(long, value_name = "FILE", help_heading = "Task")]
    pub(crate) attach: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// The form of the output of a command that runs agents.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print events as JSON lines.
    #[arg(long, conflicts_with = "json")]
    pub(crate) events: bool,
    /// Print only the answer and errors: no progress, warnings or costs.
    #[arg(long, short, conflicts_with_all = ["events", "verbose"])]
    pub(crate) quiet: bool,
    /// Print every model call and the result of every tool call, line by line.
    #[arg(long, short, conflicts_with = "events")]
    pub(crate) verbose: bool,
}

impl OutputArgs {
    /// Returns the form in which the result is printed.
    pub(crate) fn form(self) -> Form {
        Form::of(self.json, self.events)
    }

    /// Returns what is shown while runs work.
    pub(crate) fn show(self) -> Show {
        match (self.quiet, self.verbose) {
            (true, _) => Show::Quiet,
            (false, true) => Show::Verbose,
            (false, false) => Show::choose(self.form()),
        }
    }
}

/// Arguments of every command that can run agents.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WithArgs {
    /// Model to use: provider/model, or an alias such as `sonnet`; `offline` needs no API key.
    #[arg(long, short, env = "HOMING_MODEL", help_heading = "Models", add = completion::model())]
    pub(crate) model: Option<String>,
    /// Replace models named in agent files; `*` matches all others.
    #[arg(long, value_name = "ASKED=GIVEN,…", value_parser = values::model_map, help_heading = "Models")]
    pub(crate) model_map: Option<ModelMap>,
    /// Maximum number of runs at the same time; the others queue.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000), help_heading = "Limits")]
    pub(crate) parallel: Option<u64>,
    /// Budget account to charge.
    #[arg(long, help_heading = "Limits")]
    pub(crate) account: Option<String>,
    /// Sandbox for commands.
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Permissions")]
    pub(crate) sandbox: Option<SandboxArg>,
    /// Network access: off, on, or a list of hosts.
    #[arg(long, value_name = "off|on|HOST,…", help_heading = "Permissions", add = completion::words(&["off", "on"]))]
    pub(crate) network: Option<String>,
    /// Pre-approve these calls, such as `bash(git push *)`.
    #[arg(long, value_name = "RULE", value_parser = values::rule, help_heading = "Permissions")]
    pub(crate) allow: Vec<Rule>,
    /// Deny these calls, even if something else allows them.
    #[arg(long, value_name = "RULE", value_parser = values::rule, help_heading = "Permissions")]
    pub(crate) deny: Vec<Rule>,
    /// Tools it may give to sub-agents beyond its own.
    #[arg(long, value_name = "RULE", value_parser = values::rule, value_delimiter = ',', help_heading = "Permissions")]
    pub(crate) delegates: Vec<Rule>,
    /// Trust the project's files if they have this hash (printed by `homing trust`).
    #[arg(long, value_name = "HASH", help_heading = "Permissions")]
    pub(crate) trust: Vec<String>,
    #[command(flatten)]
    pub(crate) approval: ApprovalArgs,
    /// Fail before spending anything if a model falls back, a tool is unknown or a file needs repair.
    #[arg(long, help_heading = "Permissions")]
    pub(crate) strict: bool,
    /// Working folder.
    #[arg(long, short = 'C', value_name = "DIR", help_heading = "Task")]
    pub(crate) cwd: Option<PathBuf>,
    /// Additional agents as JSON: one object, or a map from name to object.
    #[arg(long, value_name = "JSON", help_heading = "Task")]
    pub(crate) agents: Option<String>,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

/// Approval of calls, and questions.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ApprovalArgs {
    /// Approve every call that needs approval.
    #[arg(long, short, help_heading = "Permissions")]
    pub(crate) yes: bool,
    /// Treatment of questions: ask at the terminal, park until `homing answer`, or deny (default: ask at a terminal, else deny).
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Permissions")]
    pub(crate) on_question: Option<OnQuestionArg>,
}

/// The journal to use.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct JournalArgs {
    /// Journal file, or `off`.
    #[arg(long, value_name = "PATH|off", env = "HOMING_JOURNAL", help_heading = "Journal")]
    pub(crate) journal: Option<String>,
}

/// Pairs of a model name in agent files and its replacement.
pub(crate) type ModelMap = std::sync::Arc<[(String, String)]>;

/// Limits of a run tree. Each flag also takes `none`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LimitArgs {
    /// Maximum cost of the whole run tree in US dollars, such as 0.50.
    #[arg(long, value_name = "USD", value_parser = values::money, help_heading = "Limits")]
    pub(crate) max_cost: Option<Cap>,
    /// Maximum number of tokens for the whole run tree.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_tokens: Option<Cap>,
    /// Maximum number of replies of the agent itself.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_turns: Option<Cap>,
    /// Maximum number of tool calls for the whole run tree.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_tool_calls: Option<Cap>,
    /// Maximum number of child runs.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_children: Option<Cap>,
    /// Maximum depth of delegation; 0 disables it.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_depth: Option<Cap>,
    /// Maximum number of output tokens of one reply.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_output: Option<Cap>,
    /// Maximum time for the whole run tree: 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = values::time, help_heading = "Limits")]
    pub(crate) timeout: Option<Cap>,
}

impl LimitArgs {
    pub(crate) fn limits(&self) -> Limits {
        Limits::default()
            .with(Limit::Turns, self.max_turns.unwrap_or_default())
            .with(Limit::Depth, self.max_depth.unwrap_or_default())
            .with(Limit::Tokens, self.max_tokens.unwrap_or_default())
            .with(Limit::Cost, self.max_cost.unwrap_or_default())
            .with(Limit::ToolCalls, self.max_tool_calls.unwrap_or_default())
            .with(Limit::Children, self.max_children.unwrap_or_default())
            .with(Limit::Wall, self.timeout.unwrap_or_default())
            .with(Limit::Work, Cap::Default)
            .with(Limit::Output, self.max_output.unwrap_or_default())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnQuestionArg {
    /// Ask at the terminal, or the MCP client.
    Ask,
    /// Exit when nothing else is left to do; `homing answer` answers, even days later.
    Park,
    /// Deny the call.
    Deny,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxArg {
    /// Commands cannot change anything.
    ReadOnly,
    /// Commands can change the working folder and private temporary files.
    WorkspaceWrite,
    /// Commands run unconfined.
    Off,
}

impl From<SandboxArg> for Sandbox {
    fn from(mode: SandboxArg) -> Self {
        match mode {
            SandboxArg::ReadOnly => Self::ReadOnly,
            SandboxArg::WorkspaceWrite => Self::WorkspaceWrite,
            SandboxArg::Off => Self::Off,
        }
    }
}
