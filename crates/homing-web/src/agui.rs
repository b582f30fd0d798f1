//! Runs in the AG-UI protocol: one request starts a run, whose events follow. Child runs are subagents.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use homing::{
    Envelope, Event, Status,
    crates::{
        core::{
            fact::{Fact, Record},
            message::Args,
        },
        runtime::event::TransientKind,
    },
    uuid::Uuid,
};
use homing_http::HttpResponse;
use hyper::http::request::Parts;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    agent_call::{Conversation, Translator, data, failure, stream},
    call::trace_of,
    problem::Problem,
    server::Server,
};

/// The agent of a request that names none.
const DEFAULT_AGENT: &str = "general";

/// A request, of which only these parts matter here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunAgentInput {
    thread_id: String,
    run_id: String,
    messages: Vec<Value>,
    #[serde(default)]
    tools: Vec<Value>,
    #[serde(default)]
    forwarded_props: Value,
}

/// Responds to a request to `/agui`. The agent is named by `forwardedProps.agent` or by the path `/agui/NAME`.
pub(crate) async fn respond(server: Arc<Server>, head: &Parts, body: &Bytes) -> HttpResponse {
    run(&server, head, body).await.unwrap_or_else(|problem| problem.response())
}

async fn run(server: &Arc<Server>, head: &Parts, body: &Bytes) -> Result<HttpResponse, Problem> {
    let input: RunAgentInput =
        serde_json::from_slice(body).map_err(|error| Problem::bad_request(format!("body: {error}")))?;
    if !input.tools.is_empty() {
        return Err(Problem::bad_request("tools of the caller are not supported: the agent uses its own"));
    }
    let in_path = head.uri.path().strip_prefix("/agui/").and_then(|name| homing_http::percent_decoded(name, false));
    let in_body = input.forwarded_props.get("agent").and_then(Value::as_str).map(str::to_owned);
    let agent = in_path.or(in_body).unwrap_or_else(|| DEFAULT_AGENT.to_owned());
    let mut conversation = Conversation::new(Vec::new(), trace_of(&head.headers));
    for message in input.messages.iter().filter(|message| message["role"] != "tool") {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        conversation.add(role, message.get("content").unwrap_or(&Value::Null))?;
    }
    let run = conversation.start(server, &agent).await?;
    let (thread, id) = (input.thread_id, input.run_id);
    Ok(stream(run.clone(), AgUiTranslator { root: run.id(), thread, id, turn: 0, open: HashSet::new() }))
}

struct AgUiTranslator {
    root: Uuid,
    thread: String,
    id: String,
    /// Counts replies, each of which is a message.
    turn: u64,
    /// The runs whose message is open.
    open: HashSet<Uuid>,
}

impl AgUiTranslator {
    /// Returns a frame about a run; below the root it is that of a subagent.
    fn frame(&self, run: Uuid, mut event: Value) -> Bytes {
        if run != self.root {
            event["subagentRunId"] = json!(run);
        }
        data(&event)
    }

    fn message_id(&self, run: Uuid) -> String {
        format!("{run}-{}", self.turn)
    }

    fn text(&mut self, run: Uuid, text: &str) -> Vec<Bytes> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut frames = Vec::new();
        if self.open.insert(run) {
            let id = self.message_id(run);
            frames.push(self.frame(run, json!({"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"})));
        }
        let id = self.message_id(run);
        frames.push(self.frame(run, json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text})));
        frames
    }

    /// Ends the open message of every run, so that the next reply begins a new one.
    fn close_messages(&mut self) -> Vec<Bytes> {
        let open: Vec<Uuid> = self.open.drain().collect();
        let end =
            |run: &Uuid| self.frame(*run, json!({"type": "TEXT_MESSAGE_END", "messageId": self.message_id(*run)}));
        let frames = open.iter().map(end).collect();
        self.turn += 1;
        frames
    }

    fn record(&mut self, record: &Record) -> Vec<Bytes> {
        let run = record.run;
        match &record.fact {
            Fact::Spawned(spawned) if run != self.root => {
                let mut event = json!({"type": "SUBAGENT_STARTED", "subagentRunId": run, "name": spawned.agent.name});
                if let Some(parent) = spawned.parent.filter(|parent| *parent != self.root) {
                    event["parentSubagentRunId"] = json!(parent);
                }
                vec![data(&event)]
            }
            Fact::Ended(ended) if run != self.root => {
                let event = match Status::from(&ended.outcome) {
                    Status::Failed | Status::Cancelled => {
                        json!({"type": "SUBAGENT_ERROR", "subagentRunId": run, "message": ended.text})
                    }
                    _ => json!({"type": "SUBAGENT_FINISHED", "subagentRunId": run, "result": ended.text}),
                };
                vec![data(&event)]
            }
            Fact::Replied { .. } | Fact::AskFailed { .. } => self.close_messages(),
            Fact::Called(called) => {
                let id = called.key.to_string();
                let args = match &called.call.args {
                    Args::Json(args) => args.to_string(),
                    Args::Malformed(text) => text.clone(),
                };
                let name = &called.call.name;
                vec![
                    self.frame(run, json!({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name})),
                    self.frame(run, json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": args})),
                    self.frame(run, json!({"type": "TOOL_CALL_END", "toolCallId": id})),
                ]
            }
            Fact::Returned { key, result, .. } => {
                let id = key.to_string();
                let (message, content) = (format!("{id}-result"), &result.text);
                let event = json!({
                    "type": "TOOL_CALL_RESULT", "messageId": message, "toolCallId": id, "content": content, "role": "tool",
                });
                vec![self.frame(run, event)]
            }
            _ => Vec::new(),
        }
    }
}

impl Translator for AgUiTranslator {
    fn begin(&mut self) -> Vec<Bytes> {
        vec![data(&json!({"type": "RUN_STARTED", "threadId": self.thread, "runId": self.id}))]
    }

    fn event(&mut self, event: &Event) -> Vec<Bytes> {
        match event {
            Event::Fact(record) => self.record(record),
            Event::Transient(notice) => match &notice.kind {
                TransientKind::Text(text) => self.text(notice.run, text),
                _ => Vec::new(),
            },
            Event::Missed(_) => Vec::new(),
        }
    }

    fn end(&mut self, envelope: &Envelope) -> Vec<Bytes> {
        let mut frames = self.close_messages();
        frames.push(match failure(envelope) {
            Some(why) => data(&json!({"type": "RUN_ERROR", "message": why, "code": envelope.status.name()})),
            None => {
                let used = &envelope.subtree;
                let usage = json!([{
                    "model": envelope.model, "inputTokens": used.input, "outputTokens": used.output,
                    "totalTokens": used.input + used.output, "cachedInputTokens": used.cached,
                }]);
                let (thread, id) = (&self.thread, &self.id);
                let result = json!({"output": envelope.output, "data": envelope.data, "status": envelope.status});
                data(&json!({
                    "type": "RUN_FINISHED", "threadId": thread, "runId": id, "result": result, "usage": usage,
                }))
            }
        });
        frames
    }
}
