//! What can be said about a run: its agent, its model, its limits, what it may do, how it is shown.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use homing_core::{
    authority::Sandbox,
    limits::{Cap, Limits},
    rule::Rule,
};

use super::values;

const EXAMPLES: &str = "Examples:
  homing run \"where are model calls retried?\"
  homing run --agent code-review \"review the last commit\"
  git diff | homing run --agent code-review \"review this\"
  homing run --max-cost 0.50 --timeout 5m --json \"…\" > result.json
  homing run --agent code --until 'cargo test' \"make the tests pass\"
  homing run --plan \"…\"          what it would do and cost, without doing it

Exit codes: 0 done, 1 failed, 2 usage or keys, 3 a limit was reached, 4 refused by policy, 5 provider unavailable,
130/143/129 stopped by a signal.";

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("shown").args(["json", "events"]))]
pub(crate) struct RunArgs {
    /// Who is to do it.
    #[arg(long, short, value_name = "NAME", default_value = "general")]
    pub(crate) agent: String,
    /// What is to be done. `-` reads it from standard input; with words and piped input, the input is added to the words.
    #[arg(value_name = "TASK")]
    pub(crate) task: Vec<String>,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// JSON schema that the answer must fit.
    #[arg(long, value_name = "FILE", help_heading = "The answer")]
    pub(crate) schema: Option<PathBuf>,
    /// A key of the context, which `{{KEY}}` in prompts stands for.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = values::pair, help_heading = "The task")]
    pub(crate) set: Vec<(String, String)>,
    /// The same key twice is the same run: it is attached to, or its result is shown again.
    #[arg(long, help_heading = "The task")]
    pub(crate) key: Option<String>,
    /// Show the recorded result where the same agent, task, model and files were done before; it costs nothing.
    #[arg(long, conflicts_with_all = ["key", "record", "replay", "until"], help_heading = "The task")]
    pub(crate) cache: bool,
    /// A label for finding it again.
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = values::pair, help_heading = "The task")]
    pub(crate) tags: Vec<(String, String)>,
    /// Done only when this command succeeds; its output becomes the next turn until it does.
    #[arg(long, value_name = "CMD", help_heading = "The answer")]
    pub(crate) until: Option<String>,
    /// Say what would happen and what it could cost; ask nobody, run nothing.
    #[arg(long, help_heading = "The answer")]
    pub(crate) plan: bool,
    /// Write the whole tree to this file, to be played again with --replay.
    #[arg(long, value_name = "FILE", help_heading = "The answer")]
    pub(crate) record: Option<PathBuf>,
    /// Answer from this recording instead of from models and tools.
    #[arg(long, value_name = "FILE", conflicts_with = "record", help_heading = "The answer")]
    pub(crate) replay: Option<PathBuf>,
    /// Print the result as one JSON envelope.
    #[arg(long, help_heading = "The answer")]
    pub(crate) json: bool,
    /// Print what happens, one JSON object a line.
    #[arg(long, help_heading = "The answer")]
    pub(crate) events: bool,
}

/// What every command says that may run agents.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WithArgs {
    /// The model to speak with: provider/model, or a short name such as `sonnet`; `offline` needs no key.
    #[arg(long, short, env = "HOMING_MODEL", help_heading = "Models")]
    pub(crate) model: Option<String>,
    /// What files ask for, and what they get instead; `*` is everything else.
    #[arg(long, value_name = "ASKED=GIVEN,…", value_parser = values::model_map, help_heading = "Models")]
    pub(crate) model_map: Option<ModelMap>,
    /// Runs that work at once; the rest queue.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000), help_heading = "Limits")]
    pub(crate) parallel: Option<u64>,
    /// The account that pays.
    #[arg(long, help_heading = "Limits")]
    pub(crate) account: Option<String>,
    /// How commands are confined.
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Permissions")]
    pub(crate) sandbox: Option<SandboxArg>,
    /// What the network may be used for: off, on, or a list of hosts.
    #[arg(long, value_name = "off|on|HOST,…", help_heading = "Permissions")]
    pub(crate) network: Option<String>,
    /// Say yes beforehand to these calls, such as `bash(git push *)`.
    #[arg(long, value_name = "RULE", help_heading = "Permissions")]
    pub(crate) allow: Vec<Rule>,
    /// Refuse these calls, whatever else allows them.
    #[arg(long, value_name = "RULE", help_heading = "Permissions")]
    pub(crate) deny: Vec<Rule>,
    /// What the agent may hand on beyond its own tools.
    #[arg(long, value_name = "RULE", value_delimiter = ',', help_heading = "Permissions")]
    pub(crate) delegates: Vec<Rule>,
    /// Trust the project's files if they have this hash, which `homing trust` prints.
    #[arg(long, value_name = "HASH", help_heading = "Permissions")]
    pub(crate) trust: Vec<String>,
    /// Answer yes to every question.
    #[arg(long, short, help_heading = "Permissions")]
    pub(crate) yes: bool,
    /// Any fallback, unknown tool or repaired file is an error before anything is spent.
    #[arg(long, help_heading = "Permissions")]
    pub(crate) strict: bool,
    /// The folder to work in.
    #[arg(long, short = 'C', value_name = "DIR", help_heading = "The task")]
    pub(crate) cwd: Option<PathBuf>,
    /// Further agents as JSON: one object, or a map of name to object.
    #[arg(long, value_name = "JSON", help_heading = "The task")]
    pub(crate) agents: Option<String>,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

/// Where facts are kept.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct JournalArgs {
    /// Where runs are recorded: a file, or `off`.
    #[arg(long, value_name = "PATH|off", env = "HOMING_JOURNAL", help_heading = "The journal")]
    pub(crate) journal: Option<String>,
}

/// Names that mean others.
pub(crate) type ModelMap = std::sync::Arc<[(String, String)]>;

/// What a tree may spend; each flag also takes `none`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LimitArgs {
    /// US dollars for the whole tree, such as 0.50.
    #[arg(long, value_name = "USD", value_parser = values::money, help_heading = "Limits")]
    pub(crate) max_cost: Option<Cap>,
    /// Tokens for the whole tree.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_tokens: Option<Cap>,
    /// Replies of the agent itself.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_turns: Option<Cap>,
    /// Tool calls for the whole tree.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_tool_calls: Option<Cap>,
    /// Runs below the first.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_children: Option<Cap>,
    /// Levels of delegation; 0 is none.
    #[arg(long, value_name = "N", value_parser = values::count, help_heading = "Limits")]
    pub(crate) max_depth: Option<Cap>,
    /// Time for the whole tree: 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = values::time, help_heading = "Limits")]
    pub(crate) timeout: Option<Cap>,
}

impl LimitArgs {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            turns: self.max_turns.unwrap_or_default(),
            depth: self.max_depth.unwrap_or_default(),
            tokens: self.max_tokens.unwrap_or_default(),
            cost_micros: self.max_cost.unwrap_or_default(),
            tool_calls: self.max_tool_calls.unwrap_or_default(),
            children: self.max_children.unwrap_or_default(),
            wall_ms: self.timeout.unwrap_or_default(),
            work_ms: Cap::Default,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxArg {
    /// Commands can change nothing.
    ReadOnly,
    /// Commands can change the folder and private temporary files.
    WorkspaceWrite,
    /// Commands run as you do.
    Off,
}

impl From<SandboxArg> for Sandbox {
    fn from(it: SandboxArg) -> Self {
        match it {
            SandboxArg::ReadOnly => Self::ReadOnly,
            SandboxArg::WorkspaceWrite => Self::WorkspaceWrite,
            SandboxArg::Off => Self::Off,
        }
    }
}
