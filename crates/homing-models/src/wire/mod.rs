//! The native wires: encode requests as JSON and decode stream events into replies. Pure functions, without IO.

pub(crate) mod anthropic;
mod anthropic_stream;
pub(crate) mod bedrock;
mod bedrock_stream;
mod call_ids;
pub(crate) mod chat;
mod chat_cache;
mod chat_chunk;
mod chat_stream;
pub(crate) mod effort;
mod json_scanner;
mod plain_chunk;
pub(crate) mod reasoning;
mod reply_builder;
pub(crate) mod responses;
mod responses_stream;
mod text_tool_calls;
mod usage;

use homing_core::{
    message::{Args, FNV_START, Image, Message, Reply, TranscriptEntry, fnv},
    model::{AskFailure, Delta, ModelError, ModelRequest, ToolChoice},
    tool::ToolSpec,
};
use serde::Deserialize;
use std::{borrow::Cow, fmt::Write as _, sync::Arc};

#[cfg(feature = "genai")]
pub(crate) use {
    call_ids::{IdStyle, ResultIds, of_reply},
    reply_builder::{ReplyBlock, cut_stream},
    usage::MAX_TOKENS,
};

pub(crate) use reply_builder::ReplyBuilder;

/// The name of a document in a request, which some wires require.
pub(crate) const DOCUMENT_NAME: &str = "document.pdf";

/// The mark up to which Anthropic caches a request.
const CACHE_MARK: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// OpenAI-compatible chat completions.
    #[serde(alias = "openai", alias = "openai-compatible")]
    Chat,
    /// OpenAI's Responses API.
    #[serde(alias = "openai-responses")]
    Responses,
    /// Anthropic messages.
    Anthropic,
    /// Amazon Bedrock's Converse API.
    #[serde(alias = "converse")]
    Bedrock,
    /// The wire that `genai` uses for the provider of that name.
    Genai,
}

/// The form in which a reply is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// In events, while the model writes it.
    #[default]
    Streamed,
    /// In one response, for servers that cannot stream.
    Whole,
}

/// A delta listener inside this crate.
pub(crate) type DeltaListener<'a> = &'a mut dyn FnMut(Delta<'_>);

/// The effect of an event on the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamProgress {
    /// No new content: a ping, whitespace or a repetition.
    None,
    /// The reply grew.
    Content,
    /// The reply is complete; only usage can follow.
    Whole,
    /// The stream is over.
    Over,
}

/// Decodes the events of a stream, or a whole response, into a reply.
pub(crate) enum Decoder {
    /// Chat completions.
    Chat(chat_stream::ChatDecoder),
    /// Responses.
    Responses(responses_stream::ResponsesDecoder),
    /// Messages.
    Anthropic(anthropic_stream::AnthropicDecoder),
    /// Converse.
    Bedrock(bedrock_stream::BedrockDecoder),
}

impl Decoder {
    /// Decodes the data of one event. An error ends the stream.
    pub(crate) fn push(&mut self, data: &[u8], on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        match self {
            Self::Chat(decoder) => decoder.push(data, on_delta),
            Self::Responses(decoder) => decoder.push(data, on_delta),
            Self::Anthropic(decoder) => decoder.push(data, on_delta),
            Self::Bedrock(decoder) => decoder.push(data, on_delta),
        }
    }

    /// Decodes a whole response that was not streamed.
    pub(crate) fn push_whole(&mut self, body: &[u8], on_delta: DeltaListener<'_>) -> Result<(), ModelError> {
        match self {
            Self::Chat(decoder) => decoder.push_whole(body, on_delta),
            Self::Responses(decoder) => decoder.push_whole(body, on_delta),
            Self::Anthropic(decoder) => decoder.push_whole(body, on_delta),
            Self::Bedrock(decoder) => decoder.push_whole(body, on_delta),
        }
    }

    /// Returns the reply if it is complete.
    pub(crate) fn finish(self) -> Result<Reply, AskFailure> {
        match self {
            Self::Chat(decoder) => decoder.finish(),
            Self::Responses(decoder) => decoder.finish(),
            Self::Anthropic(decoder) => decoder.finish(),
            Self::Bedrock(decoder) => decoder.finish(),
        }
    }

    /// Ends the stream with `error`, and returns it with its charge and the partial text.
    pub(crate) fn fail(self, error: ModelError) -> AskFailure {
        self.into_draft().fail(error)
    }

    /// Bounds the reply by the output tokens that the request permits.
    pub(crate) fn limit(&mut self, max_output: u64) {
        let draft = match self {
            Self::Chat(decoder) => &mut decoder.draft,
            Self::Responses(decoder) => &mut decoder.draft,
            Self::Anthropic(decoder) => &mut decoder.draft,
            Self::Bedrock(decoder) => &mut decoder.draft,
        };
        draft.max_output = Some(max_output);
    }

