//! Encodes requests for Anthropic messages. Each transcript entry is encoded once and cached; cache marks are inserted
//! afterwards, because they move with the conversation.

use homing_core::{
    message::{Args, Image, Message, Part, Reply, ToolResult, TranscriptEntry},
    model::{Effort, ModelRequest, ToolChoice, Toolbox},
};
use serde_json::Value;

use super::{CACHE_MARK, Delivery, anthropic_stream, encode_tools, offered, push_string, push_tool};
use crate::wire::{
    call_ids::{self, IdStyle, ResultIds},
    reply_builder::ReplyBuilder,
};

/// Creates a decoder for the reply to `request`.
pub(crate) fn decoder(request: &ModelRequest<'_>) -> super::Decoder {
    super::Decoder::Anthropic(anthropic_stream::AnthropicDecoder::new(ReplyBuilder::new(offered(request))))
}

/// The body of a request.
pub(crate) fn body(request: &ModelRequest<'_>, model: &str, delivery: Delivery) -> String {
    let entries = request.messages.iter().map(|entry| usize::try_from(entry.size()).unwrap_or(0)).sum::<usize>();
    let mut out = String::with_capacity(entries + request.system.len() + request.tools.specs.len() * 1_024 + 1_024);
    out.push_str("{\"model\":");
    push_string(&mut out, model);
    out.push_str(match delivery {
        Delivery::Streamed => ",\"stream\":true",
        Delivery::Whole => ",\"stream\":false",
    });
    push_options(&mut out, request, model);
    if !request.tools.specs.is_empty() {
        out.push_str(",\"tools\":");
        out.push_str(&tools(request.tools));
        match request.choice {
            ToolChoice::Auto => (),
            ToolChoice::Off => out.push_str(",\"tool_choice\":{\"type\":\"none\"}"),
            ToolChoice::Required => out.push_str(",\"tool_choice\":{\"type\":\"any\"}"),
            ToolChoice::Tool(name) => {
                out.push_str(&format!(",\"tool_choice\":{{\"type\":\"tool\",\"name\":\"{name}\"}}"));
            }
        }
    }
    if !request.system.trim().is_empty() {
        out.push_str(",\"system\":[{\"type\":\"text\",\"text\":");
        push_string(&mut out, request.system);
        out.push_str(CACHE_MARK);
        out.push_str("}]");
    }
    out.push_str(",\"messages\":[");
    push_messages(&mut out, request);
    out.push_str("]}");
    out
}

fn push_options(out: &mut String, request: &ModelRequest<'_>, model: &str) {
    let thinking = thinking(request, model);
    out.push_str(&format!(",\"max_tokens\":{}", request.max_output));
    match &thinking {
        ThinkingMode::Unset => (),
        ThinkingMode::Off => out.push_str(",\"thinking\":{\"type\":\"disabled\"}"),
        ThinkingMode::Budget(tokens) => {
            out.push_str(&format!(",\"thinking\":{{\"type\":\"enabled\",\"budget_tokens\":{tokens}}}"));
        }
        ThinkingMode::Adaptive(effort) => {
            out.push_str(&format!(
                ",\"thinking\":{{\"type\":\"adaptive\"}},\"output_config\":{{\"effort\":\"{effort}\"}}"
            ));
        }
    }
    if let Some(milli) = temperature(request, model, &thinking) {
        out.push_str(&format!(",\"temperature\":{}", f64::from(milli) / 1_000.0));
    }
}

/// The temperature in thousandths. A request with thinking must have none.
pub(super) fn temperature(request: &ModelRequest<'_>, model: &str, thinking: &ThinkingMode) -> Option<u32> {
    let is_free = matches!(thinking, ThinkingMode::Unset | ThinkingMode::Off) && !refuses_sampling(model);
    request.temperature_milli.filter(|_| is_free).map(|milli| milli.min(1_000))
}

/// Returns true for the newest models, which accept neither a temperature nor `top_p`.
pub(crate) fn refuses_sampling(model: &str) -> bool {
    version(model).is_some_and(|version| version >= (4, 7))
}

/// The thinking mode of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ThinkingMode {
    Unset,
    Off,
    Budget(u64),
    Adaptive(&'static str),
}

