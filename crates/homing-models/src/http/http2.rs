//! A connection of HTTP/2, by hyper.

use bytes::Bytes;
use http::{Uri, header::HOST};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::{
    TransportError,
    connect::TlsStream,
    framing::ResponseHead,
    request::{IDEMPOTENCY_KEY, Request},
};

/// The name under which servers agree to it.
pub(super) const ALPN: Option<&[u8]> = Some(b"h2");

/// A connection that carries any number of requests at once.
#[derive(Clone)]
pub(crate) struct Http2Connection(SendRequest<Full<Bytes>>);

/// A request that failed before its response arrived.
pub(super) struct Http2Error {
    pub(super) error: TransportError,
    /// Nothing of the request was sent.
    pub(super) is_unsent: bool,
}

impl Http2Connection {
    pub(super) async fn open(stream: TlsStream) -> Result<Self, TransportError> {
        let opened = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(TransportError::connect)?;
        drop(tokio::spawn(connection));
        Ok(Self(sender))
    }

    pub(super) fn is_open(&self) -> bool {
        !self.0.is_closed()
    }

    /// Sends a request to `address`, and returns its response once the headers have arrived.
    pub(super) async fn send(
        &mut self,
        request: &Request<'_>,
        address: &Uri,
    ) -> Result<(ResponseHead, Http2Body), Http2Error> {
        match self.0.try_send_request(encoded(request, address)).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                Ok((head.into(), Http2Body(body)))
            }
            Err(error) => {
                // The error contains a request of which nothing was sent.
                let is_unsent = error.message().is_some();
                Err(Http2Error { error: TransportError::lost(error.into_error()), is_unsent })
            }
        }
    }
}

fn encoded(request: &Request<'_>, address: &Uri) -> http::Request<Full<Bytes>> {
    let mut encoded = http::Request::new(Full::new(request.body.clone()));
    *encoded.method_mut() = request.method.clone();
    *encoded.uri_mut() = address.clone();
    let headers = encoded.headers_mut();
    headers.clone_from(&request.headers);
    headers.remove(HOST);
    if let Some(key) = &request.idempotency_key {
        headers.insert(&IDEMPOTENCY_KEY, key.clone());
    }
    encoded
}

/// The body of a response.
pub(crate) struct Http2Body(Incoming);

impl Http2Body {
    /// Waits for the next data; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, TransportError> {
        while let Some(frame) = self.0.frame().await {
            if let Ok(data) = frame.map_err(TransportError::lost)?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}
