//! Messages: tasks, replies and tool results. Transcripts and model requests are lists of them.

mod cached;
mod measure;

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::measure::Measure;
pub use self::{
    cached::{Derived, Encoding},
    measure::{FNV_START, fnv, json_hash},
};
use crate::{fact::CallRefusal, json_text::JsonText};

/// One entry of a transcript.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::message::{Message, Reply}; }
/// use homing::{Message, Reply};
///
/// // The beginning of a conversation that a host keeps itself, for `Task::history`.
/// let history = [Message::user("My name is Ada."), Message::Assistant(Reply::text_only("Hello, Ada.").into())];
/// assert_eq!(history.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// From the user, the parent or the runtime.
    User {
        /// The text.
        text: String,
        /// Attached images and documents.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
    },
    /// From the model. Shared, because the transcript and the fact refer to it.
    Assistant(Arc<Reply>),
    /// Result of a tool call, shared for the same reason.
    Tool(Arc<ToolResult>),
}

impl Message {
    /// Creates a user message of text only.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), images: Vec::new() }
    }

    /// Returns the attached images and documents.
    pub fn images(&self) -> &[Image] {
        match self {
            Self::User { images, .. } => images,
            Self::Tool(result) => &result.images,
            Self::Assistant(_) => &[],
        }
    }
}

/// An image, or a PDF document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Image {
    /// Media type, such as `image/png`, or [`Image::PDF`].
    pub media_type: String,
    /// The bytes in standard base64.
    pub base64: String,
    /// Number of pages of a document; `None` for an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<u32>,
}

impl Image {
    /// Media type of PDF documents.
    pub const PDF: &'static str = "application/pdf";

    /// Returns true for a PDF document.
    pub fn is_pdf(&self) -> bool {
        self.media_type == Self::PDF
    }
}

/// A file that a host attaches to a task.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::message::{AttachedContent, Attachment}; }
/// use homing::{AttachedContent, Attachment};
///
/// let notes = Attachment::new("notes.txt", AttachedContent::Text("Buy milk.".to_owned()));
/// let mut task = "Summarise this.".to_owned();
/// notes.append_to(&mut task);
/// assert_eq!(task, "Summarise this.\n\n<file path=\"notes.txt\">\nBuy milk.\n</file>");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Attachment {
    /// Path of the file, as the model is told.
    pub path: String,
    /// Its content.
    pub content: AttachedContent,
}

/// The content of an attached file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AttachedContent {
    /// Text; it becomes a part of the task's text.
    Text(String),
    /// An image or a PDF document; it follows the task's text.
    Image(Image),
}

impl Attachment {
    /// Returns the image or document, if it is one.
    pub fn image(&self) -> Option<&Image> {
        match &self.content {
            AttachedContent::Text(_) => None,
            AttachedContent::Image(image) => Some(image),
        }
    }

    /// Appends the attachment to the text of a task: a text with its path, or the path of an image that follows the text.
    pub fn append_to(&self, task: &mut String) {
        let path = &self.path;
        task.push_str("\n\n");
        match &self.content {
            AttachedContent::Text(text) => {
                let end = if text.ends_with('\n') { "" } else { "\n" };
                task.push_str(&format!("<file path=\"{path}\">\n{text}{end}</file>"));
            }
            AttachedContent::Image(image) => task.push_str(&format!("[attached: {path} ({})]", image.media_type)),
        }
    }
}

/// A model's reply.
///
/// # Examples
///
/// ```
/// # use homing_core::message as homing;
/// use homing::Reply;
///
/// let reply = Reply::text_only("Paris");
/// assert_eq!(reply.text(), "Paris");
/// assert_eq!(reply.calls().count(), 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reply {
    /// Text, reasoning and calls, in the order in which they arrived.
    pub parts: Vec<Part>,
    /// Reason why the model stopped.
    pub stop: StopReason,
    /// Usage.
    pub usage: Usage,
    /// The model that answered, as the provider named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The tool whose call the output limit cut; that call is not among the parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_call: Option<String>,
    /// Results of a program, such as a team's. Language models give structured answers with the tool `answer`. Shared with the
    /// end of the run, because those of a map over many items are large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Arc<Value>>,
}

/// One piece of a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text(String),
    /// Reasoning; some providers require it back unchanged, with its signature.
    Thinking {
        /// The text; empty if the provider hides it.
        text: String,
        /// The provider's signature of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// Source of the reasoning: a field of chat completions, such as `reasoning`, or `genai/` and a provider. It must be
        /// sent back under the same name. `None` for Anthropic's blocks, and in records older than this field.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<String>,
    },
    /// A tool call. Shared, because the transcript, the open calls of a run and its facts all refer to it.
    Call(Arc<ToolCall>),
    /// A block that only its provider understands; it is sent back unchanged.
    Opaque {
        /// The wire that it came from; it is sent to no other.
        wire: String,
        /// The block.
        block: Value,
    },
}

