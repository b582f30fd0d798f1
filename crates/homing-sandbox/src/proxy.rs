//! HTTP proxy for commands that may reach a list of hosts. It runs in the host process, one per command. It has no keys,
//! stores nothing, and never inspects the content of a tunnel.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homing_core::authority::Network;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpStream, UnixListener, UnixStream},
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::{egress::Reach, process::RELAY_PORT};

/// Maximum number of open connections per command; further ones wait.
const MAX_OPEN: usize = 64;

/// Maximum size of a request's head in bytes.
const MAX_HEAD: usize = 16 << 10;

/// Time limit for reading a request's head, and again for resolving and connecting to its host.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A proxy behind a local socket. Dropping it closes the socket and every connection.
#[derive(Debug)]
pub struct Proxy {
    /// The socket that the command connects to.
    pub socket: PathBuf,
    serving: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy for the listed hosts, on a socket in `folder`, which must be private to the user.
    ///
    /// # Errors
    /// Fails if the socket cannot be created.
    pub fn start(folder: &Path, hosts: &[String]) -> io::Result<Self> {
        let socket = folder.join(format!("{}.proxy", &uuid::Uuid::new_v4().simple().to_string()[..8]));
        let listener = UnixListener::bind(&socket)?;
        let serving = tokio::spawn(serve(listener, Arc::new(HostList { names: hosts.to_vec() })));
        Ok(Self { socket, serving })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Returns the variables that make programs use the proxy. Loopback addresses stay in the command's own network, unless
/// they are on the list.
pub(crate) fn env(hosts: &[String]) -> BTreeMap<String, String> {
    let proxy = format!("http://127.0.0.1:{RELAY_PORT}");
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let tools = ["CARGO_HTTP_PROXY", "npm_config_proxy", "npm_config_https_proxy"];
    let mut env: BTreeMap<String, String> =
        names.iter().chain(&tools).map(|name| ((*name).to_owned(), proxy.clone())).collect();
    let own = ["localhost", "127.0.0.1", "::1"].into_iter().filter(|own| !hosts.iter().any(|host| host == own));
    let own = own.collect::<Vec<_>>().join(",");
    env.extend(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), own.clone())));
    env.insert("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    env
}

async fn serve(listener: UnixListener, hosts: Arc<HostList>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if open.len() < MAX_OPEN => match accepted {
                Ok((client, _)) => drop(open.spawn(handle(client, hosts.clone()))),
                // Most likely out of file descriptors, which other connections will release.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = open.join_next() => (),
        }
    }
}

async fn handle(mut client: UnixStream, hosts: Arc<HostList>) {
    let Err(ProxyRefusal { status, why }) = forward(&mut client, &hosts).await else { return };
    let body = format!("homing: {why}\n");
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}", body.len());
    let _ = client.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes()).await;
    let _ = client.shutdown().await;
}

/// Forwards one request, and everything that follows it, to the host that it names.
async fn forward(client: &mut UnixStream, hosts: &HostList) -> Result<(), ProxyRefusal> {
    let late = |_| ProxyRefusal::new("408 Request Timeout", "the request took too long");
    let (head, rest) = timeout(TIMEOUT, read_head(client)).await.map_err(late)??;
    let request = ProxyRequest::parse(&head)?;
    let late = |_| ProxyRefusal::new("504 Gateway Timeout", format!("cannot reach {} in time", request.host));
    let mut server = timeout(TIMEOUT, hosts.connect(&request)).await.map_err(late)??;
    let begun = match &request.head {
        Some(head) => server.write_all(head.as_bytes()).await,
        None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
    };
    let copied = async {
        begun?;
        server.write_all(&rest).await?;
        copy_bidirectional(client, &mut server).await
    };
    // The side that closed the connection needs no report.
    let _ = copied.await;
    Ok(())
}

/// Reads the head of a request; returns it and the bytes that already followed it.
async fn read_head(client: &mut UnixStream) -> Result<(Vec<u8>, Vec<u8>), ProxyRefusal> {
    let mut head = Vec::new();
    let mut buffer = [0; 4 << 10];
    loop {
        let len = client.read(&mut buffer).await.unwrap_or(0);
        if len == 0 {
            return Err(ProxyRefusal::new("400 Bad Request", "the request ended early"));
        }
        head.extend_from_slice(&buffer[..len]);
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = head.split_off(end + 4);
            return Ok((head, rest));
        }
        if head.len() > MAX_HEAD {
            return Err(ProxyRefusal::new("431 Request Header Fields Too Large", "the request head is too long"));
        }
    }
}

/// The refusal of a request, as an HTTP status and a message.
#[derive(Debug)]
struct ProxyRefusal {
    status: &'static str,
    why: String,
}

