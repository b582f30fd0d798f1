//! Server-sent events: frames, and a body that is fed through a channel. A reader that does not read holds up its own channel
//! and nothing else.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use homing_http::HttpResponse;
use http_body_util::BodyExt;
use hyper::{
    Response,
    body::{Body, Frame},
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};
use tokio::sync::mpsc;

/// Time without an event after which a comment is sent, so that proxies and clients see that the connection is alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Number of frames that wait for a reader before its feeder waits.
const BUFFERED: usize = 16;

/// A comment, which readers ignore.
pub(crate) const COMMENT: Bytes = Bytes::from_static(b": still here\n\n");

/// Formats an event. The data must be on one line, as JSON is.
pub(crate) fn frame(event: &str, id: Option<u64>, data: &str) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    Bytes::from(format!("event: {event}\n{id}data: {data}\n\n"))
}

/// Returns a response whose body is fed through a channel. The channel is closed once the reader has gone.
pub(crate) fn response() -> (mpsc::Sender<Bytes>, HttpResponse) {
    let (sender, receiver) = mpsc::channel(BUFFERED);
    let mut response = Response::new(ChannelBody(receiver).boxed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies such as nginx would hold events back.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    (sender, response)
}

struct ChannelBody(mpsc::Receiver<Bytes>);

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = ready!(self.0.poll_recv(context));
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
