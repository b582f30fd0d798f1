//! Decoding of chat completions.

use homing_core::message::{Args, StopReason};

use crate::{chat, shape};

#[tokio::test]
async fn text_reasoning_and_calls_are_streamed_and_kept() {
    let outcome = chat(
        &[
            r#"{"reasoning_content":"Hm"}"#,
            r#"{"content":"Hel"}"#,
            r#"{"content":"lo"}"#,
            r#"{"tool_calls":[{"index":0,"id":"c1","function":{"name":"read","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":\"x\"}"}}]}"#,
        ],
        "tool_calls",
    )
    .await;
    assert_eq!(outcome.deltas, "<Hm>Hello[read]");
    let reply = outcome.reply();
    assert_eq!(shape(&reply), ["thinking Hm None", "text Hello", r#"call c1 read Json(Object {"path": String("x")})"#]);
    assert_eq!((reply.stop.clone(), reply.usage.input, reply.usage.output), (StopReason::Calls, 10, 5));
    assert_eq!(reply.usage.cost_micros, 10 + 50);
}

#[tokio::test]
async fn l4_l5_calls_without_index_or_id_are_distinguished() {
    let same_index = chat(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"grep","arguments":{"path":"x"}}}]}"#,
        ],
        "stop",
    )
    .await
    .reply();
    assert_eq!(same_index.calls().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["read", "grep"]);
    assert_eq!(same_index.stop, StopReason::Calls, "a reply with calls stops for calls");
    let bare = chat(
        &[
            r#"{"tool_calls":[{"function":{"name":"read","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"function":{"name":"read","arguments":"{}"}}]}"#,
        ],
        "tool_calls",
    )
    .await
    .reply();
    assert_eq!(bare.calls().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["call_0", "call_1"]);
    let many: Vec<String> = (0..500)
        .map(|at| {
            format!(
                r#"{{"tool_calls":[{{"index":{at},"id":"c{at}","function":{{"name":"read","arguments":"{{}}"}}}}]}}"#
            )
        })
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(chat(&many, "tool_calls").await.reply().calls().count(), 500);
}

#[tokio::test]
async fn s13_t1_t5_invalid_json_arguments_are_kept_as_malformed() {
    for (raw, is_malformed) in [
        (r#"{\"path\":"#, true),
        (r#"{\"a\":1} {\"b\":2}"#, true),
        (r#"{\"a\":\"\\ud800\"}"#, true),
        (r#"{\"a\":1e400}"#, true),
        (r#"[1]"#, false),
        (r#""#, false),
        (r#"null"#, false),
    ] {
        let delta =
            format!(r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"read","arguments":"{raw}"}}}}]}}"#);
        let reply = chat(&[&delta], "tool_calls").await.reply();
        let call = reply.calls().next().unwrap();
        assert_eq!(matches!(call.args, Args::Malformed(_)), is_malformed, "{raw}: {call:?}");
    }
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let delta =
        format!(r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"read","arguments":"{deep}"}}}}]}}"#);
    let reply = chat(&[&delta], "tool_calls").await.reply();
    assert!(matches!(reply.calls().next().unwrap().args, Args::Malformed(_)), "t2");
}
