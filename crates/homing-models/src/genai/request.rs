//! Converts a request into `genai`'s types.

use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ContentPart, MessageContent, ReasoningEffort, Tool,
    ToolCall as GenaiToolCall, ToolChoice as GenaiToolChoice, ToolResponse,
};
use homing_core::{
    message::{Args, Image, Message, Part, Reply, ToolResult},
    model::{Effort, ModelRequest, Sampling, ToolChoice},
};
use serde_json::{Value, json};

use crate::wire::{DOCUMENT_NAME, IdStyle, ResultIds, of_reply};

/// The options of a request: everything but its messages and tools.
pub(super) fn options(request: &ModelRequest<'_>, headers: &[(String, String)], sampling: &Sampling) -> ChatOptions {
    let mut options = ChatOptions::default()
        .with_max_tokens(u32::try_from(request.max_output).unwrap_or(u32::MAX))
        .with_capture_usage(true)
        .with_capture_content(true)
        .with_capture_tool_calls(true)
        .with_capture_reasoning_content(true);
    if let Some(milli) = request.temperature_milli {
        options = options.with_temperature(f64::from(milli) / 1_000.0);
    }
    if let Some(effort) = request.effort {
        options = options.with_reasoning_effort(effort_of(effort));
    }
    if !request.tools.specs.is_empty() {
        options = match request.choice {
            ToolChoice::Auto => options,
            ToolChoice::Off => options.with_tool_choice(GenaiToolChoice::None),
            ToolChoice::Required => options.with_tool_choice(GenaiToolChoice::Required),
            ToolChoice::Tool(name) => options.with_tool_choice(GenaiToolChoice::tool(name)),
        };
    }
    options.seed = sampling.seed;
    options.top_p = sampling.top_p_milli.map(|milli| f64::from(milli) / 1_000.0);
    options.service_tier = sampling.service_tier.as_deref().and_then(|tier| tier.parse().ok());
    if !headers.is_empty() {
        options = options.with_extra_headers(headers.to_vec());
    }
    options
}

fn effort_of(effort: Effort) -> ReasoningEffort {
    match effort {
        Effort::None => ReasoningEffort::Zero,
        Effort::Minimal => ReasoningEffort::Minimal,
        Effort::Low => ReasoningEffort::Low,
        Effort::Medium => ReasoningEffort::Medium,
        Effort::High => ReasoningEffort::High,
        Effort::Xhigh => ReasoningEffort::XHigh,
        Effort::Max => ReasoningEffort::Max,
    }
}

/// The messages and tools of a request. Signed reasoning is included if it came from the provider `origin`.
pub(super) fn chat_request(request: &ModelRequest<'_>, origin: &str) -> ChatRequest {
    let mut messages: Vec<ChatMessage> = Vec::new();
    let mut results: Vec<ToolResponse> = Vec::new();
    let mut images: Vec<ContentPart> = Vec::new();
    let (mut reply, mut ids) = (None, ResultIds::default());
    for (position, entry) in request.messages.iter().enumerate() {
        if let Message::Tool(result) = &entry.message {
            results.push(tool_response(result, &ids.of(result, reply, IdStyle::Free)));
            images.extend(result.images.iter().map(image));
            continue;
        }
        reply = Some((position, &entry.message));
        flush(&mut messages, &mut results, &mut images);
        messages.extend(message(&entry.message, position, origin));
    }
    flush(&mut messages, &mut results, &mut images);
    let mut chat = ChatRequest::new(messages);
    if !request.system.is_empty() {
        chat = chat.with_system(request.system);
    }
    if !request.tools.specs.is_empty() {
        let tool = |spec: &homing_core::tool::ToolSpec| {
            Tool::new(spec.name.clone()).with_description(spec.description.clone()).with_schema(spec.schema.clone())
        };
        chat = chat.with_tools(request.tools.specs.iter().map(tool).collect::<Vec<_>>());
    }
    chat
}

