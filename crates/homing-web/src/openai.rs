//! Agents as models, in OpenAI's two protocols: chat completions and responses. The name of the model is that of an agent or
//! a team.

use std::sync::Arc;

use bytes::Bytes;
use homing::{
    Cap, Envelope, Event, Message, Status,
    crates::{core::trace_context::TraceContext, runtime::event::TransientKind},
    uuid::Uuid,
};
use homing_http::{HttpResponse, full};
use hyper::{StatusCode, http::request::Parts};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    agent_call::{Conversation, Translator, agent_names, answer, data, failure, stream, wait},
    call::{blocking, json as json_response, trace_of},
    openai_responses::ResponseTranslator,
    problem::Problem,
    server::Server,
};

/// Responds to a request below `/v1`.
pub(crate) async fn respond(server: Arc<Server>, head: &Parts, body: &Bytes) -> HttpResponse {
    let (method, trace) = (&head.method, trace_of(&head.headers));
    let result = match (method.as_str(), head.uri.path()) {
        ("GET", "/v1/models") => models(&server).await,
        ("GET", path) if path.starts_with("/v1/models/") => model(&server, &path["/v1/models/".len()..]).await,
        ("POST", "/v1/chat/completions") => completion(&server, body, trace).await,
        ("POST", "/v1/responses") => response(&server, body, trace).await,
        (_, path) => Err(Problem::not_found(format!("there is no endpoint {method} {path}"))),
    };
    result.unwrap_or_else(|problem| error_response(&problem, None))
}

/// Returns an error as OpenAI's clients read it.
fn error_response(problem: &Problem, param: Option<&str>) -> HttpResponse {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
    let hint = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    let message = format!("{}{hint}", problem.detail);
    let error = json!({"error": {"message": message, "type": kind, "param": param, "code": null}});
    full(status, "application/json", error.to_string())
}

async fn models(server: &Arc<Server>) -> Result<HttpResponse, Problem> {
    let data: Vec<Value> = agent_names(server).await?.iter().map(|name| as_model(name)).collect();
    json_response(StatusCode::OK, &json!({"object": "list", "data": data}))
}

async fn model(server: &Arc<Server>, name: &str) -> Result<HttpResponse, Problem> {
    let name = homing_http::percent_decoded(name, false).unwrap_or_default();
    if !agent_names(server).await?.contains(&name) {
        return Err(Problem::not_found(format!("there is no agent `{name}`")));
    }
    json_response(StatusCode::OK, &as_model(&name))
}

fn as_model(name: &str) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": "homing"})
}

/// The parts of a request to either protocol that matter here. Others, such as the temperature, belong to the agent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ModelRequest {
    model: String,
    messages: Vec<Value>,
    input: Value,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    stream: Option<bool>,
    stream_options: Option<Value>,
    tools: Option<Vec<Value>>,
    functions: Option<Vec<Value>>,
    n: Option<u64>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    response_format: Option<Value>,
    text: Option<Value>,
}

impl ModelRequest {
    fn read(body: &Bytes) -> Result<Self, Problem> {
        let request: Self =
            serde_json::from_slice(body).map_err(|error| Problem::bad_request(format!("body: {error}")))?;
        let tools = request.tools.iter().chain(&request.functions).flatten().count();
        if tools > 0 {
            let why = "tools of the caller are not supported: the agent uses its own";
            return Err(Problem::bad_request(why).hint("remove `tools`"));
        }
        if request.n.is_some_and(|count| count > 1) {
            return Err(Problem::bad_request("only one answer per request is supported: remove `n`"));
        }
        Ok(request)
    }

    /// Applies the limit and the schema of the answer to a conversation.
    fn complete(&self, conversation: &mut Conversation) {
        let most = self.max_completion_tokens.or(self.max_tokens).or(self.max_output_tokens);
        conversation.limits.output = most.map_or(Cap::Default, Cap::At);
        let chat = self.response_format.as_ref().and_then(|format| format.pointer("/json_schema/schema"));
        let response = self.text.as_ref().and_then(|text| text.pointer("/format/schema"));
        conversation.schema = chat.or(response).cloned();
    }
}

fn add(conversation: &mut Conversation, message: &Value) -> Result<(), Problem> {
    let is_message = message.get("type").is_none_or(|kind| kind == "message");
    let role = message.get("role").and_then(Value::as_str).filter(|_| is_message);
    let role = role.ok_or_else(|| Problem::bad_request("only messages with a role are supported"))?;
    conversation.add(role, message.get("content").unwrap_or(&Value::Null))
}

