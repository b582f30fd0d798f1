//! Decodes replies of Amazon Bedrock's Converse API, from events or a whole response.

use std::borrow::Cow;

use homing_core::{
    message::{Reply, StopReason},
    model::{AskFailure, Delta, ModelError},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    DeltaListener, EventText, StreamProgress,
    bedrock::ORIGIN,
    event_text, read,
    reply_builder::{ReplyBlock, ReplyBuilder, progress},
    usage,
};
use crate::classify_error::{self, shortened};

/// Decodes Converse events into a reply.
pub(crate) struct BedrockDecoder {
    pub(crate) draft: ReplyBuilder,
    /// Open blocks: the provider's index and ours.
    open: Vec<(u64, usize)>,
    filtered: bool,
}

/// An event, as the splitter of frames passes it on: one of the members is set.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StreamEvent<'a> {
    #[serde(borrow, default)]
    content_block_start: Option<BlockStart<'a>>,
    #[serde(borrow, default)]
    content_block_delta: Option<BlockDelta<'a>>,
    #[serde(default)]
    content_block_stop: Option<BlockStop>,
    #[serde(borrow, default)]
    message_stop: Option<MessageStop<'a>>,
    #[serde(default)]
    metadata: Option<Value>,
    #[serde(default)]
    exception: Option<Exception>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStart<'a> {
    #[serde(default)]
    content_block_index: u64,
    #[serde(borrow, default)]
    start: StartedBlock<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartedBlock<'a> {
    #[serde(borrow, default)]
    tool_use: Option<StartedCall<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartedCall<'a> {
    #[serde(borrow, default)]
    tool_use_id: EventText<'a>,
    #[serde(borrow, default)]
    name: EventText<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockDelta<'a> {
    #[serde(default)]
    content_block_index: u64,
    #[serde(borrow, default)]
    delta: ContentDelta<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentDelta<'a> {
    #[serde(borrow, default)]
    text: Option<EventText<'a>>,
    #[serde(borrow, default)]
    tool_use: Option<CallDelta<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<ReasoningDelta<'a>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    #[serde(borrow, default)]
    input: EventText<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReasoningDelta<'a> {
    #[serde(borrow, default)]
    text: Option<EventText<'a>>,
    #[serde(borrow, default)]
    signature: Option<EventText<'a>>,
    #[serde(borrow, default)]
    redacted_content: Option<EventText<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStop {
    #[serde(default)]
    content_block_index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageStop<'a> {
    #[serde(borrow, default)]
    stop_reason: EventText<'a>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    body: Value,
}

impl BedrockDecoder {
    /// Creates a decoder that fills `draft`.
    pub(crate) fn new(mut draft: ReplyBuilder) -> Self {
        draft.origin = Some(Cow::Borrowed(ORIGIN));
        Self { draft, open: Vec::new(), filtered: false }
    }

    /// Decodes one event.
    pub(crate) fn push(&mut self, data: &[u8], on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        let text = event_text(data);
        let event: StreamEvent<'_> = read(&text)?;
        if let Some(exception) = event.exception {
            return Err(exception.classify());
        }
        if let Some(metadata) = event.metadata {
            self.draft.usage = Some(usage::of_bedrock(metadata.get("usage").unwrap_or(&Value::Null)));
            return Ok(if self.draft.stop.is_some() { StreamProgress::Over } else { StreamProgress::None });
        }
        // Content after the end is not part of the reply.
        if self.draft.stop.is_some() {
            return Ok(StreamProgress::None);
        }
        if let Some(BlockStart { content_block_index, start: StartedBlock { tool_use: Some(call) } }) =
            event.content_block_start
        {
            on_delta(Delta::Call(&call.name.0));
            let (id, name) = (call.tool_use_id.0.into_owned(), call.name.0.into_owned());
            self.open_block(content_block_index, ReplyBlock::Call { id, name, args: String::new() })?;
            return Ok(StreamProgress::Content);
        }
        if let Some(BlockDelta { content_block_index, delta }) = event.content_block_delta {
            return self.grow(content_block_index, &delta, on_delta);
        }
        if let Some(stop) = event.content_block_stop {
            self.open.retain(|(index, _)| *index != stop.content_block_index);
        }
        if let Some(stop) = event.message_stop {
            self.end(&stop.stop_reason.0);
            return Ok(StreamProgress::Whole);
        }
        Ok(StreamProgress::None)
    }

    /// Decodes a whole response.
    pub(crate) fn push_whole(&mut self, body: &[u8], on_delta: DeltaListener<'_>) -> Result<(), ModelError> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| ModelError::Unusable { reason: format!("the response is not a message: {error}") })?;
        let content = value.pointer("/output/message/content").and_then(Value::as_array);
        let Some(content) = content else {
            let reason = format!("the response is not a message: {}", shortened(&value.to_string()));
            return Err(ModelError::Unusable { reason });
        };
        for block in content {
            let (block, said) = whole_block(block);
            match (&block, said) {
                (ReplyBlock::Call { name, .. }, _) => on_delta(Delta::Call(name)),
                (ReplyBlock::Text(text), _) if !text.is_empty() => on_delta(Delta::Text(text)),
                (ReplyBlock::Thinking(text, _), _) if !text.is_empty() => on_delta(Delta::Thinking(text)),
                (ReplyBlock::Opaque(..), bytes) => self.draft.bytes_elsewhere += bytes,
                (ReplyBlock::Text(_) | ReplyBlock::Thinking(..) | ReplyBlock::Skipped, _) => (),
            }
            self.draft.open(block)?;
        }
        self.draft.usage = Some(usage::of_bedrock(value.get("usage").unwrap_or(&Value::Null)));
        self.end(value.get("stopReason").and_then(Value::as_str).unwrap_or("end_turn"));
        Ok(())
    }

