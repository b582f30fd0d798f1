//! Decodes replies of the Responses API, from events or a whole response.

use homing_core::{
    message::{Reply, StopReason},
    model::{AskFailure, Delta, ModelError},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

use super::{
    DeltaListener, EventText, StreamProgress,
    chat_chunk::{ContentText, parsed},
    event_text, read, usage,
};
use crate::{
    classify_error,
    wire::reply_builder::{ReplyBlock, ReplyBuilder, progress},
};

/// The origin of reasoning that came over this wire, in [`homing_core::message::Part::Thinking`].
const REASONING_ORIGIN: &str = "responses";

/// Decodes response events into a reply.
pub(crate) struct ResponsesDecoder {
    pub(crate) draft: ReplyBuilder,
    /// The wire and the provider; items that are returned unchanged are recorded with it.
    origin: String,
    items: Vec<OutputItem>,
    started: bool,
    refused: bool,
    filtered: bool,
    over: bool,
}

/// An output item and its blocks in the draft.
struct OutputItem {
    /// The provider's index and id. Some servers send a new id with each event, others no index.
    index: Option<u64>,
    id: String,
    kind: ItemKind,
    /// The block that deltas extend.
    at: usize,
    /// The block that is filled when the item is complete, so that it stays next to the first.
    slot: usize,
    is_done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    Message,
    Reasoning,
    Call,
    /// An item of the provider's own tools, or one that is newer than this program.
    Other,
}

impl ItemKind {
    fn of(item: &Value) -> Self {
        match field(item, "type") {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" | "custom_tool_call" => Self::Call,
            _ => Self::Other,
        }
    }
}

#[derive(Deserialize)]
struct StreamEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    output_index: Option<u64>,
    #[serde(borrow, default)]
    item_id: Option<EventText<'a>>,
    #[serde(borrow, default)]
    delta: ContentText<'a>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

impl StreamEvent<'_> {
    fn place(&self) -> (Option<u64>, &str) {
        (self.output_index, self.item_id.as_ref().map_or("", |id| &id.0))
    }

    fn text(&self) -> &str {
        if let ContentText::One(text) = &self.delta { text } else { "" }
    }
}

impl ResponsesDecoder {
    /// Creates a decoder that fills `draft` with the reply of the provider `origin`.
    pub(crate) fn new(mut draft: ReplyBuilder, origin: &str) -> Self {
        draft.origin = Some(Cow::Borrowed(REASONING_ORIGIN));
        let (items, origin) = (Vec::new(), origin.to_owned());
        Self { draft, origin, items, started: false, refused: false, filtered: false, over: false }
    }

