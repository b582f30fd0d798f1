//! Servers for tests, on loopback ports.
//!
//! - [`FakeProvider`] is an HTTP server that plays a model provider: a script decides which bytes it sends at which time, and
//!   it records every request, so that tests can compare that record with what other parts claim to have sent.
//! - [`FakeResponse`] has constructors for common responses of the chat completions and Anthropic formats, complete and cut.
//! - [`ResponsesTurn`] plays OpenAI's Responses API, which refuses requests that break its rules.
//! - [`aws_event`] and [`check_aws_signature`] play Amazon Bedrock.
//! - [`PrefixCache`] replies like a provider that caches the beginnings of prompts.
//! - [`FaultProxy`] forwards to a real server and cuts, stalls or slows its responses.

mod answer;
mod aws;
mod prefix_cache;
mod proxy;
mod request;
mod responses;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::sleep,
};

pub use answer::{FakeResponse, ResponseStep};
pub use aws::{aws_event, aws_exception, aws_frame, check_aws_signature};
pub use prefix_cache::{PrefixCache, PromptUsage};
pub use proxy::{Fault, FaultProxy};
pub use request::ReceivedRequest;
pub use responses::{ResponsesEnd, ResponsesTurn};

/// Returns the response to a request; the first argument is the number of the request, from 0.
pub type ResponseScript = Arc<dyn Fn(usize, &ReceivedRequest) -> FakeResponse + Send + Sync>;

/// An HTTP server on a loopback port that plays a model provider. Dropping it stops it and closes its connections.
pub struct FakeProvider {
    address: SocketAddr,
    log: Arc<Mutex<Vec<ReceivedRequest>>>,
    connections: Arc<AtomicUsize>,
    sent: Arc<AtomicU64>,
    server: JoinHandle<()>,
}

impl FakeProvider {
    /// Starts a server whose responses `script` decides.
    pub async fn start(script: impl Fn(usize, &ReceivedRequest) -> FakeResponse + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let log = Arc::new(Mutex::new(Vec::new()));
        let script: ResponseScript = Arc::new(script);
        let connections = Arc::new(AtomicUsize::new(0));
        let sent = Arc::new(AtomicU64::new(0));
        let server = tokio::spawn(serve(listener, script, log.clone(), (connections.clone(), sent.clone())));
        Self { address, log, connections, sent, server }
    }

    /// Starts a server that sends these responses in turn, and then repeats the last one.
    ///
    /// # Panics
    /// Panics if `answers` is empty.
    pub async fn answers(answers: Vec<FakeResponse>) -> Self {
        assert!(!answers.is_empty(), "a provider needs at least one answer");
        Self::start(move |count, _| answers[count.min(answers.len() - 1)].clone()).await
    }

    /// Returns its URL, such as `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of connections that were opened so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that were sent so far.
    pub fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    listener: TcpListener,
    script: ResponseScript,
    log: Arc<Mutex<Vec<ReceivedRequest>>>,
    (count, sent): (Arc<AtomicUsize>, Arc<AtomicU64>),
) {
    // The set ends its connections when the server is dropped.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        count.fetch_add(1, Ordering::Relaxed);
        connections.spawn(connection(stream, script.clone(), log.clone(), sent.clone()));
    }
}

async fn connection(
    mut stream: TcpStream,
    script: ResponseScript,
    log: Arc<Mutex<Vec<ReceivedRequest>>>,
    sent: Arc<AtomicU64>,
) {
    stream.set_nodelay(true).ok();
    let mut buffer = Vec::new();
    while let Some(request) = next_request(&mut stream, &mut buffer).await {
        let count = {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.push(request.clone());
            log.len() - 1
        };
        let response = script(count, &request);
        if send(&mut stream, &response, &sent).await == AfterResponse::Close {
            return;
        }
    }
}

async fn next_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<ReceivedRequest> {
    loop {
        if let Some((request, used)) = request::parse(buffer) {
            buffer.drain(..used);
            return Some(request);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

#[derive(PartialEq, Eq)]
enum AfterResponse {
    KeepOpen,
    Close,
}

async fn send(stream: &mut TcpStream, response: &FakeResponse, count: &AtomicU64) -> AfterResponse {
    for step in &response.steps {
        let sent = match step {
            ResponseStep::Bytes(bytes) => write(stream, bytes, count).await,
            ResponseStep::Drip { bytes, pause } => drip(stream, bytes, *pause, count).await,
            ResponseStep::Repeat { bytes, pause, limit } => repeat(stream, bytes, *pause, *limit, count).await,
            ResponseStep::Sleep(pause) => {
                sleep(*pause).await;
                Ok(())
            }
            ResponseStep::Stall => {
                sleep(Duration::from_secs(3_600)).await;
                Ok(())
            }
            ResponseStep::Close => return AfterResponse::Close,
            ResponseStep::Reset => {
                // Closing with a linger time of zero sends a reset instead of an orderly end.
                stream.set_zero_linger().ok();
                return AfterResponse::Close;
            }
        };
        if sent.is_err() {
            return AfterResponse::Close;
        }
    }
    if response.keeps_open { AfterResponse::KeepOpen } else { AfterResponse::Close }
}

async fn write(stream: &mut TcpStream, bytes: &[u8], count: &AtomicU64) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

async fn drip(stream: &mut TcpStream, bytes: &[u8], pause: Duration, count: &AtomicU64) -> std::io::Result<()> {
    for byte in bytes {
        write(stream, &[*byte], count).await?;
        sleep(pause).await;
    }
    Ok(())
}

async fn repeat(
    stream: &mut TcpStream,
    bytes: &[u8],
    pause: Duration,
    limit: Duration,
    count: &AtomicU64,
) -> std::io::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        write(stream, bytes, count).await?;
        if pause > Duration::ZERO {
            sleep(pause).await;
        }
    }
    Ok(())
}
