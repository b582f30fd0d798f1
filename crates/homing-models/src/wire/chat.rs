//! Encodes requests for chat completions. Each transcript entry is encoded once and cached.
//! Providers differ only by their [`Quirks`].

use homing_core::{
    message::{Image, Message, Reply, ToolResult, TranscriptEntry},
    model::{ModelRequest, ToolChoice, Toolbox},
};
use serde::Deserialize;
use std::{borrow::Cow, fmt::Write as _};

use super::{
    DOCUMENT_NAME, Delivery, arguments, cache_key,
    chat_cache::{self, CacheMarks},
    chat_stream, data_url,
    effort::EffortLevels,
    encode_tools, offered, push_string, push_tool,
    reasoning::{self, KeepThinking, ReasoningReturn},
    reply_before,
};
use crate::wire::{
    call_ids::{IdStyle, ResultIds},
    reply_builder::ReplyBuilder,
};

/// Separates a tool result from its images, which follow all results of the reply. JSON never contains it unescaped.
const SEPARATOR: char = '\u{1e}';

/// The name under which the encoding of tools is cached.
const TOOLS: &str = "chat";

/// Differences between the providers of this wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quirks {
    /// The output limit is `max_completion_tokens`.
    pub max_completion_tokens: bool,
    /// `stream_options` is refused.
    pub no_stream_options: bool,
    /// Call ids must be nine letters and digits.
    pub nine_letter_ids: bool,
    /// The way to return reasoning with the reply that it belongs to.
    pub reasoning: ReasoningReturn,
    /// The effort is sent as `reasoning: {effort}`.
    pub effort_object: bool,
    /// The effort is not sent.
    pub no_effort: bool,
    /// The way to ask for the reasoning of earlier turns to be used.
    pub keep_thinking: KeepThinking,
    /// Anthropic and Gemini models are cached up to marks in the messages.
    pub cache_marks: bool,
    /// `prompt_cache_key` is accepted; the Responses wire always sends it.
    pub prompt_cache_key: bool,
    /// Responses only: replies contain summaries of their reasoning. OpenAI refuses them to unverified organizations.
    pub reasoning_summary: bool,
}

impl Quirks {
    fn ids(self) -> IdStyle {
        if self.nine_letter_ids { IdStyle::Nine } else { IdStyle::Free }
    }

    /// The cache name of a tool result with images, which must be split before use.
    fn with_images_name(self) -> &'static str {
        if self.nine_letter_ids { "chat, nine letters, pictures" } else { "chat, pictures" }
    }

    /// The name under which an entry's encoding is cached, different for each kind of encoding.
    fn fragment_name(self) -> &'static str {
        let [free, nine] = self.reasoning.fragment_names();
        if self.nine_letter_ids { nine } else { free }
    }
}

/// Creates a decoder for the reply to `request`.
pub(crate) fn decoder(request: &ModelRequest<'_>) -> super::Decoder {
    super::Decoder::Chat(chat_stream::ChatDecoder::new(ReplyBuilder::new(offered(request))))
}

/// The body of a request.
pub(crate) fn body(request: &ModelRequest<'_>, model: &str, quirks: Quirks, delivery: Delivery) -> String {
    let quirks = Quirks { reasoning: quirks.reasoning.for_model(model), ..quirks };
    let mut out = String::with_capacity(expected_size(request, quirks.fragment_name()));
    out.push_str("{\"model\":");
    push_string(&mut out, model);
    push_delivery(&mut out, quirks, delivery);
    push_options(&mut out, request, model, quirks);
    reasoning::push_thinking(&mut out, request.effort, model, quirks.keep_thinking);
    if quirks.prompt_cache_key {
        let _ = write!(out, ",\"prompt_cache_key\":\"{}\"", cache_key(request));
    }
    if !request.tools.specs.is_empty() {
        out.push_str(",\"tools\":");
        out.push_str(&tools(request.tools));
        match request.choice {
            ToolChoice::Auto => (),
            ToolChoice::Off => out.push_str(",\"tool_choice\":\"none\""),
            ToolChoice::Required => out.push_str(",\"tool_choice\":\"required\""),
            ToolChoice::Tool(name) => {
                let choice = format_args!("{{\"type\":\"function\",\"function\":{{\"name\":\"{name}\"}}}}");
                let _ = write!(out, ",\"tool_choice\":{choice}");
            }
        }
    }
    out.push_str(",\"messages\":[");
    let marks = if quirks.cache_marks { CacheMarks::of(request, model) } else { CacheMarks::default() };
    push_messages(&mut out, request, quirks, &marks);
    out.push_str("]}");
    out
}