impl ProxyRefusal {
    fn new(status: &'static str, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }

    fn malformed(why: impl Into<String>) -> Self {
        Self::new("400 Bad Request", why)
    }
}

/// The target of a request.
#[derive(Debug, PartialEq, Eq)]
struct ProxyRequest {
    /// Lower case, without brackets. A numeric host is in the standard notation of its address.
    host: String,
    port: u16,
    /// The head to send to the host; `None` for a tunnel.
    head: Option<String>,
}

impl ProxyRequest {
    fn parse(head: &[u8]) -> Result<Self, ProxyRefusal> {
        let text =
            std::str::from_utf8(head).map_err(|_| ProxyRefusal::malformed("the request head is not valid UTF-8"))?;
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let &[method, target, "HTTP/1.1" | "HTTP/1.0"] = first.as_slice() else {
            return Err(ProxyRefusal::malformed("not a proxy request"));
        };
        // Headers that two parsers could read differently are refused, because they can hide a second request.
        let fields: Vec<&str> = lines.collect();
        let is_plain = |line: &&str| line.contains(':') && !line.starts_with([' ', '\t']) && !line.contains(is_control);
        if text.contains(['\0', '\u{7f}']) || !fields.iter().all(is_plain) {
            return Err(ProxyRefusal::malformed("a header of the request is malformed"));
        }
        match method {
            "CONNECT" => Self::tunnel(target),
            _ if method.bytes().all(|byte| byte.is_ascii_uppercase()) => Self::plain(method, target, &fields),
            _ => Err(ProxyRefusal::malformed("the request method is malformed")),
        }
    }

    fn tunnel(target: &str) -> Result<Self, ProxyRefusal> {
        Self::to(target, None)
    }

    /// Rewrites a request into the form that the host expects, with `Connection: close`, so that no second request can follow.
    fn plain(method: &str, target: &str, fields: &[&str]) -> Result<Self, ProxyRefusal> {
        let Some(address) = target.strip_prefix("http://").filter(|address| address.is_ascii()) else {
            return Err(ProxyRefusal::malformed("only http:// is forwarded without a tunnel"));
        };
        let address = address.split('#').next().unwrap_or_default();
        let (authority, path) = address.split_at(address.find(['/', '?']).unwrap_or(address.len()));
        let slash = if path.starts_with('/') { "" } else { "/" };
        let request = Self::to(authority, Some(80))?;
        let name = if request.host.contains(':') { format!("[{}]", request.host) } else { request.host.clone() };
        let mut head = format!("{method} {slash}{path} HTTP/1.1\r\nHost: {name}:{}\r\n", request.port);
        let replaced = ["host", "connection", "proxy-connection", "proxy-authorization", "keep-alive"];
        let is_kept = |field: &&&str| {
            let name = field.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
            !replaced.contains(&name.as_str())
        };
        for field in fields.iter().filter(is_kept) {
            head.push_str(field);
            head.push_str("\r\n");
        }
        head.push_str("Connection: close\r\n\r\n");
        Ok(Self { head: Some(head), ..request })
    }

    /// Reads a host and a port. A host is a name, or an address in its standard notation: others, such as `0x7f.1`, could be
    /// read differently by the program that resolves them.
    fn to(authority: &str, default_port: Option<u16>) -> Result<Self, ProxyRefusal> {
        let malformed = || ProxyRefusal::malformed(format!("`{authority}` is not a host and a port"));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port.parse().ok()),
            _ => (authority, default_port),
        };
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => address.parse::<Ipv6Addr>().map_err(|_| malformed())?.to_string(),
            None => {
                let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
                Some(name).filter(|name| is_name_or_ipv4(name)).ok_or_else(malformed)?
            }
        };
        Ok(Self { host, port: port.ok_or_else(malformed)?, head: None })
    }
}

fn is_name_or_ipv4(host: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = host.split('.').all(|label| !label.is_empty() && label.bytes().all(is_letter));
    // The last label decides whether resolvers take a name for a number.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    host.parse::<Ipv4Addr>().is_ok() || (is_name && !is_number)
}

fn is_control(letter: char) -> bool {
    letter.is_control() && letter != '\t'
}

/// The hosts that may be reached.
struct HostList {
    names: Vec<String>,
}

