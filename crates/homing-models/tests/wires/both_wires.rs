//! Behaviour that all native wires share.

use homing_core::{
    message::{Args, StopReason},
    model::ModelError,
};
use homing_testing::{FakeProvider, FakeResponse, ResponseStep, ResponsesTurn};

use crate::{anthropic, chat, shape, support::*};

#[tokio::test]
async fn l7_call_cut_by_the_output_limit_is_dropped_alone() {
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
    assert_eq!(reply.calls().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["read"]);
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
async fn l6_l8_l9_l15_l16_unusual_replies_are_accepted() {
    assert_eq!(chat(&[], "tool_calls").await.reply().stop, StopReason::End);
    assert_eq!(chat(&[r#"{"content":null}"#], "stop").await.reply().parts, vec![]);
    assert_eq!(chat(&[r#"{"content":"x"}"#], "brand_new").await.reply().stop, StopReason::Other("brand_new".into()));
    assert_eq!(chat(&[r#"{"refusal":"I cannot."}"#], "stop").await.reply().stop, StopReason::Refusal);
    let filtered = chat(&[r#"{"content":"The"}"#], "content_filter").await.failure();
    assert!(matches!(filtered.error, ModelError::Refused { .. }));
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
async fn whole_responses_to_streamed_requests_are_accepted() {
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

/// A small random number generator, so that a failure can be reproduced from its seed.
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
async fn inv45_s1_arbitrary_bytes_and_chunks_yield_no_panic_or_half_call() {
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
    let response = ResponsesTurn::items(vec![
        ResponsesTurn::message("Grüße → 🦀"),
        ResponsesTurn::call("c", "read", r#"{"path":"abc"}"#),
    ]);
    for (wire, stream) in [("chat", chat), ("anthropic", message), ("responses", response.events())] {
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
                answer.steps.push(ResponseStep::Bytes(std::mem::replace(&mut bytes, rest)));
            }
            answer
        })
        .await;
        let model = model(&provider.url(), wire, patient());
        for round in 0..400 {
            let Ok(reply) = ask(&*model).await.result else { continue };
            for call in reply.calls() {
                // A byte may have changed in a name or a value, but the call must be complete.
                let is_whole = match &call.args {
                    Args::Json(value) => value.is_object() && value.as_object().is_some_and(|object| object.len() <= 1),
                    Args::Malformed(_) => true,
                };
                assert!(is_whole, "{wire} round {round}: {call:?}");
            }
        }
    }
}
