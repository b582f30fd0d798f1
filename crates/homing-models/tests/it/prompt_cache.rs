//! Prompt caching: each provider gets the marks or keys that its cache needs, judged by the requests that it received.
#![allow(missing_docs)]

use std::{collections::BTreeMap, sync::Arc};

use crate::support::*;
use homing_core::{
    message::{Args, Image, Message, Part, Reply, StopReason, ToolCall, ToolResult, TranscriptEntry},
    model::{Model, Toolbox},
};
use homing_models::{ProviderConfig, Providers};
use homing_testing::{FakeProvider, FakeResponse};
use secrecy::SecretString;
use serde_json::{Value, json};

/// A model of a provider whose built-in row is changed by `config`.
fn configured(provider: &str, name: &str, config: Value) -> Arc<dyn Model> {
    let config: ProviderConfig = serde_json::from_value(config).unwrap();
    let lookup = |name: &str| name.ends_with("_KEY").then(|| SecretString::from(KEY));
    let providers = Providers::new(BTreeMap::from([(provider.to_owned(), config)]), lookup);
    providers.model(&format!("{provider}/{name}")).unwrap()
}

async fn server() -> FakeProvider {
    FakeProvider::answers(vec![FakeResponse::chat_text("ok")]).await
}

fn reply(calls: u32) -> Arc<TranscriptEntry> {
    let call = |at| Part::from(ToolCall { id: format!("c{at}x"), name: "read".into(), args: Args::Json(json!({})) });
    let parts = (0..calls).map(call).collect();
    TranscriptEntry::new(Message::Assistant(Reply::new(parts).stop(StopReason::Calls).into()))
}

fn result(index: u32, text: &str, images: Vec<Image>) -> Arc<TranscriptEntry> {
    let (call_id, name) = (format!("c{index}x"), "read".into());
    let result = ToolResult { index, call_id, name, text: text.into(), images, data: None, is_error: false };
    TranscriptEntry::new(Message::Tool(result.into()))
}

/// The texts that carry a mark, in order.
fn marked(body: &Value) -> Vec<String> {
    let parts = body["messages"].as_array().unwrap().iter().filter_map(|message| message["content"].as_array());
    let parts = parts.flatten().filter(|part| part["cache_control"] == json!({"type": "ephemeral"}));
    parts.map(|part| part["text"].as_str().unwrap().to_owned()).collect()
}

/// The body of the request that `model` sends for `messages`.
async fn sent(model: &dyn Model, server: &FakeProvider, messages: &[Arc<TranscriptEntry>]) -> Value {
    let tools = tools();
    ask_with(model, request(messages, &tools)).await.reply();
    serde_json::from_str(&server.requests().last().unwrap().body).unwrap()
}

#[tokio::test]
async fn openrouter_marks_move_with_the_conversation_of_an_anthropic_model() {
    let server = server().await;
    let model = configured("openrouter", "anthropic/claude-sonnet-5.5", json!({ "base_url": server.url() }));
    let mut messages = vec![TranscriptEntry::new(Message::user("the \"task\""))];
    let first = sent(&*model, &server, &messages).await;
    assert_eq!(marked(&first), ["You are a test.", "the \"task\""]);
    messages.extend([reply(2), result(0, "one", vec![]), result(1, "two", vec![])]);
    let second = sent(&*model, &server, &messages).await;
    assert_eq!(marked(&second), ["You are a test.", "the \"task\"", "two"]);
    messages.extend([reply(1), result(0, "three", vec![])]);
    let third = sent(&*model, &server, &messages).await;
    assert_eq!(marked(&third), ["You are a test.", "two", "three"], "never more than the four that are allowed");
    // What was marked before is otherwise the same text, so that the cache is found.
    assert_eq!(third["messages"][1], json!({"role": "user", "content": "the \"task\""}));
    let role = |at: usize| (third["messages"][at]["role"].as_str(), third["messages"][at]["tool_call_id"].as_str());
    assert_eq!(role(4), (Some("tool"), Some("c1x")));
}

#[tokio::test]
async fn images_and_blank_results_carry_no_mark() {
    let server = server().await;
    let model = configured("openrouter", "anthropic/claude-opus-5.5", json!({ "base_url": server.url() }));
    let image = Image::new("image/png", "AAAA");
    let messages = [
        TranscriptEntry::new(Message::user("task")),
        reply(3),
        result(0, "one", vec![]),
        result(1, "a picture", vec![image]),
        result(2, " ", vec![]),
    ];
    assert_eq!(marked(&sent(&*model, &server, &messages).await), ["You are a test.", "task", "one"]);
}

#[tokio::test]
async fn other_models_get_no_marks_and_gemini_one() {
    let server = server().await;
    let fresh = || [TranscriptEntry::new(Message::user("task"))];
    for (provider, name, expected) in [
        ("openrouter", "google/gemini-3.8-flash", 1),
        ("openrouter", "openai/gpt-5", 0),
        ("openrouter", "deepseek/deepseek-v4-pro", 0),
        ("groq", "anthropic/claude-sonnet-5.5", 0),
    ] {
        let model = configured(provider, name, json!({ "base_url": server.url() }));
        let body = sent(&*model, &server, &fresh()).await;
        assert_eq!((marked(&body).len(), body.get("prompt_cache_key")), (expected, None), "{provider}/{name}");
    }
    // A router of the user's own.
    let config = json!({"base_url": server.url(), "quirks": {"cache_marks": true}});
    let model = configured("mine", "claude-sonnet-5-5", config);
    assert_eq!(marked(&sent(&*model, &server, &fresh()).await).len(), 2);
}

#[tokio::test]
async fn openai_cache_key_is_the_same_for_the_same_beginning() {
    let server = server().await;
    let config = json!({"base_url": server.url(), "wire": "chat", "quirks": {"prompt_cache_key": true}});
    let model = configured("openai", "gpt-4.1", config);
    let ask_about = async |system: &'static str, task: &str, tools: &Toolbox| {
        let messages = [TranscriptEntry::new(Message::user(task))];
        let request = request(&messages, tools).system(system);
        ask_with(&*model, request).await.reply();
        let body: Value = serde_json::from_str(&server.requests().last().unwrap().body).unwrap();
        body["prompt_cache_key"].as_str().unwrap().to_owned()
    };
    let key = ask_about("You are a test.", "one", &tools()).await;
    assert!(key.len() <= 64, "{key}");
    assert_eq!(ask_about("You are a test.", "two", &tools()).await, key, "siblings share the beginning");
    assert_ne!(ask_about("You are another.", "one", &tools()).await, key);
    assert_ne!(ask_about("You are a test.", "one", &Toolbox::default()).await, key);
    // A compatible server may refuse the field.
    let moved = configured("openai", "gpt-4.1", json!({ "base_url": server.url() }));
    let body = sent(&*moved, &server, &[TranscriptEntry::new(Message::user("task"))]).await;
    assert_eq!(body.get("prompt_cache_key"), None);
}

#[test]
fn openai_at_its_own_address_gets_the_cache_key_over_chat_completions() {
    let config: ProviderConfig = serde_json::from_value(json!({"wire": "chat"})).unwrap();
    let providers = Providers::new(BTreeMap::from([("openai".to_owned(), config)]), |_| None);
    assert!(providers.row("openai").unwrap().quirks.prompt_cache_key);
}
