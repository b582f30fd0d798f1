//! Decodes replies of Anthropic messages, from events or a whole response.

use homing_core::{
    message::{Reply, StopReason},
    model::{AskFailure, Delta, ModelError},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

use super::{DeltaListener, EventText, StreamProgress, event_text, read, usage};
use crate::{
    classify_error,
    wire::reply_builder::{ReplyBlock, ReplyBuilder, cut_stream, progress},
};

/// Decodes message events into a reply.
pub(crate) struct AnthropicDecoder {
    pub(crate) draft: ReplyBuilder,
    /// Open blocks: the provider's index and ours.
    open: Vec<(u64, usize)>,
    started: bool,
    over: bool,
    /// The reason why the model stopped; valid once the stream is over.
    stop: Option<StopReason>,
    first_usage: Option<Value>,
}

#[derive(Deserialize)]
struct StreamEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'a, str>,
    #[serde(default)]
    index: u64,
    #[serde(borrow, default)]
    delta: Option<EventDelta<'a>>,
    #[serde(borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct EventDelta<'a> {
    #[serde(borrow, default)]
    text: Option<EventText<'a>>,
    #[serde(borrow, default)]
    thinking: Option<EventText<'a>>,
    #[serde(borrow, default)]
    signature: Option<EventText<'a>>,
    #[serde(borrow, default)]
    partial_json: Option<EventText<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<EventText<'a>>,
}

impl AnthropicDecoder {
    /// Creates a decoder that fills `draft`.
    pub(crate) fn new(draft: ReplyBuilder) -> Self {
        Self { draft, open: Vec::new(), started: false, over: false, stop: None, first_usage: None }
    }

    /// Decodes the data of one event.
    pub(crate) fn push(&mut self, data: &[u8], on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        if self.over {
            return Ok(StreamProgress::Over);
        }
        let text = event_text(data);
        let event: StreamEvent<'_> = read(&text)?;
        match event.kind.as_ref() {
            "message_start" => self.start(event.message),
            "content_block_start" => self.open_block(event.index, event.content_block.map(parsed), on_delta),
            "content_block_delta" => match event.delta {
                Some(delta) => self.grow(event.index, &delta, on_delta),
                None => Ok(StreamProgress::None),
            },
            "content_block_stop" => Ok(self.close(event.index)),
            "message_delta" => Ok(self.set_stop(event.delta.and_then(|delta| delta.stop_reason), event.usage)),
            "message_stop" => Ok(self.end()),
            "error" => {
                let error = event.error.map_or_else(|| serde_json::from_str(&text).unwrap_or_default(), parsed);
                Err(classify_error::from_event(&error))
            }
            // Pings, and events that are newer than this program.
            _ => Ok(StreamProgress::None),
        }
    }

    /// Decodes a whole response.
    pub(crate) fn push_whole(&mut self, body: &[u8], on_delta: DeltaListener<'_>) -> Result<(), ModelError> {
        let unusable = |why: &str| ModelError::Unusable { reason: format!("the response is not a message: {why}") };
        let value: Value = serde_json::from_slice(body).map_err(|error| unusable(&error.to_string()))?;
        if let Some(error) = value.get("error").filter(|it| !it.is_null()) {
            return Err(classify_error::from_event(error));
        }
        let Some(blocks) = value.get("content").and_then(Value::as_array) else {
            return Err(unusable("it has no content"));
        };
        self.draft.model = value.get("model").and_then(Value::as_str).map(str::to_owned);
        for (index, block) in blocks.iter().enumerate() {
            self.open_block(index as u64, Some(block.clone()), on_delta)?;
            self.close(index as u64);
        }
        self.stop = Some(stop(value.get("stop_reason").and_then(Value::as_str).unwrap_or("end_turn")));
        // In a whole response, the input of a cut call is valid JSON that lacks fields: only its position shows the cut.
        if let (Some(StopReason::Length), Some(ReplyBlock::Call { args, .. })) =
            (&self.stop, self.draft.blocks.last_mut())
        {
            args.clear();
        }
        self.draft.usage = Some(usage::of_anthropic(value.get("usage").unwrap_or(&Value::Null), None));
        self.end();
        Ok(())
    }

    /// Returns the reply if it is complete.
    pub(crate) fn finish(self) -> Result<Reply, AskFailure> {
        if self.over {
            return self.draft.finish();
        }
        Err(self.abandon().fail(cut_stream()))
    }

    /// The incomplete reply. Usage that came with the stop reason is final.
    pub(crate) fn abandon(self) -> ReplyBuilder {
        let stop = self.stop.or(self.draft.stop);
        ReplyBuilder { stop, ..self.draft }
    }

    fn start(&mut self, message: Option<&RawValue>) -> Result<StreamProgress, ModelError> {
        // A second message would be mixed with the first.
        if std::mem::replace(&mut self.started, true) {
            return Err(ModelError::Broken { reason: "the stream started a second message".into() });
        }
        let message = message.map(parsed).unwrap_or_default();
        self.draft.model = message.get("model").and_then(Value::as_str).map(str::to_owned);
        self.first_usage = message.get("usage").cloned();
        Ok(StreamProgress::None)
    }

