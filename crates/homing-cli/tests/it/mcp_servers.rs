//! `homing mcp add`, `list`, `remove` and `login`, and remote servers: OAuth, server-sent events, older revisions.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::world::*;

/// A remote MCP server on loopback: `/mcp` needs a token, `/old` speaks only the oldest revision, `/sse` the older transport.
struct Remote {
    port: u16,
    /// The parameters of every `initialize`.
    introduced: Arc<Mutex<Vec<Value>>>,
}

impl Remote {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let introduced: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (seen, events) = (introduced.clone(), Arc::new(Mutex::new(None)));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, events) = (seen.clone(), events.clone());
                std::thread::spawn(move || answer(stream, port, &seen, &events));
            }
        });
        Self { port, introduced }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

/// Reads a request: its first line, whether it has the token, and its body.
fn read(stream: &TcpStream) -> Option<(String, bool, String)> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut first, mut length, mut has_token) = (String::new(), 0, false);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_lowercase();
        length = line.strip_prefix("content-length:").map_or(length, |value| value.trim().parse().unwrap_or(0));
        has_token |= line == "authorization: bearer token-of-the-test";
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((first, has_token, String::from_utf8(body).ok()?))
}

fn respond(mut stream: TcpStream, status: &str, more: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    let _ = stream.write_all(format!("{head}Connection: close\r\n{more}\r\n{body}").as_bytes());
}

fn answer(mut stream: TcpStream, port: u16, seen: &Mutex<Vec<Value>>, events: &Mutex<Option<TcpStream>>) {
    let Some((first, has_token, body)) = read(&stream) else { return };
    let base = format!("http://127.0.0.1:{port}");
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let is_post = first.starts_with("POST");
    match path.split('?').next().unwrap_or_default() {
        "/mcp" if !has_token => {
            let challenge = format!(
                "WWW-Authenticate: Bearer resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\"\r\n"
            );
            respond(stream, "401 Unauthorized", &challenge, "{}");
        }
        "/mcp" | "/old" if !is_post => respond(stream, "405 Method Not Allowed", "", "{}"),
        "/mcp" | "/old" => match rpc(&body, path == "/old", seen) {
            Some(reply) => respond(stream, "200 OK", "", &reply.to_string()),
            None => respond(stream, "202 Accepted", "", ""),
        },
        "/sse" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
            let _ = stream.write_all(format!("{head}event: endpoint\r\ndata: /messages?s=1\r\n\r\n").as_bytes());
            *events.lock().unwrap() = Some(stream);
        }
        "/messages" => {
            respond(stream, "202 Accepted", "", "");
            if let Some(reply) = rpc(&body, true, seen) {
                let event = format!("event: message\ndata: {reply}\n\n");
                let _ = events.lock().unwrap().as_mut().unwrap().write_all(event.as_bytes());
            }
        }
        _ => sign_in(stream, &path, &base, &body),
    }
}

/// Answers the requests of the OAuth sign-in.
fn sign_in(stream: TcpStream, path: &str, base: &str, body: &str) {
    match path {
        "/.well-known/oauth-protected-resource/mcp" | "/.well-known/oauth-protected-resource" => {
            let body = json!({"resource": format!("{base}/mcp"), "authorization_servers": [base]});
            respond(stream, "200 OK", "", &body.to_string());
        }
        "/.well-known/oauth-authorization-server" => {
            let body = json!({
                "issuer": base,
                "authorization_endpoint": format!("{base}/authorize"),
                "token_endpoint": format!("{base}/token"),
                "registration_endpoint": format!("{base}/register"),
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            });
            respond(stream, "200 OK", "", &body.to_string());
        }
        "/register" => {
            let asked: Value = serde_json::from_str(body).unwrap();
            assert_eq!(asked["client_name"], "Homing");
            let body = json!({"client_id": "client-1", "redirect_uris": asked["redirect_uris"]});
            respond(stream, "201 Created", "", &body.to_string());
        }
        "/token" => {
            assert!(body.contains("code=the-code") && body.contains("code_verifier="), "{body}");
            let body = json!({"access_token": "token-of-the-test", "token_type": "bearer", "expires_in": 3600});
            respond(stream, "200 OK", "", &body.to_string());
        }
        _ => respond(stream, "404 Not Found", "", "{}"),
    }
}

