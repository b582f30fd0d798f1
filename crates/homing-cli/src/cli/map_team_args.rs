//! What can be said about many runs at once: maps and teams.

use std::path::PathBuf;

use clap::Args;

use crate::cli::{
    run::{LimitArgs, WithArgs},
    values,
};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  homing map --agent explore --each 'src/**/*.rs' \"what does {{ item }} do?\"
  git ls-files | homing map --agent code-review --each - \"review {{ item }}\" --max-cost 2 --per-item max-cost=0.10

Limits bound the whole map; --per-item bounds each run. Started again, a map goes on where it was: what is done is not
paid twice. Exit 1 if any item is not done, 5 if the provider could not be reached.")]
pub(crate) struct MapArgs {
    /// Who works on each item.
    #[arg(long, short, value_name = "NAME", default_value = "general")]
    pub(crate) agent: String,
    /// The items: files that match a pattern, or `-` for one a line from standard input.
    #[arg(long, value_name = "GLOB|-")]
    pub(crate) each: String,
    /// What is to be done with each; `{{ item }}` stands for the item, which is added where it is not named.
    #[arg(value_name = "TASK", required = true)]
    pub(crate) task: Vec<String>,
    /// What each item may spend: max-cost=0.10, max-tokens=…, max-turns=…, max-tool-calls=…, timeout=….
    #[arg(long, value_name = "LIMIT=VALUE", value_delimiter = ',', value_parser = values::pair, help_heading = "Limits")]
    pub(crate) per_item: Vec<(String, String)>,
    /// How often an item is tried again after a failure.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,
    /// JSON schema that each answer must fit.
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,
    /// Begin anew, whatever was done before.
    #[arg(long)]
    pub(crate) fresh: bool,
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
    /// The team's file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// What is to be done; `-` reads it from standard input.
    #[arg(value_name = "TASK")]
    pub(crate) task: Vec<String>,
    /// A parameter of the team.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = values::pair)]
    pub(crate) set: Vec<(String, String)>,
    /// Say who would be sent out and what it could cost; run nothing.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Print the team as a Mermaid diagram; run nothing.
    #[arg(long, conflicts_with = "plan")]
    pub(crate) mermaid: bool,
    /// The same key twice is the same run.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// A label for finding it again.
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = values::pair)]
    pub(crate) tags: Vec<(String, String)>,
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