async fn completion(server: &Arc<Server>, body: &Bytes, trace: Option<TraceContext>) -> Result<HttpResponse, Problem> {
    let request = ModelRequest::read(body)?;
    let mut conversation = Conversation::new(Vec::new(), trace);
    request.messages.iter().try_for_each(|message| add(&mut conversation, message))?;
    request.complete(&mut conversation);
    let has_schema = conversation.schema.is_some();
    let run = conversation.start(server, &request.model).await?;
    let options = request.stream_options.as_ref();
    let include_usage = options.and_then(|options| options.get("include_usage")?.as_bool()).unwrap_or(false);
    let chat = Chat { id: run.id(), model: request.model, created: now(), include_usage, has_schema };
    if request.stream == Some(true) {
        return Ok(stream(run, chat));
    }
    let envelope = wait(run).await;
    if let Some(why) = failure(&envelope) {
        return Err(Problem::new(StatusCode::BAD_GATEWAY, why));
    }
    json_response(StatusCode::OK, &chat.whole(&envelope))
}

/// The answer to one chat request.
struct Chat {
    id: Uuid,
    model: String,
    created: u64,
    include_usage: bool,
    has_schema: bool,
}

impl Chat {
    fn whole(&self, envelope: &Envelope) -> Value {
        let message = json!({"role": "assistant", "content": answer(envelope, self.has_schema), "refusal": null});
        json!({
            "id": format!("chatcmpl-{}", self.id),
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(envelope)}],
            "usage": usage(envelope),
        })
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Value {
        let mut chunk = json!({
            "id": format!("chatcmpl-{}", self.id),
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason}],
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

impl Translator for Chat {
    fn begin(&mut self) -> Vec<Bytes> {
        vec![data(&self.chunk(&json!({"role": "assistant", "content": ""}), None))]
    }

    /// Streams what the agent writes as reasoning: only the end shows which text is the answer.
    fn event(&mut self, event: &Event) -> Vec<Bytes> {
        let delta = written(event, self.id).map(|text| json!({"reasoning_content": text}));
        delta.map(|delta| data(&self.chunk(&delta, None))).into_iter().collect()
    }

    fn end(&mut self, envelope: &Envelope) -> Vec<Bytes> {
        if let Some(why) = failure(envelope) {
            return vec![data(
                &json!({"error": {"message": why, "type": "server_error", "param": null, "code": null}}),
            )];
        }
        let mut frames = vec![
            data(&self.chunk(&json!({"content": answer(envelope, self.has_schema)}), None)),
            data(&self.chunk(&json!({}), Some(finish_reason(envelope)))),
        ];
        if self.include_usage {
            let mut last = self.chunk(&json!({}), None);
            (last["choices"], last["usage"]) = (json!([]), usage(envelope));
            frames.push(data(&last));
        }
        frames.push(Bytes::from_static(b"data: [DONE]\n\n"));
        frames
    }
}

/// Returns the text that a run itself writes or thinks.
pub(crate) fn written(event: &Event, run: Uuid) -> Option<&str> {
    let Event::Transient(notice) = event else { return None };
    match &notice.kind {
        TransientKind::Text(text) | TransientKind::Thinking(text) if notice.run == run => Some(text),
        _ => None,
    }
}

fn finish_reason(envelope: &Envelope) -> &'static str {
    if envelope.status == Status::Done { "stop" } else { "length" }
}

fn usage(envelope: &Envelope) -> Value {
    let used = &envelope.subtree;
    json!({
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    })
}

/// Seconds since 1970.
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

async fn response(server: &Arc<Server>, body: &Bytes, trace: Option<TraceContext>) -> Result<HttpResponse, Problem> {
    let request = ModelRequest::read(body)?;
    let earlier = match &request.previous_response_id {
        Some(id) => earlier_messages(server, id).await?,
        None => Vec::new(),
    };
    let mut conversation = Conversation::new(earlier, trace);
    if let Some(instructions) = &request.instructions {
        conversation.add("system", &json!(instructions))?;
    }
    match &request.input {
        Value::Array(items) => items.iter().try_for_each(|item| add(&mut conversation, item))?,
        text => conversation.add("user", text)?,
    }
    request.complete(&mut conversation);
    let has_schema = conversation.schema.is_some();
    let run = conversation.start(server, &request.model).await?;
    let translator = ResponseTranslator::new(run.id(), request.model, now(), has_schema);
    if request.stream == Some(true) {
        return Ok(stream(run, translator));
    }
    json_response(StatusCode::OK, &translator.whole(&wait(run).await))
}

/// Returns the messages of the run behind an earlier response.
async fn earlier_messages(server: &Arc<Server>, id: &str) -> Result<Vec<Message>, Problem> {
    let unknown = || Problem::not_found(format!("there is no response `{id}`"));
    let run: Uuid = id.strip_prefix("resp_").and_then(|id| id.parse().ok()).ok_or_else(unknown)?;
    let journal = server.watch.journal.clone();
    let tree = blocking(move || Ok(journal.tree(journal.find(&run.to_string(), None)?.tree)?)).await?;
    let earlier = tree.get(run).ok_or_else(unknown)?;
    Ok(earlier.messages().iter().map(|entry| entry.message.clone()).collect())
}
