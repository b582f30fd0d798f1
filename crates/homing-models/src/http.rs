//! Sends one request, once, within five timeouts, and passes the response to a decoder.
//! Independent of wires and prices; the runtime retries.
//!
//! A general client would parse the address again for every request, and ask a stack of services for redirects, retries and cookies,
//! none of which a model call has. So it has connections of its own: HTTP/2 by hyper (`http2.rs`), HTTP/1 by `http1.rs`.

mod body;
mod connect;
mod framing;
mod http1;
#[cfg(feature = "http2")]
mod http2;
#[cfg(not(feature = "http2"))]
#[path = "http/no_http2.rs"]
mod http2;
mod pool;
mod request;

use std::{
    borrow::Cow,
    collections::HashMap,
    error::Error,
    fmt,
    io::{self, ErrorKind},
    mem,
    pin::pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, SystemTime},
};

use homing_core::model::{ModelError, OnDelta};
use http::{
    HeaderMap, Method, StatusCode, Uri,
    header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue, USER_AGENT},
};
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::rustls::ClientConfig;

use body::Response;
use connect::Proxy;
pub(crate) use pool::Endpoint;
pub(crate) use request::Request;

use crate::{
    classify_error::{self, ErrorBody, shortened},
    event_reader::{EventReader, SizeLimits, too_large},
    timeouts::{Deadline, StreamTimers, Timeouts, no_response},
    url::Url,
    wire::{Decoder, StreamProgress},
};

/// Maximum number of bytes to read of an error response.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// Time to wait for the end of the body once the reply is complete.
const BODY_END_WAIT: Duration = Duration::from_millis(50);

/// Maximum number of bytes of a list of models.
const MAX_LIST: usize = 8 << 20;

/// Time for a server to list its models.
const LIST_WAIT: Duration = Duration::from_secs(3);

/// The HTTP client, shared by all models of a host. It follows no redirects, so that a key is never sent to a host that the user
/// did not configure.
pub(crate) struct Http {
    pub(crate) timeouts: Timeouts,
    proxy: Result<Option<Proxy>, String>,
    connector: HttpConnector,
    /// Made for the first connection that is encrypted, because loading root certificates takes time.
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    origins: Mutex<HashMap<Uri, Arc<pool::Origin>>>,
    #[cfg(feature = "genai")]
    pub(crate) genai: crate::genai::GenaiHttp,
}

impl Http {
    pub(crate) fn new(timeouts: Timeouts, proxy: Option<String>) -> Self {
        Self {
            timeouts,
            proxy: proxy.as_deref().map(Proxy::new).transpose(),
            connector: connect::tcp_connector(&timeouts),
            tls: OnceLock::new(),
            origins: Mutex::default(),
            #[cfg(feature = "genai")]
            genai: crate::genai::GenaiHttp::new(timeouts, proxy),
        }
    }

    fn proxy(&self) -> Result<&Option<Proxy>, TransportError> {
        self.proxy.as_ref().map_err(|why| TransportError::setup(why.clone()))
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        self.tls.get_or_init(connect::tls_config).clone()
    }

    /// The connections to `origin`, which all models there share.
    fn origin(&self, origin: &Uri) -> Arc<pool::Origin> {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        origins.entry(origin.clone()).or_insert_with(|| Arc::new(pool::Origin::new(origin.clone()))).clone()
    }
}

/// The headers of every request to `url`.
pub(crate) fn base_headers(url: &Url) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("homing/", env!("CARGO_PKG_VERSION"))));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    if let Some(value) = connect::basic_auth(url) {
        headers.insert(AUTHORIZATION, value);
    }
    headers
}

/// A provider and its address, for error messages.
pub(crate) struct Peer(String);

