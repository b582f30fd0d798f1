//! Encodes requests for Amazon Bedrock's Converse API. Each transcript entry is encoded once and cached; cache marks are
//! inserted afterwards, because they move with the conversation.

use homing_core::{
    message::{Args, Image, Message, Part, Reply, ToolResult, TranscriptEntry, fnv},
    model::{Effort, ModelRequest, Sampling, ToolChoice},
    tool::ToolSpec,
};
use serde_json::{Map, Value, json};

use super::{
    anthropic::{self, ThinkingMode},
    bedrock_stream::BedrockDecoder,
    call_ids::{self, IdStyle, ResultIds},
    offered, push_string,
    reply_builder::ReplyBuilder,
};

/// The origin of reasoning that Bedrock signed.
pub(crate) const ORIGIN: &str = "bedrock";

/// The same, in records of the time when Bedrock was called through `genai`.
const EARLIER_ORIGIN: &str = "genai/bedrock";

const CACHE_POINT: &str = r#"{"cachePoint":{"type":"default"}}"#;

/// Creates a decoder for the reply to `request`.
pub(crate) fn decoder(request: &ModelRequest<'_>) -> super::Decoder {
    super::Decoder::Bedrock(BedrockDecoder::new(ReplyBuilder::new(offered(request))))
}

/// Families of models that accept different fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Claude,
    Nova,
    GptOss,
    Other,
}

impl Family {
    fn of(model: &str) -> Self {
        let model = model.to_lowercase();
        if model.contains("claude") {
            Self::Claude
        } else if model.contains("amazon.nova") {
            Self::Nova
        } else if model.contains("gpt-oss") {
            Self::GptOss
        } else {
            Self::Other
        }
    }
}

/// Returns true if the model takes an effort.
pub(crate) fn takes_effort(model: &str) -> bool {
    match Family::of(model) {
        Family::Claude => anthropic::can_think(model),
        Family::GptOss => true,
        Family::Nova | Family::Other => false,
    }
}

/// Returns true if the model accepts neither a temperature nor `topP`.
pub(crate) fn refuses_sampling(model: &str) -> bool {
    Family::of(model) == Family::Claude && anthropic::refuses_sampling(model)
}

/// The parts of a request that get cache marks. Bedrock refuses marks for models that do not cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CacheMarks {
    tools: bool,
    messages: bool,
}

impl CacheMarks {
    fn of(model: &str, is_forced: bool) -> Self {
        let is_recent =
            || model.contains("3-5-haiku") || anthropic::version(model).is_none_or(|version| version >= (3, 7));
        match Family::of(model) {
            Family::Claude => Self { tools: is_recent(), messages: is_recent() },
            Family::Nova => Self { tools: false, messages: true },
            Family::GptOss | Family::Other => Self { tools: false, messages: is_forced },
        }
    }
}

/// The body of a request. `is_marked` adds cache marks for models of which it is not known that they cache.
pub(crate) fn body(request: &ModelRequest<'_>, model: &str, sampling: &Sampling, is_marked: bool) -> String {
    let marks = CacheMarks::of(model, is_marked);
    let entries = request.messages.iter().map(|entry| usize::try_from(entry.size()).unwrap_or(0)).sum::<usize>();
    let mut out = String::with_capacity(entries + request.system.len() + request.tools.specs.len() * 1_024 + 1_024);
    push_options(&mut out, request, model, sampling);
    push_tools(&mut out, request, model, marks);
    if !request.system.trim().is_empty() {
        out.push_str(",\"system\":[{\"text\":");
        push_string(&mut out, request.system);
        out.push('}');
        if marks.messages {
            out.push(',');
            out.push_str(CACHE_POINT);
        }
        out.push(']');
    }
    out.push_str(",\"messages\":[");
    push_messages(&mut out, request, model, marks);
    out.push_str("]}");
    out
}

fn push_options(out: &mut String, request: &ModelRequest<'_>, model: &str, sampling: &Sampling) {
    let family = Family::of(model);
    let mut inference = Map::from_iter([("maxTokens".to_owned(), request.max_output.into())]);
    let mut additional = Map::new();
    let mut temperature = request.temperature_milli;
    match family {
        Family::Claude => {
            let thinking = anthropic::thinking(request, model);
            temperature = anthropic::temperature(request, model, &thinking);
            additional.extend(thinking_fields(&thinking));
        }
        Family::GptOss => {
            let word = request.effort.map(|effort| match effort {
                Effort::None | Effort::Minimal | Effort::Low => "low",
                Effort::Medium => "medium",
                Effort::High | Effort::Xhigh | Effort::Max => "high",
            });
            additional.extend(word.map(|word| ("reasoning_effort".to_owned(), word.into())));
        }
        Family::Nova | Family::Other => (),
    }
    let milli = |milli: u32| Value::from(f64::from(milli) / 1_000.0);
    inference.extend(temperature.map(|temperature| ("temperature".to_owned(), milli(temperature))));
    inference.extend(sampling.top_p_milli.map(|share| ("topP".to_owned(), milli(share))));
    out.push_str(&format!("{{\"inferenceConfig\":{}", Value::Object(inference)));
    if !additional.is_empty() {
        out.push_str(&format!(",\"additionalModelRequestFields\":{}", Value::Object(additional)));
    }
    if let Some(tier) = &sampling.service_tier {
        out.push_str(&format!(",\"serviceTier\":{}", json!({ "type": tier })));
    }
}

