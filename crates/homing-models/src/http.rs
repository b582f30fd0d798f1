//! Sends one request, once, within five timeouts, and passes the response to a decoder.
//! Independent of wires and prices; the runtime retries.

use std::{
    error::Error,
    fmt,
    io::{self, ErrorKind},
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use homing_core::{
    message::Reply,
    model::{AskFailure, Effort, ModelError, OnDelta},
};
use reqwest::{
    Client, Method, Response, Url,
    header::{CONTENT_TYPE, HeaderMap},
};
use tokio::time::{Instant, timeout_at};

use crate::{
    classify_error::{self, ErrorBody, shortened},
    event_reader::{EventReader, MAX_BODY, too_large},
    wire::{Decoder, Delivery, StreamProgress},
};

/// Maximum number of bytes to read of an error response.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// Time to wait for the end of the body once the reply is complete.
const BODY_END_WAIT: Duration = Duration::from_millis(50);

/// The message for a response that has not begun in time.
pub(crate) const NO_RESPONSE: &str = "timed out waiting for a response";

/// Timeouts for the phases of a model call. The total is limited by the run's remaining time, which is part of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection is established.
    pub connect: Duration,
    /// From the connection to the response headers.
    pub headers: Duration,
    /// From the headers to the first content.
    pub first_content: Duration,
    /// Between events that carry content; pings, comments and whitespace do not count.
    pub idle: Duration,
    /// For the usage that may follow a complete reply.
    pub tail: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            headers: Duration::from_secs(60),
            first_content: Duration::from_secs(120),
            idle: Duration::from_secs(90),
            tail: Duration::from_secs(5),
        }
    }
}

impl Timeouts {
    /// Extends the timeouts for a provider whose replies may take `patience` to begin.
    pub(crate) fn with_patience(self, patience: Option<Duration>) -> Self {
        let longer = |timeout: Duration| patience.map_or(timeout, |patience| patience.max(timeout));
        Self { headers: longer(self.headers), first_content: longer(self.first_content), ..self }
    }

    /// Extends the timeouts for `delivery`: a response that is not streamed begins when the reply is complete.
    pub(crate) fn for_delivery(self, delivery: Delivery) -> Self {
        match delivery {
            Delivery::Streamed => self,
            Delivery::Whole => Self { headers: self.headers * 10, ..self },
        }
    }

    /// Extends the timeouts for `effort`: some providers send nothing while the model reasons.
    pub(crate) fn for_effort(self, effort: Option<Effort>) -> Self {
        let factor = match effort {
            None | Some(Effort::None | Effort::Minimal | Effort::Low | Effort::Medium) => return self,
            Some(Effort::High) => 3,
            Some(Effort::Xhigh | Effort::Max) => 6,
        };
        Self {
            headers: self.headers * factor,
            first_content: self.first_content * factor,
            idle: self.idle * factor,
            ..self
        }
    }
}

/// The HTTP client, shared by all models of a host.
pub(crate) struct Http {
    pub(crate) timeouts: Timeouts,
    proxy: Option<String>,
    client: OnceLock<Result<Client, String>>,
}

impl Http {
    /// Creates a client that is built on first use, because loading root certificates takes time.
    pub(crate) fn new(timeouts: Timeouts, proxy: Option<String>) -> Self {
        Self { timeouts, proxy, client: OnceLock::new() }
    }

    /// The client. It follows no redirects, so that a key is never sent to a host that the user did not configure.
    pub(crate) fn client(&self) -> Result<&Client, ModelError> {
        let client = self.client.get_or_init(|| self.build().map_err(|error| cause(&error)));
        client.as_ref().map_err(|why| ModelError::Unusable { reason: format!("cannot set up the HTTP client: {why}") })
    }

