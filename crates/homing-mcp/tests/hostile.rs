//! Clients that do not keep to the protocol: they gain nothing, and the conversation goes on or ends, but never hangs.

mod stage;

use std::{sync::Arc, time::Duration};

use homing::Homing;
use homing_mcp::{ServerOptions, StdioError};
use serde_json::{Value, json};
use stage::*;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinHandle,
    time::timeout,
};

/// A client that writes what it likes.
struct Raw {
    write: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    served: JoinHandle<Result<(), StdioError>>,
}

impl Raw {
    fn new(homing: Arc<Homing>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let pipes = tokio::io::split(theirs);
        let served =
            tokio::spawn(homing_mcp::serve_on(homing, ServerOptions::default(), pipes, std::future::pending()));
        let (read, write) = tokio::io::split(ours);
        Self { write, lines: BufReader::new(read).lines(), served }
    }

    async fn introduced(homing: Arc<Homing>) -> Self {
        let mut raw = Self::new(homing);
        raw.say(&initialize("2025-06-18").to_string()).await;
        assert_eq!(raw.hear().await["id"], 0);
        raw.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        raw
    }

    async fn say(&mut self, line: &str) {
        self.write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let line = timeout(Duration::from_secs(10), self.lines.next_line()).await.expect("in time").unwrap();
        serde_json::from_str(&line.expect("the conversation goes on")).expect("m1: nothing but the protocol")
    }

    /// Asks something harmless and waits for that very answer.
    async fn still_talks(&mut self) {
        self.say(r#"{"jsonrpc":"2.0","id":"still","method":"ping"}"#).await;
        while self.hear().await["id"] != "still" {}
    }
}

fn initialize(version: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"},
    }})
}

#[tokio::test]
async fn m4_a_version_that_nobody_knows_is_answered_with_ours() {
    for (asked, answered) in [("9999", "2025-11-25"), ("2026-07-28", "2025-11-25"), ("2024-11-05", "2024-11-05")] {
        let mut raw = Raw::new(homing().await);
        raw.say(&initialize(asked).to_string()).await;
        assert_eq!(raw.hear().await["result"]["protocolVersion"], answered);
    }
}

#[tokio::test]
async fn m4_a_client_that_goes_without_a_word_is_an_error_and_not_a_hang() {
    let Raw { write, lines, served } = Raw::new(homing().await);
    drop((write, lines));
    assert!(timeout(Duration::from_secs(10), served).await.expect("it ends").unwrap().is_err());
}

#[tokio::test]
async fn m4_who_has_not_introduced_itself_starts_nothing() {
    let homing = homing().await;
    let mut raw = Raw::new(homing.clone());
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "delegate", "arguments": {"agent": "echo", "task": "x"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2025-06-18",
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    raw.say(&call.to_string()).await;
    let _ = timeout(Duration::from_secs(2), raw.lines.next_line()).await;
    assert!(homing.runtime().statistics().by_status.is_empty());
}

#[tokio::test]
async fn m1_m3_noise_and_answers_to_nothing_do_no_harm() {
    let mut raw = Raw::introduced(homing().await).await;
    for noise in [
        "",
        "hello?",
        "{",
        "null",
        "[]",
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}"#,
        r#"[{"jsonrpc":"2.0","id":5,"method":"ping"}]"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/nonsense"}"#,
        r#"{"jsonrpc":"2.0","id":6,"method":"no/such/method"}"#,
        "\u{0}\u{1b}[31m",
    ] {
        raw.say(noise).await;
        raw.still_talks().await;
    }
}

#[tokio::test]
async fn m3_the_same_id_twice_does_not_end_the_conversation() {
    let mut raw = Raw::introduced(homing().await).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "delegate", "arguments": {"agent": "echo", "task": "hello"},
    }});
    raw.say(&call.to_string()).await;
    raw.say(&call.to_string()).await;
    raw.still_talks().await;
}

#[tokio::test]
async fn m2_a_line_without_end_is_not_kept() {
    let mut raw = Raw::introduced(homing().await).await;
    let part = " ".repeat(1 << 20);
    for _ in 0..16 {
        raw.write.write_all(part.as_bytes()).await.unwrap();
    }
    // Kept whole, the line would be a request like any other.
    raw.say(r#"{"jsonrpc":"2.0","id":"late","method":"ping"}"#).await;
    raw.say(r#"{"jsonrpc":"2.0","id":"next","method":"ping"}"#).await;
    loop {
        let heard = raw.hear().await;
        assert_ne!(heard["id"], "late");
        if heard["id"] == "next" {
            break;
        }
    }
}
