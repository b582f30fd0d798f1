//! Every wire that is not ours, through `genai`. Its types stay in this folder, and so do its traps; each has a test in
//! `tests/foreign.rs`.

mod failure;
mod raw_frames;
mod request;

use std::sync::{Arc, Mutex, PoisonError};

use failure::classify;
use futures::StreamExt;
use genai::{
    Client, ModelIden,
    adapter::AdapterKind,
    chat::{
        ChatOptions, ChatRequest, ChatResponse, ChatStream, ChatStreamEvent, ContentPart, MessageContent,
        StopReason as GenaiStopReason, StreamEnd,
    },
    resolver::{AuthData, Endpoint},
};
use homing_core::{
    BoxFuture,
    message::{Reply, StopReason, Usage},
    model::{AskFailure, Delta, Model, ModelCard, ModelError, ModelRequest, OnDelta},
};
use raw_frames::RawFrames;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    http::{Deadline, Http, StreamTimers, Timeouts},
    native_model::price,
    provider::{NoModelError, ProviderRow},
    secret::Key,
    wire::{Block, Delivery, ReplyBuilder, StreamProgress},
};

/// A model that `genai` speaks with.
pub(crate) struct GenaiModel {
    card: ModelCard,
    model: ModelIden,
    endpoint: Option<String>,
    headers: Vec<(String, String)>,
    key: Key,
    /// What reasoning from this provider is recorded as having come as.
    origin: String,
    delivery: Delivery,
    clocks: Timeouts,
    http: Arc<Http>,
}

impl GenaiModel {
    /// The model `model` at the provider of `row`.
    pub(crate) fn new(
        row: &ProviderRow,
        model: &str,
        key: Key,
        card: ModelCard,
        http: Arc<Http>,
    ) -> Result<Self, NoModelError> {
        let Some(adapter) = adapter(&row.name) else {
            let why = "genai knows no provider of this name; give it `wire` and `base_url`".to_owned();
            return Err(NoModelError::BadRow { provider: row.name.clone(), why });
        };
        let endpoint = Some(row.base_url.trim_end_matches('/')).filter(|it| !it.is_empty()).map(|it| format!("{it}/"));
        let headers = row.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let (delivery, clocks) = (row.delivery, http.clocks.with_patience(row.patience).for_delivery(row.delivery));
        let (model, origin) = (ModelIden::new(adapter, model.to_owned()), format!("genai/{}", row.name));
        Ok(Self { card, model, endpoint, headers, key, origin, delivery, clocks, http })
    }

    /// A client that takes key and address from us, never from the environment.
    fn client(&self) -> Result<Client, ModelError> {
        let (endpoint, auth) = (self.endpoint.clone(), self.key.expose().map_or(AuthData::None, AuthData::from_single));
        let resolver = move |mut target: genai::ServiceTarget| -> genai::resolver::Result<genai::ServiceTarget> {
            if let Some(url) = &endpoint {
                target.endpoint = Endpoint::from_owned(url.clone());
            }
            target.auth = auth.clone();
            Ok(target)
        };
        let client = self.http.client()?.clone();
        let built = Client::builder().with_reqwest(client).with_service_target_resolver_fn(resolver).build();
        built.map_err(|error| classify(&error))
    }

    async fn ask(&self, request: &ModelRequest<'_>, on_delta: OnDelta<'_>) -> Result<Reply, AskFailure> {
        let client = self.client().map_err(AskFailure::free)?;
        let chat = request::chat_request(request, &self.origin);
        let options = request::options(request, &self.headers);
        let call = GenaiCall {
            client,
            model: self.model.clone(),
            origin: self.origin.clone(),
            deadline: Deadline::new(request.time_left),
            clocks: self.clocks.for_effort(request.effort),
        };
        match self.delivery {
            Delivery::Streamed => call.stream(chat, options, on_delta).await,
            Delivery::Whole => call.whole(chat, options, on_delta).await,
        }
    }
}

