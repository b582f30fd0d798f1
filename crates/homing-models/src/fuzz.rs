//! Entry points for fuzzers: decode the bytes of a response without a socket. Compiled for fuzzing only.

use homing_core::{message::Reply, model::AskFailure};

use crate::{
    event_reader::{EventReader, SizeLimits},
    wire::{self, StreamProgress, Wire},
};

/// Decodes a stream of `chunks` that may call `tools`.
pub fn streamed(wire: Wire, chunks: &[&[u8]], tools: &[&str]) -> Result<Reply, AskFailure> {
    let limits = SizeLimits::for_output(8_192);
    let mut events = if wire == Wire::Bedrock { EventReader::of_frames(limits) } else { EventReader::new(limits) };
    let mut decoder = wire::decoder_for(wire, tools);
    for chunk in chunks {
        match events.push(chunk, &mut decoder, &|_| ()) {
            Ok(StreamProgress::Over) => return decoder.finish(),
            Ok(StreamProgress::None | StreamProgress::Content | StreamProgress::Whole) => (),
            Err(error) => return Err(decoder.fail(error)),
        }
    }
    match events.finish(&mut decoder, &|_| ()) {
        Ok(()) => decoder.finish(),
        Err(error) => Err(decoder.fail(error)),
    }
}

/// Decodes a whole response that may call `tools`.
pub fn whole(wire: Wire, body: &[u8], tools: &[&str]) -> Result<Reply, AskFailure> {
    let mut decoder = wire::decoder_for(wire, tools);
    match decoder.push_whole(body, &mut |_| ()) {
        Ok(()) => decoder.finish(),
        Err(error) => Err(decoder.fail(error)),
    }
}