pub(super) fn thinking(request: &ModelRequest<'_>, model: &str) -> ThinkingMode {
    let Some(effort) = request.effort else { return ThinkingMode::Unset };
    if effort == Effort::None {
        return ThinkingMode::Off;
    }
    // The provider refuses a required call together with thinking.
    if matches!(request.choice, ToolChoice::Required | ToolChoice::Tool(_)) || !can_think(model) {
        return ThinkingMode::Unset;
    }
    if is_adaptive(model) {
        return ThinkingMode::Adaptive(match effort {
            Effort::None | Effort::Minimal | Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::Xhigh | Effort::Max => "max",
        });
    }
    let wanted = match effort {
        Effort::None | Effort::Minimal | Effort::Low => 1_024,
        Effort::Medium => 4_096,
        Effort::High => 16_384,
        Effort::Xhigh | Effort::Max => 32_000,
    };
    // The thinking budget is part of the output limit; half of the limit is kept for the reply.
    let budget = wanted.min(request.max_output / 2);
    if budget >= 1_024 { ThinkingMode::Budget(budget) } else { ThinkingMode::Unset }
}

/// The version in an id such as `claude-opus-4-6` or `claude-3-7-sonnet-20250219`, as `(4, 6)`.
pub(super) fn version(model: &str) -> Option<(u32, u32)> {
    let mut numbers = model.split(['-', '.', '@', ':']).filter_map(|part| part.parse::<u32>().ok());
    let numbers: Vec<u32> = numbers.by_ref().take_while(|number| *number < 1_000).collect();
    numbers.first().map(|major| (*major, numbers.get(1).copied().unwrap_or(0)))
}

/// Returns true if the model can reason before it replies.
pub(crate) fn can_think(model: &str) -> bool {
    version(model).is_none_or(|version| version >= (3, 7))
}

fn is_adaptive(model: &str) -> bool {
    version(model).is_none_or(|version| version >= (4, 6))
}

fn tools(toolbox: &Toolbox) -> std::borrow::Cow<'_, str> {
    toolbox.encoding.get_or_make("anthropic", || {
        let mut text = encode_tools(&toolbox.specs, |out, spec| {
            out.push('{');
            push_tool(out, spec, "input_schema");
            out.push('}');
        });
        text.insert_str(text.len() - 2, CACHE_MARK);
        text
    })
}

/// Merges adjacent entries of one role into one message, so that all results of a reply are in one.
fn push_messages(out: &mut String, request: &ModelRequest<'_>) {
    let marks = marks(request);
    let (mut role, mut reply, mut ids) = (None, None, ResultIds::default());
    for (position, entry) in request.messages.iter().enumerate() {
        if !matches!(entry.message, Message::Tool(_)) {
            reply = Some((position, &entry.message));
        }
        let fragment = entry.encoding.get_or_make("anthropic", || fragment(entry, reply, &mut ids));
        let entry_role = role_of(&entry.message);
        match role {
            Some(before) if before == entry_role => out.push(','),
            Some(_) => out.push_str(&format!("]}},{{\"role\":\"{entry_role}\",\"content\":[")),
            None => out.push_str(&format!("{{\"role\":\"{entry_role}\",\"content\":[")),
        }
        role = Some(entry_role);
        if marks.contains(&Some(position)) {
            out.push_str(&fragment[..fragment.len() - 1]);
            out.push_str(CACHE_MARK);
            out.push('}');
        } else {
            out.push_str(&fragment);
        }
    }
    if role.is_some() {
        out.push_str("]}");
    }
}

/// The positions of cache marks: the end of this request and the end of the last one. The latter is needed if this turn
/// added more blocks than the provider looks back over.
pub(super) fn marks(request: &ModelRequest<'_>) -> [Option<usize>; 2] {
    let is_reply = |at: &usize| matches!(request.messages[*at].message, Message::Assistant(_));
    let end = (0..request.messages.len()).next_back().filter(|at| !is_reply(at));
    let last_reply = (0..request.messages.len()).rfind(is_reply);
    let before = last_reply.and_then(|at| at.checked_sub(1)).filter(|at| !is_reply(at));
    [end, before]
}

pub(super) fn role_of(message: &Message) -> &'static str {
    match message {
        Message::User { .. } | Message::Tool(_) => "user",
        Message::Assistant(_) => "assistant",
    }
}

/// The content blocks of an entry, joined by commas. The provider refuses a message without content and one that ends
/// with reasoning, which happens if a call after it was cut; both get a placeholder.
fn fragment<'a>(entry: &TranscriptEntry, reply: Option<(usize, &'a Message)>, ids: &mut ResultIds<'a>) -> String {
    let mut blocks = Vec::new();
    match &entry.message {
        Message::User { text, images } => {
            blocks.extend(text_block(text));
            blocks.extend(images.iter().map(image_block));
        }
        Message::Assistant(message) => blocks = assistant(message, reply.map_or(0, |(position, _)| position)),
        Message::Tool(result) => blocks.push(tool_result(result, &ids.of(result, reply, IdStyle::Free))),
    }
    if blocks.is_empty() || ends_with_reasoning(&entry.message) {
        blocks.extend(text_block("(nothing)"));
    }
    blocks.join(",")
}