    fn build(&self) -> Result<Client, reqwest::Error> {
        let builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            // One call is one attempt; the runtime retries and counts.
            .retry(reqwest::retry::never())
            .connect_timeout(self.timeouts.connect)
            .tcp_nodelay(true)
            .user_agent(concat!("homing/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        match &self.proxy {
            None => builder.build(),
            Some(url) => builder.proxy(reqwest::Proxy::all(url)?).build(),
        }
    }
}

/// A provider and its address, for error messages.
pub(crate) struct Peer(String);

impl Peer {
    /// `provider` at the origin of `url`, if that is known.
    pub(crate) fn new(provider: &str, url: Option<&Url>) -> Self {
        match url {
            Some(url) => Self(format!("{provider} at {}", url.origin().ascii_serialization())),
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
    pub(crate) url: &'a Url,
    pub(crate) peer: &'a Peer,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) time_left: Option<Duration>,
}

/// Sends a request once and reads the response to its end.
pub(crate) async fn exchange(
    http: &Http,
    timeouts: &Timeouts,
    outgoing: OutgoingRequest<'_>,
    mut decoder: Decoder,
    on_delta: OnDelta<'_>,
) -> Result<Reply, AskFailure> {
    let (deadline, peer) = (Deadline::new(outgoing.time_left), outgoing.peer);
    let response = match open(http, timeouts, outgoing, &deadline).await {
        Ok(response) => response,
        Err(error) => return Err(AskFailure::free(error)),
    };
    let mut body = ResponseBody { response, peer, deadline: &deadline, timers: StreamTimers::new(timeouts) };
    match body.read(&mut decoder, on_delta).await {
        Ok(()) => decoder.finish(),
        Err(error) => Err(decoder.fail(error)),
    }
}

async fn open(
    http: &Http,
    timeouts: &Timeouts,
    outgoing: OutgoingRequest<'_>,
    deadline: &Deadline,
) -> Result<Response, ModelError> {
    let mut request = reqwest::Request::new(Method::POST, outgoing.url.clone());
    *request.headers_mut() = outgoing.headers;
    *request.body_mut() = Some(outgoing.body.into());
    let wait = timeouts.connect + timeouts.headers;
    let sending = http.client()?.execute(request);
    let response = deadline.until(Instant::now() + wait, NO_RESPONSE, sending).await?;
    let response = response.map_err(|error| transport(&error, outgoing.peer))?;
    if response.status().is_success() {
        return Ok(response);
    }
    Err(refusal(response, timeouts, deadline).await)
}

async fn refusal(mut response: Response, timeouts: &Timeouts, deadline: &Deadline) -> ModelError {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    let until = Instant::now() + timeouts.headers;
    // The status is enough to classify the error, so a body that is missing or cut is not an error of its own.
    while let Ok(Ok(Some(chunk))) = deadline.until(until, "", response.chunk()).await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ERROR_BODY {
            body.truncate(MAX_ERROR_BODY);
            break;
        }
    }
    if (300..400).contains(&status) {
        let reason =
            format!("HTTP {status}: the provider redirects to another address, and redirects are not followed");
        return ModelError::Unusable { reason };
    }
    let headers = response.headers();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    classify_error::from_status(&ErrorBody { status, header: &header, body: &body, now: SystemTime::now() })
}

/// The form of a response body.
#[derive(Clone, Copy)]
enum BodyKind {
    Events,
    Whole,
}

/// A successful response whose body is being read.
struct ResponseBody<'a> {
    response: Response,
    peer: &'a Peer,
    deadline: &'a Deadline,
    timers: StreamTimers<'a>,
}

impl ResponseBody<'_> {
    async fn read(&mut self, decoder: &mut Decoder, on_delta: OnDelta<'_>) -> Result<(), ModelError> {
        let content_type = self.response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let mut head = Vec::new();
        // Some servers send no type or a wrong one, so the first bytes decide.
        let kind = loop {
            let Some(chunk) = self.next_chunk().await? else {
                if head.is_empty() {
                    return Err(ModelError::Broken { reason: "the response is empty".into() });
                }
                return Err(not_an_api(&content_type, &head));
            };
            head.extend_from_slice(&chunk);
            if content_type.starts_with("text/event-stream") {
                break BodyKind::Events;
            }
            match sniff(&head) {
                Some(Ok(kind)) => break kind,
                Some(Err(())) => return Err(not_an_api(&content_type, &head)),
                None => (),
            }
        };
        match kind {
            BodyKind::Events => self.read_events(head, decoder, on_delta).await,
            BodyKind::Whole => self.read_whole(head, decoder, on_delta).await,
        }
    }