/// One question on its way.
struct GenaiCall {
    client: Client,
    model: ModelIden,
    origin: String,
    deadline: Deadline,
    clocks: Timeouts,
}

impl GenaiCall {
    fn draft(&self) -> ReplyBuilder {
        ReplyBuilder { origin: Some(self.origin.clone().into()), ..ReplyBuilder::default() }
    }

    async fn stream(self, chat: ChatRequest, options: ChatOptions, on_delta: OnDelta<'_>) -> Result<Reply, AskFailure> {
        let witness = Arc::new(Mutex::new(RawFrames::default()));
        let sink = witness.clone();
        let options = options.with_raw_frame_fn(move |_, frame| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).note(frame.data);
        });
        let mut watch = StreamTimers::new(&self.clocks);
        watch.until += self.clocks.connect + self.clocks.headers;
        let opening = self.client.exec_chat_stream(self.model.clone(), chat, Some(&options));
        let opened = self.deadline.until(watch.until, "no answer began in time", opening).await;
        let mut stream = opened.map_err(AskFailure::free)?.map_err(|error| AskFailure::free(classify(&error)))?.stream;
        let mut draft = self.draft();
        let read = read(&mut stream, &self.deadline, &mut watch, &mut draft, on_delta).await;
        let witness = std::mem::take(&mut *witness.lock().unwrap_or_else(PoisonError::into_inner));
        match read {
            Ok(_) if !witness.has_events && witness.error.is_none() => {
                let reason =
                    "the answer was no stream of events (for a server that cannot stream, set `stream = false`)";
                Err(draft.fail(ModelError::Broken { reason: reason.to_owned() }))
            }
            Ok(end) => CallEnd::of_stream(end).finish(draft, witness, on_delta),
            Err(error) => Err(draft.fail(witness.error.unwrap_or(error))),
        }
    }

    /// Asks for the answer in one piece, for servers that cannot stream.
    async fn whole(self, chat: ChatRequest, options: ChatOptions, on_delta: OnDelta<'_>) -> Result<Reply, AskFailure> {
        let options = options.with_capture_raw_body(true);
        let until = Instant::now() + self.clocks.connect + self.clocks.headers;
        let asking = self.client.exec_chat(self.model.clone(), chat, Some(&options));
        let asked = self.deadline.until(until, "no answer came in time", asking).await.map_err(AskFailure::free)?;
        let mut witness = RawFrames::default();
        match asked {
            Ok(response) => {
                witness.note_whole(response.captured_raw_body.as_ref().unwrap_or(&Value::Null));
                CallEnd::of_whole(response).finish(self.draft(), witness, on_delta)
            }
            Err(error) => {
                if let genai::Error::ChatResponseGeneration { response_body, .. } = &error {
                    witness.note_whole(response_body);
                }
                Err(AskFailure::free(witness.error.unwrap_or_else(|| classify(&error))))
            }
        }
    }
}

impl Model for GenaiModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let mut reply = self.ask(&request, on_delta).await.map_err(|failure| self.key.scrub(failure))?;
            price(&mut reply, &self.card);
            Ok(reply)
        })
    }
}

fn adapter(provider: &str) -> Option<AdapterKind> {
    match provider {
        "openai-responses" => Some(AdapterKind::OpenAIResp),
        "gemini-interactions" => Some(AdapterKind::GeminiIx),
        "bedrock" => Some(AdapterKind::BedrockApi),
        other => AdapterKind::from_lower_str(&other.replace('-', "_")),
    }
}

