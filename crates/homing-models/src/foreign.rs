//! Every wire that is not ours, through `genai`. Its types stay in this file, and so do its traps; each has a test in
//! `tests/foreign.rs`.

use std::{sync::Arc, time::SystemTime};

use futures::StreamExt;
use genai::{
    Client, ModelIden,
    adapter::AdapterKind,
    chat::{
        ChatMessage, ChatOptions, ChatRequest, ChatStream, ChatStreamEvent, ContentPart, MessageContent,
        ReasoningEffort, StopReason, StreamEnd, Tool, ToolCall as ForeignCall, ToolChoice as ForeignChoice,
        ToolResponse,
    },
    resolver::{AuthData, Endpoint},
};
use homing_core::{
    BoxFuture,
    message::{Args, Image, Message, Part, Reply, Stop, ToolResult, Usage},
    model::{Delta, Effort, Failure, Model, ModelCard, ModelError, OnDelta, Request, ToolChoice},
};
use serde_json::{Value, json};

use crate::{
    errors::{self, Refusal, shortened},
    http::{self, Deadline, Http, Watch},
    provider::{NoModel, ProviderRow, price},
    secret::Key,
    wire::{Block, Draft, IdStyle, Progress, of_reply, of_result},
};

/// A model that `genai` speaks with.
pub(crate) struct Foreign {
    card: ModelCard,
    model: ModelIden,
    endpoint: Option<String>,
    headers: Vec<(String, String)>,
    key: Key,
    http: Arc<Http>,
}

impl Foreign {
    /// The model `model` at the provider of `row`.
    pub(crate) fn new(
        row: &ProviderRow,
        model: &str,
        key: Key,
        card: ModelCard,
        http: Arc<Http>,
    ) -> Result<Self, NoModel> {
        let Some(adapter) = adapter(&row.name) else {
            let why = "genai knows no provider of this name; give it `wire` and `base_url`".to_owned();
            return Err(NoModel::BadRow { provider: row.name.clone(), why });
        };
        let endpoint = Some(row.base_url.trim_end_matches('/')).filter(|it| !it.is_empty()).map(|it| format!("{it}/"));
        let headers = row.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(Self { card, model: ModelIden::new(adapter, model.to_owned()), endpoint, headers, key, http })
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

    async fn ask(&self, request: &Request<'_>, on_delta: OnDelta<'_>) -> Result<Reply, Failure> {
        let deadline = Deadline::new(request.time_left);
        let clocks = &self.http.clocks;
        let mut watch = Watch::new(clocks);
        watch.until += clocks.connect + clocks.headers;
        let client = self.client().map_err(Failure::free)?;
        let (chat, options) = (chat_request(request), options(request, &self.headers));
        let opening = client.exec_chat_stream(self.model.clone(), chat, Some(&options));
        let opened = deadline.until(watch.until, "no answer began in time", opening).await.map_err(Failure::free)?;
        let mut stream = opened.map_err(|error| Failure::free(classify(&error)))?.stream;
        let mut draft = Draft::default();
        match read(&mut stream, &deadline, &mut watch, &mut draft, on_delta).await {
            Ok(end) => finish(draft, end),
            Err(error) => Err(draft.fail(error)),
        }
    }
}

impl Model for Foreign {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(&'a self, request: Request<'a>, on_delta: OnDelta<'a>) -> BoxFuture<'a, Result<Reply, Failure>> {
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
        "bedrock" => Some(AdapterKind::BedrockApi),
        other => AdapterKind::from_lower_str(&other.replace('-', "_")),
    }
}

/// Reads to the end. A stream that ends without saying so is cut, whatever `genai` makes of it.
async fn read(
    stream: &mut ChatStream,
    deadline: &Deadline,
    watch: &mut Watch<'_>,
    draft: &mut Draft,
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
                Progress::Content
            }
            ChatStreamEvent::Start | ChatStreamEvent::ThoughtSignatureChunk(_) | ChatStreamEvent::Heartbeat => {
                Progress::None
            }
            ChatStreamEvent::End(end) => return Ok(end),
        };
        watch.note(progress);
    }
}