/// About as many bytes as a body has, so that the history is not moved while it grows.
fn expected_size(request: &ModelRequest<'_>, name: &'static str) -> usize {
    let new_size = |entry: &TranscriptEntry| usize::try_from(entry.size()).unwrap_or(0);
    let size = |entry: &TranscriptEntry| entry.encoding.kept(name).map_or_else(|| new_size(entry), str::len) + 1;
    let messages = request.messages.iter().map(|entry| size(entry)).sum::<usize>();
    let tools = request.tools.encoding.kept(TOOLS).map_or(0, str::len);
    512 + request.system.len() + tools + messages
}

fn push_delivery(out: &mut String, quirks: Quirks, delivery: Delivery) {
    match delivery {
        Delivery::Streamed if quirks.no_stream_options => out.push_str(",\"stream\":true"),
        Delivery::Streamed => out.push_str(",\"stream\":true,\"stream_options\":{\"include_usage\":true}"),
        Delivery::Whole => out.push_str(",\"stream\":false"),
    }
}

fn push_options(out: &mut String, request: &ModelRequest<'_>, model: &str, quirks: Quirks) {
    let limit = if quirks.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
    out.extend([",\"", limit, "\":"]);
    let _ = write!(out, "{}", request.max_output);
    if let Some(milli) = request.temperature_milli.filter(|_| !has_fixed_sampling(model, quirks)) {
        let _ = write!(out, ",\"temperature\":{}", f64::from(milli) / 1_000.0);
    }
    let Some(effort) = request.effort.filter(|_| !quirks.no_effort) else { return };
    if quirks.effort_object {
        let _ = write!(out, ",\"reasoning\":{{\"effort\":\"{}\"}}", EffortLevels::Newest.word(effort));
    } else if let Some(levels) = EffortLevels::of(model) {
        // Models that do not reason refuse an effort.
        let _ = write!(out, ",\"reasoning_effort\":\"{}\"", levels.word(effort));
    }
}

/// Returns true for OpenAI's reasoning models, which refuse requests with a temperature or `top_p`.
pub(crate) fn has_fixed_sampling(model: &str, quirks: Quirks) -> bool {
    quirks.max_completion_tokens && EffortLevels::of(model).is_some()
}

/// Returns true if the effort is sent to this model.
pub(crate) fn takes_effort(model: &str, quirks: Quirks) -> bool {
    !quirks.no_effort && (quirks.effort_object || EffortLevels::of(model).is_some())
}

fn tools(toolbox: &Toolbox) -> Cow<'_, str> {
    toolbox.encoding.get_or_make(TOOLS, || {
        encode_tools(&toolbox.specs, |out, spec| {
            out.push_str("{\"type\":\"function\",\"function\":{");
            push_tool(out, spec, "parameters");
            out.push_str("}}");
        })
    })
}

/// Appends the messages of a request, separated by commas.
fn push_messages(out: &mut String, request: &ModelRequest<'_>, quirks: Quirks, marks: &CacheMarks) {
    let push = |out: &mut String, message: &str, is_marked: bool| {
        if is_marked {
            out.push_str(&chat_cache::marked(message));
        } else {
            out.push_str(message);
        }
        out.push(',');
    };
    if !request.system.is_empty() {
        let start = out.len();
        out.push_str("{\"role\":\"system\",\"content\":");
        push_string(out, request.system);
        out.push_str("},");
        if marks.system {
            let system = out.split_off(start);
            push(out, system.trim_end_matches(','), true);
        }
    }
    // The results of one reply must be adjacent, so their images follow the last of them.
    let (mut images, mut ids) = (String::new(), ResultIds::default());
    let name = quirks.fragment_name();
    for (position, entry) in request.messages.iter().enumerate() {
        if !images.is_empty() && !matches!(entry.message, Message::Tool(_)) {
            out.push_str(&std::mem::take(&mut images));
        }
        // This runs for the whole history at each turn, so the cache is checked before anything else.
        if let Some(kept) = entry.encoding.kept(name) {
            push(out, kept, marks.contains(position));
            continue;
        }
        let has_images = matches!(&entry.message, Message::Tool(result) if !result.images.is_empty());
        let name = if has_images { quirks.with_images_name() } else { name };
        let before = || reply_before(request.messages, position);
        let made = entry.encoding.get_or_make(name, || fragment(entry, before(), quirks, &mut ids));
        match has_images.then(|| made.split_once(SEPARATOR)).flatten() {
            Some((message, more)) => {
                push(out, message, false);
                push(&mut images, more, false);
            }
            None => push(out, &made, marks.contains(position)),
        }
    }
    out.push_str(&images);
    if out.ends_with(',') {
        out.pop();
    }
}