/// Reads to the end. A stream that ends without saying so is cut, whatever `genai` makes of it.
async fn read(
    stream: &mut ChatStream,
    deadline: &Deadline,
    watch: &mut StreamTimers<'_>,
    draft: &mut ReplyBuilder,
    on_delta: OnDelta<'_>,
) -> Result<StreamEnd, ModelError> {
    loop {
        let next = deadline.until(watch.until, watch.complaint(), stream.next()).await?;
        let Some(event) = next else {
            return Err(ModelError::Broken { reason: "the stream ended before the reply did".into() });
        };
        let progress = match event.map_err(|error| classify(&error))? {
            ChatStreamEvent::Chunk(chunk) => draft.text(&chunk.content, &mut |delta| on_delta(delta))?,
            ChatStreamEvent::ReasoningChunk(chunk) => draft.thinking(&chunk.content, &mut |delta| on_delta(delta))?,
            ChatStreamEvent::ToolCallChunk(chunk) => {
                on_delta(Delta::Call(&chunk.tool_call.fn_name));
                StreamProgress::Content
            }
            ChatStreamEvent::Start | ChatStreamEvent::ThoughtSignatureChunk(_) | ChatStreamEvent::Heartbeat => {
                StreamProgress::None
            }
            ChatStreamEvent::End(end) => return Ok(end),
        };
        watch.note(progress);
    }
}

/// What `genai` has at the end of an answer.
struct CallEnd {
    parts: Vec<ContentPart>,
    usage: Option<genai::chat::Usage>,
    reason: Option<GenaiStopReason>,
    /// What has not been streamed: thoughts and words of a whole answer.
    unsaid: Option<(Option<String>, Vec<String>)>,
}

impl CallEnd {
    /// Words and thoughts have been streamed; calls and seals stand whole at the end.
    fn of_stream(end: StreamEnd) -> Self {
        let parts = end.captured_content.map(MessageContent::into_parts).unwrap_or_default();
        Self { parts, usage: end.captured_usage, reason: end.captured_stop_reason, unsaid: None }
    }

    fn of_whole(response: ChatResponse) -> Self {
        let parts = response.content.into_parts();
        let words = parts.iter().filter_map(ContentPart::as_text).map(str::to_owned).collect();
        let unsaid = Some((response.reasoning_content, words));
        Self { parts, usage: Some(response.usage), reason: response.stop_reason, unsaid }
    }

    fn finish(self, mut draft: ReplyBuilder, witness: RawFrames, on_delta: OnDelta<'_>) -> Result<Reply, AskFailure> {
        draft.usage = self.usage.as_ref().map(usage);
        draft.model = witness.model;
        draft.stop = self.reason.as_ref().and_then(stop);
        let listener = &mut |delta: Delta<'_>| on_delta(delta);
        let (thoughts, mut words) = self.unsaid.unwrap_or_default();
        words.push(witness.refusal.clone());
        let said = draft.thinking(&thoughts.unwrap_or_default(), listener);
        let said = said.and_then(|_| words.iter().try_for_each(|text| draft.text(text, listener).map(drop)));
        let taken = said.and_then(|()| {
            let rest = take_signed(&mut draft, self.parts)?;
            rest.into_iter().try_for_each(|part| take_part(&mut draft, part))
        });
        let filtered = match &self.reason {
            Some(GenaiStopReason::ContentFilter(why)) => {
                Some(ModelError::Refused { reason: format!("content filter ({why})") })
            }
            _ => None,
        };
        if let Some(error) = witness.error.or(filtered).or(taken.err()) {
            return Err(draft.fail(error));
        }
        if !witness.refusal.is_empty() && draft.stop.is_some() {
            draft.stop = Some(StopReason::Refusal);
        }
        draft.finish()
    }
}