/// Puts all results of a reply into one message. Their images follow, because `genai` results cannot contain images.
fn flush(messages: &mut Vec<ChatMessage>, results: &mut Vec<ToolResponse>, images: &mut Vec<ContentPart>) {
    if !results.is_empty() {
        messages.push(ChatMessage::tool(MessageContent::from_tool_responses(std::mem::take(results))));
    }
    if !images.is_empty() {
        messages.push(ChatMessage::user(MessageContent::from_parts(std::mem::take(images))));
    }
}

fn tool_response(result: &ToolResult, id: &str) -> ToolResponse {
    let text = if result.is_error { format!("Error: {}", result.text) } else { result.text.clone() };
    ToolResponse::new(id, text).with_fn_name(result.name.clone())
}

fn image(image: &Image) -> ContentPart {
    let name = image.is_pdf().then(|| DOCUMENT_NAME.to_owned());
    ContentPart::from_binary_base64(image.media_type.clone(), image.base64.clone(), name)
}

fn message(message: &Message, position: usize, origin: &str) -> Option<ChatMessage> {
    match message {
        Message::User { text, images } => {
            let parts: Vec<ContentPart> =
                std::iter::once(ContentPart::from_text(text)).chain(images.iter().map(image)).collect();
            Some(ChatMessage::user(MessageContent::from_parts(parts)))
        }
        Message::Assistant(reply) => {
            Some(ChatMessage::assistant(MessageContent::from_parts(assistant(reply, position, origin))))
        }
        Message::Tool(_) => None,
    }
}

fn assistant(reply: &Reply, position: usize, origin: &str) -> Vec<ContentPart> {
    let mut ids = of_reply(reply, position, IdStyle::Free).into_iter();
    let mut signatures = None;
    let mut parts = Vec::new();
    for part in &reply.parts {
        match part {
            Part::Text(text) => parts.push(ContentPart::from_text(text)),
            // `genai` represents a signed block as a signature followed by its text: it sends that
            // pair as one block. No provider accepts unsigned reasoning.
            Part::Thinking { text, signature: Some(signature), origin: Some(from) } if from == origin => {
                parts.push(ContentPart::ThoughtSignature(signature.clone()));
                parts.push(ContentPart::ReasoningContent(text.clone()));
            }
            Part::Thinking { .. } => (),
            Part::Opaque { wire, block } if wire == "genai" && may_go_to(block, origin) => {
                match block.get("seal").and_then(Value::as_str) {
                    Some(signature) => {
                        parts.push(ContentPart::ThoughtSignature(signature.to_owned()));
                        parts.extend(recorded_apart(reply).map(|text| ContentPart::ReasoningContent(text.to_owned())));
                    }
                    None => signatures = serde_json::from_value(block.get("seals").cloned().unwrap_or_default()).ok(),
                }
            }
            Part::Opaque { .. } => (),
            Part::Call(call) => parts.push(ContentPart::ToolCall(GenaiToolCall {
                call_id: ids.next().unwrap_or_default().into_owned(),
                fn_name: call.name.clone(),
                fn_arguments: match &call.args {
                    Args::Json(value) => value.clone(),
                    Args::Malformed(text) => json!({ "malformed_arguments": text }),
                },
                thought_signatures: signatures.take(),
            })),
        }
    }
    if parts.is_empty() {
        parts.push(ContentPart::from_text("(nothing)"));
    }
    parts
}

/// Returns true if a signature came from the provider `origin`, or if its record is too old to name a provider.
fn may_go_to(block: &Value, origin: &str) -> bool {
    block.get("from").and_then(Value::as_str).is_none_or(|from| from == origin)
}

/// The reasoning that a reply's only signature belongs to, in a record from before the two were stored together.
/// Providers that sign something else ignore it.
fn recorded_apart(reply: &Reply) -> Option<&str> {
    let (mut texts, mut signatures) = (Vec::new(), 0);
    for part in &reply.parts {
        match part {
            Part::Thinking { text, signature: None, origin: None } => texts.push(text.as_str()),
            Part::Opaque { wire, block } if wire == "genai" && block.get("seal").is_some() => signatures += 1,
            Part::Thinking { .. } | Part::Opaque { .. } | Part::Text(_) | Part::Call(_) => (),
        }
    }
    if signatures == 1 && texts.len() == 1 { texts.pop() } else { None }
}
