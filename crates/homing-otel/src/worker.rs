//! The background task: folds facts, collects spans, and sends them with at most one request at a time. If the collector
//! stalls, spans use memory up to a limit and are then dropped.

use std::{collections::VecDeque, future::Future, pin::Pin, sync::Arc, time::Duration};

use homing_core::fact::Record;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval_at},
};

use crate::{
    export::Exporter,
    fold::SpanFold,
    metrics::Metrics,
    options::TelemetryOptions,
    otlp::OtlpSource,
    span::{Span, SpanBodies},
    telemetry::{SpanCounts, now_ms},
};

/// Maximum number of spans that wait to be sent; beyond it the oldest are dropped.
const MAX_WAITING: usize = 8_192;
/// Maximum size of the spans that wait to be sent, and of those in one request, in bytes: spans with bodies are large.
const MAX_WAITING_BYTES: usize = 64 << 20;
const BATCH_BYTES: usize = 4 << 20;
/// Maximum number of spans in one request.
const BATCH: usize = 512;

/// A message to the background task.
pub(crate) enum WorkerMessage {
    /// A new fact.
    Fact(Arc<Record>),
    /// Facts from before a tree was resumed.
    Replay(Vec<Arc<Record>>),
    /// Sends everything that waits, and answers with the last error.
    Finish(oneshot::Sender<Option<String>>),
}

/// A request in progress, with the number of its spans.
struct OpenRequest {
    spans: u64,
    request: Pin<Box<dyn Future<Output = Result<(), String>> + Send>>,
}

/// The state of the background task.
pub(crate) struct Worker {
    exporter: Exporter,
    source: OtlpSource,
    bodies: SpanBodies,
    every: Duration,
    fold: SpanFold,
    metrics: Metrics,
    /// True if metrics changed since they were sent.
    metrics_changed: bool,
    waiting: VecDeque<Span>,
    waiting_bytes: usize,
    open_request: Option<OpenRequest>,
    counts: Arc<SpanCounts>,
    last_error: Option<String>,
}

impl Worker {
    pub(crate) fn new(
        exporter: Exporter,
        source: OtlpSource,
        options: &TelemetryOptions,
        counts: Arc<SpanCounts>,
    ) -> Self {
        Self {
            exporter,
            source,
            bodies: options.bodies,
            every: options.every.max(Duration::from_millis(10)),
            fold: SpanFold::new(options.bodies),
            metrics: Metrics::default(),
            metrics_changed: false,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            open_request: None,
            counts,
            last_error: None,
        }
    }

    /// Runs until every handle is dropped.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<WorkerMessage>) {
        let mut ticks = interval_at(Instant::now() + self.every, self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Facts come first, so that a slow request does not fill their queue.
                biased;
                message = inbox.recv() => match message {
                    Some(WorkerMessage::Finish(answer)) => {
                        self.flush().await;
                        let _ = answer.send(self.last_error.clone());
                    }
                    Some(WorkerMessage::Fact(record)) => self.take(&record),
                    Some(WorkerMessage::Replay(records)) => records.iter().for_each(|record| self.fold.replay(record)),
                    None => return,
                },
                result = progress(&mut self.open_request), if self.open_request.is_some() => {
                    self.request_ended(result);
                    if self.is_batch_full() {
                        self.begin();
                    }
                }
                _ = ticks.tick(), if self.open_request.is_none() => self.begin(),
            }
        }
    }

    fn take(&mut self, record: &Record) {
        let Some(finished) = self.fold.apply(record) else { return };
        self.metrics.count(&finished);
        self.metrics_changed = true;
        if self.exporter.traces.is_none() {
            return;
        }
        if let Some(span) = Span::of(&finished, self.bodies) {
            SpanCounts::add(&self.counts.waiting, 1);
            self.waiting_bytes += span.size();
            self.waiting.push_back(span);
            while self.waiting.len() > MAX_WAITING || self.waiting_bytes > MAX_WAITING_BYTES {
                self.next_span();
                self.counts.leave_queue(&self.counts.dropped, 1);
            }
        }
        if self.is_batch_full() && self.open_request.is_none() {
            self.begin();
        }
    }

    /// Returns true if the spans that wait fill a request.
    fn is_batch_full(&self) -> bool {
        self.waiting.len() >= BATCH || self.waiting_bytes >= BATCH_BYTES
    }

    /// Takes the oldest span that waits.
    fn next_span(&mut self) -> Option<Span> {
        let span = self.waiting.pop_front()?;
        self.waiting_bytes -= span.size();
        Some(span)
    }

    /// Takes the spans of one request.
    fn next_batch(&mut self) -> Vec<Span> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(span) = self.next_span() else { break };
            bytes += span.size();
            batch.push(span);
        }
        batch
    }

    /// Begins the next request: spans before metrics, because metrics are sent again in full the next time.
    fn begin(&mut self) {
        self.open_request = self.next_traces().or_else(|| self.next_metrics());
    }

    fn next_traces(&mut self) -> Option<OpenRequest> {
        let url = self.exporter.traces.clone().filter(|_| !self.waiting.is_empty())?;
        let batch = self.next_batch();
        let body = self.source.traces(&batch);
        let exporter = self.exporter.clone();
        let request = Box::pin(async move { exporter.send(url, body).await });
        Some(OpenRequest { spans: batch.len() as u64, request })
    }

    fn next_metrics(&mut self) -> Option<OpenRequest> {
        let url = self.exporter.metrics.clone().filter(|_| self.metrics_changed)?;
        self.metrics_changed = false;
        self.metrics.count_dropped(self.counts.dropped());
        let body = self.source.metrics(&self.metrics, now_ms());
        let exporter = self.exporter.clone();
        let request = Box::pin(async move { exporter.send(url, body).await });
        Some(OpenRequest { spans: 0, request })
    }

    fn request_ended(&mut self, (spans, result): (u64, Result<(), String>)) {
        match result {
            Ok(()) => self.counts.leave_queue(&self.counts.sent, spans),
            Err(why) => {
                self.counts.leave_queue(&self.counts.dropped, spans);
                self.last_error = Some(why);
                // Metrics that did not arrive are sent again with the next request.
                self.metrics_changed |= spans == 0;
            }
        }
    }

    /// Sends everything that waits. The caller limits the time; after the first failure the rest is dropped.
    async fn flush(&mut self) {
        loop {
            if self.open_request.is_none() {
                self.begin();
            }
            if self.open_request.is_none() {
                return;
            }
            let outcome = progress(&mut self.open_request).await;
            let failed = outcome.1.is_err();
            self.request_ended(outcome);
            if failed {
                self.counts.leave_queue(&self.counts.dropped, self.waiting.len() as u64);
                self.waiting.clear();
                self.waiting_bytes = 0;
                return;
            }
        }
    }
}

/// Waits for the open request to end.
async fn progress(open_request: &mut Option<OpenRequest>) -> (u64, Result<(), String>) {
    let Some(open) = open_request else { return std::future::pending().await };
    let result = open.request.as_mut().await;
    let spans = open.spans;
    *open_request = None;
    (spans, result)
}
