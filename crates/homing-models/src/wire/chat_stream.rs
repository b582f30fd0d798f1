//! Decodes replies of chat completions, from events or a whole response.

use homing_core::{
    message::{Reply, StopReason},
    model::{AskFailure, Delta, ModelError},
};
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

use super::{
    DeltaListener, EventText, StreamProgress,
    chat_chunk::{ChatChunk, ChatDelta, ContentText, FunctionDelta, MessageForm, arguments, parsed},
    event_text,
    json_scanner::JsonStr,
    plain_chunk::{ChunkHead, ContentFrame, PlainCall, PlainChunk},
    read,
    reasoning::{FIELDS, IN_CONTENT},
    usage,
};
use crate::{
    classify_error::{self, shortened},
    wire::{
        reply_builder::{ReplyBlock, ReplyBuilder, progress},
        text_tool_calls::failed_calls,
    },
};

/// Decodes chat completion chunks into a reply.
pub(crate) struct ChatDecoder {
    pub(crate) draft: ReplyBuilder,
    /// Calls in order of appearance: the server's index, our block.
    calls: Vec<(Option<u64>, usize)>,
    /// Reasoning details that are returned unchanged, by their index.
    details: Vec<Value>,
    /// The beginning of the events so far.
    head: Option<ChunkHead>,
    /// The form of the last event that had only content.
    frame: Option<ContentFrame>,
    filtered: bool,
    refused: bool,
    over: bool,
}

impl ChatDecoder {
    /// Creates a decoder that fills `draft`.
    pub(crate) fn new(draft: ReplyBuilder) -> Self {
        Self {
            draft,
            calls: Vec::new(),
            details: Vec::new(),
            head: None,
            frame: None,
            filtered: false,
            refused: false,
            over: false,
        }
    }

    /// Decodes the data of one event.
    pub(crate) fn push(&mut self, data: &[u8], on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        if self.over {
            return Ok(StreamProgress::Over);
        }
        if data.trim_ascii() == b"[DONE]" {
            self.done();
            return Ok(StreamProgress::Over);
        }
        let text = event_text(data);
        if let Some(content) = self.frame.as_ref().and_then(|frame| frame.content(&text)?.read())
            && self.draft.stop.is_none()
        {
            return self.draft.text(&content, on_delta);
        }
        if let Some(chunk) = PlainChunk::read(&text, self.head.as_ref()) {
            let frame = ContentFrame::of(&text, &chunk);
            let head = if self.head.is_none() { ChunkHead::of(&text, &chunk) } else { None };
            if let Some(progress) = self.take_plain(chunk, on_delta) {
                self.frame = frame.or(self.frame.take());
                self.head = self.head.take().or(head);
                return progress.map(|progress| self.or_whole(progress));
            }
        }
        let chunk: ChatChunk<'_> = read(&text)?;
        if matches!(&chunk.object, ContentText::One(word) if word == "error") {
            return Err(classify_error::from_event(&serde_json::from_str(&text).unwrap_or_default()));
        }
        let progress = self.take_chunk(chunk, MessageForm::Delta, on_delta)?;
        Ok(self.or_whole(progress))
    }

    fn or_whole(&self, progress: StreamProgress) -> StreamProgress {
        if self.draft.stop.is_some() { StreamProgress::Whole } else { progress }
    }

