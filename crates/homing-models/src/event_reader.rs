//! Chunks of a stream in, what its events did for the reply out; within bounds, and the same for any chunking.
//! It knows neither connections nor clocks.

use homing_core::model::{ModelError, OnDelta};

use crate::{
    sse::{Flow, Splitter},
    wire::{Decoder, StreamProgress},
};

/// More than any reply has; a stream that never ends, or a small body that unpacks into a large one, ends here.
pub(crate) const MAX_BODY: usize = 64 * 1024 * 1024;

/// Splits a stream into events and hands them to a decoder.
#[derive(Default)]
pub(crate) struct EventReader {
    splitter: Splitter,
    taken: usize,
}

impl EventReader {
    /// Takes a chunk; the strongest progress of its events. An error is the end of the stream.
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

    /// The stream has ended, perhaps in the middle of an event.
    pub(crate) fn finish(mut self, decoder: &mut Decoder, on_delta: OnDelta<'_>) -> Result<(), ModelError> {
        let mut result = Ok(StreamProgress::None);
        self.splitter.finish(|data| take_event(data, decoder, on_delta, &mut result));
        // An event that was cut in the middle cannot be read; the missing end is the better reason.
        match result {
            Err(error @ (ModelError::Busy { .. } | ModelError::Unauthorized { .. })) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

pub(crate) fn too_large() -> ModelError {
    ModelError::Unusable { reason: "the answer is larger than any reply".into() }
}

/// Hands an event to the decoder; keeps the strongest progress of the events of one chunk.
fn take_event(
    data: &[u8],
    decoder: &mut Decoder,
    on_delta: OnDelta<'_>,
    result: &mut Result<StreamProgress, ModelError>,
) -> Flow {
    match decoder.push(data, &mut |delta| on_delta(delta)) {
        Ok(StreamProgress::None) => Flow::More,
        Ok(progress @ (StreamProgress::Content | StreamProgress::Whole)) => {
            *result = Ok(progress);
            Flow::More
        }
        Ok(StreamProgress::Over) => {
            *result = Ok(StreamProgress::Over);
            Flow::Enough
        }
        Err(error) => {
            *result = Err(error);
            Flow::Enough
        }
    }
}
