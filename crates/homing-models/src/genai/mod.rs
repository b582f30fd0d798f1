//! [`GenaiModel`]: models of the wires that have no native implementation, through the `genai` crate. Its types are not
//! used outside this folder. `tests/genai.rs` has a test for each of its pitfalls.

mod failure;
mod http;
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
    message::{Image, Reply, StopReason, Usage},
    model::{AskFailure, Delta, Model, ModelCard, ModelError, ModelRequest, OnDelta, Sampling},
};
pub(crate) use http::GenaiHttp;
use raw_frames::RawFrames;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    attachments,
    event_reader::{SizeLimits, too_large},
    http::{Http, Peer},
    native_model::price,
    provider::ProviderRow,
    provider_error::{NoModelError, RowError},
    secret::ApiKey,
    timeouts::{Deadline, StreamTimers, Timeouts, no_response},
    url::Url,
    wire::{Delivery, MAX_TOKENS, ReplyBlock, ReplyBuilder, StreamProgress, Wire, cut_stream},
};

/// A model that is called through `genai`.
pub(crate) struct GenaiModel {
    card: ModelCard,
    model: ModelIden,
    endpoint: Option<String>,
    headers: Vec<(String, String)>,
    sampling: Sampling,
    key: ApiKey,
    /// The origin under which reasoning from this provider is recorded.
    origin: String,
    delivery: Delivery,
    timeouts: Timeouts,
    peer: Arc<Peer>,
    http: Arc<Http>,
}

impl GenaiModel {
    /// Creates the model `model` of the provider in `row`.
    pub(crate) fn new(
        row: &ProviderRow,
        model: &str,
        key: ApiKey,
        card: ModelCard,
        http: Arc<Http>,
    ) -> Result<Self, NoModelError> {
        let Some(adapter) = adapter(&row.name) else {
            return Err(NoModelError::BadRow { provider: row.name.clone(), why: RowError::UnknownToGenai });
        };
        let endpoint = row.base_url.trim_end_matches('/');
        let endpoint = if endpoint.is_empty() { None } else { Some(format!("{endpoint}/")) };
        let url = endpoint.as_deref().and_then(|url| Url::parse(url).ok());
        let peer = Arc::new(Peer::new(&row.name, url.as_ref()));
        let headers = row.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let (delivery, timeouts) =
            (row.delivery, http.timeouts.with_patience(row.patience()).for_delivery(row.delivery));
        let sampling = row.sampling.of(model);
        let (model, origin) = (ModelIden::new(adapter, model.to_owned()), format!("genai/{}", row.name));
        Ok(Self { card, model, endpoint, headers, sampling, key, origin, delivery, timeouts, peer, http })
    }

    /// Creates a client with our key and address; by default `genai` would read the environment.
    fn client(&self) -> Result<Client, ModelError> {
        let (endpoint, auth) = (self.endpoint.clone(), self.key.expose().map_or(AuthData::None, AuthData::from_single));
        let resolver = move |mut target: genai::ServiceTarget| -> genai::resolver::Result<genai::ServiceTarget> {
            if let Some(url) = &endpoint {
                target.endpoint = Endpoint::from_owned(url.clone());
            }
            target.auth = auth.clone();
            Ok(target)
        };
        let client = self.http.genai.client()?.clone();
        let built = Client::builder().with_reqwest(client).with_service_target_resolver_fn(resolver).build();
        built.map_err(|error| classify(&error, &self.peer))
    }

    async fn ask(&self, request: &ModelRequest<'_>, on_delta: OnDelta<'_>) -> Result<Reply, AskFailure> {
        let client = self.client().map_err(AskFailure::free)?;
        let chat = request::chat_request(request, &self.origin);
        let options = request::options(request, &self.headers, &request.sampling.clone().or(&self.sampling));
        let call = GenaiCall {
            client,
            model: self.model.clone(),
            origin: self.origin.clone(),
            deadline: Deadline::new(request.time_left),
            timeouts: self.timeouts.for_effort(request.effort),
            peer: self.peer.clone(),
            max_output: request.max_output,
        };
        match self.delivery {
            Delivery::Streamed => call.stream(chat, options, on_delta).await,
            Delivery::Whole => call.whole(chat, options, on_delta).await,
        }
    }
}

