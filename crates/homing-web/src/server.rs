//! `WebServer`: listens, checks requests, and leads them to the API or the pages.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use homing::{Claim, Limits, RunHandle, SpawnError, Status, crates::runtime::journal::sqlite::Filter};
use homing_http::{
    Admitted, BoxFuture, ConnectionLimits, HttpRefusal, HttpResponse, HttpService, RequestGuard, TlsError, TlsFiles,
    fresh_token, full, is_loopback, is_same, listen, percent_decoded,
};
use hyper::{
    Method, Request, StatusCode,
    header::{HeaderValue, LOCATION, SET_COOKIE},
    http::request::Parts,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::{
    agui, api, assets,
    call::Call,
    gzip,
    host::{HostError, WebHost},
    openai,
    problem::Problem,
    projects::Projects,
    token::{TokenError, TokenFile, cookie_value},
    watch::JournalWatch,
};

/// Maximum size of a request's body in bytes. A task may have attachments.
const MAX_BODY: usize = 16 << 20;

/// Maximum numbers of connections: each reader of events has one.
const CONNECTIONS: ConnectionLimits = ConnectionLimits { with_token: 4_096, without_token: 64 };

/// Number of file descriptors that the server asks for.
const DESCRIPTORS: u64 = 16_384;

/// Time between two looks at the token file, which may be replaced while the server runs.
const TOKEN_INTERVAL: Duration = Duration::from_secs(1);

/// The cookie of a browser that has logged in.
const COOKIE: &str = "homing_token";

/// Lifetime of the cookie in seconds.
const COOKIE_AGE: u32 = 365 * 24 * 60 * 60;

/// Lifetime of a single-use URL.
const CODE_AGE: Duration = Duration::from_secs(60);

/// Headers of every response. They keep browsers from executing anything but the interface's own files, and from storing,
/// framing or referring to a page.
const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; font-src 'self'; manifest-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
         form-action 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Options of the server.
#[non_exhaustive]
pub struct WebOptions {
    /// The address to listen on. Port 0 selects a free port.
    pub address: SocketAddr,
    /// Allows other machines to connect without TLS. Otherwise an address that they can reach is refused.
    pub public: bool,
    /// Host names with port that clients may use besides the address, such as `agents.example:443`.
    pub hosts: Vec<String>,
    /// The file of the token.
    pub token: TokenFile,
    /// Certificate and key, for TLS.
    pub tls: Option<TlsFiles>,
    /// The project folder in which runs are started.
    pub project: PathBuf,
    /// Responds to requests to `/mcp`.
    pub mcp: Option<McpHandler>,
}

/// Responds to the requests of MCP clients. The server has checked their token.
pub type McpHandler = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, HttpResponse> + Send + Sync>;

impl WebOptions {
    /// Creates options for an address, the file of the token, and the project folder in which runs are started.
    pub fn new(address: SocketAddr, token: TokenFile, project: impl Into<PathBuf>) -> Self {
        Self { address, public: false, hosts: Vec::new(), token, tls: None, project: project.into(), mcp: None }
    }
}

/// The failure to start a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines can reach the address, and the options do not allow that.
    #[error("{0} can be reached from other machines, and the traffic would not be encrypted")]
    Public(SocketAddr),
    /// The address is not available.
    #[error("cannot listen on {0}: {1}")]
    NoPort(SocketAddr, io::Error),
    /// There is no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The project cannot be opened.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The project has no journal.
    #[error("there is no journal, so there are no runs to serve")]
    NoJournal,
}

/// A running server. Dropping it stops it.
pub struct WebServer {
    address: SocketAddr,
    scheme: &'static str,
    server: Arc<Server>,
    tasks: Vec<JoinHandle<()>>,
    _stop: DropGuard,
}

