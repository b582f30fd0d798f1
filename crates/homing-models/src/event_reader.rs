//! [`EventReader`]: splits a byte stream into events and passes them to a decoder, independent of chunk boundaries.
//! Does no IO.

use homing_core::model::{ModelError, OnDelta};

use crate::{
    aws::event_stream::FrameSplitter,
    sse::{MAX_EVENT, SplitError, SseFlow, SseSplitter},
    wire::{Decoder, StreamProgress},
};

/// Maximum size of a response body in bytes, whatever a request permits. It bounds endless streams and decompression bombs.
pub(crate) const MAX_BODY: usize = 64 * 1024 * 1024;

/// The sizes that a response to a request of so many output tokens may have. Both are generous, because a stream may send
/// each token in an event of its own, and an event may repeat the whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeLimits {
    /// Bytes of a stream.
    pub(crate) stream: usize,
    /// Bytes of an event or of a whole response.
    pub(crate) event: usize,
}

impl SizeLimits {
    /// The limits for a reply of at most `max_output` tokens.
    pub(crate) fn for_output(max_output: u64) -> Self {
        let tokens = usize::try_from(max_output).unwrap_or(usize::MAX);
        let sized = |per_token: usize, fixed: usize, most: usize| {
            tokens.saturating_mul(per_token).saturating_add(fixed).min(most)
        };
        Self { stream: sized(1_536, 4 << 20, MAX_BODY), event: sized(64, 2 << 20, MAX_EVENT) }
    }
}

/// Splits a stream into events and passes them to a decoder.
pub(crate) struct EventReader {
    splitter: Splitter,
    taken: usize,
    limits: SizeLimits,
}

/// The framing of a stream.
enum Splitter {
    Sse(SseSplitter),
    Aws(FrameSplitter),
}

impl EventReader {
    /// Creates a reader of server-sent events within `limits`.
    pub(crate) fn new(limits: SizeLimits) -> Self {
        Self { splitter: Splitter::Sse(SseSplitter::new(limits.event)), taken: 0, limits }
    }

    /// Creates a reader of AWS's event streams within `limits`.
    pub(crate) fn of_frames(limits: SizeLimits) -> Self {
        Self { splitter: Splitter::Aws(FrameSplitter::new(limits.event)), taken: 0, limits }
    }

    /// Reads a chunk and returns the furthest progress of its events. An error ends the stream.
    pub(crate) fn push(
        &mut self,
        chunk: &[u8],
        decoder: &mut Decoder,
        on_delta: OnDelta<'_>,
    ) -> Result<StreamProgress, ModelError> {
        self.taken += chunk.len();
        if self.taken > self.limits.stream {
            return Err(too_large(self.limits.stream));
        }
        let mut result = Ok(StreamProgress::None);
        let on_event = |data: &[u8]| take_event(data, decoder, on_delta, &mut result);
        let flow = match &mut self.splitter {
            Splitter::Sse(splitter) => splitter.push(chunk, on_event),
            Splitter::Aws(splitter) => splitter.push(chunk, on_event),
        };
        let progress = result?;
        flow.map_err(|error| match error {
            SplitError::TooLong => too_large(self.limits.event),
            SplitError::Damaged => ModelError::Broken { reason: "the stream is damaged: a checksum is wrong".into() },
        })?;
        Ok(progress)
    }

    /// Reads what is left at the end of the stream, which may be a part of an event.
    pub(crate) fn finish(self, decoder: &mut Decoder, on_delta: OnDelta<'_>) -> Result<(), ModelError> {
        let mut result = Ok(StreamProgress::None);
        match self.splitter {
            Splitter::Sse(mut splitter) => {
                splitter.finish(|data| take_event(data, decoder, on_delta, &mut result));
            }
            // An incomplete frame has no sum, so nothing of it can be trusted.
            Splitter::Aws(_) => (),
        }
        // An event that was cut cannot be parsed; the decoder reports the missing end, which is the better reason.
        match result {
            Err(error @ (ModelError::Busy { .. } | ModelError::Unauthorized { .. })) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// The error for a response of more than `max` bytes.
pub(crate) fn too_large(max: usize) -> ModelError {
    ModelError::Unusable { reason: format!("the response is larger than {} MiB", max >> 20) }
}

/// Passes an event to the decoder and keeps the furthest progress of the chunk's events.
fn take_event(
    data: &[u8],
    decoder: &mut Decoder,
    on_delta: OnDelta<'_>,
    result: &mut Result<StreamProgress, ModelError>,
) -> SseFlow {
    let pushed = decoder.push(data, &mut |delta| on_delta(delta));
    match pushed.and_then(|progress| decoder.check_length().map(|()| progress)) {
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
