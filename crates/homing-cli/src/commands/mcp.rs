//! `homing mcp` and `homing mcp serve`: serve the agents to MCP clients, over stdio or HTTP.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::{Args, Subcommand};
use homing::{Cap, CodingSetup, Homing, Task};
use homing_mcp::{ElicitationHandler, HttpOptions, McpEndpoint, ServeError, ServerOptions, serve_http, serve_stdio};
use homing_otel::Telemetry;

use crate::{
    cli::{
        PublicArgs,
        run::{LimitArgs, WithArgs},
        values,
    },
    completion,
    exit::{Exit, Trouble},
    session::{Session, SessionRequest, working_folder},
    signals::Signals,
};

/// Maximum time for runs to end when the server stops.
const GRACE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Serve the agents to MCP clients, over stdio or HTTP (the default).
    Serve(Box<ServeArgs>),
    /// Add an MCP server to your configuration.
    #[command(after_help = "Examples:
  homing mcp add github https://api.githubcopilot.com/mcp/
  homing mcp add everything -- npx -y @modelcontextprotocol/server-everything
  homing mcp add old https://example.org/sse --transport sse --header 'Authorization: Bearer ${TOKEN}'")]
    Add(AddArgs),
    /// List MCP servers: yours, the project's and those of agents.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove an MCP server from your configuration, with its token and approval.
    Remove {
        /// Server.
        #[arg(add = completion::server())]
        name: String,
    },
    /// Sign in to a remote MCP server with OAuth.
    Login {
        /// Server.
        #[arg(add = completion::server())]
        name: String,
    },
    /// Delete the token of a remote MCP server.
    Logout {
        /// Server.
        #[arg(add = completion::server())]
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Name of the server.
    pub(crate) name: String,
    /// Address of a remote server.
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    pub(crate) url: Option<String>,
    /// Command of a local server, after `--`.
    #[arg(last = true)]
    pub(crate) command: Vec<String>,
    /// Transport of a remote server.
    #[arg(long, value_parser = ["http", "sse"], conflicts_with = "command")]
    pub(crate) transport: Option<String>,
    /// Variable for a local server; `${NAME}` in the value stands for a variable of yours.
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::pair, requires = "command")]
    pub(crate) env: Vec<(String, String)>,
    /// Header for a remote server; `${NAME}` in the value stands for a variable of yours.
    #[arg(long, value_name = "NAME: VALUE", conflicts_with = "command")]
    pub(crate) header: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Serve over HTTP at this address, such as 127.0.0.1:8808, instead of stdio.
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    #[command(flatten)]
    public: PublicArgs,
    /// Maximum cost per client in US dollars.
    #[arg(long, value_name = "USD", value_parser = values::money, help_heading = "Limits")]
    client_budget: Option<Cap>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    with: WithArgs,
}

/// Serves until the client disconnects or a signal arrives.
pub(crate) async fn run(args: &ServeArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    if args.http.is_none() && (args.public.bind_public || !args.public.host.is_empty()) {
        return Err(Trouble::usage("--bind-public and --host are for a server over HTTP")
            .hint("add --http ADDR")
            .into());
    }
    let mut signals = Signals::new()?;
    let handler = Arc::new(ElicitationHandler::new());
    let parts = Arc::new(ServerParts { with: args.with.clone(), handler, telemetry });
    let stamp = parts.agents_stamp();
    let session = parts.open().await?;
    check_usable(&session.homing)?;
    let options = options(args, &session, parts, stamp);
    let homing = Arc::new(session.homing);
    match args.http {
        None => over_stdio(homing, options, &mut signals).await,
        Some(address) => over_http(homing, address, options, args, &mut signals).await,
    }
}

/// Creates the MCP server for one path of another HTTP server.
pub(crate) async fn endpoint(
    with: WithArgs,
    limits: LimitArgs,
    telemetry: Option<Telemetry>,
) -> anyhow::Result<McpEndpoint> {
    let args = ServeArgs { http: None, public: PublicArgs::default(), client_budget: None, limits, with };
    let handler = Arc::new(ElicitationHandler::new());
    let parts = Arc::new(ServerParts { with: args.with.clone(), handler, telemetry });
    let stamp = parts.agents_stamp();
    let session = parts.open().await?;
    let options = options(&args, &session, parts, stamp);
    Ok(McpEndpoint::new(Arc::new(session.homing), options))
}

