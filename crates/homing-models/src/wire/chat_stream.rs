//! Chat completions, the answer: events or one whole body become a reply. Servers differ in details; all are read here.

use homing_core::{
    message::{Reply, StopReason},
    model::{AskFailure, Delta, ModelError},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

use super::{
    DeltaListener, StreamProgress, Text, read,
    reasoning::{FIELDS, IN_CONTENT},
    usage,
};
use crate::{
    classify_error::{self, shortened},
    wire::reply_builder::{Block, ReplyBuilder, progress},
};

/// Makes a reply of chat completion chunks.
pub(crate) struct ChatDecoder {
    pub(crate) draft: ReplyBuilder,
    /// Calls in order of appearance: the index that the server gave, the server's id, our block.
    calls: Vec<(Option<u64>, String, usize)>,
    /// Sealed thoughts that go back as they came, by their index.
    details: Vec<Value>,
    filtered: bool,
    refused: bool,
    over: bool,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    model: Option<Text<'a>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Words<'a>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    delta: Option<Piece<'a>>,
    #[serde(borrow, default)]
    message: Option<Piece<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
}

impl<'a> Choice<'a> {
    /// What this choice adds. Some servers send the whole message so far beside each delta, and an empty delta beside a
    /// whole message.
    fn piece(&mut self, shape: CallShape) -> Option<Piece<'a>> {
        let (delta, message) = (self.delta.take(), self.message.take());
        match shape {
            CallShape::Piece => delta.or(message),
            CallShape::Whole => message.or(delta),
        }
    }
}

#[derive(Default, Deserialize)]
struct Piece<'a> {
    #[serde(borrow, default)]
    content: Words<'a>,
    #[serde(borrow, default)]
    reasoning_content: Words<'a>,
    #[serde(borrow, default)]
    reasoning: Words<'a>,
    #[serde(borrow, default)]
    reasoning_text: Words<'a>,
    #[serde(borrow, default)]
    thinking: Words<'a>,
    #[serde(borrow, default)]
    reasoning_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<Text<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<CallPiece<'a>>>,
    #[serde(borrow, default)]
    function_call: Option<FunctionPiece<'a>>,
}

#[derive(Deserialize)]
struct CallPiece<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    id: Words<'a>,
    #[serde(borrow, default)]
    function: Option<FunctionPiece<'a>>,
}

#[derive(Default, Deserialize)]
struct FunctionPiece<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl ChatDecoder {
    /// A decoder that fills `draft`.
    pub(crate) fn new(draft: ReplyBuilder) -> Self {
        Self { draft, calls: Vec::new(), details: Vec::new(), filtered: false, refused: false, over: false }
    }

    /// Takes the data of one event.
    pub(crate) fn push(&mut self, data: &[u8], on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        if self.over {
            return Ok(StreamProgress::Over);
        }
        if data.trim_ascii() == b"[DONE]" {
            self.done();
            return Ok(StreamProgress::Over);
        }
        let text = String::from_utf8_lossy(data);
        let chunk: Chunk<'_> = read(&text)?;
        if matches!(&chunk.object, Words::One(word) if word == "error") {
            return Err(classify_error::from_event(&serde_json::from_str(&text).unwrap_or_default()));
        }
        let progress = self.take(chunk, CallShape::Piece, on_delta)?;
        Ok(if self.draft.stop.is_some() { StreamProgress::Whole } else { progress })
    }

    /// Takes a whole answer.
    pub(crate) fn push_whole(&mut self, body: &[u8], on_delta: DeltaListener<'_>) -> Result<(), ModelError> {
        let text = String::from_utf8_lossy(body);
        let chunk: Chunk<'_> = serde_json::from_str(&text)
            .map_err(|error| ModelError::Unusable { reason: format!("the answer is no chat completion: {error}") })?;
        if chunk.error.is_none() && chunk.choices.as_ref().is_none_or(Vec::is_empty) {
            let reason = format!("the answer is no chat completion: it has no choices: {}", shortened(&text));
            return Err(ModelError::Unusable { reason });
        }
        self.take(chunk, CallShape::Whole, on_delta)?;
        // A whole body that arrived whole is complete even where the server forgot to say why it stopped.
        self.draft.stop.get_or_insert(StopReason::End);
        Ok(())
    }

    /// The reply, if its end has been seen.
    pub(crate) fn finish(mut self) -> Result<Reply, AskFailure> {
        if !self.details.is_empty() {
            let block = serde_json::json!({ "reasoning_details": self.details });
            self.draft.blocks.push(Block::Opaque("chat", block));
        }
        if self.filtered {
            let reason = "the provider's content filter cut the reply off".to_owned();
            return Err(self.draft.fail(ModelError::Refused { reason }));
        }
        self.draft.finish()
    }

    /// The server says that this was all. Words alone are then complete; a call needs its finish reason.
    fn done(&mut self) {
        self.over = true;
        let has_text = self.draft.blocks.iter().any(|block| matches!(block, Block::Text(text) if !text.is_empty()));
        if self.calls.is_empty() && has_text {
            self.draft.stop.get_or_insert(StopReason::End);
        }
    }

