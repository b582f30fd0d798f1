//! [`EventReader`]: splits a byte stream into events and passes them to a decoder, independent of chunk boundaries.
//! Does no IO.

use homing_core::model::{ModelError, OnDelta};

use crate::{
    sse::{SseFlow, SseSplitter},
    wire::{Decoder, StreamProgress},
};

/// Maximum size of a response body in bytes. It bounds endless streams and decompression bombs.
pub(crate) const MAX_BODY: usize = 64 * 1024 * 1024;

/// Splits a stream into events and passes them to a decoder.
#[derive(Default)]
pub(crate) struct EventReader {
    splitter: SseSplitter,
    taken: usize,
}

impl EventReader {
    /// Reads a chunk and returns the furthest progress of its events. An error ends the stream.
    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        decoder: &mut Decoder,
        on_delta: OnDelta<'_>,
    ) -> Result<StreamProgress, ModelError> {
        self.taken += chunk.len();
        if self.taken > MAX_BODY {
            return Err(too_large());
        }
        let mut result = Ok(StreamProgress::None);
        let flow = self.splitter.push(chunk, |data| take_event(data, decoder, on_delta, &mut result));
        let progress = result?;
        flow.map_err(|_| too_large())?;
        Ok(progress)
    }

    /// Reads what is left at the end of the stream, which may be a part of an event.
    pub(crate) fn finish(mut self, decoder: &mut Decoder, on_delta: OnDelta<'_>) -> Result<(), ModelError> {
        let mut result = Ok(StreamProgress::None);
        self.splitter.finish(|data| take_event(data, decoder, on_delta, &mut result));
        // An event that was cut cannot be parsed; the decoder reports the missing end, which is the better reason.
        match result {
            Err(error @ (ModelError::Busy { .. } | ModelError::Unauthorized { .. })) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

pub(crate) fn too_large() -> ModelError {
    ModelError::Unusable { reason: format!("the response is larger than {} MiB", MAX_BODY >> 20) }
}

/// Passes an event to the decoder and keeps the furthest progress of the chunk's events.
fn take_event(
    data: &[u8],
    decoder: &mut Decoder,
    on_delta: OnDelta<'_>,
    result: &mut Result<StreamProgress, ModelError>,
) -> SseFlow {
    match decoder.push(data, &mut |delta| on_delta(delta)) {
        Ok(StreamProgress::None) => SseFlow::More,
        Ok(progress @ (StreamProgress::Content | StreamProgress::Whole)) => {
            *result = Ok(progress);
            SseFlow::More
        }
        Ok(StreamProgress::Over) => {
            *result = Ok(StreamProgress::Over);
            SseFlow::Enough
        }
        Err(error) => {
            *result = Err(error);
            SseFlow::Enough
        }
    }
}
