//! Arguments of `homing map` and `homing team`.

use std::path::PathBuf;

use clap::Args;

use crate::{
    cli::{
        restate::PlaceArgs,
        run::{LimitArgs, OutputArgs, WithArgs},
        values,
    },
    completion,
};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  homing map --agent explore --each 'src/**/*.rs' \"what does {{ item }} do?\"
  git ls-files | homing map --agent code-review --each - \"review {{ item }}\" --max-cost 2 --per-item max-cost=0.10

Limits apply to the whole map; --per-item limits each run. The same command again continues an earlier map: finished items
are not run again. Exits with 1 if any item failed, with 5 if the provider could not be reached.")]
pub(crate) struct MapArgs {
    /// Agent to run for each item.
    #[arg(long, short, value_name = "NAME", default_value = "general", add = completion::agent())]
    pub(crate) agent: String,
    /// Items: files that match a pattern, or `-` for one item per line of standard input.
    #[arg(long, value_name = "GLOB|-")]
    pub(crate) each: String,
    /// Task for each item; `{{ item }}` is replaced by the item, which is appended if the task has no placeholder.
    #[arg(value_name = "TASK", required = true)]
    pub(crate) task: Vec<String>,
    /// Limits for each item: max-cost=0.10, max-tokens=…, max-turns=…, max-tool-calls=…, timeout=….
    #[arg(long, value_name = "LIMIT=VALUE", value_delimiter = ',', value_parser = values::pair, help_heading = "Limits")]
    pub(crate) per_item: Vec<(String, String)>,
    /// Number of retries for a failed item.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,
    /// JSON schema that each answer must match.
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,
    /// Start over, ignoring earlier results.
    #[arg(long)]
    pub(crate) fresh: bool,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) with: WithArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  homing team crew.yaml \"write about retries\" --set audience=beginners
  homing team crew.yaml --plan \"write about retries\"")]
pub(crate) struct TeamArgs {
    /// Team file, or a workflow script.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Task for the team; `-` reads it from standard input.
    #[arg(value_name = "TASK")]
    pub(crate) task: Vec<String>,
    /// Set a parameter of the team.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = values::pair)]
    pub(crate) set: Vec<(String, String)>,
    /// Show which agents would run and what it could cost, without running anything.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Print the team as a Mermaid diagram, without running anything.
    #[arg(long, conflicts_with = "plan")]
    pub(crate) mermaid: bool,
    /// Idempotency key: a second run with the same key attaches to the first one or shows its result.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Label to find the run by.
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = values::pair)]
    pub(crate) tags: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) with: WithArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
