//! A connection of HTTP/1, driven by the call that uses it. In a task of its own it would wake the call and be woken by it several
//! times for each request.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1},
    rt::{Read, Write},
};
use tokio::task::coop::unconstrained;

/// A connection of HTTP/1. Nothing happens on it unless something is awaited through it.
pub(crate) struct Http1Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Reads and writes; `None` once the connection is closed.
    transfer: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
}

impl Http1Connection {
    /// Begins to use HTTP/1 on a stream.
    pub(crate) async fn new(stream: impl Read + Write + Unpin + Send + 'static) -> hyper::Result<Self> {
        let (sender, transfer) = http1::handshake(stream).await?;
        Ok(Self { sender, transfer: Some(Box::pin(transfer)) })
    }

    /// Returns whether it can carry another request.
    pub(crate) fn is_ready(&self) -> bool {
        self.transfer.is_some() && self.sender.is_ready()
    }

    /// Sends a request, and returns the response once its headers have arrived. The error contains the request if nothing of it was
    /// sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Full<Bytes>>>> {
        let response = std::pin::pin!(self.sender.try_send_request(request));
        completed(&mut self.transfer, response).await
    }

    /// Awaits a part of a response that arrives on this connection.
    pub(crate) fn receive<T>(&mut self, part: impl Future<Output = T> + Unpin) -> impl Future<Output = T> {
        completed(&mut self.transfer, part)
    }
}

/// Awaits `part`, which nothing but `transfer` completes. So it has no waker of its own, with which the call would wake itself,
/// and is not subject to the budget of the task, which would use that waker.
async fn completed<T>(
    transfer: &mut Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    part: impl Future<Output = T> + Unpin,
) -> T {
    let mut part = unconstrained(part);
    poll_fn(|context| {
        // Dropping it fails what was not completed.
        if transfer.as_mut().is_some_and(|transfer| transfer.as_mut().poll(context).is_ready()) {
            *transfer = None;
        }
        Pin::new(&mut part).poll(&mut Context::from_waker(Waker::noop()))
    })
    .await
}

/// The result of a future, if it has one without waiting.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
