//! One request, one attempt, five clocks. It moves bytes between a socket and a decoder and knows neither wires nor prices.

use std::{
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

/// What is read of an answer that is no success.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// How long the end of a body is waited for when the reply is over.
const LAST_BREATH: Duration = Duration::from_millis(50);

/// How long each phase of a call may take. The total is the run's, and comes with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Duration,
    /// From then until the response's headers.
    pub headers: Duration,
    /// From the headers to the first content.
    pub first_content: Duration,
    /// Between events that carry content; pings, comments and blanks do not count.
    pub idle: Duration,
    /// For the figures that may follow a reply that is already whole.
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
    /// These clocks, for a provider whose answers may take `patience` to begin.
    pub(crate) fn with_patience(self, patience: Option<Duration>) -> Self {
        let longer = |clock: Duration| patience.map_or(clock, |it| it.max(clock));
        Self { headers: longer(self.headers), first_content: longer(self.first_content), ..self }
    }
}

impl Timeouts {
    /// These clocks, for answers of this kind: one that is not streamed begins when it is finished.
    pub(crate) fn for_delivery(self, delivery: Delivery) -> Self {
        match delivery {
            Delivery::Streamed => self,
            Delivery::Whole => Self { headers: self.headers * 10, ..self },
        }
    }

    /// These clocks, for a request that asks for hard thinking: some providers hide it, and send nothing meanwhile.
    pub(crate) fn for_effort(self, effort: Option<Effort>) -> Self {
        let times = match effort {
            None | Some(Effort::None | Effort::Minimal | Effort::Low | Effort::Medium) => return self,
            Some(Effort::High) => 3,
            Some(Effort::Xhigh | Effort::Max) => 6,
        };
        Self {
            headers: self.headers * times,
            first_content: self.first_content * times,
            idle: self.idle * times,
            ..self
        }
    }
}

/// The connections, shared by every model of a host.
pub(crate) struct Http {
    pub(crate) clocks: Timeouts,
    proxy: Option<String>,
    client: OnceLock<Result<Client, String>>,
}

impl Http {
    /// Connections that are opened when they are first needed: loading root certificates takes time.
    pub(crate) fn new(clocks: Timeouts, proxy: Option<String>) -> Self {
        Self { clocks, proxy, client: OnceLock::new() }
    }

    /// The client. Redirects are not followed, so that a key never travels to a host that its owner did not name.
    pub(crate) fn client(&self) -> Result<&Client, ModelError> {
        let made = self.client.get_or_init(|| self.make().map_err(|error| cause(&error)));
        made.as_ref().map_err(|why| ModelError::Unusable { reason: format!("cannot set up connections: {why}") })
    }

    fn make(&self) -> Result<Client, reqwest::Error> {
        let builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            // One call is one attempt; the runtime repeats, counts and pays.
            .retry(reqwest::retry::never())
            .connect_timeout(self.clocks.connect)
            .tcp_nodelay(true)
            .user_agent(concat!("homing/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        match &self.proxy {
            None => builder.build(),
            Some(url) => builder.proxy(reqwest::Proxy::all(url)?).build(),
        }
    }
}

/// What is sent.
pub(crate) struct Outgoing<'a> {
    pub(crate) url: &'a Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) time_left: Option<Duration>,
}

/// Sends a request once and reads the answer to its end.
pub(crate) async fn exchange(
    http: &Http,
    clocks: &Timeouts,
    outgoing: Outgoing<'_>,
    mut decoder: Decoder,
    on_delta: OnDelta<'_>,
) -> Result<Reply, AskFailure> {
    let deadline = Deadline::new(outgoing.time_left);
    let response = match open(http, clocks, outgoing, &deadline).await {
        Ok(response) => response,
        Err(error) => return Err(AskFailure::free(error)),
    };
    match read(response, clocks, &deadline, &mut decoder, on_delta).await {
        Ok(()) => decoder.finish(),
        Err(error) => Err(decoder.fail(error)),
    }
}

