//! `fetch` and `websearch` against well-behaved and hostile servers on loopback.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::tool_fixture::ToolFixture;
use homing_core::{
    authority::{Allow, Layer, Network},
    definition::PermissionMode,
    rule::{Rule, Subject, Subjects},
};
use homing_sandbox::egress::Reach;
use homing_tools::{
    toolset::{ToolsConfig, files_tools},
    web::websearch::SearchProvider,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Responds to every request with `respond(first line)`, and records the requests.
async fn serve(respond: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = requests.clone();
    let respond = Arc::new(respond);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let (log, respond) = (log.clone(), respond.clone());
            tokio::spawn(async move {
                let mut buffer = vec![0; 8_192];
                let got = socket.read(&mut buffer).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&buffer[..got]).into_owned();
                let answer = respond(request.lines().next().unwrap_or_default());
                log.lock().unwrap().push(request);
                let _ = socket.write_all(&answer).await;
            });
        }
    });
    (port, requests)
}

fn response(kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
        .into_bytes()
}

fn redirect(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into_bytes()
}

fn fixture(reach: Reach, network: Network) -> ToolFixture {
    let mut config = ToolsConfig::default();
    config.reach = reach;
    let mut fixture = ToolFixture::new(files_tools(config));
    fixture.grant.network = network;
    fixture
}

#[tokio::test]
async fn page_is_fetched_as_text() {
    let (port, _) = serve(|_| response("text/html; charset=utf-8", "<title>T</title><h1>Hello</h1><p>world")).await;
    let fixture = fixture(Reach::Any, Network::On);
    let text = fixture.run().ok("fetch", json!({"url": format!("http://127.0.0.1:{port}/x")})).await;
    assert_eq!(text, format!("<page url=\"http://127.0.0.1:{port}/x\">\nT\n\n# Hello\n\nworld\n</page>"));
}

#[tokio::test]
async fn t13_local_addresses_are_not_reached_by_number_or_name() {
    let (port, requests) = serve(|_| response("text/plain", "SECRET")).await;
    let fixture = fixture(Reach::Public, Network::On);
    let run = fixture.run();
    for host in ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let why = run.refused("fetch", json!({"url": format!("http://{host}:{port}/")})).await;
        assert!(why.contains("public address"), "{host}: {why}");
    }
    for url in ["file:///etc/passwd", "http://a:b@example.org/", "http://169.254.169.254/latest/meta-data"] {
        run.refused("fetch", json!({"url": url})).await;
    }
    assert!(requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn network_permission_applies_to_every_redirect() {
    let (inner, inner_requests) = serve(|_| response("text/plain", "SECRET")).await;
    let (port, _) = serve(move |_| redirect(&format!("http://localhost:{inner}/"))).await;
    let url = format!("http://127.0.0.1:{port}/");
    let off = fixture(Reach::Any, Network::Off);
    assert!(off.run().refused("fetch", json!({"url": url})).await.contains("no network permission for 127.0.0.1"));
    let one = fixture(Reach::Any, Network::Hosts(vec!["127.0.0.1".to_owned()]));
    assert!(one.run().refused("fetch", json!({"url": url})).await.contains("no network permission for localhost"));
    assert!(inner_requests.lock().unwrap().is_empty());
    let mut ruled = fixture(Reach::Any, Network::On);
    let allow = Allow::Only(vec![Rule::calls("fetch", "domain:127.0.0.1")]);
    ruled.grant = ruled.grant.under(Layer::everything("agent x").allow(allow));
    assert!(ruled.run().refused("fetch", json!({"url": url})).await.contains("localhost"));
    assert!(inner_requests.lock().unwrap().is_empty());
    let mut asking = fixture(Reach::Any, Network::On);
    let settled = vec![Rule::calls("fetch", "domain:127.0.0.1")];
    let mode = Some(PermissionMode::Ask);
    asking.grant = asking.grant.under(Layer::everything("agent x").settled(settled).mode(mode));
    assert!(asking.run().refused("fetch", json!({"url": url})).await.contains("localhost"));
    assert!(inner_requests.lock().unwrap().is_empty());
    let both = fixture(Reach::Any, Network::On);
    assert!(both.run().ok("fetch", json!({"url": url})).await.contains("SECRET"));
}

#[tokio::test]
async fn redirects_to_other_schemes_or_without_end_are_refused() {
    let fixture = fixture(Reach::Any, Network::On);
    let run = fixture.run();
    let (port, _) =
        serve(|line| if line.contains("/file") { redirect("file:///etc/passwd") } else { redirect("/round") }).await;
    assert!(run.refused("fetch", json!({"url": format!("http://127.0.0.1:{port}/file")})).await.contains("only http"));
    let why = run.refused("fetch", json!({"url": format!("http://127.0.0.1:{port}/")})).await;
    assert!(why.contains("redirects"), "{why}");
}

#[tokio::test]
async fn long_pages_are_cut_and_other_content_is_refused() {
    let fixture = fixture(Reach::Any, Network::On);
    let run = fixture.run();
    let sent = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let counter = sent.clone();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 4_096]).await;
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n").await;
        while socket.write_all(&[b'x'; 65_536]).await.is_ok() {
            counter.fetch_add(65_536, Ordering::Relaxed);
        }
    });
    let endless = run.ok("fetch", json!({"url": format!("http://127.0.0.1:{port}/")})).await;
    assert!(endless.len() < 110 * 1024 && endless.contains("[page truncated]"));
    assert!(sent.load(Ordering::Relaxed) < 64 << 20);
    let (port, _) = serve(|_| response("application/octet-stream", "x")).await;
    assert!(run.refused("fetch", json!({"url": format!("http://127.0.0.1:{port}/")})).await.contains("not text"));
    let (port, _) = serve(|_| b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone".to_vec()).await;
    assert!(run.refused("fetch", json!({"url": format!("http://127.0.0.1:{port}/")})).await.contains("404"));
}