    /// Takes a chunk of the common form; `None` if one of its texts is malformed, and then nothing of it is taken.
    pub(super) fn take_plain(
        &mut self,
        chunk: PlainChunk<'_>,
        on_delta: DeltaListener<'_>,
    ) -> Option<Result<StreamProgress, ModelError>> {
        let content = chunk.content.map_or(Some(Cow::Borrowed("")), JsonStr::read)?;
        let arguments = chunk.call.as_ref().and_then(|call| call.arguments);
        let arguments = arguments.map_or(Some(Cow::Borrowed("")), JsonStr::read)?;
        let reasoning = match chunk.reasoning {
            Some((field, text)) => Some((field, text.read()?)),
            None => None,
        };
        if self.draft.model.is_none() {
            self.draft.model = chunk.model.filter(|name| !name.is_empty()).map(str::to_owned);
        }
        if let Some(usage) = chunk.usage {
            self.draft.usage = Some(usage.usage());
        }
        // Content after the end is not part of the reply.
        if self.draft.stop.is_some() {
            return Some(Ok(StreamProgress::None));
        }
        let take = || {
            let mut best = StreamProgress::None;
            if let Some((field, text)) = reasoning.filter(|(_, text)| !text.is_empty()) {
                best = most(best, self.take_reasoning(field, ContentText::One(text), on_delta)?);
            }
            best = most(best, self.draft.text(&content, on_delta)?);
            if let Some(PlainCall { index, id, name, .. }) = chunk.call {
                let piece = CallPiece { index, id: id.unwrap_or_default(), name: name.unwrap_or_default(), arguments };
                best = most(best, self.take_call(piece, on_delta)?);
            }
            if let Some(reason) = chunk.finish_reason {
                self.set_stop(reason)?;
            }
            Ok(best)
        };
        Some(take())
    }