/// One model call.
struct GenaiCall {
    client: Client,
    model: ModelIden,
    origin: String,
    deadline: Deadline,
    timeouts: Timeouts,
    peer: Arc<Peer>,
    max_output: u64,
}

impl GenaiCall {
    fn reply_builder(&self) -> ReplyBuilder {
        let (origin, max_output) = (Some(self.origin.clone().into()), Some(self.max_output));
        ReplyBuilder { origin, max_output, ..ReplyBuilder::default() }
    }

    async fn stream(
        mut self,
        chat: ChatRequest,
        options: ChatOptions,
        on_delta: OnDelta<'_>,
    ) -> Result<Reply, AskFailure> {
        let frames = Arc::new(Mutex::new(RawFrames::default()));
        let sink = frames.clone();
        let options = options.with_raw_frame_fn(move |_, frame| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).note(frame.data);
        });
        let timeouts = self.timeouts;
        let mut timers = StreamTimers::new(&timeouts);
        timers.until += self.timeouts.connect + self.timeouts.headers;
        let opening = self.client.exec_chat_stream(self.model.clone(), chat, Some(&options));
        let wait = self.timeouts.connect + self.timeouts.headers + self.timeouts.first_content;
        let opened = self.deadline.until(timers.until, || no_response(&self.peer, wait), opening).await;
        let opened = opened.map_err(AskFailure::free)?;
        let mut stream = opened.map_err(|error| AskFailure::free(classify(&error, &self.peer)))?.stream;
        let mut draft = self.reply_builder();
        let read = self.read(&mut stream, &mut timers, &mut draft, (&frames, on_delta)).await;
        let frames = std::mem::take(&mut *frames.lock().unwrap_or_else(PoisonError::into_inner));
        match read {
            Ok(_) if !frames.has_events && frames.error.is_none() => {
                let reason = "the response was not an event stream: if the server cannot stream, set `stream = false`";
                Err(draft.fail(ModelError::Broken { reason: reason.to_owned() }))
            }
            Ok(end) => CallEnd::of_stream(end).finish(draft, frames, on_delta),
            Err(error) => Err(draft.fail(frames.error.unwrap_or(error))),
        }
    }

    /// Reads the stream to its end. A stream without an end event is cut, even if `genai` accepts it.
    async fn read(
        &mut self,
        stream: &mut ChatStream,
        timers: &mut StreamTimers<'_>,
        draft: &mut ReplyBuilder,
        (frames, on_delta): (&Mutex<RawFrames>, OnDelta<'_>),
    ) -> Result<StreamEnd, ModelError> {
        let max_stream = SizeLimits::for_output(self.max_output).stream;
        loop {
            let next = self.deadline.until(timers.until, || timers.message(&self.peer), stream.next()).await?;
            let Some(event) = next else { return Err(cut_stream()) };
            let progress = match event.map_err(|error| classify(&error, &self.peer))? {
                ChatStreamEvent::Chunk(chunk) => draft.text(&chunk.content, &mut |delta| on_delta(delta))?,
                ChatStreamEvent::ReasoningChunk(chunk) => {
                    draft.thinking(&chunk.content, &mut |delta| on_delta(delta))?
                }
                ChatStreamEvent::ToolCallChunk(chunk) => {
                    on_delta(Delta::Call(&chunk.tool_call.fn_name));
                    StreamProgress::Content
                }
                ChatStreamEvent::Start | ChatStreamEvent::ThoughtSignatureChunk(_) | ChatStreamEvent::Heartbeat => {
                    StreamProgress::None
                }
                ChatStreamEvent::End(end) => return Ok(end),
            };
            // Arguments of calls grow inside `genai`, so its frames are counted as well.
            if frames.lock().unwrap_or_else(PoisonError::into_inner).bytes > max_stream {
                return Err(too_large(max_stream));
            }
            draft.check_length()?;
            timers.note(progress);
        }
    }

    /// Asks for a whole response, for servers that cannot stream.
    async fn whole(
        mut self,
        chat: ChatRequest,
        options: ChatOptions,
        on_delta: OnDelta<'_>,
    ) -> Result<Reply, AskFailure> {
        let options = options.with_capture_raw_body(true);
        let wait = self.timeouts.connect + self.timeouts.headers;
        let until = Instant::now() + wait;
        let asking = self.client.exec_chat(self.model.clone(), chat, Some(&options));
        let asked =
            self.deadline.until(until, || no_response(&self.peer, wait), asking).await.map_err(AskFailure::free)?;
        let mut frames = RawFrames::default();
        match asked {
            Ok(response) => {
                frames.note_whole(response.captured_raw_body.as_ref().unwrap_or(&Value::Null));
                CallEnd::of_whole(response).finish(self.reply_builder(), frames, on_delta)
            }
            Err(error) => {
                if let genai::Error::ChatResponseGeneration { response_body, .. } = &error {
                    frames.note_whole(response_body);
                }
                Err(AskFailure::free(frames.error.unwrap_or_else(|| classify(&error, &self.peer))))
            }
        }
    }
}