async fn over_stdio(homing: Arc<Homing>, options: ServerOptions, signals: &mut Signals) -> anyhow::Result<Exit> {
    let mut exit = Exit::Done;
    serve_stdio(homing, options, async { exit = Exit::Signal(signals.next().await) }).await?;
    Ok(exit)
}

async fn over_http(
    homing: Arc<Homing>,
    address: SocketAddr,
    options: ServerOptions,
    args: &ServeArgs,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let mut http = HttpOptions::default();
    (http.public, http.hosts) = (args.public.bind_public, args.public.host.clone());
    let server = serve_http(homing, address, options, http).await.map_err(|error| match error {
        ServeError::Public(_) => Trouble::usage(format!("{address} can be reached from other machines"))
            .hint("use 127.0.0.1, or pass --bind-public to allow it"),
        other => Trouble::config(other.to_string()),
    })?;
    // The token is printed only here. It is not stored, and the next start creates another one.
    anstream::println!("url: {}\ntoken: {}", server.url(), server.token());
    let signal = signals.next().await;
    server.stop(GRACE).await;
    Ok(Exit::Signal(signal))
}

fn options(args: &ServeArgs, session: &Session, parts: Arc<ServerParts>, stamp: u64) -> ServerOptions {
    let mut options = ServerOptions::default();
    options.limits = session.config.limits(args.limits.limits(), homing::Limits::default());
    options.budget.cost_micros = args.client_budget.and_then(Cap::value);
    options.model.clone_from(&session.model);
    options.account.clone_from(&args.with.account);
    options.permission_handler = Some(parts.handler.clone());
    let stamp = Arc::new(Mutex::new(stamp));
    options.reload = Some(Arc::new(move || {
        let (parts, stamp) = (parts.clone(), stamp.clone());
        Box::pin(async move { parts.reload(&stamp).await })
    }));
    options
}

/// The parts of a server, kept to rebuild it when agents change.
struct ServerParts {
    with: WithArgs,
    handler: Arc<ElicitationHandler>,
    telemetry: Option<Telemetry>,
}

impl ServerParts {
    async fn open(&self) -> anyhow::Result<Session> {
        let handler = Some(self.handler.clone() as Arc<dyn homing::PermissionHandler>);
        let request = SessionRequest { handler, telemetry: self.telemetry.clone(), ..SessionRequest::default() };
        let session = Session::open(&self.with, request).await?;
        session.catalog.ask_served_default().await;
        Ok(session)
    }

    /// Rebuilds the server if agents have changed since the last stamp.
    async fn reload(self: Arc<Self>, stamp: &Mutex<u64>) -> Option<Arc<Homing>> {
        let parts = self.clone();
        let now = tokio::task::spawn_blocking(move || parts.agents_stamp()).await.ok()?;
        let before = std::mem::replace(&mut *stamp.lock().unwrap_or_else(PoisonError::into_inner), now);
        if now == before {
            return None;
        }
        Some(Arc::new(self.open().await.ok()?.homing))
    }

    /// Returns a fingerprint of all agents and teams in their files, as far as they are trusted.
    fn agents_stamp(&self) -> u64 {
        working_folder(self.with.cwd.as_deref()).map_or(0, |folder| stamp(&folder))
    }
}

/// Returns a fingerprint of the agents and teams of a folder.
pub(crate) fn stamp(folder: &Path) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hash = DefaultHasher::new();
    let setup = CodingSetup::from_env(folder);
    for entry in setup.discover().registry.all() {
        format!("{:?}", entry.definition).hash(&mut hash);
    }
    // Teams are not among these, and trust decides whether those of the project are served.
    for path in setup.team_files().into_iter().chain([setup.private.join("trust.json")]) {
        (std::fs::read(&path).ok(), path).hash(&mut hash);
    }
    hash.finish()
}

/// Fails if no agent can run, before a client connects.
fn check_usable(homing: &Homing) -> Result<(), Trouble> {
    let mut why = Trouble::config("there are no agents").hint("`homing init` writes examples");
    for name in homing.registry().names() {
        match homing.runtime().plan(Task::new(name, "check")) {
            Ok(_) => return Ok(()),
            Err(error) => why = error.into(),
        }
    }
    Err(why)
}
