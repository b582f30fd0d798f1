//! What goes over our two wires, in both directions, byte by byte where bytes matter.
#![allow(missing_docs)]

mod support;

use std::sync::Arc;

use homing_core::{
    message::{Args, Image, Message, Part, Reply, StopReason, ToolCall, ToolResult, TranscriptEntry},
    model::{Effort, ToolChoice},
};
use homing_testing::{FakeProvider, FakeResponse};
use serde_json::{Value, json};
use support::*;

fn call(id: &str, name: &str, args: Value) -> Part {
    Part::Call(ToolCall { id: id.into(), name: name.into(), args: Args::Json(args) })
}

fn result(index: u32, id: &str, text: &str) -> Arc<TranscriptEntry> {
    TranscriptEntry::new(Message::Tool(ToolResult {
        index,
        call_id: id.into(),
        name: "read".into(),
        text: text.into(),
        images: vec![],
        data: None,
        is_error: index == 1,
    }))
}

fn conversation() -> Vec<Arc<TranscriptEntry>> {
    let reply = Reply {
        parts: vec![
            Part::Thinking { text: "Hm.".into(), signature: Some("seal==".into()), origin: None },
            Part::Opaque { wire: "anthropic".into(), block: json!({"type": "redacted_thinking", "data": "zzz"}) },
            Part::Text("I look \"twice\".\n".into()),
            call("same", "read", json!({"path": "a"})),
            call("same", "read", json!({"path": "b"})),
        ],
        stop: StopReason::Calls,
        ..Reply::default()
    };
    let picture = Image { media_type: "image/png".into(), base64: "AAAA".into() };
    vec![
        TranscriptEntry::new(Message::User { text: "Look.".into(), images: vec![picture] }),
        TranscriptEntry::new(Message::Assistant(reply)),
        result(0, "same", "one"),
        result(1, "same", "two"),
        TranscriptEntry::new(Message::user("And now?")),
    ]
}