    async fn read_whole(
        &mut self,
        mut body: Vec<u8>,
        decoder: &mut Decoder,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ModelError> {
        while let Some(chunk) = self.next_chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BODY {
                return Err(too_large());
            }
        }
        decoder.push_whole(&body, &mut |delta| on_delta(delta))
    }

    async fn read_events(
        &mut self,
        head: Vec<u8>,
        decoder: &mut Decoder,
        on_delta: OnDelta<'_>,
    ) -> Result<(), ModelError> {
        let mut events = EventReader::default();
        let mut chunk = bytes::Bytes::from(head);
        loop {
            let progress = events.push(&chunk, decoder, on_delta)?;
            if progress == StreamProgress::Over {
                // A connection is reused only if its body was read to the end, which follows at once.
                let _end = timeout_at(Instant::now() + BODY_END_WAIT, self.response.chunk()).await;
                return Ok(());
            }
            self.timers.note(progress);
            chunk = match self.next_chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return events.finish(decoder, on_delta),
                // Nothing but the usage can be missing from a complete reply.
                Err(ModelError::Broken { .. }) if self.timers.is_whole => return Ok(()),
                Err(error) => return Err(error),
            };
        }
    }

    async fn next_chunk(&mut self) -> Result<Option<bytes::Bytes>, ModelError> {
        let chunk = self.deadline.until(self.timers.until, self.timers.message(), self.response.chunk()).await?;
        chunk.map_err(|error| transport(&error, self.peer))
    }
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

/// The time by which the provider must send more content.
pub(crate) struct StreamTimers<'a> {
    timeouts: &'a Timeouts,
    pub(crate) until: Instant,
    has_content: bool,
    is_whole: bool,
}

impl<'a> StreamTimers<'a> {
    pub(crate) fn new(timeouts: &'a Timeouts) -> Self {
        Self { timeouts, until: Instant::now() + timeouts.first_content, has_content: false, is_whole: false }
    }

    pub(crate) fn note(&mut self, progress: StreamProgress) {
        match progress {
            StreamProgress::None | StreamProgress::Over => (),
            StreamProgress::Content => {
                self.has_content = true;
                self.until = Instant::now() + self.timeouts.idle;
            }
            StreamProgress::Whole if self.is_whole => (),
            StreamProgress::Whole => {
                self.is_whole = true;
                self.until = Instant::now() + self.timeouts.tail;
            }
        }
    }

    /// The message for a stream that has exceeded the timeout.
    pub(crate) fn message(&self) -> &'static str {
        if self.has_content { "the stream stopped sending content" } else { "timed out waiting for the first content" }
    }
}

/// The time at which the run's limit ends the call.
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) fn new(time_left: Option<Duration>) -> Self {
        Self(time_left.and_then(|left| Instant::now().checked_add(left)))
    }

    /// Runs `work` until it is done, until `until`, which fails with `message`, or until the run's time is up.
    pub(crate) async fn until<T>(
        &self,
        until: Instant,
        message: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, ModelError> {
        let limit = self.0.map_or(until, |end| end.min(until));
        // With a socket that is always readable, `timeout_at` never polls its timer, so the time is checked here as well.
        let is_late = Instant::now() >= limit;
        let done = if is_late { None } else { timeout_at(limit, work).await.ok() };
        done.ok_or_else(|| match self.0 {
            Some(end) if end <= until => ModelError::OutOfTime,
            Some(_) | None => ModelError::Broken { reason: message.to_owned() },
        })
    }
}

/// Classifies a failed connection to `peer`.
pub(crate) fn transport(error: &reqwest::Error, peer: &Peer) -> ModelError {
    let why = cause(error);
    if why.contains("certificate") || why.contains("UnknownIssuer") {
        return ModelError::Unusable { reason: format!("cannot verify the TLS certificate of {peer}: {why}") };
    }
    if error.is_builder() {
        return ModelError::Unusable { reason: format!("cannot send the request to {peer}: {why}") };
    }
    ModelError::Broken { reason: if error.is_connect() { format!("cannot connect to {peer}: {why}") } else { why } }
}

/// The innermost reasons of an error, without the address.
fn cause(error: &reqwest::Error) -> String {
    let mut reasons = Vec::new();
    let mut next = error.source();
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