    /// Fails if the reply is far longer than the request permits.
    pub(crate) fn check_length(&self) -> Result<(), ModelError> {
        match self {
            Self::Chat(decoder) => decoder.draft.check_length(),
            Self::Responses(decoder) => decoder.draft.check_length(),
            Self::Anthropic(decoder) => decoder.draft.check_length(),
            Self::Bedrock(decoder) => decoder.draft.check_length(),
        }
    }

    /// Reads the attempt at a call from an error response, if the provider returns it there. The call then fails like any
    /// other that is wrong, so that the model can correct it.
    pub(crate) fn take_failed_attempt(&mut self, body: &[u8]) -> bool {
        match self {
            Self::Chat(decoder) => decoder.take_failed_attempt(body),
            Self::Responses(_) | Self::Anthropic(_) | Self::Bedrock(_) => false,
        }
    }

    fn into_draft(self) -> ReplyBuilder {
        match self {
            Self::Chat(decoder) => decoder.draft,
            Self::Responses(decoder) => decoder.draft,
            Self::Anthropic(decoder) => decoder.abandon(),
            Self::Bedrock(decoder) => decoder.draft,
        }
    }
}

/// Creates a decoder for replies that may call `tools`.
#[cfg(any(test, fuzzing))]
pub(crate) fn decoder_for(wire: Wire, tools: &[&str]) -> Decoder {
    let draft = ReplyBuilder::new(tools.iter().map(|tool| (*tool).to_owned()).collect());
    match wire {
        Wire::Anthropic => Decoder::Anthropic(anthropic_stream::AnthropicDecoder::new(draft)),
        Wire::Responses => Decoder::Responses(responses_stream::ResponsesDecoder::new(draft, "responses/test")),
        Wire::Bedrock => Decoder::Bedrock(bedrock_stream::BedrockDecoder::new(draft)),
        Wire::Chat | Wire::Genai => Decoder::Chat(chat_stream::ChatDecoder::new(draft)),
    }
}

/// The names of the tools that a reply to `request` may call; empty if calls are switched off.
fn offered(request: &ModelRequest<'_>) -> Arc<[String]> {
    if request.choice == ToolChoice::Off { Arc::default() } else { request.tools.names.clone() }
}

/// A key for the provider's prompt cache. Requests with the same beginning have the same key, so that the provider
/// sends them to the server that has it: the turns of a run, and sibling runs with the same prompt and tools.
fn cache_key(request: &ModelRequest<'_>) -> String {
    let names = request.tools.specs.iter().map(|spec| spec.name.as_str());
    let hash =
        names.fold(fnv(FNV_START, request.system.as_bytes()), |hash, name| fnv(fnv(hash, b"\n"), name.as_bytes()));
    format!("homing-{hash:016x}")
}

/// The content of a file as a data URL.
fn data_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.media_type, image.base64)
}

/// Encodes tools as a JSON array; `push` appends one of them.
fn encode_tools(specs: &[ToolSpec], push: impl Fn(&mut String, &ToolSpec)) -> String {
    let mut out = String::from("[");
    for (position, spec) in specs.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        push(&mut out, spec);
    }
    out.push(']');
    out
}

/// Appends the name, the description and the schema of a tool, which some wires call by another name.
fn push_tool(out: &mut String, spec: &ToolSpec, schema: &str) {
    out.push_str("\"name\":");
    push_string(out, &spec.name);
    out.push_str(",\"description\":");
    push_string(out, &spec.description);
    // Writing to a string cannot fail.
    let _ = write!(out, ",\"{schema}\":{}", spec.schema);
}

/// Appends `text` as a JSON string.
fn push_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = first_escape(rest.as_bytes()) {
        out.push_str(&rest[..at]);
        push_escape(out, rest.as_bytes()[at]);
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

/// The position of the first byte that must be escaped in a JSON string. Long texts are checked in blocks, which the
/// compiler turns into a few instructions each.
fn first_escape(text: &[u8]) -> Option<usize> {
    let is_escaped = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    let blocks = text.chunks_exact(32);
    let plain =
        blocks.take_while(|block| !block.iter().fold(false, |found, byte| found | is_escaped(byte))).count() * 32;
    text[plain..].iter().position(is_escaped).map(|at| plain + at)
}

fn push_escape(out: &mut String, byte: u8) {
    match byte {
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        0x08 => out.push_str("\\b"),
        0x0c => out.push_str("\\f"),
        0..0x20 => drop(write!(out, "\\u{byte:04x}")),
        _ => out.extend(['\\', char::from(byte)]),
    }
}

/// Joins `head`, the comma-separated `pieces` and `tail`. Copies the long, already encoded history only once.
fn join_around(mut head: String, mut pieces: Vec<Cow<'_, str>>, tail: &str) -> String {
    let Some(first) = pieces.first_mut() else { return head + tail };
    head.push_str(first);
    *first = Cow::Owned(head);
    if let Some(last) = pieces.last_mut() {
        last.to_mut().push_str(tail);
    }
    pieces.join(",")
}

/// The message at `position`, or the reply whose results are there, with its index.
fn reply_before(messages: &[Arc<TranscriptEntry>], position: usize) -> Option<(usize, &Message)> {
    let mut before = messages[..=position].iter().enumerate().rev().map(|(at, entry)| (at, &entry.message));
    before.find(|(_, message)| !matches!(message, Message::Tool(_)))
}

/// Some servers parse the arguments again, so malformed ones are wrapped in valid JSON.
fn arguments(args: &Args) -> String {
    match args {
        // Faster than `to_string`, which goes through a formatter.
        Args::Json(value) => serde_json::to_string(value).unwrap_or_default(),
        Args::Malformed(text) => serde_json::json!({ "malformed_arguments": text }).to_string(),
    }
}

/// A string that is borrowed from its event if it has no escapes; a plain `Option<Cow<str>>` would always copy.
#[derive(Default, Deserialize)]
struct EventText<'a>(#[serde(borrow)] Cow<'a, str>);

