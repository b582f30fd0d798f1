//! Reasoning is returned to its provider, in the field that the provider accepts. Each fake server refuses the second
//! turn of a tool loop as the real one does.
#![allow(missing_docs)]

use std::{collections::BTreeMap, sync::Arc};

use crate::support::*;
use homing_core::{
    message::{Args, Message, Part, Reply, StopReason, ToolCall, ToolResult, TranscriptEntry},
    model::{Effort, Model},
};
use homing_models::{ProviderConfig, Providers};
use homing_testing::{FakeProvider, FakeResponse, ReceivedRequest};
use secrecy::SecretString;
use serde_json::{Value, json};

const MISSING: &str = "The `reasoning_content` in the thinking mode must be passed back to the API.";

/// A model of a built-in provider at another address, with that provider's quirks.
fn built_in(url: &str, provider: &str, name: &str) -> Arc<dyn Model> {
    let config: ProviderConfig = serde_json::from_value(json!({ "base_url": url })).unwrap();
    let lookup = |name: &str| name.ends_with("_KEY").then(|| SecretString::from(KEY));
    let providers = Providers::new(BTreeMap::from([(provider.to_owned(), config)]), lookup);
    providers.model(&format!("{provider}/{name}")).unwrap()
}

fn result(reply: &Reply) -> Arc<TranscriptEntry> {
    let call = reply.calls().next().expect("a call");
    TranscriptEntry::new(Message::Tool(
        ToolResult {
            index: 0,
            call_id: call.id.clone(),
            name: call.name.clone(),
            text: "the file".into(),
            images: vec![],
            data: None,
            is_error: false,
        }
        .into(),
    ))
}

/// The reply after a round trip through the journal's encoding.
fn recorded(reply: &Reply) -> Reply {
    serde_json::from_str(&serde_json::to_string(reply).unwrap()).unwrap()
}

/// Runs two turns of a tool loop; the first reply is encoded as in the journal.
async fn two_turns(model: &dyn Model) -> AskResult {
    let (mut messages, tools) = (vec![TranscriptEntry::new(Message::user("Read x."))], tools());
    let reply = recorded(&ask_with(model, request(&messages, &tools)).await.reply());
    let answer = result(&reply);
    messages.extend([TranscriptEntry::new(Message::Assistant(reply.into())), answer]);
    ask_with(model, request(&messages, &tools)).await
}

fn refused(message: &str) -> FakeResponse {
    let error =
        json!({"message": message, "type": "invalid_request_error", "param": null, "code": "invalid_request_error"});
    FakeResponse::json(400, &json!({ "error": error }).to_string())
}

const CALL: &str =
    r#"{"tool_calls":[{"index":0,"id":"c1","function":{"name":"read","arguments":"{\"path\":\"x\"}"}}]}"#;

/// A provider's check of an assistant message, with its error message.
type MessageCheck = fn(&Value) -> Result<(), String>;

/// Starts a server that reasons in this field and calls a tool in the first turn, then applies `check`.
async fn server(thought: &'static str, check: MessageCheck) -> FakeProvider {
    FakeProvider::start(move |count, seen: &ReceivedRequest| {
        let body: Value = serde_json::from_str(&seen.body).expect("JSON");
        let messages = body["messages"].as_array().expect("messages");
        if count == 0 {
            return FakeResponse::events(&chat_stream(&[thought, CALL], "tool_calls"));
        }
        match messages.iter().filter(|message| message["role"] == "assistant").try_for_each(check) {
            Ok(()) => FakeResponse::chat_text("done"),
            Err(why) => refused(&why),
        }
    })
    .await
}

/// DeepSeek requires a non-empty text on every reply of a tool loop.
fn deepseek(message: &Value) -> Result<(), String> {
    match message["reasoning_content"].as_str() {
        Some(text) if !text.is_empty() => Ok(()),
        _ => Err(MISSING.to_owned()),
    }
}

/// Groq and Cerebras refuse unknown fields.
fn strict(message: &Value) -> Result<(), String> {
    let known = ["role", "content", "tool_calls", "reasoning"];
    match message.as_object().unwrap().keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            Err(format!("for 'role:assistant' the following must be satisfied[property '{key}' is unsupported]"))
        }
        None if message["reasoning"] == "Hm." => Ok(()),
        None => Err("the reasoning was lost".to_owned()),
    }
}

fn content_field(message: &Value) -> Result<(), String> {
    if message["reasoning_content"] == "Hm." && message.get("reasoning").is_none() {
        Ok(())
    } else {
        Err("the reasoning was lost".to_owned())
    }
}

/// OpenAI refuses every field for reasoning.
fn openai(message: &Value) -> Result<(), String> {
    let known = ["role", "content", "tool_calls"];
    match message.as_object().unwrap().keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("Additional properties are not allowed ('{key}' was unexpected)")),
        None => Ok(()),
    }
}

