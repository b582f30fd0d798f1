//! Anthropic messages, the answer: events or one whole body become a reply.

use homing_core::{
    message::{Reply, StopReason},
    model::{AskFailure, Delta, ModelError},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

use super::{DeltaListener, StreamProgress, Text, read, usage};
use crate::{
    classify_error,
    wire::reply_builder::{Block, ReplyBuilder, progress},
};

/// Makes a reply of message events.
pub(crate) struct AnthropicDecoder {
    pub(crate) draft: ReplyBuilder,
    /// Blocks by the provider's index: ours, and whether it is still open.
    open: Vec<(u64, usize)>,
    started: bool,
    over: bool,
    /// Why it stopped; it counts once the stream says that it is over.
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
    text: Option<Text<'a>>,
    #[serde(borrow, default)]
    thinking: Option<Text<'a>>,
    #[serde(borrow, default)]
    signature: Option<Text<'a>>,
    #[serde(borrow, default)]
    partial_json: Option<Text<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<Text<'a>>,
}

impl AnthropicDecoder {
    /// A decoder that fills `draft`.
    pub(crate) fn new(draft: ReplyBuilder) -> Self {
        Self { draft, open: Vec::new(), started: false, over: false, stop: None, first_usage: None }
    }

    /// Takes the data of one event.
    pub(crate) fn push(&mut self, data: &[u8], on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        if self.over {
            return Ok(StreamProgress::Over);
        }
        let text = String::from_utf8_lossy(data);
        let event: StreamEvent<'_> = read(&text)?;
        match event.kind.as_ref() {
            "message_start" => self.start(event.message),
            "content_block_start" => self.open_block(event.index, event.content_block.map(parsed), on_delta),
            "content_block_delta" => match event.delta {
                Some(delta) => self.grow(event.index, &delta, on_delta),
                None => Ok(StreamProgress::None),
            },
            "content_block_stop" => Ok(self.close(event.index)),
            "message_delta" => Ok(self.take_end(event.delta.and_then(|it| it.stop_reason), event.usage)),
            "message_stop" => Ok(self.end()),
            "error" => {
                let error = event.error.map_or_else(|| serde_json::from_str(&text).unwrap_or_default(), parsed);
                Err(classify_error::from_event(&error))
            }
            // Pings, and whatever comes newer than this program.
            _ => Ok(StreamProgress::None),
        }
    }

    /// Takes a whole answer.
    pub(crate) fn push_whole(&mut self, body: &[u8], on_delta: DeltaListener<'_>) -> Result<(), ModelError> {
        let unusable = |why: &str| ModelError::Unusable { reason: format!("the answer is no message: {why}") };
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
        // In a body the input of a cut call is sound JSON that lacks fields: nothing shows that it was cut but its position.
        if let (Some(StopReason::Length), Some(Block::Call { args, .. })) = (&self.stop, self.draft.blocks.last_mut()) {
            args.clear();
        }
        self.draft.usage = Some(usage::of_anthropic(value.get("usage").unwrap_or(&Value::Null), None));
        self.end();
        Ok(())
    }

    /// The reply, if its end has been seen.
    pub(crate) fn finish(self) -> Result<Reply, AskFailure> {
        if self.over {
            return self.draft.finish();
        }
        let reason = "the stream ended before the reply did".to_owned();
        Err(self.abandon().fail(ModelError::Broken { reason }))
    }

    /// What had arrived when the stream was given up. Figures that came with the reason to stop are final.
    pub(crate) fn abandon(self) -> ReplyBuilder {
        let stop = self.stop.or(self.draft.stop);
        ReplyBuilder { stop, ..self.draft }
    }

    fn start(&mut self, message: Option<&RawValue>) -> Result<StreamProgress, ModelError> {
        // A second start would mix two replies.
        if std::mem::replace(&mut self.started, true) {
            return Err(ModelError::Broken { reason: "the stream began a second message".into() });
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
        let mut block = block.unwrap_or_default();
        let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let made = match field("type").as_str() {
            "text" => Block::Text(field("text")),
            "thinking" => Block::Thinking(field("thinking"), field("signature")),
            "tool_use" => {
                let input = block.get("input").filter(|it| it.as_object().is_some_and(|it| !it.is_empty()));
                let args = input.map(Value::to_string).unwrap_or_default();
                Block::Call { id: field("id"), name: field("name"), args }
            }
            "" => Block::Skipped,
            // Redacted thoughts and blocks of the provider's own tools go back as they came.
            _ => Block::Opaque("anthropic", block.take()),
        };
        let moved = match &made {
            Block::Text(text) => {
                if !text.is_empty() {
                    on_delta(Delta::Text(text));
                }
                progress(text)
            }
            Block::Thinking(text, _) => {
                if !text.is_empty() {
                    on_delta(Delta::Thinking(text));
                }
                StreamProgress::Content
            }
            Block::Call { name, .. } => {
                on_delta(Delta::Call(name));
                StreamProgress::Content
            }
            Block::Opaque(..) => StreamProgress::Content,
            Block::Skipped => StreamProgress::None,
        };
        let at = self.draft.open(made)?;
        self.open.retain(|(it, _)| *it != index);
        self.open.push((index, at));
        Ok(moved)
    }

    /// A delta for a block that is not open belongs to nothing and is dropped.
    fn grow(
        &mut self,
        index: u64,
        delta: &EventDelta<'_>,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let Some((_, at)) = self.open.iter().find(|(it, _)| *it == index) else { return Ok(StreamProgress::None) };
        let moved = match (&mut self.draft.blocks[*at], delta) {
            (Block::Text(text), EventDelta { text: Some(Text(more)), .. }) => {
                on_delta(Delta::Text(more));
                text.push_str(more);
                progress(more)
            }
            (Block::Thinking(text, _), EventDelta { thinking: Some(Text(more)), .. }) => {
                on_delta(Delta::Thinking(more));
                text.push_str(more);
                progress(more)
            }
            (Block::Thinking(_, seal), EventDelta { signature: Some(Text(more)), .. }) => {
                seal.push_str(more);
                progress(more)
            }
            (Block::Call { args, .. }, EventDelta { partial_json: Some(Text(more)), .. }) => {
                args.push_str(more);
                progress(more)
            }
            (Block::Opaque(_, block), EventDelta { partial_json: Some(Text(more)), .. }) => {
                grow_opaque(block, more);
                progress(more)
            }
            _ => StreamProgress::None,
        };
        Ok(moved)
    }

    fn close(&mut self, index: u64) -> StreamProgress {
        if let Some(at) = self.open.iter().position(|(it, _)| *it == index) {
            let (_, block) = self.open.remove(at);
            if let Block::Opaque(_, block) = &mut self.draft.blocks[block] {
                close_opaque(block);
            }
        }
        StreamProgress::None
    }

    fn take_end(&mut self, reason: Option<Text<'_>>, figures: Option<&RawValue>) -> StreamProgress {
        if let Some(reason) = reason {
            self.stop = Some(stop(&reason.0));
        }
        if let Some(raw) = figures.filter(|it| it.get() != "null") {
            self.draft.usage = Some(usage::of_anthropic(&parsed(raw), self.first_usage.as_ref()));
        }
        StreamProgress::None
    }

    fn end(&mut self) -> StreamProgress {
        self.over = true;
        // A block that never closed is not whole, and a call of it must not get out.
        for (_, at) in self.open.drain(..) {
            if matches!(self.draft.blocks[at], Block::Call { .. } | Block::Opaque(..)) {
                let taken = std::mem::replace(&mut self.draft.blocks[at], Block::Skipped);
                if let (Block::Call { name, .. }, Some(StopReason::Length)) = (taken, &self.stop) {
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

/// The input of a provider's own tool comes in pieces; they are gathered beside it until the block closes.
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
