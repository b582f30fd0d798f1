//! What a host holds in its hands: one run, or all of them.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use homing_core::{
    envelope::{Envelope, EnvelopeUsage, Status, status},
    fact::CancelledBy,
    tree::RunTree,
};
use uuid::Uuid;

use crate::{
    event::Events,
    live_tree::LiveTree,
    runtime::{OnComplete, Runtime, SpawnError},
    task::Task,
};

/// A run. Dropping it detaches: the run goes on.
#[derive(Clone)]
pub struct RunHandle {
    runtime: Runtime,
    book: Arc<LiveTree>,
    run: Uuid,
}

impl RunHandle {
    pub(crate) fn new(runtime: Runtime, book: Arc<LiveTree>, run: Uuid) -> Self {
        Self { runtime, book, run }
    }

    /// Its id.
    pub fn id(&self) -> Uuid {
        self.run
    }

    /// The id of its tree.
    pub fn tree_id(&self) -> Uuid {
        self.book.id
    }

    /// Waits for its end. Never an error: an ending.
    pub async fn wait(&self) -> Envelope {
        if let Some(cell) = self.book.cell(self.run) {
            cell.over.cancelled().await;
        }
        self.envelope()
    }

    /// The result as it stands, children included.
    pub fn envelope(&self) -> Envelope {
        self.book.envelope(self.run).expect("a handle is made for a run that exists")
    }

    /// How it is going.
    pub fn status(&self) -> Status {
        self.book.look_at(self.run, status)
    }

    /// A copy of the whole tree as it stands.
    pub fn tree(&self) -> RunTree {
        self.book.look(RunTree::clone)
    }

    /// What happens to it and to everything below it, from now on.
    pub fn events(&self) -> Events {
        Events { receiver: self.book.subscribe(), top: self.book.look_at(self.run, |run| run.place.clone()) }
    }

    /// Asks it to stop; `false` where it has ended.
    pub fn cancel(&self, by: CancelledBy) -> bool {
        self.runtime.0.halt(&self.book, self.run, by)
    }

    /// Tells it something; `false` where it has ended.
    pub fn tell(&self, message: &str) -> bool {
        self.runtime.0.tell(&self.book, self.run, None, message)
    }

    /// A handle to another run of the same tree.
    pub fn of(&self, run: Uuid) -> Option<Self> {
        let exists = self.book.look(|tree| tree.get(run).is_some());
        exists.then(|| Self { runtime: self.runtime.clone(), book: self.book.clone(), run })
    }

    /// What it did so far, a line each.
    pub fn log(&self) -> Vec<String> {
        self.book.look_at(self.run, crate::transcript_lines::lines)
    }
}

/// Figures about everything a runtime has in hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Runs by how they are going, in the order of [`Status`].
    pub by_status: Vec<(Status, usize)>,
    /// What all of them used.
    pub total: EnvelopeUsage,
}

impl Runtime {
    /// Starts many.
    pub fn spawn_many(&self, tasks: impl IntoIterator<Item = Task>) -> Vec<Result<RunHandle, SpawnError>> {
        tasks.into_iter().map(|task| self.spawn(task)).collect()
    }

    /// A run by its id.
    pub fn get(&self, run: Uuid) -> Option<RunHandle> {
        let book = self.0.books().into_iter().find(|book| book.look(|tree| tree.get(run).is_some()))?;
        Some(RunHandle::new(self.clone(), book, run))
    }

    /// Every run that is going like this.
    pub fn list(&self, wanted: Status) -> Vec<RunHandle> {
        let of = |book: Arc<LiveTree>| {
            let ids: Vec<Uuid> =
                book.look(|tree| tree.runs().iter().filter(|run| status(run) == wanted).map(|run| run.id).collect());
            ids.into_iter().map(move |id| (book.clone(), id)).collect::<Vec<_>>()
        };
        let all = self.0.books().into_iter().flat_map(of);
        all.map(|(book, id)| RunHandle::new(self.clone(), book, id)).collect()
    }

    /// Waits for all of these.
    pub async fn wait_all(&self, runs: &[RunHandle]) -> Vec<Envelope> {
        futures::future::join_all(runs.iter().map(RunHandle::wait)).await
    }

    /// Waits for the first of these to end, and says which it was; `None` where there are none.
    pub async fn wait_any(&self, runs: &[RunHandle]) -> Option<(usize, Envelope)> {
        if runs.is_empty() {
            return None;
        }
        let (envelope, at, _) = futures::future::select_all(runs.iter().map(|run| Box::pin(run.wait()))).await;
        Some((at, envelope))
    }