impl Peer {
    /// `provider` at the origin of `url`, if that is known.
    pub(crate) fn new(provider: &str, url: Option<&Url>) -> Self {
        match url {
            Some(url) => Self(format!("{provider} at {}", url.origin())),
            None => Self(provider.to_owned()),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A request that is ready to be sent.
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) peer: &'a Peer,
    pub(crate) request: Request<'a>,
    pub(crate) time_left: Option<Duration>,
    /// The output tokens that it permits.
    pub(crate) max_output: u64,
}

/// Sends a request once and reads the response to its end. The future of each call in flight is as large as all that it owns, and
/// what is passed by value is kept twice, so the request and the decoder are borrowed.
pub(crate) async fn exchange(
    http: &Http,
    timeouts: &Timeouts,
    outgoing: &mut OutgoingRequest<'_>,
    decoder: &mut Decoder,
    on_delta: OnDelta<'_>,
) -> Result<(), ExchangeError> {
    let (mut deadline, peer) = (Deadline::new(outgoing.time_left), outgoing.peer);
    let limits = SizeLimits::for_output(outgoing.max_output);
    decoder.limit(outgoing.max_output);
    let response = match open(http, timeouts, outgoing, &mut deadline).await {
        Ok(response) => response,
        Err(refusal) if decoder.take_failed_attempt(&refusal.body) => return Ok(()),
        Err(refusal) => return Err(ExchangeError::Unanswered(refusal.error)),
    };
    let mut body = ResponseBody { response, peer, deadline, limits, timers: StreamTimers::new(timeouts) };
    body.read(decoder, on_delta).await.map_err(ExchangeError::Interrupted)
}

/// A request without a complete reply.
pub(crate) enum ExchangeError {
    /// There was no reply.
    Unanswered(ModelError),
    /// The reply broke off.
    Interrupted(ModelError),
}

/// Gets the document at `url`, within a few seconds.
pub(crate) async fn fetch(http: &Http, url: &Url, peer: &Peer, headers: HeaderMap) -> Result<Vec<u8>, ModelError> {
    let endpoint = Endpoint::new(http, url)
        .map_err(|why| ModelError::Unusable { reason: format!("cannot send the request to {peer}: {why}") })?;
    let until = Instant::now() + LIST_WAIT;
    let mut deadline = Deadline::new(None);
    let late = || no_response(peer, LIST_WAIT);
    let (method, headers) = (Method::GET, Cow::Owned(headers));
    let mut request = Request { method, headers, idempotency_key: None, body: bytes::Bytes::new() };
    let sending = endpoint.send(http, &mut request);
    let mut response = deadline.until(until, late, sending).await?.map_err(|error| transport(&error, peer))?;
    let status = response.status;
    if !status.is_success() {
        let reason = format!("{peer} responded with {status}");
        // A key that may not list models (403) may still be good for replies.
        let is_refused = status == StatusCode::UNAUTHORIZED;
        return Err(if is_refused { ModelError::Unauthorized { reason } } else { ModelError::Unusable { reason } });
    }
    let mut body = Vec::new();
    while deadline.until(until, late, response.advance()).await?.map_err(|error| transport(&error, peer))? {
        body.extend_from_slice(response.piece());
        if body.len() > MAX_LIST {
            return Err(too_large(MAX_LIST));
        }
    }
    Ok(body)
}

/// A request that was not answered by a reply.
struct Refusal {
    error: ModelError,
    /// The body of the error response; empty if there was none.
    body: Vec<u8>,
}

impl From<ModelError> for Refusal {
    fn from(error: ModelError) -> Self {
        Self { error, body: Vec::new() }
    }
}

async fn open(
    http: &Http,
    timeouts: &Timeouts,
    outgoing: &mut OutgoingRequest<'_>,
    deadline: &mut Deadline,
) -> Result<Response, Refusal> {
    let wait = timeouts.connect + timeouts.headers;
    let sending = pin!(outgoing.endpoint.send(http, &mut outgoing.request));
    let late = || no_response(outgoing.peer, wait);
    let response = deadline.until(Instant::now() + wait, late, sending).await?;
    let response = response.map_err(|error| transport(&error, outgoing.peer))?;
    if response.status.is_success() {
        return Ok(response);
    }
    Err(Box::pin(refusal(response, timeouts, deadline)).await)
}

async fn refusal(mut response: Response, timeouts: &Timeouts, deadline: &mut Deadline) -> Refusal {
    let status = response.status.as_u16();
    let mut body = Vec::new();
    let until = Instant::now() + timeouts.headers;
    // The status is enough to classify the error, so a body that is missing or cut is not an error of its own.
    while let Ok(Ok(true)) = deadline.until(until, String::new, response.advance()).await {
        body.extend_from_slice(response.piece());
        if body.len() > MAX_ERROR_BODY {
            body.truncate(MAX_ERROR_BODY);
            break;
        }
    }
    if (300..400).contains(&status) {
        let reason =
            format!("HTTP {status}: the provider redirects to another address, and redirects are not followed");
        return ModelError::Unusable { reason }.into();
    }
    let headers = &response.headers;
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let error = ErrorBody { status, header: &header, body: &body, now: SystemTime::now() };
    Refusal { error: classify_error::from_status(&error), body }
}

/// The form of a response body.
#[derive(Clone, Copy)]
enum BodyKind {
    Events,
    /// Events in AWS's framing.
    Frames,
    Whole,
}

/// A successful response whose body is being read.
struct ResponseBody<'a> {
    response: Response,
    peer: &'a Peer,
    deadline: Deadline,
    limits: SizeLimits,
    timers: StreamTimers<'a>,
}

