//! A real collector on a loopback port that reads what it is sent with OpenTelemetry's own types, and ones that are of no use.

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

/// What a collector was sent.
#[derive(Default)]
pub struct Got {
    pub traces: Vec<ExportTraceServiceRequest>,
    pub metrics: Vec<ExportMetricsServiceRequest>,
    pub heads: Vec<String>,
}

impl Got {
    pub fn spans(&self) -> Vec<Span> {
        let resources = self.traces.iter().flat_map(|it| &it.resource_spans);
        resources.flat_map(|it| &it.scope_spans).flat_map(|it| it.spans.clone()).collect()
    }

    /// The figures as they were told last.
    pub fn figures(&self) -> Vec<Metric> {
        let last = self.metrics.last().expect("figures were sent");
        last.resource_metrics.iter().flat_map(|it| &it.scope_metrics).flat_map(|it| it.metrics.clone()).collect()
    }
}

pub struct Collector {
    pub address: SocketAddr,
    pub got: Arc<Mutex<Got>>,
}

impl Collector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let (address, got) = (listener.local_addr().expect("bound"), Arc::new(Mutex::new(Got::default())));
        let shared = got.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { address, got }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn serve(mut stream: TcpStream, got: Arc<Mutex<Got>>) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
                break at;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&bytes[..head_end]).to_lowercase();
        let length: usize = head.lines().find_map(|it| it.strip_prefix("content-length: "))?.trim().parse().ok()?;
        while bytes.len() < head_end + 4 + length {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        let body: Vec<u8> = bytes.drain(..head_end + 4 + length).skip(head_end + 4).collect();
        take(&mut got.lock().expect("no panic"), head, &body);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
            .await
            .ok()?;
    }
}

fn take(got: &mut Got, head: String, body: &[u8]) {
    match head.split(' ').nth(1) {
        Some("/v1/traces") => got.traces.push(ExportTraceServiceRequest::decode(body).expect("spans can be read")),
        Some("/v1/metrics") => {
            got.metrics.push(ExportMetricsServiceRequest::decode(body).expect("figures can be read"))
        }
        other => panic!("nothing is expected at {other:?}"),
    }
    got.heads.push(head);
}

/// Takes connections and never says a word.
pub async fn black_hole() -> SocketAddr {
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

/// A port that nobody listens at.
pub async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
    listener.local_addr().expect("bound")
}
