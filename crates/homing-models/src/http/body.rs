//! A response whose body is read in chunks, decompressed if necessary.

use std::{
    io::Write,
    mem,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, StatusCode};

use super::{TransportError, framing::ResponseHead, http1::Http1Connection, http2::Http2Body, pool::Origin};

/// Compressed bytes that are decompressed at once. They become at most about a thousand times as many.
const COMPRESSED_PIECE: usize = 4 * 1024;

/// A response whose headers have arrived.
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) content_type: String,
    /// The headers of an error.
    pub(crate) headers: HeaderMap,
    body: Body,
    gzip: Option<Box<Gunzip>>,
    /// The current piece of the body, if it is not that of the connection.
    piece: Bytes,
}

/// The source of a body.
pub(crate) enum Body {
    /// A connection, which can be used again once the body was read to its end.
    Http1(Http1Connection, Arc<Origin>),
    Http2(Http2Body),
    Over,
}

impl Response {
    pub(crate) fn new(head: ResponseHead, body: Body) -> Self {
        let ResponseHead { status, content_type, is_gzip, headers } = head;
        Self { status, content_type, headers, body, gzip: is_gzip.then(Box::default), piece: Bytes::new() }
    }

    /// Returns whether the body ends with what has already arrived. Its connection is then kept.
    pub(crate) fn has_ended(&mut self) -> bool {
        pin!(self.advance()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Waits for the next piece of the body; returns whether there is one.
    pub(crate) async fn advance(&mut self) -> Result<bool, TransportError> {
        loop {
            if let Some(piece) = self.gzip.as_mut().map_or(Ok(None), |gzip| gzip.next())? {
                self.piece = piece;
                return Ok(true);
            }
            self.piece = Bytes::new();
            let has_more = match &mut self.body {
                Body::Http1(connection, _) => connection.receive().await.map_err(TransportError::lost)?,
                Body::Http2(body) => match body.next().await? {
                    Some(data) => {
                        self.piece = data;
                        true
                    }
                    None => false,
                },
                Body::Over => false,
            };
            if !has_more {
                return self.finish();
            }
            match &mut self.gzip {
                Some(gzip) => gzip.compressed = Bytes::copy_from_slice(self.body.piece(&self.piece)),
                None => return Ok(true),
            }
        }
    }

    /// The current piece of the body.
    pub(crate) fn piece(&self) -> &[u8] {
        if self.gzip.is_some() { &self.piece } else { self.body.piece(&self.piece) }
    }

    /// Keeps the connection; returns whether decompression yields a last piece.
    fn finish(&mut self) -> Result<bool, TransportError> {
        if let Body::Http1(connection, origin) = mem::replace(&mut self.body, Body::Over) {
            origin.keep(connection);
        }
        self.piece = self.gzip.take().map_or(Ok(None), |gzip| gzip.finish())?.unwrap_or_default();
        Ok(!self.piece.is_empty())
    }
}

impl Body {
    /// The piece that was received last: that of the connection, or `other`.
    fn piece<'a>(&'a self, other: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Http1(connection, _) => connection.piece(),
            Self::Http2(_) | Self::Over => other,
        }
    }
}

/// Decompresses a body, piece by piece.
struct Gunzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// Bytes that were received but not decompressed yet.
    compressed: Bytes,
}

impl Default for Gunzip {
    fn default() -> Self {
        Self { decoder: MultiGzDecoder::new(Vec::new()), compressed: Bytes::new() }
    }
}

impl Gunzip {
    /// Decompresses a piece of what was received; `None` if more must be received first.
    fn next(&mut self) -> Result<Option<Bytes>, TransportError> {
        while !self.compressed.is_empty() {
            let piece = self.compressed.split_to(self.compressed.len().min(COMPRESSED_PIECE));
            let written = self.decoder.write_all(&piece).and_then(|()| self.decoder.flush());
            written.map_err(TransportError::lost)?;
            let data = mem::take(self.decoder.get_mut());
            if !data.is_empty() {
                return Ok(Some(data.into()));
            }
        }
        Ok(None)
    }

    /// The rest of the body, which fails if it was cut.
    fn finish(mut self) -> Result<Option<Bytes>, TransportError> {
        self.decoder.try_finish().map_err(TransportError::lost)?;
        let rest = mem::take(self.decoder.get_mut());
        Ok(Some(rest).filter(|rest| !rest.is_empty()).map(Bytes::from))
    }
}
