//! The transport of older remote servers (`type: sse`): a stream of events carries the server's messages, and its first event
//! names the address to which the client posts its own.

use reqwest::{Client, Url, header::HeaderMap};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

/// Size of the pipe between the protocol and the network.
const PIPE: usize = 64 << 10;
/// Maximum size of one event.
const MAX_EVENT: usize = 8 << 20;

/// Connects to a server, and returns a stream with one message per line in each direction.
pub(super) async fn connect(
    url: &str,
    headers: HeaderMap,
) -> Result<(ReadHalf<DuplexStream>, WriteHalf<DuplexStream>), SseError> {
    let client =
        Client::builder().default_headers(headers).build().map_err(|error| SseError::Failed(error.to_string()))?;
    let base = Url::parse(url).map_err(|error| SseError::Failed(error.to_string()))?;
    let request = client.get(base.clone()).header("accept", "text/event-stream");
    let response = request.send().await.map_err(|error| SseError::Failed(error.without_url().to_string()))?;
    match response.status() {
        reqwest::StatusCode::UNAUTHORIZED => return Err(SseError::Unauthorized),
        status if !status.is_success() => return Err(SseError::Failed(format!("it responded with {status}"))),
        _ => (),
    }
    let mut events = Events { response, buffer: Vec::new() };
    let endpoint = loop {
        match events.next().await {
            Some(event) if event.name == "endpoint" => break event.data,
            Some(_) => (),
            None => return Err(SseError::Failed("it closed the stream before it named its endpoint".to_owned())),
        }
    };
    let endpoint = base.join(endpoint.trim()).map_err(|error| SseError::Failed(error.to_string()))?;
    // The headers carry tokens, which another host must not get.
    if endpoint.origin() != base.origin() {
        return Err(SseError::Failed(format!("its endpoint {endpoint} is on another host")));
    }
    let (ours, theirs) = tokio::io::duplex(PIPE);
    let (read, write) = tokio::io::split(theirs);
    tokio::spawn(receive(events, write));
    tokio::spawn(send(client, endpoint, read));
    Ok(tokio::io::split(ours))
}

/// The reason why a server cannot be used.
pub(super) enum SseError {
    Unauthorized,
    Failed(String),
}

/// Writes the server's messages to the pipe.
async fn receive(mut events: Events, mut pipe: WriteHalf<DuplexStream>) {
    while let Some(event) = events.next().await {
        // A message is one line of JSON; a line end between tokens may become a space.
        let line = format!("{}\n", event.data.replace(['\n', '\r'], " "));
        if event.name == "message" && pipe.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
    let _ = pipe.shutdown().await;
}

/// Posts the client's messages.
async fn send(client: Client, endpoint: Url, pipe: ReadHalf<DuplexStream>) {
    let mut lines = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let request = client.post(endpoint.clone()).header("content-type", "application/json").body(line);
        // A lost message shows as a timeout of the call that waits for its answer.
        let _ = request.send().await;
    }
}

struct Events {
    response: reqwest::Response,
    buffer: Vec<u8>,
}

struct SseEvent {
    name: String,
    data: String,
}

impl Events {
    /// Returns the next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some((end, gap)) = blank_line(&self.buffer) {
                let block: Vec<u8> = self.buffer.drain(..end + gap).collect();
                if let Some(event) = parse(&String::from_utf8_lossy(&block[..end])) {
                    return Some(event);
                }
                continue;
            }
            let chunk = self.response.chunk().await.ok()??;
            self.buffer.extend_from_slice(&chunk);
            if self.buffer.len() > MAX_EVENT {
                return None;
            }
        }
    }
}

/// Finds the first blank line: where it begins and how long it is.
fn blank_line(buffer: &[u8]) -> Option<(usize, usize)> {
    let find = |gap: &[u8]| buffer.windows(gap.len()).position(|window| window == gap).map(|at| (at, gap.len()));
    [find(b"\n\n"), find(b"\r\n\r\n"), find(b"\r\r")].into_iter().flatten().min()
}

fn parse(block: &str) -> Option<SseEvent> {
    let (mut name, mut data) = ("message".to_owned(), Vec::new());
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value.to_owned(),
            "data" => data.push(value),
            _ => (),
        }
    }
    (!data.is_empty()).then(|| SseEvent { name, data: data.join("\n") })
}
