//! A provider's prompt cache: the beginnings of prompts that it has seen cost less.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    FakeResponse, ReceivedRequest, ResponseStep,
    answer::{call_deltas, chat_events_with, quoted},
};

/// Bytes per token.
const TOKEN: usize = 4;

/// The shortest beginning that is cached, in tokens.
const MIN_TOKENS: usize = 1_024;

/// The steps in which beginnings are cached, in tokens.
const STEP: usize = 128;

/// Plays a provider of chat completions that caches prompts as OpenAI does: from 1,024 tokens on, in steps of 128, and only
/// after the reply to the first request with that beginning has begun. Its log is independent of what clients report.
pub struct PrefixCache {
    first_token_after: Duration,
    prompts: Mutex<Vec<CachedPrompt>>,
    log: Mutex<Vec<PromptUsage>>,
}

struct CachedPrompt {
    from: Instant,
    prompt: String,
}

/// The size of one prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptUsage {
    /// Tokens of the prompt.
    pub input: usize,
    /// Of these, tokens that were in the cache.
    pub cached: usize,
}

impl PrefixCache {
    /// Creates an empty cache. Replies begin after `first_token_after`.
    pub fn new(first_token_after: Duration) -> Arc<Self> {
        Arc::new(Self { first_token_after, prompts: Mutex::default(), log: Mutex::default() })
    }

    /// Replies to a request with text.
    pub fn text(&self, request: &ReceivedRequest, text: &str) -> FakeResponse {
        self.reply(request, &[format!("{{\"content\":{}}}", quoted(text))], "stop")
    }

    /// Replies to a request with calls of tools, given by name and JSON arguments.
    pub fn calls(&self, request: &ReceivedRequest, calls: &[(&str, &str)]) -> FakeResponse {
        self.reply(request, &call_deltas(calls), "tool_calls")
    }

    /// Returns the sizes of all prompts so far.
    pub fn log(&self) -> Vec<PromptUsage> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reply(&self, request: &ReceivedRequest, deltas: &[String], reason: &str) -> FakeResponse {
        let PromptUsage { input, cached } = self.take_in(prompt(request));
        let usage = format!(
            "{{\"prompt_tokens\":{input},\"completion_tokens\":20,\"total_tokens\":{},\
             \"prompt_tokens_details\":{{\"cached_tokens\":{cached}}}}}",
            input + 20
        );
        let events = chat_events_with(deltas, reason, &usage);
        FakeResponse::open_stream(vec![ResponseStep::Sleep(self.first_token_after), ResponseStep::Bytes(events.into())])
    }

    fn take_in(&self, prompt: &str) -> PromptUsage {
        let now = Instant::now();
        let mut prompts = self.prompts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = prompts.iter().filter(|known| known.from <= now);
        let common = known.map(|known| common_prefix(&known.prompt, prompt)).max().unwrap_or(0);
        let cached = common / TOKEN / STEP * STEP;
        let usage = PromptUsage { input: prompt.len() / TOKEN, cached: if cached < MIN_TOKENS { 0 } else { cached } };
        prompts.push(CachedPrompt { from: now + self.first_token_after, prompt: prompt.to_owned() });
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(usage);
        usage
    }
}

/// Returns the part of a request that the model reads: tools and messages.
pub(crate) fn prompt(request: &ReceivedRequest) -> &str {
    let body = request.body.as_str();
    let start = body.find("\"tools\":[").or_else(|| body.find("\"messages\":[")).unwrap_or(0);
    body[start..].trim_end_matches(['}', ']'])
}

/// Returns the number of bytes that two texts have in common at their beginning.
fn common_prefix(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}
