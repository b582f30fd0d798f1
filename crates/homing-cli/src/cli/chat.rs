//! Arguments of the interactive commands.

use std::path::PathBuf;

use clap::Args;

use super::run::{JournalArgs, LimitArgs, WithArgs};
use crate::completion;

const CHAT_HELP: &str = "Examples:
  homing                         talk to the agent `general`
  homing chat code-review
  homing chat team.yaml
  homing continue                take up the last conversation of this folder

Each message is a run that continues the one before; the limits apply to each. Everything is recorded: a conversation whose
process was killed is taken up by `homing continue`, with its unfinished turn. /help lists the commands and keys.";

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = CHAT_HELP)]
pub(crate) struct ChatArgs {
    /// Agent or team to talk to: its name, or the path of its file (default: general).
    #[arg(value_name = "AGENT|TEAM", add = completion::agent())]
    pub(crate) agent: Option<String>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Plugin folder; may be given several times.
    #[arg(long, value_name = "DIR", help_heading = "Task")]
    pub(crate) plugin: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) with: WithArgs,
}

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Without an ID, the newest run of this folder is continued, whether it was started by `homing chat` or `homing run`.
If it was interrupted, its turn is finished first; nothing that was paid for is paid again."
)]
pub(crate) struct ContinueArgs {
    /// Run ID (default: the last conversation of this folder).
    #[arg(add = completion::run())]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) with: WithArgs,
}

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Choose a run tree and look at its runs: t sends a message, c cancels, a answers a question, q leaves. The runs may belong to any
process; runs that were started while you watch appear, and those that end stay until you leave."
)]
pub(crate) struct WatchArgs {
    /// Watch the runs of all projects.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}
