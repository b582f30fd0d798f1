//! The two wires that are ours, as pure functions: a request becomes text, stream events become a reply.
//! Nothing in here knows about connections, clocks or keys.

pub(crate) mod anthropic;
mod anthropic_stream;
pub(crate) mod chat;
mod chat_stream;
mod draft;
mod ids;
mod spelled;
mod usage;

use homing_core::{
    message::Reply,
    model::{Delta, Failure, ModelError, Request},
};
use serde::Deserialize;

pub(crate) use draft::{Block, Draft};
pub(crate) use ids::{IdStyle, of_reply, of_result};

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

/// What a delta listener inside this crate looks like.
pub(crate) type Listener<'a> = &'a mut dyn FnMut(Delta<'_>);

/// What an event did for the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
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
    Chat(chat_stream::Decoder),
    /// Messages.
    Anthropic(anthropic_stream::Decoder),
}

impl Decoder {
    /// Takes the data of one event. An error is the provider's last word.
    pub(crate) fn push(&mut self, data: &[u8], on_delta: Listener<'_>) -> Result<Progress, ModelError> {
        match self {
            Self::Chat(it) => it.push(data, on_delta),
            Self::Anthropic(it) => it.push(data, on_delta),
        }
    }

    /// Takes a whole answer that was not streamed.
    pub(crate) fn push_whole(&mut self, body: &[u8], on_delta: Listener<'_>) -> Result<(), ModelError> {
        match self {
            Self::Chat(it) => it.push_whole(body, on_delta),
            Self::Anthropic(it) => it.push_whole(body, on_delta),
        }
    }

    /// The reply, if its end has been seen.
    pub(crate) fn finish(self) -> Result<Reply, Failure> {
        match self {
            Self::Chat(it) => it.finish(),
            Self::Anthropic(it) => it.finish(),
        }
    }

    /// The failure that `error` is at this point of the stream: what it costs and which words had come.
    pub(crate) fn fail(self, error: ModelError) -> Failure {
        self.draft().fail(error)
    }

    fn draft(self) -> Draft {
        match self {
            Self::Chat(it) => it.draft,
            Self::Anthropic(it) => it.abandon(),
        }
    }
}

/// The names of the tools that a reply to `request` may call.
fn offered(request: &Request<'_>) -> Vec<String> {
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

/// Reads one of our event types; what cannot be read means the stream is damaged.
fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    serde_json::from_str(data).map_err(|error| ModelError::Broken { reason: format!("an unreadable event: {error}") })
}
