//! `Worker`: serves runs to a Restate server, and drains before it exits.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use homing_core::registry::Registry;
use homing_runtime::{Runtime, journal::Journal};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use restate_sdk::{endpoint::Endpoint, errors::HandlerError, hyper::HyperEndpoint};
use tokio::{net::TcpListener, time::Instant};
use uuid::Uuid;

use crate::{
    account_object::AccountObject,
    accounts::{AccountLimits, Accounts},
    attempt::{Attempt, DriverTask},
    definitions::{self, DefinitionsObject},
    journal::RestateJournal,
    ledger_object::LedgerObject,
    live::{self, LiveTexts},
    protocol::{Job, Preflight},
    rate_limits::{RateLimitObject, RateLimits},
    run_workflow::{RunWorkflow, WorkerService},
    segments::Spread,
    server::{Server, ServerError},
    tree_object::{KeyObject, TreeObject},
};

/// Streams per connection. The server opens another connection when one is full, and a load balancer can give it to
/// another worker. One tree in progress is one stream.
const STREAMS: u32 = 16;

/// Time for which registration is repeated while the server cannot reach the worker.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs in progress from which on a worker leaves new children to others, unless it may work on more at once.
const BUSY: usize = 64;

/// Sets of definitions that are kept ready.
const MAX_RUNTIMES: usize = 16;

/// Makes a runtime with these definitions and this journal; everything else is the worker's.
pub type RuntimeSource = Arc<dyn Fn(Registry, Arc<dyn Journal>) -> Runtime + Send + Sync>;

/// The configuration of a worker.
pub struct WorkerOptions {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Address at which the server reaches this worker, or a load balancer before several.
    pub advertise: String,
    /// Folders that this worker shares with submitters and other workers.
    pub shared: Vec<PathBuf>,
    /// Time that runs have to end when the worker stops; then others take them over.
    pub drain: Duration,
    /// When child runs are left to other workers.
    pub spread: Spread,
    /// Name or address of this machine at which followers read the text of replies (default: the address to listen on).
    pub live_host: Option<String>,
    /// The budget accounts, with their limits per day in micro-dollars.
    pub accounts: AccountLimits,
}

/// A worker that is registered.
pub struct Worker {
    shared: Arc<Shared>,
    listener: TcpListener,
    drain: Duration,
}

/// State that the services of a worker share.
pub(crate) struct Shared {
    pub(crate) server: Server,
    make: RuntimeSource,
    runtimes: Mutex<HashMap<String, DefinedRuntime>>,
    folders: Vec<PathBuf>,
    spread: Spread,
    /// Replies that are arriving, and the address at which followers read them.
    pub(crate) live_texts: Option<(Arc<LiveTexts>, String)>,
    limits: Arc<AccountLimits>,
    rate_limits: Arc<RateLimits>,
    is_draining: AtomicBool,
    live: AtomicUsize,
}

/// The runtime for one set of definitions.
#[derive(Clone)]
pub(crate) struct DefinedRuntime {
    pub(crate) runtime: Runtime,
    pub(crate) journal: Arc<RestateJournal>,
}

impl Worker {
    /// Listens, serves, and registers with the server.
    ///
    /// # Errors
    /// Fails if the address is taken, or if the server cannot reach the worker.
    pub async fn start(server: Server, options: WorkerOptions, make: RuntimeSource) -> Result<Self, ServerError> {
        let listen = options.listen;
        let taken = |error: std::io::Error| ServerError::Refused(format!("cannot listen on {listen}: {error}"));
        let listener = listen_shared(listen).map_err(taken)?;
        let shared = Arc::new(Shared {
            server: server.clone(),
            make,
            runtimes: Mutex::default(),
            folders: options.shared,
            spread: options.spread,
            live_texts: serve_live_texts(listen.ip(), options.live_host).await,
            limits: Arc::new(options.accounts),
            rate_limits: RateLimits::new(server.clone()),
            is_draining: AtomicBool::new(false),
            live: AtomicUsize::new(0),
        });
        let worker = Self { shared, listener, drain: options.drain };
        tokio::select! {
            never = worker.accept() => match never {},
            registered = register(&server, &options.advertise) => registered?,
        }
        Ok(worker)
    }

    /// Serves until `stop` resolves; then takes no more trees, and returns when those in progress have ended or the time to
    /// drain is over. The others are given up, and Restate gives them to another worker.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        tokio::select! {
            never = self.accept() => match never {},
            () = stop => (),
        }
        self.shared.is_draining.store(true, Ordering::Relaxed);
        let drained = async {
            while self.shared.live.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        // The objects of trees are served on meanwhile, because the runs in progress append to them.
        tokio::select! {
            never = self.accept() => match never {},
            _ = tokio::time::timeout(self.drain, drained) => (),
        }
    }

    /// The number of trees in progress here.
    pub fn live(&self) -> usize {
        self.shared.live.load(Ordering::Relaxed)
    }

    async fn accept(&self) -> std::convert::Infallible {
        let builder = Endpoint::builder().bind(TreeObject).bind(LedgerObject).bind(KeyObject).bind(DefinitionsObject);
        let builder = builder.bind(AccountObject).bind(RateLimitObject);
        let builder = builder.bind(RunWorkflow(self.shared.clone())).bind(WorkerService(self.shared.clone()));
        let endpoint = HyperEndpoint::new(builder.build());
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let endpoint = endpoint.clone();
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(STREAMS);
            tokio::spawn(async move {
                if let Err(error) = builder.serve_connection(TokioIo::new(stream), endpoint).await {
                    tracing::debug!(%error, "a connection of the Restate server ended");
                }
            });
        }
    }
}