/// The body that a model sends for a conversation.
async fn sent(
    wire: &str,
    messages: &[Arc<TranscriptEntry>],
    change: impl Fn(&mut homing_core::model::ModelRequest<'_>),
) -> Value {
    let answer = if wire == "chat" { FakeResponse::chat_text("ok") } else { FakeResponse::anthropic_text("ok") };
    let provider = FakeProvider::answers(vec![answer]).await;
    let tools = tools();
    let mut request = request(messages, &tools);
    change(&mut request);
    let model = model_named(&provider.url(), wire, "fake", "claude-sonnet-4-5", patient());
    ask_with(&*model, request).await.reply();
    let seen = provider.requests().remove(0);
    assert_eq!(seen.header("idempotency-key"), Some("run:1"));
    serde_json::from_str(&seen.body).unwrap()
}

#[tokio::test]
async fn chat_pairs_results_with_calls_whatever_the_ids_were() {
    let body = sent("chat", &conversation(), |_| ()).await;
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(messages[1]["content"][1]["image_url"]["url"], "data:image/png;base64,AAAA");
    let calls = messages[2]["tool_calls"].as_array().unwrap();
    assert_eq!(calls[0]["id"], messages[3]["tool_call_id"]);
    assert_eq!(calls[1]["id"], messages[4]["tool_call_id"]);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert_eq!(messages[2]["content"], "I look \"twice\".\n");
    assert_eq!(calls[0]["function"]["arguments"], "{\"path\":\"a\"}");
    assert_eq!(messages[2].get("reasoning_content"), None, "thoughts stay here unless the row says otherwise");
    assert_eq!((body["stream"].clone(), body["stream_options"]["include_usage"].clone()), (json!(true), json!(true)));
    assert_eq!(body["tools"][0]["function"]["name"], "read");
}

#[tokio::test]
async fn anthropic_gets_all_results_of_a_reply_in_one_message_and_thoughts_unchanged() {
    let body = sent("anthropic", &conversation(), |_| ()).await;
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    let said = &messages[1]["content"];
    assert_eq!(said[0], json!({"type": "thinking", "thinking": "Hm.", "signature": "seal=="}));
    assert_eq!(said[1], json!({"type": "redacted_thinking", "data": "zzz"}));
    let results = messages[2]["content"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    assert_eq!(results[0]["tool_use_id"], said[3]["id"]);
    assert_eq!(results[1]["tool_use_id"], said[4]["id"]);
    assert_ne!(said[3]["id"], said[4]["id"]);
    assert_eq!((results[0].get("is_error"), &results[1]["is_error"]), (None, &json!(true)));
    assert_eq!(results[2]["text"], "And now?");
}

#[tokio::test]
async fn anthropics_cache_marks_move_without_encoding_anything_again() {
    let mark = json!({"type": "ephemeral"});
    let entries = conversation();
    let first = sent("anthropic", &entries[..1], |_| ()).await;
    assert_eq!(first["system"][0]["cache_control"], mark);
    assert_eq!(first["tools"][1]["cache_control"], mark);
    assert_eq!(first["messages"][0]["content"][1]["cache_control"], mark);
    let kept = entries[0].encoding.get_or_make("anthropic", || unreachable!("it is kept")).into_owned();
    assert!(!kept.contains("cache_control"));
    let second = sent("anthropic", &entries, |_| ()).await;
    assert_eq!(second["messages"][0]["content"][1]["cache_control"], mark, "where the last request ended");
    assert_eq!(second["messages"][2]["content"][2]["cache_control"], mark, "at the end");
    assert_eq!(second.to_string().matches("cache_control").count(), 4, "the provider allows four");
}

#[tokio::test]
async fn pictures_of_tools_follow_all_results_of_their_reply_in_chat() {
    let mut messages = conversation();
    messages.truncate(2);
    let with_picture = ToolResult {
        index: 0,
        call_id: "same".into(),
        name: "read".into(),
        text: "a picture".into(),
        images: vec![Image { media_type: "image/png".into(), base64: "BBBB".into() }],
        data: None,
        is_error: false,
    };
    messages.push(TranscriptEntry::new(Message::Tool(with_picture)));
    messages.push(result(1, "same", "two"));
    let chat = sent("chat", &messages, |_| ()).await;
    let roles: Vec<&str> = chat["messages"].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(chat["messages"][5]["content"][1]["image_url"]["url"], "data:image/png;base64,BBBB");
    let messages: Vec<Arc<TranscriptEntry>> =
        messages.iter().map(|entry| TranscriptEntry::new(entry.message.clone())).collect();
    let anthropic = sent("anthropic", &messages, |_| ()).await;
    assert_eq!(anthropic["messages"][2]["content"][0]["content"][1]["source"]["data"], "BBBB");
}

#[tokio::test]
async fn choices_effort_and_temperature_reach_the_provider() {
    let messages = [TranscriptEntry::new(Message::user("x"))];
    let fresh = || [TranscriptEntry::new(messages[0].message.clone())];
    let required = sent("chat", &fresh(), |it| it.choice = ToolChoice::Required).await;
    assert_eq!(required["tool_choice"], "required");
    let off = sent("anthropic", &fresh(), |it| it.choice = ToolChoice::Off).await;
    assert_eq!(off["tool_choice"], json!({"type": "none"}));
    let thinking = sent("anthropic", &fresh(), |it| {
        (it.effort, it.max_output, it.temperature_milli) = (Some(Effort::High), 20_000, Some(500));
    })
    .await;
    assert_eq!(thinking["thinking"], json!({"type": "enabled", "budget_tokens": 10_000}));
    assert_eq!(thinking.get("temperature"), None);
    let cool = sent("chat", &fresh(), |it| (it.temperature_milli, it.effort) = (Some(250), Some(Effort::Low))).await;
    assert_eq!(
        (&cool["temperature"], cool.get("reasoning_effort")),
        (&json!(0.25), None),
        "this model does not reason"
    );
}

#[tokio::test]
async fn the_key_travels_in_one_header_only() {
    for (wire, header) in [("chat", "authorization"), ("anthropic", "x-api-key")] {
        let answer = if wire == "chat" { FakeResponse::chat_text("ok") } else { FakeResponse::anthropic_text("ok") };
        let provider = FakeProvider::answers(vec![answer]).await;
        ask(&*model(&provider.url(), wire, patient())).await.reply();
        let seen = provider.requests().remove(0);
        let carrying: Vec<&str> =
            seen.headers.iter().filter(|(_, value)| value.contains(KEY)).map(|(name, _)| name.as_str()).collect();
        assert_eq!(carrying, [header]);
        assert!(!seen.body.contains(KEY) && !seen.path.contains(KEY));
    }
}

async fn chat(deltas: &[&str], reason: &str) -> Outcome {
    let provider = FakeProvider::answers(vec![FakeResponse::events(&chat_stream(deltas, reason))]).await;
    ask(&*model(&provider.url(), "chat", patient())).await
}

async fn anthropic(events: &[&str], reason: &str) -> Outcome {
    let provider = FakeProvider::answers(vec![FakeResponse::events(&anthropic_stream(events, reason))]).await;
    ask(&*model(&provider.url(), "anthropic", patient())).await
}

fn shape(reply: &Reply) -> Vec<String> {
    let show = |part: &Part| match part {
        Part::Text(text) => format!("text {text}"),
        Part::Thinking { text, signature, .. } => format!("thinking {text} {signature:?}"),
        Part::Call(call) => format!("call {} {} {:?}", call.id, call.name, call.args),
        Part::Opaque { wire, block } => format!("opaque {wire} {block}"),
    };
    reply.parts.iter().map(show).collect()
}

#[tokio::test]
async fn words_thoughts_and_calls_are_streamed_and_kept() {
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
async fn connections_are_used_again() {
    let stream = chat_stream(&[r#"{"content":"Hi"}"#], "stop");
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{stream}\r\n",
        stream.len()
    );
    // The end of the body comes in a packet of its own, as it does from real servers.
    let steps = vec![
        homing_testing::ResponseStep::Bytes(chunked.into_bytes()),
        homing_testing::ResponseStep::Sleep(std::time::Duration::from_millis(5)),
        homing_testing::ResponseStep::Bytes(b"0\r\n\r\n".to_vec()),
    ];
    let provider = FakeProvider::answers(vec![FakeResponse { steps, keeps_open: true }]).await;
    let model = model(&provider.url(), "chat", patient());
    for _ in 0..5 {
        ask(&*model).await.reply();
    }
    assert!(provider.connections() <= 2, "{} connections for five calls", provider.connections());
}

#[tokio::test]
async fn l4_l5_calls_without_index_or_id_are_told_apart() {
    let same_index = chat(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"grep","arguments":{"path":"x"}}}]}"#,
        ],
        "stop",
    )
    .await
    .reply();
    assert_eq!(same_index.calls().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["read", "grep"]);
    assert_eq!(same_index.stop, StopReason::Calls, "calls are calls, whatever the reason says");
    let bare = chat(
        &[
            r#"{"tool_calls":[{"function":{"name":"read","arguments":"{}"}}]}"#,
            r#"{"tool_calls":[{"function":{"name":"read","arguments":"{}"}}]}"#,
        ],
        "tool_calls",
    )
    .await
    .reply();
    assert_eq!(bare.calls().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["call_0", "call_1"]);
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
async fn l7_a_call_cut_by_the_output_limit_is_dropped_and_its_neighbours_stay() {
    let reply = chat(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{\"path\":\"x\"}"}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"grep","arguments":"{\"path\":\"y"}}]}"#,
        ],
        "length",
    )
    .await
    .reply();
    assert_eq!(reply.stop, StopReason::Length);
    assert_eq!(reply.calls().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["read"]);
    let reply = anthropic(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"read","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"pa"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
        ],
        "max_tokens",
    )
    .await
    .reply();
    assert_eq!((reply.calls().count(), reply.stop), (0, StopReason::Length));
}

