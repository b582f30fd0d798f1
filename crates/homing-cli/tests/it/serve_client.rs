//! A `homing serve` as a user starts it, and a plain HTTP client.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::world::World;

/// A running `homing serve`. Dropping it kills it.
pub struct Serve {
    pub child: Child,
    pub address: SocketAddr,
    pub token: String,
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serve {
    pub fn start(world: &World, more: &[&str]) -> Self {
        Self::start_at(world, "127.0.0.1:0", more)
    }

    /// Starts it with these variables.
    pub fn start_with(world: &World, more: &[&str], variables: &[(&str, &str)]) -> Self {
        let args: Vec<&str> = ["serve", "--listen", "127.0.0.1:0"].iter().chain(more).copied().collect();
        let mut command = world.command(&args);
        command.envs(variables.iter().copied());
        Self::of(command)
    }

    pub fn start_at(world: &World, address: &str, more: &[&str]) -> Self {
        let args: Vec<&str> = ["serve", "--listen", address].iter().chain(more).copied().collect();
        Self::of(world.command(&args))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::null()).spawn().expect("homing starts");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
        let mut value = |name: &str| {
            let line = lines.next().expect("it prints its address").unwrap();
            line.strip_prefix(name).unwrap_or_else(|| panic!("{name} in {line}")).trim().to_owned()
        };
        let url = value("url:");
        let link = value("link:");
        let address = url.split('/').nth(2).unwrap().parse().expect("an address");
        let token = link.split_once("token=").expect("the link contains the token").1.to_owned();
        Self { child, address, token }
    }

    pub fn get(&self, path: &str) -> Response {
        self.request("GET", path).send()
    }

    pub fn get_json(&self, path: &str) -> Value {
        let response = self.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        response.json()
    }

    /// A request with the token.
    pub fn request(&self, method: &str, path: &str) -> Request {
        let mut request = Request::new(self.address, method, path);
        request.headers.push(("Authorization".to_owned(), format!("Bearer {}", self.token)));
        request
    }

    /// Follows server-sent events.
    pub fn events(&self, path: &str) -> Events {
        self.request("GET", path).events()
    }
}

/// A request that is written byte by byte.
pub struct Request {
    address: SocketAddr,
    method: String,
    path: String,
    pub headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let headers = vec![("Host".to_owned(), address.to_string())];
        Self { address, method: method.to_owned(), path: path.to_owned(), headers, body: Vec::new() }
    }

    /// Sets a header, in place of one with the same name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub fn json(self, value: &Value) -> Self {
        let mut request = self.header("Content-Type", "application/json");
        request.body = value.to_string().into_bytes();
        request
    }

    /// Opens a connection and writes the request.
    pub fn open(self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        stream.write_all(head.as_bytes()).unwrap();
        // The server may refuse the head and close the connection before it has read the body.
        let _ = stream.write_all(&self.body);
        stream
    }

    pub fn send(self) -> Response {
        let request = self.header("Connection", "close");
        let mut bytes = Vec::new();
        let _ = request.open().read_to_end(&mut bytes);
        Response::parse(&bytes)
    }

    pub fn events(self) -> Events {
        let mut reader = BufReader::new(self.open());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("a response") > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        Events { reader }
    }
}

pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {} {}", self.head, self.body))
    }
}

/// A stream of server-sent events.
pub struct Events {
    reader: BufReader<TcpStream>,
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerEvent {
    pub event: String,
    pub id: Option<u64>,
    pub data: Value,
}

impl Events {
    /// Returns the next event, or `None` once the server has closed the connection.
    pub fn next(&mut self) -> Option<ServerEvent> {
        let (mut event, mut id, mut data) = (String::new(), None, String::new());
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            if line.is_empty() && !event.is_empty() {
                return Some(ServerEvent { event, id, data: serde_json::from_str(&data).expect("JSON") });
            }
            match line.split_once(": ") {
                Some(("event", name)) => event = name.to_owned(),
                Some(("id", number)) => id = number.parse().ok(),
                Some(("data", json)) => data = json.to_owned(),
                // Sizes of chunks, comments.
                _ => (),
            }
        }
    }

    /// Reads until an event of this kind for which `is_wanted` holds.
    pub fn until(&mut self, event: &str, is_wanted: impl Fn(&Value) -> bool) -> ServerEvent {
        let started = std::time::Instant::now();
        loop {
            assert!(started.elapsed() < Duration::from_secs(60), "no `{event}` within a minute");
            let next = self.next().unwrap_or_else(|| panic!("the events ended before `{event}`"));
            if next.event == event && is_wanted(&next.data) {
                return next;
            }
        }
    }
}

/// The text of a file below the home of a world.
pub fn token_file(world: &World) -> std::path::PathBuf {
    world.home.path().join(".local/share/homing/serve-token")
}

pub fn read_token(world: &World) -> String {
    fs::read_to_string(token_file(world)).unwrap().trim().to_owned()
}
