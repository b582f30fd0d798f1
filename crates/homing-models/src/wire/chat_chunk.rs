//! The JSON types of chat completion chunks. Servers differ in many details; these types accept all of them.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

use super::EventText;

#[derive(Deserialize)]
pub(super) struct ChatChunk<'a> {
    #[serde(borrow, default)]
    pub(super) choices: Option<Vec<ChatChoice<'a>>>,
    #[serde(borrow, default)]
    pub(super) model: Option<EventText<'a>>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) x_groq: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) object: ContentText<'a>,
}

#[derive(Deserialize)]
pub(super) struct ChatChoice<'a> {
    #[serde(default)]
    pub(super) index: Option<u64>,
    #[serde(borrow, default)]
    pub(super) delta: Option<ChatDelta<'a>>,
    #[serde(borrow, default)]
    pub(super) message: Option<ChatDelta<'a>>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Option<EventText<'a>>,
}

impl<'a> ChatChoice<'a> {
    /// The new content of this choice. Some servers send the message so far with each delta, and an empty delta with a
    /// whole message.
    pub(super) fn content(&mut self, shape: MessageForm) -> Option<ChatDelta<'a>> {
        let (delta, message) = (self.delta.take(), self.message.take());
        match shape {
            MessageForm::Delta => delta.or(message),
            MessageForm::Whole => message.or(delta),
        }
    }
}

#[derive(Default, Deserialize)]
pub(super) struct ChatDelta<'a> {
    #[serde(borrow, default)]
    pub(super) content: ContentText<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: ContentText<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning: ContentText<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_text: ContentText<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: ContentText<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) refusal: Option<EventText<'a>>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<Vec<CallDelta<'a>>>,
    #[serde(borrow, default)]
    pub(super) function_call: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
pub(super) struct CallDelta<'a> {
    #[serde(default)]
    pub(super) index: Option<u64>,
    #[serde(borrow, default)]
    pub(super) id: ContentText<'a>,
    #[serde(borrow, default)]
    pub(super) function: Option<FunctionDelta<'a>>,
}

#[derive(Default, Deserialize)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow, default)]
    pub(super) name: Option<EventText<'a>>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
}

/// The form of the messages in a response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageForm {
    /// A delta of a stream.
    Delta,
    /// A whole message.
    Whole,
}

/// A string, or a list of typed parts, marked if they are reasoning. Anything else counts as absent.
#[derive(Default)]
pub(super) enum ContentText<'a> {
    #[default]
    None,
    One(Cow<'a, str>),
    Parts(Vec<(bool, String)>),
}

impl ContentText<'_> {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::One(text) => text.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ContentText<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ContentVisitor)
    }
}

/// Borrows the text if possible, because it is most of a stream.
struct ContentVisitor;

impl<'de> serde::de::Visitor<'de> for ContentVisitor {
    type Value = ContentText<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<ContentText<'de>, E> {
        Ok(ContentText::One(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<ContentText<'de>, E> {
        Ok(ContentText::One(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<ContentText<'de>, A::Error> {
        let mut parts = Vec::new();
        while let Some(item) = items.next_element::<Value>()? {
            parts.extend(content_part(&item));
        }
        Ok(ContentText::Parts(parts))
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut items: A) -> Result<ContentText<'de>, A::Error> {
        while items.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
        Ok(ContentText::None)
    }

    fn visit_unit<E>(self) -> Result<ContentText<'de>, E> {
        Ok(ContentText::None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<ContentText<'de>, E> {
        Ok(ContentText::None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<ContentText<'de>, E> {
        Ok(ContentText::None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<ContentText<'de>, E> {
        Ok(ContentText::None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<ContentText<'de>, E> {
        Ok(ContentText::None)
    }
}

fn content_part(item: &Value) -> Vec<(bool, String)> {
    let text = |value: &Value| value.get("text").and_then(Value::as_str).map(str::to_owned);
    match item.get("thinking") {
        Some(Value::String(text)) => vec![(true, text.clone())],
        Some(Value::Array(parts)) => parts.iter().filter_map(text).map(|text| (true, text)).collect(),
        _ => text(item).map(|text| (false, text)).into_iter().collect(),
    }
}

pub(super) fn parsed(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or(Value::Null)
}

/// The arguments as text; some servers send an object instead of a string.
pub(super) fn arguments(raw: &RawValue) -> Cow<'_, str> {
    if let Ok(EventText(text)) = serde_json::from_str(raw.get()) {
        return text;
    }
    match parsed(raw) {
        Value::Null => Cow::Borrowed(""),
        value => Cow::Owned(value.to_string()),
    }
}
