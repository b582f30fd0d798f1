//! Clients over HTTP, and requests that must be refused.

mod fixtures;
#[path = "fixtures/raw_http.rs"]
mod raw_http;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use fixtures::*;
use homing::Status;
use homing_mcp::{ElicitationHandler, HttpOptions, HttpServer, ServerOptions, serve_http};
use raw_http::{RawRequest, answer, raw, read_to};
use rmcp::{
    ServiceExt,
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

async fn server(homing: Arc<homing::Homing>, options: ServerOptions) -> HttpServer {
    serve_http(homing, LOOPBACK, options, HttpOptions::default()).await.expect("a free port")
}

async fn client(server: &HttpServer, handler: RecordingClient) -> Connection {
    let config = StreamableHttpClientTransportConfig::with_uri(server.url()).auth_header(server.token());
    handler.serve(StreamableHttpClientTransport::from_config(config)).await.expect("the connection is initialized")
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"},
    }})
}

fn delegate() -> Value {
    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "delegate", "arguments": {"agent": "echo", "task": "hello", "background": true},
    }})
}

/// Opens a session and returns its ID.
async fn session(server: &HttpServer) -> String {
    session_with(server, json!({})).await
}

async fn session_with(server: &HttpServer, capabilities: Value) -> String {
    let mut hello = initialize();
    hello["params"]["capabilities"] = capabilities;
    let (status, head) = RawRequest::new(server, "POST", "/mcp", hello).send(server).await;
    assert_eq!(status, 200, "{head}");
    let line = head.lines().find(|line| line.to_lowercase().starts_with("mcp-session-id:")).expect("a session id");
    let id = line.split_once(':').unwrap().1.trim().to_owned();
    let mut ready =
        RawRequest::new(server, "POST", "/mcp", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    ready.set("Mcp-Session-Id", &id);
    assert_eq!(ready.send(server).await.0, 202);
    id
}

type Flaw = (String, Box<dyn Fn(&mut RawRequest)>);

fn flaw(name: impl Into<String>, change: impl Fn(&mut RawRequest) + 'static) -> Flaw {
    (name.into(), Box::new(change))
}

fn flaws(server: &HttpServer) -> Vec<Flaw> {
    let mut flaws = token_flaws(server.token());
    flaws.extend(request_flaws());
    flaws.extend(host_and_origin_flaws(server.address().port()));
    flaws
}

fn token_flaws(token: &str) -> Vec<Flaw> {
    vec![
        flaw("no token", |request| request.unset("Authorization")),
        flaw("bad token", |request| request.set("Authorization", &format!("Bearer {}", "0".repeat(64)))),
        flaw("empty token", |request| request.set("Authorization", "Bearer ")),
        flaw("h16 half a token", {
            let half = format!("Bearer {}", &token[..32]);
            move |request| request.set("Authorization", &half)
        }),
        flaw("another scheme", {
            let basic = format!("Basic {token}");
            move |request| request.set("Authorization", &basic)
        }),
        flaw("h6 token in the query", {
            let query = format!("?token={token}&access_token={token}");
            move |request| {
                request.unset("Authorization");
                request.path += &query;
            }
        }),
        flaw("two tokens", |request| request.headers.push(("Authorization".into(), "Bearer x".into()))),
    ]
}

fn request_flaws() -> Vec<Flaw> {
    vec![
        flaw("h2 no Host", |request| request.unset("Host")),
        flaw("h2 two Hosts", |request| request.headers.push(("Host".into(), "evil.example".into()))),
        flaw("h2 absolute address elsewhere", |request| request.path = format!("http://evil.example{}", request.path)),
        flaw("h5 simple POST", |request| {
            request.unset("Authorization");
            request.set("Content-Type", "text/plain");
        }),
        flaw("h5 form", |request| {
            request.unset("Authorization");
            request.set("Content-Type", "application/x-www-form-urlencoded");
        }),
        flaw("h4 WebSocket of another site", |request| {
            request.set("Origin", "http://evil.example");
            request.set("Upgrade", "websocket");
            request.set("Connection", "Upgrade");
        }),
    ]
}

fn host_and_origin_flaws(port: u16) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let other = port ^ 1;
    for host in [
        "evil.com".to_owned(),
        format!("evil.com:{port}"),
        format!("localhost:{other}"),
        "localhost".to_owned(),
        format!("localhost.evil.com:{port}"),
        format!("127.0.0.1.nip.io:{port}"),
        format!("user@localhost:{port}"),
        format!("0.0.0.0:{port}"),
        String::new(),
    ] {
        flaws.push(flaw(format!("h1 h2 Host {host:?}"), move |request| request.set("Host", &host)));
    }
    for origin in [
        "null".to_owned(),
        "http://evil.example".to_owned(),
        "http://localhost.evil".to_owned(),
        format!("http://localhost:{other}"),
        "http://localhost".to_owned(),
        format!("file://localhost:{port}"),
        String::new(),
    ] {
        flaws.push(flaw(format!("h3 Origin {origin:?}"), move |request| request.set("Origin", &origin)));
    }
    for site in ["cross-site", "same-site", "", "x"] {
        flaws.push(flaw(format!("Sec-Fetch-Site {site:?}"), move |request| request.set("Sec-Fetch-Site", site)));
    }
    flaws
}