async fn open(
    http: &Http,
    clocks: &Timeouts,
    outgoing: Outgoing<'_>,
    deadline: &Deadline,
) -> Result<Response, ModelError> {
    let mut request = reqwest::Request::new(Method::POST, outgoing.url.clone());
    *request.headers_mut() = outgoing.headers;
    *request.body_mut() = Some(outgoing.body.into());
    let wait = clocks.connect + clocks.headers;
    let sending = http.client()?.execute(request);
    let sent = deadline.until(Instant::now() + wait, "no answer began in time", sending).await?;
    let response = sent.map_err(|error| transport(&error))?;
    if response.status().is_success() {
        return Ok(response);
    }
    Err(refused(response, clocks, deadline).await)
}

async fn refused(mut response: Response, clocks: &Timeouts, deadline: &Deadline) -> ModelError {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    let until = Instant::now() + clocks.headers;
    // The status says enough: a body that does not come, or breaks off, changes nothing.
    while let Ok(Ok(Some(chunk))) = deadline.until(until, "", response.chunk()).await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ERROR_BODY {
            body.truncate(MAX_ERROR_BODY);
            break;
        }
    }
    if (300..400).contains(&status) {
        let reason = format!("HTTP {status}: the provider redirects elsewhere, and a key is not sent after it");
        return ModelError::Unusable { reason };
    }
    let headers = response.headers();
    let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).map(str::to_owned);
    classify_error::from_status(&ErrorBody { status, header: &header, body: &body, now: SystemTime::now() })
}

/// What a body turns out to be.
enum Body {
    Events,
    Whole,
}

async fn read(
    mut response: Response,
    clocks: &Timeouts,
    deadline: &Deadline,
    decoder: &mut Decoder,
    on_delta: OnDelta<'_>,
) -> Result<(), ModelError> {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
    let mut watch = StreamTimers::new(clocks);
    let mut head = Vec::new();
    // A server may forget or mistake the type; the first bytes tell.
    let body = loop {
        let Some(chunk) = next(&mut response, deadline, &watch).await? else {
            return match head.is_empty() {
                true => Err(ModelError::Broken { reason: "the answer is empty".into() }),
                false => Err(foreign(&kind, &head)),
            };
        };
        head.extend_from_slice(&chunk);
        if kind.starts_with("text/event-stream") {
            break Body::Events;
        }
        match sniff(&head) {
            Some(Ok(body)) => break body,
            Some(Err(())) => return Err(foreign(&kind, &head)),
            None => (),
        }
    };
    match body {
        Body::Events => read_events(response, head, deadline, &mut watch, decoder, on_delta).await,
        Body::Whole => read_whole(response, head, deadline, &watch, decoder, on_delta).await,
    }
}

/// `None` while too little has come to tell.
fn sniff(head: &[u8]) -> Option<Result<Body, ()>> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    match text.first()? {
        b'{' | b'[' => Some(Ok(Body::Whole)),
        _ if text.len() < 6 => None,
        b':' => Some(Ok(Body::Events)),
        _ if text.starts_with(b"data:") || text.starts_with(b"event:") || text.starts_with(b"id:") => {
            Some(Ok(Body::Events))
        }
        _ => Some(Err(())),
    }
}

fn foreign(kind: &str, head: &[u8]) -> ModelError {
    let start = String::from_utf8_lossy(&head[..head.len().min(200)]).into_owned();
    ModelError::Unusable {
        reason: format!("the address gives no API answer but `{kind}`: {} (is the base URL right?)", shortened(&start)),
    }
}

async fn read_whole(
    mut response: Response,
    mut body: Vec<u8>,
    deadline: &Deadline,
    watch: &StreamTimers<'_>,
    decoder: &mut Decoder,
    on_delta: OnDelta<'_>,
) -> Result<(), ModelError> {
    while let Some(chunk) = next(&mut response, deadline, watch).await? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_BODY {
            return Err(too_large());
        }
    }
    decoder.push_whole(&body, &mut |delta| on_delta(delta))
}