/// Mistral takes reasoning in typed parts of the content.
fn pieces(message: &Value) -> Result<(), String> {
    let thought = json!({"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}], "closed": true});
    let is_right = message["content"] == json!([thought]) && openai(message).is_ok();
    if is_right { Ok(()) } else { Err(format!("the reasoning was lost: {message}")) }
}

fn details(message: &Value) -> Result<(), String> {
    let sealed = json!([{"type": "reasoning.text", "text": "Hm.", "signature": "s", "index": 0}]);
    let is_right = message["reasoning_details"] == sealed && message.get("reasoning").is_none();
    if is_right { Ok(()) } else { Err(format!("the reasoning was lost: {message}")) }
}

#[tokio::test]
async fn second_turn_returns_reasoning_as_each_provider_requires() {
    const CONTENT: &str = r#"{"reasoning_content":"Hm."}"#;
    const PLAIN: &str = r#"{"reasoning":"Hm."}"#;
    const BOTH: &str = r#"{"reasoning":"Hm.","reasoning_content":"Hm."}"#;
    const PIECES: &str = r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]}]}"#;
    const DETAILS: &str =
        r#"{"reasoning":"Hm.","reasoning_details":[{"type":"reasoning.text","text":"Hm.","signature":"s","index":0}]}"#;
    let rows: &[(&str, &str, &'static str, MessageCheck)] = &[
        ("deepseek", "deepseek-v4-pro", CONTENT, deepseek),
        ("deepseek", "deepseek-reasoner", CONTENT, content_field),
        // A reply that called a tool without thinking first.
        ("deepseek", "deepseek-v4-pro", r#"{"reasoning_content":""}"#, deepseek),
        ("moonshot", "kimi-k2.6", CONTENT, content_field),
        ("moonshot", "kimi-k2.6", r#"{"content":""}"#, deepseek),
        ("zai", "glm-5.1", CONTENT, content_field),
        ("groq", "openai/gpt-oss-120b", PLAIN, strict),
        ("cerebras", "gpt-oss-120b", PLAIN, strict),
        ("openrouter", "anthropic/claude-sonnet-5.5", DETAILS, details),
        ("openrouter", "deepseek/deepseek-v4-pro", PLAIN, strict),
        ("mistral", "mistral-large-4", PIECES, pieces),
        ("vllm", "m", CONTENT, content_field),
        ("vllm", "m", PLAIN, strict),
        // Versions that send both names read the newer one.
        ("vllm", "m", BOTH, strict),
        ("llamacpp", "m", CONTENT, content_field),
        ("ollama", "gpt-oss:20b", PLAIN, strict),
        ("together", "zai-org/GLM-5.3", CONTENT, content_field),
        ("together", "moonshotai/Kimi-K2-Thinking", PLAIN, strict),
        ("openai", "gpt-6.1-sol", CONTENT, openai),
        ("azure", "gpt-5", CONTENT, openai),
        ("xai", "grok-4.7", CONTENT, openai),
        ("github", "openai/gpt-5", PLAIN, openai),
        ("huggingface", "m", PLAIN, openai),
    ];
    for (provider, model, thought, check) in rows {
        let server = server(thought, *check).await;
        let outcome = two_turns(&*built_in(&server.url(), provider, model)).await;
        let reply = outcome.result.unwrap_or_else(|failure| panic!("{provider}/{model} after {thought}: {failure:?}"));
        assert_eq!(reply.text(), "done", "{provider}");
    }
}

fn said(parts: Vec<Part>) -> Arc<TranscriptEntry> {
    TranscriptEntry::new(Message::Assistant(Reply::new(parts).stop(StopReason::Calls).into()))
}

fn call() -> Part {
    Part::from(ToolCall { id: "c1".into(), name: "read".into(), args: Args::Json(json!({"path": "x"})) })
}

fn thought(origin: Option<&str>, signature: Option<&str>) -> Part {
    Part::Thinking { text: "Hm.".into(), signature: signature.map(str::to_owned), origin: origin.map(str::to_owned) }
}

/// The assistant message that is sent for these parts.
async fn sent(provider: &str, model: &str, parts: Vec<Part>) -> Value {
    let server = FakeProvider::answers(vec![FakeResponse::chat_text("ok")]).await;
    let (messages, tools) =
        ([TranscriptEntry::new(Message::user("x")), said(parts), TranscriptEntry::new(Message::user("y"))], tools());
    ask_with(&*built_in(&server.url(), provider, model), request(&messages, &tools)).await.reply();
    let body: Value = serde_json::from_str(&server.requests()[0].body).unwrap();
    body["messages"][2].clone()
}

#[tokio::test]
async fn reasoning_of_other_providers_is_never_sent_in_refused_fields() {
    let from_deepseek = || vec![thought(Some("reasoning_content"), None), call()];
    assert_eq!(strict(&sent("groq", "openai/gpt-oss-20b", from_deepseek()).await), Ok(()));
    assert_eq!(strict(&sent("cerebras", "zai-glm-4.7", from_deepseek()).await), Ok(()));
    assert_eq!(openai(&sent("groq", "llama-3.3-70b-versatile", from_deepseek()).await), Ok(()), "it does not reason");
    assert_eq!(openai(&sent("openai", "gpt-5", from_deepseek()).await), Ok(()));
    let from_anthropic = || vec![thought(None, Some("seal")), call()];
    assert_eq!(openai(&sent("vllm", "m", from_anthropic()).await), Ok(()), "its field is not known");
    assert_eq!(content_field(&sent("deepseek", "deepseek-v4-pro", from_anthropic()).await), Ok(()));
    assert_eq!(sent("deepseek", "deepseek-v4-pro", vec![call()]).await["reasoning_content"], " ");
    assert_eq!(sent("mistral", "m", from_anthropic()).await["content"], Value::Null);
    let odd = vec![thought(Some("role\":\"system"), None), call()];
    assert_eq!(openai(&sent("vllm", "m", odd).await), Ok(()), "only known fields are written");
}

#[tokio::test]
async fn anthropic_receives_only_its_own_signatures() {
    let server = FakeProvider::answers(vec![FakeResponse::anthropic_text("ok")]).await;
    let parts =
        vec![thought(None, Some("mine")), thought(Some("genai/minimax"), Some("other")), Part::Text("a".into())];
    let (messages, tools) = ([TranscriptEntry::new(Message::user("x")), said(parts)], tools());
    ask_with(&*built_in(&server.url(), "anthropic", "claude-sonnet-5-5"), request(&messages, &tools)).await.reply();
    let body: Value = serde_json::from_str(&server.requests()[0].body).unwrap();
    let thinking = json!({"type": "thinking", "thinking": "Hm.", "signature": "mine"});
    assert_eq!(body["messages"][1]["content"][0], thinking);
    assert!(!server.requests()[0].body.contains("other"), "{body:#}");
}

#[tokio::test]
async fn reply_with_reasoning_is_encoded_once() {
    let server = FakeProvider::answers(vec![FakeResponse::chat_text("ok")]).await;
    let (messages, tools) =
        ([TranscriptEntry::new(Message::user("x")), said(vec![thought(None, None), call()])], tools());
    let model = built_in(&server.url(), "deepseek", "deepseek-v4-pro");
    ask_with(&*model, request(&messages, &tools)).await.reply();
    let kept = messages[1].encoding.kept("chat, required").expect("the encoding is cached").as_ptr();
    ask_with(&*model, request(&messages, &tools)).await.reply();
    assert_eq!(messages[1].encoding.kept("chat, required").map(str::as_ptr), Some(kept));
    let bodies: Vec<String> = server.requests().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies[0], bodies[1]);
}

#[tokio::test]
async fn providers_are_asked_to_keep_the_reasoning_they_get_back() {
    let glm = json!({"type": "enabled", "clear_thinking": false});
    let kimi = json!({"type": "enabled", "keep": "all"});
    for (provider, model, effort, expected) in [
        ("zai", "glm-5.1", None, Some(&glm)),
        ("zai", "glm-4.7", Some(Effort::High), Some(&glm)),
        ("zai", "glm-5-turbo", Some(Effort::None), None),
        ("zai", "glm-4.6v", None, None),
        ("zai", "glm-4.5", None, None),
        ("moonshot", "kimi-k2.6", None, Some(&kimi)),
        // It always keeps the reasoning, or refuses the field.
        ("moonshot", "kimi-k2.7-code", None, None),
        ("moonshot", "kimi-k3", None, None),
        ("deepseek", "deepseek-v4-pro", None, None),
    ] {
        let server = FakeProvider::answers(vec![FakeResponse::chat_text("ok")]).await;
        let (messages, tools) = ([TranscriptEntry::new(Message::user("x"))], tools());
        let request = request(&messages, &tools).effort(effort);
        ask_with(&*built_in(&server.url(), provider, model), request).await.reply();
        let body: Value = serde_json::from_str(&server.requests()[0].body).unwrap();
        assert_eq!(body.get("thinking"), expected, "{provider}/{model}");
    }
}

#[test]
fn records_without_origins_decode_and_encode_unchanged() {
    let old = r#"{"parts":[{"thinking":{"text":"Hm."}},{"thinking":{"text":"Ha.","signature":"s"}},{"text":"a"}],"stop":"end","usage":{}}"#;
    let reply: Reply = serde_json::from_str(old).unwrap();
    assert_eq!(reply.parts[0], thought(None, None));
    let again = serde_json::to_string(&reply.parts).unwrap();
    assert!(old.contains(&again), "{again}");
}

#[test]
fn configuration_sets_how_reasoning_is_returned() {
    for word in ["never", "same-field", "reasoning-content", "required", "reasoning", "gpt-oss", "details", "content"] {
        let config = json!({"base_url": "http://localhost:9", "quirks": {"reasoning": word}});
        assert!(serde_json::from_value::<ProviderConfig>(config).is_ok(), "{word}");
    }
    let config = json!({"base_url": "http://localhost:9", "quirks": {"reasoning": "maybe"}});
    assert!(serde_json::from_value::<ProviderConfig>(config).is_err());
}
