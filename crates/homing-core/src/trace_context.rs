//! [`TraceContext`]: the position of a run in a distributed trace, in the form of the W3C recommendation "Trace Context".
//!
//! IDs are derived from runs and calls, so that every process that works on a tree names the same spans. A context that a
//! caller sent is recorded with the tags of the root run, so that a resumed tree stays in its trace.

use std::{collections::BTreeMap, fmt};

use uuid::Uuid;

use crate::{
    message::{FNV_START, fnv},
    tool::CallKey,
};

/// The tag, header, MCP field and (in upper case) variable that holds the trace and the caller's span.
pub const TRACEPARENT: &str = "traceparent";

/// The tag, header and MCP field that holds the data of tracing systems along the way.
pub const TRACESTATE: &str = "tracestate";

/// Maximum length of a `tracestate` that is passed on.
const MAX_STATE: usize = 512;

/// The ID of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl SpanId {
    /// Returns the ID for a run; `continuations` counts how often it was continued after an end.
    pub fn of_run(run: Uuid, continuations: u32) -> Self {
        Self::of(&[b"run", run.as_bytes(), &continuations.to_be_bytes()])
    }

    /// Returns the ID for the model call that was answered at this position of the tree's journal.
    pub fn of_ask(run: Uuid, seq: u64) -> Self {
        Self::of(&[b"ask", run.as_bytes(), &seq.to_be_bytes()])
    }

    /// Returns the ID for a tool call.
    pub fn of_call(key: CallKey) -> Self {
        Self::of(&[b"call", key.run.as_bytes(), &key.turn.to_be_bytes(), &key.index.to_be_bytes()])
    }

    fn of(parts: &[&[u8]]) -> Self {
        let hash = parts.iter().fold(FNV_START, |hash, part| fnv(hash, part));
        // Zero means "no span" in the protocol.
        Self(hash.max(1).to_be_bytes())
    }
}

/// A position in a trace: the trace, a span of it, and whether it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceContext {
    /// The trace.
    pub trace: Uuid,
    /// The span.
    pub span: SpanId,
    /// False if the caller decided that this trace is not recorded.
    pub sampled: bool,
    /// Data of tracing systems along the way.
    pub state: Option<String>,
}

impl TraceContext {
    /// Creates the context of a span in the trace of a tree that no caller's trace contains.
    pub fn of_tree(tree: Uuid, span: SpanId) -> Self {
        Self { trace: tree, span, sampled: true, state: None }
    }

    /// Parses a `traceparent` and a `tracestate`; `None` if the former is not valid. An invalid `tracestate` is dropped.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let mut fields = parent.trim().split('-');
        let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let [version] = hex(version)?;
        // Later versions may append fields; version 0 has exactly four, and 255 is forbidden.
        if version == 0xff || (version == 0 && fields.next().is_some()) {
            return None;
        }
        let (trace, span, [flags]) = (hex::<16>(trace)?, hex::<8>(span)?, hex(flags)?);
        if trace == [0; 16] || span == [0; 8] {
            return None;
        }
        let state = state.map(str::trim).filter(|state| is_valid_state(state)).map(str::to_owned);
        Some(Self { trace: Uuid::from_bytes(trace), span: SpanId(span), sampled: flags & 1 == 1, state })
    }

    /// Reads the context that a caller sent from the tags of a root run.
    pub fn of_tags(tags: &BTreeMap<String, String>) -> Option<Self> {
        Self::parse(tags.get(TRACEPARENT)?, tags.get(TRACESTATE).map(String::as_str))
    }

    /// Adds the context to the tags of a task.
    pub fn add_to(&self, tags: &mut BTreeMap<String, String>) {
        tags.insert(TRACEPARENT.to_owned(), self.to_string());
        if let Some(state) = &self.state {
            tags.insert(TRACESTATE.to_owned(), state.clone());
        }
    }

    /// Returns the context of another span in the same trace.
    #[must_use]
    pub fn at(mut self, span: SpanId) -> Self {
        self.span = span;
        self
    }
}

/// The `traceparent` of the context.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = u64::from_be_bytes(self.span.0);
        write!(f, "00-{}-{span:016x}-{:02x}", self.trace.simple(), u8::from(self.sampled))
    }
}

/// Parses exactly `N` bytes of lower-case hexadecimal digits.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(is_digit) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Returns whether a `tracestate` can be passed on: printable, not too long, and not empty.
fn is_valid_state(state: &str) -> bool {
    !state.is_empty() && state.len() <= MAX_STATE && state.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_survives_a_round_trip() {
        let context = TraceContext::parse(VALID, Some("acme=1")).expect("valid");
        assert_eq!(context.to_string(), VALID);
        assert!(context.sampled);
        let mut tags = BTreeMap::new();
        context.add_to(&mut tags);
        assert_eq!(TraceContext::of_tags(&tags), Some(context));
    }

    #[test]
    fn malformed_traceparents_are_ignored() {
        let zero = "0".repeat(16);
        for text in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            &format!("00-{zero}{zero}-00f067aa0ba902b7-01"),
            &format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{zero}-01"),
        ] {
            assert_eq!(TraceContext::parse(text, None), None, "{text}");
        }
        let later = TraceContext::parse(&format!("{}-more", VALID.replacen("00", "01", 1)), None);
        assert!(later.is_some(), "later versions may append fields");
    }

    #[test]
    fn hostile_tracestate_is_dropped() {
        for state in ["", "a=1\r\nSet-Cookie: x", "a=é", &"a".repeat(513)] {
            assert_eq!(TraceContext::parse(VALID, Some(state)).expect("valid").state, None, "{state:?}");
        }
    }
}