async fn read_events(
    mut response: Response,
    head: Vec<u8>,
    deadline: &Deadline,
    watch: &mut StreamTimers<'_>,
    decoder: &mut Decoder,
    on_delta: OnDelta<'_>,
) -> Result<(), ModelError> {
    let mut events = EventReader::default();
    let mut chunk = bytes::Bytes::from(head);
    loop {
        let progress = events.push(&chunk, decoder, on_delta)?;
        if progress == StreamProgress::Over {
            // A body that is read to its end gives its connection back; the end is due at once.
            let _end = timeout_at(Instant::now() + LAST_BREATH, response.chunk()).await;
            return Ok(());
        }
        watch.note(progress);
        chunk = match next(&mut response, deadline, watch).await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return events.finish(decoder, on_delta),
            // Only figures can be missing from a whole reply.
            Err(ModelError::Broken { .. }) if watch.is_whole => return Ok(()),
            Err(error) => return Err(error),
        };
    }
}

async fn next(
    response: &mut Response,
    deadline: &Deadline,
    watch: &StreamTimers<'_>,
) -> Result<Option<bytes::Bytes>, ModelError> {
    let chunk = deadline.until(watch.until, watch.complaint(), response.chunk()).await?;
    chunk.map_err(|error| transport(&error))
}

/// When the provider has been silent for too long.
pub(crate) struct StreamTimers<'a> {
    clocks: &'a Timeouts,
    pub(crate) until: Instant,
    has_content: bool,
    is_whole: bool,
}

impl<'a> StreamTimers<'a> {
    pub(crate) fn new(clocks: &'a Timeouts) -> Self {
        Self { clocks, until: Instant::now() + clocks.first_content, has_content: false, is_whole: false }
    }

    pub(crate) fn note(&mut self, progress: StreamProgress) {
        match progress {
            StreamProgress::None | StreamProgress::Over => (),
            StreamProgress::Content => {
                self.has_content = true;
                self.until = Instant::now() + self.clocks.idle;
            }
            StreamProgress::Whole if self.is_whole => (),
            StreamProgress::Whole => {
                self.is_whole = true;
                self.until = Instant::now() + self.clocks.tail;
            }
        }
    }

    pub(crate) fn complaint(&self) -> &'static str {
        if self.has_content { "the stream went silent" } else { "no content came in time" }
    }
}

/// The run's own end of time.
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) fn new(time_left: Option<Duration>) -> Self {
        Self(time_left.and_then(|left| Instant::now().checked_add(left)))
    }

    /// Waits until `until` at most, or until the run's time is up.
    pub(crate) async fn until<T>(
        &self,
        until: Instant,
        complaint: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, ModelError> {
        let limit = self.0.map_or(until, |end| end.min(until));
        // A socket that always has something to read never lets a timer speak, so the clock is read as well.
        let late = Instant::now() >= limit;
        let done = if late { None } else { timeout_at(limit, work).await.ok() };
        done.ok_or_else(|| match self.0 {
            Some(end) if end <= until => ModelError::OutOfTime,
            Some(_) | None => ModelError::Broken { reason: complaint.to_owned() },
        })
    }
}

/// What a failing connection means.
pub(crate) fn transport(error: &reqwest::Error) -> ModelError {
    let why = cause(error);
    if why.contains("certificate") || why.contains("UnknownIssuer") {
        return ModelError::Unusable { reason: format!("the provider cannot be trusted: {why}") };
    }
    if error.is_builder() {
        return ModelError::Unusable { reason: format!("the request cannot be sent: {why}") };
    }
    ModelError::Broken { reason: if error.is_connect() { format!("cannot connect: {why}") } else { why } }
}

/// The innermost reasons of an error, without the address.
fn cause(error: &reqwest::Error) -> String {
    let mut reasons = Vec::new();
    let mut at = std::error::Error::source(error);
    while let Some(inner) = at {
        reasons.push(inner.to_string());
        at = inner.source();
    }
    reasons.dedup();
    match reasons.len() {
        0 => "the request failed".to_owned(),
        len => shortened(&reasons[len.saturating_sub(2)..].join(": ")),
    }
}
