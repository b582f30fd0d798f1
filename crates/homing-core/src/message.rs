//! What is said in a run: tasks, replies, tool results. The transcript is a list of these, and so is what a model is sent.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One entry of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// Said by whoever started the run, or told to it later.
    User {
        /// The task or a follow-up.
        text: String,
        /// Pictures that come with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// Said by the model.
    Assistant(Reply),
    /// What a tool answered.
    Tool(ToolResult),
}

impl Message {
    /// A user message of words alone.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), images: Vec::new() }
    }
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// Such as `image/png`.
    pub media_type: String,
    /// The bytes in standard base64.
    pub base64: String,
}

/// A model's answer, in the order in which it was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Words, thoughts and calls.
    pub parts: Vec<Part>,
    /// Why the model stopped.
    pub stop: StopReason,
    /// What it used.
    pub usage: Usage,
    /// The model that answered, as the provider named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The tool whose call the output limit cut; that call is not among the parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_call: Option<String>,
}

/// One piece of a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Words for the reader.
    Text(String),
    /// Thoughts; some providers want them back unchanged, with their signature.
    Thinking {
        /// The thoughts, empty where the provider hides them.
        text: String,
        /// The provider's seal on them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// What they came as, because a provider refuses them under another name: a field of chat completions, such as
        /// `reasoning`, or `genai/` and a provider. `None` for Anthropic's own blocks, and in records that are older
        /// than this field.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<String>,
    },
    /// A wish to call a tool.
    Call(ToolCall),
    /// A block that only its provider understands; it goes back as it came.
    Opaque {
        /// The wire that it came from and alone may go back to.
        wire: String,
        /// The block.
        block: Value,
    },
}

/// Why a model stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said what it had to say.
    #[default]
    End,
    /// It waits for its calls.
    Calls,
    /// The provider cut the reply at its output limit. A call that was being written is not among the parts; its tool is
    /// in [`Reply::cut_call`].
    Length,
    /// It, or its provider, declined.
    Refusal,
    /// Something newer than this program.
    Other(String),
}

/// A model's wish to call a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id; may be empty or repeated, so nothing of ours depends on it.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments.
    pub args: Args,
}

/// Arguments, as far as they can be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Args {
    /// A JSON value; whether it fits the tool is the tool's to say.
    Json(Value),
    /// Text that is no JSON. It is shown to the model again and never acted on.
    Malformed(String),
}

impl Reply {
    /// A reply of words alone.
    pub fn text_only(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::Text(text.into())], ..Self::default() }
    }

    /// All words, joined.
    pub fn text(&self) -> String {
        let words = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Thinking { .. } | Part::Call(_) | Part::Opaque { .. } => None,
        });
        words.collect()
    }

    /// The calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            Part::Text(_) | Part::Thinking { .. } | Part::Opaque { .. } => None,
        })
    }
}

/// What a tool answered to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The position of the call in its reply, from 0: this pairs them.
    pub index: u32,
    /// The provider's id of the call, which goes back with the result.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// Text the model will read.
    pub text: String,
    /// Pictures the model will see, where its provider can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The same result for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The tool failed; the model may try another way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// What one model call used. Input includes cached tokens, output includes reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens sent, cached ones included.
    pub input: u64,
    /// Of these, read from the provider's cache.
    pub cached: u64,
    /// Of these, written to the provider's cache.
    pub cache_write: u64,
    /// Tokens received, reasoning included.
    pub output: u64,
    /// Of these, spent on reasoning.
    pub reasoning: u64,
    /// Millionths of a US dollar.
    pub cost_micros: u64,
    /// The provider did not say, or cannot be believed: these are our worst-case figures.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Input and output together, which is what a token limit counts.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.cost_micros = self.cost_micros.saturating_add(other.cost_micros);
        self.estimated = self.estimated || other.estimated;
    }
}

/// A message in a transcript, together with what a wire made of it.
///
/// Entries are shared, never copied, and each is encoded once: a turn costs its new messages, not the whole history again.
#[derive(Debug)]
pub struct TranscriptEntry {
    /// The message.
    pub message: Message,
    /// What the run's wire made of it.
    pub encoding: Encoding,
    measure: OnceLock<Measure>,
}

/// Size and fingerprint of a message, taken together because both need its bytes.
#[derive(Clone, Copy, Debug)]
struct Measure {
    size: u64,
    hash: u64,
}

impl TranscriptEntry {
    /// An entry that no wire has seen yet.
    pub fn new(message: Message) -> Arc<Self> {
        Arc::new(Self { message, encoding: Encoding::default(), measure: OnceLock::new() })
    }

    /// How many bytes the message has, counted generously; the ledger's bound on input tokens starts from this.
    pub fn size(&self) -> u64 {
        self.measure().size
    }

    /// A fingerprint of the message.
    pub fn hash(&self) -> u64 {
        self.measure().hash
    }

    fn measure(&self) -> Measure {
        *self.measure.get_or_init(|| {
            let json = serde_json::to_vec(&self.message).unwrap_or_default();
            Measure { size: json.len() as u64, hash: fnv(FNV_START, &json) }
        })
    }
}

/// Where a fingerprint begins.
pub const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, continued from `hash`.
pub fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What a wire made of a value, kept beside it. The first wire that asks owns the place; others encode each time.
#[derive(Debug, Default)]
pub struct Encoding(OnceLock<(&'static str, Box<str>)>);

impl Encoding {
    /// What was kept for `wire`, if anything. Asked for every message of every request, it reads nothing but the place
    /// itself: the same name is known by its address.
    #[inline]
    pub fn kept(&self, wire: &'static str) -> Option<&str> {
        self.0.get().filter(|(owner, _)| std::ptr::eq(*owner, wire) || *owner == wire).map(|(_, text)| &**text)
    }

    /// The kept encoding for `wire`, made by `make` at the first call.
    pub fn get_or_make(&self, wire: &'static str, make: impl FnOnce() -> String) -> Cow<'_, str> {
        if let Some(text) = self.kept(wire) {
            return Cow::Borrowed(text);
        }
        if self.0.get().is_some() {
            return Cow::Owned(make());
        }
        let (owner, text) = self.0.get_or_init(|| (wire, make().into_boxed_str()));
        debug_assert_eq!(*owner, wire, "one run speaks to one wire at a time");
        Cow::Borrowed(text)
    }
}