/// The reply: words and thoughts as they were streamed, calls and seals as the end has them whole.
fn finish(mut draft: Draft, end: StreamEnd) -> Result<Reply, Failure> {
    draft.usage = end.captured_usage.as_ref().map(usage);
    let reason = end.captured_stop_reason.clone();
    for part in end.captured_content.map(MessageContent::into_parts).unwrap_or_default() {
        let opened = match part {
            ContentPart::ThoughtSignature(seal) => draft.open(Block::Opaque("genai", json!({ "seal": seal }))),
            ContentPart::ToolCall(call) => {
                if let Some(seals) = &call.thought_signatures {
                    let calls = draft.blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
                    draft.blocks.push(Block::Opaque("genai", json!({ "call": calls, "seals": seals })));
                }
                let args =
                    if let Value::String(text) = call.fn_arguments { text } else { call.fn_arguments.to_string() };
                draft.open(Block::Call { id: call.call_id, name: call.fn_name, args })
            }
            ContentPart::Text(_)
            | ContentPart::Binary(_)
            | ContentPart::ToolResponse(_)
            | ContentPart::ReasoningContent(_)
            | ContentPart::Custom(_) => Ok(0),
        };
        if let Err(error) = opened {
            return Err(draft.fail(error));
        }
    }
    draft.stop = match reason {
        None => None,
        Some(StopReason::Completed(_) | StopReason::StopSequence(_)) => Some(Stop::End),
        Some(StopReason::ToolCall(_)) => Some(Stop::Calls),
        Some(StopReason::MaxTokens(_)) => Some(Stop::Length),
        Some(StopReason::ContentFilter(why)) => {
            draft.stop = Some(Stop::Refusal);
            return Err(draft.fail(ModelError::Refused { reason: format!("content filter ({why})") }));
        }
        Some(StopReason::Other(word)) => Some(Stop::Other(word)),
    };
    draft.finish()
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

fn options(request: &Request<'_>, headers: &[(String, String)]) -> ChatOptions {
    let mut options = ChatOptions::default()
        .with_max_tokens(u32::try_from(request.max_output).unwrap_or(u32::MAX))
        .with_capture_usage(true)
        .with_capture_content(true)
        .with_capture_tool_calls(true)
        .with_capture_reasoning_content(true);
    if let Some(milli) = request.temperature_milli {
        options = options.with_temperature(f64::from(milli) / 1_000.0);
    }
    if let Some(effort) = request.effort {
        options = options.with_reasoning_effort(effort_of(effort));
    }
    if !request.tools.specs.is_empty() {
        options = match request.choice {
            ToolChoice::Auto => options,
            ToolChoice::Off => options.with_tool_choice(ForeignChoice::None),
            ToolChoice::Required => options.with_tool_choice(ForeignChoice::Required),
        };
    }
    if !headers.is_empty() {
        options = options.with_extra_headers(headers.to_vec());
    }
    options
}

fn effort_of(effort: Effort) -> ReasoningEffort {
    match effort {
        Effort::None => ReasoningEffort::Zero,
        Effort::Minimal => ReasoningEffort::Minimal,
        Effort::Low => ReasoningEffort::Low,
        Effort::Medium => ReasoningEffort::Medium,
        Effort::High => ReasoningEffort::High,
        Effort::Xhigh => ReasoningEffort::XHigh,
        Effort::Max => ReasoningEffort::Max,
    }
}

fn chat_request(request: &Request<'_>) -> ChatRequest {
    let mut messages: Vec<ChatMessage> = Vec::new();
    let mut results: Vec<ToolResponse> = Vec::new();
    let mut pictures: Vec<ContentPart> = Vec::new();
    let mut reply = None;
    for (position, entry) in request.messages.iter().enumerate() {
        if let Message::Tool(result) = &entry.message {
            results.push(tool_response(result, reply));
            pictures.extend(result.images.iter().map(image));
            continue;
        }
        reply = Some((position, &entry.message));
        flush(&mut messages, &mut results, &mut pictures);
        messages.extend(message(&entry.message, position));
    }
    flush(&mut messages, &mut results, &mut pictures);
    let mut chat = ChatRequest::new(messages);
    if !request.system.is_empty() {
        chat = chat.with_system(request.system);
    }
    if !request.tools.specs.is_empty() {
        let tool = |spec: &homing_core::tool::ToolSpec| {
            Tool::new(spec.name.clone()).with_description(spec.description.clone()).with_schema(spec.schema.clone())
        };
        chat = chat.with_tools(request.tools.specs.iter().map(tool).collect::<Vec<_>>());
    }
    chat
}

/// All results of a reply go into one message; their pictures follow, because `genai` has no place for them inside.
fn flush(messages: &mut Vec<ChatMessage>, results: &mut Vec<ToolResponse>, pictures: &mut Vec<ContentPart>) {
    if !results.is_empty() {
        messages.push(ChatMessage::tool(MessageContent::from_tool_responses(std::mem::take(results))));
    }
    if !pictures.is_empty() {
        messages.push(ChatMessage::user(MessageContent::from_parts(std::mem::take(pictures))));
    }
}

fn tool_response(result: &ToolResult, reply: Option<(usize, &Message)>) -> ToolResponse {
    let id = of_result(result, reply, IdStyle::Free);
    let text = if result.is_error { format!("Error: {}", result.text) } else { result.text.clone() };
    ToolResponse::new(id, text).with_fn_name(result.name.clone())
}

fn image(image: &Image) -> ContentPart {
    ContentPart::from_binary_base64(image.media_type.clone(), image.base64.clone(), None)
}

fn message(message: &Message, position: usize) -> Option<ChatMessage> {
    match message {
        Message::User { text, images } => {
            let parts: Vec<ContentPart> =
                std::iter::once(ContentPart::from_text(text)).chain(images.iter().map(image)).collect();
            Some(ChatMessage::user(MessageContent::from_parts(parts)))
        }
        Message::Assistant(reply) => {
            Some(ChatMessage::assistant(MessageContent::from_parts(assistant(reply, position))))
        }
        Message::Tool(_) => None,
    }
}

fn assistant(reply: &Reply, position: usize) -> Vec<ContentPart> {
    let mut ids = of_reply(reply, position, IdStyle::Free).into_iter();
    let mut seals = None;
    let mut parts = Vec::new();
    for part in &reply.parts {
        match part {
            Part::Text(text) => parts.push(ContentPart::from_text(text)),
            Part::Thinking { .. } => (),
            Part::Opaque { wire, block } if wire == "genai" => match block.get("seal").and_then(Value::as_str) {
                Some(seal) => parts.push(ContentPart::ThoughtSignature(seal.to_owned())),
                None => seals = serde_json::from_value(block.get("seals").cloned().unwrap_or_default()).ok(),
            },
            Part::Opaque { .. } => (),
            Part::Call(call) => parts.push(ContentPart::ToolCall(ForeignCall {
                call_id: ids.next().unwrap_or_default(),
                fn_name: call.name.clone(),
                fn_arguments: match &call.args {
                    Args::Json(value) => value.clone(),
                    Args::Malformed(text) => json!({ "malformed_arguments": text }),
                },
                thought_signatures: seals.take(),
            })),
        }
    }
    if parts.is_empty() {
        parts.push(ContentPart::from_text("(nothing)"));
    }
    parts
}

/// `genai` hides the status of a failed stream inside a boxed error of its own kind.
fn classify(error: &genai::Error) -> ModelError {
    use genai::Error as E;
    match error {
        E::HttpError { status, body, headers, .. } => from_parts(status.as_u16(), headers, body),
        E::WebStream { error, cause, .. } => match error.downcast_ref::<genai::Error>() {
            Some(inner) => classify(inner),
            None => match error.downcast_ref::<reqwest::Error>() {
                Some(inner) => http::transport(inner),
                None => ModelError::Broken { reason: shortened(cause) },
            },
        },
        E::WebModelCall { webc_error, .. } | E::WebAdapterCall { webc_error, .. } => classify_call(webc_error),
        E::ChatResponse { body, .. } => errors::from_event(body.get("error").unwrap_or(body)),
        E::StreamParse { serde_error, .. } => {
            ModelError::Broken { reason: format!("an unreadable event: {serde_error}") }
        }
        E::ChatResponseGeneration { cause, .. } => ModelError::Unusable { reason: shortened(cause) },
        other => ModelError::Unusable { reason: shortened(&other.to_string()) },
    }
}

fn classify_call(error: &genai::webc::Error) -> ModelError {
    use genai::webc::Error as E;
    match error {
        E::ResponseFailedStatus { status, body, headers } => from_parts(status.as_u16(), headers, body),
        E::Reqwest(inner) => http::transport(inner),
        other => ModelError::Unusable { reason: shortened(&other.to_string()) },
    }
}

fn from_parts(status: u16, headers: &reqwest::header::HeaderMap, body: &str) -> ModelError {
    let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).map(str::to_owned);
    errors::from_status(&Refusal { status, header: &header, body: body.as_bytes(), now: SystemTime::now() })
}
