//! [`ReplyBuilder`]: collects the blocks of a reply. It never returns an incomplete call.

use homing_core::{
    message::{Args, Part, Reply, StopReason, ToolCall, Usage},
    model::{AskFailure, Charge, Delta, ModelError},
};
use serde_json::Value;
use std::{borrow::Cow, sync::Arc};

use crate::wire::{DeltaListener, StreamProgress, text_tool_calls};

/// Maximum number of blocks in a reply, which bounds endless streams.
const MAX_BLOCKS: usize = 4_096;

/// Bytes of a reply for each token that the request permits: about four times as many as text has, so that a provider that
/// keeps to the limit is never cut, and one that ignores it is not read for long.
const BYTES_PER_TOKEN: u64 = 16;

/// Bytes of a reply beside those for its tokens: ids, names and signatures.
const SPARE_BYTES: u64 = 16 * 1024;

/// A reply that is still being received.
#[derive(Default)]
pub(crate) struct ReplyBuilder {
    /// The blocks, in order.
    pub(crate) blocks: Vec<ReplyBlock>,
    /// The reason why the model stopped, once it is known.
    pub(crate) stop: Option<StopReason>,
    /// The usage that the provider reported.
    pub(crate) usage: Option<Usage>,
    /// The model's name as the provider reports it.
    pub(crate) model: Option<String>,
    /// The tools that the reply may call.
    pub(crate) offered: Arc<[String]>,
    /// The field or wire that the reasoning came in.
    pub(crate) origin: Option<Cow<'static, str>>,
    /// The tool whose call the output limit cut, if its block has already been removed.
    pub(crate) cut_call: Option<String>,
    /// The output tokens that the request permits; `None` if the length of the reply is not checked.
    pub(crate) max_output: Option<u64>,
    /// Bytes of content that are not in the blocks.
    pub(crate) bytes_elsewhere: usize,
}

/// One block of a reply.
#[derive(Debug)]
pub(crate) enum ReplyBlock {
    /// Text.
    Text(String),
    /// Reasoning and its signature.
    Thinking(String, String),
    /// A call, with the text of its arguments so far.
    Call { id: String, name: String, args: String },
    /// A block of the given wire that is stored unchanged.
    Opaque(Cow<'static, str>, Value),
    /// A block that is ignored.
    Skipped,
}

impl ReplyBuilder {
    /// Creates a builder for a request that offered these tools.
    pub(crate) fn new(offered: Arc<[String]>) -> Self {
        Self { offered, ..Self::default() }
    }

    /// Adds a block and returns its index.
    pub(crate) fn open(&mut self, block: ReplyBlock) -> Result<usize, ModelError> {
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(ModelError::Broken { reason: format!("the reply has more than {MAX_BLOCKS} parts") });
        }
        if self.blocks.is_empty() {
            // Most replies have one block.
            self.blocks.reserve_exact(1);
        }
        self.blocks.push(block);
        Ok(self.blocks.len() - 1)
    }

    /// Adds text to the last block if that is text, else to a new block.
    pub(crate) fn text(&mut self, more: &str, on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        if more.is_empty() {
            return Ok(StreamProgress::None);
        }
        on_delta(Delta::Text(more));
        match self.blocks.last_mut() {
            Some(ReplyBlock::Text(text)) => text.push_str(more),
            _ => drop(self.open(ReplyBlock::Text(more.to_owned()))?),
        }
        Ok(progress(more))
    }

    /// Adds reasoning to the last block if that is reasoning, else to a new block.
    pub(crate) fn thinking(&mut self, more: &str, on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        if more.is_empty() {
            return Ok(StreamProgress::None);
        }
        on_delta(Delta::Thinking(more));
        match self.blocks.last_mut() {
            Some(ReplyBlock::Thinking(text, _)) => text.push_str(more),
            _ => drop(self.open(ReplyBlock::Thinking(more.to_owned(), String::new()))?),
        }
        Ok(progress(more))
    }

    /// Returns true if the reply has content that the provider bills.
    fn has_content(&self) -> bool {
        self.blocks.iter().any(|block| match block {
            ReplyBlock::Text(text) => !text.is_empty(),
            ReplyBlock::Thinking(text, signature) => !text.is_empty() || !signature.is_empty(),
            ReplyBlock::Call { .. } | ReplyBlock::Opaque(..) => true,
            ReplyBlock::Skipped => false,
        })
    }

    /// Fails if the reply is far longer than the request permits.
    pub(crate) fn check_length(&self) -> Result<(), ModelError> {
        match self.max_output.filter(|tokens| self.content_bytes() > max_bytes(*tokens)) {
            None => Ok(()),
            Some(tokens) => Err(ModelError::Unusable {
                reason: format!("the reply was ended: it is far longer than the permitted {tokens} tokens"),
            }),
        }
    }

    fn content_bytes(&self) -> u64 {
        let blocks = self.blocks.iter().map(|block| match block {
            ReplyBlock::Text(text) => text.len(),
            ReplyBlock::Thinking(text, signature) => text.len() + signature.len(),
            ReplyBlock::Call { id, name, args } => id.len() + name.len() + args.len(),
            ReplyBlock::Opaque(..) | ReplyBlock::Skipped => 0,
        });
        (blocks.sum::<usize>() + self.bytes_elsewhere) as u64
    }

    /// The usage of a complete reply. Zero tokens for a request that was sent, or for a reply that has content, mean that the
    /// provider reported nothing; then the output is estimated from the content, and the input is left to the caller.
    fn complete_usage(&self) -> Usage {
        let reported = self.usage.filter(|usage| !usage.estimated).unwrap_or_default();
        // OpenAI reports no output for a reply that was cut before its reasoning, which is hidden, had ended.
        let is_blank = self.content_bytes() == 0;
        let has_output = reported.output > 0 || (self.usage.is_some_and(|usage| !usage.estimated) && is_blank);
        if reported.input > 0 && has_output {
            return reported;
        }
        let output = if reported.output > 0 { reported.output } else { self.estimated_output() };
        reported.output(output).estimated(true)
    }

