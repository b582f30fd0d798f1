//! Chat completions, the request: entries become fragments once, a request is fragments put together.
//! It knows providers only through [`Quirks`].

use homing_core::{
    message::{Args, Image, Message, Reply, ToolResult, TranscriptEntry},
    model::{Effort, ModelRequest, ToolChoice, Toolbox},
};
use serde::Deserialize;
use serde_json::Value;
use std::{borrow::Cow, sync::Arc};

use super::{
    Delivery, chat_stream, offered, push_string,
    reasoning::{self, ReasoningReturn},
};
use crate::wire::{
    call_ids::{self, IdStyle},
    reply_builder::ReplyBuilder,
};

/// Separates a tool's answer from the pictures that follow its reply's answers; no JSON contains it bare.
const SEPARATOR: char = '\u{1e}';

/// Where providers of this wire differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quirks {
    /// The output limit is called `max_completion_tokens`.
    pub max_completion_tokens: bool,
    /// `stream_options` is refused.
    pub no_stream_options: bool,
    /// Call ids must be nine letters and digits.
    pub nine_letter_ids: bool,
    /// How reasoning goes back with the reply that it belongs to.
    pub reasoning: ReasoningReturn,
    /// How hard to think is told as `reasoning: {effort}`.
    pub effort_object: bool,
    /// How hard to think cannot be told.
    pub no_effort: bool,
}

impl Quirks {
    fn ids(self) -> IdStyle {
        if self.nine_letter_ids { IdStyle::Nine } else { IdStyle::Free }
    }

    /// The same for a tool's answer with pictures behind it, which needs taking apart.
    fn pictured_name(self) -> &'static str {
        if self.nine_letter_ids { "chat, nine letters, pictures" } else { "chat, pictures" }
    }

    /// The name under which an entry's fragment is kept: providers that want another fragment never get this one.
    fn fragment_name(self) -> &'static str {
        let [free, nine] = self.reasoning.fragment_names();
        if self.nine_letter_ids { nine } else { free }
    }
}

/// A decoder for the reply to `request`.
pub(crate) fn decoder(request: &ModelRequest<'_>) -> super::Decoder {
    super::Decoder::Chat(chat_stream::ChatDecoder::new(ReplyBuilder::new(offered(request))))
}

/// The body of a request.
pub(crate) fn body(request: &ModelRequest<'_>, model: &str, quirks: Quirks, delivery: Delivery) -> String {
    let quirks = Quirks { reasoning: quirks.reasoning.for_model(model), ..quirks };
    let mut out = String::with_capacity(1_024);
    out.push_str("{\"model\":");
    push_string(&mut out, model);
    push_delivery(&mut out, quirks, delivery);
    push_options(&mut out, request, model, quirks);
    if !request.tools.specs.is_empty() {
        out.push_str(",\"tools\":");
        out.push_str(&tools(request.tools));
        match request.choice {
            ToolChoice::Auto => (),
            ToolChoice::Off => out.push_str(",\"tool_choice\":\"none\""),
            ToolChoice::Required => out.push_str(",\"tool_choice\":\"required\""),
        }
    }
    out.push_str(",\"messages\":[");
    around(out, messages(request, quirks), "]}")
}

/// `head`, the pieces with commas between them, `tail`. A history is long and has been encoded: it is copied once, into a
/// place of the right size.
fn around(mut head: String, mut pieces: Vec<Cow<'_, str>>, tail: &str) -> String {
    let Some(first) = pieces.first_mut() else { return head + tail };
    head.push_str(first);
    *first = Cow::Owned(head);
    if let Some(last) = pieces.last_mut() {
        last.to_mut().push_str(tail);
    }
    pieces.join(",")
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
    out.push_str(&format!(",\"{limit}\":{}", request.max_output));
    let reasons = Reasoner::of(model);
    // OpenAI's reasoning models take no temperature, and refuse the request that has one.
    let is_fixed = reasons.is_some() && quirks.max_completion_tokens;
    if let Some(milli) = request.temperature_milli.filter(|_| !is_fixed) {
        out.push_str(&format!(",\"temperature\":{}", f64::from(milli) / 1_000.0));
    }
    match (request.effort.filter(|_| !quirks.no_effort), reasons) {
        (Some(effort), _) if quirks.effort_object => {
            out.push_str(&format!(",\"reasoning\":{{\"effort\":\"{}\"}}", Reasoner::Newest.word(effort)));
        }
        (Some(effort), Some(reasoner)) => {
            out.push_str(&format!(",\"reasoning_effort\":\"{}\"", reasoner.word(effort)));
        }
        // A model that does not reason refuses to be told how hard to.
        (Some(_), None) | (None, _) => (),
    }
}

/// Models that can be told how hard to think, by the words that they know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reasoner {
    /// `low`, `medium`, `high`.
    Plain,
    /// Also `minimal`.
    Gpt5,
    /// Also `none` and `xhigh`.
    Newest,
}

impl Reasoner {
    fn of(model: &str) -> Option<Self> {
        let name = model.rsplit('/').next().unwrap_or_default();
        if name.contains("-chat") {
            return None;
        }
        if ["o1", "o3", "o4", "gpt-oss"].iter().any(|start| name.starts_with(start)) {
            return Some(Self::Plain);
        }
        let version = name.strip_prefix("gpt-")?.split('-').next()?;
        let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
        match (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?) {
            (..=4, _) => None,
            (5, 0) => Some(Self::Gpt5),
            (5, 1) => Some(Self::Plain),
            _ => Some(Self::Newest),
        }
    }

