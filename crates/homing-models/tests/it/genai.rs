//! Models that are called through `genai`, and the known pitfalls of that crate. Each has a test, so that an update which
//! changes one is noticed.
#![cfg(feature = "genai")]
#![allow(missing_docs)]

use std::{sync::Arc, time::Duration};

use crate::support::*;
use homing_core::{
    message::{Args, Image, Message, Part, Reply, StopReason, ToolCall, ToolResult, TranscriptEntry},
    model::{Charge, Model, ModelError},
};
use homing_models::Timeouts;
use homing_testing::{FakeProvider, FakeResponse, ResponseStep};
use serde_json::{Value, json};

fn gemini(url: &str) -> Arc<dyn Model> {
    gemini_within(url, patient())
}

fn gemini_within(url: &str, timeouts: Timeouts) -> Arc<dyn Model> {
    model_named(&format!("{url}/v1beta"), "genai", "gemini", "gemini-2.5-flash", timeouts)
}

fn gemini_event(parts: Value, rest: &str) -> String {
    format!("data: {{\"candidates\":[{{\"content\":{{\"role\":\"model\",\"parts\":{parts}}}{rest}}}]}}\n\n")
}

fn gemini_stream(parts: Value) -> String {
    let last = "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"\"}]},\"finishReason\":\"STOP\"}],\
                \"usageMetadata\":{\"promptTokenCount\":100,\"cachedContentTokenCount\":40,\"candidatesTokenCount\":7,\
                \"totalTokenCount\":107}}\n\n";
    format!("{}{last}", gemini_event(parts, ""))
}

#[tokio::test]
async fn genai_reply_is_complete() {
    let stream = gemini_stream(json!([{"text": "Hello"}, {"functionCall": {"name": "read", "args": {"path": "x"}}}]));
    let provider = FakeProvider::answers(vec![FakeResponse::events(&stream)]).await;
    let outcome = ask(&*gemini(&provider.url())).await;
    assert!(outcome.deltas.starts_with("Hello"), "{}", outcome.deltas);
    let reply = outcome.reply();
    assert_eq!(reply.text(), "Hello");
    let call = reply.calls().next().unwrap();
    assert_eq!((call.name.as_str(), &call.args), ("read", &Args::Json(json!({"path": "x"}))));
    assert_eq!(reply.stop, StopReason::Calls);
    assert_eq!(provider.requests().len(), 1, "one call is one attempt");
}

#[tokio::test]
async fn trap1_status_and_headers_of_a_failed_stream_are_found() {
    let body = "{\"error\":{\"code\":429,\"message\":\"slow down\",\"status\":\"RESOURCE_EXHAUSTED\"}}";
    let answer = FakeResponse::response(429, &[("retry-after", "7"), ("content-type", "application/json")], body);
    let provider = FakeProvider::answers(vec![answer]).await;
    let failure = ask(&*gemini(&provider.url())).await.failure();
    let ModelError::Busy { retry_after_ms, reason } = failure.error else { panic!("{failure:?}") };
    assert_eq!((retry_after_ms, reason.as_str()), (Some(7_000), "HTTP 429: slow down"));
    assert_eq!(failure.charge, Charge::Nothing);
    let provider = FakeProvider::answers(vec![FakeResponse::json(401, "{\"error\":{\"message\":\"no\"}}")]).await;
    let failure = ask(&*gemini(&provider.url())).await.failure();
    assert!(matches!(failure.error, ModelError::Unauthorized { .. }), "{failure:?}");
}

#[tokio::test]
async fn trap2_stream_without_an_end_event_is_incomplete() {
    for stream in [gemini_event(json!([{"text": "Hel"}]), ""), String::new()] {
        let provider = FakeProvider::answers(vec![FakeResponse::events(&stream)]).await;
        let failure = ask(&*gemini(&provider.url())).await.failure();
        assert!(failure.error.is_retryable(), "{failure:?}");
        assert_eq!(failure.charge, if stream.is_empty() { Charge::Nothing } else { Charge::Hold });
    }
}

#[tokio::test]
async fn trap3_cached_tokens_are_counted_once() {
    let provider = FakeProvider::answers(vec![FakeResponse::events(&gemini_stream(json!([{"text": "Hi"}])))]).await;
    let usage = ask(&*gemini(&provider.url())).await.reply().usage;
    assert_eq!((usage.input, usage.cached, usage.output), (100, 40, 7));
    let message = anthropic_stream(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
        ],
        "end_turn",
    )
    .replace(
        "\"input_tokens\":10",
        "\"input_tokens\":10,\"cache_read_input_tokens\":90,\"cache_creation_input_tokens\":5",
    );
    let provider = FakeProvider::answers(vec![FakeResponse::events(&message)]).await;
    let model = model_named(&format!("{}/v1", provider.url()), "genai", "minimax", "MiniMax-M2", patient());
    let usage = ask(&*model).await.reply().usage;
    assert_eq!((usage.input, usage.cached), (105, 90), "the input includes cached tokens");
    for count in ["3000000000", "-5"] {
        let stream = gemini_stream(json!([{"text": "Hi"}]))
            .replace("\"promptTokenCount\":100", &format!("\"promptTokenCount\":{count}"));
        let provider = FakeProvider::answers(vec![FakeResponse::events(&stream)]).await;
        assert!(ask(&*gemini(&provider.url())).await.reply().usage.estimated, "{count} does not fit into 31 bits");
    }
}