impl ResponseBody<'_> {
    async fn read(&mut self, decoder: &mut Decoder, on_delta: OnDelta<'_>) -> Result<(), ModelError> {
        let content_type = mem::take(&mut self.response.content_type);
        if !self.advance().await? {
            return Err(ModelError::Broken { reason: "the response is empty".into() });
        }
        let (kind, head) = match declared(&content_type) {
            Some(kind) => (kind, Vec::new()),
            // Boxed, because few responses have no type or a wrong one.
            None => Box::pin(self.sniffed(&content_type)).await?,
        };
        match kind {
            BodyKind::Events => self.read_events(EventReader::new(self.limits), head, decoder, on_delta).await,
            BodyKind::Frames => self.read_events(EventReader::of_frames(self.limits), head, decoder, on_delta).await,
            // Boxed, because few responses are.
            BodyKind::Whole => Box::pin(self.read_whole(head, decoder, on_delta)).await,
        }
    }

    /// Reads until the first bytes tell the form of the body; returns it and the bytes.
    async fn sniffed(&mut self, content_type: &str) -> Result<(BodyKind, Vec<u8>), ModelError> {
        let mut head = Vec::new();
        loop {
            head.extend_from_slice(self.response.piece());
            match sniff(&head) {
                Some(Ok(kind)) => return Ok((kind, head)),
                Some(Err(())) => return Err(not_an_api(content_type, &head)),
                None => (),
            }
            if !self.advance().await? {
                return Err(not_an_api(content_type, &head));
            }
        }
    }

    async fn read_whole(
        &mut self,
        mut body: Vec<u8>,
        decoder: &mut Decoder,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ModelError> {
        while self.advance().await? {
            body.extend_from_slice(self.response.piece());
            if body.len() > self.limits.event {
                return Err(too_large(self.limits.event));
            }
        }
        decoder.push_whole(&body, &mut |delta| on_delta(delta))?;
        decoder.check_length()
    }

    /// Reads events. They begin with `head` if it is not empty, or else with the current piece of the body.
    async fn read_events(
        &mut self,
        mut events: EventReader,
        mut head: Vec<u8>,
        decoder: &mut Decoder,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ModelError> {
        loop {
            let piece = if head.is_empty() { self.response.piece() } else { &head };
            let progress = events.push(piece, decoder, on_delta)?;
            head = Vec::new();
            if progress == StreamProgress::Over {
                // A connection is reused only if its body was read to the end, which follows at once.
                if !self.response.has_ended() {
                    let _end = timeout_at(Instant::now() + BODY_END_WAIT, self.response.advance()).await;
                }
                return Ok(());
            }
            self.timers.note(progress);
            match self.advance().await {
                Ok(true) => (),
                Ok(false) => return events.finish(decoder, on_delta),
                // Nothing but the usage can be missing from a complete reply.
                Err(ModelError::Broken { .. }) if self.timers.is_whole => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the next piece of the body; returns whether there is one.
    async fn advance(&mut self) -> Result<bool, ModelError> {
        let late = || self.timers.message(self.peer);
        let advanced = self.deadline.until(self.timers.until, late, pin!(self.response.advance())).await?;
        advanced.map_err(|error| transport(&error, self.peer))
    }
}

/// The form of a body of this type, if the type alone decides.
fn declared(content_type: &str) -> Option<BodyKind> {
    if content_type.starts_with("text/event-stream") {
        return Some(BodyKind::Events);
    }
    content_type.starts_with("application/vnd.amazon.eventstream").then_some(BodyKind::Frames)
}

/// Detects the form of a body by its first bytes; `None` while there are too few of them.
fn sniff(head: &[u8]) -> Option<Result<BodyKind, ()>> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    match text.first()? {
        b'{' | b'[' => Some(Ok(BodyKind::Whole)),
        _ if text.len() < 6 => None,
        b':' => Some(Ok(BodyKind::Events)),
        _ if text.starts_with(b"data:") || text.starts_with(b"event:") || text.starts_with(b"id:") => {
            Some(Ok(BodyKind::Events))
        }
        _ => Some(Err(())),
    }
}

fn not_an_api(content_type: &str, head: &[u8]) -> ModelError {
    let start = String::from_utf8_lossy(&head[..head.len().min(200)]).into_owned();
    ModelError::Unusable {
        reason: format!("unexpected response of type `{content_type}`: {}; check the base URL", shortened(&start)),
    }
}

/// A request that failed before its response was read to the end.
#[derive(Debug)]
pub(crate) struct TransportError {
    pub(crate) phase: Phase,
    pub(crate) source: Box<dyn Error + Send + Sync>,
}

/// The phase in which a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing could be sent, whatever the peer does.
    Setup,
    /// No connection was established.
    Connect,
    /// The connection was lost.
    Exchange,
}

impl TransportError {
    fn setup(source: String) -> Self {
        Self { phase: Phase::Setup, source: source.into() }
    }

    fn connect(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { phase: Phase::Connect, source: source.into() }
    }

    fn lost(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { phase: Phase::Exchange, source: source.into() }
    }
}

/// Classifies a failed connection to `peer`.
fn transport(error: &TransportError, peer: &Peer) -> ModelError {
    failed(error.phase, Some(&*error.source), peer)
}

/// Classifies a failed connection to `peer` by its phase and its cause.
pub(crate) fn failed(phase: Phase, cause: Option<&(dyn Error + 'static)>, peer: &Peer) -> ModelError {
    let why = reasons(cause);
    if why.contains("certificate") || why.contains("UnknownIssuer") {
        return ModelError::Unusable { reason: format!("cannot verify the TLS certificate of {peer}: {why}") };
    }
    match phase {
        Phase::Setup => ModelError::Unusable { reason: format!("cannot send the request to {peer}: {why}") },
        Phase::Connect => ModelError::Broken { reason: format!("cannot connect to {peer}: {why}") },
        Phase::Exchange => ModelError::Broken { reason: format!("lost the connection to {peer}: {why}") },
    }
}

/// The innermost reasons of an error, without the address.
pub(crate) fn reasons(mut next: Option<&(dyn Error + 'static)>) -> String {
    let mut reasons = Vec::new();
    while let Some(inner) = next {
        if let Some(reason) = inner.downcast_ref::<io::Error>().and_then(socket_error) {
            return reason;
        }
        reasons.push(inner.to_string());
        next = inner.source();
    }
    reasons.dedup();
    match reasons.len() {
        0 => "the request failed".to_owned(),
        len => shortened(&reasons[len.saturating_sub(2)..].join(": ")),
    }
}

/// A plain description of a common socket error, without its number.
fn socket_error(error: &io::Error) -> Option<String> {
    let is_common = matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::BrokenPipe
    );
    is_common.then(|| error.kind().to_string())
}
