//! The command line's grammar: one variant per command.

pub(crate) mod changes;
pub(crate) mod chat;
pub(crate) mod convert;
mod help;
pub(crate) mod journal;
pub(crate) mod map_team_args;
mod one_command;
pub(crate) mod restate;
pub(crate) mod run;
pub(crate) mod values;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::completion;

/// Run agents that are defined in files, within limits, and lose nothing.
#[derive(Debug, Parser)]
#[command(name = "homing", version, propagate_version = true, after_help = help::AFTER)]
pub(crate) struct Cli {
    /// Without a command, a conversation is opened, if there is a terminal.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Cli {
    /// Parses the arguments of this process.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        let args: Vec<OsString> = std::env::args_os().collect();
        if let Some(version) = one_command::version(&args) {
            return Err(version);
        }
        let is_help = help::is_asked(&args);
        if let (false, Some(cli)) = (is_help, one_command::parse(&args)) {
            return Ok(cli);
        }
        let mut homing = if is_help { Self::with_help() } else { Self::command() };
        let mut matches = homing.try_get_matches_from_mut(args)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut homing))
    }

    /// The grammar with the help of `homing` itself.
    pub(crate) fn with_help() -> clap::Command {
        let homing = Self::command();
        let template = help::template(&homing);
        homing.help_template(template)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Talk to an agent or a team (the default on a terminal).
    Chat(Box<chat::ChatArgs>),
    /// Take up the last conversation of this folder.
    Continue(Box<chat::ContinueArgs>),
    /// Run an agent on a task.
    Run(Box<run::RunArgs>),
    /// Run an agent once per file or line, in parallel.
    Map(Box<map_team_args::MapArgs>),
    /// Run a team from a file: a crew, chat, graph or map.
    Team(Box<map_team_args::TeamArgs>),
    /// Watch live runs of any process: follow, tell, answer, cancel.
    Watch(chat::WatchArgs),
    /// List recorded runs, or sum up their usage.
    Runs(journal::RunsArgs),
    /// Show a run: its transcript, its tree, or what it does now.
    Show(journal::ShowArgs),
    /// Send a message to a run; a finished one is continued.
    Tell(Box<journal::TellArgs>),
    /// Stop a run, also one of another process.
    Cancel(journal::CancelArgs),
    /// List the questions that wait for an answer.
    Questions(journal::QuestionsArgs),
    /// Answer a question, even after its process has exited.
    Answer(Box<journal::AnswerArgs>),
    /// Resume an interrupted run, or give one a larger budget.
    Resume(Box<journal::ResumeArgs>),
    /// Start a new run from the middle of a recorded one.
    Fork(Box<journal::ForkArgs>),
    /// Replay a recorded run tree, and report differences.
    Replay(Box<journal::ReplayArgs>),
    /// Export a run tree: as a cassette, Markdown or HTML.
    Export(journal::ExportArgs),
    /// Delete old runs from the journal.
    Prune(journal::PruneArgs),
    /// Show what a run and the runs below it changed.
    Diff(changes::DiffArgs),
    /// Undo what a run and the runs below it changed.
    Undo(changes::UndoArgs),
    /// List, show, merge or remove the work of isolated runs.
    Worktrees(changes::WorktreesArgs),
    /// List agents, or explain one: origin, tools, limits.
    Agents(AgentsArgs),
    /// Write example agents into this project.
    Init,
    /// Check agent, skill and team files.
    Check(CheckArgs),
    /// Write agents in the form of another program.
    Convert(convert::ConvertArgs),
    /// Serve the web interface and the HTTP API.
    Serve(Box<crate::commands::serve::ServeArgs>),
    /// Serve agents to MCP clients, or add, list and remove servers.
    Mcp(Box<crate::commands::mcp::McpArgs>),
    /// Serve runs to a Restate server.
    Worker(Box<restate::WorkerArgs>),
    /// Check the installation: sandbox, keys, journal. Costs nothing.
    Doctor(DoctorArgs),
    /// List providers and models: limits, prices, API keys.
    Models(crate::commands::models::ModelsArgs),
    /// Show or change the configuration.
    Config(ConfigArgs),
    /// Trust this project's hooks, MCP servers and permissions.
    Trust(TrustArgs),
    /// Print a completion script for your shell.
    Completions(CompletionsArgs),
    /// Show the manual page of a command, or write all pages.
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    /// Agent to explain.
    #[arg(add = completion::agent())]
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
    #[arg(long, value_name = "NAME", conflicts_with_all = ["list", "show"], add = completion::server())]
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
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ConfigCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every value and its origin (the default).
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the paths of the configuration files.
    Path,
    /// Set a value in your configuration: `homing config set limits.cost 2.00`.
    Set {
        /// Key, with dots between its parts.
        key: String,
        /// Value as in the file; anything else is taken as text.
        value: String,
    },
    /// Remove a value from your configuration.
    Unset {
        /// Key, with dots between its parts.
        key: String,
    },
    /// Open your configuration in `$VISUAL` or `$EDITOR`, and check it afterwards.
    Edit,
}

/// Connections of other machines to a server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PublicArgs {
    /// Let other machines connect without TLS: the token and all content are sent unencrypted.
    #[arg(long, help_heading = "Access")]
    pub(crate) bind_public: bool,
    /// Host name and port that clients use; may be given several times.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Access")]
    pub(crate) host: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  homing completions bash > ~/.local/share/bash-completion/completions/homing
  homing completions zsh > ~/.zfunc/_homing            with ~/.zfunc on fpath before compinit
  homing completions fish > ~/.config/fish/completions/homing.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to generate the script for.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  homing man run
  homing man --out ~/.local/share/man/man1      then: man homing, man homing-run")]
pub(crate) struct ManArgs {
    /// Command whose page to show (default: homing).
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// Write the pages of all commands into this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) out: Option<PathBuf>,
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
