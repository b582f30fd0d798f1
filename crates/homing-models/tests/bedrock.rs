//! Bedrock's Converse API through `genai`: reasoning is returned unchanged, with its text and signature.
#![cfg(feature = "genai")]
#![allow(missing_docs)]

mod support;

use std::sync::Arc;

use homing_core::{
    message::{Args, Message, Part, Reply, StopReason, ToolCall, ToolResult, TranscriptEntry},
    model::Model,
};
use homing_testing::{FakeProvider, FakeResponse};
use serde_json::{Value, json};
use support::*;

const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

fn bedrock(url: &str) -> Arc<dyn Model> {
    model_named(url, "genai", "bedrock", CLAUDE, patient())
}

/// CRC-32, as in zip and png.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0_u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// One message of AWS's event stream.
fn frame(event: &str, payload: &Value) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in [(":event-type", event), (":content-type", "application/json"), (":message-type", "event")] {
        headers.push(name.len() as u8);
        headers.extend_from_slice(name.as_bytes());
        headers.push(7);
        headers.extend_from_slice(&(value.len() as u16).to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let payload = payload.to_string();
    let mut frame = ((16 + headers.len() + payload.len()) as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(&(headers.len() as u32).to_be_bytes());
    frame.extend_from_slice(&crc32(&frame).to_be_bytes());
    frame.extend_from_slice(&headers);
    frame.extend_from_slice(payload.as_bytes());
    frame.extend_from_slice(&crc32(&frame).to_be_bytes());
    frame
}

fn delta(index: u32, delta: Value) -> Vec<u8> {
    frame("contentBlockDelta", &json!({"contentBlockIndex": index, "delta": delta}))
}

fn stop(index: u32) -> Vec<u8> {
    frame("contentBlockStop", &json!({ "contentBlockIndex": index }))
}

/// Two signed blocks with a redacted one between them, text and a call.
fn thinking_stream() -> FakeResponse {
    let thought = |index, key: &str, text: &str| delta(index, json!({"reasoningContent": {key: text}}));
    let call = json!({"contentBlockIndex": 4, "start": {"toolUse": {"toolUseId": "t1", "name": "read"}}});
    let usage = json!({"usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}});
    let frames = [
        frame("messageStart", &json!({"role": "assistant"})),
        thought(0, "text", "First, "),
        thought(0, "text", "look."),
        thought(0, "signature", "sig-1"),
        stop(0),
        thought(1, "redactedContent", "blob"),
        stop(1),
        thought(2, "text", "Then read."),
        thought(2, "signature", "sig-2"),
        stop(2),
        delta(3, json!({"text": "I read x."})),
        stop(3),
        frame("contentBlockStart", &call),
        delta(4, json!({"toolUse": {"input": "{\"path\":\"x\"}"}})),
        stop(4),
        frame("messageStop", &json!({"stopReason": "tool_use"})),
        frame("metadata", &usage),
    ];
    FakeResponse::response(200, &[("content-type", "application/vnd.amazon.eventstream")], frames.concat())
}

fn blocks() -> Value {
    json!([
        {"reasoningContent": {"reasoningText": {"text": "First, look.", "signature": "sig-1"}}},
        {"reasoningContent": {"redactedContent": "blob"}},
        {"reasoningContent": {"reasoningText": {"text": "Then read.", "signature": "sig-2"}}},
        {"text": "I read x."},
        {"toolUse": {"toolUseId": "t1", "name": "read", "input": {"path": "x"}}},
    ])
}

fn thinking_whole() -> FakeResponse {
    let whole = json!({"output": {"message": {"role": "assistant", "content": blocks()}}, "stopReason": "tool_use",
        "usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}});
    FakeResponse::json(200, &whole.to_string())
}

fn result() -> Arc<TranscriptEntry> {
    TranscriptEntry::new(Message::Tool(ToolResult {
        index: 0,
        call_id: "t1".into(),
        name: "read".into(),
        text: "the file".into(),
        images: vec![],
        data: None,
        is_error: false,
    }))
}

/// The assistant message in the request of the second turn.
async fn second_turn(model: &dyn Model, provider: &FakeProvider, reply: &Reply) -> Value {
    let kept: Reply = serde_json::from_str(&serde_json::to_string(reply).unwrap()).unwrap();
    let (messages, tools) = (
        [TranscriptEntry::new(Message::user("go")), TranscriptEntry::new(Message::Assistant(kept)), result()],
        tools(),
    );
    ask_with(model, request(&messages, &tools)).await.reply();
    let body: Value = serde_json::from_str(&provider.requests().last().unwrap().body).unwrap();
    body["messages"][1]["content"].clone()
}

#[tokio::test]
async fn streamed_reasoning_returns_to_bedrock_with_text_and_signature() {
    let provider = FakeProvider::answers(vec![thinking_stream()]).await;
    let model = bedrock(&provider.url());
    let outcome = ask(&*model).await;
    assert_eq!(outcome.deltas, "<First, ><look.><Then read.>I read x.[read][read]");
    let reply = outcome.reply();
    assert_eq!((reply.text().as_str(), reply.calls().count(), &reply.stop), ("I read x.", 1, &StopReason::Calls));
    assert!(provider.requests()[0].path.ends_with("/converse-stream"), "{}", provider.requests()[0].path);
    assert_eq!(second_turn(&*model, &provider, &reply).await, blocks());
}

#[tokio::test]
async fn whole_reasoning_returns_to_bedrock_with_text_and_signature() {
    let provider = FakeProvider::answers(vec![thinking_whole()]).await;
    let model = unstreamed_model(&provider.url(), "genai", "bedrock", CLAUDE);
    let outcome = ask(&*model).await;
    assert_eq!(outcome.deltas, "<First, look.\nThen read.>I read x.");
    assert_eq!(second_turn(&*model, &provider, &outcome.reply()).await, blocks());
}

fn said(mut parts: Vec<Part>) -> Reply {
    parts.push(Part::Call(ToolCall { id: "t1".into(), name: "read".into(), args: Args::Json(json!({"path": "x"})) }));
    Reply { parts, stop: StopReason::Calls, ..Reply::default() }
}

fn thought(signature: Option<&str>, origin: Option<&str>) -> Part {
    Part::Thinking { text: "Hm.".into(), signature: signature.map(str::to_owned), origin: origin.map(str::to_owned) }
}

#[tokio::test]
async fn bedrock_gets_no_reasoning_that_it_did_not_sign() {
    let provider = FakeProvider::answers(vec![thinking_stream()]).await;
    let model = bedrock(&provider.url());
    for foreign in [
        thought(None, Some("genai/bedrock")),
        thought(None, Some("reasoning_content")),
        thought(Some("sig"), None),
        thought(Some("sig"), Some("genai/minimax")),
        Part::Opaque { wire: "genai".into(), block: json!({"seal": "sig", "from": "genai/gemini"}) },
    ] {
        let content = second_turn(&*model, &provider, &said(vec![foreign.clone()])).await;
        assert_eq!(content, json!([blocks()[4]]), "{foreign:?}");
    }
}

#[tokio::test]
async fn record_with_separate_text_and_signature_is_returned_whole() {
    let provider = FakeProvider::answers(vec![thinking_stream()]).await;
    let model = bedrock(&provider.url());
    let seal = Part::Opaque { wire: "genai".into(), block: json!({"seal": "sig-1"}) };
    let content = second_turn(&*model, &provider, &said(vec![thought(None, None), seal])).await;
    let whole = json!({"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig-1"}}});
    assert_eq!(content, json!([whole, blocks()[4]]));
}

#[tokio::test]
async fn signed_reasoning_returns_to_minimax() {
    let stream = anthropic_stream(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"seal"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"read","input":{}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"x\"}"}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
        ],
        "tool_use",
    );
    // `genai` reads the names of events, which the middle of this stream lacks.
    let named =
        ["content_block_start", "content_block_delta", "content_block_stop"].iter().fold(stream, |all, name| {
            let data = format!("data: {{\"type\":\"{name}\"");
            all.replace(&data, &format!("event: {name}\n{data}"))
        });
    let provider = FakeProvider::answers(vec![FakeResponse::events(&named)]).await;
    let model = model_named(&format!("{}/v1", provider.url()), "genai", "minimax", "MiniMax-M2", patient());
    let reply = ask(&*model).await.reply();
    let content = second_turn(&*model, &provider, &reply).await;
    assert_eq!(content[0], json!({"type": "thinking", "thinking": "Hm.", "signature": "seal"}));
}

#[tokio::test]
async fn cached_tokens_are_added_to_the_input() {
    let usage = json!({"usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 115,
        "cacheReadInputTokens": 80, "cacheWriteInputTokens": 20}});
    let frames = [
        frame("messageStart", &json!({"role": "assistant"})),
        delta(0, json!({"text": "Hi."})),
        stop(0),
        frame("messageStop", &json!({"stopReason": "end_turn"})),
        frame("metadata", &usage),
    ];
    let answer =
        FakeResponse::response(200, &[("content-type", "application/vnd.amazon.eventstream")], frames.concat());
    let provider = FakeProvider::answers(vec![answer]).await;
    let model = model_named(&provider.url(), "genai", "bedrock", "anthropic.claude-sonnet-4-5", patient());
    let usage = ask(&*model).await.reply().usage;
    assert_eq!((usage.input, usage.cached, usage.cache_write, usage.output), (110, 80, 20, 5));
    assert_eq!(usage.cost_micros, 160, "110 tokens at $1 and 5 at $10 per million");
}