/// The text of an event. Bytes that are not UTF-8 are replaced.
fn event_text(data: &[u8]) -> Cow<'_, str> {
    // Checking is several times faster than replacing.
    std::str::from_utf8(data).map_or_else(|_| String::from_utf8_lossy(data), Cow::Borrowed)
}

/// Parses an event. One that cannot be parsed means that the stream is damaged.
fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    serde_json::from_str(data).map_err(|error| ModelError::Broken { reason: format!("cannot parse an event: {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::{SseFlow, SseSplitter};

    #[test]
    fn strings_are_escaped_like_all_json() {
        let all: String = (0..=0x2ff).filter_map(char::from_u32).collect();
        for text in ["", "plain", &"a long text without escapes ".repeat(9), &all, &all[40..], &all.repeat(3)] {
            let mut out = String::new();
            push_string(&mut out, text);
            assert_eq!(out, serde_json::to_string(text).unwrap());
        }
    }

    const CHAT: &str = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Grüße\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":",
        "{\"name\":\"read\",\"arguments\":\"{\\\"path\\\":\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":",
        "{\"arguments\":\"\\\"a\\\"}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}",
        "\n\ndata: [DONE]\n\n",
    );

    const MESSAGE: &str = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":",
        "{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"read\",\"input\":{}}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":",
        "{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"path\\\":\\\"a\\\"}\"}}\n\n",
        "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":5}}\n\n",
        "data: {\"type\":\"message_stop\"}\n\n",
    );

    const RESPONSE: &str = concat!(
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n",
        "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":",
        "{\"type\":\"function_call\",\"id\":\"f\",\"call_id\":\"c\",\"name\":\"read\",\"arguments\":\"\"}}\n\n",
        "data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":0,\"delta\":\"{\\\"path\\\":\\\"a\\\"}\"}\n\n",
        "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"function_call\",\"call_id\":\"c\",",
        "\"name\":\"read\",\"arguments\":\"{\\\"path\\\":\\\"a\\\"}\",\"status\":\"completed\"}}\n\n",
        "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}\n\n",
    );

    /// Decodes a stream of `chunks`.
    fn decode(wire: Wire, chunks: &[&[u8]]) -> Result<Reply, AskFailure> {
        let (mut splitter, mut decoder) = (SseSplitter::default(), decoder_for(wire, &["read"]));
        for chunk in chunks {
            let flow = splitter.push(chunk, |data| {
                decoder.push(data, &mut |_| ()).expect("whole events can be parsed");
                SseFlow::More
            });
            flow.expect("short lines");
        }
        splitter.finish(|data| {
            let _half_event = decoder.push(data, &mut |_| ());
            SseFlow::More
        });
        decoder.finish()
    }

    #[test]
    fn fault18_s11_stream_cut_at_any_byte_yields_no_reply_and_no_call() {
        let wires = [
            (Wire::Chat, CHAT, "\n\ndata: [DONE]"),
            (Wire::Anthropic, MESSAGE, "}\n\n\u{0}"),
            (Wire::Responses, RESPONSE, "}\n\n\u{0}"),
        ];
        for (wire, stream, end) in wires {
            let end = stream.find(end).unwrap_or(stream.len() - 2);
            for len in 0..=stream.len() {
                match decode(wire, &[&stream.as_bytes()[..len]]) {
                    Ok(reply) => {
                        assert!(len >= end && reply.calls().count() == 1, "{wire:?} cut at {len} of {end}: {reply:?}")
                    }
                    Err(failure) => {
                        assert!(len < end && failure.error.is_retryable(), "{wire:?} cut at {len}: {failure:?}")
                    }
                }
            }
        }
    }

    #[test]
    fn s1_s2_stream_split_at_any_byte_yields_the_same_reply() {
        for (wire, stream) in [(Wire::Chat, CHAT), (Wire::Anthropic, MESSAGE), (Wire::Responses, RESPONSE)] {
            let whole = decode(wire, &[stream.as_bytes()]).expect("a reply");
            for cut in 0..stream.len() {
                let (head, tail) = stream.as_bytes().split_at(cut);
                assert_eq!(decode(wire, &[head, tail]), Ok(whole.clone()), "{wire:?} split at {cut}");
            }
        }
    }
}