/// Registers the worker. A load balancer needs some time before it gives connections to a worker that has just started.
async fn register(server: &Server, advertise: &str) -> Result<(), ServerError> {
    let began = Instant::now();
    loop {
        match server.register(advertise).await {
            Err(error @ ServerError::WorkerUnreachable { .. }) if began.elapsed() < PATIENCE => {
                tracing::warn!(%error, "registering again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            result => return result,
        }
    }
}

/// Serves the text of replies to followers. Without an address that they could use, there is none.
async fn serve_live_texts(ip: IpAddr, host: Option<String>) -> Option<(Arc<LiveTexts>, String)> {
    let host = match (host, ip) {
        (Some(host), _) => host,
        (None, ip) if ip.is_unspecified() => return None,
        (None, IpAddr::V4(ip)) => ip.to_string(),
        (None, IpAddr::V6(ip)) => format!("[{ip}]"),
    };
    let texts = Arc::<LiveTexts>::default();
    match live::listen(ip, texts.clone()).await {
        Ok(address) => Some((texts, format!("http://{host}:{}", address.port()))),
        Err(error) => {
            tracing::warn!(%error, "the text of replies is not served");
            None
        }
    }
}

/// Listens on an address that several workers of one machine may share; the kernel spreads connections over them.
fn listen_shared(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { tokio::net::TcpSocket::new_v4() } else { tokio::net::TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

impl Shared {
    /// Begins to drive a segment, unless this worker is about to stop.
    pub(crate) fn attempt(
        self: Arc<Self>,
        segment: Uuid,
        workflow: String,
        job: Job,
    ) -> Result<(Attempt, DriverTask), HandlerError> {
        if self.is_draining.load(Ordering::Relaxed) {
            return Err(HandlerError::from("this worker takes no more runs, because it is stopping"));
        }
        Ok(Attempt::begin(self, segment, workflow, job))
    }

    /// The runtime for a set of definitions.
    pub(crate) async fn runtime(&self, hash: &str) -> Result<DefinedRuntime, String> {
        let known = self.runtimes.lock().unwrap_or_else(PoisonError::into_inner).get(hash).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let registry = definitions::load(&self.server, hash).await.map_err(|error| error.to_string())?;
        let mut runtimes = self.runtimes.lock().unwrap_or_else(PoisonError::into_inner);
        if runtimes.len() >= MAX_RUNTIMES {
            runtimes.retain(|_, kept| kept.runtime.roots().iter().any(|root| !root.status().is_over()));
        }
        let accounts = Accounts::new(self.server.clone(), self.limits.clone());
        let journal = RestateJournal::new(self.server.clone(), self.spread, accounts, self.rate_limits.clone());
        let make = || {
            let runtime = (self.make)(registry, journal.clone());
            journal.segments().set_busy(runtime.parts().config.max_runs.max(BUSY));
            DefinedRuntime { runtime, journal: journal.clone() }
        };
        Ok(runtimes.entry(hash.to_owned()).or_insert_with(make).clone())
    }

    /// Counts a tree in progress until the result is dropped.
    pub(crate) fn count_live(self: &Arc<Self>) -> LiveCount {
        self.live.fetch_add(1, Ordering::Relaxed);
        LiveCount(self.clone())
    }

    /// The reason why this worker cannot run a submission.
    pub(crate) fn refuses(&self, request: &Preflight) -> Option<String> {
        let probe = (self.make)(Registry::default(), Arc::new(homing_runtime::journal::NullJournal::default()));
        let models = &probe.parts().models;
        let unusable = request.models.iter().find_map(|name| Some((name, models.get(name).err()?)));
        if let Some((name, error)) = unusable {
            return Some(format!("a worker cannot use the model {name}: {error}"));
        }
        if let Some(account) = request.account.as_ref().filter(|account| !self.limits.contains_key(*account)) {
            return Some(format!("a worker has no account `{account}` in its configuration"));
        }
        let workspace = request.workspace.as_ref()?;
        let folder = workspace.folder.display();
        if !self.folders.iter().any(|shared| workspace.folder.starts_with(shared)) {
            return Some(format!("a worker does not share the folder {folder}"));
        }
        match std::fs::read_to_string(&workspace.proof) {
            Ok(content) if content == workspace.content => None,
            Ok(_) | Err(_) => Some(format!("the folder {folder} of a worker is not the one of this machine")),
        }
    }
}

/// A tree in progress.
pub(crate) struct LiveCount(Arc<Shared>);

impl Drop for LiveCount {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::Relaxed);
    }
}
