//! A reply that is still being written, and the rules by which it becomes one: no half call ever gets out.

use homing_core::{
    message::{Args, Part, Reply, StopReason, ToolCall, Usage},
    model::{AskFailure, Charge, Delta, ModelError},
};
use serde_json::Value;
use std::borrow::Cow;

use crate::wire::{DeltaListener, StreamProgress, text_tool_calls};

/// More pieces than any reply has; a stream that opens blocks for ever ends here.
const MAX_BLOCKS: usize = 4_096;

/// A reply that is still being written.
#[derive(Default)]
pub(crate) struct ReplyBuilder {
    /// The pieces, in order.
    pub(crate) blocks: Vec<Block>,
    /// Why the model stopped, once it has said so.
    pub(crate) stop: Option<StopReason>,
    /// What the provider reported.
    pub(crate) usage: Option<Usage>,
    /// The model's name as the provider gave it.
    pub(crate) model: Option<String>,
    /// The tools that the reply may call.
    pub(crate) offered: Vec<String>,
    /// What its reasoning came as.
    pub(crate) origin: Option<Cow<'static, str>>,
    /// The tool whose call the output limit cut, if its block has been taken out already.
    pub(crate) cut_call: Option<String>,
}

/// One piece.
#[derive(Debug)]
pub(crate) enum Block {
    /// Words.
    Text(String),
    /// Thoughts and their seal.
    Thinking(String, String),
    /// A call; the arguments as the text that has arrived.
    Call { id: String, name: String, args: String },
    /// A block to keep as it is.
    Opaque(&'static str, Value),
    /// A block that nobody needs.
    Skipped,
}

impl ReplyBuilder {
    /// A draft for a request that offered these tools.
    pub(crate) fn new(offered: Vec<String>) -> Self {
        Self { offered, ..Self::default() }
    }

    /// Adds a block; the index is its handle.
    pub(crate) fn open(&mut self, block: Block) -> Result<usize, ModelError> {
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(ModelError::Broken { reason: format!("the reply has more than {MAX_BLOCKS} parts") });
        }
        self.blocks.push(block);
        Ok(self.blocks.len() - 1)
    }

    /// Adds words to the last block if it is text, else to a new one.
    pub(crate) fn text(&mut self, more: &str, on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        if more.is_empty() {
            return Ok(StreamProgress::None);
        }
        on_delta(Delta::Text(more));
        match self.blocks.last_mut() {
            Some(Block::Text(text)) => text.push_str(more),
            _ => drop(self.open(Block::Text(more.to_owned()))?),
        }
        Ok(progress(more))
    }

    /// Adds thoughts to the last block if it is thinking, else to a new one.
    pub(crate) fn thinking(&mut self, more: &str, on_delta: DeltaListener<'_>) -> Result<StreamProgress, ModelError> {
        if more.is_empty() {
            return Ok(StreamProgress::None);
        }
        on_delta(Delta::Thinking(more));
        match self.blocks.last_mut() {
            Some(Block::Thinking(text, _)) => text.push_str(more),
            _ => drop(self.open(Block::Thinking(more.to_owned(), String::new()))?),
        }
        Ok(progress(more))
    }

    /// Whether anything has arrived that a provider would bill.
    fn has_content(&self) -> bool {
        self.blocks.iter().any(|block| match block {
            Block::Text(text) => !text.is_empty(),
            Block::Thinking(text, seal) => !text.is_empty() || !seal.is_empty(),
            Block::Call { .. } | Block::Opaque(..) => true,
            Block::Skipped => false,
        })
    }

    /// The failure that `error` is at this point.
    pub(crate) fn fail(self, error: ModelError) -> AskFailure {
        let charge = match self.usage {
            Some(usage) if self.stop.is_some() && !usage.estimated => Charge::Used(usage),
            _ if self.has_content() => Charge::Hold,
            _ => Charge::Nothing,
        };
        let words = self.blocks.into_iter().filter_map(|block| match block {
            Block::Text(text) => Some(text),
            Block::Thinking(..) | Block::Call { .. } | Block::Opaque(..) | Block::Skipped => None,
        });
        AskFailure { error, charge, partial: words.collect() }
    }

    /// The reply, now that its end has been seen.
    pub(crate) fn finish(self) -> Result<Reply, AskFailure> {
        let Some(mut stop) = self.stop.clone() else {
            return Err(self.fail(ModelError::Broken { reason: "the stream ended before the reply did".into() }));
        };
        let usage = self.usage.unwrap_or(Usage { estimated: true, ..Usage::default() });
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
        Ok(Reply { parts, stop, usage, model: self.model, cut_call })
    }
}

/// Blank text is no progress: a stream of blanks must end like a silent one.
pub(crate) fn progress(text: &str) -> StreamProgress {
    if text.trim().is_empty() { StreamProgress::None } else { StreamProgress::Content }
}

/// The parts of a reply, and the tool whose call the output limit cut.
fn parts(blocks: Vec<Block>, stop: &StopReason, origin: Option<&str>) -> (Vec<Part>, Option<String>) {
    let last_call = blocks.iter().rposition(|block| matches!(block, Block::Call { .. }));
    let (mut calls, mut cut_call) = (0, None);
    let made = blocks.into_iter().enumerate().filter_map(|(at, block)| match block {
        Block::Text(text) if text.is_empty() => None,
        Block::Text(text) => Some(Part::Text(text)),
        Block::Thinking(text, seal) if text.is_empty() && seal.is_empty() => None,
        Block::Thinking(text, seal) => {
            let signature = Some(seal).filter(|it| !it.is_empty());
            Some(Part::Thinking { text, signature, origin: origin.map(str::to_owned) })
        }
        Block::Opaque(wire, block) => Some(Part::Opaque { wire: wire.to_owned(), block }),
        Block::Skipped => None,
        Block::Call { name, .. } if name.trim().is_empty() => None,
        Block::Call { name, args, .. } if *stop == StopReason::Length && Some(at) == last_call && !is_object(&args) => {
            cut_call = Some(name);
            None
        }
        Block::Call { id, name, args } => {
            let id = if id.is_empty() { format!("call_{calls}") } else { id };
            calls += 1;
            Some(Part::Call(ToolCall { id, name, args: read_args(args) }))
        }
    });
    (made.collect(), cut_call)
}

/// Only an object shows by itself that it is whole.
fn is_object(args: &str) -> bool {
    serde_json::from_str::<Value>(args).is_ok_and(|value| value.is_object())
}

/// Arguments as a proper end left them. A model that wrapped its object into a string is understood.
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
