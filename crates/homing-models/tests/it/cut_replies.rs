//! Replies that the output limit cut: their decoding by each wire, and their encoding in the next request.
#![allow(missing_docs)]

use std::sync::Arc;

use crate::support::*;
use homing_core::message::{Message, Part, Reply, StopReason, TranscriptEntry};
use homing_testing::{FakeProvider, FakeResponse, ResponsesTurn};
use serde_json::{Value, json};

async fn reply_of(wire: &str, answer: FakeResponse) -> Reply {
    let provider = FakeProvider::answers(vec![answer]).await;
    ask(&*model(&provider.url(), wire, patient())).await.reply()
}

/// The names of the complete calls, and of the one that was cut.
fn calls(reply: &Reply) -> (Vec<&str>, Option<&str>) {
    (reply.calls().map(|call| call.name.as_str()).collect(), reply.cut_call.as_deref())
}

#[tokio::test]
async fn chat_call_cut_within_its_json_is_reported_not_made() {
    let whole = ("read", r#"{"path":"a"}"#);
    let reply = reply_of("chat", FakeResponse::chat_cut_calls(&[whole, ("grep", r#"{"path":"b"#)])).await;
    assert_eq!((calls(&reply), &reply.stop), ((vec!["read"], Some("grep")), &StopReason::Length));
    let reply = reply_of("chat", FakeResponse::chat_cut_calls(&[("grep", "")])).await;
    assert_eq!(calls(&reply), (vec![], Some("grep")), "arguments that had not begun");
    let reply = reply_of("chat", FakeResponse::chat_cut_calls(&[whole])).await;
    assert_eq!(calls(&reply), (vec!["read"], None), "a call that was complete at the cut");
    let reply = reply_of("chat", FakeResponse::chat_calls(&[whole])).await;
    assert_eq!(calls(&reply), (vec!["read"], None));
}

#[tokio::test]
async fn anthropic_call_cut_within_its_json_is_reported_not_made() {
    let reply = reply_of("anthropic", FakeResponse::anthropic_cut_call("read", r#"{"pa"#)).await;
    assert_eq!((calls(&reply), &reply.stop), ((vec![], Some("read")), &StopReason::Length));
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"read","input":{}}}"#;
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
    let reply = reply_of("anthropic", FakeResponse::events(&anthropic_stream(&[start, delta], "max_tokens"))).await;
    assert_eq!(calls(&reply), (vec![], Some("read")), "a block that never closed");
    let reply = reply_of("anthropic", FakeResponse::events(&anthropic_stream(&[start, delta], "tool_use"))).await;
    assert_eq!(calls(&reply), (vec![], None), "not a cut");
}

#[tokio::test]
async fn last_call_of_a_cut_anthropic_body_is_not_made() {
    let call = |name: &str| json!({"type": "tool_use", "id": name, "name": name, "input": {"path": "a"}});
    let body = json!({"content": [call("read"), call("grep")], "stop_reason": "max_tokens", "usage": {}});
    let provider = FakeProvider::answers(vec![FakeResponse::json(200, &body.to_string())]).await;
    let model = unstreamed_model(&provider.url(), "anthropic", "fake", "m");
    assert_eq!(calls(&ask(&*model).await.reply()), (vec!["read"], Some("grep")));
}

#[tokio::test]
async fn text_call_that_was_cut_is_reported_complete_ones_are_made() {
    let whole = r#"<tool_call>{"name":"read","arguments":{"path":"a"}}</tool_call>"#;
    let text = format!(r#"{whole}<tool_call>{{"name":"grep","argu"#);
    let reply = reply_of("chat", FakeResponse::chat_cut_text(&text)).await;
    assert_eq!((calls(&reply), reply.text().as_str()), ((vec!["read"], Some("grep")), ""));
    let reply = reply_of("chat", FakeResponse::chat_cut_text("just te")).await;
    assert_eq!((calls(&reply), reply.text().as_str()), ((vec![], None), "just te"));
}

#[tokio::test]
async fn responses_call_cut_within_its_json_is_reported_not_made() {
    let whole = ResponsesTurn::call("c0", "read", r#"{"path":"a"}"#);
    let cut = |arguments: &str| {
        let mut item = ResponsesTurn::call("c1", "grep", arguments);
        item["status"] = "incomplete".into();
        item
    };
    for (items, expected) in [
        (vec![whole.clone(), cut(r#"{"path":"b"#)], (vec!["read"], Some("grep"))),
        (vec![cut("")], (vec![], Some("grep"))),
        // The provider says that it is not complete, so it may lack arguments.
        (vec![cut(r#"{"path":"b"}"#)], (vec![], Some("grep"))),
        (vec![whole], (vec!["read"], None)),
    ] {
        for is_streamed in [true, false] {
            let provider = FakeProvider::responses(vec![ResponsesTurn::cut(items.clone())]).await;
            let model = if is_streamed {
                model_named(&provider.url(), "responses", "fake", "gpt-5", patient())
            } else {
                unstreamed_model(&provider.url(), "responses", "fake", "gpt-5")
            };
            let reply = ask(&*model).await.reply();
            assert_eq!((calls(&reply), &reply.stop), (expected.clone(), &StopReason::Length), "{items:?}");
        }
    }
}

/// The assistant message of a reply with these parts in the next request.
async fn sent_back(wire: &str, parts: Vec<Part>) -> Value {
    let answer = if wire == "chat" { FakeResponse::chat_text("ok") } else { FakeResponse::anthropic_text("ok") };
    let provider = FakeProvider::answers(vec![answer]).await;
    let reply = Reply::new(parts).stop(StopReason::Length).cut_call("read".to_owned());
    let messages: [Arc<TranscriptEntry>; 3] =
        [Message::user("go"), Message::Assistant(reply.into()), Message::user("cut")].map(TranscriptEntry::new);
    let tools = tools();
    ask_with(&*model(&provider.url(), wire, patient()), request(&messages, &tools)).await.reply();
    let body: Value = serde_json::from_str(&provider.requests().remove(0).body).unwrap();
    body["messages"].as_array().unwrap().iter().find(|message| message["role"] == "assistant").unwrap()["content"]
        .clone()
}

#[tokio::test]
async fn reply_without_its_cut_call_is_valid_in_the_next_request() {
    let nothing = json!({"type": "text", "text": "(nothing)"});
    let thought = || Part::Thinking { text: "hm".into(), signature: Some("seal".into()), origin: None };
    let hidden = || Part::Opaque { wire: "anthropic".into(), block: json!({"type": "redacted_thinking", "data": "z"}) };
    assert_eq!(sent_back("anthropic", vec![]).await, json!([nothing]));
    for last in [thought(), hidden()] {
        let content = sent_back("anthropic", vec![thought(), last]).await;
        assert_eq!((content.as_array().unwrap().len(), &content[2]), (3, &nothing), "{content}");
    }
    let content = sent_back("anthropic", vec![thought(), Part::Text("text".into())]).await;
    assert_eq!(content.as_array().unwrap().len(), 2, "{content}");
    assert_eq!(sent_back("chat", vec![]).await, "(nothing)");
    assert_eq!(sent_back("chat", vec![Part::Text("text".into())]).await, "text");
}
