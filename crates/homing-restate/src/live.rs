//! Text of replies while they arrive, past the server: a worker serves it on a port of its own, and followers of a tree read it
//! from the worker that drives the root. Nothing of it is stored, and a follower that cannot reach the worker sees the reply when it
//! is complete.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homing_core::{fact::Fact, place::Place};
use homing_runtime::{
    RunHandle,
    event::{Event, Events, TransientKind},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::broadcast,
    time::timeout,
};
use uuid::Uuid;

use crate::server::{Server, ServerError};

/// Pieces that a slow follower may be behind. After more of them, it sees the reply when it is complete.
const MAX_BEHIND: usize = 1024;

/// Longest request of a follower, in bytes.
const MAX_REQUEST: u64 = 8 * 1024;

/// Longest time for a follower to send its request, and to take a piece.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// A piece of a reply that is arriving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveText {
    /// The run.
    pub run: Uuid,
    /// Its place.
    pub place: Place,
    /// Time of the record with which the model call began.
    pub asked_at: u64,
    /// Bytes of the reply before this piece.
    pub offset: usize,
    /// The piece.
    pub text: String,
}

/// The replies that are arriving at this worker, by tree.
#[derive(Default)]
pub(crate) struct LiveTexts(Mutex<HashMap<Uuid, Arc<LiveTree>>>);

/// The replies of a tree.
struct LiveTree {
    replies: Mutex<HashMap<Uuid, LiveText>>,
    pieces: broadcast::Sender<LiveText>,
}

impl LiveTree {
    fn replies(&self) -> MutexGuard<'_, HashMap<Uuid, LiveText>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an event. The texts so far are kept for followers that come later.
    fn take(&self, event: &Event) {
        let mut replies = self.replies();
        match event {
            Event::Fact(record) => match &record.fact {
                Fact::Asked(_) => {
                    let (run, place, asked_at) = (record.run, record.place.clone(), record.at);
                    replies.insert(run, LiveText { run, place, asked_at, offset: 0, text: String::new() });
                }
                Fact::Replied { .. } | Fact::AskFailed { .. } | Fact::Ended(_) => drop(replies.remove(&record.run)),
                _ => (),
            },
            Event::Transient(notice) => {
                let (TransientKind::Text(text), Some(reply)) = (&notice.kind, replies.get_mut(&notice.run)) else {
                    return;
                };
                let piece = LiveText { offset: reply.text.len(), text: text.clone(), ..reply.clone() };
                reply.text.push_str(text);
                // Fails if there is no follower.
                let _ = self.pieces.send(piece);
            }
            // Pieces may be among what was missed, so no reply is complete.
            Event::Missed(_) => replies.clear(),
        }
    }

    /// The replies so far, and the pieces that follow.
    fn follow(&self) -> (Vec<LiveText>, broadcast::Receiver<LiveText>) {
        let replies = self.replies();
        (replies.values().filter(|reply| !reply.text.is_empty()).cloned().collect(), self.pieces.subscribe())
    }
}

impl LiveTexts {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<LiveTree>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Collects the replies of a tree until the result is dropped.
    pub(crate) fn collect(self: &Arc<Self>, root: &RunHandle) -> Collecting {
        let tree = root.tree_id();
        let live = Arc::new(LiveTree { replies: Mutex::default(), pieces: broadcast::channel(MAX_BEHIND).0 });
        self.lock().insert(tree, live.clone());
        // Facts of the past are not needed.
        let events = root.events_from(root.position());
        let pump = tokio::spawn(pump(events, live.clone()));
        Collecting { texts: self.clone(), tree, live, pump: pump.abort_handle() }
    }

    fn get(&self, tree: Uuid) -> Option<Arc<LiveTree>> {
        self.lock().get(&tree).cloned()
    }
}

async fn pump(mut events: Events, live: Arc<LiveTree>) {
    while let Some(event) = events.next().await {
        live.take(&event);
    }
}

/// The collection of one tree's replies.
pub(crate) struct Collecting {
    texts: Arc<LiveTexts>,
    tree: Uuid,
    live: Arc<LiveTree>,
    pump: tokio::task::AbortHandle,
}

impl Drop for Collecting {
    fn drop(&mut self) {
        self.pump.abort();
        let mut trees = self.texts.lock();
        if trees.get(&self.tree).is_some_and(|live| Arc::ptr_eq(live, &self.live)) {
            trees.remove(&self.tree);
        }
    }
}

/// Listens for followers on any port of an address, and returns the socket's address.
pub(crate) async fn listen(ip: IpAddr, texts: Arc<LiveTexts>) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(SocketAddr::new(ip, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let texts = texts.clone();
            tokio::spawn(async move {
                if let Err(error) = serve(stream, &texts).await {
                    tracing::debug!(%error, "a follower is gone");
                }
            });
        }
    });
    Ok(address)
}

/// Answers `GET /TREE` with one JSON line per piece until the worker does not drive the tree any more.
async fn serve(mut stream: TcpStream, texts: &LiveTexts) -> std::io::Result<()> {
    let request = timeout(MAX_WAIT, read_request(&mut stream)).await??;
    let path = request.strip_prefix("GET /").and_then(|rest| rest.split(' ').next());
    let tree = path.and_then(|path| path.parse().ok()).and_then(|tree| texts.get(tree));
    let Some(tree) = tree else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let (so_far, mut pieces) = tree.follow();
    // The collection ends when its sender is gone, and this must not keep it.
    drop(tree);
    for piece in so_far {
        send(&mut stream, &piece).await?;
    }
    while let Ok(piece) = pieces.recv().await {
        send(&mut stream, &piece).await?;
    }
    Ok(())
}

/// Reads the head of a request and returns its first line.
async fn read_request(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut lines = BufReader::new(stream.take(MAX_REQUEST)).lines();
    let first = lines.next_line().await?.unwrap_or_default();
    while lines.next_line().await?.is_some_and(|line| !line.is_empty()) {}
    Ok(first)
}

async fn send(stream: &mut TcpStream, piece: &LiveText) -> std::io::Result<()> {
    let line = serde_json::to_string(piece)? + "\n";
    timeout(MAX_WAIT, stream.write_all(line.as_bytes())).await?
}

/// The text of replies of a tree while they arrive.
pub struct LiveReader {
    response: reqwest::Response,
    buffer: Vec<u8>,
}

impl LiveReader {
    /// Returns the next piece; `None` if the worker sends no more.
    pub async fn next(&mut self) -> Option<LiveText> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            self.buffer.extend_from_slice(&self.response.chunk().await.ok()??);
        }
    }
}

impl Server {
    /// Reads the text of replies of a tree from the worker at this address while they arrive.
    ///
    /// # Errors
    /// Fails if the worker cannot be reached from here, or does not drive the tree any more.
    pub async fn live_text(&self, worker: &str, tree: Uuid) -> Result<LiveReader, ServerError> {
        let unreachable = |reason: String| ServerError::Unreachable { url: worker.to_owned(), reason };
        let request = self.http().get(format!("{worker}/{tree}")).send();
        let response = timeout(MAX_WAIT, request).await.map_err(|error| unreachable(error.to_string()))?;
        let response = response.and_then(reqwest::Response::error_for_status);
        Ok(LiveReader { response: response.map_err(|error| unreachable(error.to_string()))?, buffer: Vec::new() })
    }
}
