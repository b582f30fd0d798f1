//! Waits for runs on behalf of a request, until they have ended, the time is up, or the client cancels the request. Meanwhile
//! it reports progress if the client asked for it.

use std::{collections::HashMap, time::Duration};

use futures::{StreamExt, stream};
use homing::{
    Event, RunHandle,
    crates::core::fact::{Fact, Record},
};
use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use uuid::Uuid;

use crate::{client::Client, elicitation::QuestionRoute};

/// Minimum time between two progress notifications.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum time between two progress notifications. Clients give up on a request without any, and a model may think for long.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// The number of runs that must have ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    All,
    Any,
}

/// The reason for which waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// The runs have ended, or wait for answers.
    RunsEnded,
    /// The time is up.
    TimeUp,
    /// The client cancelled its request, or disconnected.
    Cancelled,
}

/// Waits for runs; see the module's page.
pub(crate) async fn wait_for_runs(
    runs: &[RunHandle],
    wanted: WaitFor,
    timeout: Option<Duration>,
    client: &Client,
    context: &RequestContext<RoleServer>,
) -> WaitEnd {
    let (route, questions) = QuestionRoute::new();
    // A request with a timeout may end before its runs, and their open questions would be lost with it.
    let _open = timeout.is_none().then(|| client.route_questions(runs, route));
    tokio::select! {
        () = ended(runs, wanted) => WaitEnd::RunsEnded,
        () = context.ct.cancelled() => WaitEnd::Cancelled,
        () = time_up(timeout) => WaitEnd::TimeUp,
        never = report_progress(runs, context) => match never {},
        never = questions.answer(&context.peer) => match never {},
    }
}

async fn ended(runs: &[RunHandle], wanted: WaitFor) {
    let waits = runs.iter().map(|run| Box::pin(run.wait_or_park()));
    match wanted {
        WaitFor::Any if !runs.is_empty() => drop(futures::future::select_all(waits).await),
        WaitFor::All | WaitFor::Any => drop(futures::future::join_all(waits).await),
    }
}

async fn time_up(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// Reports progress, if the client asked for it. Never returns.
async fn report_progress(runs: &[RunHandle], context: &RequestContext<RoleServer>) -> std::convert::Infallible {
    let Some(token) = context.meta.get_progress_token() else { return std::future::pending().await };
    let mut summary = ProgressSummary::new(runs);
    let mut sender = ProgressSender { peer: &context.peer, token, count: 0, last: Instant::now() };
    let mut events = stream::select_all(runs.iter().map(|run| run.events_without_text(run.position())));
    let mut ticks = interval(MIN_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(event) = events.next() => summary.note(&event),
            _ = ticks.tick() => {
                if summary.changed || sender.last.elapsed() >= MAX_INTERVAL {
                    sender.send(summary.take()).await;
                }
            }
        }
    }
}

/// Sends progress notifications for one request.
struct ProgressSender<'a> {
    peer: &'a Peer<RoleServer>,
    token: ProgressToken,
    count: u32,
    last: Instant,
}

impl ProgressSender<'_> {
    async fn send(&mut self, message: String) {
        self.count += 1;
        self.last = Instant::now();
        let param = ProgressNotificationParam::new(self.token.clone(), f64::from(self.count)).with_message(message);
        // A disconnected client is noticed elsewhere.
        let _ = self.peer.notify_progress(param).await;
    }
}

/// The next progress message.
struct ProgressSummary {
    names: HashMap<Uuid, String>,
    steps: u64,
    tokens: u64,
    latest: String,
    changed: bool,
}

impl ProgressSummary {
    fn new(runs: &[RunHandle]) -> Self {
        let envelopes: Vec<_> = runs.iter().map(RunHandle::envelope).collect();
        let below = || envelopes.iter().flat_map(|envelope| envelope.all());
        Self {
            names: below().map(|run| (run.run, format!("{} {}", run.agent, run.place))).collect(),
            steps: envelopes.iter().map(|envelope| envelope.subtree.turns).sum(),
            tokens: envelopes.iter().map(|envelope| envelope.subtree.input + envelope.subtree.output).sum(),
            latest: envelopes
                .iter()
                .map(|envelope| format!("{} {}", envelope.agent, envelope.status.name()))
                .collect::<Vec<_>>()
                .join(", "),
            changed: true,
        }
    }

    fn note(&mut self, event: &Event) {
        if let Event::Fact(record) = event {
            self.fact(record);
        }
    }

    fn fact(&mut self, record: &Record) {
        let activity = match &record.fact {
            Fact::Spawned(spawned) => {
                self.names.insert(record.run, format!("{} {}", spawned.agent.name, record.place));
                "started".to_owned()
            }
            Fact::Asked(_) => "is waiting for its model".to_owned(),
            Fact::Replied { reply, .. } => {
                self.steps += 1;
                self.tokens += reply.usage.input + reply.usage.output;
                "got a reply".to_owned()
            }
            Fact::Called(called) => format!("calls {}", called.call.name),
            Fact::Ended(ended) => ended.outcome.status().replace('_', " "),
            Fact::Questioned { .. } => "waits for an answer".to_owned(),
            Fact::AskFailed { .. }
            | Fact::Answered { .. }
            | Fact::Returned { .. }
            | Fact::Told { .. }
            | Fact::Halted { .. }
            | Fact::Compacted { .. }
            | Fact::Extended { .. } => return,
        };
        let name = self.names.get(&record.run).map_or("a run", String::as_str);
        self.latest = format!("{name} {activity}");
        self.changed = true;
    }

    fn take(&mut self) -> String {
        self.changed = false;
        format!("{} · step {} · {} tokens", self.latest, self.steps, self.tokens)
    }
}