    /// Decodes a whole response.
    pub(crate) fn push_whole(&mut self, body: &[u8], on_delta: DeltaListener<'_>) -> Result<(), ModelError> {
        let text = event_text(body);
        let chunk: ChatChunk<'_> = serde_json::from_str(&text).map_err(|error| ModelError::Unusable {
            reason: format!("the response is not a chat completion: {error}"),
        })?;
        if chunk.error.is_none() && chunk.choices.as_ref().is_none_or(Vec::is_empty) {
            let reason = format!("the response is not a chat completion: it has no choices: {}", shortened(&text));
            return Err(ModelError::Unusable { reason });
        }
        self.take_chunk(chunk, MessageForm::Whole, on_delta)?;
        // A whole response is complete even if the server sends no finish reason.
        self.draft.stop.get_or_insert(StopReason::End);
        Ok(())
    }

    /// Returns the reply if it is complete.
    pub(crate) fn finish(mut self) -> Result<Reply, AskFailure> {
        if !self.details.is_empty() {
            let block = serde_json::json!({ "reasoning_details": self.details });
            self.draft.blocks.push(ReplyBlock::Opaque(Cow::Borrowed("chat"), block));
        }
        if self.filtered {
            let reason = "the provider's content filter cut the reply".to_owned();
            return Err(self.draft.fail(ModelError::Refused { reason }));
        }
        self.draft.finish()
    }

    /// Reads the attempt at a call from the body of an error response.
    pub(crate) fn take_failed_attempt(&mut self, body: &[u8]) -> bool {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        self.take_failed_call(body.get("error").unwrap_or(&body))
    }

    /// Reads the calls that Groq's server could not accept. They are returned as calls with whatever name and arguments they
    /// have: executing them fails, or succeeds where the server was too strict.
    fn take_failed_call(&mut self, error: &Value) -> bool {
        let text = |key: &str| error.get(key).and_then(Value::as_str);
        let Some(attempt) = text("failed_generation").filter(|_| text("code") == Some("tool_use_failed")) else {
            return false;
        };
        let calls = failed_calls(attempt, &self.draft.offered);
        let has_calls = !calls.is_empty();
        let block = |(name, args)| ReplyBlock::Call { id: String::new(), name, args };
        self.draft.blocks.extend(calls.into_iter().map(block));
        if has_calls {
            self.draft.stop = Some(StopReason::Calls);
        }
        has_calls
    }

    /// Handles the end mark. Text alone is then complete; a call needs its finish reason.
    fn done(&mut self) {
        self.over = true;
        let has_text =
            self.draft.blocks.iter().any(|block| matches!(block, ReplyBlock::Text(text) if !text.is_empty()));
        if self.calls.is_empty() && has_text {
            self.draft.stop.get_or_insert(StopReason::End);
        }
    }

    pub(super) fn take_chunk(
        &mut self,
        chunk: ChatChunk<'_>,
        form: MessageForm,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        if let Some(error) = chunk.error.filter(|raw| raw.get() != "null").map(parsed) {
            if self.take_failed_call(&error) {
                return Ok(StreamProgress::Whole);
            }
            return Err(classify_error::from_event(&error));
        }
        if self.draft.model.is_none() {
            self.draft.model = chunk.model.filter(|name| !name.0.is_empty()).map(|name| name.0.into_owned());
        }
        self.take_usage(&chunk.usage, &chunk.x_groq);
        let mut best = StreamProgress::None;
        for mut choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index.unwrap_or(0) == 0) {
            // Content after the end is not part of the reply.
            if self.draft.stop.is_some() {
                break;
            }
            if let Some(delta) = choice.content(form) {
                best = most(best, self.take_delta(delta, form, on_delta)?);
            }
            if let Some(reason) = choice.finish_reason {
                self.set_stop(&reason.0)?;
            }
        }
        Ok(best)
    }

    fn take_usage(&mut self, usage: &Option<&RawValue>, x_groq: &Option<&RawValue>) {
        if let Some(raw) = usage.filter(|raw| raw.get() != "null") {
            self.draft.usage = Some(usage::of_chat_text(raw.get()));
        } else if let Some(raw) = x_groq
            && let Some(inner) = parsed(raw).get("usage").filter(|usage| usage.is_object())
            && self.draft.usage.is_none()
        {
            self.draft.usage = Some(usage::of_chat(inner));
        }
    }

    fn set_stop(&mut self, reason: &str) -> Result<(), ModelError> {
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
                return Err(ModelError::Broken {
                    reason: "the provider reported an error in the middle of the reply".into(),
                });
            }
            other => StopReason::Other(other.to_owned()),
        };
        self.draft.stop = Some(if self.refused { StopReason::Refusal } else { stop });
        Ok(())
    }

    fn take_delta(
        &mut self,
        delta: ChatDelta<'_>,
        form: MessageForm,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let mut best = StreamProgress::None;
        let details = delta.reasoning_details.map(parsed);
        self.draft.bytes_elsewhere += delta.reasoning_details.map_or(0, |raw| raw.get().len());
        // The name of the field varies, and some servers send the same reasoning under two names.
        let reasoning = [delta.reasoning, delta.reasoning_content, delta.reasoning_text, delta.thinking];
        if let Some((field, text)) = FIELDS.into_iter().zip(reasoning).find(|(_, text)| !text.is_empty()) {
            best = most(best, self.take_reasoning(field, text, on_delta)?);
        }
        if let Some(Value::Array(details)) = details {
            self.take_details(details);
        }
        match delta.content {
            ContentText::None => (),
            ContentText::One(text) => best = most(best, self.draft.text(&text, on_delta)?),
            ContentText::Parts(parts) => best = most(best, self.take_parts(parts, on_delta)?),
        }
        if let Some(EventText(refusal)) = delta.refusal.filter(|refusal| !refusal.0.is_empty()) {
            self.refused = true;
            best = most(best, self.draft.text(&refusal, on_delta)?);
        }
        for (at, call) in delta.tool_calls.into_iter().flatten().enumerate() {
            let index = call.index.or((form == MessageForm::Whole).then_some(at as u64));
            let id = if let ContentText::One(id) = call.id { id } else { Cow::Borrowed("") };
            best = most(best, self.take_call(CallPiece::new(index, &id, call.function.as_ref()), on_delta)?);
        }
        if let Some(function) = delta.function_call {
            best = most(best, self.take_call(CallPiece::new(Some(0), "", Some(&function)), on_delta)?);
        }
        Ok(best)
    }

    /// Adds reasoning and records its field, which is the one to return it in.
    fn take_reasoning(
        &mut self,
        field: &'static str,
        text: ContentText<'_>,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        self.draft.origin.get_or_insert(Cow::Borrowed(field));
        match text {
            ContentText::None => Ok(StreamProgress::None),
            ContentText::One(text) => self.draft.thinking(&text, on_delta),
            ContentText::Parts(parts) => {
                let mut best = StreamProgress::None;
                for (_, text) in parts {
                    best = most(best, self.draft.thinking(&text, on_delta)?);
                }
                Ok(best)
            }
        }
    }

    /// Adds content in typed parts, some of which are reasoning.
    fn take_parts(
        &mut self,
        parts: Vec<(bool, String)>,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let mut best = StreamProgress::None;
        for (is_reasoning, text) in parts {
            if is_reasoning {
                self.draft.origin.get_or_insert(Cow::Borrowed(IN_CONTENT));
                best = most(best, self.draft.thinking(&text, on_delta)?);
            } else {
                best = most(best, self.draft.text(&text, on_delta)?);
            }
        }
        Ok(best)
    }

    fn take_call(&mut self, piece: CallPiece<'_>, on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        let CallPiece { index, id, name, arguments: more } = piece;
        match self.find_call(index, id, name) {
            Some(at) => {
                if let ReplyBlock::Call { name: known, args, .. } = &mut self.draft.blocks[at] {
                    if known.is_empty() && !name.is_empty() {
                        on_delta(Delta::Call(name));
                        known.push_str(name);
                    }
                    args.push_str(&more);
                    on_delta(Delta::Arguments(&more));
                }
                Ok(progress(&more))
            }
            None => {
                if !name.is_empty() {
                    on_delta(Delta::Call(name));
                }
                if !more.is_empty() {
                    on_delta(Delta::Arguments(&more));
                }
                let block = ReplyBlock::Call { id: id.to_owned(), name: name.to_owned(), args: more.into_owned() };
                let at = self.draft.open(block)?;
                self.calls.push((index, at));
                Ok(StreamProgress::Content)
            }
        }
    }

    /// The call that a delta belongs to. Some servers give every call the index 0 and distinguish them by id; some give
    /// neither and send each call whole, with its name.
    fn find_call(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let id_of = |at: usize| match &self.draft.blocks[at] {
            ReplyBlock::Call { id, .. } => id.as_str(),
            ReplyBlock::Text(_) | ReplyBlock::Thinking(..) | ReplyBlock::Opaque(..) | ReplyBlock::Skipped => "",
        };
        let mut known = self.calls.iter().rev();
        let found = match index {
            Some(_) => known.find(|(known, _)| *known == index),
            None if !id.is_empty() => known.find(|(_, at)| id_of(*at) == id),
            None if name.is_empty() => known.next(),
            None => None,
        };
        let (_, at) = *found?;
        let known_id = id_of(at);
        let starts_anew = !id.is_empty() && !known_id.is_empty() && id != known_id && !name.is_empty();
        (!starts_anew).then_some(at)
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

/// A piece of a call.
struct CallPiece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: Cow<'a, str>,
}

impl<'a> CallPiece<'a> {
    fn new(index: Option<u64>, id: &'a str, function: Option<&'a FunctionDelta<'a>>) -> Self {
        let name = function.and_then(|function| function.name.as_ref()).map_or("", |name| &*name.0);
        let arguments = function.and_then(|function| function.arguments).map(arguments).unwrap_or_default();
        Self { index, id, name, arguments }
    }
}

fn is_same_detail(known: &Value, more: &Value) -> bool {
    let index = known.get("index").filter(|index| !index.is_null());
    index.is_some() && index == more.get("index") && known.get("type") == more.get("type")
}

fn most(a: StreamProgress, b: StreamProgress) -> StreamProgress {
    if a == StreamProgress::None { b } else { a }
}

/// Merges a delta of a detail: texts are joined, and the signature comes last.
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