#[tokio::test]
async fn inv43_every_route_refuses_every_flawed_request() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    let session = session(&server).await;
    let mut routes = Vec::new();
    for method in ["GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"] {
        for path in ["/mcp", "/", "/other"] {
            routes.push(RawRequest::new(&server, method, path, delegate()));
        }
    }
    routes.push(RawRequest::new(&server, "POST", "/mcp", initialize()));
    let mut tried = 0;
    for route in &routes {
        for (name, change) in flaws(&server) {
            let mut request = route.clone();
            request.set("Mcp-Session-Id", &session);
            change(&mut request);
            let (status, answer) = request.send(&server).await;
            assert!([401, 403].contains(&status), "{} {} with {name}: {answer}", request.method, request.path);
            let head = answer.to_lowercase();
            assert!(head.contains("content-security-policy") && !head.contains("access-control"), "{answer}");
            assert!(!head.contains("mcp-session-id"), "{answer}");
            tried += 1;
        }
    }
    assert!(tried > 500, "{tried}");
    assert!(homing.runtime().statistics().by_status.is_empty(), "no run was started");
    let mut fine = RawRequest::new(&server, "POST", "/mcp", delegate());
    fine.set("Mcp-Session-Id", &session);
    assert_eq!(fine.send(&server).await.0, 200, "the session still works");
    until("its run", || homing.runtime().list(Status::Done).len() == 1).await;
}

#[tokio::test]
async fn http_client_delegates_gets_progress_and_cancels() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    let recorder = RecordingClient::default();
    let connection = client(&server, recorder.clone()).await;
    assert_eq!(connection.list_all_tools().await.unwrap().len(), 6);
    let done = call_tool(&connection, "delegate", json!({"agent": "echo", "task": "send"})).await;
    assert_eq!(data(&done)["children"][0]["agent"], "helper");
    let run = start(&connection, "hang").await;
    let waits = tokio::spawn({
        let (peer, run) = (connection.peer().clone(), run.clone());
        async move { call_tool(&peer, "wait", json!({"runs": [run]})).await }
    });
    until("progress", || recorder.progress_contains("echo 1 calls hang") || recorder.progress_contains("echo running"))
        .await;
    assert_eq!(data(&call_tool(&connection, "cancel", json!({"run": run})).await)["cancelled"], true);
    assert_eq!(data(&waits.await.unwrap())["runs"][0]["status"], "cancelled");
}

#[tokio::test]
async fn m14_http_clients_cannot_access_each_others_runs() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    let (one, other) =
        (client(&server, RecordingClient::default()).await, client(&server, RecordingClient::default()).await);
    let run = start(&one, "hang").await;
    for (name, args) in [
        ("cancel", json!({"run": run})),
        ("tell", json!({"run": run, "message": "x"})),
        ("wait", json!({"runs": [run]})),
    ] {
        assert_eq!(call_tool(&other, name, args).await.is_error, Some(true), "{name}");
    }
    assert_eq!(data(&call_tool(&other, "runs", json!({})).await)["runs"], json!([]));
    assert_eq!(homing.runtime().list(Status::Cancelled).len(), 0);
    one.cancel().await.unwrap();
    until("runs are cancelled when their client disconnects", || homing.runtime().list(Status::Cancelled).len() == 1)
        .await;
}

