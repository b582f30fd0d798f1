//! Commands that may reach only listed hosts, under every back-end that can enforce this.
#![allow(clippy::print_stderr)]

use std::{
    io::{Read, Write},
    net::{TcpListener, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::command_fixture::{CommandFixture, each};
use homing_core::{
    authority::{Network, Sandbox},
    tool::{Tool, ToolOutput},
};
use homing_tools::shell::bash::Bash;
use serde_json::json;

/// A server that answers every request and counts them.
struct Host {
    port: u16,
    visitors: Arc<AtomicUsize>,
}

impl Host {
    fn at(address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let visitors = Arc::new(AtomicUsize::new(0));
        let count = visitors.clone();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 4096];
                let len = stream.read(&mut request).unwrap_or(0);
                let asked = String::from_utf8_lossy(&request[..len]).lines().next().unwrap_or_default().to_owned();
                let body = format!("hello, you asked {asked}");
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close", body.len());
                let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
            }
        });
        Self { port, visitors }
    }

    fn visitors(&self) -> usize {
        self.visitors.load(Ordering::SeqCst)
    }
}

async fn run(fixture: &CommandFixture, sandbox: Sandbox, hosts: &[&str], command: &str) -> ToolOutput {
    let mut grant = fixture.grant(sandbox);
    grant.network = Network::Hosts(hosts.iter().map(|host| (*host).to_owned()).collect());
    let tool = Bash::new(fixture.commands.clone());
    tool.call(&fixture.context(grant), json!({"command": command, "timeout": 60})).await
}

/// Returns the fixtures whose back-ends support host lists, and prints the others.
async fn able() -> Vec<(&'static str, CommandFixture)> {
    let mut able = Vec::new();
    for (name, fixture) in each().await {
        if fixture.commands.sandboxes().await.can_restrict_hosts() {
            able.push((name, fixture));
        } else {
            eprintln!("not tested on this machine: {name} cannot create a separate network");
        }
    }
    able
}

/// Sends one raw request to the proxy: `ask 'CONNECT a:1 HTTP/1.1'`.
const ASK: &str = r#"ask() { exec 3<>/dev/tcp/127.0.0.1/3128 && printf '%s\r\n\r\n' "$1" >&3 && timeout 10 cat <&3; exec 3>&-; echo; }
"#;

#[tokio::test]
async fn listed_host_is_reached_only_through_the_proxy() {
    let (listed, other) = (Host::at("127.0.0.1"), Host::at("127.0.0.2"));
    for (name, fixture) in able().await {
        for sandbox in [Sandbox::WorkspaceWrite, Sandbox::ReadOnly] {
            let before = listed.visitors();
            let script = format!(
                "{ASK}
                ask 'GET http://127.0.0.1:{0}/plain?x HTTP/1.1'
                exec 4<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT 127.0.0.1:{0} HTTP/1.1\\r\\n\\r\\n' >&4
                read -r line <&4; echo \"$line\"; read -r line <&4; printf 'GET /tunnel HTTP/1.1\\r\\n\\r\\n' >&4; timeout 10 cat <&4",
                listed.port
            );
            let output = run(&fixture, sandbox, &["127.0.0.1"], &script).await;
            assert!(output.text.contains("you asked GET /plain?x HTTP/1.1"), "{name}: {}", output.text);
            assert!(output.text.contains("200 Connection established"), "{name}: {}", output.text);
            assert!(output.text.contains("you asked GET /tunnel HTTP/1.1"), "{name}: {}", output.text);
            assert_eq!(listed.visitors(), before + 2, "{name}");
        }
        let script = format!(
            "{ASK}
            ask 'GET http://127.0.0.2:{1}/ HTTP/1.1'; ask 'CONNECT 127.0.0.2:{1} HTTP/1.1'
            ask 'CONNECT localhost:{1} HTTP/1.1'; ask 'CONNECT [::ffff:127.0.0.2]:{1} HTTP/1.1'; ask 'CONNECT 2130706434:{1} HTTP/1.1'
            (exec 5<>/dev/tcp/127.0.0.1/{0}) 2>/dev/null && echo around
            (exec 5<>/dev/tcp/127.0.0.2/{1}) 2>/dev/null && echo around
            echo end",
            listed.port, other.port
        );
        let before = (listed.visitors(), other.visitors());
        let output = run(&fixture, Sandbox::WorkspaceWrite, &["127.0.0.1"], &script).await;
        assert_eq!(output.text.matches("403 Forbidden").count(), 4, "{name}: {}", output.text);
        // A number is a notation of an address that the proxy does not read.
        let unread = format!("`2130706434:{}` is not a host and a port", other.port);
        assert!(output.text.contains(&unread), "{name}: {}", output.text);
        assert!(output.text.contains("commands may not reach 127.0.0.2") && !output.text.contains("around"), "{name}");
        assert_eq!((listed.visitors(), other.visitors()), before, "{name}: {}", output.text);
    }
}