#[tokio::test]
async fn gemini_reply_without_a_count_of_its_output_is_measured() {
    let usage = async |content: Value, reported: &str| {
        let stream = gemini_stream(content)
            .replace("\"candidatesTokenCount\":7,", "")
            .replace("\"totalTokenCount\":107", reported);
        let provider = FakeProvider::answers(vec![FakeResponse::events(&stream)]).await;
        ask(&*gemini(&provider.url())).await.reply().usage
    };
    let empty = usage(json!([{"text": ""}]), "\"totalTokenCount\":100").await;
    assert_eq!((empty.input, empty.output, empty.estimated), (100, 0, false));
    let total = usage(json!([{"text": "Hello"}]), "\"totalTokenCount\":107").await;
    assert_eq!((total.input, total.output, total.estimated), (100, 7, false));
    let text = usage(json!([{"text": "twelve bytes"}]), "\"totalTokenCount\":100").await;
    assert_eq!((text.input, text.output, text.estimated), (100, 4, true));
}

fn conversation() -> Vec<Arc<TranscriptEntry>> {
    let call = |id: &str, path: &str| {
        Part::from(ToolCall { id: id.into(), name: "read".into(), args: Args::Json(json!({ "path": path })) })
    };
    let result = |index: u32, id: &str, is_error| {
        TranscriptEntry::new(Message::Tool(
            ToolResult {
                index,
                call_id: id.into(),
                name: "read".into(),
                text: format!("result {index}"),
                images: vec![],
                data: None,
                is_error,
            }
            .into(),
        ))
    };
    let reply = Reply::new(vec![call("a", "x"), call("b", "y")]).stop(StopReason::Calls);
    vec![
        TranscriptEntry::new(Message::user("go")),
        TranscriptEntry::new(Message::Assistant(reply.into())),
        result(0, "a", false),
        result(1, "b", true),
    ]
}

#[tokio::test]
async fn trap4_trap5_parallel_results_share_a_message_and_errors_are_marked() {
    let provider = FakeProvider::answers(vec![FakeResponse::events(&gemini_stream(json!([{"text": "Hi"}])))]).await;
    let (messages, tools) = (conversation(), tools());
    ask_with(&*gemini(&provider.url()), request(&messages, &tools)).await.reply();
    let body: Value = serde_json::from_str(&provider.requests()[0].body).unwrap();
    let contents = body["contents"].as_array().unwrap();
    assert_eq!(contents.len(), 3, "{body:#}");
    let results = contents[2]["parts"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    assert!(results[1].to_string().contains("Error: result 1"), "{body:#}");
}

#[tokio::test]
async fn trap4_images_follow_their_results() {
    let provider = FakeProvider::answers(vec![FakeResponse::events(&gemini_stream(json!([{"text": "Hi"}])))]).await;
    let (mut messages, tools) = (conversation(), tools());
    let Message::Tool(mut result) = messages[2].message.clone() else { panic!("a result") };
    std::sync::Arc::make_mut(&mut result).images = vec![Image::new("image/png", "QUJD")];
    messages[2] = TranscriptEntry::new(Message::Tool(result));
    ask_with(&*gemini(&provider.url()), request(&messages, &tools)).await.reply();
    let body: Value = serde_json::from_str(&provider.requests()[0].body).unwrap();
    assert_eq!(body["contents"][2]["parts"].as_array().unwrap().len(), 2, "results stay together: {body:#}");
    assert_eq!(body["contents"][3]["role"], "user");
    assert!(body["contents"][3].to_string().contains("QUJD"), "{body:#}");
}

#[tokio::test]
async fn timeouts_apply_to_genai_calls() {
    for steps in [
        vec![ResponseStep::Stall],
        vec![ResponseStep::Bytes(gemini_event(json!([{"text": "Hel"}]), "").into_bytes()), ResponseStep::Stall],
    ] {
        let provider = FakeProvider::answers(vec![FakeResponse::open_stream(steps)]).await;
        let asked = tokio::time::timeout(Duration::from_secs(15), async {
            ask(&*gemini_within(&provider.url(), fast())).await.failure()
        });
        assert!(asked.await.expect("a timeout ends it").error.is_retryable());
    }
}

#[tokio::test]
async fn inv40_genai_error_never_shows_the_key() {
    let body = format!("{{\"error\":{{\"code\":400,\"message\":\"API key not valid: {KEY}\"}}}}");
    let provider = FakeProvider::answers(vec![FakeResponse::json(400, &body)]).await;
    let failure = ask(&*gemini(&provider.url())).await.failure();
    assert!(matches!(failure.error, ModelError::Unauthorized { .. }), "{failure:?}");
    assert!(!format!("{failure:?}").contains("0123456789"), "{failure:?}");
}

#[tokio::test]
async fn gemini_signatures_are_returned_with_their_calls() {
    let parts = json!([{"functionCall": {"name": "read", "args": {"path": "x"}}, "thoughtSignature": "seal=="}]);
    let provider = FakeProvider::answers(vec![FakeResponse::events(&gemini_stream(parts))]).await;
    let model = gemini(&provider.url());
    let reply = ask(&*model).await.reply();
    let kept: Reply = serde_json::from_str(&serde_json::to_string(&reply).unwrap()).unwrap();
    let mut messages =
        vec![TranscriptEntry::new(Message::user("go")), TranscriptEntry::new(Message::Assistant(kept.into()))];
    messages.push(conversation()[2].clone());
    let tools = tools();
    ask_with(&*model, request(&messages, &tools)).await.reply();
    let body = provider.requests()[1].body.clone();
    assert!(body.contains("seal=="), "{body}");
}

fn events(events: &[Value]) -> FakeResponse {
    FakeResponse::events(&events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>())
}

#[tokio::test]
async fn trap8_blocked_prompt_is_refused() {
    let blocked =
        json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}});
    let provider = FakeProvider::answers(vec![events(&[blocked])]).await;
    let failure = ask(&*gemini(&provider.url())).await.failure();
    assert!(matches!(failure.error, ModelError::Refused { .. }), "{failure:?}");
}

