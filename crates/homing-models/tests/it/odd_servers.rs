//! Servers that deviate from the native wires, as observed in practice.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use crate::support::*;
use homing_core::{
    message::{Args, Part, StopReason, Usage},
    model::{Charge, ModelError},
};
use homing_testing::{FakeProvider, FakeResponse, ResponseStep};
use serde_json::{Value, json};

async fn chat(answer: FakeResponse) -> AskResult {
    let provider = FakeProvider::answers(vec![answer]).await;
    ask(&*model(&provider.url(), "chat", patient())).await
}

fn thoughts(outcome: AskResult) -> String {
    let parts = outcome.reply().parts;
    let thoughts = parts.into_iter().filter_map(|part| match part {
        Part::Thinking { text, .. } => Some(text),
        _ => None,
    });
    thoughts.collect()
}

#[tokio::test]
async fn message_beside_a_delta_is_read_once() {
    let whole = json!({"object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop",
        "delta": {"role": "assistant", "content": ""}, "message": {"role": "assistant", "content": "Hello"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
    assert_eq!(chat(FakeResponse::json(200, &whole.to_string())).await.reply().text(), "Hello");
    let chunk = |delta: &str, so_far: &str, reason: Value| {
        let choice =
            json!({"index": 0, "delta": {"content": delta}, "message": {"content": so_far}, "finish_reason": reason});
        format!("data: {}\n\n", json!({"object": "chat.completion.chunk", "choices": [choice]}))
    };
    let stream =
        [chunk("Hel", "Hel", Value::Null), chunk("lo", "Hello", Value::Null), chunk("", "Hello", json!("stop"))];
    assert_eq!(chat(FakeResponse::events(&stream.concat())).await.reply().text(), "Hello");
}

#[tokio::test]
async fn reasoning_is_found_under_every_name_and_read_once() {
    for delta in [
        r#"{"reasoning_content":"hm"}"#,
        r#"{"reasoning":"hm"}"#,
        r#"{"reasoning_text":"hm"}"#,
        r#"{"thinking":"hm"}"#,
        r#"{"reasoning":"hm","reasoning_content":"hm"}"#,
        r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#,
    ] {
        let stream = chat_stream(&[delta, r#"{"content":"Yes."}"#], "stop");
        assert_eq!(thoughts(chat(FakeResponse::events(&stream)).await), "hm", "{delta}");
    }
}

#[tokio::test]
async fn interleaved_and_oddly_numbered_calls_stay_separate() {
    let stream = chat_stream(
        &[
            r#"{"tool_calls":[{"index":0,"id":1,"function":{"name":"read","arguments":"{\"path\""}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":null,"function":{"name":"grep","arguments":"{\"path\""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":":\"a\"}"}},{"index":1,"function":{"arguments":":\"b\"}"}}]}"#,
        ],
        "tool_calls",
    );
    let reply = chat(FakeResponse::events(&stream)).await.reply();
    let calls: Vec<(&str, &Args)> = reply.calls().map(|call| (call.name.as_str(), &call.args)).collect();
    let args = |path: &str| Args::Json(json!({ "path": path }));
    assert_eq!(calls, [("read", &args("a")), ("grep", &args("b"))]);
}

#[tokio::test]
async fn s12_every_form_of_stream_error_is_classified() {
    let half = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n";
    let error = |data: &str| FakeResponse::events(&format!("{half}data: {data}\n\n"));
    for (data, is_right) in [
        (
            r#"{"error":{"message":"slow down","code":429}}"#,
            (|error| matches!(error, ModelError::Busy { .. })) as fn(&_) -> _,
        ),
        (r#"{"error":"overloaded"}"#, |error| matches!(error, ModelError::Broken { .. })),
        (r#"{"object":"error","message":"bad","type":"BadRequestError","code":400}"#, |error| {
            matches!(error, ModelError::Unusable { .. })
        }),
        (r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#, |error| {
            matches!(error, ModelError::Broken { .. })
        }),
        (r#"{"choices":[{"index":0,"delta":{},"finish_reason":"insufficient_system_resource"}]}"#, |error| {
            matches!(error, ModelError::Broken { .. })
        }),
    ] {
        let failure = chat(error(data)).await.failure();
        assert!(is_right(&failure.error), "{data}: {failure:?}");
        assert_eq!(failure.partial, "Hel", "{data}");
    }
}

#[tokio::test]
async fn error_bodies_of_every_form_keep_their_message() {
    for body in [
        r#"{"error":{"message":"the words","type":"invalid_request_error"}}"#,
        r#"{"error":"the words"}"#,
        r#"{"message":"the words"}"#,
        r#"{"detail":"the words"}"#,
        r#"{"detail":[{"loc":["body"],"msg":"the words"}]}"#,
        r#"{"errors":[{"message":"the words","code":5007}],"success":false}"#,
        r#"[{"error":{"code":400,"message":"the words","status":"INVALID_ARGUMENT"}}]"#,
        r#"{"Message":"the words"}"#,
        "the words",
        "<html><head><title>the words</title></head></html>",
    ] {
        let failure = chat(FakeResponse::response(400, &[], body)).await.failure();
        let ModelError::Unusable { reason } = failure.error else { panic!("{body}: {failure:?}") };
        assert!(reason.contains("the words"), "{body}: {reason}");
    }
}

#[tokio::test]
async fn s14_missing_end_mark_and_separate_usage_are_accepted() {
    let words = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":null},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n";
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n";
    let reply = chat(FakeResponse::events(&format!("{words}{end}{usage}"))).await.reply();
    assert_eq!((reply.text().as_str(), reply.usage.input, reply.usage.output), ("Hi", 9, 4));
    let reply = chat(FakeResponse::events(&format!("{words}{end}"))).await.reply();
    assert!(reply.usage.estimated, "missing usage is not zero");
    let nothing = "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n";
    assert_eq!(chat(FakeResponse::events(&format!("{nothing}{words}{end}"))).await.reply().text(), "Hi");
}

#[tokio::test]
async fn first_of_several_choices_is_the_reply() {
    let chunk = |index: u32, text: &str, reason: Value| {
        let choice = json!({"index": index, "delta": {"content": text}, "finish_reason": reason});
        format!("data: {}\n\n", json!({ "choices": [choice] }))
    };
    let stream = [
        chunk(1, "other", Value::Null),
        chunk(0, "mine", Value::Null),
        chunk(1, "", json!("stop")),
        chunk(0, "!", json!("stop")),
    ];
    assert_eq!(chat(FakeResponse::events(&stream.concat())).await.reply().text(), "mine!");
}

#[tokio::test]
async fn server_that_cannot_stream_is_asked_for_whole_responses() {
    let whole = r#"{"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    let message = r#"{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;
    for (wire, body) in [("chat", whole), ("anthropic", message)] {
        let provider = FakeProvider::answers(vec![FakeResponse::json(200, body)]).await;
        let reply = ask(&*unstreamed_model(&provider.url(), wire, "fake", "m")).await.reply();
        assert_eq!((reply.text().as_str(), reply.stop), ("Hi", StopReason::End), "{wire}");
        let sent: Value = serde_json::from_str(&provider.requests()[0].body).unwrap();
        assert_eq!((&sent["stream"], sent.get("stream_options")), (&json!(false), None), "{wire}");
    }
}

/// Events that never end: `delta` again and again.
fn endless(delta: &str) -> FakeResponse {
    let event = format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
    let (pause, limit) = (Duration::from_micros(1), Duration::from_secs(120));
    FakeResponse::open_stream(vec![ResponseStep::Repeat { bytes: event.repeat(20).into_bytes(), pause, limit }])
}

#[tokio::test]
async fn endless_reply_is_ended_and_charged_for_what_was_seen() {
    let text = r#"{"content":"and so on and so on "}"#;
    let reasoning = r#"{"reasoning_content":"hm, and so on and so on "}"#;
    let args = r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"read","arguments":"and so on and so on "}}]}"#;
    let details = r#"{"reasoning_details":[{"type":"reasoning.text","index":0,"text":"and so on and so on "}]}"#;
    for delta in [text, reasoning, args, details] {
        let begun = Instant::now();
        let failure = chat(endless(delta)).await.failure();
        let ModelError::Unusable { reason } = &failure.error else { panic!("{failure:?}") };
        assert!(reason.contains("far longer than the permitted 1000 tokens"), "{reason}");
        let Charge::Used(Usage { output, estimated: true, .. }) = failure.charge else { panic!("{failure:?}") };
        assert!((1_001..100_000).contains(&output), "{output}");
        assert!(failure.partial.len() < 64 * 1024, "{}", failure.partial.len());
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn endless_line_and_huge_whole_reply_are_refused() {
    let (pause, limit) = (Duration::from_micros(1), Duration::from_secs(120));
    let line = ResponseStep::Repeat { bytes: vec![b'a'; 64 * 1024], pause, limit };
    let failure = chat(FakeResponse::open_stream(vec![ResponseStep::Bytes(b"data: {".to_vec()), line])).await.failure();
    let ModelError::Unusable { reason } = &failure.error else { panic!("{failure:?}") };
    assert_eq!(reason, "the response is larger than 2 MiB");
    let whole = |bytes: usize| {
        let message = json!({"role": "assistant", "content": "a".repeat(bytes)});
        json!({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).to_string()
    };
    let failure = chat(FakeResponse::json(200, &whole(1 << 20))).await.failure();
    assert!(failure.error.to_string().contains("far longer than the permitted"), "{failure:?}");
    let failure = chat(FakeResponse::json(200, &whole(4 << 20))).await.failure();
    assert!(failure.error.to_string().contains("larger than 2 MiB"), "{failure:?}");
}

#[tokio::test]
async fn usage_that_cannot_be_true_is_estimated_from_the_reply() {
    let stream = chat_stream(&[r#"{"content":"twelve bytes"}"#], "stop");
    let real = r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}"#;
    assert!(stream.contains(real));
    for (reported, input) in [
        (r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#, 0),
        (r#"{"prompt_tokens":10,"completion_tokens":0,"total_tokens":10}"#, 10),
        (r#"{"prompt_tokens":-10,"completion_tokens":-5}"#, 0),
        (r#"{"prompt_tokens":10,"completion_tokens":900000000000}"#, 0),
        ("null", 0),
    ] {
        let usage = chat(FakeResponse::events(&stream.replace(real, reported))).await.reply().usage;
        assert_eq!((usage.input, usage.output, usage.estimated), (input, 4, true), "{reported}");
    }
    let usage = chat(FakeResponse::events(&stream)).await.reply().usage;
    assert_eq!((usage.input, usage.output, usage.estimated), (10, 5, false));
}

#[tokio::test]
async fn call_that_groq_refuses_goes_back_to_the_model() {
    let refusal = |attempt: &str| {
        json!({"error": {"message": "Failed to call a function.", "type": "invalid_request_error",
            "code": "tool_use_failed", "failed_generation": attempt}})
        .to_string()
    };
    let wrong = r#"{"name": "read", "arguments": {"file": "a"}}"#;
    let streamed = format!("event: error\ndata: {}\n\n", refusal(wrong));
    for answer in [FakeResponse::json(400, &refusal(wrong)), FakeResponse::events(&streamed)] {
        let reply = chat(answer).await.reply();
        let call = reply.calls().next().expect("a call");
        assert_eq!((call.name.as_str(), &call.args), ("read", &Args::Json(json!({"file": "a"}))));
        assert_eq!((reply.stop, reply.usage.estimated), (StopReason::Calls, true));
    }
    let reply = chat(FakeResponse::json(400, &refusal("<function=read{\"path\": </function>"))).await.reply();
    assert!(matches!(reply.calls().next().expect("a call").args, Args::Malformed(_)), "{reply:?}");
    let failure = chat(FakeResponse::json(400, &refusal("no idea"))).await.failure();
    assert!(matches!(failure.error, ModelError::Broken { .. }), "{failure:?}");
}