    /// Decodes the data of one event.
    pub(crate) fn push(&mut self, data: &[u8], on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        if self.over {
            return Ok(StreamProgress::Over);
        }
        let text = event_text(data);
        let event: StreamEvent<'_> = read(&text)?;
        let (place, delta) = (event.place(), event.text());
        match event.kind.as_ref() {
            "response.created" => self.start(),
            "response.output_item.added" => {
                self.open_item(place.0, &event.item.map(parsed).unwrap_or_default(), on_delta)
            }
            "response.output_item.done" => {
                self.close_item(place.0, event.item.map(parsed).unwrap_or_default(), on_delta)
            }
            "response.output_text.delta" => self.grow(place, ItemKind::Message, delta, on_delta),
            "response.refusal.delta" => {
                self.refused |= !delta.is_empty();
                self.grow(place, ItemKind::Message, delta, on_delta)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.grow(place, ItemKind::Reasoning, delta, on_delta)
            }
            "response.reasoning_summary_part.added" => self.begin_paragraph(place, on_delta),
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.grow(place, ItemKind::Call, delta, on_delta)
            }
            "response.completed" | "response.incomplete" => {
                self.end(&event.response.map(parsed).unwrap_or_default(), on_delta)
            }
            "response.failed" | "response.cancelled" => {
                Err(self.failed(&event.response.map(parsed).unwrap_or_default()))
            }
            "error" => {
                let value: Value = serde_json::from_str(&text).unwrap_or_default();
                Err(classify_error::from_event(value.get("error").filter(|error| error.is_object()).unwrap_or(&value)))
            }
            // Progress reports, annotations, and events that are newer than this program.
            _ => Ok(StreamProgress::None),
        }
    }

    /// Decodes a whole response.
    pub(crate) fn push_whole(&mut self, body: &[u8], on_delta: DeltaListener<'_>) -> Result<(), ModelError> {
        let unusable = |why: &str| ModelError::Unusable { reason: format!("the body is not a response: {why}") };
        let value: Value = serde_json::from_slice(body).map_err(|error| unusable(&error.to_string()))?;
        let has_error = value.get("error").is_some_and(|error| !error.is_null());
        if has_error || matches!(field(&value, "status"), "failed" | "cancelled") {
            return Err(self.failed(&value));
        }
        if !value.get("output").is_some_and(Value::is_array) {
            return Err(unusable("it has no output"));
        }
        self.end(&value, on_delta).map(drop)
    }

    /// Returns the reply if it is complete.
    pub(crate) fn finish(self) -> Result<Reply, AskFailure> {
        if self.filtered {
            let reason = "the provider's content filter cut the reply".to_owned();
            return Err(self.draft.fail(ModelError::Refused { reason }));
        }
        self.draft.finish()
    }

    fn start(&mut self) -> Result<StreamProgress, ModelError> {
        // A second response would be mixed with the first.
        if std::mem::replace(&mut self.started, true) {
            return Err(ModelError::Broken { reason: "the stream started a second response".into() });
        }
        Ok(StreamProgress::None)
    }

    fn open_item(
        &mut self,
        index: Option<u64>,
        json: &Value,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let kind = ItemKind::of(json);
        let (id, call_id, name) = (field(json, "id"), field(json, "call_id"), field(json, "name"));
        // Deltas belong to the latest item of an index; an earlier one is never completed.
        for known in self.items.iter_mut().filter(|known| known.index.is_some() && known.index == index) {
            known.index = None;
            known.id.clear();
        }
        let (at, slot) = match kind {
            ItemKind::Message => {
                let slot = self.draft.open(ReplyBlock::Skipped)?;
                (self.draft.open(ReplyBlock::Text(String::new()))?, slot)
            }
            ItemKind::Reasoning => {
                let at = self.draft.open(ReplyBlock::Thinking(String::new(), String::new()))?;
                (at, self.draft.open(ReplyBlock::Skipped)?)
            }
            ItemKind::Call => {
                if !name.is_empty() {
                    on_delta(Delta::Call(name));
                }
                let id = if call_id.is_empty() { id } else { call_id };
                let block = ReplyBlock::Call { id: id.to_owned(), name: name.to_owned(), args: String::new() };
                let at = self.draft.open(block)?;
                (at, at)
            }
            ItemKind::Other => {
                let at = self.draft.open(ReplyBlock::Skipped)?;
                (at, at)
            }
        };
        self.items.push(OutputItem { index, id: id.to_owned(), kind, at, slot, is_done: false });
        Ok(if kind == ItemKind::Call { StreamProgress::Content } else { StreamProgress::None })
    }

    /// The item that an event belongs to. Items that this event cannot extend are not considered.
    fn find(&self, (index, id): (Option<u64>, &str), kind: ItemKind) -> Option<usize> {
        let mut open = self.items.iter().enumerate().rev().filter(|(_, item)| item.kind == kind && !item.is_done);
        let found = match index {
            Some(_) => open.find(|(_, item)| item.index == index),
            None if !id.is_empty() => open.find(|(_, item)| item.id == id),
            None => open.next(),
        };
        found.map(|(at, _)| at)
    }

    /// Appends a delta to its item. Text and reasoning open an item if the server did not; a part of a call without its
    /// name is dropped.
    fn grow(
        &mut self,
        place: (Option<u64>, &str),
        kind: ItemKind,
        more: &str,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        if more.is_empty() {
            return Ok(StreamProgress::None);
        }
        let item = match self.find(place, kind) {
            Some(item) => item,
            None if kind == ItemKind::Call || self.was_closed(place) => return Ok(StreamProgress::None),
            None => {
                let word = if kind == ItemKind::Message { "message" } else { "reasoning" };
                self.open_item(place.0, &serde_json::json!({ "type": word, "id": place.1 }), on_delta)?;
                self.items.len() - 1
            }
        };
        match &mut self.draft.blocks[self.items[item].at] {
            ReplyBlock::Text(text) => {
                on_delta(Delta::Text(more));
                text.push_str(more);
            }
            ReplyBlock::Thinking(text, _) => {
                on_delta(Delta::Thinking(more));
                text.push_str(more);
            }
            ReplyBlock::Call { args, .. } => {
                on_delta(Delta::Arguments(more));
                args.push_str(more);
            }
            ReplyBlock::Opaque(..) | ReplyBlock::Skipped => (),
        }
        Ok(progress(more))
    }

    /// Returns true if the event names an item that is complete.
    fn was_closed(&self, (index, id): (Option<u64>, &str)) -> bool {
        let is_it = |item: &OutputItem| match index {
            Some(_) => item.index == index,
            None => !id.is_empty() && item.id == id,
        };
        self.items.iter().any(|item| item.is_done && is_it(item))
    }

    fn begin_paragraph(
        &mut self,
        place: (Option<u64>, &str),
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let Some(item) = self.find(place, ItemKind::Reasoning) else { return Ok(StreamProgress::None) };
        let is_first =
            matches!(&self.draft.blocks[self.items[item].at], ReplyBlock::Thinking(text, _) if text.is_empty());
        if is_first { Ok(StreamProgress::None) } else { self.grow(place, ItemKind::Reasoning, "\n\n", on_delta) }
    }

    /// Completes an item. The event repeats the whole item, which wins over its deltas.
    fn close_item(
        &mut self,
        index: Option<u64>,
        json: Value,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let id = field(&json, "id");
        let known = self.items.iter().rposition(|item| match index {
            Some(_) => item.index == index,
            None => !id.is_empty() && item.id == id,
        });
        // Without an index, an id may be new in each event.
        let by_kind = || index.is_none().then(|| self.find((None, ""), ItemKind::of(&json))).flatten();
        let item = match known.or_else(by_kind) {
            Some(item) if self.items[item].is_done => return Ok(StreamProgress::None),
            Some(item) => item,
            None => {
                self.open_item(index, &json, on_delta)?;
                self.items.len() - 1
            }
        };
        let OutputItem { kind, at, slot, .. } = self.items[item];
        // A call that the output limit cut is complete only in the sense that nothing follows.
        self.items[item].is_done = kind != ItemKind::Call || field(&json, "status") != "incomplete";
        match kind {
            ItemKind::Message => self.close_message(at, slot, &json, on_delta),
            ItemKind::Reasoning => self.close_reasoning(at, slot, json, on_delta),
            ItemKind::Call => self.close_call(at, &json, on_delta),
            ItemKind::Other if json.is_object() => {
                self.draft.blocks[at] = ReplyBlock::Opaque(self.origin.clone().into(), json);
            }
            ItemKind::Other => (),
        }
        Ok(if kind == ItemKind::Message { StreamProgress::None } else { StreamProgress::Content })
    }

    fn close_message(&mut self, at: usize, slot: usize, json: &Value, on_delta: DeltaListener<'_>) {
        if let Some(phase) = json.get("phase").and_then(Value::as_str) {
            let mark = serde_json::json!({ "type": "message", "phase": phase });
            self.draft.blocks[slot] = ReplyBlock::Opaque(self.origin.clone().into(), mark);
        }
        let content = json.get("content").and_then(Value::as_array).into_iter().flatten();
        let texts = content.map(|piece| (field(piece, "text"), field(piece, "refusal"))).collect::<Vec<_>>();
        self.refused |= texts.iter().any(|(_, refusal)| !refusal.is_empty());
        let whole: String = texts.iter().flat_map(|(text, refusal)| [*text, *refusal]).collect();
        if let ReplyBlock::Text(text) = &mut self.draft.blocks[at]
            && text.is_empty()
            && !whole.is_empty()
        {
            on_delta(Delta::Text(&whole));
            *text = whole;
        }
    }

    /// Keeps the item unchanged for the next request, if the provider can read it there: the others are only names of
    /// what it would have stored.
    fn close_reasoning(&mut self, at: usize, slot: usize, mut json: Value, on_delta: DeltaListener<'_>) {
        let list = |key: &str| json.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let whole = [list("summary"), list("content")].concat();
        let whole = whole.iter().map(|piece| field(piece, "text")).filter(|text| !text.is_empty());
        let whole = whole.collect::<Vec<_>>().join("\n\n");
        if let ReplyBlock::Thinking(text, _) = &mut self.draft.blocks[at]
            && text.is_empty()
            && !whole.is_empty()
        {
            on_delta(Delta::Thinking(&whole));
            *text = whole;
        }
        let is_readable = !field(&json, "encrypted_content").is_empty() || !list("content").is_empty();
        if let Some(object) = json.as_object_mut().filter(|_| is_readable) {
            // The status is output only.
            object.shift_remove("status");
            self.draft.blocks[slot] = ReplyBlock::Opaque(self.origin.clone().into(), json);
        }
    }

    fn close_call(&mut self, at: usize, json: &Value, on_delta: DeltaListener<'_>) {
        let ReplyBlock::Call { id, name, args } = &mut self.draft.blocks[at] else { return };
        let (call_id, whole_name) = (field(json, "call_id"), field(json, "name"));
        if !call_id.is_empty() {
            *id = call_id.to_owned();
        }
        if name.is_empty() && !whole_name.is_empty() {
            on_delta(Delta::Call(whole_name));
            *name = whole_name.to_owned();
        }
        match json.get("arguments").or_else(|| json.get("input")) {
            Some(Value::String(whole)) if whole.is_empty() => (),
            Some(Value::String(whole)) => *args = whole.clone(),
            // Some servers send an object instead of a string.
            Some(whole @ Value::Object(_)) => *args = whole.to_string(),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) | None => (),
        }
    }

    fn end(&mut self, response: &Value, on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        self.take_figures(response);
        let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str).unwrap_or_default();
        let output = response.get("output").and_then(Value::as_array).cloned().unwrap_or_default();
        let was_streamed = !self.items.is_empty();
        for (index, item) in output.into_iter().enumerate() {
            let index = Some(index as u64);
            // The final list completes what events began or left out entirely.
            if !was_streamed || self.items.iter().any(|known| known.index == index && !known.is_done) {
                self.close_item(index, item, on_delta)?;
            }
        }
        let stop = match (reason, field(response, "status")) {
            ("max_output_tokens", _) => StopReason::Length,
            ("content_filter", _) => StopReason::Refusal,
            ("", "incomplete") => StopReason::Length,
            ("", _) => StopReason::End,
            (other, _) => StopReason::Other(other.to_owned()),
        };
        self.filtered = reason == "content_filter";
        self.drop_open_calls(&stop);
        self.draft.stop = Some(if self.refused { StopReason::Refusal } else { stop });
        self.over = true;
        Ok(StreamProgress::Over)
    }

    /// Removes calls that are not complete, which must not be executed.
    fn drop_open_calls(&mut self, stop: &StopReason) {
        for item in self.items.iter().filter(|item| item.kind == ItemKind::Call && !item.is_done) {
            let open = std::mem::replace(&mut self.draft.blocks[item.at], ReplyBlock::Skipped);
            if let (ReplyBlock::Call { name, .. }, StopReason::Length) = (open, stop) {
                self.draft.cut_call = Some(name).filter(|name| !name.trim().is_empty());
            }
        }
    }

    /// The error of a failed response. Usage that came with it is final.
    fn failed(&mut self, response: &Value) -> ModelError {
        self.take_figures(response);
        if self.draft.usage.is_some() {
            self.draft.stop = Some(StopReason::Other("failed".to_owned()));
        }
        match response.get("error").filter(|error| !error.is_null()) {
            Some(error) => classify_error::from_event(error),
            None => ModelError::Broken { reason: format!("the provider ended the reply as {}", named(response)) },
        }
    }

    fn take_figures(&mut self, response: &Value) {
        self.draft.model = Some(field(response, "model").to_owned()).filter(|name| !name.is_empty());
        let usage = response.get("usage").filter(|usage| usage.is_object());
        self.draft.usage = usage.map(usage::of_responses);
    }
}

fn named(response: &Value) -> &str {
    match field(response, "status") {
        "" => "failed",
        status => status,
    }
}

fn field<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
