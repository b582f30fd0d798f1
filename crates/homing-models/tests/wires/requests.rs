//! Encoding of requests.

use std::{collections::BTreeMap, sync::Arc};

use homing_core::{
    message::{Args, Image, Message, Part, Reply, StopReason, ToolCall, ToolResult, TranscriptEntry},
    model::{Effort, ModelRequest, Sampling, ToolChoice},
};
use homing_models::Providers;
use homing_testing::{FakeProvider, FakeResponse, ResponseStep, ResponsesTurn, aws_event};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::support::*;

fn call(id: &str, name: &str, args: Value) -> Part {
    Part::from(ToolCall { id: id.into(), name: name.into(), args: Args::Json(args) })
}

fn result(index: u32, id: &str, text: &str) -> Arc<TranscriptEntry> {
    TranscriptEntry::new(Message::Tool(
        ToolResult {
            index,
            call_id: id.into(),
            name: "read".into(),
            text: text.into(),
            images: vec![],
            data: None,
            is_error: index == 1,
        }
        .into(),
    ))
}

fn conversation() -> Vec<Arc<TranscriptEntry>> {
    let reply = Reply::new(vec![
        Part::Thinking { text: "Hm.".into(), signature: Some("seal==".into()), origin: None },
        Part::Opaque { wire: "anthropic".into(), block: json!({"type": "redacted_thinking", "data": "zzz"}) },
        Part::Text("I look \"twice\".\n".into()),
        call("same", "read", json!({"path": "a"})),
        call("same", "read", json!({"path": "b"})),
    ])
    .stop(StopReason::Calls);
    let picture = Image::new("image/png", "AAAA");
    vec![
        TranscriptEntry::new(Message::User { text: "Look.".into(), images: vec![picture] }),
        TranscriptEntry::new(Message::Assistant(reply.into())),
        result(0, "same", "one"),
        result(1, "same", "two"),
        TranscriptEntry::new(Message::user("And now?")),
    ]
}

