//! Arguments about Restate: the server, the place of a run, and `homing worker`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{run::WithArgs, values};
use crate::restate_config::RestateConfig;

/// The Restate server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServerArgs {
    /// Admin address of the Restate server, such as http://127.0.0.1:9070.
    #[arg(long, value_name = "URL", value_parser = values::http_url, env = "HOMING_RESTATE", help_heading = "Workers")]
    pub(crate) restate: Option<String>,
    /// Ingress address of the Restate server (default: the one that the server names).
    #[arg(long, value_name = "URL", value_parser = values::http_url, env = "HOMING_RESTATE_INGRESS", help_heading = "Workers")]
    pub(crate) ingress: Option<String>,
}

/// The place where a run works.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlaceArgs {
    /// Run in this process, or on the workers of a Restate server (default: here, unless [restate] says otherwise).
    #[arg(long, value_enum, value_name = "PLACE", help_heading = "Workers")]
    pub(crate) on: Option<On>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Declare that every worker has the working folder at the same path. Needed by agents with file tools or commands.
    #[arg(long, help_heading = "Workers")]
    pub(crate) shared_workspace: bool,
}

impl PlaceArgs {
    /// Returns whether the run works on workers.
    pub(crate) fn is_remote(&self, config: &RestateConfig) -> bool {
        self.on.map_or(config.default, |on| on == On::Restate)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum On {
    /// In this process.
    Here,
    /// On any worker of a Restate server.
    Restate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpreadArg {
    /// A tree stays on one worker.
    Never,
    /// When this worker has many runs in progress.
    #[default]
    Auto,
    /// Every child run may work on another worker.
    Always,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  homing worker --restate http://restate:9070 --listen 0.0.0.0:9080 --advertise http://workers:9080

A worker uses its own keys, sandbox, hooks and MCP servers. On SIGTERM it takes no more runs, waits for those in progress, and
leaves the rest to other workers. docs/MANY_MACHINES.md explains the setup.")]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Address to listen on, which several workers of one machine may share (default: 127.0.0.1:9080).
    #[arg(long, value_name = "ADDR", help_heading = "Workers")]
    pub(crate) listen: Option<SocketAddr>,
    /// Address at which the server reaches this worker, or the load balancer before all workers (default: the listen address).
    #[arg(long, value_name = "URL", value_parser = values::http_url, help_heading = "Workers")]
    pub(crate) advertise: Option<String>,
    /// Name of this machine under which followers of a run reach it, to see text while it arrives (default: the listen address).
    #[arg(long, value_name = "HOST", help_heading = "Workers")]
    pub(crate) live_host: Option<String>,
    /// Folder that this worker shares with submitters and other workers, at the same path; may be given several times, and
    /// adds to those of the configuration.
    #[arg(long, value_name = "DIR", help_heading = "Workers")]
    pub(crate) shared_workspace: Vec<PathBuf>,
    /// Time that runs have to end after SIGTERM.
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "30s", help_heading = "Workers")]
    pub(crate) drain: Duration,
    /// When to leave child runs to other workers.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = SpreadArg::Auto, help_heading = "Workers")]
    pub(crate) spread: SpreadArg,
    #[command(flatten)]
    pub(crate) with: WithArgs,
}
