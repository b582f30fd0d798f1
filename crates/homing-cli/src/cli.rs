//! What can be typed: one variant per command. It decides nothing.

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
    /// List the agents that are known, or explain one: where it came from, what it hides, what it may do.
    Agents(AgentsArgs),
    /// Diagnose agent and skill files: what was repaired, what is ignored, what is wrong.
    Check(CheckArgs),
    /// Write example agents into this project.
    Init,
    /// Serve the agents to MCP clients, over stdio or over HTTP.
    Mcp(crate::commands::mcp::McpArgs),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Human,
    /// One JSON object.
    Json,
    /// Annotations for pull requests.
    Github,
}
