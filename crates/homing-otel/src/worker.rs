//! The background: folds facts, collects spans, and has at most one request under way. A collector that stalls costs
//! memory up to a bound, and then spans.

use std::{collections::VecDeque, future::Future, pin::Pin, sync::Arc, time::Duration};

use homing_core::fact::Record;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval_at},
};

use crate::{
    export::Exporter,
    fold::Fold,
    metrics::Metrics,
    options::TelemetryOptions,
    otlp::Source,
    span::{Bodies, Span},
    telemetry::{Counts, now_ms},
};

/// Spans that wait to be sent; the oldest make room.
const WAITING: usize = 8_192;
/// Spans in one request.
const BATCH: usize = 512;

pub(crate) enum WorkerMessage {
    /// Something happened.
    Fact(Arc<Record>),
    /// Something had happened before a tree was resumed.
    Past(Vec<Arc<Record>>),
    /// Send what there is, and say what went wrong so far.
    Finish(oneshot::Sender<Option<String>>),
}

/// A request under way, and how many spans it carries.
struct Sending {
    spans: u64,
    request: Pin<Box<dyn Future<Output = Result<(), String>> + Send>>,
}

pub(crate) struct Worker {
    exporter: Exporter,
    source: Source,
    bodies: Bodies,
    every: Duration,
    fold: Fold,
    figures: Metrics,
    /// Whether figures changed since they were sent.
    is_news: bool,
    waiting: VecDeque<Span>,
    sending: Option<Sending>,
    counts: Arc<Counts>,
    why: Option<String>,
}

impl Worker {
    pub(crate) fn new(exporter: Exporter, source: Source, options: &TelemetryOptions, counts: Arc<Counts>) -> Self {
        Self {
            exporter,
            source,
            bodies: options.bodies,
            every: options.every.max(Duration::from_millis(10)),
            fold: Fold::default(),
            figures: Metrics::default(),
            is_news: false,
            waiting: VecDeque::new(),
            sending: None,
            counts,
            why: None,
        }
    }

    /// Works until nobody holds a handle any more.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<WorkerMessage>) {
        let mut ticks = interval_at(Instant::now() + self.every, self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // Facts come first: they must not be lost because a request is slow.
                biased;
                message = inbox.recv() => match message {
                    Some(WorkerMessage::Finish(answer)) => {
                        self.flush().await;
                        let _ = answer.send(self.why.clone());
                    }
                    Some(WorkerMessage::Fact(record)) => self.take(&record),
                    Some(WorkerMessage::Past(records)) => records.iter().for_each(|record| self.fold.recall(record)),
                    None => return,
                },
                result = progress(&mut self.sending), if self.sending.is_some() => {
                    self.arrived(result);
                    if self.waiting.len() >= BATCH {
                        self.begin();
                    }
                }
                _ = ticks.tick(), if self.sending.is_none() => self.begin(),
            }
        }
    }

    fn take(&mut self, record: &Record) {
        let Some(finished) = self.fold.apply(record) else { return };
        self.figures.count(&finished);
        self.is_news = true;
        if self.exporter.traces.is_none() {
            return;
        }
        if let Some(span) = Span::of(&finished, self.bodies) {
            if self.waiting.len() >= WAITING {
                self.waiting.pop_front();
                self.counts.gone(&self.counts.dropped, 1);
            }
            Counts::add(&self.counts.waiting, 1);
            self.waiting.push_back(span);
        }
        if self.waiting.len() >= BATCH && self.sending.is_none() {
            self.begin();
        }
    }

    /// Begins the next request: spans before figures, because figures are told again in full the next time.
    fn begin(&mut self) {
        self.sending = self.next_traces().or_else(|| self.next_metrics());
    }

    fn next_traces(&mut self) -> Option<Sending> {
        let url = self.exporter.traces.clone().filter(|_| !self.waiting.is_empty())?;
        let batch: Vec<Span> = self.waiting.drain(..self.waiting.len().min(BATCH)).collect();
        let body = self.source.traces(&batch);
        let exporter = self.exporter.clone();
        let request = Box::pin(async move { exporter.send(url, body).await });
        Some(Sending { spans: batch.len() as u64, request })
    }

    fn next_metrics(&mut self) -> Option<Sending> {
        let url = self.exporter.metrics.clone().filter(|_| self.is_news)?;
        self.is_news = false;
        self.figures.count_dropped(self.counts.dropped());
        let body = self.source.metrics(&self.figures, now_ms());
        let exporter = self.exporter.clone();
        let request = Box::pin(async move { exporter.send(url, body).await });
        Some(Sending { spans: 0, request })
    }

    fn arrived(&mut self, (spans, result): (u64, Result<(), String>)) {
        match result {
            Ok(()) => self.counts.gone(&self.counts.sent, spans),
            Err(why) => {
                self.counts.gone(&self.counts.dropped, spans);
                self.why = Some(why);
                // Figures that did not arrive are told again; a collector that is down is not asked twice at the end.
                self.is_news |= spans == 0;
            }
        }
    }

    /// Sends everything that waits. The caller's patience is the bound; a collector that fails once is given up.
    async fn flush(&mut self) {
        loop {
            if self.sending.is_none() {
                self.begin();
            }
            if self.sending.is_none() {
                return;
            }
            let outcome = progress(&mut self.sending).await;
            let failed = outcome.1.is_err();
            self.arrived(outcome);
            if failed {
                self.counts.gone(&self.counts.dropped, self.waiting.len() as u64);
                self.waiting.clear();
                return;
            }
        }
    }
}

/// Drives the request under way to its end.
async fn progress(sending: &mut Option<Sending>) -> (u64, Result<(), String>) {
    let Some(under_way) = sending else { return std::future::pending().await };
    let result = under_way.request.as_mut().await;
    let spans = under_way.spans;
    *sending = None;
    (spans, result)
}
