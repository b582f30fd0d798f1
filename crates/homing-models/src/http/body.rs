//! A response whose body is read in chunks, decompressed if necessary.

use std::{io::Write, mem, sync::Arc};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, TRANSFER_ENCODING},
};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{
    TransportError,
    http1::{Http1Connection, at_once},
    pool::Origin,
};

/// Compressed bytes that are decompressed at once. They become at most about a thousand times as many.
const COMPRESSED_PIECE: usize = 4 * 1024;

/// A response whose headers have arrived.
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    gzip: Option<Box<Gunzip>>,
    /// The connection, which can be used again once the body was read to its end.
    connection: Option<(Arc<Origin>, Http1Connection)>,
}

impl Response {
    pub(crate) fn new(response: http::Response<Incoming>, connection: Option<(Arc<Origin>, Http1Connection)>) -> Self {
        let (head, body) = response.into_parts();
        let is_gzip = |name| head.headers.get(name).is_some_and(|value| value.as_bytes().starts_with(b"gzip"));
        let gzip = (is_gzip(CONTENT_ENCODING) || is_gzip(TRANSFER_ENCODING)).then(Box::default);
        Self { status: head.status, headers: head.headers, body, gzip, connection }
    }

    /// Returns whether the body ends with what has already arrived. Its connection is then kept.
    pub(crate) fn has_ended(&mut self) -> bool {
        at_once(self.chunk()).is_some()
    }

    /// The next bytes of the body; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, TransportError> {
        loop {
            if let Some(piece) = self.gzip.as_mut().map_or(Ok(None), |gzip| gzip.next())? {
                return Ok(Some(piece));
            }
            let frame = match &mut self.connection {
                Some((_, connection)) => connection.receive(self.body.frame()).await,
                None => self.body.frame().await,
            };
            let Some(frame) = frame else {
                if let Some((origin, connection)) = self.connection.take() {
                    origin.keep(connection);
                }
                return self.gzip.take().map_or(Ok(None), |gzip| gzip.finish());
            };
            let Ok(data) = frame.map_err(TransportError::lost)?.into_data() else { continue };
            match &mut self.gzip {
                Some(gzip) => gzip.compressed = data,
                None => return Ok(Some(data)),
            }
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