#[tokio::test]
async fn trap9_cut_interaction_yields_no_reply() {
    let stream = [
        json!({"event_type": "interaction.created", "interaction": {"id": "i", "model": "g", "status": "in_progress"}}),
        json!({"event_type": "interaction.status_update", "status": "in_progress"}),
        json!({"event_type": "step.start", "index": 0, "step": {"type": "model_output"}}),
        json!({"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hel"}}),
    ];
    let provider = FakeProvider::answers(vec![events(&stream)]).await;
    let model = model_named(&format!("{}/v1beta", provider.url()), "genai", "gemini-interactions", "g", patient());
    let failure = ask(&*model).await.failure();
    assert!(failure.error.is_retryable(), "{failure:?}");
    assert_eq!((failure.charge, failure.partial.as_str()), (Charge::Hold, "Hel"));
}

#[tokio::test]
async fn whole_response_is_requested_if_streaming_is_off() {
    let whole = json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hm.", "thought": true}, {"text": "Hi"},
        {"functionCall": {"name": "read", "args": {"path": "x"}}}]}, "finishReason": "STOP"}], "modelVersion": "gemini-x",
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 3, "totalTokenCount": 14}});
    let provider = FakeProvider::answers(vec![FakeResponse::json(200, &whole.to_string())]).await;
    let model = unstreamed_model(&format!("{}/v1beta", provider.url()), "genai", "gemini", "gemini-2.5-flash");
    let outcome = ask(&*model).await;
    assert_eq!(outcome.deltas, "<Hm.>Hi");
    let reply = outcome.reply();
    assert_eq!((reply.text().as_str(), reply.calls().count(), reply.model.as_deref()), ("Hi", 1, Some("gemini-x")));
    assert_eq!((reply.usage.input, reply.usage.output, reply.usage.reasoning), (9, 5, 3));
    assert!(provider.requests()[0].path.ends_with(":generateContent"));
}

#[tokio::test]
async fn whole_response_to_a_stream_request_is_not_a_cut_stream() {
    let whole = r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}"#;
    let provider = FakeProvider::answers(vec![FakeResponse::json(200, whole)]).await;
    let failure = ask(&*gemini(&provider.url())).await.failure();
    assert!(failure.error.to_string().contains("stream = false"), "{failure:?}");
    assert_eq!(failure.charge, Charge::Nothing);
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
    let messages = [Message::user("go"), Message::Assistant(reply.into())].map(TranscriptEntry::new);
    ask_with(&*model, request(&messages, &tools())).await.reply();
    let body: Value = serde_json::from_str(&provider.requests().last().unwrap().body).unwrap();
    assert_eq!(body["messages"][1]["content"][0], json!({"type": "thinking", "thinking": "Hm.", "signature": "seal"}));
}