/// Reason why a model stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The reply is complete.
    #[default]
    End,
    /// The model waits for the results of its calls.
    Calls,
    /// The provider cut the reply at its output limit. A call that was being written is not among the parts; its tool is
    /// in [`Reply::cut_call`].
    Length,
    /// The model or its provider declined to answer.
    Refusal,
    /// A reason that this version does not support.
    Other(String),
}

/// A tool call requested by a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's ID; may be empty or repeated, so it does not identify the call.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments.
    pub args: Args,
}

/// Arguments of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Args {
    /// A JSON value; the tool checks whether it fits.
    Json(Value),
    /// Text that is not valid JSON. The call is not executed and the text is shown to the model.
    Malformed(String),
}

impl Reply {
    /// Creates a reply of text only.
    pub fn text_only(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::Text(text.into())], ..Self::default() }
    }

    /// Returns the text parts, joined.
    pub fn text(&self) -> String {
        let words = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Thinking { .. } | Part::Call(_) | Part::Opaque { .. } => None,
        });
        words.collect()
    }

    /// Returns the calls in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(&**call),
            Part::Text(_) | Part::Thinking { .. } | Part::Opaque { .. } => None,
        })
    }
}

/// Result of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Position of the call in its reply, from 0; pairs result and call.
    pub index: u32,
    /// The provider's ID of the call, sent back with the result.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// Text for the model.
    pub text: String,
    /// Images and documents for the model, if its provider supports them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// The result as JSON, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<JsonText>,
    /// True if the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// Usage of one or more model calls. Input includes cached tokens, output includes reasoning.
///
/// # Examples
///
/// ```
/// # use homing_core::message as homing;
/// use homing::Usage;
///
/// let mut usage = Usage::default().input(1_000).output(50);
/// usage += Usage::default().input(200);
/// assert_eq!(usage.tokens(), 1_250);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
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
    /// True if these are worst-case estimates, because the provider reported no usage or an implausible one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Returns input and output together, which is what a token limit counts.
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

/// A message of a transcript with its origin and its cached encoding. Origin and refusal follow from the facts.
///
/// Entries are shared and encoded once, so a turn costs only its new messages, not the whole history again.
#[derive(Debug)]
pub struct TranscriptEntry {
    /// The message.
    pub message: Message,
    /// Origin of the message.
    pub origin: MessageOrigin,
    /// Reason why the call was not executed, if this is the result of such a call.
    pub refusal: Option<CallRefusal>,
    /// Cached encoding for the run's wire.
    pub encoding: Encoding,
    /// Value that a program derived from the message.
    pub derived: Derived,
    has_images: bool,
    measure: OnceLock<Measure>,
}

/// Origin of a message in a transcript.
///
/// The fold derives it from the facts and it is not serialized, so code never needs to compare the text of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageOrigin {
    /// The transcript of the parent, or of the run that this one continues.
    Inherited,
    /// The task of the run.
    Task,
    /// A message to the run from its host, its parent or a background child.
    Message,
    /// An instruction of the runtime, such as a notice that a reply was cut or that this is the last turn.
    Nudge,
    /// Output of the `until` command, which did not succeed.
    FailedCheck,
    /// Notice that the run continues with a larger budget after a limit had ended it.
    MoreBudget,
    /// Summary of the messages before it.
    Summary,
    /// A reply of the model.
    Model,
    /// The result of a tool call.
    Tool,
}

impl TranscriptEntry {
    /// Creates an entry whose origin follows from the message; a user message counts as [`MessageOrigin::Message`].
    pub fn new(message: Message) -> Arc<Self> {
        let origin = match &message {
            Message::User { .. } => MessageOrigin::Message,
            Message::Assistant(_) => MessageOrigin::Model,
            Message::Tool(_) => MessageOrigin::Tool,
        };
        Self::with_origin(message, origin)
    }

    /// Creates an entry with this origin.
    pub fn with_origin(message: Message, origin: MessageOrigin) -> Arc<Self> {
        Arc::new(Self::build(message, origin, None))
    }

    /// Creates an entry for the result of a call that may have been refused.
    pub fn with_refusal(result: Arc<ToolResult>, refusal: Option<CallRefusal>) -> Arc<Self> {
        Arc::new(Self::build(Message::Tool(result), MessageOrigin::Tool, refusal))
    }

    fn build(message: Message, origin: MessageOrigin, refusal: Option<CallRefusal>) -> Self {
        Self {
            has_images: !message.images().is_empty(),
            message,
            origin,
            refusal,
            encoding: Encoding::default(),
            derived: Derived::default(),
            measure: OnceLock::new(),
        }
    }

    /// Returns whether images or documents are attached to the message. It is asked of the whole history at each turn, so the
    /// message itself is not looked at.
    pub fn has_images(&self) -> bool {
        self.has_images
    }

    /// Returns the size of the message as JSON, in bytes; the bound on input tokens starts from it.
    pub fn size(&self) -> u64 {
        self.measure().size
    }

    /// Returns a fingerprint of the message.
    pub fn hash(&self) -> u64 {
        self.measure().hash
    }

    fn measure(&self) -> Measure {
        *self.measure.get_or_init(|| Measure::of_message(&self.message))
    }
}
