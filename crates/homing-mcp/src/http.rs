//! Serves clients over streamable HTTP on a port of this machine: few connections, small requests, little patience.

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
    sync::Semaphore,
    task::JoinSet,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    guard::{self, Guard, HttpRefusal},
    handler::Handler,
    options::ServerOptions,
    server_state::{ServerState, Watch},
};

/// Connections at once; the next one waits until one is closed.
const CONNECTIONS: usize = 64;

/// The largest request.
const BODY: usize = 1 << 20;

/// The largest head of a request.
const HEAD: usize = 16 << 10;

/// How long a client may take for the head of a request, and again for its body.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client that shows no sign of life for so long is gone, and its runs with it. Runs last an hour at most by default, and a
/// client that sent one out in the background may be silent meanwhile.
const SILENCE: Duration = Duration::from_secs(2 * 60 * 60);

/// How a server is reached.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Whether other machines may connect. Without it an address that they could reach is refused.
    pub public: bool,
    /// Names, with their port, by which clients call it besides its address: `agents.example:443`.
    pub hosts: Vec<String>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Other machines could reach it.
    #[error("{0} can be reached from other machines: use 127.0.0.1, or say --bind-public if that is what you want")]
    Public(SocketAddr),
    /// The port cannot be had.
    #[error("cannot listen on {0}: {1}")]
    NoPort(SocketAddr, io::Error),
}

/// A server that runs. Dropping it stops it.
pub struct HttpServer {
    address: SocketAddr,
    token: String,
    served: Arc<ServerState>,
    _watch: Watch,
    _stop: DropGuard,
}

impl HttpServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address that clients are given.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, guard::PATH)
    }

    /// The secret of this start; clients send it as `Authorization: Bearer …`.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Stops listening, and ends everything that clients started, each run with its result.
    pub async fn stop(self, grace: Duration) {
        let clients = self.served.present.all();
        drop(self._stop);
        futures::future::join_all(clients.iter().map(|client| client.end(grace))).await;
    }
}

type Service = StreamableHttpService<Handler, LocalSessionManager>;

/// Serves clients over HTTP at `address`; port 0 takes any that is free.
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
    let served = ServerState::new(homing, options);
    let stop = CancellationToken::new();
    let door = Arc::new(Door {
        guard: Guard::new(address, &http.hosts, &token),
        service: service(served.clone(), stop.clone()),
    });
    tokio::spawn(listen(listener, door, stop.clone()));
    Ok(HttpServer { address, token, _watch: served.watch(), served, _stop: stop.drop_guard() })
}

fn service(served: Arc<ServerState>, stop: CancellationToken) -> Service {
    let mut sessions = LocalSessionManager::default();
    let mut session = SessionConfig::default();
    session.keep_alive = Some(SILENCE);
    sessions.session_config = session;
    // Names and origins are the guard's business, which is stricter.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_max_request_body_bytes(BODY)
        .with_cancellation_token(stop);
    let admit = move || {
        let client = served.admit().ok_or_else(|| io::Error::other("too many clients"))?;
        Ok(Handler { client })
    };
    StreamableHttpService::new(admit, Arc::new(sessions), config)
}

async fn listen(listener: TcpListener, door: Arc<Door>, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let place = room.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            it = next => it,
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors, most likely: others will be closed soon.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let door = door.clone();
        connections.spawn(async move {
            door.serve(stream).await;
            drop(place);
        });
    }
    connections.shutdown().await;
}

/// What stands between a connection and the protocol.
struct Door {
    guard: Guard,
    service: Service,
}

type HttpAnswer = Response<BoxBody<Bytes, Infallible>>;

impl Door {
    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let answer = service_fn(move |request| {
            let door = self.clone();
            async move { Ok::<_, Infallible>(door.answer(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(stream), answer);
        // A connection that breaks is its client's business.
        let _ = connection.await;
    }

    async fn answer(&self, request: Request<Incoming>) -> HttpAnswer {
        let mut answer = match self.admit(request).await {
            Ok(request) => self.service.handle(request).await,
            Err(refusal) => refused(refusal),
        };
        for (name, value) in guard::HEADERS {
            answer.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        answer
    }

    /// Reads a request whole, if it may come in.
    async fn admit(&self, request: Request<Incoming>) -> Result<Request<Full<Bytes>>, HttpRefusal> {
        let (head, body) = request.into_parts();
        self.guard.admit(&head)?;
        let body = tokio::time::timeout(PATIENCE, whole(body));
        let late = |_| HttpRefusal(StatusCode::REQUEST_TIMEOUT, "the body took too long");
        Ok(Request::from_parts(head, Full::new(body.await.map_err(late)??)))
    }
}

async fn whole(body: Incoming) -> Result<Bytes, HttpRefusal> {
    let too_large = HttpRefusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
    if body.size_hint().lower() > BODY as u64 {
        return Err(too_large);
    }
    Limited::new(body, BODY).collect().await.map(|it| it.to_bytes()).map_err(|_| too_large)
}

fn refused(HttpRefusal(status, why): HttpRefusal) -> HttpAnswer {
    let mut answer = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}
