//! A connection of HTTP/1, used by one call at a time. A thousand calls wait for their replies at once, so it has no memory of its own
//! while nothing arrives, no task and no channel.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::{Pin, pin},
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use super::framing::{BodyFraming, FramingError, Http1Head, ResponseHead};

/// Bytes that are read at once.
const READ_SIZE: usize = 8 * 1024;

/// Reason why a connection failed.
#[derive(Debug, Error)]
pub(crate) enum Http1Error {
    #[error("reading or writing failed")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Framing(#[from] FramingError),
}

/// A stream that carries HTTP/1.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A request in the form in which it is sent.
pub(crate) struct RequestBytes {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Bytes,
    /// Number of bytes that were sent.
    sent: usize,
}

impl RequestBytes {
    pub(crate) fn new(head: Vec<u8>, body: Bytes) -> Self {
        Self { head, body, sent: 0 }
    }

    /// Returns whether none of it was sent.
    pub(crate) fn is_untouched(&self) -> bool {
        self.sent == 0
    }

    /// The parts of the head and of the body that were not sent.
    fn rest(&self) -> [IoSlice<'_>; 2] {
        let head = self.head.get(self.sent..).unwrap_or_default();
        let body = &self.body[self.sent.saturating_sub(self.head.len())..];
        [IoSlice::new(head), IoSlice::new(body)]
    }

    fn is_sent(&self) -> bool {
        self.sent > 0 && self.sent >= self.head.len() + self.body.len()
    }

    /// Frees its memory, which is not needed while a reply is awaited.
    fn free(&mut self) {
        (self.head, self.body) = (Vec::new(), Bytes::new());
    }
}

/// A connection of HTTP/1. Nothing happens on it unless something is awaited through it.
pub(crate) struct Http1Connection {
    stream: Stream,
    /// The bytes that were received, first the current piece of the body.
    input: Vec<u8>,
    /// Number of bytes of the current piece.
    piece: usize,
    /// Number of bytes of `input` that are dropped with the current piece.
    used: usize,
    body: BodyFraming,
    /// The server accepts another request after the current response.
    is_persistent: bool,
}

impl Http1Connection {
    pub(crate) fn new(stream: Stream) -> Self {
        let body = BodyFraming::Length(0);
        Self { stream, input: Vec::new(), piece: 0, used: 0, body, is_persistent: true }
    }

    /// Returns whether it can carry another request, as far as is known here.
    pub(crate) fn is_ready(&mut self) -> bool {
        self.is_persistent && self.body.is_over() && self.used == self.input.len() && self.stream.is_silent()
    }

    /// Sends a request, and returns the response once its headers have arrived.
    pub(crate) async fn send(&mut self, request: &mut RequestBytes) -> Result<ResponseHead, Http1Error> {
        self.drop_piece();
        poll_fn(|context| self.poll_exchange(request, context)).await
    }

    /// Receives the next piece of the body; returns whether there is one.
    pub(crate) async fn receive(&mut self) -> Result<bool, Http1Error> {
        poll_fn(|context| self.poll_piece(context)).await
    }

    /// The piece of the body that was received last.
    pub(crate) fn piece(&self) -> &[u8] {
        &self.input[..self.piece]
    }

    fn poll_exchange(
        &mut self,
        request: &mut RequestBytes,
        context: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, Http1Error>> {
        let written = self.poll_write(request, context);
        // A server may refuse a request before it has read all of it, and close the connection. Its response says why.
        match (self.poll_head(context), written) {
            (Poll::Ready(Ok(head)), written) => {
                self.is_persistent &= matches!(written, Poll::Ready(Ok(())));
                Poll::Ready(Ok(head))
            }
            (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error.into())),
            (Poll::Ready(Err(error)), _) => Poll::Ready(Err(error)),
            (Poll::Pending, _) => Poll::Pending,
        }
    }

    fn poll_write(&mut self, request: &mut RequestBytes, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if request.head.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut stream = self.stream.writer();
        while !request.is_sent() {
            match ready!(stream.as_mut().poll_write_vectored(context, &request.rest()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                len => request.sent += len,
            }
        }
        ready!(stream.poll_flush(context))?;
        request.free();
        Poll::Ready(Ok(()))
    }

    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<ResponseHead, Http1Error>> {
        loop {
            if ready!(self.stream.poll_read(&mut self.input, context))? == 0 {
                return Poll::Ready(Err(FramingError::Incomplete.into()));
            }
            if let Some(read) = Http1Head::read(&self.input)? {
                (self.body, self.is_persistent, self.used) = (read.body, read.is_persistent, read.len);
                return Poll::Ready(Ok(read.head));
            }
        }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Http1Error>> {
        loop {
            self.drop_piece();
            let decoded = self.body.decode(&mut self.input)?;
            (self.piece, self.used) = (decoded.data, decoded.used);
            if self.piece > 0 || self.body.is_over() {
                return Poll::Ready(Ok(self.piece > 0));
            }
            self.drop_piece();
            if ready!(self.stream.poll_read(&mut self.input, context))? == 0 {
                self.body.close()?;
            }
        }
    }

    /// Forgets the current piece.
    fn drop_piece(&mut self) {
        self.input.drain(..self.used);
        (self.piece, self.used) = (0, 0);
    }

    /// Frees its memory until the next request.
    pub(crate) fn rest(&mut self) {
        self.drop_piece();
        self.input = Vec::new();
    }
}

impl Stream {
    fn writer(&mut self) -> Pin<&mut dyn AsyncWrite> {
        match self {
            Self::Plain(stream) => Pin::<&mut TcpStream>::new(stream),
            Self::Tls(stream) => Pin::<&mut TlsStream<TcpStream>>::new(stream),
        }
    }

    /// Adds what arrives to `input`, and returns its length, which is 0 if the connection was closed. An empty `input` has no memory until
    /// something arrives.
    fn poll_read(&mut self, input: &mut Vec<u8>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => {
                if stream.poll_read_ready(context)?.is_pending() {
                    if input.is_empty() {
                        *input = Vec::new();
                    }
                    return Poll::Pending;
                }
                input.reserve(READ_SIZE);
                pin!(stream.read_buf(input)).poll(context)
            }
            Self::Tls(stream) => {
                input.reserve(READ_SIZE);
                pin!(stream.read_buf(input)).poll(context)
            }
        }
    }

    /// Returns whether nothing has arrived, not even the end, as far as the runtime has noticed.
    fn is_silent(&mut self) -> bool {
        match self {
            Self::Plain(stream) => {
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            Self::Tls(stream) => {
                let mut context = Context::from_waker(Waker::noop());
                pin!(stream.read_u8()).poll(&mut context).is_pending()
            }
        }
    }
}
