//! Servers that deviate from the native wires, as observed in practice.
#![allow(missing_docs)]

mod support;

use homing_core::{
    message::{Args, Part, StopReason},
    model::ModelError,
};
use homing_testing::{FakeProvider, FakeResponse};
use serde_json::{Value, json};
use support::*;

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
