//! Accepts connections and requests within strict limits, and passes them to a host's service.

use std::{convert::Infallible, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Incoming},
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
    http::request::Parts,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::connections::{ConnectionLimits, ConnectionSlot, Connections};

/// Maximum size of a request's head in bytes.
const MAX_HEAD: usize = 16 << 10;

/// Time limit for the TLS handshake, for the head of a request, and again for its body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A future of the service.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The body of a response. It never fails: a stream that cannot continue ends.
pub type HttpBody = BoxBody<Bytes, Infallible>;

/// A response.
pub type HttpResponse = Response<HttpBody>;

/// Returns a response with a whole body.
pub fn full(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns a response with a line of text.
pub fn with_status(status: StatusCode, text: &str) -> HttpResponse {
    full(status, "text/plain; charset=utf-8", Bytes::copy_from_slice(text.as_bytes()))
}

/// A request whose head was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The request has a valid token, so its connection is not closed to make room for others.
    pub has_token: bool,
    /// Maximum size of the body in bytes.
    pub max_body: usize,
}

/// Responds to requests.
pub trait HttpService: Send + Sync + 'static {
    /// Checks the head of a request, before its body is read.
    ///
    /// # Errors
    /// Fails with the response to a request that is refused.
    fn admit(&self, head: &Parts) -> Result<Admitted, Box<HttpResponse>>;

    /// Responds to a request that was admitted.
    fn respond(&self, request: Request<Bytes>) -> BoxFuture<'_, HttpResponse>;

    /// Returns the response to a body that is too large or arrives too late.
    fn refuse_body(&self, status: StatusCode, why: &'static str) -> HttpResponse {
        with_status(status, why)
    }

    /// Returns a token that is cancelled when the connections that are accepted now must be closed.
    fn revoked(&self) -> CancellationToken {
        CancellationToken::new()
    }

    /// Returns the headers of every response.
    fn headers(&self) -> &'static [(&'static str, &'static str)];
}

/// Serves connections until `stop` is cancelled, then closes those that are left.
pub async fn listen(
    listener: TcpListener,
    service: Arc<dyn HttpService>,
    limits: ConnectionLimits,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
) {
    let counted = Connections::new(limits);
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
        let _ = stream.set_nodelay(true);
        let slot = counted.add().await;
        connections.spawn(accept(service.clone(), stream, tls.clone(), slot));
    }
    connections.shutdown().await;
}

async fn accept(service: Arc<dyn HttpService>, stream: TcpStream, tls: Option<TlsAcceptor>, slot: ConnectionSlot) {
    let Some(tls) = tls else { return serve(service, stream, slot).await };
    let handshake = tokio::time::timeout(READ_TIMEOUT, tls.accept(stream));
    let accepted = tokio::select! {
        accepted = handshake => accepted,
        () = slot.evicted() => return,
    };
    if let Ok(Ok(stream)) = accepted {
        serve(service, stream, slot).await;
    }
}

async fn serve(
    service: Arc<dyn HttpService>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    slot: ConnectionSlot,
) {
    let (slot, revoked) = (&slot, service.revoked());
    let respond = service_fn(|request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(respond(&*service, request, slot).await) }
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
        () = revoked.cancelled() => (),
    }
}

async fn respond(service: &dyn HttpService, request: Request<Incoming>, slot: &ConnectionSlot) -> HttpResponse {
    let mut response = match admit(service, request, slot).await {
        Ok(request) => service.respond(request).await,
        Err(refusal) => *refusal,
    };
    for (name, value) in service.headers() {
        let value = HeaderValue::from_static(value);
        response.headers_mut().entry(HeaderName::from_static(name)).or_insert(value);
    }
    response
}

/// Checks the head of a request, then reads its body.
async fn admit(
    service: &dyn HttpService,
    request: Request<Incoming>,
    slot: &ConnectionSlot,
) -> Result<Request<Bytes>, Box<HttpResponse>> {
    let (head, body) = request.into_parts();
    let Admitted { has_token, max_body } = service.admit(&head)?;
    if has_token {
        slot.has_token().await;
    }
    let Ok(body) = tokio::time::timeout(READ_TIMEOUT, read_body(body, max_body)).await else {
        return Err(service.refuse_body(StatusCode::REQUEST_TIMEOUT, "the request body took too long").into());
    };
    let too_large = || Box::new(service.refuse_body(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large"));
    Ok(Request::from_parts(head, body.ok_or_else(too_large)?))
}

/// Returns the whole body, or `None` if it is larger than `max` bytes or breaks off.
async fn read_body(body: Incoming, max: usize) -> Option<Bytes> {
    if body.size_hint().lower() > max as u64 {
        return None;
    }
    Limited::new(body, max).collect().await.map(|body| body.to_bytes()).ok()
}
