//! `homing mcp`: serves the agents to MCP clients, over stdio or over HTTP.

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use homing::{Homing, Limits, Standard, Task};
use homing_load::{Options as Reading, Places, discover};
use homing_mcp::{HttpOptions, McpAsker, Options, serve_http, serve_stdio};

use crate::{
    cli::run::WithArgs,
    exit::Exit,
    session::{Session, Wanted},
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
    /// The folder to work in.
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The model to speak with where an agent names none.
    #[arg(long)]
    model: Option<String>,
    /// The most that one delegation may cost, in dollars.
    #[arg(long, value_name = "USD")]
    max_cost: Option<String>,
    /// The most that one client may spend in all, in dollars.
    #[arg(long, value_name = "USD")]
    client_budget: Option<String>,
}

/// Serves until the client goes, or until somebody stops it.
pub(crate) fn run(args: &McpArgs) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(args));
    // A read from stdin cannot be called back; nobody waits for it.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

async fn serve(args: &McpArgs) -> anyhow::Result<Exit> {
    let folder = args.cwd.clone().map_or_else(env::current_dir, Ok)?;
    let kit = Arc::new(Kit { folder, model: args.model.clone(), asker: Arc::new(McpAsker::new()) });
    let seen = agents_stamp(&kit.folder);
    let homing = kit.build().await?;
    is_usable(&homing)?;
    let options = options(args, kit, seen)?;
    match args.http {
        None => over_stdio(homing, options).await,
        Some(address) => over_http(homing, address, options, args).await,
    }
}

async fn over_stdio(homing: Arc<Homing>, options: Options) -> anyhow::Result<Exit> {
    serve_stdio(homing, options, stopped()).await?;
    Ok(Exit::Done)
}

async fn over_http(homing: Arc<Homing>, address: SocketAddr, options: Options, args: &McpArgs) -> anyhow::Result<Exit> {
    let mut http = HttpOptions::default();
    (http.public, http.hosts) = (args.bind_public, args.host.clone());
    let server = serve_http(homing, address, options, http).await?;
    // The token is shown here and nowhere else: it is in no file, and the next start has another.
    anstream::println!("url: {}\ntoken: {}", server.url(), server.token());
    stopped().await;
    server.stop(GRACE).await;
    Ok(Exit::Done)
}

/// Resolves when the process is told to stop.
async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let on = |kind| async move {
        match signal(kind) {
            Ok(mut it) => _ = it.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = on(SignalKind::interrupt()) => (),
        () = on(SignalKind::terminate()) => (),
        () = on(SignalKind::hangup()) => (),
    }
}

fn options(args: &McpArgs, kit: Arc<Kit>, seen: u64) -> anyhow::Result<Options> {
    let mut options = Options::default();
    if let Some(amount) = &args.max_cost {
        options.limits = Limits::default().cost_usd(amount).context("--max-cost")?;
    }
    if let Some(amount) = &args.client_budget {
        options.budget.cost_micros = Some(homing_core::limits::micros_from_usd(amount).context("--client-budget")?);
    }
    options.asker = Some(kit.asker.clone());
    let seen = Arc::new(Mutex::new(seen));
    options.reload = Some(Arc::new(move || {
        let (kit, seen) = (kit.clone(), seen.clone());
        Box::pin(async move {
            let folder = kit.folder.clone();
            let now = tokio::task::spawn_blocking(move || agents_stamp(&folder)).await.ok()?;
            let before = std::mem::replace(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner), now);
            if now == before { None } else { kit.build().await.ok() }
        })
    }));
    Ok(options)
}

/// What a server is made of, so that it can be made again when agents change.
struct Kit {
    folder: PathBuf,
    model: Option<String>,
    asker: Arc<McpAsker>,
}

impl Kit {
    /// Everything as `homing run` has it, but for who answers questions.
    async fn build(&self) -> anyhow::Result<Arc<Homing>> {
        let with = WithArgs { cwd: Some(self.folder.clone()), model: self.model.clone(), ..WithArgs::default() };
        let wanted = Wanted { answers: Some(self.asker.clone()), ..Wanted::default() };
        Ok(Arc::new(Session::open(&with, wanted).await?.homing))
    }
}

/// A server whose every agent would be refused says so before a client finds out.
fn is_usable(homing: &Homing) -> anyhow::Result<()> {
    let mut why = None;
    for name in homing.registry().names() {
        match homing.runtime().plan(Task::new(name, "check")) {
            Ok(_) => return Ok(()),
            Err(error) => why = Some(error),
        }
    }
    match why {
        Some(why) => Err(why.into()),
        None => bail!("there are no agents: `homing init` writes some"),
    }
}

/// A fingerprint of all agents as their files stand.
fn agents_stamp(folder: &Path) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let places: Places = Standard::from_env(folder).places;
    let mut hash = DefaultHasher::new();
    for it in discover(&places, &Reading::default()).registry.all() {
        format!("{:?}", it.definition).hash(&mut hash);
    }
    hash.finish()
}