/// Attempts to bypass the proxy; each prints a word if it succeeds.
const AROUND: &str = r#"
import socket, struct
def tries(word, act):
    try: act(); print(word)
    except OSError: pass
def udp(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", UDP))
def direct(): socket.create_connection(("127.0.0.1", PORT), 3)
def six(): socket.create_connection(("::ffff:127.0.0.1", PORT), 3)
def public(): socket.create_connection(("1.1.1.1", 3128), 3)
def raw(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
def packet(): socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
def other(): socket.socket(socket.AF_UNIX).connect("SOCKET")
def netlink():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    # A route to everywhere through the loopback.
    s.send(struct.pack("IHHIIBBBBBBBBI", 28, 24, 0x605, 1, 0, 2, 0, 0, 0, 254, 3, 0, 1, 0))
    if struct.unpack_from("i", s.recv(100), 16)[0] == 0: print("route")
udp()
for act in [direct, six, public, raw, packet, other]: tries(act.__name__, act)
try: netlink()
except OSError: pass
"#;

#[tokio::test]
async fn inv39_proxy_cannot_be_bypassed() {
    let listed = Host::at("127.0.0.1");
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    for (name, fixture) in able().await {
        let socket = fixture.outside.join("socket");
        let _unix = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let script = AROUND
            .replace("PORT", &listed.port.to_string())
            .replace("UDP", &udp.local_addr().unwrap().port().to_string())
            .replace("SOCKET", &socket.display().to_string());
        let script = format!("cat > a.py <<'END'\n{script}\nEND\npython3 a.py; echo end");
        let output = run(&fixture, Sandbox::WorkspaceWrite, &["127.0.0.1"], &script).await;
        assert_eq!(output.text, "end", "{name}");
        assert!(udp.recv(&mut [0; 8]).is_err(), "{name}: a packet got out");
        assert_eq!(listed.visitors(), 0, "{name}");
    }
}

#[tokio::test]
async fn programs_use_the_proxy_except_for_their_own_loopback() {
    let listed = Host::at("127.0.0.1");
    for (name, fixture) in able().await {
        let script = format!(
            "python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:{0}/py\").read().decode())'
            command -v curl >/dev/null && curl -sS http://127.0.0.1:{0}/curl || echo no curl; echo",
            listed.port
        );
        let output = run(&fixture, Sandbox::WorkspaceWrite, &["127.0.0.1"], &script).await;
        assert!(output.text.contains("you asked GET /py"), "{name}: {}", output.text);
        assert!(
            output.text.contains("you asked GET /curl") || output.text.contains("no curl"),
            "{name}: {}",
            output.text
        );
        let own = "python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & for i in $(seq 100); do
            python3 -c 'import urllib.request as r; print(r.urlopen(\"http://127.0.0.1:8123/\").status)' 2>/dev/null && break; sleep 0.1; done";
        let output = run(&fixture, Sandbox::WorkspaceWrite, &["example.org"], own).await;
        assert!(output.text.starts_with("200"), "{name}: {}", output.text);
    }
}

#[tokio::test]
async fn concurrent_commands_have_separate_proxies() {
    let listed = Host::at("127.0.0.1");
    for (name, fixture) in able().await {
        let script = format!("{ASK} ask 'GET http://127.0.0.1:{}/ HTTP/1.1'", listed.port);
        let (allowed, denied) = tokio::join!(
            run(&fixture, Sandbox::WorkspaceWrite, &["127.0.0.1"], &script),
            run(&fixture, Sandbox::WorkspaceWrite, &["example.org"], &script),
        );
        assert!(
            allowed.text.contains("200 OK") && denied.text.contains("403 Forbidden"),
            "{name}: {} {}",
            allowed.text,
            denied.text
        );
        let sockets = std::fs::read_dir(&fixture.commands.private).unwrap().flatten();
        let left = sockets.flat_map(|run| std::fs::read_dir(run.path()).into_iter().flatten().flatten());
        assert!(
            !left.into_iter().any(|entry| entry.path().extension().is_some_and(|extension| extension == "proxy")),
            "{name}"
        );
    }
}