    fn open_block(
        &mut self,
        index: u64,
        block: Option<Value>,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let mut json = block.unwrap_or_default();
        let field = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let block = match field("type").as_str() {
            "text" => ReplyBlock::Text(field("text")),
            "thinking" => ReplyBlock::Thinking(field("thinking"), field("signature")),
            "tool_use" => {
                let input =
                    json.get("input").filter(|input| input.as_object().is_some_and(|object| !object.is_empty()));
                let args = input.map(Value::to_string).unwrap_or_default();
                ReplyBlock::Call { id: field("id"), name: field("name"), args }
            }
            "" => ReplyBlock::Skipped,
            // Redacted reasoning and blocks of the provider's own tools are returned unchanged.
            _ => ReplyBlock::Opaque(Cow::Borrowed("anthropic"), json.take()),
        };
        let progressed = match &block {
            ReplyBlock::Text(text) => {
                if !text.is_empty() {
                    on_delta(Delta::Text(text));
                }
                progress(text)
            }
            ReplyBlock::Thinking(text, _) => {
                if !text.is_empty() {
                    on_delta(Delta::Thinking(text));
                }
                StreamProgress::Content
            }
            ReplyBlock::Call { name, .. } => {
                on_delta(Delta::Call(name));
                StreamProgress::Content
            }
            ReplyBlock::Opaque(..) => StreamProgress::Content,
            ReplyBlock::Skipped => StreamProgress::None,
        };
        let at = self.draft.open(block)?;
        self.open.retain(|(open, _)| *open != index);
        self.open.push((index, at));
        Ok(progressed)
    }

    /// Appends a delta to its block. A delta for a block that is not open is dropped.
    fn grow(
        &mut self,
        index: u64,
        delta: &EventDelta<'_>,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let Some((_, at)) = self.open.iter().find(|(open, _)| *open == index) else { return Ok(StreamProgress::None) };
        let progressed = match (&mut self.draft.blocks[*at], delta) {
            (ReplyBlock::Text(text), EventDelta { text: Some(EventText(more)), .. }) => {
                on_delta(Delta::Text(more));
                text.push_str(more);
                progress(more)
            }
            (ReplyBlock::Thinking(text, _), EventDelta { thinking: Some(EventText(more)), .. }) => {
                on_delta(Delta::Thinking(more));
                text.push_str(more);
                progress(more)
            }
            (ReplyBlock::Thinking(_, signature), EventDelta { signature: Some(EventText(more)), .. }) => {
                signature.push_str(more);
                progress(more)
            }
            (ReplyBlock::Call { args, .. }, EventDelta { partial_json: Some(EventText(more)), .. }) => {
                on_delta(Delta::Arguments(more));
                args.push_str(more);
                progress(more)
            }
            (ReplyBlock::Opaque(_, block), EventDelta { partial_json: Some(EventText(more)), .. }) => {
                grow_opaque(block, more);
                self.draft.bytes_elsewhere += more.len();
                progress(more)
            }
            _ => StreamProgress::None,
        };
        Ok(progressed)
    }

    fn close(&mut self, index: u64) -> StreamProgress {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == index) {
            let (_, block) = self.open.remove(at);
            if let ReplyBlock::Opaque(_, block) = &mut self.draft.blocks[block] {
                close_opaque(block);
            }
        }
        StreamProgress::None
    }

    fn set_stop(&mut self, reason: Option<EventText<'_>>, usage: Option<&RawValue>) -> StreamProgress {
        if let Some(reason) = reason {
            self.stop = Some(stop(&reason.0));
        }
        if let Some(raw) = usage.filter(|raw| raw.get() != "null") {
            self.draft.usage = Some(usage::of_anthropic(&parsed(raw), self.first_usage.as_ref()));
        }
        StreamProgress::None
    }

    fn end(&mut self) -> StreamProgress {
        self.over = true;
        // A block that was never closed is incomplete, so its call must not be executed.
        for (_, at) in self.open.drain(..) {
            if matches!(self.draft.blocks[at], ReplyBlock::Call { .. } | ReplyBlock::Opaque(..)) {
                let open = std::mem::replace(&mut self.draft.blocks[at], ReplyBlock::Skipped);
                if let (ReplyBlock::Call { name, .. }, Some(StopReason::Length)) = (open, &self.stop) {
                    self.draft.cut_call = Some(name);
                }
            }
        }
        self.draft.stop = self.stop.clone();
        StreamProgress::Over
    }
}

fn stop(reason: &str) -> StopReason {
    match reason {
        "end_turn" | "stop_sequence" => StopReason::End,
        "tool_use" => StopReason::Calls,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refusal,
        other => StopReason::Other(other.to_owned()),
    }
}

fn parsed(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or(Value::Null)
}

/// Collects the input of a provider's own tool, which comes in parts, until the block is closed.
fn grow_opaque(block: &mut Value, more: &str) {
    let Some(object) = block.as_object_mut() else { return };
    let so_far = object.get("\u{0}input").and_then(Value::as_str).unwrap_or_default();
    let joined = format!("{so_far}{more}");
    object.insert("\u{0}input".into(), joined.into());
}

fn close_opaque(block: &mut Value) {
    let Some(object) = block.as_object_mut() else { return };
    if let Some(Value::String(text)) = object.shift_remove("\u{0}input")
        && let Ok(input @ Value::Object(_)) = serde_json::from_str(&text)
    {
        object.insert("input".into(), input);
    }
}
