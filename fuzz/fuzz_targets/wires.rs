//! Any bytes in any chunking into the native wires: no panic, no half call, and the same answer however the bytes were cut.
//! The first byte chooses the wire, the second how the bytes are cut and where they break off.
#![no_main]

use homing_core::message::{Reply, StopReason};
use homing_models::{Wire, fuzz};
use libfuzzer_sys::fuzz_target;

const TOOLS: &[&str] = &["read", "grep"];

fuzz_target!(|data: &[u8]| {
    let [wire, cut, bytes @ ..] = data else { return };
    let wire = match wire % 4 {
        3 => Wire::Responses,
        2 => Wire::Bedrock,
        1 => Wire::Anthropic,
        _ => Wire::Chat,
    };
    let at_once = fuzz::streamed(wire, &[bytes], TOOLS);
    let in_pieces = fuzz::streamed(wire, &pieces(bytes, *cut), TOOLS);
    assert_eq!(at_once, in_pieces, "the same bytes in other chunks are the same answer");
    let beginning = &bytes[..bytes.len() * usize::from(*cut) / 256];
    let cut_off = fuzz::streamed(wire, &[beginning], TOOLS);
    if let (Ok(whole), Ok(cut_off)) = (&at_once, &cut_off) {
        assert!(whole.calls().eq(cut_off.calls()), "a cut stream gives no reply, or the whole one");
    }
    for reply in [at_once, cut_off, fuzz::whole(wire, bytes, TOOLS)].into_iter().flatten() {
        check(&reply);
    }
});

/// Cuts of changing length; where `cut` is zero, every byte alone.
fn pieces(bytes: &[u8], cut: u8) -> Vec<&[u8]> {
    let (mut rest, mut pieces, mut len) = (bytes, Vec::new(), usize::from(cut));
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((len % 97 + 1).min(rest.len()));
        pieces.push(piece);
        rest = after;
        len = if cut == 0 { 0 } else { (len * 31 + 7) % 8_191 };
    }
    pieces
}

/// A call has a name, an id, and arguments; a reply that stopped for calls has some.
fn check(reply: &Reply) {
    for call in reply.calls() {
        assert!(!call.name.trim().is_empty() && !call.id.is_empty(), "{reply:?}");
    }
    assert!(reply.stop != StopReason::Calls || reply.calls().count() > 0, "{reply:?}");
}