    fn word(self, effort: Effort) -> &'static str {
        match (effort, self) {
            (Effort::None, Self::Newest) => "none",
            (Effort::None | Effort::Minimal, Self::Gpt5) => "minimal",
            (Effort::None | Effort::Minimal | Effort::Low, _) => "low",
            (Effort::Medium, _) => "medium",
            (Effort::Xhigh | Effort::Max, Self::Newest) => "xhigh",
            (Effort::High | Effort::Xhigh | Effort::Max, _) => "high",
        }
    }
}

fn tools(toolbox: &Toolbox) -> Cow<'_, str> {
    toolbox.encoding.get_or_make("chat", || {
        let tool = |spec: &homing_core::tool::ToolSpec| {
            serde_json::json!({"type": "function", "function":
                {"name": spec.name, "description": spec.description, "parameters": spec.schema}})
        };
        Value::Array(toolbox.specs.iter().map(tool).collect()).to_string()
    })
}

/// The messages of a request, each as JSON.
fn messages<'a>(request: &ModelRequest<'a>, quirks: Quirks) -> Vec<Cow<'a, str>> {
    let mut pieces = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        let mut system = String::from("{\"role\":\"system\",\"content\":");
        push_string(&mut system, request.system);
        system.push('}');
        pieces.push(Cow::Owned(system));
    }
    // Answers to one reply must stand together, so their pictures wait until the last of them.
    let mut pictures = Vec::new();
    let name = quirks.fragment_name();
    for (position, entry) in request.messages.iter().enumerate() {
        if !pictures.is_empty() && !matches!(entry.message, Message::Tool(_)) {
            pieces.append(&mut pictures);
        }
        // This runs for the whole history at each turn, so it looks at nothing but what was kept.
        if let Some(kept) = entry.encoding.kept(name) {
            pieces.push(Cow::Borrowed(kept));
            continue;
        }
        let has_pictures = matches!(&entry.message, Message::Tool(result) if !result.images.is_empty());
        let name = if has_pictures { quirks.pictured_name() } else { name };
        let made =
            entry.encoding.get_or_make(name, || fragment(entry, reply_before(request.messages, position), quirks));
        match made.split_once(SEPARATOR).filter(|_| has_pictures) {
            Some((message, more)) => {
                pieces.push(Cow::Owned(message.to_owned()));
                pictures.push(Cow::Owned(more.to_owned()));
            }
            None => pieces.push(made),
        }
    }
    pieces.append(&mut pictures);
    pieces
}

/// The message at `position`, or the one whose results stand there, with its place.
fn reply_before(messages: &[Arc<TranscriptEntry>], position: usize) -> Option<(usize, &Message)> {
    let mut before = messages[..=position].iter().enumerate().rev().map(|(at, entry)| (at, &entry.message));
    before.find(|(_, message)| !matches!(message, Message::Tool(_)))
}

fn fragment(entry: &TranscriptEntry, reply: Option<(usize, &Message)>, quirks: Quirks) -> String {
    match &entry.message {
        Message::User { text, images } => user(text, images),
        Message::Assistant(it) => assistant(it, reply.map_or(0, |(position, _)| position), quirks),
        Message::Tool(result) => tool(result, &call_ids::of_result(result, reply, quirks.ids())),
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
            out.push_str(",{\"type\":\"image_url\",\"image_url\":{\"url\":");
            push_string(&mut out, &format!("data:{};base64,{}", image.media_type, image.base64));
            out.push_str("}}");
        }
        out.push(']');
    }
    out.push('}');
    out
}

fn assistant(reply: &Reply, position: usize, quirks: Quirks) -> String {
    let mut out = String::from("{\"role\":\"assistant\",\"content\":");
    let (text, mut calls) =
        (reply.text(), reply.calls().zip(call_ids::of_reply(reply, position, quirks.ids())).peekable());
    let thoughts = reasoning::in_content(reply, quirks.reasoning);
    if !thoughts.is_empty() {
        push_pieces(&mut out, &thoughts, &text);
    } else if text.trim().is_empty() && calls.peek().is_none() {
        // Some servers refuse an assistant message with neither: what was there may have been a call that was cut.
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
            push_string(&mut out, &id);
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

/// Servers with templates parse the arguments again, so that broken ones must go back as sound JSON.
fn arguments(args: &Args) -> String {
    match args {
        Args::Json(value) => value.to_string(),
        Args::Malformed(text) => serde_json::json!({ "malformed_arguments": text }).to_string(),
    }
}

/// Content in typed pieces: what the model thought, then what it said.
fn push_pieces(out: &mut String, thoughts: &str, text: &str) {
    out.push_str("[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":");
    push_string(out, thoughts);
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
        out.push_str(&user(&format!("What `{}` showed:", result.name), &result.images));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_is_told_in_words_that_the_model_knows() {
        let word = |model: &str, effort| Reasoner::of(model).map(|it| it.word(effort));
        assert_eq!(word("gpt-4.1", Effort::High), None);
        assert_eq!(word("gpt-4o-mini", Effort::High), None);
        assert_eq!(word("gpt-5-chat-latest", Effort::High), None);
        assert_eq!(word("qwen3:4b", Effort::High), None);
        assert_eq!(word("o3-mini", Effort::Max), Some("high"));
        assert_eq!(word("openai/gpt-oss-120b", Effort::None), Some("low"));
        assert_eq!(word("gpt-5-mini", Effort::None), Some("minimal"));
        assert_eq!(word("gpt-6.1-sol", Effort::Max), Some("xhigh"));
        assert_eq!(word("gpt-5.6-terra", Effort::None), Some("none"));
    }
}