fn ends_with_reasoning(message: &Message) -> bool {
    let Message::Assistant(reply) = message else { return false };
    let sent = |part: &&Part| match part {
        Part::Text(text) => !text.trim().is_empty(),
        Part::Thinking { signature, .. } => signature.is_some(),
        Part::Call(_) => true,
        Part::Opaque { wire, .. } => wire == "anthropic",
    };
    match reply.parts.iter().rfind(sent) {
        Some(Part::Thinking { .. }) => true,
        Some(Part::Opaque { block, .. }) => block.get("type").is_some_and(|kind| kind == "redacted_thinking"),
        Some(Part::Text(_) | Part::Call(_)) | None => false,
    }
}

/// A text block; `None` for blank text, which the provider refuses.
fn text_block(text: &str) -> Option<String> {
    if text.trim().is_empty() {
        return None;
    }
    let mut out = String::with_capacity(text.len() + 32);
    out.push_str("{\"type\":\"text\",\"text\":");
    push_string(&mut out, text);
    out.push('}');
    Some(out)
}

fn image_block(image: &Image) -> String {
    let mut out = String::with_capacity(image.base64.len() + 96);
    let kind = if image.is_pdf() { "document" } else { "image" };
    out.push_str(&format!("{{\"type\":\"{kind}\",\"source\":{{\"type\":\"base64\",\"media_type\":"));
    push_string(&mut out, &image.media_type);
    out.push_str(",\"data\":");
    push_string(&mut out, &image.base64);
    out.push_str("}}");
    out
}

fn assistant(reply: &Reply, position: usize) -> Vec<String> {
    let mut ids = call_ids::of_reply(reply, position, IdStyle::Free).into_iter();
    let blocks = reply.parts.iter().filter_map(|part| match part {
        Part::Text(text) => text_block(text),
        // Only the provider that created a signature accepts it.
        Part::Thinking { text, signature, origin: None } => {
            signature.as_deref().map(|signature| thinking_block(text, signature))
        }
        Part::Thinking { .. } => None,
        Part::Call(call) => {
            let input = match &call.args {
                Args::Json(value @ Value::Object(_)) => value.to_string(),
                Args::Json(value) => serde_json::json!({ "value": value }).to_string(),
                Args::Malformed(text) => serde_json::json!({ "malformed_arguments": text }).to_string(),
            };
            let mut out = String::from("{\"type\":\"tool_use\",\"id\":");
            push_string(&mut out, &ids.next().unwrap_or_default());
            out.push_str(",\"name\":");
            push_string(&mut out, &call.name);
            out.push_str(&format!(",\"input\":{input}}}"));
            Some(out)
        }
        Part::Opaque { wire, block } => (wire == "anthropic").then(|| block.to_string()),
    });
    blocks.collect()
}

fn thinking_block(text: &str, signature: &str) -> String {
    let mut out = String::from("{\"type\":\"thinking\",\"thinking\":");
    push_string(&mut out, text);
    out.push_str(",\"signature\":");
    push_string(&mut out, signature);
    out.push('}');
    out
}

fn tool_result(result: &ToolResult, id: &str) -> String {
    let mut out = String::with_capacity(result.text.len() + 96);
    out.push_str("{\"type\":\"tool_result\",\"tool_use_id\":");
    push_string(&mut out, id);
    if result.images.is_empty() {
        out.push_str(",\"content\":");
        push_string(&mut out, &result.text);
    } else {
        let blocks: Vec<String> =
            text_block(&result.text).into_iter().chain(result.images.iter().map(image_block)).collect();
        out.push_str(&format!(",\"content\":[{}]", blocks.join(",")));
    }
    if result.is_error {
        out.push_str(",\"is_error\":true");
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_ids() {
        assert_eq!(version("claude-opus-4-6"), Some((4, 6)));
        assert_eq!(version("claude-sonnet-4-20250514"), Some((4, 0)));
        assert_eq!(version("claude-3-7-sonnet-20250219"), Some((3, 7)));
        assert_eq!(version("anthropic/claude-haiku-4.5"), Some((4, 5)));
        assert_eq!(version("mymodel"), None);
    }
}
