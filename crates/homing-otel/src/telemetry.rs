//! The handle for hosts. It accepts facts without blocking, and finishes within a time limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use homing_core::fact::Record;
use tokio::sync::{mpsc, oneshot};

use crate::{
    export::Exporter,
    options::{TelemetryOptions, TelemetryOptionsError},
    otlp::OtlpSource,
    worker::{Worker, WorkerMessage},
};

/// Maximum number of facts that wait to be folded; further ones are dropped and counted.
const MAX_QUEUE: usize = 16_384;

/// A callback for facts as they become durable.
pub type TelemetryListener = Arc<dyn Fn(&Arc<Record>) + Send + Sync>;

/// Counts of spans, shared by the handle and the background task.
#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    pub(crate) sent: AtomicU64,
    /// Facts and spans that were dropped.
    pub(crate) dropped: AtomicU64,
    /// Spans that wait or are being sent.
    pub(crate) waiting: AtomicU64,
}

impl SpanCounts {
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Moves spans from `waiting` to another count: sent or dropped.
    pub(crate) fn leave_queue(&self, to: &AtomicU64, spans: u64) {
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        Self::add(to, spans);
    }
}

/// Exports facts to a collector. Clones share the same background task.
#[derive(Clone)]
pub struct Telemetry {
    queue: mpsc::Sender<WorkerMessage>,
    counts: Arc<SpanCounts>,
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportReport {
    /// Spans that the collector accepted.
    pub sent: u64,
    /// Facts and spans that did not reach it.
    pub dropped: u64,
    /// The reason, if it is known.
    pub why: Option<String>,
}

impl Telemetry {
    /// Starts the background task. Must be called within an async runtime.
    ///
    /// # Errors
    /// Fails if a URL or header of the options is invalid.
    pub fn start(options: TelemetryOptions) -> Result<Self, TelemetryOptionsError> {
        let exporter = Exporter::new(&options)?;
        let (queue, inbox) = mpsc::channel(MAX_QUEUE);
        let counts = Arc::new(SpanCounts::default());
        let source = OtlpSource { resource: resource(&options), since_ms: now_ms() };
        tokio::spawn(Worker::new(exporter, source, &options, counts.clone()).run(inbox));
        Ok(Self { queue, counts })
    }

    /// Accepts a fact without blocking. If the queue is full, the fact is dropped and counted. A fact that a fork took over is only
    /// replayed, because it was exported when it happened.
    pub fn take(&self, record: &Arc<Record>) {
        if record.is_inherited() {
            return self.recall([record.clone()]);
        }
        self.put(WorkerMessage::Fact(record.clone()));
    }

    /// Replays the facts of a tree before it is resumed, so that continued activities keep their start.
    pub fn recall(&self, records: impl IntoIterator<Item = Arc<Record>>) {
        self.put(WorkerMessage::Replay(records.into_iter().collect()));
    }

    fn put(&self, message: WorkerMessage) {
        if self.queue.try_send(message).is_err() {
            SpanCounts::add(&self.counts.dropped, 1);
        }
    }

    /// Returns a listener that passes facts to [`Telemetry::take`].
    pub fn listener(&self) -> TelemetryListener {
        let telemetry = self.clone();
        Arc::new(move |record| telemetry.take(record))
    }

    /// Sends everything that waits, within a time limit, and reports what was sent and dropped.
    pub async fn finish(&self, within: Duration) -> ExportReport {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            self.queue.send(WorkerMessage::Finish(answer)).await.ok()?;
            answered.await.ok()
        };
        let why = match tokio::time::timeout(within, asked).await {
            Ok(Some(why)) => why,
            Ok(None) | Err(_) => Some("the collector did not answer in time".to_owned()),
        };
        // Spans that are still being sent count as dropped: the host does not wait for them.
        let left = self.counts.waiting.load(Ordering::Relaxed);
        ExportReport { sent: self.counts.sent.load(Ordering::Relaxed), dropped: self.counts.dropped() + left, why }
    }
}

/// Returns the attributes of this process. The process ID distinguishes it from others that export at the same time.
fn resource(options: &TelemetryOptions) -> Vec<(String, String)> {
    let own = [
        ("service.name", options.service.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", format!("{}-{}", std::process::id(), now_ms())),
        ("telemetry.sdk.name", "homing".to_owned()),
        ("telemetry.sdk.language", "rust".to_owned()),
    ];
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value));
    own.chain(options.resource.iter().cloned()).collect()
}

pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