fn fragment<'a>(
    entry: &TranscriptEntry,
    reply: Option<(usize, &'a Message)>,
    quirks: Quirks,
    ids: &mut ResultIds<'a>,
) -> String {
    match &entry.message {
        Message::User { text, images } => user(text, images),
        Message::Assistant(message) => assistant(message, ids.of_calls(reply, quirks.ids()), quirks),
        Message::Tool(result) => tool(result, &ids.of(result, reply, quirks.ids())),
    }
}

fn user(text: &str, images: &[Image]) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    out.push_str("{\"role\":\"user\",\"content\":");
    if images.is_empty() {
        push_string(&mut out, text);
    } else {
        out.push_str("[{\"type\":\"text\",\"text\":");
        push_string(&mut out, text);
        out.push('}');
        for image in images {
            if image.is_pdf() {
                let name = DOCUMENT_NAME;
                let _ = write!(out, ",{{\"type\":\"file\",\"file\":{{\"filename\":\"{name}\",\"file_data\":");
            } else {
                out.push_str(",{\"type\":\"image_url\",\"image_url\":{\"url\":");
            }
            push_string(&mut out, &data_url(image));
            out.push_str("}}");
        }
        out.push(']');
    }
    out.push('}');
    out
}

fn assistant(reply: &Reply, ids: &[Cow<'_, str>], quirks: Quirks) -> String {
    let mut out = String::with_capacity(256);
    out.push_str("{\"role\":\"assistant\",\"content\":");
    let (text, mut calls) = (reply.text(), reply.calls().zip(ids).peekable());
    let reasoning_text = reasoning::in_content(reply, quirks.reasoning);
    if !reasoning_text.is_empty() {
        push_parts(&mut out, &reasoning_text, &text);
    } else if text.trim().is_empty() && calls.peek().is_none() {
        // Some servers refuse an assistant message without text and calls, such as one whose call was cut.
        out.push_str("\"(nothing)\"");
    } else if text.is_empty() {
        out.push_str("null");
    } else {
        push_string(&mut out, &text);
    }
    reasoning::push_field(&mut out, reply, quirks.reasoning);
    if calls.peek().is_some() {
        out.push_str(",\"tool_calls\":[");
        for (index, (call, id)) in calls.enumerate() {
            out.push_str(if index == 0 { "{\"id\":" } else { ",{\"id\":" });
            push_string(&mut out, id);
            out.push_str(",\"type\":\"function\",\"function\":{\"name\":");
            push_string(&mut out, &call.name);
            out.push_str(",\"arguments\":");
            push_string(&mut out, &arguments(&call.args));
            out.push_str("}}");
        }
        out.push(']');
    }
    out.push('}');
    out
}

/// Appends content in typed parts: the reasoning, then the text.
fn push_parts(out: &mut String, reasoning_text: &str, text: &str) {
    out.push_str("[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":");
    push_string(out, reasoning_text);
    out.push_str("}],\"closed\":true}");
    if !text.is_empty() {
        out.push_str(",{\"type\":\"text\",\"text\":");
        push_string(out, text);
        out.push('}');
    }
    out.push(']');
}

fn tool(result: &ToolResult, id: &str) -> String {
    let mut out = String::with_capacity(result.text.len() + 96);
    out.push_str("{\"role\":\"tool\",\"tool_call_id\":");
    push_string(&mut out, id);
    out.push_str(",\"content\":");
    push_string(&mut out, &result.text);
    out.push('}');
    if !result.images.is_empty() {
        out.push(SEPARATOR);
        out.push_str(&user(&format!("Files returned by `{}`:", result.name), &result.images));
    }
    out
}
