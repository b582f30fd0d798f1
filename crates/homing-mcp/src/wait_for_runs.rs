//! Waiting for runs on behalf of a request: until they are over, the time is up, or the client gives up; and showing the
//! client meanwhile, where it wants to know, who is at what.

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

use crate::{client::Client, elicitation::QuestionDesk};

/// The client is told something at most this often, whatever the runs do.
const PACE: Duration = Duration::from_millis(250);

/// Clients give up on a request that shows no life; a model may think for long.
const PULSE: Duration = Duration::from_secs(10);

/// Which of several runs are waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    All,
    Any,
}

/// How the waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attended {
    /// What was wanted is over.
    Over,
    /// The time is up.
    TimeUp,
    /// The client gave up on its request, or went away.
    GivenUp,
}

/// Waits.
pub(crate) async fn attend(
    runs: &[RunHandle],
    wanted: WaitFor,
    timeout: Option<Duration>,
    client: &Client,
    context: &RequestContext<RoleServer>,
) -> Attended {
    let (desk, questions) = QuestionDesk::new();
    // A request that ends before its runs would take their questions along.
    let _open = timeout.is_none().then(|| client.open_desk(runs, desk));
    tokio::select! {
        () = over(runs, wanted) => Attended::Over,
        () = context.ct.cancelled() => Attended::GivenUp,
        () = time(timeout) => Attended::TimeUp,
        never = show(runs, context) => match never {},
        never = questions.answer(&context.peer) => match never {},
    }
}

async fn over(runs: &[RunHandle], wanted: WaitFor) {
    let waits = runs.iter().map(|run| Box::pin(run.wait()));
    match wanted {
        WaitFor::Any if !runs.is_empty() => drop(futures::future::select_all(waits).await),
        WaitFor::All | WaitFor::Any => drop(futures::future::join_all(waits).await),
    }
}

async fn time(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// Shows progress for ever, if the client asked for it.
async fn show(runs: &[RunHandle], context: &RequestContext<RoleServer>) -> std::convert::Infallible {
    let Some(token) = context.meta.get_progress_token() else { return std::future::pending().await };
    let mut news = News::new(runs);
    let mut line = ProgressLine { peer: &context.peer, token, count: 0, last: Instant::now() };
    let each = |run: &RunHandle| stream::unfold(run.events(), async |mut it| it.next().await.map(|event| (event, it)));
    let mut events = stream::select_all(runs.iter().map(|run| Box::pin(each(run))));
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(event) = events.next() => news.note(&event),
            _ = ticks.tick() => {
                if news.fresh || line.last.elapsed() >= PULSE {
                    line.send(news.take()).await;
                }
            }
        }
    }
}

/// The way to tell a client about one request.
struct ProgressLine<'a> {
    peer: &'a Peer<RoleServer>,
    token: ProgressToken,
    count: u32,
    last: Instant,
}

impl ProgressLine<'_> {
    async fn send(&mut self, message: String) {
        self.count += 1;
        self.last = Instant::now();
        let param = ProgressNotificationParam::new(self.token.clone(), f64::from(self.count)).with_message(message);
        // A client that does not listen any more is noticed elsewhere.
        let _ = self.peer.notify_progress(param).await;
    }
}

/// What is to be told next.
struct News {
    names: HashMap<Uuid, String>,
    steps: u64,
    tokens: u64,
    latest: String,
    fresh: bool,
}

impl News {
    fn new(runs: &[RunHandle]) -> Self {
        let envelopes: Vec<_> = runs.iter().map(RunHandle::envelope).collect();
        let below = || envelopes.iter().flat_map(|it| it.all());
        Self {
            names: below().map(|it| (it.run, format!("{} {}", it.agent, it.place))).collect(),
            steps: envelopes.iter().map(|it| it.subtree.turns).sum(),
            tokens: envelopes.iter().map(|it| it.subtree.input + it.subtree.output).sum(),
            latest: envelopes
                .iter()
                .map(|it| format!("{} {}", it.agent, it.status.name()))
                .collect::<Vec<_>>()
                .join(", "),
            fresh: true,
        }
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::Fact(record) => self.fact(record),
            Event::Transient(_) | Event::Missed(_) => (),
        }
    }

    fn fact(&mut self, record: &Record) {
        let what = match &record.fact {
            Fact::Spawned(spawned) => {
                self.names.insert(record.run, format!("{} {}", spawned.agent.name, record.place));
                "begins".to_owned()
            }
            Fact::Asked(_) => "asks its model".to_owned(),
            Fact::Replied { reply } => {
                self.steps += 1;
                self.tokens += reply.usage.input + reply.usage.output;
                "has a reply".to_owned()
            }
            Fact::Called(called) => format!("calls {}", called.call.name),
            Fact::Ended(ended) => ended.outcome.status().replace('_', " "),
            Fact::AskFailed { .. }
            | Fact::Returned { .. }
            | Fact::Told { .. }
            | Fact::Halted { .. }
            | Fact::Compacted { .. }
            | Fact::Extended { .. } => return,
        };
        let name = self.names.get(&record.run).map_or("a run", String::as_str);
        self.latest = format!("{name} {what}");
        self.fresh = true;
    }

    fn take(&mut self) -> String {
        self.fresh = false;
        format!("{} · step {} · {} tokens", self.latest, self.steps, self.tokens)
    }
}