/// Takes the thoughts that `genai` lists behind their signatures, and returns the other parts. They replace what was
/// streamed of them, because a stream does not show where one block ends and the next begins, and they lead, in their
/// order, as the provider wants them back.
fn take_signed(draft: &mut ReplyBuilder, parts: Vec<ContentPart>) -> Result<Vec<ContentPart>, ModelError> {
    if !parts.iter().any(|part| matches!(part, ContentPart::ReasoningContent(_))) {
        return Ok(parts);
    }
    let said = std::mem::take(&mut draft.blocks);
    let (mut rest, mut parts) = (Vec::new(), parts.into_iter().peekable());
    while let Some(part) = parts.next() {
        match part {
            ContentPart::ThoughtSignature(seal) => {
                if let Some(ContentPart::ReasoningContent(text)) =
                    parts.next_if(|next| matches!(next, ContentPart::ReasoningContent(_)))
                {
                    draft.open(Block::Thinking(text, seal))?;
                } else {
                    take_part(draft, ContentPart::ThoughtSignature(seal))?;
                }
            }
            // Calls repeat the signatures, for callers that keep nothing else.
            ContentPart::ToolCall(mut call) => {
                call.thought_signatures = None;
                rest.push(ContentPart::ToolCall(call));
            }
            other => rest.push(other),
        }
    }
    draft.blocks.extend(said.into_iter().filter(|block| !matches!(block, Block::Thinking(..))));
    Ok(rest)
}

/// Calls and seals; words and thoughts have their own way.
fn take_part(draft: &mut ReplyBuilder, part: ContentPart) -> Result<(), ModelError> {
    match part {
        ContentPart::ThoughtSignature(seal) => {
            let block = json!({ "seal": seal, "from": draft.origin });
            draft.open(Block::Opaque("genai", block)).map(drop)
        }
        ContentPart::ToolCall(call) => {
            if let Some(seals) = &call.thought_signatures {
                let calls = draft.blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
                draft.open(Block::Opaque("genai", json!({ "call": calls, "seals": seals, "from": draft.origin })))?;
            }
            let args = if let Value::String(text) = call.fn_arguments { text } else { call.fn_arguments.to_string() };
            draft.open(Block::Call { id: call.call_id, name: call.fn_name, args }).map(drop)
        }
        ContentPart::Text(_)
        | ContentPart::Binary(_)
        | ContentPart::ToolResponse(_)
        | ContentPart::ReasoningContent(_)
        | ContentPart::Custom(_) => Ok(()),
    }
}

/// Why it stopped; `None` where the word says that it has not.
fn stop(reason: &GenaiStopReason) -> Option<StopReason> {
    match reason {
        GenaiStopReason::Completed(_) | GenaiStopReason::StopSequence(_) => Some(StopReason::End),
        GenaiStopReason::ToolCall(_) => Some(StopReason::Calls),
        GenaiStopReason::MaxTokens(_) => Some(StopReason::Length),
        GenaiStopReason::ContentFilter(_) => Some(StopReason::Refusal),
        // A cut stream of Google's interactions ends with the last status that was heard.
        GenaiStopReason::Other(word) if matches!(word.as_str(), "in_progress" | "queued" | "failed" | "cancelled") => {
            None
        }
        GenaiStopReason::Other(word) => Some(StopReason::Other(word.clone())),
    }
}

/// Cached tokens are already within the prompt's; the figures are 32 bits wide and signed.
fn usage(from: &genai::chat::Usage) -> Usage {
    let unknown = Usage { estimated: true, ..Usage::default() };
    let figure = |it: Option<i32>| it.map_or(Some(0), |it| u64::try_from(it).ok());
    let (Some(input), Some(output)) = (from.prompt_tokens, from.completion_tokens) else { return unknown };
    let (Some(input), Some(output)) = (figure(Some(input)), figure(Some(output))) else { return unknown };
    let details = from.prompt_tokens_details.as_ref();
    let cached = figure(details.and_then(|it| it.cached_tokens)).unwrap_or(0).min(input);
    let cache_write = figure(details.and_then(|it| it.cache_creation_tokens)).unwrap_or(0).min(input - cached);
    let reasoning = from.completion_tokens_details.as_ref().and_then(|it| it.reasoning_tokens);
    let reasoning = figure(reasoning).unwrap_or(0).min(output);
    Usage { input, cached, cache_write, output, reasoning, ..Usage::default() }
}