impl Model for GenaiModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reads(&self, image: &Image) -> bool {
        attachments::reads(image, &self.card, Wire::Genai)
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let messages = attachments::readable(request.messages, &self.card, Wire::Genai);
            let request = request.messages(&messages);
            let mut reply = self.ask(&request, on_delta).await.map_err(|failure| self.key.scrub(failure))?;
            price(&mut reply, &self.card);
            Ok(reply)
        })
    }
}

fn adapter(provider: &str) -> Option<AdapterKind> {
    match provider {
        "gemini-interactions" => Some(AdapterKind::GeminiIx),
        other => AdapterKind::from_lower_str(&other.replace('-', "_")),
    }
}

/// The state of `genai` at the end of a response.
struct CallEnd {
    parts: Vec<ContentPart>,
    usage: Option<genai::chat::Usage>,
    reason: Option<GenaiStopReason>,
    /// Reasoning and texts of a whole response, which have not been streamed.
    unstreamed: Option<(Option<String>, Vec<String>)>,
}

impl CallEnd {
    /// Text and reasoning have been streamed; calls and signatures are complete at the end only.
    fn of_stream(end: StreamEnd) -> Self {
        let parts = end.captured_content.map(MessageContent::into_parts).unwrap_or_default();
        Self { parts, usage: end.captured_usage, reason: end.captured_stop_reason, unstreamed: None }
    }

    fn of_whole(response: ChatResponse) -> Self {
        let parts = response.content.into_parts();
        let texts = parts.iter().filter_map(ContentPart::as_text).map(str::to_owned).collect();
        let unstreamed = Some((response.reasoning_content, texts));
        Self { parts, usage: Some(response.usage), reason: response.stop_reason, unstreamed }
    }

    fn finish(self, mut draft: ReplyBuilder, frames: RawFrames, on_delta: OnDelta<'_>) -> Result<Reply, AskFailure> {
        draft.usage = self.usage.as_ref().map(usage);
        draft.model = frames.model;
        draft.stop = self.reason.as_ref().and_then(stop);
        let listener = &mut |delta: Delta<'_>| on_delta(delta);
        let (reasoning, mut texts) = self.unstreamed.unwrap_or_default();
        texts.push(frames.refusal.clone());
        let streamed = draft.thinking(&reasoning.unwrap_or_default(), listener);
        let streamed = streamed.and_then(|_| texts.iter().try_for_each(|text| draft.text(text, listener).map(drop)));
        let added = streamed.and_then(|()| {
            let rest = add_signed(&mut draft, self.parts)?;
            rest.into_iter().try_for_each(|part| add_part(&mut draft, part))
        });
        let filtered = match &self.reason {
            Some(GenaiStopReason::ContentFilter(why)) => {
                Some(ModelError::Refused { reason: format!("blocked by the provider's content filter: {why}") })
            }
            _ => None,
        };
        if let Some(error) = frames.error.or(filtered).or(added.err()) {
            return Err(draft.fail(error));
        }
        if !frames.refusal.is_empty() && draft.stop.is_some() {
            draft.stop = Some(StopReason::Refusal);
        }
        draft.finish()
    }
}

