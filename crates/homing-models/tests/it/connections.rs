//! Connections: reuse, replacement of closed ones, compressed streams, proxies.
#![allow(missing_docs)]

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::support::*;
use homing_core::{
    message::{Message, TranscriptEntry},
    model::Model,
};
use homing_models::{ProviderConfig, Providers};
use secrecy::SecretString;
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};

const EVENTS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n\
    data: [DONE]\n\n";

/// A server that records the heads of its requests, and the number of its connections.
#[derive(Clone, Default)]
pub(crate) struct Server {
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
}

impl Server {
    /// Answers at most `per_connection` requests on each connection with `response`; returns the address.
    async fn start(&self, response: Vec<u8>, per_connection: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (server, response) = (self.clone(), Arc::new(response));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.connections.fetch_add(1, Ordering::SeqCst);
                let (server, response) = (server.clone(), response.clone());
                tokio::spawn(async move {
                    server.clone().serve(stream, response, per_connection).await;
                    server.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        address
    }

    pub(crate) async fn serve(
        self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        response: Arc<Vec<u8>>,
        per_connection: usize,
    ) {
        for _ in 0..per_connection {
            let mut request = Vec::new();
            let body_at = loop {
                if let Some(at) = request.windows(4).position(|end| end == b"\r\n\r\n") {
                    break at + 4;
                }
                if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                    return;
                }
            };
            let head = String::from_utf8_lossy(&request[..body_at]).to_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            while request.len() < body_at + length.unwrap_or(0) {
                stream.read_buf(&mut request).await.unwrap();
            }
            self.heads.lock().unwrap().push(head);
            stream.write_all(&response).await.unwrap();
        }
        let _ = stream.shutdown().await;
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

pub(crate) fn response(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn through(proxy: &str, url: &str) -> Arc<dyn Model> {
    let config = json!({"wire": "chat", "base_url": url, "api_key_env": "FAKE_KEY", "prices": {"*": {"input": 1.0, "output": 1.0}}});
    let config: ProviderConfig = serde_json::from_value(config).unwrap();
    let lookup = |name: &str| (name == "FAKE_KEY").then(|| SecretString::from(KEY));
    let rows = BTreeMap::from([("fake".to_owned(), config)]);
    Providers::with_timeouts(rows, lookup, patient(), Some(proxy.to_owned())).model("fake/m").unwrap()
}

#[tokio::test]
async fn calls_one_after_the_other_share_a_connection() {
    let server = Server::default();
    let address = server.start(response("", EVENTS.as_bytes()), usize::MAX).await;
    let model = model(&format!("http://{address}"), "chat", patient());
    for _ in 0..5 {
        assert_eq!(ask(&*model).await.reply().text(), "Hi");
    }
    assert_eq!((server.heads().len(), server.connections.load(Ordering::SeqCst)), (5, 1));
    let head = &server.heads()[0];
    assert!(
        head.starts_with("post /v1/chat/completions http/1.1\r\n") && head.contains(&format!("host: {address}\r\n")),
        "{head}"
    );
    assert!(head.contains("user-agent: homing/") && head.contains("accept-encoding: gzip"), "{head}");
}

#[tokio::test]
async fn first_connection_is_opened_ahead_and_carries_the_first_call() {
    let server = Server::default();
    let address = server.start(response("", EVENTS.as_bytes()), 2).await;
    let model = model(&format!("http://{address}"), "chat", patient());
    for _ in 0..3 {
        model.get_ready();
    }
    while server.connections.load(Ordering::SeqCst) < 1 {
        tokio::task::yield_now().await;
    }
    assert!(server.heads().is_empty(), "nothing is sent ahead");
    for _ in 0..2 {
        assert_eq!(ask(&*model).await.reply().text(), "Hi");
        model.get_ready();
    }
    assert_eq!((server.heads().len(), server.connections.load(Ordering::SeqCst)), (2, 1));
}

#[tokio::test]
async fn connection_that_was_opened_ahead_is_replaced_if_the_server_closed_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = model(&format!("http://{}", listener.local_addr().unwrap()), "chat", patient());
    model.get_ready();
    drop(listener.accept().await.unwrap());
    // The runtime looks at its sockets between these.
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    let server = Server::default();
    let serving = async {
        let (stream, _) = listener.accept().await.unwrap();
        server.clone().serve(stream, Arc::new(response("", EVENTS.as_bytes())), 1).await;
    };
    let (outcome, ()) = tokio::join!(ask(&*model), serving);
    assert_eq!(outcome.reply().text(), "Hi");
}

#[tokio::test]
async fn failure_to_open_a_connection_ahead_is_that_of_the_first_call() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let model = model(&format!("http://{free}"), "chat", patient());
    let without = ask(&*model).await.failure();
    let model = self::model(&format!("http://{free}"), "chat", patient());
    model.get_ready();
    assert_eq!(ask(&*model).await.failure(), without);
}

#[tokio::test]
async fn connection_that_the_server_closed_is_replaced() {
    let server = Server::default();
    let address = server.start(response("", EVENTS.as_bytes()), 1).await;
    let model = model(&format!("http://{address}"), "chat", patient());
    for round in 1..=5 {
        assert_eq!(ask(&*model).await.reply().text(), "Hi");
        while server.closed.load(Ordering::SeqCst) < round {
            tokio::task::yield_now().await;
        }
        // The runtime looks at its sockets between these.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!((server.heads().len(), server.connections.load(Ordering::SeqCst)), (5, 5));
}

#[tokio::test]
async fn connection_with_bytes_behind_its_response_is_not_used_again() {
    let behind = [response("", EVENTS.as_bytes()), response("", b"data: forged\n\n")].concat();
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 7\r\ntransfer-encoding: chunked\r\n\r\n\
         {:x}\r\n{EVENTS}\r\n0\r\n\r\n",
        EVENTS.len()
    );
    let closing = response("connection: close\r\n", EVENTS.as_bytes());
    for response in [behind, chunked.into_bytes(), closing] {
        let server = Server::default();
        let address = server.start(response, usize::MAX).await;
        let model = model(&format!("http://{address}"), "chat", patient());
        for _ in 0..3 {
            assert_eq!(ask(&*model).await.reply().text(), "Hi");
        }
        assert_eq!((server.heads().len(), server.connections.load(Ordering::SeqCst)), (3, 3));
    }
}

#[tokio::test]
async fn interim_responses_and_a_body_without_a_length_are_read() {
    let head = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n\
        HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let server = Server::default();
    let address = server.start(format!("{head}{EVENTS}").into_bytes(), 1).await;
    let model = model(&format!("http://{address}"), "chat", patient());
    for _ in 0..2 {
        assert_eq!(ask(&*model).await.reply().text(), "Hi");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

/// A server that reads the beginning of a request, sends `response`, and then closes the connection or leaves it open.
async fn refusing(response: &'static str, is_closed: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.read_exact(&mut [0; 1_000]).await.unwrap();
            stream.write_all(response.as_bytes()).await.unwrap();
            if is_closed {
                stream.shutdown().await.unwrap();
            }
            open.push(stream);
        }
    });
    address
}

#[tokio::test]
async fn refusal_before_the_request_was_read_is_understood() {
    let refusal =
        "HTTP/1.1 413 Too Large\r\ncontent-length: 41\r\n\r\n{\"error\":{\"message\":\"at most 1 megabyte\"}}";
    for is_closed in [true, false] {
        let address = refusing(refusal, is_closed).await;
        let model = model(&format!("http://{address}"), "chat", patient());
        // More than the sockets have room for.
        let text = Message::user("x".repeat(32 << 20));
        let (messages, tools) = ([TranscriptEntry::new(text)], tools());
        let failure = ask_with(&*model, request(&messages, &tools)).await.failure();
        assert!(failure.error.to_string().contains("at most 1 megabyte"), "{failure:?}");
        assert!(!failure.error.is_retryable(), "{failure:?}");
    }
}

#[tokio::test]
async fn large_request_is_sent_whole() {
    let server = Server::default();
    let address = server.start(response("", EVENTS.as_bytes()), usize::MAX).await;
    let model = model(&format!("http://{address}"), "chat", patient());
    let (messages, tools) = ([TranscriptEntry::new(Message::user("x".repeat(8 << 20)))], tools());
    for _ in 0..2 {
        assert_eq!(ask_with(&*model, request(&messages, &tools)).await.reply().text(), "Hi");
    }
    assert_eq!((server.heads().len(), server.connections.load(Ordering::SeqCst)), (2, 1));
}

#[tokio::test]
async fn reply_in_very_many_chunks_is_read_to_its_end() {
    let chunk = |event: &str| format!("{:x}\r\n{event}\r\n", event.len());
    let piece = chunk("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let response = format!("{head}{}{}0\r\n\r\n", piece.repeat(2_000), chunk(EVENTS));
    let server = Server::default();
    let address = server.start(response.into_bytes(), usize::MAX).await;
    let model = model(&format!("http://{address}"), "chat", patient());
    for _ in 0..2 {
        assert_eq!(ask(&*model).await.reply().text(), "a".repeat(2_000) + "Hi");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn compressed_stream_is_read() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(EVENTS.as_bytes()).unwrap();
    let server = Server::default();
    let address = server.start(response("content-encoding: gzip\r\n", &encoder.finish().unwrap()), usize::MAX).await;
    let model = model(&format!("http://{address}"), "chat", patient());
    for _ in 0..2 {
        assert_eq!(ask(&*model).await.reply().text(), "Hi");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn plain_request_through_a_proxy_has_the_whole_address() {
    let proxy = Server::default();
    let address = proxy.start(response("", EVENTS.as_bytes()), usize::MAX).await;
    let model = through(&format!("http://us%40er:pass@{address}"), "http://provider.invalid:81/v1");
    assert_eq!(ask(&*model).await.reply().text(), "Hi");
    let head = &proxy.heads()[0];
    assert!(head.starts_with("post http://provider.invalid:81/v1/chat/completions http/1.1\r\n"), "{head}");
    assert!(head.contains("host: provider.invalid:81\r\n"), "{head}");
    // `us@er:pass`, in lower case as the rest.
    assert!(head.contains("proxy-authorization: basic dxnazxi6cgfzcw==\r\n"), "{head}");
}

#[tokio::test]
async fn encrypted_request_through_a_proxy_asks_for_a_tunnel() {
    let proxy = Server::default();
    let address = proxy.start(b"HTTP/1.1 403 Forbidden\r\n\r\n".to_vec(), 1).await;
    let model = through(&format!("http://{address}"), "https://provider.invalid/v1");
    let failure = ask(&*model).await.failure();
    assert!(failure.error.is_retryable() && failure.error.to_string().contains("cannot connect"), "{failure:?}");
    let head = &proxy.heads()[0];
    assert!(head.starts_with("connect provider.invalid:443 http/1.1\r\n") && !head.contains("authorization"), "{head}");
}

#[tokio::test]
async fn user_and_password_of_an_address_are_sent_as_a_header_only() {
    let server = Server::default();
    let address = server.start(response("", EVENTS.as_bytes()), usize::MAX).await;
    let config = json!({"wire": "chat", "base_url": format!("http://me:secret@{address}/v1"), "prices": {"*": {"input": 1.0, "output": 1.0}}});
    let config: ProviderConfig = serde_json::from_value(config).unwrap();
    let providers = Providers::new(BTreeMap::from([("fake".to_owned(), config)]), |_| None);
    assert_eq!(ask(&*providers.model("fake/m").unwrap()).await.reply().text(), "Hi");
    let head = &server.heads()[0];
    assert!(head.contains("authorization: basic bwu6c2vjcmv0\r\n") && !head.contains("secret"), "{head}");
}