impl HostList {
    async fn connect(&self, request: &ProxyRequest) -> Result<TcpStream, ProxyRefusal> {
        let ProxyRequest { host, port, .. } = request;
        if !Network::Hosts(self.names.clone()).allows(host) {
            let why = format!("commands may not reach {host}; they may reach {}", self.names.join(", "));
            return Err(ProxyRefusal::new("403 Forbidden", why));
        }
        let unreachable = |error: io::Error| ProxyRefusal::new("502 Bad Gateway", format!("{host}: {error}"));
        let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
            Ok(address) => vec![(address, *port).into()],
            Err(_) => tokio::net::lookup_host((host.as_str(), *port)).await.map_err(unreachable)?.collect(),
        };
        // The checked addresses are the ones connected to, so a second DNS answer cannot change them.
        if let Some(private) = found.iter().find(|address| !self.reaches(address.ip())) {
            let why = format!("{host} is {}, which is not a public address and not on the list itself", private.ip());
            return Err(ProxyRefusal::new("403 Forbidden", why));
        }
        TcpStream::connect(found.as_slice()).await.map_err(unreachable)
    }

    /// Returns true if `address` may be reached. Addresses that are not public must be on the list themselves, because a name
    /// can resolve to any address.
    fn reaches(&self, address: IpAddr) -> bool {
        let is_on_list = |host: &String| {
            host.parse() == Ok(address) || (host.eq_ignore_ascii_case("localhost") && address.is_loopback())
        };
        Reach::Public.includes(address) || self.names.iter().any(is_on_list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ProxyRequest, ProxyRefusal> {
        ProxyRequest::parse(format!("{text}\r\n\r\n").as_bytes())
    }

    #[test]
    fn t13_ambiguous_proxy_requests_are_refused() {
        let to = |text: &str| parse(text).map(|request| (request.host, request.port)).unwrap();
        assert_eq!(to("CONNECT Example.ORG:443 HTTP/1.1"), ("example.org".to_owned(), 443));
        assert_eq!(to("CONNECT example.org.:80 HTTP/1.1"), ("example.org".to_owned(), 80));
        assert_eq!(to("CONNECT [::1]:8080 HTTP/1.1"), ("::1".to_owned(), 8080));
        assert_eq!(to("CONNECT 127.0.0.1:22 HTTP/1.1"), ("127.0.0.1".to_owned(), 22));
        assert_eq!(to("GET http://[::1]?b HTTP/1.1"), ("::1".to_owned(), 80));
        assert_eq!(to("GET http://example.org:8080/a?b#c HTTP/1.1"), ("example.org".to_owned(), 8080));
        for bad in [
            "GET /etc/passwd HTTP/1.1",
            "GET https://example.org/ HTTP/1.1",
            "GET http://user@example.org/ HTTP/1.1",
            "GET file:///etc/passwd HTTP/1.1",
            "GET http://example.org/ HTTP/1.1 HTTP/1.1",
            "CONNECT example.org HTTP/1.1",
            "CONNECT 443 HTTP/1.1",
            "CONNECT a@b:443 HTTP/1.1",
            "CONNECT a/b:443 HTTP/1.1",
            "CONNECT a\\b:443 HTTP/1.1",
            "CONNECT a\0b:443 HTTP/1.1",
            "CONNECT a:99999 HTTP/1.1",
            "CONNECT 0x7f.1:22 HTTP/1.1",
            "CONNECT 2130706433:22 HTTP/1.1",
            "CONNECT 127.1:22 HTTP/1.1",
            "CONNECT ::1:22 HTTP/1.1",
            "CONNECT a..b:22 HTTP/1.1",
            "CONNECT [a]:22 HTTP/1.1",
            "CONNECT :22 HTTP/1.1",
            "CONNECT a:+22 HTTP/1.1",
            "GET http:///x HTTP/1.1",
            "GET http://\u{2460}.org/ HTTP/1.1",
            "connect a:443 HTTP/1.1",
            "GET http://a/ HTTP/1.1\r\n Host: b",
            "GET http://a/ HTTP/1.1\r\nX: y\nHost: b",
            "GET http://a/ HTTP/1.1\r\nnothing",
            "GET http://a/ HTTP/2",
            "",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn proxy_headers_are_not_forwarded_to_the_host() {
        let head = "POST http://a.org/x?y=1 HTTP/1.1\r\nHost: other.org\r\nProxy-Authorization: secret\r\nConnection: keep-alive\r\nContent-Length: 2";
        let expected = "POST /x?y=1 HTTP/1.1\r\nHost: a.org:80\r\nContent-Length: 2\r\nConnection: close\r\n\r\n";
        assert_eq!(parse(head).unwrap().head.unwrap(), expected);
    }

    #[test]
    fn t13_private_addresses_must_be_listed_themselves() {
        let reaches = |hosts: &[&str], address: &str| {
            HostList { names: hosts.iter().map(|name| (*name).to_owned()).collect() }.reaches(address.parse().unwrap())
        };
        assert!(reaches(&[], "1.1.1.1"));
        for private in ["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "::ffff:127.0.0.1"] {
            assert!(!reaches(&["*", "*.org", "a.org"], private), "{private}");
            assert!(reaches(&[private], private), "{private}");
        }
        assert!(reaches(&["localhost"], "127.0.0.1") && !reaches(&["localhost"], "10.0.0.1"));
    }

    #[test]
    fn loopback_bypasses_the_proxy_unless_listed() {
        assert_eq!(env(&["a.org".into()])["NO_PROXY"], "localhost,127.0.0.1,::1");
        assert_eq!(env(&["127.0.0.1".into()])["no_proxy"], "localhost,::1");
    }
}