#[tokio::test]
async fn silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let fixture = fixture(Reach::Any, Network::On);
    let run = fixture.run();
    tokio::time::pause();
    let started = Instant::now();
    let why = run.refused("fetch", json!({"url": format!("http://127.0.0.1:{port}/")})).await;
    assert!(why.contains("timed out after") || why.contains("timed out"), "{why}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn rules_see_the_host() {
    let fixture = fixture(Reach::Public, Network::On);
    let run = fixture.run();
    let host = |url: &str| run.subjects("fetch", json!({"url": url}));
    assert_eq!(
        host("https://Docs.Example.org:8443/x"),
        Subjects::Parts(vec![Subject::Host("docs.example.org".into())])
    );
    assert!(matches!(host("nonsense"), Subjects::Unclear(_)));
    assert!(matches!(host("http://10.0.0.1"), Subjects::Unclear(_)));
}

#[tokio::test]
async fn websearch_uses_the_configured_engine_or_is_absent() {
    let answer =
        json!({"results": [{"title": "T\n1", "url": "https://example.org", "content": "text"}, {"title": "T2"}]});
    let (port, requests) = serve(move |_| response("application/json", &answer.to_string())).await;
    let mut config = ToolsConfig::default();
    let mut engine = SearchProvider::searxng(&format!("http://127.0.0.1:{port}/"));
    engine.key = Some(("x-key".to_owned(), "k3y".to_owned().into()));
    config.search = Some(engine);
    let mut searching = ToolFixture::new(files_tools(config));
    let why = searching.run().refused("websearch", json!({"query": "x"})).await;
    assert!(why.contains("no network permission"), "{why}");
    searching.grant.network = Network::On;
    let text = searching.run().ok("websearch", json!({"q": "a b&c", "limit": 1})).await;
    assert_eq!(text, "1. T 1\n   https://example.org\n   text\n");
    let request = requests.lock().unwrap()[0].clone();
    assert!(
        request.starts_with("GET /search?format=json&q=a+b%26c HTTP/1.1") && request.contains("x-key: k3y"),
        "{request}"
    );
    let without = fixture(Reach::Public, Network::On);
    assert!(!without.tools.iter().any(|tool| tool.spec().name == "websearch"));
}