    fn take(
        &mut self,
        chunk: Chunk<'_>,
        shape: CallShape,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        if let Some(error) = chunk.error.filter(|it| it.get() != "null") {
            return Err(classify_error::from_event(&parsed(error)));
        }
        if self.draft.model.is_none() {
            self.draft.model = chunk.model.filter(|it| !it.0.is_empty()).map(|it| it.0.into_owned());
        }
        self.take_usage(&chunk.usage, &chunk.x_groq);
        let mut best = StreamProgress::None;
        for mut choice in chunk.choices.into_iter().flatten().filter(|it| it.index.unwrap_or(0) == 0) {
            // What follows the end of a reply is not part of it.
            if self.draft.stop.is_some() {
                break;
            }
            if let Some(piece) = choice.piece(shape) {
                best = most(best, self.take_piece(piece, shape, on_delta)?);
            }
            if let Some(reason) = choice.finish_reason {
                self.take_reason(&reason.0)?;
            }
        }
        Ok(best)
    }

    fn take_usage(&mut self, usage: &Option<&RawValue>, x_groq: &Option<&RawValue>) {
        if let Some(raw) = usage.filter(|it| it.get() != "null") {
            self.draft.usage = Some(usage::of_chat(&parsed(raw)));
        } else if let Some(raw) = x_groq
            && let Some(inner) = parsed(raw).get("usage").filter(|it| it.is_object())
            && self.draft.usage.is_none()
        {
            self.draft.usage = Some(usage::of_chat(inner));
        }
    }

    fn take_reason(&mut self, reason: &str) -> Result<(), ModelError> {
        let stop = match reason {
            "" => return Ok(()),
            "stop" | "eos" | "end_turn" | "stop_sequence" | "complete" => StopReason::End,
            "tool_calls" | "function_call" | "tool_use" => StopReason::Calls,
            "length" | "max_tokens" | "model_length" => StopReason::Length,
            "content_filter" => {
                self.filtered = true;
                StopReason::Refusal
            }
            "refusal" => StopReason::Refusal,
            "error" | "insufficient_system_resource" => {
                return Err(ModelError::Broken { reason: "the provider reported an error mid-reply".into() });
            }
            other => StopReason::Other(other.to_owned()),
        };
        self.draft.stop = Some(if self.refused { StopReason::Refusal } else { stop });
        Ok(())
    }

    fn take_piece(
        &mut self,
        piece: Piece<'_>,
        shape: CallShape,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let mut best = StreamProgress::None;
        let details = piece.reasoning_details.map(parsed);
        // Servers disagree about the name, and some give the same thoughts under two.
        let thoughts = [piece.reasoning, piece.reasoning_content, piece.reasoning_text, piece.thinking];
        if let Some((field, words)) = FIELDS.into_iter().zip(thoughts).find(|(_, words)| !words.is_empty()) {
            best = most(best, self.take_thoughts(field, words, on_delta)?);
        }
        if let Some(Value::Array(details)) = details {
            self.take_details(details);
        }
        match piece.content {
            Words::None => (),
            Words::One(text) => best = most(best, self.draft.text(&text, on_delta)?),
            Words::Pieces(pieces) => best = most(best, self.take_pieces(pieces, on_delta)?),
        }
        if let Some(Text(refusal)) = piece.refusal.filter(|it| !it.0.is_empty()) {
            self.refused = true;
            best = most(best, self.draft.text(&refusal, on_delta)?);
        }
        for (at, call) in piece.tool_calls.into_iter().flatten().enumerate() {
            let index = call.index.or(if shape == CallShape::Whole { Some(at as u64) } else { None });
            let id = if let Words::One(id) = call.id { id } else { Cow::Borrowed("") };
            best = most(best, self.take_call(index, &id, call.function.unwrap_or_default(), on_delta)?);
        }
        if let Some(function) = piece.function_call {
            best = most(best, self.take_call(Some(0), "", function, on_delta)?);
        }
        Ok(best)
    }

    /// Thoughts, and the field that they came in: it is the one that takes them back.
    fn take_thoughts(
        &mut self,
        field: &'static str,
        words: Words<'_>,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        self.draft.origin.get_or_insert(Cow::Borrowed(field));
        match words {
            Words::None => Ok(StreamProgress::None),
            Words::One(text) => self.draft.thinking(&text, on_delta),
            Words::Pieces(pieces) => {
                let mut best = StreamProgress::None;
                for (_, text) in pieces {
                    best = most(best, self.draft.thinking(&text, on_delta)?);
                }
                Ok(best)
            }
        }
    }

    /// Content in typed pieces, some of which are thoughts.
    fn take_pieces(
        &mut self,
        pieces: Vec<(bool, String)>,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let mut best = StreamProgress::None;
        for (is_thought, text) in pieces {
            if is_thought {
                self.draft.origin.get_or_insert(Cow::Borrowed(IN_CONTENT));
                best = most(best, self.draft.thinking(&text, on_delta)?);
            } else {
                best = most(best, self.draft.text(&text, on_delta)?);
            }
        }
        Ok(best)
    }