fn thinking_fields(thinking: &ThinkingMode) -> Map<String, Value> {
    let fields = match thinking {
        ThinkingMode::Unset => json!({}),
        ThinkingMode::Off => json!({"thinking": {"type": "disabled"}}),
        ThinkingMode::Budget(tokens) => json!({"thinking": {"type": "enabled", "budget_tokens": tokens}}),
        ThinkingMode::Adaptive(effort) => {
            json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}})
        }
    };
    fields.as_object().cloned().unwrap_or_default()
}

/// Bedrock has no way to switch tools off, and refuses a conversation with calls if no tools are sent. So the tools are left
/// out only if the conversation has no calls; if there are calls but no tools, their names are sent alone.
fn push_tools(out: &mut String, request: &ModelRequest<'_>, model: &str, marks: CacheMarks) {
    let used = used_tools(request);
    let is_off = request.choice == ToolChoice::Off || request.tools.specs.is_empty();
    if is_off && used.is_empty() {
        return;
    }
    out.push_str(",\"toolConfig\":{\"tools\":[");
    if request.tools.specs.is_empty() {
        let named = |name: &&str| {
            let schema = json!({"json": {"type": "object"}});
            json!({"toolSpec": {"name": name, "description": "Not available any more.", "inputSchema": schema}})
                .to_string()
        };
        out.push_str(&used.iter().map(named).collect::<Vec<_>>().join(","));
    } else {
        out.push_str(
            &request
                .tools
                .encoding
                .get_or_make("bedrock", || request.tools.specs.iter().map(tool).collect::<Vec<_>>().join(",")),
        );
        if marks.tools {
            out.push(',');
            out.push_str(CACHE_POINT);
        }
    }
    out.push(']');
    // Other families accept no choice, or only some of the forms.
    let takes_choice = matches!(Family::of(model), Family::Claude | Family::Nova);
    match request.choice {
        ToolChoice::Required if takes_choice => out.push_str(",\"toolChoice\":{\"any\":{}}"),
        ToolChoice::Tool(name) if takes_choice => {
            out.push_str(&format!(",\"toolChoice\":{}", json!({"tool": {"name": name}})));
        }
        ToolChoice::Auto | ToolChoice::Off | ToolChoice::Required | ToolChoice::Tool(_) => (),
    }
    out.push('}');
}

fn tool(spec: &ToolSpec) -> String {
    let schema = json!({ "json": spec.schema });
    json!({"toolSpec": {"name": spec.name, "description": spec.description, "inputSchema": schema}}).to_string()
}

/// The names of the tools that the conversation has calls of.
fn used_tools<'a>(request: &ModelRequest<'a>) -> Vec<&'a str> {
    let messages: &'a [_] = request.messages;
    let calls = messages.iter().flat_map(|entry| match &entry.message {
        Message::Assistant(reply) => reply.calls().map(|call| call.name.as_str()).collect(),
        Message::User { .. } | Message::Tool(_) => Vec::new(),
    });
    let mut names: Vec<&str> = calls.collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Merges adjacent entries of one role into one message, because the roles must alternate.
fn push_messages(out: &mut String, request: &ModelRequest<'_>, model: &str, marks: CacheMarks) {
    let marked = if marks.messages { anthropic::marks(request) } else { [None; 2] };
    let takes_status = matches!(Family::of(model), Family::Claude | Family::Nova);
    let (mut role, mut reply, mut ids) = (None, None, ResultIds::default());
    for (position, entry) in request.messages.iter().enumerate() {
        if !matches!(entry.message, Message::Tool(_)) {
            reply = Some((position, &entry.message));
        }
        let name = if takes_status { "bedrock" } else { "bedrock without status" };
        let fragment = entry.encoding.get_or_make(name, || fragment(entry, position, reply, takes_status, &mut ids));
        let entry_role = anthropic::role_of(&entry.message);
        match role {
            Some(before) if before == entry_role => out.push(','),
            Some(_) => out.push_str(&format!("]}},{{\"role\":\"{entry_role}\",\"content\":[")),
            None => out.push_str(&format!("{{\"role\":\"{entry_role}\",\"content\":[")),
        }
        role = Some(entry_role);
        out.push_str(&fragment);
        if marked.contains(&Some(position)) {
            out.push(',');
            out.push_str(CACHE_POINT);
        }
    }
    if role.is_some() {
        out.push_str("]}");
    }
}

