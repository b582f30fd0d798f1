//! Clients that violate the protocol: the server starts nothing for them, and the connection continues or ends, but never hangs.

mod fixtures;

use std::{sync::Arc, time::Duration};

use fixtures::*;
use homing::Homing;
use homing_mcp::{ServerOptions, StdioError};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinHandle,
    time::timeout,
};

/// A client that writes raw lines.
struct RawClient {
    write: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    server: JoinHandle<Result<(), StdioError>>,
}

impl RawClient {
    fn new(homing: Arc<Homing>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let pipes = tokio::io::split(theirs);
        let server =
            tokio::spawn(homing_mcp::serve_on(homing, ServerOptions::default(), pipes, std::future::pending()));
        let (read, write) = tokio::io::split(ours);
        Self { write, lines: BufReader::new(read).lines(), server }
    }

    async fn initialized(homing: Arc<Homing>) -> Self {
        let mut raw = Self::new(homing);
        raw.send(&initialize("2025-06-18").to_string()).await;
        assert_eq!(raw.receive().await["id"], 0);
        raw.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        raw
    }

    async fn send(&mut self, line: &str) {
        self.write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = timeout(Duration::from_secs(10), self.lines.next_line()).await.expect("in time").unwrap();
        serde_json::from_str(&line.expect("the connection stays open")).expect("m1: only protocol messages")
    }

    /// Sends a ping and waits for its answer.
    async fn ping(&mut self) {
        self.send(r#"{"jsonrpc":"2.0","id":"still","method":"ping"}"#).await;
        while self.receive().await["id"] != "still" {}
    }
}

fn initialize(version: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"},
    }})
}

#[tokio::test]
async fn m4_unknown_protocol_version_is_answered_with_ours() {
    for (asked, answered) in [("9999", "2025-11-25"), ("2026-07-28", "2025-11-25"), ("2024-11-05", "2024-11-05")] {
        let mut raw = RawClient::new(homing().await);
        raw.send(&initialize(asked).to_string()).await;
        assert_eq!(raw.receive().await["result"]["protocolVersion"], answered);
    }
}

#[tokio::test]
async fn m4_client_that_disconnects_silently_is_an_error() {
    let RawClient { write, lines, server } = RawClient::new(homing().await);
    drop((write, lines));
    assert!(timeout(Duration::from_secs(10), server).await.expect("it ends").unwrap().is_err());
}

#[tokio::test]
async fn m4_uninitialized_client_starts_nothing() {
    let homing = homing().await;
    let mut raw = RawClient::new(homing.clone());
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "delegate", "arguments": {"agent": "echo", "task": "x"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2025-06-18",
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    raw.send(&call.to_string()).await;
    let _ = timeout(Duration::from_secs(2), raw.lines.next_line()).await;
    assert!(homing.runtime().statistics().by_status.is_empty());
}

#[tokio::test]
async fn m1_m3_malformed_and_unsolicited_messages_are_ignored() {
    let mut raw = RawClient::initialized(homing().await).await;
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
        raw.send(noise).await;
        raw.ping().await;
    }
}

#[tokio::test]
async fn m3_duplicate_request_id_does_not_end_the_connection() {
    let mut raw = RawClient::initialized(homing().await).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "delegate", "arguments": {"agent": "echo", "task": "hello"},
    }});
    raw.send(&call.to_string()).await;
    raw.send(&call.to_string()).await;
    raw.ping().await;
}

#[tokio::test]
async fn m2_endless_line_is_not_buffered() {
    let mut raw = RawClient::initialized(homing().await).await;
    let part = " ".repeat(1 << 20);
    for _ in 0..16 {
        raw.write.write_all(part.as_bytes()).await.unwrap();
    }
    // If the line were buffered completely, this would be a valid request.
    raw.send(r#"{"jsonrpc":"2.0","id":"late","method":"ping"}"#).await;
    raw.send(r#"{"jsonrpc":"2.0","id":"next","method":"ping"}"#).await;
    loop {
        let message = raw.receive().await;
        assert_ne!(message["id"], "late");
        if message["id"] == "next" {
            break;
        }
    }
}