    /// About three bytes are a token, which rather counts too many.
    fn estimated_output(&self) -> u64 {
        self.content_bytes().div_ceil(3).max(1)
    }

    /// Ends the reply with `error`, and returns it with its charge and the partial text.
    pub(crate) fn fail(self, error: ModelError) -> AskFailure {
        let charge = match self.usage {
            Some(usage) if self.stop.is_some() && !usage.estimated => Charge::Used(usage),
            _ if self.check_length().is_err() => {
                Charge::Used(Usage::default().output(self.estimated_output()).estimated(true))
            }
            _ if self.has_content() => Charge::Hold,
            _ => Charge::Nothing,
        };
        let texts = self.blocks.into_iter().filter_map(|block| match block {
            ReplyBlock::Text(text) => Some(text),
            ReplyBlock::Thinking(..) | ReplyBlock::Call { .. } | ReplyBlock::Opaque(..) | ReplyBlock::Skipped => None,
        });
        AskFailure::new(error, charge).partial(texts.collect::<String>())
    }

    /// Returns the reply if it is complete.
    pub(crate) fn finish(self) -> Result<Reply, AskFailure> {
        let Some(mut stop) = self.stop.clone() else {
            return Err(self.fail(cut_stream()));
        };
        let usage = self.complete_usage();
        let (mut parts, cut_call) = parts(self.blocks, &stop, self.origin.as_deref());
        let mut cut_call = cut_call.or(self.cut_call);
        let has_calls = parts.iter().any(|part| matches!(part, Part::Call(_)));
        if !has_calls && cut_call.is_none() {
            if stop == StopReason::Length {
                cut_call = text_tool_calls::drop_cut_call(&mut parts, &self.offered);
            }
            text_tool_calls::read_calls(&mut parts, &self.offered);
        }
        let has_calls = parts.iter().any(|part| matches!(part, Part::Call(_)));
        stop = match (stop, has_calls) {
            (StopReason::End, true) => StopReason::Calls,
            (StopReason::Calls, false) => StopReason::End,
            (stop, _) => stop,
        };
        Ok(Reply::new(parts).stop(stop).usage(usage).model(self.model).cut_call(cut_call))
    }
}

fn max_bytes(tokens: u64) -> u64 {
    tokens.saturating_mul(BYTES_PER_TOKEN).saturating_add(SPARE_BYTES)
}

/// The error for a stream that ended early.
pub(crate) fn cut_stream() -> ModelError {
    ModelError::Broken { reason: "the stream ended before the reply was complete".into() }
}

/// The progress of `text`. Whitespace does not count, so that a stream of nothing else times out.
pub(crate) fn progress(text: &str) -> StreamProgress {
    // Most pieces have a letter at the beginning or after a space.
    let has_content = text.chars().any(|letter| !letter.is_whitespace());
    if has_content { StreamProgress::Content } else { StreamProgress::None }
}

/// The parts of a reply, and the tool whose call the output limit cut.
fn parts(blocks: Vec<ReplyBlock>, stop: &StopReason, origin: Option<&str>) -> (Vec<Part>, Option<String>) {
    let last_call = blocks.iter().rposition(|block| matches!(block, ReplyBlock::Call { .. }));
    let (mut calls, mut cut_call) = (0, None);
    let parts = blocks.into_iter().enumerate().filter_map(|(at, block)| match block {
        ReplyBlock::Text(text) if text.is_empty() => None,
        ReplyBlock::Text(text) => Some(Part::Text(text)),
        ReplyBlock::Thinking(text, signature) if text.is_empty() && signature.is_empty() => None,
        ReplyBlock::Thinking(text, signature) => {
            let signature = Some(signature).filter(|signature| !signature.is_empty());
            Some(Part::Thinking { text, signature, origin: origin.map(str::to_owned) })
        }
        ReplyBlock::Opaque(wire, block) => Some(Part::Opaque { wire: wire.into_owned(), block }),
        ReplyBlock::Skipped => None,
        ReplyBlock::Call { name, .. } if name.trim().is_empty() => None,
        ReplyBlock::Call { name, args, .. }
            if *stop == StopReason::Length && Some(at) == last_call && !is_object(&args) =>
        {
            cut_call = Some(name);
            None
        }
        ReplyBlock::Call { id, name, args } => {
            let id = if id.is_empty() { format!("call_{calls}") } else { id };
            calls += 1;
            Some(Part::from(ToolCall { id, name, args: read_args(args) }))
        }
    });
    (parts.collect(), cut_call)
}

/// Returns true for a JSON object, the only form of arguments that is certainly complete.
fn is_object(args: &str) -> bool {
    serde_json::from_str::<Value>(args).is_ok_and(|value| value.is_object())
}

/// Parses the arguments of a complete call. An object inside a string is accepted.
pub(crate) fn read_args(args: String) -> Args {
    if args.trim().is_empty() {
        return Args::Json(Value::Object(serde_json::Map::new()));
    }
    match serde_json::from_str::<Value>(&args) {
        Ok(Value::String(inner)) => match serde_json::from_str::<Value>(&inner) {
            Ok(value) if value.is_object() => Args::Json(value),
            Ok(_) | Err(_) => Args::Json(Value::String(inner)),
        },
        Ok(Value::Null) => Args::Json(Value::Object(serde_json::Map::new())),
        Ok(value) => Args::Json(value),
        Err(_) => Args::Malformed(args),
    }
}