    fn take_call(
        &mut self,
        index: Option<u64>,
        id: &str,
        function: FunctionPiece<'_>,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let name = function.name.unwrap_or_default().0;
        let more = function.arguments.map(arguments).unwrap_or_default();
        match self.find_call(index, id, &name) {
            Some(at) => {
                if let Block::Call { name: known, args, .. } = &mut self.draft.blocks[at] {
                    if known.is_empty() && !name.is_empty() {
                        on_delta(Delta::Call(&name));
                        known.push_str(&name);
                    }
                    args.push_str(&more);
                }
                Ok(progress(&more))
            }
            None => {
                if !name.is_empty() {
                    on_delta(Delta::Call(&name));
                }
                let block = Block::Call { id: id.to_owned(), name: name.into_owned(), args: more };
                let at = self.draft.open(block)?;
                self.calls.push((index, id.to_owned(), at));
                Ok(StreamProgress::Content)
            }
        }
    }

    /// The call that a piece belongs to. Some servers give every call the index 0 and tell them apart by id; some
    /// give neither and send each call whole, with its name.
    fn find_call(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let mut known = self.calls.iter().rev();
        let found = match index {
            Some(_) => known.find(|(it, _, _)| *it == index),
            None if !id.is_empty() => known.find(|(_, it, _)| it == id),
            None if name.is_empty() => known.next(),
            None => None,
        };
        let (_, known_id, at) = found?;
        let starts_anew = !id.is_empty() && !known_id.is_empty() && id != known_id && !name.is_empty();
        (!starts_anew).then_some(*at)
    }

    fn take_details(&mut self, details: Vec<Value>) {
        for detail in details {
            match self.details.iter().position(|known| is_same_detail(known, &detail)) {
                Some(at) => merge_detail(&mut self.details[at], detail),
                None if self.details.len() < 1_024 => self.details.push(detail),
                None => (),
            }
        }
    }
}

fn is_same_detail(known: &Value, more: &Value) -> bool {
    let index = known.get("index").filter(|it| !it.is_null());
    index.is_some() && index == more.get("index") && known.get("type") == more.get("type")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallShape {
    Piece,
    Whole,
}

fn most(a: StreamProgress, b: StreamProgress) -> StreamProgress {
    if a == StreamProgress::None { b } else { a }
}

fn parsed(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or(Value::Null)
}

/// Content is a string, or a list of typed pieces some of which are thoughts. Anything else is no content.
#[derive(Default)]
enum Words<'a> {
    #[default]
    None,
    One(Cow<'a, str>),
    Pieces(Vec<(bool, String)>),
}

impl Words<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::One(text) => text.is_empty(),
            Self::Pieces(pieces) => pieces.is_empty(),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Words<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WordsVisitor)
    }
}

/// Takes words without copying them where it can: they are most of what a stream carries.
struct WordsVisitor;

impl<'de> serde::de::Visitor<'de> for WordsVisitor {
    type Value = Words<'de>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("words")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Words<'de>, E> {
        Ok(Words::One(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Words<'de>, E> {
        Ok(Words::One(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Words<'de>, A::Error> {
        let mut pieces = Vec::new();
        while let Some(item) = items.next_element::<Value>()? {
            pieces.extend(piece_words(&item));
        }
        Ok(Words::Pieces(pieces))
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut items: A) -> Result<Words<'de>, A::Error> {
        while items.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
        Ok(Words::None)
    }

    fn visit_unit<E>(self) -> Result<Words<'de>, E> {
        Ok(Words::None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Words<'de>, E> {
        Ok(Words::None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Words<'de>, E> {
        Ok(Words::None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Words<'de>, E> {
        Ok(Words::None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Words<'de>, E> {
        Ok(Words::None)
    }
}

fn piece_words(item: &Value) -> Vec<(bool, String)> {
    let text = |value: &Value| value.get("text").and_then(Value::as_str).map(str::to_owned);
    match item.get("thinking") {
        Some(Value::String(thought)) => vec![(true, thought.clone())],
        Some(Value::Array(thoughts)) => thoughts.iter().filter_map(text).map(|it| (true, it)).collect(),
        _ => text(item).map(|it| (false, it)).into_iter().collect(),
    }
}

/// Arguments are a string; some servers send the object itself.
fn arguments(raw: &RawValue) -> String {
    match parsed(raw) {
        Value::String(text) => text,
        Value::Null => String::new(),
        value @ (Value::Object(_) | Value::Array(_) | Value::Bool(_) | Value::Number(_)) => value.to_string(),
    }
}

/// A detail comes in pieces, too: its texts are joined, its seal comes last.
fn merge_detail(known: &mut Value, more: Value) {
    let (Value::Object(known), Value::Object(more)) = (known, more) else { return };
    for (key, value) in more {
        let joined = match (known.get(&key), &value) {
            (Some(Value::String(old)), Value::String(new)) if matches!(key.as_str(), "text" | "summary" | "data") => {
                Value::String(format!("{old}{new}"))
            }
            (_, Value::Null) => continue,
            (_, _) => value,
        };
        known.insert(key, joined);
    }
}
