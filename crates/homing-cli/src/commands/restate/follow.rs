//! Follows a run tree that workers drive, and copies its records into the journal.

use std::{sync::Arc, time::Duration};

use homing_core::{
    envelope::Envelope,
    fact::{CancelledBy, Record},
    tree::RunTree,
};
use homing_restate::Server;
use homing_runtime::{event::Event, placement::SegmentRequest};
use tokio::time::Instant;
use uuid::Uuid;

use super::{copy, live::LiveReplies};
use crate::{
    exit::Trouble,
    session::Session,
    signals::Signals,
    terminal,
    watch::{RemoteWatch, Show, WatchResult},
};

/// Time between two looks at the server, while nothing and while something happens.
const IDLE: Duration = Duration::from_millis(400);
const BUSY: Duration = Duration::from_millis(50);

/// Time for which an unreachable server is asked again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Called with every record, and with the tree up to it. A result cancels the tree.
pub(crate) type OnRecord<'a> = &'a mut dyn FnMut(&RunTree, &Record) -> Option<CancelledBy>;

/// Follows a tree until it ends or waits for an answer. The first signal cancels the tree; after a second one it is left to its
/// worker.
pub(crate) async fn follow(
    server: &Server,
    tree: Uuid,
    session: &Session,
    show: Show,
    signals: &mut Signals,
    on_record: OnRecord<'_>,
) -> anyhow::Result<WatchResult> {
    let mut watch = RemoteWatch::new(show, &session.prompt);
    let (fold, reached) = (RunTree::default(), Instant::now());
    let mut follower = Follower { server, tree, fold, reached, parked_at: None, look_at: reached, on_record };
    let (mut signal, mut live) = (None, LiveReplies::new(tree));
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(follower.look_at) => (),
            piece = live.next() => {
                live.take(piece).iter().for_each(|event| watch.show(event));
                watch.draw();
                if live.waits_for_record() {
                    follower.look_at = Instant::now();
                }
                continue;
            }
            number = signals.next() => {
                if follower.is_left(&mut signal, number).await? { break } else { continue }
            }
        }
        // A look is interrupted by signals only: pieces may come faster than it takes.
        let news = tokio::select! {
            news = follower.look() => news?,
            number = signals.next() => {
                if follower.is_left(&mut signal, number).await? { break } else { continue }
            }
        };
        if let Some(journal) = session.homing.journal() {
            copy(journal, news.records.clone()).await?;
        }
        for record in &news.records {
            watch.show(&Event::Fact(record.clone()));
            live.take_record(record).iter().for_each(|event| watch.show(event));
        }
        watch.draw();
        if news.is_last {
            break;
        }
        if let Some(worker) = news.live.filter(|_| watch.shows_text()) {
            live.read_from(server, &worker);
        }
        if let Some(by) = news.cancel {
            follower.cancel(by).await?;
        }
    }
    let fold = follower.fold;
    let root = fold.root().ok_or_else(|| Trouble::config(format!("the server has lost run {tree}")))?;
    let envelope = Envelope::new(&fold, root);
    let is_answer_shown = watch.has_shown(&envelope.output);
    Ok(WatchResult { envelope, signal, is_answer_shown })
}

struct Follower<'a> {
    server: &'a Server,
    tree: Uuid,
    fold: RunTree,
    /// Time at which the server last answered.
    reached: Instant,
    /// Position at which the tree only waited for answers.
    parked_at: Option<u64>,
    /// Time of the next look.
    look_at: Instant,
    on_record: OnRecord<'a>,
}

struct News {
    records: Vec<Arc<Record>>,
    is_last: bool,
    /// The reason to cancel the tree.
    cancel: Option<CancelledBy>,
    /// The worker that serves the text of replies.
    live: Option<String>,
}

impl Follower<'_> {
    /// Reads what was recorded since the last look.
    async fn look(&mut self) -> Result<News, Trouble> {
        let next = self.fold.next_seq();
        let page = match self.server.records(self.tree, next).await {
            Ok(page) => page.ok_or_else(|| Trouble::usage(format!("the server has no run {}", self.tree)))?,
            Err(error) if error.is_transient() && self.reached.elapsed() < PATIENCE => {
                self.look_at = Instant::now() + IDLE;
                return Ok(News { records: Vec::new(), is_last: false, cancel: None, live: None });
            }
            Err(error) => return Err(error.into()),
        };
        self.reached = Instant::now();
        let mut cancel = None;
        for record in &page.records {
            self.fold.apply(record).map_err(|error| Trouble::config(error.to_string()))?;
            cancel = (self.on_record)(&self.fold, record).or(cancel);
        }
        if let Some(reason) = page.stuck {
            return Err(Trouble::config(format!("run {} is stuck: {reason}", self.tree)));
        }
        let parked = self.fold.is_parked().then(|| self.fold.next_seq());
        let is_parked = parked.is_some() && parked == self.parked_at;
        self.parked_at = parked;
        let is_last = page.is_over || is_parked;
        self.look_at = Instant::now()
            + match (page.has_more, page.records.is_empty()) {
                (true, _) => Duration::ZERO,
                (false, false) => BUSY,
                (false, true) => IDLE,
            };
        Ok(News { records: page.records, is_last, cancel, live: page.live })
    }

    /// Cancels the tree after the first signal. Returns whether it is left to its worker, after another one.
    async fn is_left(&self, signal: &mut Option<u8>, number: u8) -> Result<bool, Trouble> {
        if signal.replace(number).is_some() {
            terminal::say("the run may still be working; `homing cancel` stops it");
            return Ok(true);
        }
        self.cancel(CancelledBy::Signal).await?;
        Ok(false)
    }

    async fn cancel(&self, by: CancelledBy) -> Result<(), Trouble> {
        self.server.post(self.tree, SegmentRequest::Cancel { run: self.tree, by }).await?;
        Ok(())
    }
}
