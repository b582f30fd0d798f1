//! `homing mcp`: serves the agents to MCP clients, over stdio or over HTTP.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::Args;
use homing::{Cap, CodingSetup, Homing, Task};
use homing_load::{ParseOptions, discover};
use homing_mcp::{ElicitationHandler, HttpOptions, ServerOptions, serve_http, serve_stdio};
use homing_otel::Telemetry;

use crate::{
    cli::{
        run::{LimitArgs, WithArgs},
        values,
    },
    exit::{Exit, Trouble},
    session::{Session, SessionRequest, working_folder},
    signals::Signals,
};

/// How long runs may take to end when the server stops.
const GRACE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// Serve over HTTP at this address, such as 127.0.0.1:8808, instead of stdio.
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// Let other machines connect. They need the token, and it travels unencrypted: put TLS in front.
    #[arg(long, requires = "http")]
    bind_public: bool,
    /// A name, with its port, by which clients call the HTTP server; may be given several times.
    #[arg(long, value_name = "HOST:PORT", requires = "http")]
    host: Vec<String>,
    /// The most that one client may spend in all, in dollars.
    #[arg(long, value_name = "USD", value_parser = values::money, help_heading = "Limits")]
    client_budget: Option<Cap>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    with: WithArgs,
}

/// Serves until the client goes, or until somebody stops it.
pub(crate) async fn run(args: &McpArgs, telemetry: Option<Telemetry>) -> anyhow::Result<Exit> {
    let mut signals = Signals::new()?;
    let kit = Arc::new(ServerParts { with: args.with.clone(), asker: Arc::new(ElicitationHandler::new()), telemetry });
    let seen = kit.agents_stamp();
    let session = kit.open().await?;
    is_usable(&session.homing)?;
    let options = options(args, &session, kit, seen);
    let homing = Arc::new(session.homing);
    match args.http {
        None => over_stdio(homing, options, &mut signals).await,
        Some(address) => over_http(homing, address, options, args, &mut signals).await,
    }
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
    args: &McpArgs,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let mut http = HttpOptions::default();
    (http.public, http.hosts) = (args.bind_public, args.host.clone());
    let server = serve_http(homing, address, options, http).await?;
    // The token is shown here and nowhere else: it is in no file, and the next start has another.
    anstream::println!("url: {}\ntoken: {}", server.url(), server.token());
    let signal = signals.next().await;
    server.stop(GRACE).await;
    Ok(Exit::Signal(signal))
}

fn options(args: &McpArgs, session: &Session, kit: Arc<ServerParts>, seen: u64) -> ServerOptions {
    let mut options = ServerOptions::default();
    options.limits = session.config.limits(args.limits.limits(), homing::Limits::default());
    options.budget.cost_micros = args.client_budget.and_then(Cap::value);
    options.model.clone_from(&session.model);
    options.account.clone_from(&args.with.account);
    options.asker = Some(kit.asker.clone());
    let seen = Arc::new(Mutex::new(seen));
    options.reload = Some(Arc::new(move || {
        let (kit, seen) = (kit.clone(), seen.clone());
        Box::pin(async move { kit.changed(&seen).await })
    }));
    options
}

/// What a server is made of, so that it can be made again when agents change.
struct ServerParts {
    with: WithArgs,
    asker: Arc<ElicitationHandler>,
    telemetry: Option<Telemetry>,
}

impl ServerParts {
    async fn open(&self) -> anyhow::Result<Session> {
        let (asker, telemetry) =
            (Some(self.asker.clone() as Arc<dyn homing::PermissionHandler>), self.telemetry.clone());
        let wanted = SessionRequest { asker, telemetry, ..SessionRequest::default() };
        Session::open(&self.with, wanted).await
    }

    /// Everything anew, if agents have changed since they were seen last.
    async fn changed(self: Arc<Self>, seen: &Mutex<u64>) -> Option<Arc<Homing>> {
        let kit = self.clone();
        let now = tokio::task::spawn_blocking(move || kit.agents_stamp()).await.ok()?;
        let before = std::mem::replace(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner), now);
        if now == before {
            return None;
        }
        Some(Arc::new(self.open().await.ok()?.homing))
    }

    /// A fingerprint of all agents as their files stand.
    fn agents_stamp(&self) -> u64 {
        working_folder(self.with.cwd.as_deref()).map_or(0, |folder| stamp(&folder))
    }
}

fn stamp(folder: &Path) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let places = CodingSetup::from_env(folder).places;
    let mut hash = DefaultHasher::new();
    for it in discover(&places, &ParseOptions::default()).registry.all() {
        format!("{:?}", it.definition).hash(&mut hash);
    }
    hash.finish()
}

/// A server whose every agent would be refused says so before a client finds out.
fn is_usable(homing: &Homing) -> Result<(), Trouble> {
    let mut why = Trouble::config("there are no agents").hint("`homing init` writes some");
    for name in homing.registry().names() {
        match homing.runtime().plan(Task::new(name, "check")) {
            Ok(_) => return Ok(()),
            Err(error) => why = error.into(),
        }
    }
    Err(why)
}
