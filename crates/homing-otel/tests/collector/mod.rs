//! A collector on a loopback port that decodes requests with OpenTelemetry's own types, and servers that do not work.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    metrics::v1::Metric,
    trace::v1::Span,
};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The requests that a collector received.
#[derive(Default)]
pub struct Received {
    pub traces: Vec<ExportTraceServiceRequest>,
    pub metrics: Vec<ExportMetricsServiceRequest>,
    pub heads: Vec<String>,
}

impl Received {
    pub fn spans(&self) -> Vec<Span> {
        let resources = self.traces.iter().flat_map(|request| &request.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }

    /// The metrics of the last request.
    pub fn last_metrics(&self) -> Vec<Metric> {
        let last = self.metrics.last().expect("metrics were sent");
        let resources = last.resource_metrics.iter();
        resources.flat_map(|resource| &resource.scope_metrics).flat_map(|scope| scope.metrics.clone()).collect()
    }
}

pub struct Collector {
    pub address: SocketAddr,
    pub received: Arc<Mutex<Received>>,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let (address, received) = (listener.local_addr().expect("bound"), Arc::new(Mutex::new(Received::default())));
        let shared = received.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { address, received }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn serve(mut stream: TcpStream, received: Arc<Mutex<Received>>) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&bytes[..head_end]).to_lowercase();
        let length: usize = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.trim().parse().ok()?;
        while bytes.len() < head_end + 4 + length {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        let body: Vec<u8> = bytes.drain(..head_end + 4 + length).skip(head_end + 4).collect();
        take(&mut received.lock().expect("no panic"), head, &body);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
            .await
            .ok()?;
    }
}

fn take(received: &mut Received, head: String, body: &[u8]) {
    match head.split(' ').nth(1) {
        Some("/v1/traces") => received.traces.push(ExportTraceServiceRequest::decode(body).expect("valid spans")),
        Some("/v1/metrics") => received.metrics.push(ExportMetricsServiceRequest::decode(body).expect("valid metrics")),
        other => panic!("unexpected path {other:?}"),
    }
    received.heads.push(head);
}

/// Starts a server that accepts connections and never answers.
pub async fn silent_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    address
}

/// Returns a port without a server.
pub async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    listener.local_addr().expect("bound")
}
