//! Arguments of the commands about recorded runs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    restate::{On, ServerArgs},
    run::{JournalArgs, LimitArgs, OutputArgs, WithArgs},
    values,
};
use crate::completion;

/// The properties that `homing runs --sum-by` knows.
const SUM_BY: &[&str] = &["agent", "model", "day", "project", "tag:"];

/// Explains run IDs, at the end of the help of a command.
macro_rules! ids {
    () => {
        "A run ID is the short ID that `homing runs` prints, a UUID, the beginning of either (four characters or more), a key,
or a place such as 1.2 in the newest run tree of this project."
    };
}

/// Selects the projects that a command is about.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ScopeArgs {
    /// Include all projects, not only this one.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  homing runs --since 1d --status failed
  homing runs --all                         the runs of all projects
  homing runs --sum-by model --since 7d")]
pub(crate) struct RunsArgs {
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Only runs started within this time: 2h, 7d.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) since: Option<std::time::Duration>,
    /// Only runs with this status.
    #[arg(long, value_parser = values::status, add = completion::status())]
    pub(crate) status: Option<homing_core::envelope::Status>,
    /// Only runs of this agent.
    #[arg(long, add = completion::agent())]
    pub(crate) agent: Option<String>,
    /// Only runs with this label: NAME or NAME=VALUE.
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Sum up usage by this property.
    #[arg(long, value_name = "agent|model|day|project|tag:NAME", value_parser = values::sum_by, add = completion::words(SUM_BY))]
    pub(crate) sum_by: Option<homing_runtime::journal::sqlite::SumBy>,
    /// Maximum number to list.
    #[arg(long, short = 'n', default_value_t = 30)]
    pub(crate) limit: u64,
    /// Include child runs.
    #[arg(long)]
    pub(crate) children: bool,
    /// Include pruned runs, of which only results and totals are left.
    #[arg(long)]
    pub(crate) pruned: bool,
    /// List the runs of this journal, or the newest ones that a Restate server keeps, whichever machine submitted them.
    #[arg(long, value_enum, value_name = "PLACE", help_heading = "Workers")]
    pub(crate) on: Option<On>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = ids!())]
pub(crate) struct ShowArgs {
    /// Run ID.
    #[arg(default_value = "1", add = completion::run())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Show the run tree, one line per run.
    #[arg(long)]
    pub(crate) tree: bool,
    /// List what happened, with the positions for `homing fork --at`.
    #[arg(long)]
    pub(crate) positions: bool,
    /// Follow the run until it ends.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = concat!(
    "A run continues in the folder in which it was started. Limits are added to the run's limits:
`homing resume ID --max-cost +1.00` gives it one dollar more.

",
    ids!()
))]
pub(crate) struct ResumeArgs {
    /// Run ID; without one, all interrupted runs of this project are resumed.
    #[arg(add = completion::run())]
    pub(crate) id: Option<String>,
    /// Resume the interrupted runs of all projects, or look for the ID in all of them.
    #[arg(long)]
    pub(crate) all: bool,
    /// Even if its process is alive but stalled, or it has crashed repeatedly.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = concat!(
    "Examples:
  homing show ID --positions
  homing fork ID --at 42 --set audience=experts

What was answered up to the position is taken over and costs nothing again. For a team, --set changes a parameter or a value of a
graph's state; for an agent, a variable that child runs see. The limits are added to the run's limits.

",
    ids!()
))]
pub(crate) struct ForkArgs {
    /// Run ID.
    #[arg(add = completion::run())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Position of the last thing that is taken over.
    #[arg(long, value_name = "POSITION")]
    pub(crate) at: u64,
    /// Set a value from there on.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = values::pair)]
    pub(crate) set: Vec<(String, String)>,
    /// Replace the task.
    #[arg(long)]
    pub(crate) task: Option<String>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = ids!())]
pub(crate) struct CancelArgs {
    /// Run ID.
    #[arg(add = completion::run())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "A finished run is continued: a new run starts with its history, in the folder of the first.")]
pub(crate) struct TellArgs {
    /// Run ID.
    #[arg(add = completion::run())]
    pub(crate) id: String,
    /// Message.
    #[arg(required = true)]
    pub(crate) message: Vec<String>,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct QuestionsArgs {
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  homing answer 3fa9c2d1 yes
  homing answer 3fa9c2d1 no, use the staging server
  homing answer --resume 3fa9c2d1 always

`always` also adds a rule to your configuration that allows exactly this call in this project. A process that works on
the run picks the answer up by itself; otherwise the run continues with `homing resume`, or at once with --resume.")]
pub(crate) struct AnswerArgs {
    /// Question ID, its beginning, or the ID of the run that asks.
    #[arg(add = completion::question())]
    pub(crate) id: String,
    /// Answer: yes, no, `no, REASON` or always for a request for approval; an option, its number or a text for other questions.
    #[arg(required = true)]
    pub(crate) answer: Vec<String>,
    /// Resume the run, unless a process works on it.
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  homing export ID --format html -o report.html
  homing export ID > cassette.json          for `homing run --replay`")]
pub(crate) struct ExportArgs {
    /// Run ID.
    #[arg(add = completion::run())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t = ExportFormat::Json)]
    pub(crate) format: ExportFormat,
    /// Write to this file instead of stdout.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A cassette that can be replayed.
    Json,
    /// The transcript as Markdown.
    Md,
    /// A self-contained HTML page with a timeline.
    Html,
    /// The web interface's view of the tree as one file, with the scrubber.
    View,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Run ID.
    #[arg(add = completion::run())]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Of a deleted run the result and the totals are kept: `homing show ID` prints them, `homing runs --pruned` lists it."
)]
pub(crate) struct PruneArgs {
    /// Delete finished runs older than this.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "30d")]
    pub(crate) older_than: std::time::Duration,
    /// Delete the oldest finished runs while the journal is larger than this: 500M, 5G.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, default_value = "5G")]
    pub(crate) max_size: u64,
    /// Show which runs would be deleted, and delete nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}
