//! Shared by the tests of this crate: models of a fake provider, with short or long timeouts.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use homing_core::{
    message::{Message, Reply, TranscriptEntry},
    model::{AskFailure, Delta, Model, ModelRequest, ToolChoice, Toolbox},
    tool::{Replay, ToolSpec},
};
use homing_models::{ProviderConfig, Providers, Timeouts};
use secrecy::SecretString;
use serde_json::json;

pub const KEY: &str = "sk-fake/Key+0123456789";

pub fn fast() -> Timeouts {
    Timeouts {
        connect: Duration::from_millis(500),
        headers: Duration::from_millis(1_500),
        first_content: Duration::from_millis(1_500),
        idle: Duration::from_millis(500),
        tail: Duration::from_millis(300),
    }
}

/// Timeouts that never expire within a test.
pub fn patient() -> Timeouts {
    let long = Duration::from_secs(20);
    Timeouts { connect: long, headers: long, first_content: long, idle: long, tail: long }
}

pub fn model(url: &str, wire: &str, timeouts: Timeouts) -> Arc<dyn Model> {
    model_named(url, wire, "fake", "m", timeouts)
}

pub fn model_named(url: &str, wire: &str, provider: &str, name: &str, timeouts: Timeouts) -> Arc<dyn Model> {
    configured(json!({ "wire": wire, "base_url": url }), provider, name, timeouts)
}

/// A model that asks for whole responses.
pub fn unstreamed_model(url: &str, wire: &str, provider: &str, name: &str) -> Arc<dyn Model> {
    configured(json!({ "wire": wire, "base_url": url, "stream": false }), provider, name, patient())
}

fn configured(mut config: serde_json::Value, provider: &str, name: &str, timeouts: Timeouts) -> Arc<dyn Model> {
    config["api_key_env"] = "FAKE_KEY".into();
    // A server on this machine would get ten minutes for its first content.
    config["patience"] = 1.into();
    config["prices"] = json!({"*": {"input": 1.0, "output": 10.0}});
    let config: ProviderConfig = serde_json::from_value(config).unwrap();
    let lookup = |name: &str| (name == "FAKE_KEY").then(|| SecretString::from(KEY));
    let providers = Providers::with_timeouts(BTreeMap::from([(provider.to_owned(), config)]), lookup, timeouts, None);
    providers.model(&format!("{provider}/{name}")).unwrap()
}

pub fn tools() -> Toolbox {
    let spec = |name: &str| {
        ToolSpec::new(
            name,
            format!("Does {name}."),
            json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        )
        .replay(Replay::Safe)
        .effect(homing_core::tool::Effect::Reads)
    };
    Toolbox::new(vec![spec("read"), spec("grep")])
}

pub fn request<'a>(messages: &'a [Arc<TranscriptEntry>], tools: &'a Toolbox) -> ModelRequest<'a> {
    ModelRequest::new("You are a test.", messages, tools, "run:1")
        .choice(ToolChoice::Auto)
        .max_output(1_000)
        .sampling(&homing_core::model::Sampling::NONE)
}

/// The result of one model call, with its deltas as text.
pub struct AskResult {
    pub result: Result<Reply, AskFailure>,
    pub deltas: String,
}

impl AskResult {
    pub fn reply(self) -> Reply {
        self.result.unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    pub fn failure(self) -> AskFailure {
        self.result.map(|reply| panic!("{reply:?}")).unwrap_err()
    }
}

pub async fn ask(model: &dyn Model) -> AskResult {
    let (messages, tools) = ([TranscriptEntry::new(Message::user("hello"))], tools());
    ask_with(model, request(&messages, &tools)).await
}

pub async fn ask_with(model: &dyn Model, request: ModelRequest<'_>) -> AskResult {
    let deltas = Mutex::new(String::new());
    let listen = |delta: Delta<'_>| {
        let mut deltas = deltas.lock().unwrap();
        match delta {
            Delta::Text(text) => deltas.push_str(text),
            Delta::Thinking(text) => deltas.push_str(&format!("<{text}>")),
            Delta::Call(name) => deltas.push_str(&format!("[{name}]")),
            Delta::Arguments(_) => (),
        }
    };
    let result = model.reply(request, &listen).await;
    AskResult { result, deltas: deltas.into_inner().unwrap() }
}

/// Events of a chat completion: `deltas`, the finish reason, the usage and the end mark.
pub fn chat_stream(deltas: &[&str], reason: &str) -> String {
    let mut events = String::new();
    for delta in deltas {
        events.push_str(&format!("data: {{\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n"));
    }
    events.push_str(&format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\n\
         data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15}}}}\n\n\
         data: [DONE]\n\n"
    ));
    events
}

/// Events of a message: its start, `events` and its end.
pub fn anthropic_stream(events: &[&str], reason: &str) -> String {
    let mut all = String::from(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":\
         {\"input_tokens\":10,\"output_tokens\":1}}}\n\n",
    );
    for event in events {
        all.push_str(&format!("data: {event}\n\n"));
    }
    all.push_str(&format!(
        "event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}},\
         \"usage\":{{\"output_tokens\":5}}}}\n\nevent: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n"
    ));
    all
}