#[tokio::test]
async fn m14_h14_unknown_or_missing_session_starts_nothing() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    session(&server).await;
    let mut guessed = RawRequest::new(&server, "POST", "/mcp", delegate());
    guessed.set("Mcp-Session-Id", "019a0000-0000-7000-8000-000000000000");
    assert_eq!(guessed.send(&server).await.0, 404);
    let none = RawRequest::new(&server, "POST", "/mcp", delegate()).send(&server).await;
    assert!((400..500).contains(&none.0), "{}", none.1);
    for version in ["2026-07-28", "2025-06-18"] {
        let mut body = delegate();
        body["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let mut lone = RawRequest::new(&server, "POST", "/mcp", body);
        lone.set("MCP-Protocol-Version", version);
        lone.set("Mcp-Method", "tools/call");
        lone.set("Mcp-Name", "delegate");
        let (_, answer) = lone.send(&server).await;
        assert!(!answer.contains("has started"), "{answer}");
    }
    assert!(homing.runtime().statistics().by_status.is_empty());
}

#[tokio::test]
async fn permission_is_asked_over_http() {
    let handler = Arc::new(ElicitationHandler::new());
    let homing = Arc::new(builder().on_ask(handler.clone()).build().unwrap());
    let mut options = ServerOptions::default();
    options.permission_handler = Some(handler);
    let server = server(homing, options).await;
    let recorder = RecordingClient { answer: Some(json!(true)), ..RecordingClient::default() };
    let connection = client(&server, recorder.clone()).await;
    let done = call_tool(&connection, "delegate", json!({"agent": "echo", "task": "risk"})).await;
    assert_eq!(data(&done)["output"], "echo: did the risky thing");
    let question = recorder.received.lock().unwrap().questions[0].clone();
    assert_eq!(question, "allow echo to use risky?");
}

#[tokio::test]
async fn question_is_sent_within_the_request_that_waits() {
    let handler = Arc::new(ElicitationHandler::new());
    let homing = Arc::new(builder().on_ask(handler.clone()).build().unwrap());
    let mut options = ServerOptions::default();
    options.permission_handler = Some(handler);
    let server = server(homing, options).await;
    // This client reads only the response of its request.
    let session = session_with(&server, json!({"elicitation": {}})).await;
    let mut body = delegate();
    body["params"]["arguments"] = json!({"agent": "echo", "task": "risk"});
    let mut request = RawRequest::new(&server, "POST", "/mcp", body);
    request.set("Mcp-Session-Id", &session);
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(request.bytes().as_bytes()).await.unwrap();
    let (_, asked) = read_to(&mut stream, "elicitation/create").await;
    let id = asked.split("\"id\":").nth(1).and_then(|rest| rest.split([',', '}']).next()?.parse::<u64>().ok());
    let yes = json!({"action": "accept", "content": {"answer": true}});
    let mut reply =
        RawRequest::new(&server, "POST", "/mcp", json!({"jsonrpc": "2.0", "id": id.unwrap(), "result": yes}));
    reply.set("Mcp-Session-Id", &session);
    assert_eq!(reply.send(&server).await.0, 202);
    let (_, done) = read_to(&mut stream, "did the risky thing").await;
    assert!(done.contains("did the risky thing"), "{done}");
}

#[tokio::test]
async fn other_content_types_and_paths_are_refused_with_a_token() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    for kind in ["text/plain", "multipart/form-data", "application/jsonx", ""] {
        let mut request = RawRequest::new(&server, "POST", "/mcp", initialize());
        request.set("Content-Type", kind);
        assert_eq!(request.send(&server).await.0, 415, "h5 {kind}");
    }
    for path in ["/..%2fmcp", "/x/../mcp", "//mcp", "/mcp%00", "/mcp/", "/MCP", "/.env"] {
        let (status, answer) = RawRequest::new(&server, "POST", path, initialize()).send(&server).await;
        assert_eq!(status, 404, "h7 {path}: {answer}");
    }
}

#[tokio::test]
async fn h10_ambiguous_body_length_cannot_smuggle_a_request() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n",
        server.address(),
        server.token()
    );
    let body = initialize().to_string();
    let (size, chunked) = (body.len(), format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
    let second = format!("{head}Content-Length: {size}\r\n\r\n{body}");
    for more in [
        format!("Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}", chunked.len() + second.len()),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {size}\r\n\r\n{chunked}"),
        format!("Content-Length: {size}\r\nContent-Length: 4\r\n\r\n{body}"),
        format!("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n{chunked}"),
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(format!("{head}{more}{second}").as_bytes()).await.unwrap();
        let mut all = Vec::new();
        let ended = timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await;
        let all = String::from_utf8_lossy(&all);
        assert!(ended.is_ok(), "the connection is closed: {more}: {all}");
        assert_eq!(all.matches("HTTP/1.1 ").count(), 1, "{more}: {all}");
    }
}

