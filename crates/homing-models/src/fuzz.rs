//! What fuzzers drive: the bytes of an answer in chunks, as they come from a socket, without the socket.
//! Compiled for fuzzing only.

use homing_core::{message::Reply, model::AskFailure};

use crate::{
    event_reader::EventReader,
    wire::{self, StreamProgress, Wire},
};

/// What comes of these chunks of a stream and then its end, where `tools` were on offer.
pub fn streamed(wire: Wire, chunks: &[&[u8]], tools: &[&str]) -> Result<Reply, AskFailure> {
    let (mut events, mut decoder) = (EventReader::default(), wire::decoder_for(wire, tools));
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

/// What comes of an answer in one piece.
pub fn whole(wire: Wire, body: &[u8], tools: &[&str]) -> Result<Reply, AskFailure> {
    let mut decoder = wire::decoder_for(wire, tools);
    match decoder.push_whole(body, &mut |_| ()) {
        Ok(()) => decoder.finish(),
        Err(error) => Err(decoder.fail(error)),
    }
}
