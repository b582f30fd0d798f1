//! Decoding of Anthropic messages.

use crate::{anthropic, shape};

#[tokio::test]
async fn anthropic_blocks_keep_their_order() {
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
async fn s9_s10_stray_events_are_ignored() {
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
    assert_eq!(open.calls().count(), 0, "a block that was never closed is incomplete");
}