/// Adds the reasoning that `genai` lists behind its signatures, and returns the other parts. It replaces the streamed
/// reasoning, because a stream does not show the boundaries of blocks. It comes first and in order, as
/// the provider requires it in the next request.
fn add_signed(draft: &mut ReplyBuilder, parts: Vec<ContentPart>) -> Result<Vec<ContentPart>, ModelError> {
    if !parts.iter().any(|part| matches!(part, ContentPart::ReasoningContent(_))) {
        return Ok(parts);
    }
    let streamed = std::mem::take(&mut draft.blocks);
    let (mut rest, mut parts) = (Vec::new(), parts.into_iter().peekable());
    while let Some(part) = parts.next() {
        match part {
            ContentPart::ThoughtSignature(signature) => {
                if let Some(ContentPart::ReasoningContent(text)) =
                    parts.next_if(|next| matches!(next, ContentPart::ReasoningContent(_)))
                {
                    draft.open(ReplyBlock::Thinking(text, signature))?;
                } else {
                    add_part(draft, ContentPart::ThoughtSignature(signature))?;
                }
            }
            // `genai` repeats the signatures in the calls.
            ContentPart::ToolCall(mut call) => {
                call.thought_signatures = None;
                rest.push(ContentPart::ToolCall(call));
            }
            other => rest.push(other),
        }
    }
    draft.blocks.extend(streamed.into_iter().filter(|block| !matches!(block, ReplyBlock::Thinking(..))));
    Ok(rest)
}

/// Adds a call or a signature; text and reasoning are added elsewhere.
fn add_part(draft: &mut ReplyBuilder, part: ContentPart) -> Result<(), ModelError> {
    match part {
        ContentPart::ThoughtSignature(signature) => {
            let block = json!({ "seal": signature, "from": draft.origin });
            draft.open(ReplyBlock::Opaque("genai".into(), block)).map(drop)
        }
        ContentPart::ToolCall(call) => {
            if let Some(signatures) = &call.thought_signatures {
                let calls = draft.blocks.iter().filter(|block| matches!(block, ReplyBlock::Call { .. })).count();
                draft.open(ReplyBlock::Opaque(
                    "genai".into(),
                    json!({ "call": calls, "seals": signatures, "from": draft.origin }),
                ))?;
            }
            let args = if let Value::String(text) = call.fn_arguments { text } else { call.fn_arguments.to_string() };
            draft.open(ReplyBlock::Call { id: call.call_id, name: call.fn_name, args }).map(drop)
        }
        ContentPart::Text(_)
        | ContentPart::Binary(_)
        | ContentPart::ToolResponse(_)
        | ContentPart::ReasoningContent(_)
        | ContentPart::Custom(_) => Ok(()),
    }
}

/// The reason why the model stopped; `None` if it has not.
fn stop(reason: &GenaiStopReason) -> Option<StopReason> {
    match reason {
        GenaiStopReason::Completed(_) | GenaiStopReason::StopSequence(_) => Some(StopReason::End),
        GenaiStopReason::ToolCall(_) => Some(StopReason::Calls),
        GenaiStopReason::MaxTokens(_) => Some(StopReason::Length),
        GenaiStopReason::ContentFilter(_) => Some(StopReason::Refusal),
        // A cut stream of Google's interactions API ends with the last status.
        GenaiStopReason::Other(word) if matches!(word.as_str(), "in_progress" | "queued" | "failed" | "cancelled") => {
            None
        }
        GenaiStopReason::Other(word) => Some(StopReason::Other(word.clone())),
    }
}

/// Converts `genai`'s usage, whose counts are signed. Its prompt tokens include the cached ones. A missing
/// count of the output is what remains of the total: Gemini leaves it out if it is zero.
fn usage(from: &genai::chat::Usage) -> Usage {
    let count = |tokens: Option<i32>| match tokens {
        None => Some(0),
        Some(tokens) => u64::try_from(tokens).ok().filter(|tokens| *tokens < MAX_TOKENS),
    };
    let read = || {
        let details = from.prompt_tokens_details.as_ref();
        let cached = count(details.and_then(|details| details.cached_tokens))?;
        let cache_write = count(details.and_then(|details| details.cache_creation_tokens))?;
        let input = count(Some(from.prompt_tokens?))?;
        let reasoning = from.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens);
        let reasoning = count(reasoning)?;
        let output = match from.completion_tokens {
            Some(tokens) => count(Some(tokens))?,
            None => count(from.total_tokens)?.saturating_sub(input).max(reasoning),
        };
        let cached = cached.min(input);
        let cache_write = cache_write.min(input - cached);
        Some(
            Usage::default()
                .input(input)
                .cached(cached)
                .cache_write(cache_write)
                .output(output)
                .reasoning(reasoning.min(output)),
        )
    };
    read().unwrap_or(Usage::default().estimated(true))
}