#[tokio::test]
async fn h12_large_body_and_large_head_are_refused() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n",
        server.address(),
        server.token()
    );
    let stated = format!("{head}Content-Length: 104857600\r\n\r\n");
    assert_eq!(raw(server.address(), stated.as_bytes()).await.0, 413);
    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    (0..20).for_each(|_| chunked.extend(format!("10000\r\n{}\r\n", " ".repeat(0x10000)).bytes()));
    assert_eq!(raw(server.address(), &chunked).await.0, 413);
    let long = format!("GET /mcp HTTP/1.1\r\nHost: {}\r\nX: {}\r\n\r\n", server.address(), "x".repeat(40_000));
    assert_eq!(raw(server.address(), long.as_bytes()).await.0, 431);
}

#[tokio::test]
async fn h11_slow_client_is_disconnected() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    let slow_head = raw(server.address(), b"GET /mcp HTTP/1.1\r\nHost: ");
    let body = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        server.address(),
        server.token()
    );
    let slow_body = raw(server.address(), body.as_bytes());
    let (head, body) = tokio::join!(slow_head, slow_body);
    assert!([0, 408].contains(&head.0), "the connection is closed: {}", head.1);
    assert_eq!(body.0, 408, "{}", body.1);
}

#[tokio::test]
async fn h13_clients_with_a_token_wait_beyond_64_connections() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    let request = RawRequest::new(&server, "GET", "/mcp", Value::Null);
    let mut known = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(request.bytes().as_bytes()).await.unwrap();
        assert_ne!(answer(&mut stream).await.0, 0, "the connection stays open");
        known.push(stream);
    }
    let mut late = TcpStream::connect(server.address()).await.unwrap();
    late.write_all(request.bytes().as_bytes()).await.unwrap();
    assert!(timeout(Duration::from_millis(500), late.readable()).await.is_err(), "there is no answer yet");
    known.pop();
    assert_ne!(answer(&mut late).await.0, 0);
}

#[tokio::test]
async fn h13_idle_connections_without_a_token_keep_no_client_out() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    let mut idle = Vec::new();
    for at in 0..200 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        if at % 2 == 0 {
            stream.write_all(b"GET /mcp HTTP/1.1\r\nHost: ").await.unwrap();
        }
        idle.push(stream);
    }
    let (status, head) =
        timeout(Duration::from_secs(5), RawRequest::new(&server, "POST", "/mcp", initialize()).send(&server))
            .await
            .expect("an answer before the idle connections time out");
    assert_eq!(status, 200, "{head}");
    // The oldest connections were closed, and the newest still wait for their request.
    assert_eq!(answer(&mut idle[0]).await.0, 0);
    assert!(timeout(Duration::from_millis(100), idle[199].readable()).await.is_err());
}

#[tokio::test]
async fn h17_token_of_another_server_is_refused() {
    let homing = homing().await;
    let (one, other) =
        (server(homing.clone(), ServerOptions::default()).await, server(homing, ServerOptions::default()).await);
    let mut request = RawRequest::new(&one, "POST", "/mcp", initialize());
    request.set("Authorization", &format!("Bearer {}", other.token()));
    assert_eq!(request.send(&one).await.0, 401);
}

#[tokio::test]
async fn public_address_must_be_allowed_explicitly() {
    let homing = homing().await;
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused =
            serve_http(homing.clone(), address.parse().unwrap(), ServerOptions::default(), HttpOptions::default());
        let error = refused.await.err().expect("refused").to_string();
        assert!(error.contains("can be reached from other machines"), "{error}");
    }
    let mut http = HttpOptions::default();
    http.public = true;
    let server = serve_http(homing, "0.0.0.0:0".parse().unwrap(), ServerOptions::default(), http).await.unwrap();
    assert_ne!(server.address().port(), 0);
}

#[tokio::test]
async fn stopping_the_server_cancels_runs_of_clients() {
    let homing = homing().await;
    let server = server(homing.clone(), ServerOptions::default()).await;
    let address = server.address();
    let connection = client(&server, RecordingClient::default()).await;
    start(&connection, "hang").await;
    server.stop(Duration::from_secs(3)).await;
    assert_eq!(homing.runtime().list(Status::Cancelled).len(), 1);
    until("the port is closed", || std::net::TcpStream::connect(address).is_err()).await;
}
