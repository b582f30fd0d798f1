//! Messages in the form of the conventions for generative AI: roles, and parts with their types. The result is always valid
//! JSON, because viewers drop a list that they cannot parse: long texts are cut inside, and old messages are left out whole.

use std::sync::Arc;

use homing_core::message::{Args, Image, Message, Part, Reply, StopReason, ToolCall, ToolResult, TranscriptEntry};
use serde_json::{Value, json};

/// Maximum length of a text in a span in bytes. Collectors refuse much larger ones.
const MAX_TEXT: usize = 32 * 1024;

/// Maximum length of a list of messages in a span in bytes; the oldest ones are left out.
const MAX_MESSAGES: usize = 64 * 1024;

/// Cuts a text to the length that a span may have.
pub(crate) fn cut(text: &str) -> String {
    if text.len() > MAX_TEXT { format!("{}…", &text[..text.floor_char_boundary(MAX_TEXT)]) } else { text.to_owned() }
}

/// Returns a list with one message of text.
pub(crate) fn one_text(role: &str, text: &str) -> Vec<Value> {
    vec![json!({"role": role, "parts": [text_part(text)]})]
}

/// Returns the instructions that are sent apart from the messages.
pub(crate) fn instructions(system: &str) -> Value {
    json!([text_part(system)])
}

/// Returns the messages of a request, the newest of those that fit.
pub(crate) fn input(entries: &[Arc<TranscriptEntry>]) -> Vec<Value> {
    let (mut messages, mut size) = (Vec::new(), 0);
    for entry in entries.iter().rev() {
        let message = message(&entry.message);
        size += message.to_string().len();
        if size > MAX_MESSAGES && !messages.is_empty() {
            let omitted = entries.len() - messages.len();
            messages.push(json!({"role": "system", "parts": [{"type": "omitted", "messages": omitted}]}));
            break;
        }
        messages.push(message);
    }
    messages.reverse();
    messages
}

/// Returns a message with its parts.
fn message(message: &Message) -> Value {
    match message {
        Message::User { text, images } => {
            let parts: Vec<Value> = [text_part(text)].into_iter().chain(images.iter().map(image_part)).collect();
            json!({"role": "user", "parts": parts})
        }
        Message::Assistant(reply) => json!({"role": "assistant", "parts": reply_parts(reply)}),
        Message::Tool(result) => json!({"role": "tool", "parts": result_parts(result)}),
    }
}

/// Returns a reply as the output of a model call.
pub(crate) fn output(reply: &Reply) -> Vec<Value> {
    vec![json!({"role": "assistant", "parts": reply_parts(reply), "finish_reason": finish(&reply.stop)})]
}

/// Returns the answer of a run as its output.
pub(crate) fn answer(text: &str, finish_reason: &str) -> Vec<Value> {
    vec![json!({"role": "assistant", "parts": [text_part(text)], "finish_reason": finish_reason})]
}

/// Returns the name of the reason why a model stopped.
pub(crate) fn finish(stop: &StopReason) -> &str {
    match stop {
        StopReason::End => "stop",
        StopReason::Calls => "tool_call",
        StopReason::Length => "length",
        StopReason::Refusal => "content_filter",
        StopReason::Other(other) => other,
        _ => "other",
    }
}

fn reply_parts(reply: &Reply) -> Vec<Value> {
    let part = |part: &Part| match part {
        Part::Text(text) => Some(text_part(text)),
        Part::Thinking { text, .. } if text.is_empty() => None,
        Part::Thinking { text, .. } => Some(json!({"type": "reasoning", "content": cut(text)})),
        Part::Call(call) => Some(json!({
            "type": "tool_call",
            "id": id(&call.id),
            "name": call.name,
            "arguments": arguments(&call.args),
        })),
        // Only its provider understands it.
        Part::Opaque { .. } => None,
    };
    reply.parts.iter().filter_map(part).collect()
}

fn result_parts(result: &ToolResult) -> Vec<Value> {
    let response = json!({"type": "tool_call_response", "id": id(&result.call_id), "response": cut(&result.text)});
    [response].into_iter().chain(result.images.iter().map(image_part)).collect()
}

/// Returns the provider's ID of a call; some providers give none.
fn id(id: &str) -> Option<&str> {
    Some(id).filter(|id| !id.is_empty())
}

/// Returns the arguments of a call as JSON, or as text if they are too long or not valid.
fn arguments(args: &Args) -> Value {
    match args {
        Args::Json(value) => {
            let text = value.to_string();
            if text.len() > MAX_TEXT { Value::String(cut(&text)) } else { value.clone() }
        }
        Args::Malformed(text) => Value::String(cut(text)),
    }
}

/// Returns the arguments of a call as text.
pub(crate) fn arguments_text(args: &Args) -> String {
    match args {
        Args::Json(value) => cut(&value.to_string()),
        Args::Malformed(text) => cut(text),
    }
}

/// Returns a call in a few words.
pub(crate) fn call_text(call: &ToolCall) -> String {
    format!("{} {}", call.name, arguments_text(&call.args))
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "content": cut(text)})
}

/// Describes an image or document. Its bytes are left out: a part of them is of no use, and all of them are too many.
fn image_part(image: &Image) -> Value {
    let modality = if image.is_pdf() { "document" } else { "image" };
    json!({"type": "omitted", "modality": modality, "mime_type": image.media_type, "bytes": image.base64.len() / 4 * 3})
}