/// Answers a JSON-RPC request. A strict old server refuses revisions that it does not know.
fn rpc(body: &str, is_old: bool, seen: &Mutex<Vec<Value>>) -> Option<Value> {
    let request: Value = serde_json::from_str(body).ok()?;
    let id = request.get("id")?.clone();
    let version = &request["params"]["protocolVersion"];
    let result = match request["method"].as_str()? {
        "initialize" => {
            seen.lock().unwrap().push(request["params"].clone());
            if is_old && version != "2024-11-05" {
                let data = json!({"supported": ["2024-11-05"], "requested": version});
                let error = json!({"code": -32602, "message": "Unsupported protocol version", "data": data});
                return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
            let capabilities = json!({"tools": {}});
            json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": {"name": "test", "version": "1"}})
        }
        "tools/list" => {
            json!({"tools": [{"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object"}}]})
        }
        _ => json!({}),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn config(world: &World) -> String {
    fs::read_to_string(world.home.path().join(".config/homing/config.toml")).unwrap()
}

#[test]
fn servers_are_added_listed_and_removed() {
    let world = World::saying("x");
    world.configure("# mine");
    let before = config(&world);
    let add = ["mcp", "add", "files", "--env", "TOKEN=${GH}", "--", "npx", "-y", "some-server"];
    assert_eq!(code(&world.homing(&add)), 0);
    assert_eq!(code(&world.homing(&add)), 2, "a name is used once");
    assert_eq!(code(&world.homing(&["mcp", "add", "far", "ftp://x"])), 2);
    assert_eq!(
        code(&world.homing(&["mcp", "add", "far", "https://x/sse", "--transport", "sse", "--header", "A: b"])),
        0
    );
    let listed = json(&world.homing(&["mcp", "list", "--json"]));
    let row = |at: usize| (listed[at]["name"].as_str().unwrap(), listed[at]["server"].as_str().unwrap());
    assert_eq!([row(0), row(1)], [("far", "https://x/sse"), ("files", "npx -y some-server")]);
    assert_eq!(listed[0]["state"], "not approved");
    world.write(".mcp.json", r#"{"mcpServers": {"db": {"command": "db"}}}"#);
    let listed = world.homing(&["mcp", "list"]);
    assert!(
        !out(&listed).contains("db") && err(&listed).contains("the servers of .mcp.json are left out"),
        "{}",
        err(&listed)
    );
    assert_eq!(code(&world.homing(&["trust", "--yes"])), 0);
    let listed = world.homing(&["mcp", "list"]);
    assert!(out(&listed).contains("db  ") && !err(&listed).contains("left out"), "{}", out(&listed));
    for name in ["files", "far"] {
        assert_eq!(code(&world.homing(&["mcp", "remove", name])), 0);
    }
    assert_eq!(config(&world).trim(), before.trim(), "the rest is as it was");
    assert_eq!(code(&world.homing(&["mcp", "remove", "files"])), 2);
}

#[test]
fn user_signs_in_to_a_remote_server() {
    let (world, remote) = (World::saying("x"), Remote::start());
    assert_eq!(code(&world.homing(&["mcp", "add", "r", &remote.url("/mcp")])), 0);
    let refused = world.homing(&["trust", "--server", "r", "--yes"]);
    assert_eq!(code(&refused), 2);
    let said = err(&refused);
    assert!(said.contains("requires authorization (401") && said.contains("homing mcp login r"), "{said}");

    let mut login = world.command(&["mcp", "login", "r"]).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(login.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let parameter = |name: &str| {
        let query = address.trim().split_once('?').unwrap().1;
        let value = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}="))).unwrap();
        value.replace("%3A", ":").replace("%2F", "/")
    };
    assert!(address.starts_with(&remote.url("/authorize")), "{address}");
    let redirect = parameter("redirect_uri");
    let (host, path) = redirect.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut browser = TcpStream::connect(host).unwrap();
    let request = format!("GET /{path}?code=the-code&state={} HTTP/1.1\r\nHost: {host}\r\n\r\n", parameter("state"));
    browser.write_all(request.as_bytes()).unwrap();
    let mut page = String::new();
    browser.read_to_string(&mut page).unwrap();
    assert!(page.contains("You are signed in"), "{page}");
    let ended = login.wait_with_output().unwrap();
    assert_eq!(code(&ended), 0, "{}", err(&ended));

    let folder = world.home.path().join(".local/share/homing/mcp-tokens");
    let token = fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    assert_eq!(token.metadata().unwrap().permissions().mode() & 0o777, 0o600, "the token is private");
    let approved = world.homing(&["trust", "--server", "r", "--yes"]);
    assert_eq!(code(&approved), 0, "{}", err(&approved));
    assert!(out(&approved).contains("mcp__r__echo"), "{}", out(&approved));
    let introduced = remote.introduced.lock().unwrap()[0].clone();
    assert_eq!(introduced["clientInfo"]["name"], "homing");
    assert_eq!(introduced["clientInfo"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(code(&world.homing(&["mcp", "logout", "r"])), 0);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn older_servers_are_asked_for_the_revision_and_transport_they_know() {
    let (world, remote) = (World::saying("x"), Remote::start());
    assert_eq!(code(&world.homing(&["mcp", "add", "old", &remote.url("/old")])), 0);
    assert_eq!(code(&world.homing(&["mcp", "add", "sse", &remote.url("/sse"), "--transport", "sse"])), 0);
    assert_eq!(code(&world.homing(&["mcp", "add", "wrong", &remote.url("/nothing")])), 0);
    for name in ["old", "sse"] {
        let approved = world.homing(&["trust", "--server", name, "--yes"]);
        assert_eq!(code(&approved), 0, "{name}: {}", err(&approved));
        assert!(out(&approved).contains(&format!("mcp__{name}__echo")), "{}", out(&approved));
    }
    let introduced = remote.introduced.lock().unwrap();
    let versions: Vec<&str> = introduced.iter().map(|params| params["protocolVersion"].as_str().unwrap()).collect();
    assert_eq!(versions, ["2025-11-25", "2024-11-05", "2025-11-25", "2024-11-05"]);
    drop(introduced);
    let refused = err(&world.homing(&["trust", "--server", "wrong", "--yes"]));
    assert!(refused.contains("404") && refused.contains("sse"), "{refused}");
}