/// The body of the request that a model sends for `messages`.
async fn sent(wire: &str, messages: &[Arc<TranscriptEntry>], change: impl Fn(&mut ModelRequest<'_>)) -> Value {
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
async fn chat_pairs_results_with_calls_despite_equal_ids() {
    let body = sent("chat", &conversation(), |_| ()).await;
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(messages[1]["content"][1]["image_url"]["url"], "data:image/png;base64,AAAA");
    let calls = messages[2]["tool_calls"].as_array().unwrap();
    assert_eq!(calls[0]["id"], messages[3]["tool_call_id"]);
    assert_eq!(calls[1]["id"], messages[4]["tool_call_id"]);
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert_eq!(messages[2]["content"], "I look \"twice\".\n");
    assert_eq!(calls[0]["function"]["arguments"], "{\"path\":\"a\"}");
    assert_eq!(messages[2].get("reasoning_content"), None, "reasoning is not returned by default");
    assert_eq!((body["stream"].clone(), body["stream_options"]["include_usage"].clone()), (json!(true), json!(true)));
    assert_eq!(body["tools"][0]["function"]["name"], "read");
}

#[tokio::test]
async fn anthropic_results_share_a_message_and_reasoning_is_unchanged() {
    let body = sent("anthropic", &conversation(), |_| ()).await;
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
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
async fn anthropic_cache_marks_move_without_encoding_again() {
    let mark = json!({"type": "ephemeral"});
    let entries = conversation();
    let first = sent("anthropic", &entries[..1], |_| ()).await;
    assert_eq!(first["system"][0]["cache_control"], mark);
    assert_eq!(first["tools"][1]["cache_control"], mark);
    assert_eq!(first["messages"][0]["content"][1]["cache_control"], mark);
    let kept = entries[0].encoding.get_or_make("anthropic", || unreachable!("the encoding is cached")).into_owned();
    assert!(!kept.contains("cache_control"));
    let second = sent("anthropic", &entries, |_| ()).await;
    assert_eq!(second["messages"][0]["content"][1]["cache_control"], mark, "where the last request ended");
    assert_eq!(second["messages"][2]["content"][2]["cache_control"], mark, "at the end");
    assert_eq!(second.to_string().matches("cache_control").count(), 4, "the provider allows four");
}

#[tokio::test]
async fn chat_images_follow_all_results_of_their_reply() {
    let mut messages = conversation();
    messages.truncate(2);
    let with_picture = ToolResult {
        index: 0,
        call_id: "same".into(),
        name: "read".into(),
        text: "a picture".into(),
        images: vec![Image::new("image/png", "BBBB")],
        data: None,
        is_error: false,
    };
    messages.push(TranscriptEntry::new(Message::Tool(with_picture.into())));
    messages.push(result(1, "same", "two"));
    let chat = sent("chat", &messages, |_| ()).await;
    let roles: Vec<&str> =
        chat["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(chat["messages"][5]["content"][1]["image_url"]["url"], "data:image/png;base64,BBBB");
    let messages: Vec<Arc<TranscriptEntry>> =
        messages.iter().map(|entry| TranscriptEntry::new(entry.message.clone())).collect();
    let anthropic = sent("anthropic", &messages, |_| ()).await;
    assert_eq!(anthropic["messages"][2]["content"][0]["content"][1]["source"]["data"], "BBBB");
}

#[tokio::test]
async fn tool_choice_effort_and_temperature_reach_the_provider() {
    let messages = [TranscriptEntry::new(Message::user("x"))];
    let fresh = || [TranscriptEntry::new(messages[0].message.clone())];
    let required = sent("chat", &fresh(), |request| request.choice = ToolChoice::Required).await;
    assert_eq!(required["tool_choice"], "required");
    let off = sent("anthropic", &fresh(), |request| request.choice = ToolChoice::Off).await;
    assert_eq!(off["tool_choice"], json!({"type": "none"}));
    let thinking = sent("anthropic", &fresh(), |request| {
        (request.effort, request.max_output, request.temperature_milli) = (Some(Effort::High), 20_000, Some(500));
    })
    .await;
    assert_eq!(thinking["thinking"], json!({"type": "enabled", "budget_tokens": 10_000}));
    assert_eq!(thinking.get("temperature"), None);
    let cool =
        sent("chat", &fresh(), |request| (request.temperature_milli, request.effort) = (Some(250), Some(Effort::Low)))
            .await;
    assert_eq!(
        (&cool["temperature"], cool.get("reasoning_effort")),
        (&json!(0.25), None),
        "this model does not reason"
    );
}

#[tokio::test]
async fn key_is_sent_in_one_header_only() {
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

#[tokio::test]
async fn anthropic_token_is_sent_as_bearer_if_there_is_no_key() {
    for (set, expected) in [
        (&["ANTHROPIC_AUTH_TOKEN"][..], [Some("Bearer ANTHROPIC_AUTH_TOKEN"), None]),
        (&["ANTHROPIC_API_KEY"], [None, Some("ANTHROPIC_API_KEY")]),
        (&["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"], [None, Some("ANTHROPIC_API_KEY")]),
        (&[], [None, None]),
    ] {
        let provider = FakeProvider::answers(vec![FakeResponse::anthropic_text("ok")]).await;
        let url = provider.url();
        let lookup = move |name: &str| match name {
            "ANTHROPIC_BASE_URL" => Some(SecretString::from(url.clone())),
            other => set.contains(&other).then(|| SecretString::from(other)),
        };
        let model = Providers::new(BTreeMap::new(), lookup).model("anthropic/claude-sonnet-5-5").unwrap();
        ask(&*model).await.reply();
        let seen = provider.requests().remove(0);
        assert_eq!([seen.header("authorization"), seen.header("x-api-key")], expected, "{set:?}");
    }
}

#[tokio::test]
async fn connections_are_reused() {
    let stream = chat_stream(&[r#"{"content":"Hi"}"#], "stop");
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{stream}\r\n",
        stream.len()
    );
    // As with real servers, the end of the body comes in a separate packet.
    let steps = vec![
        ResponseStep::Bytes(chunked.into_bytes()),
        ResponseStep::Sleep(std::time::Duration::from_millis(5)),
        ResponseStep::Bytes(b"0\r\n\r\n".to_vec()),
    ];
    let provider = FakeProvider::answers(vec![FakeResponse { steps, keeps_open: true }]).await;
    let model = model(&provider.url(), "chat", patient());
    for _ in 0..5 {
        ask(&*model).await.reply();
    }
    assert!(provider.connections() <= 2, "{} connections for five calls", provider.connections());
}

#[tokio::test]
async fn reasoning_details_of_a_gateway_are_returned_unchanged() {
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
        TranscriptEntry::new(Message::Assistant(kept.into())),
        TranscriptEntry::new(Message::user("y")),
    ];
    let tools = tools();
    ask_with(&*providers.model("openrouter/x/y").unwrap(), request(&messages, &tools)).await.reply();
    let body: Value = serde_json::from_str(&provider.requests()[1].body).unwrap();
    let details = json!([{"type": "reasoning.text", "text": "Hm yes", "index": 0, "signature": "seal"}]);
    assert_eq!(body["messages"][2]["reasoning_details"], details);
}

#[tokio::test]
async fn settings_of_a_provider_are_sent_with_every_request() {
    let chat = FakeResponse::chat_text("Hi");
    let message = FakeResponse::anthropic_text("Hi");
    for (wire, answer, seed) in [("chat", chat, json!(7)), ("anthropic", message, Value::Null)] {
        let provider = FakeProvider::answers(vec![answer]).await;
        let sampling = json!({"seed": 7, "top_p": 0.5, "service_tier": "flex"});
        let config = json!({"wire": wire, "base_url": provider.url(), "sampling": sampling});
        let config = serde_json::from_value(config).unwrap();
        let providers = homing_models::Providers::new([("mine".to_owned(), config)].into(), |_| None);
        ask(&*providers.model("mine/m").unwrap()).await.reply();
        let body: Value = serde_json::from_str(&provider.requests()[0].body).unwrap();
        assert_eq!((&body["seed"], &body["top_p"], &body["service_tier"]), (&seed, &json!(0.5), &json!("flex")));
        assert_eq!(body["model"], "m");
    }
}

#[tokio::test]
async fn settings_of_a_request_win_over_those_of_the_provider() {
    let answers = [
        ("chat", FakeResponse::chat_text("Hi"), ["/seed", "/top_p", "/service_tier"]),
        ("anthropic", FakeResponse::anthropic_text("Hi"), ["", "/top_p", "/service_tier"]),
        (
            "responses",
            FakeResponse::events(&ResponsesTurn::items(vec![ResponsesTurn::message("Hi")]).events()),
            ["", "/top_p", "/service_tier"],
        ),
        ("bedrock", bedrock_text("Hi"), ["", "/inferenceConfig/topP", "/serviceTier/type"]),
    ];
    for (wire, answer, [seed, top_p, tier]) in answers {
        let provider = FakeProvider::answers(vec![answer]).await;
        let sampling = json!({"seed": 7, "top_p": 0.5, "models": {"m": {"service_tier": "flex"}}});
        let config = serde_json::from_value(json!({"wire": wire, "base_url": provider.url(), "sampling": sampling}));
        let providers = homing_models::Providers::new([("mine".to_owned(), config.unwrap())].into(), |_| None);
        let model = providers.model("mine/m").unwrap();
        let own = Sampling { top_p_milli: Some(250), ..Sampling::NONE };
        let (messages, tools) = ([TranscriptEntry::new(Message::user("hello"))], tools());
        ask_with(&*model, request(&messages, &tools).sampling(&own)).await.reply();
        let body: Value = serde_json::from_str(&provider.requests()[0].body).unwrap();
        let sent = [(seed, json!(7)), (top_p, json!(0.25)), (tier, json!("flex"))];
        for (path, value) in sent.iter().filter(|(path, _)| !path.is_empty()) {
            assert_eq!(body.pointer(path), Some(value), "{wire}: {body}");
        }
        assert_eq!(body.get("seed").is_some(), !seed.is_empty(), "{wire}: {body}");
        let ignored: &[&str] = if seed.is_empty() { &["seed"] } else { &[] };
        assert_eq!(model.ignored_settings(&own), ignored, "{wire}");
    }
}

fn bedrock_text(text: &str) -> FakeResponse {
    let delta = json!({"contentBlockIndex": 0, "delta": {"text": text}}).to_string();
    let usage = json!({"usage": {"inputTokens": 10, "outputTokens": 5}}).to_string();
    FakeResponse::aws_frames(&[
        aws_event("contentBlockDelta", &delta),
        aws_event("messageStop", r#"{"stopReason":"end_turn"}"#),
        aws_event("metadata", &usage),
    ])
}
