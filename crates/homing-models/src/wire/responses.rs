//! Encodes requests for OpenAI's Responses API. Each transcript entry is encoded once and cached.
//!
//! Nothing is stored at the provider: each request carries the whole conversation, with the encrypted reasoning of earlier
//! replies in its place. That reasoning goes only to the provider that it came from, because no other can decrypt it.

use homing_core::{
    message::{Image, Message, Part, Reply, ToolResult, TranscriptEntry},
    model::{ModelRequest, ToolChoice, Toolbox},
};
use serde_json::Value;
use std::borrow::Cow;

use super::{
    DOCUMENT_NAME, Delivery, arguments, cache_key, data_url, effort::EffortLevels, encode_tools, join_around, offered,
    push_string, push_tool, reply_before, responses_stream,
};
use crate::wire::{
    call_ids::{self, IdStyle, ResultIds},
    reply_builder::ReplyBuilder,
};

/// The smallest output limit that the provider accepts.
const MIN_OUTPUT: u64 = 16;

/// The settings of a model that shape its requests.
#[derive(Clone, Copy)]
pub(crate) struct ResponsesOptions<'a> {
    /// The provider's name for the model.
    pub(crate) model: &'a str,
    /// The wire and the provider, as recorded in [`Part::Opaque`].
    pub(crate) origin: &'a str,
    /// The reply should contain summaries of its reasoning.
    pub(crate) summary: bool,
    /// Streamed or whole replies.
    pub(crate) delivery: Delivery,
}

/// Creates a decoder for the reply to `request` by the provider `origin`.
pub(crate) fn decoder(request: &ModelRequest<'_>, origin: &str) -> super::Decoder {
    let draft = ReplyBuilder::new(offered(request));
    super::Decoder::Responses(responses_stream::ResponsesDecoder::new(draft, origin))
}

/// The body of a request.
pub(crate) fn body(request: &ModelRequest<'_>, options: ResponsesOptions<'_>) -> String {
    let mut out = String::with_capacity(1_024);
    out.push_str("{\"model\":");
    push_string(&mut out, options.model);
    out.push_str(match options.delivery {
        Delivery::Streamed => ",\"stream\":true,\"store\":false",
        Delivery::Whole => ",\"stream\":false,\"store\":false",
    });
    push_options(&mut out, request, options);
    if !request.tools.specs.is_empty() {
        out.push_str(",\"tools\":");
        out.push_str(&tools(request.tools));
        match request.choice {
            ToolChoice::Auto => (),
            ToolChoice::Off => out.push_str(",\"tool_choice\":\"none\""),
            ToolChoice::Required => out.push_str(",\"tool_choice\":\"required\""),
            ToolChoice::Tool(name) => {
                out.push_str(",\"tool_choice\":{\"type\":\"function\",\"name\":");
                push_string(&mut out, name);
                out.push('}');
            }
        }
    }
    if !request.system.is_empty() {
        out.push_str(",\"instructions\":");
        push_string(&mut out, request.system);
    }
    out.push_str(",\"input\":[");
    join_around(out, input(request, options.origin), "]}")
}

/// Returns true if the effort is sent to this model.
pub(crate) fn takes_effort(model: &str) -> bool {
    EffortLevels::of(model).is_some()
}

fn push_options(out: &mut String, request: &ModelRequest<'_>, options: ResponsesOptions<'_>) {
    out.push_str(&format!(",\"max_output_tokens\":{}", request.max_output.max(MIN_OUTPUT)));
    out.push_str(&format!(",\"prompt_cache_key\":\"{}\"", cache_key(request)));
    let Some(levels) = EffortLevels::of(options.model) else {
        // Models that do not reason refuse the fields below, and the others refuse a temperature.
        if let Some(milli) = request.temperature_milli {
            out.push_str(&format!(",\"temperature\":{}", f64::from(milli) / 1_000.0));
        }
        return;
    };
    out.push_str(",\"include\":[\"reasoning.encrypted_content\"]");
    let effort = request.effort.map(|effort| format!("\"effort\":\"{}\"", levels.word(effort)));
    let summary = options.summary.then(|| "\"summary\":\"auto\"".to_owned());
    let fields: Vec<String> = effort.into_iter().chain(summary).collect();
    if !fields.is_empty() {
        out.push_str(&format!(",\"reasoning\":{{{}}}", fields.join(",")));
    }
}

fn tools(toolbox: &Toolbox) -> Cow<'_, str> {
    toolbox.encoding.get_or_make("responses", || {
        // Tools are strict unless the request says otherwise, and strict ones accept only a part of JSON Schema.
        encode_tools(&toolbox.specs, |out, spec| {
            out.push_str("{\"type\":\"function\",");
            push_tool(out, spec, "parameters");
            out.push_str(",\"strict\":false}");
        })
    })
}