#[tokio::test]
async fn s13_t1_t5_arguments_that_are_no_json_are_shown_and_never_acted_on() {
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
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let delta =
        format!(r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"read","arguments":"{deep}"}}}}]}}"#);
    let reply = chat(&[&delta], "tool_calls").await.reply();
    assert!(matches!(reply.calls().next().unwrap().args, Args::Malformed(_)), "t2");
}

#[tokio::test]
async fn anthropic_blocks_come_out_in_order() {
    let outcome = anthropic(
        &[
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"seal"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"zz"}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Hi"}}"#,
            r#"{"type":"content_block_stop","index":2}"#,
            r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t","name":"read","input":{}}}"#,
            r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            r#"{"type":"content_block_stop","index":3}"#,
            r#"{"type":"a_new_event","index":9}"#,
        ],
        "tool_use",
    )
    .await;
    assert_eq!(outcome.deltas, "<Hm>Hi[read]");
    let reply = outcome.reply();
    assert_eq!(
        shape(&reply),
        [
            r#"thinking Hm Some("seal")"#,
            r#"opaque anthropic {"type":"redacted_thinking","data":"zz"}"#,
            "text Hi",
            "call t read Json(Object {})"
        ]
    );
}

#[tokio::test]
async fn s9_s10_events_that_belong_to_nothing_do_no_harm() {
    let stray = anthropic(
        &[
            r#"{"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"stray"}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" late"}}"#,
            r#"{"type":"content_block_stop","index":5}"#,
        ],
        "end_turn",
    )
    .await
    .reply();
    assert_eq!(stray.text(), "Hi");
    let twice = anthropic(&[r#"{"type":"message_start","message":{}}"#], "end_turn").await;
    assert!(twice.failure().error.is_retryable());
    let open = anthropic(
        &[r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"read","input":{}}}"#],
        "tool_use",
    )
    .await
    .reply();
    assert_eq!(open.calls().count(), 0, "a block that never closed is not whole");
}

#[tokio::test]
async fn l6_l8_l9_l15_l16_odd_replies_are_replies() {
    assert_eq!(chat(&[], "tool_calls").await.reply().stop, StopReason::End);
    assert_eq!(chat(&[r#"{"content":null}"#], "stop").await.reply().parts, vec![]);
    assert_eq!(chat(&[r#"{"content":"x"}"#], "brand_new").await.reply().stop, StopReason::Other("brand_new".into()));
    assert_eq!(chat(&[r#"{"refusal":"I cannot."}"#], "stop").await.reply().stop, StopReason::Refusal);
    let filtered = chat(&[r#"{"content":"The"}"#], "content_filter").await.failure();
    assert!(matches!(filtered.error, homing_core::model::ModelError::Refused { .. }));
    assert_eq!(filtered.partial, "The");
    let unknown = anthropic(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"hologram","x":1}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
        ],
        "refusal",
    )
    .await
    .reply();
    assert_eq!(shape(&unknown), [r#"opaque anthropic {"type":"hologram","x":1}"#]);
    assert_eq!(unknown.stop, StopReason::Refusal);
}

#[tokio::test]
async fn answers_that_are_not_streamed_are_understood() {
    let whole = r#"{"model":"m","choices":[{"message":{"role":"assistant","content":"Hi","tool_calls":[
        {"id":"a","type":"function","function":{"name":"read","arguments":"{}"}},
        {"id":"b","type":"function","function":{"name":"grep","arguments":"{}"}}]},"finish_reason":"tool_calls"}],
        "usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
    let provider = FakeProvider::answers(vec![FakeResponse::json(200, whole)]).await;
    let reply = ask(&*model(&provider.url(), "chat", patient())).await.reply();
    assert_eq!((reply.text().as_str(), reply.calls().count(), reply.usage.input), ("Hi", 2, 3));
    let whole = r#"{"model":"m","content":[{"type":"text","text":"Hi"},{"type":"tool_use","id":"t","name":"read",
        "input":{"path":"x"}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}"#;
    let provider = FakeProvider::answers(vec![FakeResponse::json(200, whole)]).await;
    let reply = ask(&*model(&provider.url(), "anthropic", patient())).await.reply();
    assert_eq!((reply.text().as_str(), reply.calls().count(), reply.usage.output), ("Hi", 1, 4));
}

#[tokio::test]
async fn sealed_thoughts_of_a_gateway_go_back_as_they_came() {
    let stream = chat_stream(
        &[
            r#"{"reasoning":"Hm","reasoning_details":[{"type":"reasoning.text","text":"Hm","index":0}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","text":" yes","signature":"seal","index":0}]}"#,
            r#"{"content":"Hi"}"#,
        ],
        "stop",
    );
    let provider = FakeProvider::answers(vec![FakeResponse::events(&stream)]).await;
    let reply = ask(&*model(&provider.url(), "chat", patient())).await.reply();
    let kept: Reply = serde_json::from_str(&serde_json::to_string(&reply).unwrap()).unwrap();
    let config = serde_json::from_value(json!({"base_url": provider.url()})).unwrap();
    let providers = homing_models::Providers::new([("openrouter".to_owned(), config)].into(), |_| None);
    let messages = [
        TranscriptEntry::new(Message::user("x")),
        TranscriptEntry::new(Message::Assistant(kept)),
        TranscriptEntry::new(Message::user("y")),
    ];
    let tools = tools();
    ask_with(&*providers.model("openrouter/x/y").unwrap(), request(&messages, &tools)).await.reply();
    let body: Value = serde_json::from_str(&provider.requests()[1].body).unwrap();
    let details = json!([{"type": "reasoning.text", "text": "Hm yes", "index": 0, "signature": "seal"}]);
    assert_eq!(body["messages"][2]["reasoning_details"], details);
}

/// A small generator, so that a failure can be repeated from its number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

#[tokio::test]
async fn inv45_s1_any_bytes_in_any_chunking_give_no_panic_and_no_half_call() {
    let chat = chat_stream(
        &[
            r#"{"content":"Grüße → 🦀"}"#,
            r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"read","arguments":"{\"path\":"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"abc\"}"}}]}"#,
        ],
        "tool_calls",
    );
    let message = anthropic_stream(
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"read","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"abc\"}"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
        ],
        "tool_use",
    );
    for (wire, stream) in [("chat", chat), ("anthropic", message)] {
        let text = stream.clone();
        let provider = FakeProvider::start(move |count, _| {
            let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (count as u64 + 1));
            let mut bytes = text.clone().into_bytes();
            for _ in 0..dice.roll(4) {
                let at = dice.roll(bytes.len());
                match dice.roll(4) {
                    0 => bytes[at] = dice.roll(256) as u8,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, b"\n\r {}[]\",:\0"[dice.roll(12)]),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            let mut answer = FakeResponse::open_stream(vec![]);
            while !bytes.is_empty() {
                let rest = bytes.split_off((1 + dice.roll(60)).min(bytes.len()));
                answer.steps.push(homing_testing::ResponseStep::Bytes(std::mem::replace(&mut bytes, rest)));
            }
            answer
        })
        .await;
        let model = model(&provider.url(), wire, patient());
        for round in 0..400 {
            let Ok(reply) = ask(&*model).await.result else { continue };
            for call in reply.calls() {
                // A byte may have changed inside of a name or a value; what counts is that the call is whole.
                let is_whole = match &call.args {
                    Args::Json(value) => {
                        value.is_object() && value.as_object().is_some_and(|it| it.len() == 1 || it.is_empty())
                    }
                    Args::Malformed(_) => true,
                };
                assert!(is_whole, "{wire} round {round}: {call:?}");
            }
        }
    }
}
