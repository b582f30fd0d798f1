//! The two wires that are ours, as pure functions: a request becomes text, stream events become a reply.
//! Nothing in here knows about connections, clocks or keys.

pub(crate) mod anthropic;
mod anthropic_stream;
mod call_ids;
pub(crate) mod chat;
mod chat_stream;
pub(crate) mod reasoning;
mod reply_builder;
mod text_tool_calls;
mod usage;

use homing_core::{
    message::Reply,
    model::{AskFailure, Delta, ModelError, ModelRequest, ToolChoice},
};
use serde::Deserialize;

pub(crate) use call_ids::{IdStyle, of_reply, of_result};
pub(crate) use reply_builder::{Block, ReplyBuilder};

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// OpenAI-compatible chat completions.
    #[serde(alias = "openai", alias = "openai-compatible")]
    Chat,
    /// Anthropic messages.
    Anthropic,
    /// Whatever `genai` speaks with the provider of that name.
    Genai,
}

/// How an answer is to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// In events, as it is written.
    #[default]
    Streamed,
    /// In one piece, for servers that cannot stream.
    Whole,
}

/// What a delta listener inside this crate looks like.
pub(crate) type DeltaListener<'a> = &'a mut dyn FnMut(Delta<'_>);

/// What an event did for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamProgress {
    /// Nothing that a reader would notice: a ping, a blank, a repetition.
    None,
    /// The reply grew.
    Content,
    /// The reply is whole; what follows can only be figures.
    Whole,
    /// Nothing more will come.
    Over,
}

/// Makes a reply of the events of a stream, or of one whole answer.
pub(crate) enum Decoder {
    /// Chat completions.
    Chat(chat_stream::ChatDecoder),
    /// Messages.
    Anthropic(anthropic_stream::AnthropicDecoder),
}

impl Decoder {
    /// Takes the data of one event. An error is the provider's last word.
    pub(crate) fn push(&mut self, data: &[u8], on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        match self {
            Self::Chat(it) => it.push(data, on_delta),
            Self::Anthropic(it) => it.push(data, on_delta),
        }
    }

    /// Takes a whole answer that was not streamed.
    pub(crate) fn push_whole(&mut self, body: &[u8], on_delta: DeltaListener<'_>) -> Result<(), ModelError> {
        match self {
            Self::Chat(it) => it.push_whole(body, on_delta),
            Self::Anthropic(it) => it.push_whole(body, on_delta),
        }
    }

    /// The reply, if its end has been seen.
    pub(crate) fn finish(self) -> Result<Reply, AskFailure> {
        match self {
            Self::Chat(it) => it.finish(),
            Self::Anthropic(it) => it.finish(),
        }
    }

    /// The failure that `error` is at this point of the stream: what it costs and which words had come.
    pub(crate) fn fail(self, error: ModelError) -> AskFailure {
        self.draft().fail(error)
    }

    fn draft(self) -> ReplyBuilder {
        match self {
            Self::Chat(it) => it.draft,
            Self::Anthropic(it) => it.abandon(),
        }
    }
}

/// A decoder for replies that may call these tools.
#[cfg(any(test, fuzzing))]
pub(crate) fn decoder_for(wire: Wire, tools: &[&str]) -> Decoder {
    let draft = ReplyBuilder::new(tools.iter().map(|it| (*it).to_owned()).collect());
    match wire {
        Wire::Anthropic => Decoder::Anthropic(anthropic_stream::AnthropicDecoder::new(draft)),
        Wire::Chat | Wire::Genai => Decoder::Chat(chat_stream::ChatDecoder::new(draft)),
    }
}

/// The names of the tools that a reply to `request` may call; none where calls are switched off.
fn offered(request: &ModelRequest<'_>) -> Vec<String> {
    if request.choice == ToolChoice::Off {
        return Vec::new();
    }
    request.tools.specs.iter().map(|spec| spec.name.clone()).collect()
}

/// Appends `text` as a JSON string.
fn push_string(out: &mut String, text: &str) {
    let plain = !text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\');
    if plain {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&serde_json::to_string(text).expect("a string is always JSON"));
    }
}

/// Text that is borrowed from its event wherever it has no escapes; a bare `Option<Cow<str>>` would always copy.
#[derive(Default, Deserialize)]
struct Text<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);

/// Reads one of our event types; what cannot be read means the stream is damaged.
fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    serde_json::from_str(data).map_err(|error| ModelError::Broken { reason: format!("an unreadable event: {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::{Flow, Splitter};

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

    /// What comes of these chunks and then the end of the stream.
    fn decode(wire: Wire, chunks: &[&[u8]]) -> Result<Reply, AskFailure> {
        let (mut splitter, mut decoder) = (Splitter::default(), decoder_for(wire, &["read"]));
        for chunk in chunks {
            let flow = splitter.push(chunk, |data| {
                decoder.push(data, &mut |_| ()).expect("whole events can be read");
                Flow::More
            });
            flow.expect("short lines");
        }
        splitter.finish(|data| {
            let _unreadable_half = decoder.push(data, &mut |_| ());
            Flow::More
        });
        decoder.finish()
    }

    #[test]
    fn fault18_s11_a_stream_cut_at_any_byte_is_no_reply_and_runs_no_call() {
        for (wire, stream, end) in [(Wire::Chat, CHAT, "\n\ndata: [DONE]"), (Wire::Anthropic, MESSAGE, "}\n\n\u{0}")] {
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
    fn s1_s2_a_stream_split_at_any_byte_gives_the_same_reply() {
        for (wire, stream) in [(Wire::Chat, CHAT), (Wire::Anthropic, MESSAGE)] {
            let whole = decode(wire, &[stream.as_bytes()]).expect("a reply");
            for cut in 0..stream.len() {
                let (head, tail) = stream.as_bytes().split_at(cut);
                assert_eq!(decode(wire, &[head, tail]), Ok(whole.clone()), "{wire:?} split at {cut}");
            }
        }
    }
}
