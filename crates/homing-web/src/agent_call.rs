//! Runs on behalf of programs that speak a chat protocol: the conversation becomes a task with a history, and the events of
//! the run are translated. When the program disconnects, its run is cancelled.

use std::sync::Arc;

use bytes::Bytes;
use homing::{
    CancelledBy, Envelope, Event, Limits, Message, Reply, RunHandle, Status, Task,
    crates::core::{fact::Fact, trace_context::TraceContext},
};
use homing_http::HttpResponse;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{api::runs, problem::Problem, server::Server, sse};

/// A conversation, as a program sends it.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    instructions: Vec<String>,
    history: Vec<Message>,
    /// JSON schema of the answer.
    pub(crate) schema: Option<Value>,
    pub(crate) limits: Limits,
    /// The program's position in a distributed trace.
    pub(crate) trace: Option<TraceContext>,
}

impl Conversation {
    /// Creates a conversation that continues these messages, for a program at this position of a trace.
    pub(crate) fn new(history: Vec<Message>, trace: Option<TraceContext>) -> Self {
        Self { history, trace, ..Self::default() }
    }

    /// Adds a message.
    pub(crate) fn add(&mut self, role: &str, content: &Value) -> Result<(), Problem> {
        let text = text_of(content)?;
        match role {
            "system" | "developer" => self.instructions.push(text),
            "user" => self.history.push(Message::user(text)),
            "assistant" => self.history.push(Message::Assistant(Reply::text_only(text).into())),
            _ => return Err(Problem::bad_request(format!("messages of the role `{role}` are not supported"))),
        }
        Ok(())
    }

    /// Starts a run of the agent with the last message as its task.
    pub(crate) async fn start(mut self, server: &Server, agent: &str) -> Result<RunHandle, Problem> {
        let Some(Message::User { text, .. }) = self.history.pop() else {
            return Err(Problem::bad_request("the last message must be one of the user"));
        };
        let text = [self.instructions.join("\n\n"), text].into_iter().filter(|part| !part.is_empty());
        let mut task = Task::new(agent, text.collect::<Vec<_>>().join("\n\n"));
        (task.history, task.schema) = (self.history, self.schema);
        self.trace.iter().for_each(|trace| trace.add_to(&mut task.tags));
        let project = server.projects.main().await?;
        if project.homing().registry().get(agent).is_err() {
            let hint = "GET /v1/models lists the agents";
            return Err(Problem::not_found(format!("there is no agent `{agent}`")).hint(hint));
        }
        runs::begin(server, &*project, project.prepare(task, self.limits)).await
    }
}

/// Returns the text of a message: a string, or a list of parts.
fn text_of(content: &Value) -> Result<String, Problem> {
    let unsupported = || Problem::bad_request("only text is supported in messages");
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| part.get("text").and_then(Value::as_str).ok_or_else(unsupported));
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(unsupported()),
    }
}

/// Returns the answer of a run: its data if it has a schema, otherwise its text.
pub(crate) fn answer(envelope: &Envelope, has_schema: bool) -> String {
    match &envelope.data {
        Some(data) if has_schema => data.to_string(),
        _ => envelope.output.clone(),
    }
}

/// Returns the reason why a run gave no answer; a limit that ended it is none, because it has a partial one.
pub(crate) fn failure(envelope: &Envelope) -> Option<String> {
    match envelope.status {
        Status::Done | Status::Exhausted | Status::TimedOut => None,
        Status::Cancelled => Some("the run was cancelled".to_owned()),
        _ => {
            let message = envelope.error.as_ref().map(|error| error.message.clone());
            Some(message.unwrap_or_else(|| format!("the run is {}", envelope.status.name())))
        }
    }
}

/// Cancels a run when it is dropped, unless it has ended.
struct CancelOnDrop(RunHandle);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.0.status().is_over() {
            self.0.cancel(CancelledBy::Host);
        }
    }
}

/// Waits for a run. If the program disconnects, this future is dropped, and the run is cancelled.
pub(crate) async fn wait(run: RunHandle) -> Envelope {
    let run = CancelOnDrop(run);
    run.0.wait().await
}

/// Translates the events of a run.
pub(crate) trait Translator: Send + 'static {
    /// Returns the first frames.
    fn begin(&mut self) -> Vec<Bytes>;

    /// Returns the frames of an event.
    fn event(&mut self, event: &Event) -> Vec<Bytes>;

    /// Returns the last frames.
    fn end(&mut self, envelope: &Envelope) -> Vec<Bytes>;
}

/// Streams the events of a run.
pub(crate) fn stream(run: RunHandle, translator: impl Translator) -> HttpResponse {
    let (sender, response) = sse::response();
    tokio::spawn(feed(run, Box::new(translator), sender));
    response
}

async fn feed(run: RunHandle, mut translator: Box<dyn Translator>, sender: mpsc::Sender<Bytes>) {
    let run = CancelOnDrop(run);
    let mut events = run.0.events();
    if send(&sender, translator.begin()).await.is_none() {
        return;
    }
    loop {
        let event = tokio::select! {
            () = sender.closed() => return,
            event = tokio::time::timeout(sse::HEARTBEAT, events.next()) => event,
        };
        let frames = match event {
            Err(_) => vec![sse::COMMENT],
            Ok(Some(event)) => {
                let is_end = matches!(&event, Event::Fact(record)
                    if record.run == run.0.id() && matches!(record.fact, Fact::Ended(_)));
                if is_end {
                    break;
                }
                translator.event(&event)
            }
            Ok(None) => break,
        };
        if send(&sender, frames).await.is_none() {
            return;
        }
    }
    let envelope = run.0.wait().await;
    send(&sender, translator.end(&envelope)).await;
}

async fn send(sender: &mpsc::Sender<Bytes>, frames: Vec<Bytes>) -> Option<()> {
    for frame in frames {
        sender.send(frame).await.ok()?;
    }
    Some(())
}

/// Formats a frame without a name, as chat protocols use it.
pub(crate) fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// Returns the names of the agents that programs may use.
pub(crate) async fn agent_names(server: &Arc<Server>) -> Result<Vec<String>, Problem> {
    let project = server.projects.main().await?;
    let all = project.homing().registry().all();
    let offered = all.filter(|entry| entry.definition.execution.offered_to.includes_models());
    Ok(offered.map(|entry| entry.definition.name.clone()).collect())
}
