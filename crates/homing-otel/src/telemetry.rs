//! The handle that a host holds: it takes facts without ever waiting, and ends within a bound.

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
    otlp::Source,
    worker::{Worker, WorkerMessage},
};

/// Facts that may wait to be folded; what comes when there is no room is dropped and counted.
const QUEUE: usize = 16_384;

/// Takes facts as they become durable.
pub type Listener = Arc<dyn Fn(&Arc<Record>) + Send + Sync>;

/// How many spans went where; shared by the handle and the background.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    /// Facts and spans that were given up.
    pub(crate) dropped: AtomicU64,
    /// Spans that wait or are under way.
    pub(crate) waiting: AtomicU64,
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Spans that waited have gone: to the collector, or nowhere.
    pub(crate) fn gone(&self, to: &AtomicU64, spans: u64) {
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        Self::add(to, spans);
    }
}

/// Takes facts, and tells a collector what became of them. A cheap handle: clone it freely.
#[derive(Clone)]
pub struct Telemetry {
    queue: mpsc::Sender<WorkerMessage>,
    counts: Arc<Counts>,
}

/// What became of telemetry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportReport {
    /// Spans that the collector took.
    pub sent: u64,
    /// Facts and spans that it did not get.
    pub dropped: u64,
    /// Why not, where it is known.
    pub why: Option<String>,
}

impl Telemetry {
    /// Starts telling. Must be called within an async runtime.
    pub fn start(options: TelemetryOptions) -> Result<Self, TelemetryOptionsError> {
        let exporter = Exporter::new(&options)?;
        let (queue, inbox) = mpsc::channel(QUEUE);
        let counts = Arc::new(Counts::default());
        let source = Source { resource: resource(&options), since_ms: now_ms() };
        tokio::spawn(Worker::new(exporter, source, &options, counts.clone()).run(inbox));
        Ok(Self { queue, counts })
    }

    /// Takes a fact. Never waits: where there is no room it is dropped and counted.
    pub fn take(&self, record: &Arc<Record>) {
        self.put(WorkerMessage::Fact(record.clone()));
    }

    /// Takes in what happened to a tree before it is resumed, so that what goes on has its beginning.
    pub fn recall(&self, records: impl IntoIterator<Item = Arc<Record>>) {
        self.put(WorkerMessage::Past(records.into_iter().collect()));
    }

    fn put(&self, message: WorkerMessage) {
        if self.queue.try_send(message).is_err() {
            Counts::add(&self.counts.dropped, 1);
        }
    }

    /// A listener for whoever makes facts.
    pub fn listener(&self) -> Listener {
        let telemetry = self.clone();
        Arc::new(move |record| telemetry.take(record))
    }

    /// Sends what there is, for at most as long as `within`, and says what became of everything.
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
        // What is still under way is given up: the host will not wait for it.
        let left = self.counts.waiting.load(Ordering::Relaxed);
        ExportReport { sent: self.counts.sent.load(Ordering::Relaxed), dropped: self.counts.dropped() + left, why }
    }
}

/// What is said about this process. Its number tells it from others that count at the same time.
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
