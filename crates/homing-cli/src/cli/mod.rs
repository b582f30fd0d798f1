//! The command line's grammar: one variant per command.

pub(crate) mod changes;
pub(crate) mod chat;
pub(crate) mod convert;
pub(crate) mod journal;
pub(crate) mod map_team_args;
pub(crate) mod restate;
pub(crate) mod run;
pub(crate) mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run agents that are defined in files.
#[derive(Debug, Parser)]
#[command(name = "homing", version, propagate_version = true)]
pub(crate) struct Cli {
    /// Without a command, a conversation is opened, if there is a terminal.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Talk to an agent or a team. The default command on a terminal.
    Chat(Box<chat::ChatArgs>),
    /// Take up the last conversation of this folder.
    Continue(Box<chat::ContinueArgs>),
    /// Watch the live runs of this project, whichever process works on them: follow, tell, answer and cancel them.
    Watch(chat::WatchArgs),
    /// Run an agent on a task.
    Run(Box<run::RunArgs>),
    /// Run an agent once per file or line, in parallel; print results as JSON lines in input order.
    Map(Box<map_team_args::MapArgs>),
    /// Run a team that is defined in a file: a crew, chat, graph or map.
    Team(Box<map_team_args::TeamArgs>),
    /// List agents, or explain one: its origin, the agents it hides, its tools and limits.
    Agents(AgentsArgs),
    /// Check agent, skill and team files for errors, repairs and ignored parts.
    Check(CheckArgs),
    /// Write agents in the form of another program: Claude Code, OpenCode, Codex, Copilot, Gemini CLI and others.
    Convert(convert::ConvertArgs),
    /// List recorded runs, or sum up their usage.
    Runs(journal::RunsArgs),
    /// Show a recorded run: its transcript, its tree, or its current activity.
    Show(journal::ShowArgs),
    /// Show what a run and the runs below it changed.
    Diff(changes::DiffArgs),
    /// Undo what a run and the runs below it changed.
    Undo(changes::UndoArgs),
    /// List the worktrees of isolated runs, show their changes, merge or remove them.
    Worktrees(changes::WorktreesArgs),
    /// Resume an interrupted run, or give an exhausted one a larger budget.
    Resume(Box<journal::ResumeArgs>),
    /// Start a new run from the middle of a recorded one, paying nothing again.
    Fork(Box<journal::ForkArgs>),
    /// Stop a run, even one started by another process.
    Cancel(journal::CancelArgs),
    /// Send a message to a run, even one started by another process; a finished run is continued.
    Tell(Box<journal::TellArgs>),
    /// List the questions that wait for an answer.
    Questions(journal::QuestionsArgs),
    /// Answer a question of a run, even of another process or of one that has exited.
    Answer(Box<journal::AnswerArgs>),
    /// Replay a recorded run tree, and report differences.
    Replay(Box<journal::ReplayArgs>),
    /// Export a run tree: as a cassette, Markdown, or an HTML page with a timeline.
    Export(journal::ExportArgs),
    /// Delete old runs from the journal.
    Prune(journal::PruneArgs),
    /// Trust this project's files: their hooks, MCP servers and wider permissions.
    Trust(TrustArgs),
    /// Check the installation: sandbox, providers, journal, git, terminal. Costs nothing.
    Doctor(DoctorArgs),
    /// Show the configuration and the origin of each value.
    Config(ConfigArgs),
    /// Serve the web interface and the HTTP API for the runs of the journal.
    Serve(Box<crate::commands::serve::ServeArgs>),
    /// List providers, or the models of one: limits, prices, API key.
    Models(crate::commands::models::ModelsArgs),
    /// Serve the agents to MCP clients (the default), or add, list and remove MCP servers.
    Mcp(Box<crate::commands::mcp::McpArgs>),
    /// Serve runs to a Restate server, on this and other machines.
    Worker(Box<restate::WorkerArgs>),
    /// Write example agents into this project.
    Init,
    /// Print a completion script for your shell.
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    /// Agent to explain.
    pub(crate) name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the system prompt that a run of this agent gets.
    #[arg(long, requires = "name", conflicts_with = "json")]
    pub(crate) prompt: bool,
    /// Refuse files that need repair.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Additional agents as JSON: one object, or a map from name to object.
    #[arg(long, value_name = "JSON")]
    pub(crate) agents: Option<String>,
    /// Plugin folder; may be given several times.
    #[arg(long, value_name = "DIR")]
    pub(crate) plugin: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Files, or folders to search for agent, skill and team files (default: everything `homing agents` loads).
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Treat repairs as errors.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Correct what a program can correct: show the changes, then ask. Without a terminal, nothing is changed.
    #[arg(long)]
    pub(crate) fix: bool,
    /// With --fix: apply the changes without asking.
    #[arg(long, short, requires = "fix")]
    pub(crate) yes: bool,
    /// List every finding, also those of one kind.
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Until you trust a project's files, its hooks and MCP servers do not run and its wider permissions have
no effect. Trust covers the files as they are now; after a change it must be renewed. In CI, pass the hash with --trust."
)]
pub(crate) struct TrustArgs {
    /// Project folder (default: current).
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only show what trust would put into effect, the hash of the files and their trust state.
    #[arg(long, conflicts_with_all = ["yes", "revoke", "list"])]
    pub(crate) show: bool,
    /// Name every file.
    #[arg(long)]
    pub(crate) files: bool,
    /// Revoke trust.
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
    /// List trusted projects.
    #[arg(long, conflicts_with_all = ["yes", "revoke"])]
    pub(crate) list: bool,
    /// Approve the tools of this MCP server instead (from your configuration, a trusted project or an agent); starts it to list them.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["list", "show"])]
    pub(crate) server: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Also check every record of the journal.
    #[arg(long)]
    pub(crate) journal: bool,
    /// Connect to no provider: do not check keys and the model's name.
    #[arg(long)]
    pub(crate) offline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ConfigCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every value and its origin.
    Show,
    /// Show the paths of the configuration files.
    Path,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  homing completions bash > ~/.local/share/bash-completion/completions/homing
  homing completions zsh > ~/.zfunc/_homing")]
pub(crate) struct CompletionsArgs {
    /// Shell to generate the script for.
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
    /// SARIF 2.1.0, for code scanning and editors.
    Sarif,
}
