//! Serves clients over streamable HTTP, with strict limits on connections, request sizes and times.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use homing::Homing;
use http_body_util::{BodyExt, Full, Limited, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Incoming},
    header::{CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::local::{LocalSessionManager, SessionConfig},
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    connections::{ConnectionSlot, Connections},
    guard::{self, HttpRefusal, RequestGuard},
    handler::McpHandler,
    options::ServerOptions,
    server_state::{Audience, ReloadTask, ServerState},
};

/// Maximum size of a request's body in bytes.
const MAX_BODY: usize = 1 << 20;

/// Maximum size of a request's head in bytes.
const MAX_HEAD: usize = 16 << 10;

/// Time limit for the head of a request, and again for its body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without a request after which a client counts as disconnected. Runs last at most an hour by default, and a client
/// that started one in the background may be silent meanwhile.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);

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
    state: Arc<ServerState>,
    _reload: ReloadTask,
    _stop: DropGuard,
}

impl HttpServer {
    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, guard::PATH)
    }

    /// Returns the access token, which is new at every start. Clients send it as `Authorization: Bearer …`.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Stops listening and cancels the runs of all clients. Each run records its partial result.
    pub async fn stop(self, grace: Duration) {
        let clients = self.state.clients.all();
        drop(self._stop);
        futures::future::join_all(clients.iter().map(|client| client.end(grace))).await;
    }
}

type McpService = StreamableHttpService<McpHandler, LocalSessionManager>;

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
    if !guard::is_loopback(address.ip()) && !http.public {
        return Err(ServeError::Public(address));
    }
    let no_port = |error| ServeError::NoPort(address, error);
    let listener = TcpListener::bind(address).await.map_err(no_port)?;
    let address = listener.local_addr().map_err(no_port)?;
    let token = guard::fresh_token();
    let state = ServerState::new(homing, options, Audience::Many);
    let stop = CancellationToken::new();
    let service = Arc::new(GuardedService {
        guard: RequestGuard::new(address, &http.hosts, &token),
        service: mcp_service(state.clone(), stop.clone()),
    });
    tokio::spawn(listen(listener, service, stop.clone()));
    Ok(HttpServer { address, token, _reload: state.start_reloading(), state, _stop: stop.drop_guard() })
}

fn mcp_service(state: Arc<ServerState>, stop: CancellationToken) -> McpService {
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

async fn listen(listener: TcpListener, service: Arc<GuardedService>, stop: CancellationToken) {
    let counted = Connections::new();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Most likely out of file descriptors, which other connections will release.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        connections.spawn(service.clone().serve(stream, counted.add()));
    }
    connections.shutdown().await;
}

/// The protocol service behind the checks of the guard.
struct GuardedService {
    guard: RequestGuard,
    service: McpService,
}

type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

impl GuardedService {
    async fn serve(self: Arc<Self>, stream: TcpStream, slot: ConnectionSlot) {
        let slot = &slot;
        let respond = service_fn(|request| {
            let service = self.clone();
            async move { Ok::<_, Infallible>(service.respond(request, slot).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(READ_TIMEOUT)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), respond);
        // A connection that breaks needs no report here.
        tokio::select! {
            _ = connection => (),
            () = slot.evicted() => (),
        }
    }

    async fn respond(&self, request: Request<Incoming>, slot: &ConnectionSlot) -> HttpResponse {
        let mut response = match self.admit(request, slot).await {
            Ok(request) => self.service.handle(request).await,
            Err(refusal) => refused(refusal),
        };
        for (name, value) in guard::HEADERS {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
    }

    /// Checks the head of a request, then reads its body.
    async fn admit(
        &self,
        request: Request<Incoming>,
        slot: &ConnectionSlot,
    ) -> Result<Request<Full<Bytes>>, HttpRefusal> {
        let (head, body) = request.into_parts();
        self.guard.admit(&head)?;
        slot.has_token().await;
        let body = tokio::time::timeout(READ_TIMEOUT, read_body(body));
        let late = |_| HttpRefusal(StatusCode::REQUEST_TIMEOUT, "the request body took too long");
        Ok(Request::from_parts(head, Full::new(body.await.map_err(late)??)))
    }
}

async fn read_body(body: Incoming) -> Result<Bytes, HttpRefusal> {
    let too_large = HttpRefusal(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large");
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large);
    }
    Limited::new(body, MAX_BODY).collect().await.map(|body| body.to_bytes()).map_err(|_| too_large)
}

fn refused(HttpRefusal(status, why): HttpRefusal) -> HttpResponse {
    let mut response = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
