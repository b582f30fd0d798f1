//! Serves clients over streamable HTTP: on a port of its own, or as one path of another server.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use homing::Homing;
use homing_http::{
    Admitted, BoxFuture, ConnectionLimits, HttpRefusal, HttpResponse, HttpService, RequestGuard, fresh_token,
    is_loopback, listen, with_status,
};
use http_body_util::Full;
use hyper::{
    Method, Request, StatusCode,
    header::{HeaderValue, WWW_AUTHENTICATE},
    http::request::Parts,
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::local::{LocalSessionManager, SessionConfig},
};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    handler::McpHandler,
    options::ServerOptions,
    server_state::{Audience, ReloadTask, ServerState},
};

/// The path that is served.
const PATH: &str = "/mcp";

/// Maximum size of a request's body in bytes.
const MAX_BODY: usize = 1 << 20;

/// Time without a request after which a client counts as disconnected. Runs last at most an hour by default, and a client
/// that started one in the background may be silent meanwhile.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);

/// Headers of every response. They keep browsers from executing, storing, framing or referring to it.
const HEADERS: [(&str, &str); 4] = [
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
];

/// Options of the HTTP listener.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Allows other machines to connect. Otherwise an address that they can reach is refused.
    pub public: bool,
    /// Host names with port that clients may use besides the address, such as `agents.example:443`.
    pub hosts: Vec<String>,
}

/// The failure to start an HTTP server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines can reach the address, and the options do not allow that.
    #[error("{0} can be reached from other machines, which the options do not allow")]
    Public(SocketAddr),
    /// The address is not available.
    #[error("cannot listen on {0}: {1}")]
    NoPort(SocketAddr, io::Error),
}

/// A running server. Dropping it stops it.
pub struct HttpServer {
    address: SocketAddr,
    token: String,
    endpoint: Arc<McpEndpoint>,
    _stop: DropGuard,
}

impl HttpServer {
    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Returns the access token, which is new at every start. Clients send it as `Authorization: Bearer …`.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Stops listening and cancels the runs of all clients. Each run records its partial result.
    pub async fn stop(self, grace: Duration) {
        drop(self._stop);
        self.endpoint.stop(grace).await;
    }
}

/// Serves clients over HTTP at `address`. Port 0 selects a free port.
///
/// # Errors
/// Fails if the address is not available, or if other machines can reach it and the options do not allow that.
pub async fn serve_http(
    homing: Arc<Homing>,
    address: SocketAddr,
    options: ServerOptions,
    http: HttpOptions,
) -> Result<HttpServer, ServeError> {
    if !is_loopback(address.ip()) && !http.public {
        return Err(ServeError::Public(address));
    }
    let no_port = |error| ServeError::NoPort(address, error);
    let listener = TcpListener::bind(address).await.map_err(no_port)?;
    let address = listener.local_addr().map_err(no_port)?;
    let token = fresh_token();
    let endpoint = Arc::new(McpEndpoint::new(homing, options));
    let guard = RequestGuard::new(address, &http.hosts);
    let service = GuardedService { guard, token: token.clone(), endpoint: endpoint.clone() };
    let stop = CancellationToken::new();
    let limits = ConnectionLimits { with_token: 64, without_token: 32 };
    tokio::spawn(listen(listener, Arc::new(service), limits, None, stop.clone()));
    Ok(HttpServer { address, token, endpoint, _stop: stop.drop_guard() })
}

/// The MCP server as one path of an HTTP server, which checks tokens, host names and origins.
pub struct McpEndpoint {
    service: StreamableHttpService<McpHandler, LocalSessionManager>,
    state: Arc<ServerState>,
    stop: CancellationToken,
    reload: Mutex<Option<ReloadTask>>,
}

impl McpEndpoint {
    /// Creates the endpoint. Must be called within an async runtime.
    pub fn new(homing: Arc<Homing>, options: ServerOptions) -> Self {
        let state = ServerState::new(homing, options, Audience::Many);
        let stop = CancellationToken::new();
        let service = mcp_service(state.clone(), stop.clone());
        let reload = Mutex::new(Some(state.start_reloading()));
        Self { service, state, stop, reload }
    }

    /// Responds to a request.
    pub async fn handle(&self, request: Request<Bytes>) -> HttpResponse {
        self.service.handle(request.map(Full::new)).await
    }

    /// Closes all sessions and cancels the runs of all clients. Each run records its partial result.
    pub async fn stop(&self, grace: Duration) {
        let clients = self.state.clients.all();
        self.stop.cancel();
        drop(self.reload.lock().unwrap_or_else(PoisonError::into_inner).take());
        futures::future::join_all(clients.iter().map(|client| client.end(grace))).await;
    }
}

fn mcp_service(
    state: Arc<ServerState>,
    stop: CancellationToken,
) -> StreamableHttpService<McpHandler, LocalSessionManager> {
    let mut sessions = LocalSessionManager::default();
    let mut session = SessionConfig::default();
    session.keep_alive = Some(CLIENT_TIMEOUT);
    sessions.session_config = session;
    // The guard checks host names and origins itself, more strictly.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(MAX_BODY)
        .with_cancellation_token(stop);
    let admit = move || {
        let client = state.admit().ok_or_else(|| io::Error::other("too many clients"))?;
        Ok(McpHandler { client })
    };
    StreamableHttpService::new(admit, Arc::new(sessions), config)
}

/// The endpoint behind the checks of the guard.
struct GuardedService {
    guard: RequestGuard,
    token: String,
    endpoint: Arc<McpEndpoint>,
}

impl GuardedService {
    fn check(&self, head: &Parts) -> Result<(), HttpRefusal> {
        self.guard.check_site(head)?;
        if !RequestGuard::has_bearer(head, &self.token) {
            return Err(HttpRefusal(StatusCode::UNAUTHORIZED, "missing or wrong token"));
        }
        if head.method == Method::POST {
            RequestGuard::check_json(head)?;
        }
        match head.uri.path() {
            PATH => Ok(()),
            _ => Err(HttpRefusal(StatusCode::NOT_FOUND, "not found")),
        }
    }
}

impl HttpService for GuardedService {
    fn admit(&self, head: &Parts) -> Result<Admitted, Box<HttpResponse>> {
        let refuse = |HttpRefusal(status, why)| {
            let mut response = with_status(status, why);
            if status == StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Box::new(response)
        };
        self.check(head).map_err(refuse)?;
        Ok(Admitted { has_token: true, max_body: MAX_BODY })
    }

    fn respond(&self, request: Request<Bytes>) -> BoxFuture<'_, HttpResponse> {
        Box::pin(self.endpoint.handle(request))
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &HEADERS
    }
}