impl WebServer {
    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the interface.
    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.address)
    }

    /// Returns the URL that logs a browser in.
    pub fn login_url(&self) -> String {
        format!("{}login?token={}", self.url(), self.server.token())
    }

    /// Returns a URL that logs one browser in, once and within a minute. Unlike [`Self::login_url`] it may be the argument of a
    /// program, which other users of the machine can read.
    pub fn single_use_url(&self) -> String {
        let code = fresh_token();
        let url = format!("{}login?code={code}", self.url());
        *self.server.code.lock().unwrap_or_else(PoisonError::into_inner) = Some((code, Instant::now()));
        url
    }

    /// Resumes every interrupted tree. Returns the number of those that continue, and the problems of the others.
    pub async fn resume_interrupted(&self) -> (usize, Vec<String>) {
        let filter = Filter { status: Some(Status::Interrupted), ..Filter::default() };
        let rows = match self.server.watch.journal.runs(&filter) {
            Ok(rows) => rows,
            Err(error) => return (0, vec![error.to_string()]),
        };
        let (mut resumed, mut problems) = (0, Vec::new());
        for row in rows {
            match self.server.resume(row.tree, Limits::default()).await {
                Ok(_) => resumed += 1,
                Err(problem) => problems.push(format!("run {}: {}", row.tree, problem.detail)),
            }
        }
        (resumed, problems)
    }

    /// Stops listening and gives up the runs that this process drives, so that they can be resumed. Returns their number; those
    /// that wait for an answer are not counted.
    pub fn stop(self) -> usize {
        self.server.release_runs()
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The token that is accepted now.
struct Token {
    text: String,
    cookie: String,
    /// Cancelled when another token takes its place.
    replaced: CancellationToken,
}

impl Token {
    fn new(text: String) -> Self {
        Self { cookie: cookie_value(&text), text, replaced: CancellationToken::new() }
    }
}

/// The state that all requests share.
pub(crate) struct Server {
    guard: RequestGuard,
    token: RwLock<Token>,
    /// The code of the single-use URL that was not used yet, and the time of its creation.
    code: Mutex<Option<(String, Instant)>>,
    token_file: TokenFile,
    is_encrypted: bool,
    pub(crate) projects: Projects,
    pub(crate) watch: Arc<JournalWatch>,
    mcp: Option<McpHandler>,
}

/// Starts a server.
///
/// # Errors
/// Fails if the address is not available, if other machines can reach it and the options do not allow that, if there is no token,
/// if the certificate cannot be used, or if the project cannot be opened.
pub async fn serve(host: Arc<dyn WebHost>, options: WebOptions) -> Result<WebServer, ServeError> {
    if !is_loopback(options.address.ip()) && !options.public && options.tls.is_none() {
        return Err(ServeError::Public(options.address));
    }
    let tls = options.tls.as_ref().map(TlsFiles::acceptor).transpose()?;
    let token = options.token.read_or_create()?;
    let projects = Projects::new(host, options.project);
    let journal = projects.main().await?.homing().journal().ok_or(ServeError::NoJournal)?.clone();
    let no_port = |error| ServeError::NoPort(options.address, error);
    let listener = TcpListener::bind(options.address).await.map_err(no_port)?;
    let address = listener.local_addr().map_err(no_port)?;
    raise_descriptor_limit();
    let server = Arc::new(Server {
        guard: RequestGuard::new(address, &options.hosts),
        token: RwLock::new(Token::new(token)),
        code: Mutex::default(),
        token_file: options.token,
        is_encrypted: tls.is_some(),
        projects,
        watch: JournalWatch::new(journal),
        mcp: options.mcp,
    });
    let stop = CancellationToken::new();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let tasks = vec![
        tokio::spawn(server.watch.clone().run()),
        tokio::spawn(server.clone().watch_token()),
        tokio::spawn(listen(listener, Arc::new(WebService(server.clone())), CONNECTIONS, tls, stop.clone())),
    ];
    Ok(WebServer { address, scheme, server, tasks, _stop: stop.drop_guard() })
}

/// Raises the limit of open files, because each reader has a connection.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        // With fewer descriptors there are fewer readers.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

impl Server {
    fn token(&self) -> String {
        self.read_token(|token| token.text.clone())
    }

    fn read_token<T>(&self, read: impl FnOnce(&Token) -> T) -> T {
        read(&self.token.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Accepts only the token that is in the file now. When it is replaced, all connections are closed.
    async fn watch_token(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TOKEN_INTERVAL).await;
            let file = self.token_file.clone();
            let Ok(Ok(text)) = tokio::task::spawn_blocking(move || file.read()).await else { continue };
            if self.read_token(|token| token.text != text) {
                let mut token = self.token.write().unwrap_or_else(PoisonError::into_inner);
                std::mem::replace(&mut *token, Token::new(text)).replaced.cancel();
            }
        }
    }

    /// Resumes a tree, with its own project's agents and permissions.
    pub(crate) async fn resume(&self, tree: Uuid, more: Limits) -> Result<RunHandle, Problem> {
        let project = self.projects.of_tree(&self.watch.journal, tree).await?;
        let resumed = project.homing().resume(tree, Claim::IfGone, more).await;
        let run = resumed.map_err(|error| match error {
            SpawnError::Journal(error) => Problem::from(error),
            other => project.spawn_error(other).into(),
        })?;
        self.watch.channels.attach(&run);
        Ok(run)
    }

    /// Returns the folder that a request names, if the journal knows it, or the folder of the server.
    pub(crate) async fn known_project(&self, named: Option<&Path>) -> Result<PathBuf, Problem> {
        let Some(named) = named else { return Ok(self.projects.folder.clone()) };
        let known = self.known_projects().await?;
        let unknown = || {
            Problem::not_found(format!("no recorded run worked in {}", named.display()))
                .hint("start a first run there with `homing run`")
        };
        known.into_iter().map(PathBuf::from).find(|folder| folder == named).ok_or_else(unknown)
    }

    fn release_runs(&self) -> usize {
        let runs = self.projects.live_runs();
        let interrupted = runs.iter().filter(|run| !run.tree().is_parked()).count();
        runs.iter().for_each(RunHandle::release);
        interrupted
    }

    fn is_known(&self, head: &Parts) -> bool {
        self.read_token(|token| {
            RequestGuard::has_bearer(head, &token.text) || RequestGuard::has_cookie(head, COOKIE, &token.cookie)
        })
    }

    /// Answers `/login?token=…` and `/login?code=…`: sets the cookie, and leads to the page without the token in its address.
    fn login(&self, query: Option<&str>) -> HttpResponse {
        let given = |name: &str| {
            let mut pairs = query.iter().flat_map(|query| query.split('&'));
            pairs.find_map(|pair| percent_decoded(pair.strip_prefix(name)?, true)).unwrap_or_default()
        };
        let has_token = self.read_token(|token| is_same(&given("token="), &token.text));
        if !has_token && !self.use_code(&given("code=")) {
            return assets::login_page();
        }
        let cookie = self.read_token(|token| token.cookie.clone());
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        let cookie = format!("{COOKIE}={cookie}; Path=/; Max-Age={COOKIE_AGE}; HttpOnly; SameSite=Strict{secure}");
        let mut response = full(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", "logged in");
        response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
        response
    }

    /// Returns true if this is the code of the single-use URL, which is void afterwards.
    fn use_code(&self, given: &str) -> bool {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        let is_valid = |(code, made): &(String, Instant)| is_same(given, code) && made.elapsed() < CODE_AGE;
        if code.as_ref().is_some_and(is_valid) { code.take().is_some() } else { false }
    }

    async fn answer_mcp(&self, request: Request<Bytes>) -> HttpResponse {
        match &self.mcp {
            Some(mcp) if request.uri().path() == "/mcp" => mcp(request).await,
            _ => Problem::not_found("there is no such endpoint").response(),
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Bytes>) -> HttpResponse {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if path == LOGIN {
            return self.login(head.uri.query());
        }
        if !is_for_programs(path) {
            return assets::response(path, gzip::is_accepted(&head.headers));
        }
        match path.split('/').nth(1) {
            Some("v1") => return openai::respond(self.clone(), &head, &body).await,
            Some("agui") if head.method == Method::POST => return agui::respond(self.clone(), &head, &body).await,
            Some("mcp") => return self.answer_mcp(Request::from_parts(head, body)).await,
            _ => (),
        }
        let (route, params) = match api::find(&head.method, path) {
            Ok(found) => found,
            Err(problem) => return problem.response(),
        };
        let query = head.uri.query().map(str::to_owned);
        let call = Call { params, query, headers: head.headers, body };
        (route.handler)(self, call).await.unwrap_or_else(|problem| problem.response())
    }
}

/// The path that logs a browser in.
const LOGIN: &str = "/login";

/// Returns true for the paths of the API. Every other one belongs to the web interface.
fn is_for_programs(path: &str) -> bool {
    let first = path.split('/').nth(1).unwrap_or_default();
    matches!(first, "api" | "v1" | "mcp" | "agui")
}

/// The service as the listener calls it.
struct WebService(Arc<Server>);

impl HttpService for WebService {
    fn admit(&self, head: &Parts) -> Result<Admitted, Box<HttpResponse>> {
        let path = head.uri.path();
        let refuse = |HttpRefusal(status, why)| Box::new(Problem::new(status, why).response());
        self.0.guard.check_site(head).map_err(refuse)?;
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        if path == LOGIN && is_read {
            return Ok(Admitted { has_token: false, max_body: 0 });
        }
        if !self.0.is_known(head) {
            if is_for_programs(path) || !is_read {
                let detail = "send the token as `Authorization: Bearer …`, or log in with the link";
                return Err(Problem::new(StatusCode::UNAUTHORIZED, detail).response().into());
            }
            return Err(assets::login_page().into());
        }
        if !is_for_programs(path) && !is_read {
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "pages can only be read").response().into());
        }
        if !is_read && head.method != Method::DELETE {
            RequestGuard::check_json(head).map_err(refuse)?;
        }
        Ok(Admitted { has_token: true, max_body: if is_read { 0 } else { MAX_BODY } })
    }

    fn respond(&self, request: Request<Bytes>) -> BoxFuture<'_, HttpResponse> {
        let accepts_gzip = gzip::is_accepted(request.headers());
        let answer = self.0.clone().answer(request);
        Box::pin(async move {
            let response = answer.await;
            if accepts_gzip { gzip::compressed(response).await } else { response }
        })
    }

    fn refuse_body(&self, status: StatusCode, why: &'static str) -> HttpResponse {
        Problem::new(status, why).response()
    }

    fn revoked(&self) -> CancellationToken {
        self.0.read_token(|token| token.replaced.clone())
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &HEADERS
    }
}