/// The content blocks of an entry, joined by commas. Bedrock refuses a message without content.
fn fragment<'a>(
    entry: &TranscriptEntry,
    position: usize,
    reply: Option<(usize, &'a Message)>,
    takes_status: bool,
    ids: &mut ResultIds<'a>,
) -> String {
    let mut blocks = match &entry.message {
        Message::User { text, images } => content(text, images, position),
        Message::Assistant(message) => assistant(message, reply.map_or(0, |(position, _)| position)),
        Message::Tool(result) => {
            let id = ids.of(result, reply, IdStyle::Free);
            vec![tool_result(result, &id, position, takes_status)]
        }
    };
    if blocks.is_empty() {
        blocks.extend(text_block("(nothing)"));
    }
    blocks.join(",")
}

/// Text, images and documents. A document needs a text beside it.
fn content(text: &str, images: &[Image], position: usize) -> Vec<String> {
    let has_document = images.iter().any(Image::is_pdf);
    let text = if text.trim().is_empty() && has_document { "(a document)" } else { text };
    let files = images.iter().enumerate().map(|(index, image)| file_block(image, position, index));
    text_block(text).into_iter().chain(files).collect()
}

/// A text block; `None` for blank text, which Bedrock refuses.
fn text_block(text: &str) -> Option<String> {
    if text.trim().is_empty() {
        return None;
    }
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str("{\"text\":");
    push_string(&mut out, text);
    out.push('}');
    Some(out)
}

/// An image or a document. Bedrock refuses two documents of the same name.
fn file_block(image: &Image, position: usize, index: usize) -> String {
    let data = &image.base64;
    if image.is_pdf() {
        let hash = fnv(homing_core::message::FNV_START, data.as_bytes());
        let name = format!("document-{hash:016x}-{position}-{index}");
        return format!(
            "{{\"document\":{{\"format\":\"pdf\",\"name\":\"{name}\",\"source\":{{\"bytes\":\"{data}\"}}}}}}"
        );
    }
    let format = image.media_type.strip_prefix("image/").unwrap_or("png");
    format!("{{\"image\":{{\"format\":\"{format}\",\"source\":{{\"bytes\":\"{data}\"}}}}}}")
}

fn assistant(reply: &Reply, position: usize) -> Vec<String> {
    let mut ids = call_ids::of_reply(reply, position, IdStyle::Free).into_iter();
    let blocks = reply.parts.iter().filter_map(|part| match part {
        Part::Text(text) => text_block(text),
        // Only Bedrock accepts a signature that it created, and it accepts no reasoning without one.
        Part::Thinking { text, signature: Some(signature), origin: Some(origin) }
            if origin == ORIGIN || origin == EARLIER_ORIGIN =>
        {
            let reasoning = json!({"text": text, "signature": signature});
            Some(json!({"reasoningContent": {"reasoningText": reasoning}}).to_string())
        }
        Part::Thinking { .. } => None,
        Part::Call(call) => {
            let input = match &call.args {
                Args::Json(value @ Value::Object(_)) => value.clone(),
                Args::Json(value) => json!({ "value": value }),
                Args::Malformed(text) => json!({ "malformed_arguments": text }),
            };
            let id = ids.next().unwrap_or_default();
            Some(json!({"toolUse": {"toolUseId": id, "name": call.name, "input": input}}).to_string())
        }
        Part::Opaque { wire, block } if wire == ORIGIN => Some(block.to_string()),
        // Redacted reasoning, as it was recorded through `genai`.
        Part::Opaque { wire, block }
            if wire == "genai" && block.get("from").is_some_and(|from| from == EARLIER_ORIGIN) =>
        {
            let sealed = block.get("seal")?;
            Some(json!({"reasoningContent": {"redactedContent": sealed}}).to_string())
        }
        Part::Opaque { .. } => None,
    });
    blocks.collect()
}

fn tool_result(result: &ToolResult, id: &str, position: usize, takes_status: bool) -> String {
    let mut blocks = content(&result.text, &result.images, position);
    if blocks.is_empty() {
        blocks.extend(text_block("(nothing)"));
    }
    let mut out = String::from("{\"toolResult\":{\"toolUseId\":");
    push_string(&mut out, id);
    out.push_str(&format!(",\"content\":[{}]", blocks.join(",")));
    if result.is_error && takes_status {
        out.push_str(",\"status\":\"error\"");
    }
    out.push_str("}}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_marks_depend_on_the_model() {
        let (all, none) = (CacheMarks { tools: true, messages: true }, CacheMarks { tools: false, messages: false });
        assert_eq!(CacheMarks::of("us.anthropic.claude-sonnet-4-5-20250929-v1:0", false), all);
        assert_eq!(CacheMarks::of("anthropic.claude-3-5-haiku-20241022-v1:0", false), all);
        assert_eq!(CacheMarks::of("anthropic.claude-3-5-sonnet-20240620-v1:0", false), none);
        assert_eq!(CacheMarks::of("amazon.nova-pro-v1:0", false), CacheMarks { tools: false, messages: true });
        assert_eq!(CacheMarks::of("meta.llama3-70b-instruct-v1:0", false), none);
    }
}