/// The input items of a request; the items of one entry are joined by commas.
fn input<'a>(request: &ModelRequest<'a>, origin: &str) -> Vec<Cow<'a, str>> {
    let mut ids = ResultIds::default();
    let piece = |(position, entry): (usize, &'a std::sync::Arc<TranscriptEntry>)| {
        // An entry with reasoning is encoded differently for other providers.
        let name = if has_items_of(&entry.message, origin) { "responses, own reasoning" } else { "responses" };
        let messages = request.messages;
        entry.encoding.get_or_make(name, || fragment(entry, reply_before(messages, position), origin, &mut ids))
    };
    request.messages.iter().enumerate().map(piece).collect()
}

fn has_items_of(message: &Message, origin: &str) -> bool {
    let Message::Assistant(reply) = message else { return false };
    reply.parts.iter().any(|part| matches!(part, Part::Opaque { wire, .. } if wire == origin))
}

fn fragment<'a>(
    entry: &TranscriptEntry,
    reply: Option<(usize, &'a Message)>,
    origin: &str,
    ids: &mut ResultIds<'a>,
) -> String {
    match &entry.message {
        Message::User { text, images } => user(text, images),
        Message::Assistant(message) => assistant(message, reply.map_or(0, |(position, _)| position), origin),
        Message::Tool(result) => tool(result, &ids.of(result, reply, IdStyle::Free)),
    }
}

fn user(text: &str, images: &[Image]) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    out.push_str("{\"type\":\"message\",\"role\":\"user\",\"content\":");
    push_content(&mut out, text, images);
    out.push('}');
    out
}

/// Appends a text, as a list of typed parts if there are images.
fn push_content(out: &mut String, text: &str, images: &[Image]) {
    if images.is_empty() {
        push_string(out, text);
        return;
    }
    out.push_str("[{\"type\":\"input_text\",\"text\":");
    push_string(out, text);
    out.push('}');
    for image in images {
        if image.is_pdf() {
            out.push_str(&format!(",{{\"type\":\"input_file\",\"filename\":\"{DOCUMENT_NAME}\",\"file_data\":"));
        } else {
            out.push_str(",{\"type\":\"input_image\",\"image_url\":");
        }
        push_string(out, &data_url(image));
        out.push('}');
    }
    out.push(']');
}

/// The items of a reply. The provider refuses reasoning that no other item follows, which happens if the reply was cut.
fn assistant(reply: &Reply, position: usize, origin: &str) -> String {
    let mut ids = call_ids::of_reply(reply, position, IdStyle::Free).into_iter();
    let (mut items, mut phase) = (Vec::new(), None);
    // The number of items up to the last one that is not reasoning.
    let mut kept = 0;
    for part in &reply.parts {
        match part {
            Part::Text(text) if text.trim().is_empty() => continue,
            Part::Text(text) => items.push(message_item(text, phase.take())),
            Part::Thinking { .. } => continue,
            Part::Call(call) => {
                let mut out = String::from("{\"type\":\"function_call\",\"call_id\":");
                push_string(&mut out, &ids.next().unwrap_or_default());
                out.push_str(",\"name\":");
                push_string(&mut out, &call.name);
                out.push_str(",\"arguments\":");
                push_string(&mut out, &arguments(&call.args));
                out.push('}');
                items.push(out);
            }
            Part::Opaque { wire, block } if wire == origin => match block.get("type").and_then(Value::as_str) {
                Some("message") => {
                    phase = block.get("phase").and_then(Value::as_str);
                    continue;
                }
                Some("reasoning") => {
                    items.push(block.to_string());
                    continue;
                }
                Some(_) | None => items.push(block.to_string()),
            },
            Part::Opaque { .. } => continue,
        }
        kept = items.len();
    }
    items.truncate(kept);
    if items.is_empty() {
        items.push(message_item("(nothing)", None));
    }
    items.join(",")
}

/// A message of the model. Newer models mark their messages as commentary or answer and need these marks back.
fn message_item(text: &str, phase: Option<&str>) -> String {
    let mut out = String::with_capacity(text.len() + 96);
    out.push_str("{\"type\":\"message\",\"role\":\"assistant\"");
    if let Some(phase) = phase {
        out.push_str(",\"phase\":");
        push_string(&mut out, phase);
    }
    out.push_str(",\"content\":[{\"type\":\"output_text\",\"text\":");
    push_string(&mut out, text);
    out.push_str("}]}");
    out
}

fn tool(result: &ToolResult, id: &str) -> String {
    let mut out = String::with_capacity(result.text.len() + 96);
    out.push_str("{\"type\":\"function_call_output\",\"call_id\":");
    push_string(&mut out, id);
    out.push_str(",\"output\":");
    push_content(&mut out, &result.text, &result.images);
    out.push('}');
    out
}