    /// Waits until `wanted` of these are done, then stops the rest. Fewer come back where fewer succeed.
    pub async fn quorum(&self, runs: &[RunHandle], wanted: usize) -> Vec<Envelope> {
        use futures::StreamExt;
        let mut ends: futures::stream::FuturesUnordered<_> = runs.iter().map(RunHandle::wait).collect();
        let mut done = Vec::new();
        while done.len() < wanted
            && let Some(envelope) = ends.next().await
        {
            if envelope.status == Status::Done {
                done.push(envelope);
            }
        }
        for run in runs {
            run.cancel(CancelledBy::Host);
        }
        done
    }

    /// The first of these that is done; the rest is stopped.
    pub async fn first_of(&self, runs: &[RunHandle]) -> Option<Envelope> {
        self.quorum(runs, 1).await.pop()
    }

    /// Asks every root to stop, and says how many were still going.
    pub fn cancel_all(&self, by: &CancelledBy) -> usize {
        self.0.books().iter().filter(|book| self.0.halt(book, book.id, by.clone())).count()
    }

    /// Has `callback` called with every run that ends from now on.
    pub fn on_complete(&self, callback: OnComplete) {
        self.0.on_complete.lock().unwrap_or_else(PoisonError::into_inner).push(callback);
    }

    /// Figures about everything in hand.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics::default();
        for book in self.0.books() {
            book.look(|tree| {
                for run in tree.runs() {
                    let status = status(run);
                    match statistics.by_status.iter_mut().find(|(it, _)| *it == status) {
                        Some((_, count)) => *count += 1,
                        None => statistics.by_status.push((status, 1)),
                    }
                }
                if let Some(root) = tree.root() {
                    add(&mut statistics.total, &Envelope::new(tree, root).subtree);
                }
            });
        }
        statistics.by_status.sort();
        statistics
    }

    /// Ends every run, each with its envelope; what is still going after `grace` is left to itself.
    pub async fn shutdown(&self, grace: Duration) -> Vec<Envelope> {
        let open: Vec<RunHandle> = self
            .0
            .books()
            .into_iter()
            .filter(|book| book.look(|tree| tree.root().is_some_and(|root| root.ended.is_none())))
            .map(|book| RunHandle::new(self.clone(), book.clone(), book.id))
            .collect();
        for run in &open {
            run.cancel(CancelledBy::Host);
        }
        let _ = tokio::time::timeout(grace, futures::future::join_all(open.iter().map(RunHandle::wait))).await;
        open.iter().map(RunHandle::envelope).collect()
    }

    /// Carries out what other processes want of runs in hand. Returns when there is nothing more.
    pub async fn answer_inbox(&self) {
        use crate::journal::InboxRequest;
        for request in self.0.parts.journal.inbox().await {
            match request {
                InboxRequest::Cancel { tree, run, by } => {
                    if let Some(book) = self.0.book(tree) {
                        self.0.halt(&book, run, CancelledBy::Other(by));
                    }
                }
                InboxRequest::Tell { tree, run, message } => {
                    if let Some(book) = self.0.book(tree) {
                        self.0.tell(&book, run, None, &message);
                    }
                }
            }
        }
    }
}

fn add(total: &mut EnvelopeUsage, more: &EnvelopeUsage) {
    total.input += more.input;
    total.cached += more.cached;
    total.output += more.output;
    total.cost_micros += more.cost_micros;
    total.estimated |= more.estimated;
    total.turns += more.turns;
    total.tool_calls += more.tool_calls;
    total.wall_ms = total.wall_ms.max(more.wall_ms);
}

/// Several results as one report: what was answered, what failed, what it cost.
pub fn aggregate(results: &[Envelope]) -> String {
    let mut total = EnvelopeUsage::default();
    let mut text = String::new();
    for result in results {
        add(&mut total, &result.subtree);
        let note = result.error.as_ref().map(|error| format!(": {}", error.message)).unwrap_or_default();
        text.push_str(&format!("## {} ({}{note})\n{}\n\n", result.agent, result.status.name(), result.output.trim()));
    }
    let done = results.iter().filter(|result| result.status == Status::Done).count();
    let cost = homing_core::limits::usd(total.cost_micros);
    text.push_str(&format!("{done} of {} done · {} tokens · {cost}", results.len(), total.input + total.output));
    text
}