    /// Returns the reply if it is complete.
    pub(crate) fn finish(self) -> Result<Reply, AskFailure> {
        if self.filtered {
            let reason = "a guardrail or content filter of Bedrock ended the reply".to_owned();
            return Err(self.draft.fail(ModelError::Refused { reason }));
        }
        self.draft.finish()
    }

    /// Opens a block in place of one with the same index.
    fn open_block(&mut self, index: u64, block: ReplyBlock) -> Result<usize, ModelError> {
        let at = self.draft.open(block)?;
        self.open.retain(|(open, _)| *open != index);
        self.open.push((index, at));
        Ok(at)
    }

    /// The open block with this index. Only calls announce themselves; others begin with their first delta.
    fn block(&mut self, index: u64, new: fn() -> ReplyBlock) -> Result<&mut ReplyBlock, ModelError> {
        let known = self.open.iter().find(|(open, _)| *open == index).map(|(_, at)| *at);
        let fits = |at: &usize| std::mem::discriminant(&self.draft.blocks[*at]) == std::mem::discriminant(&new());
        let at = match known.filter(fits) {
            Some(at) => at,
            None => self.open_block(index, new())?,
        };
        Ok(&mut self.draft.blocks[at])
    }

    fn grow(
        &mut self,
        index: u64,
        delta: &ContentDelta<'_>,
        on_delta: DeltaListener<'_>,
    ) -> Result<StreamProgress, ModelError> {
        let thinking = || ReplyBlock::Thinking(String::new(), String::new());
        if let Some(EventText(more)) = &delta.text {
            on_delta(Delta::Text(more));
            if let ReplyBlock::Text(text) = self.block(index, || ReplyBlock::Text(String::new()))? {
                text.push_str(more);
            }
            return Ok(progress(more));
        }
        if let Some(CallDelta { input: EventText(more) }) = &delta.tool_use {
            let known = self.open.iter().find(|(open, _)| *open == index).map(|(_, at)| *at);
            if let Some(ReplyBlock::Call { args, .. }) = known.map(|at| &mut self.draft.blocks[at]) {
                on_delta(Delta::Arguments(more));
                args.push_str(more);
            }
            return Ok(progress(more));
        }
        let Some(reasoning) = &delta.reasoning_content else { return Ok(StreamProgress::None) };
        if let Some(EventText(sealed)) = &reasoning.redacted_content {
            let block = json!({"reasoningContent": {"redactedContent": sealed}});
            self.draft.bytes_elsewhere += sealed.len();
            self.draft.open(ReplyBlock::Opaque(Cow::Borrowed(ORIGIN), block))?;
            return Ok(StreamProgress::Content);
        }
        let (more, signed) = (&reasoning.text, &reasoning.signature);
        if let Some(EventText(more)) = more {
            on_delta(Delta::Thinking(more));
        }
        if let ReplyBlock::Thinking(text, signature) = self.block(index, thinking)? {
            text.push_str(more.as_ref().map_or("", |more| &more.0));
            signature.push_str(signed.as_ref().map_or("", |signed| &signed.0));
        }
        Ok(StreamProgress::Content)
    }

    fn end(&mut self, reason: &str) {
        let stop = match reason {
            "end_turn" | "stop_sequence" => StopReason::End,
            "tool_use" => StopReason::Calls,
            "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
            "guardrail_intervened" | "content_filtered" => {
                self.filtered = true;
                StopReason::Refusal
            }
            other => StopReason::Other(other.to_owned()),
        };
        // A call that was never closed is incomplete, so it must not be executed.
        for (_, at) in self.open.drain(..) {
            if matches!(self.draft.blocks[at], ReplyBlock::Call { .. }) {
                let open = std::mem::replace(&mut self.draft.blocks[at], ReplyBlock::Skipped);
                if let (ReplyBlock::Call { name, .. }, StopReason::Length) = (open, &stop) {
                    self.draft.cut_call = Some(name);
                }
            }
        }
        self.draft.stop = Some(stop);
    }
}

impl Exception {
    fn classify(&self) -> ModelError {
        let said = ["message", "Message", "originalMessage"].iter().find_map(|key| self.body.get(key)?.as_str());
        let message = said.map_or_else(|| self.kind.clone(), |said| format!("{}: {said}", self.kind));
        classify_error::from_event(&json!({"type": self.kind, "message": message}))
    }
}

/// A block of a whole response, and its size if that is not in the block itself.
fn whole_block(block: &Value) -> (ReplyBlock, usize) {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(call) = block.get("toolUse") {
        let args = call.get("input").map(Value::to_string).unwrap_or_default();
        return (ReplyBlock::Call { id: text(call, "toolUseId"), name: text(call, "name"), args }, 0);
    }
    if let Some(reasoning) = block.pointer("/reasoningContent/reasoningText") {
        return (ReplyBlock::Thinking(text(reasoning, "text"), text(reasoning, "signature")), 0);
    }
    if block.get("reasoningContent").is_some() {
        return (ReplyBlock::Opaque(Cow::Borrowed(ORIGIN), block.clone()), block.to_string().len());
    }
    match block.get("text").and_then(Value::as_str) {
        Some(text) => (ReplyBlock::Text(text.to_owned()), 0),
        None => (ReplyBlock::Skipped, 0),
    }
}
