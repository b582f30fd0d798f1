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
use homing_core::model::Model;
use homing_models::{ProviderConfig, Providers};
use secrecy::SecretString;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const EVENTS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n\
    data: [DONE]\n\n";

/// A server that records the heads of its requests, and the number of its connections.
#[derive(Clone, Default)]
struct Server {
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

    async fn serve(self, mut stream: TcpStream, response: Arc<Vec<u8>>, per_connection: usize) {
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
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn response(headers: &str, body: &[u8]) -> Vec<u8> {
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
