//! What can be typed: one variant per command. It decides nothing.

pub(crate) mod journal;
pub(crate) mod map_team_args;
pub(crate) mod run;
pub(crate) mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run agents that are files.
#[derive(Debug, Parser)]
#[command(name = "homing", version, arg_required_else_help = true, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an agent on a task: the main job.
    Run(Box<run::RunArgs>),
    /// Run an agent once for each file or line, in parallel; results as JSON lines in the order of the input.
    Map(Box<map_team_args::MapArgs>),
    /// Run a team that is written in a file: a crew, a chat, a graph.
    Team(Box<map_team_args::TeamArgs>),
    /// List the agents that are known, or explain one: where it came from, what it hides, what it may do.
    Agents(AgentsArgs),
    /// Diagnose agent and skill files: what was repaired, what is ignored, what is wrong.
    Check(CheckArgs),
    /// List recorded runs, or add up what they used.
    Runs(journal::RunsArgs),
    /// Show a recorded run: its transcript, its tree, or what it is doing now.
    Show(journal::ShowArgs),
    /// Go on with a run whose process is gone, or give an exhausted one more.
    Resume(Box<journal::ResumeArgs>),
    /// Stop a run, also of another process.
    Cancel(journal::CancelArgs),
    /// Tell a run something, also of another process; a run that is over is continued.
    Tell(Box<journal::TellArgs>),
    /// Run a recorded tree again from its recording, and say what differs.
    Replay(Box<journal::ReplayArgs>),
    /// Write a tree to a file: a cassette, Markdown, or a page with a timeline.
    Export(journal::ExportArgs),
    /// Forget old runs.
    Prune(journal::PruneArgs),
    /// Trust this project's files: their hooks, servers and wider permissions.
    Trust(TrustArgs),
    /// Try everything out: sandbox, providers, journal, git, terminal. Spends nothing.
    Doctor(DoctorArgs),
    /// Show the configuration and where each value comes from.
    Config(ConfigArgs),
    /// Serve the agents to MCP clients, over stdio or over HTTP.
    Mcp(Box<crate::commands::mcp::McpArgs>),
    /// Write example agents into this project.
    Init,
    /// Print a script that completes commands in your shell.
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    /// Explain this agent.
    pub(crate) name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Refuse files that need repair.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Further agents as JSON: one object, or a map of name to object.
    #[arg(long, value_name = "JSON")]
    pub(crate) agents: Option<String>,
    /// A plugin's folder; may be given several times.
    #[arg(long, value_name = "DIR")]
    pub(crate) plugin: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Files, or folders that are searched for agent and skill files; without one, what `homing agents` would load.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Count what was repaired as an error.
    #[arg(long)]
    pub(crate) strict: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A project's files are data until you trust them: its hooks and servers do not run, its wider permissions
do not hold. Trust holds for the files as they are; a change asks again. In CI, pass the hash with --trust."
)]
pub(crate) struct TrustArgs {
    /// The project; the current one where absent.
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Do not ask.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only show the files, their hash, and whether they are trusted.
    #[arg(long, conflicts_with_all = ["yes", "revoke", "list"])]
    pub(crate) show: bool,
    /// Trust it no longer.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
    /// List the projects that are trusted.
    #[arg(long, conflicts_with_all = ["yes", "revoke"])]
    pub(crate) list: bool,
    /// Approve the tools of this MCP server instead: of your configuration, a trusted project or an agent. It is started to be asked.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["list", "show"])]
    pub(crate) server: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check every record of the journal, too.
    #[arg(long)]
    pub(crate) journal: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) what: Option<ConfigWhat>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigWhat {
    /// Every value, and where it comes from.
    Show,
    /// Where the files are.
    Path,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  homing completions bash > ~/.local/share/bash-completion/completions/homing
  homing completions zsh > ~/.zfunc/_homing")]
pub(crate) struct CompletionsArgs {
    /// Which shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Human,
    /// One JSON object.
    Json,
    /// Annotations for pull requests.
    Github,
}
