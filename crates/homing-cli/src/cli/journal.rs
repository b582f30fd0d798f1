//! What can be said about runs that are recorded.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    run::{JournalArgs, LimitArgs, WithArgs},
    values,
};

const IDS: &str = "An ID is a UUID, the beginning of one, a key, or a place such as 1.2 within the newest tree.";

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  homing runs --since 1d --status failed
  homing runs --sum-by model --since 7d")]
pub(crate) struct RunsArgs {
    /// Only those that began within this time: 2h, 7d.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) since: Option<std::time::Duration>,
    /// Only those that are going or ended like this.
    #[arg(long, value_parser = values::status)]
    pub(crate) status: Option<homing_core::envelope::Status>,
    /// Only those of this agent.
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Only those with this label: NAME or NAME=VALUE.
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// Add up what was used.
    #[arg(long, value_name = "agent|model|day|tag:NAME", value_parser = values::sum_by)]
    pub(crate) sum_by: Option<homing_runtime::journal::sqlite::SumBy>,
    /// At most so many.
    #[arg(long, short = 'n', default_value_t = 30)]
    pub(crate) limit: u64,
    /// Every run, not the roots alone.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = IDS)]
pub(crate) struct ShowArgs {
    /// Which run.
    #[arg(default_value = "1")]
    pub(crate) id: String,
    /// The tree below it, one line a run.
    #[arg(long)]
    pub(crate) tree: bool,
    /// Go on showing what happens until it is over.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print its envelope.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Limits are added to what the run had: `homing resume ID --max-cost +1.00` gives it one dollar more.

An ID is a UUID, the beginning of one, a key, or a place such as 1.2 within the newest tree."
)]
pub(crate) struct ResumeArgs {
    /// Which run.
    #[arg(required_unless_present = "all")]
    pub(crate) id: Option<String>,
    /// Everything that was interrupted.
    #[arg(long, conflicts_with = "id")]
    pub(crate) all: bool,
    /// Also where its process lives but is stalled, or where it crashed again and again.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    /// Print the result as one JSON envelope.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what happens, one JSON object a line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) events: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = IDS)]
pub(crate) struct CancelArgs {
    /// Which run.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "A run that is over is continued: a new run begins with its history.")]
pub(crate) struct TellArgs {
    /// Which run.
    pub(crate) id: String,
    /// What.
    #[arg(required = true)]
    pub(crate) text: Vec<String>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    /// Print the result as one JSON envelope.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what happens, one JSON object a line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) events: bool,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  homing export ID --format html -o report.html
  homing export ID > cassette.json          for `homing run --replay`")]
pub(crate) struct ExportArgs {
    /// Which tree.
    pub(crate) id: String,
    /// In which form.
    #[arg(long, value_enum, default_value_t = ExportFormat::Json)]
    pub(crate) format: ExportFormat,
    /// Into this file instead of stdout.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A cassette: everything, to be played again.
    Json,
    /// The transcript for people.
    Md,
    /// A page with the tree as a timeline; it loads nothing from anywhere.
    Html,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Which tree.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    /// Print the result as one JSON envelope.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PruneArgs {
    /// Forget ended trees older than this.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "30d")]
    pub(crate) older_than: std::time::Duration,
    /// Forget the oldest ended trees while the journal is larger than this: 500M, 5G.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, default_value = "5G")]
    pub(crate) max_size: u64,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}
