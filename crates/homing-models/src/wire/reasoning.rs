//! Returns reasoning to the provider of a chat completion. Some providers refuse the second request of a tool loop
//! without the reasoning of the first reply, some refuse a request that has it, and the field has several names.

use homing_core::{
    message::{Part, Reply},
    model::Effort,
};
use serde::Deserialize;
use std::borrow::Cow;

use super::push_string;

/// The fields of a message that carry reasoning. If a server fills two of them, it reads the first.
pub(super) const FIELDS: [&str; 4] = ["reasoning", "reasoning_content", "reasoning_text", "thinking"];

/// The origin of reasoning that came in typed parts of `content`.
pub(super) const IN_CONTENT: &str = "content";

/// Placeholder for missing reasoning; DeepSeek refuses an empty string.
const BLANK: &str = " ";

/// The way to return reasoning to the provider with the reply that it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasoningReturn {
    /// Not at all. OpenAI and others refuse unknown fields.
    #[default]
    Never,
    /// In the field that it came in, for servers that ignore unknown fields. Reasoning from another wire is left out.
    SameField,
    /// As `reasoning_content`.
    ReasoningContent,
    /// As `reasoning_content` on every reply, blank if there is none: the request is refused if one reply lacks it.
    Required,
    /// As `reasoning`.
    Reasoning,
    /// As `reasoning`, for gpt-oss models only: the provider refuses it for models that do not reason.
    GptOss,
    /// As `reasoning_details`, unchanged, or as `reasoning` if there are none.
    Details,
    /// As a typed part of `content`, if it came as one.
    Content,
}

impl ReasoningReturn {
    /// The way for one model.
    pub(super) fn for_model(self, model: &str) -> Self {
        match self {
            Self::GptOss if model.contains("gpt-oss") => Self::Reasoning,
            Self::GptOss => Self::Never,
            Self::Never
            | Self::SameField
            | Self::ReasoningContent
            | Self::Required
            | Self::Reasoning
            | Self::Details
            | Self::Content => self,
        }
    }

    /// The names under which an entry's encoding is cached, without and with nine-letter ids. They differ for each kind
    /// of provider, so that an encoding for one is never sent to another.
    pub(super) fn fragment_names(self) -> [&'static str; 2] {
        match self {
            Self::Never => ["chat", "chat, nine letters"],
            Self::SameField => ["chat, same field", "chat, same field, nine letters"],
            Self::ReasoningContent => ["chat, reasoning_content", "chat, reasoning_content, nine letters"],
            Self::Required => ["chat, required", "chat, required, nine letters"],
            Self::Reasoning => ["chat, reasoning", "chat, reasoning, nine letters"],
            Self::GptOss => ["chat, gpt-oss", "chat, gpt-oss, nine letters"],
            Self::Details => ["chat, details", "chat, details, nine letters"],
            Self::Content => ["chat, content", "chat, content, nine letters"],
        }
    }
}

/// The way to ask a provider to use the reasoning of earlier turns, which it otherwise ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepThinking {
    /// Nothing is sent.
    #[default]
    Unset,
    /// `thinking: {type: enabled, clear_thinking: false}`, for GLM models since 4.7.
    ClearThinking,
    /// `thinking: {type: enabled, keep: all}`, for Kimi K2.6. Newer models always keep it, and Kimi K3 refuses the field.
    Keep,
}

/// Appends the request's `thinking` field, if `model` knows it.
pub(super) fn push_thinking(out: &mut String, effort: Option<Effort>, model: &str, how: KeepThinking) {
    if effort == Some(Effort::None) {
        return;
    }
    let name = model.rsplit('/').next().unwrap_or_default();
    match how {
        KeepThinking::ClearThinking if keeps_glm_thinking(name) => {
            out.push_str(",\"thinking\":{\"type\":\"enabled\",\"clear_thinking\":false}");
        }
        KeepThinking::Keep if name.starts_with("kimi-k2.6") => {
            out.push_str(",\"thinking\":{\"type\":\"enabled\",\"keep\":\"all\"}");
        }
        KeepThinking::Unset | KeepThinking::ClearThinking | KeepThinking::Keep => (),
    }
}

/// Returns true for `glm-4.7`, `glm-5-turbo` and later versions, but not for `glm-4.6v`.
fn keeps_glm_thinking(name: &str) -> bool {
    let version = name.strip_prefix("glm-").and_then(|rest| rest.split('-').next()).unwrap_or_default();
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    let digits = |text: &str| text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()).parse::<u32>();
    matches!((digits(major), digits(minor)), (Ok(major), Ok(minor)) if (major, minor) >= (4, 7))
}

/// Appends the field of an assistant message that carries the reply's reasoning, if it goes into a field.
pub(super) fn push_field(out: &mut String, reply: &Reply, how: ReasoningReturn) {
    match how {
        ReasoningReturn::Never | ReasoningReturn::Content => (),
        ReasoningReturn::SameField => {
            if let Some(field) = FIELDS.into_iter().find(|field| came_as(reply, field)) {
                push_text(out, field, &joined(reply, Some(field)));
            }
        }
        ReasoningReturn::ReasoningContent => push_text(out, "reasoning_content", &joined(reply, None)),
        ReasoningReturn::Required => {
            let text = joined(reply, None);
            push_text(out, "reasoning_content", if text.is_empty() { BLANK } else { &text });
        }
        ReasoningReturn::Reasoning | ReasoningReturn::GptOss => push_text(out, "reasoning", &joined(reply, None)),
        ReasoningReturn::Details => push_details(out, reply),
    }
}

/// The reasoning to put into the message's `content`, if any.
pub(super) fn in_content(reply: &Reply, how: ReasoningReturn) -> Cow<'_, str> {
    if how == ReasoningReturn::Content { joined(reply, Some(IN_CONTENT)) } else { Cow::Borrowed("") }
}

fn push_text(out: &mut String, field: &str, text: &str) {
    if !text.is_empty() {
        out.push_str(&format!(",\"{field}\":"));
        push_string(out, text);
    }
}

fn push_details(out: &mut String, reply: &Reply) {
    let details = reply.parts.iter().find_map(|part| match part {
        Part::Opaque { wire, block } if wire == "chat" => block.get("reasoning_details"),
        Part::Opaque { .. } | Part::Text(_) | Part::Thinking { .. } | Part::Call(_) => None,
    });
    match details {
        Some(details) => out.push_str(&format!(",\"reasoning_details\":{details}")),
        None => push_text(out, "reasoning", &joined(reply, None)),
    }
}

fn came_as(reply: &Reply, field: &str) -> bool {
    reasoning_parts(reply).any(|(_, origin)| origin == Some(field))
}

/// The reasoning that came as `field`, or all of it.
fn joined<'a>(reply: &'a Reply, field: Option<&str>) -> Cow<'a, str> {
    let mut texts =
        reasoning_parts(reply).filter(|(_, origin)| field.is_none() || *origin == field).map(|(text, _)| text);
    let first = texts.next().unwrap_or_default();
    texts.fold(Cow::Borrowed(first), |all, more| all + more)
}

/// Each reasoning part with its origin.
fn reasoning_parts(reply: &Reply) -> impl Iterator<Item = (&str, Option<&str>)> {
    reply.parts.iter().filter_map(|part| match part {
        Part::Thinking { text, origin, .. } => Some((text.as_str(), origin.as_deref())),
        Part::Text(_) | Part::Call(_) | Part::Opaque { .. } => None,
    })
}
