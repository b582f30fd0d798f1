//! A run tree in memory: the fold of its facts, its live runs and its subscribers. Every fact is recorded here.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use homing_core::{
    envelope::Envelope,
    fact::{Fact, Record, Spawned},
    id_map::IdMap,
    place::Place,
    question::{Answer, QuestionId},
    redaction::Secrets,
    run::Run,
    tree::RunTree,
};
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    clock::Clock,
    event::{Event, Events, Past, Pieces, SubscribedTo, TextReader, Transient, TransientKind, TreeRecords},
    journal::{Commit, Journal, JournalError},
    live_run::LiveRun,
    segment::Segment,
    spawn_cache::SpawnCache,
};

/// Events that a slow subscriber may fall behind before it misses some.
const BACKLOG: usize = 1_024;

/// A run tree in memory.
pub(crate) struct LiveTree {
    pub(crate) id: Uuid,
    pub(crate) epoch: u32,
    /// The part of the tree that this process drives, if others may drive the rest.
    pub(crate) segment: Option<Segment>,
    fold: Mutex<RunTree>,
    live_runs: Mutex<IdMap<Uuid, Arc<LiveRun>>>,
    subscribers: Mutex<Subscribers>,
    /// Notified when a reservation is settled, so that the runs that wait for budget check again.
    pub(crate) settled: Notify,
    /// Notified when a question is answered.
    pub(crate) answered: Notify,
    /// Cancelled when this process stops driving the tree although it has not ended.
    pub(crate) abandoned: CancellationToken,
    pub(crate) journal: Arc<dyn Journal>,
    records: TreeRecords,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) spawn_cache: SpawnCache,
    /// Removed from every fact and notice.
    pub(crate) secrets: Secrets,
    /// The reason why the end of a run of this tree could not be recorded.
    unrecorded: OnceLock<String>,
}

/// The subscribers of a tree. The channel is allocated on the first subscription, because most of ten thousand trees
/// have no subscriber.
enum Subscribers {
    None(Past),
    Some {
        sender: broadcast::Sender<Event>,
        text_readers: TextReader,
    },
    /// The tree has ended, and so have the subscribers' streams.
    Closed,
}

/// The subscribers that a transient notice concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    All,
    /// Those that read pieces of replies. There may be thousands of pieces, and each wakes all subscribers.
    TextReaders,
}

impl Subscribers {
    /// Returns the channel if it has such subscribers.
    fn sender(&self, audience: Audience) -> Option<&broadcast::Sender<Event>> {
        let Self::Some { sender, text_readers } = self else { return None };
        (audience == Audience::All || Arc::strong_count(text_readers) > 1).then_some(sender)
    }
}

impl LiveTree {
    pub(crate) fn new(
        id: Uuid,
        epoch: u32,
        fold: RunTree,
        journal: Arc<dyn Journal>,
        clock: Arc<dyn Clock>,
        secrets: Secrets,
        segment: Option<Segment>,
    ) -> Arc<Self> {
        // Records of other segments are not published here.
        let past = if fold.next_seq() == 0 && segment.is_none() { Past::Empty } else { Past::Recorded };
        Arc::new(Self {
            id,
            epoch,
            segment,
            fold: Mutex::new(fold),
            live_runs: Mutex::default(),
            subscribers: Mutex::new(Subscribers::None(past)),
            settled: Notify::new(),
            records: TreeRecords::new(id, journal.clone()),
            answered: Notify::new(),
            abandoned: CancellationToken::new(),
            journal,
            clock,
            spawn_cache: SpawnCache::default(),
            secrets,
            unrecorded: OnceLock::new(),
        })
    }

    /// Reads the fold under the tree's lock; `read` must be short and must not use the tree again.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&RunTree) -> T) -> T {
        read(&self.lock())
    }

    /// Reads one run. A run is recorded before its id is given out, so it exists.
    pub(crate) fn read_run<T>(&self, run: Uuid, read: impl FnOnce(&Run) -> T) -> T {
        read(self.lock().get(run).expect("a run is recorded before it is driven"))
    }

    /// The current result of a run. A result that could not be recorded carries a warning.
    pub(crate) fn envelope(&self, run: Uuid) -> Option<Envelope> {
        let mut envelope = self.read(|tree| tree.get(run).map(|found| Envelope::new(tree, found)))?;
        envelope.warnings.extend(self.unrecorded.get().cloned());
        Some(envelope)
    }

    /// Notes that the end of a run could not be recorded.
    pub(crate) fn mark_end_unrecorded(&self, run: Uuid, error: &JournalError) {
        tracing::error!(%run, %error, "the end of a run could not be recorded");
        let consequence = match error {
            JournalError::Gone(_) => "it cannot be resumed",
            _ => "a resumed run would repeat the last steps",
        };
        let warning = format!("this result could not be recorded, so {consequence}: {error}");
        let _ = self.unrecorded.set(warning);
    }

    /// Records a fact.
    pub(crate) fn record(&self, run: Uuid, fact: Fact) -> Commit {
        let mut tree = self.lock();
        self.write(&mut tree, run, fact)
    }

    /// Decides under the lock what to record, if anything, so that the decision still holds when the fact is recorded.
    pub(crate) fn record_if<T>(
        &self,
        run: Uuid,
        decide: impl FnOnce(&RunTree) -> Result<Fact, T>,
    ) -> Result<Commit, T> {
        let mut tree = self.lock();
        let fact = decide(&tree)?;
        Ok(self.write(&mut tree, run, fact))
    }

    /// Records several facts without any other between them.
    pub(crate) fn record_all(&self, decide: impl FnOnce(&RunTree) -> Vec<(Uuid, Fact)>) -> Option<Commit> {
        let mut tree = self.lock();
        let facts = decide(&tree);
        facts.into_iter().map(|(run, fact)| self.write(&mut tree, run, fact)).last()
    }

    /// Records a new run, whose first fact `spawn` makes.
    pub(crate) fn record_spawn<E>(
        &self,
        run: Uuid,
        parent: Option<Uuid>,
        spawn: impl FnOnce(&RunTree) -> Result<Fact, E>,
    ) -> Result<(Place, Commit), E> {
        let mut tree = self.lock();
        let fact = spawn(&tree)?;
        let place = tree.next_place(parent);
        let record = self.next_record(&tree, run, place.clone(), fact);
        Ok((place, self.append(&mut tree, record)))
    }

    /// Applies a fact to the fold and appends it to the journal, both in the order of positions.
    fn write(&self, tree: &mut RunTree, run: Uuid, fact: Fact) -> Commit {
        let place = tree.get(run).map_or_else(Place::root, |run| run.place.clone());
        let record = self.next_record(tree, run, place, fact);
        self.append(tree, record)
    }

    pub(crate) fn next_record(&self, tree: &RunTree, run: Uuid, place: Place, fact: Fact) -> Arc<Record> {
        let at = self.clock.now_ms();
        let fact = self.secrets.redact_fact(fact);
        Arc::new(Record { tree: self.id, seq: tree.next_seq(), at, epoch: self.epoch, run, place, fact })
    }

    fn append(&self, tree: &mut RunTree, record: Arc<Record>) -> Commit {
        // A returned call releases nothing, but its run may now wait for others, which then must not wait for it.
        let settles = matches!(
            record.fact,
            Fact::Replied { .. }
                | Fact::AskFailed { .. }
                | Fact::Returned { .. }
                | Fact::Extended { .. }
                | Fact::Ended(_)
        );
        let answers = matches!(record.fact, Fact::Answered { .. });
        tree.apply(&record).expect("positions are given out under the lock");
        let commit = self.journal.append(record);
        if settles {
            self.settled.notify_waiters();
            if let Some(segment) = &self.segment {
                segment.settled.notify_one();
            }
        }
        if answers {
            self.answered.notify_waiters();
        }
        commit
    }

    /// Records the answer to a question; `None` if the run does not ask it, or not any more.
    pub(crate) fn record_answer(&self, run: Uuid, id: QuestionId, answer: Answer, by: &str) -> Option<Commit> {
        let is_asked = |tree: &RunTree| tree.get(run).is_some_and(|run| run.questions().is_open(id));
        let answer = Fact::Answered { id, answer, by: by.to_owned() };
        self.record_if(run, |tree| if is_asked(tree) { Ok(answer) } else { Err(()) }).ok()
    }

    /// Applies a first record that the journal already has.
    pub(crate) fn apply_first(&self, record: &Record) {
        self.lock().apply(record).expect("the first record of a tree");
    }

    /// Replaces the first fact before the journal has it.
    pub(crate) fn replace_root(&self, spawned: Arc<Spawned>) {
        self.lock().replace_root(spawned);
    }

    pub(crate) fn add_live_run(&self, live_run: Arc<LiveRun>) {
        self.live_runs.lock().unwrap_or_else(PoisonError::into_inner).insert(live_run.run, live_run);
    }

    pub(crate) fn live_run(&self, run: Uuid) -> Option<Arc<LiveRun>> {
        self.live_runs.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned()
    }

    pub(crate) fn remove_live_run(&self, run: Uuid) {
        self.live_runs.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
    }

    /// Sends a durable fact to subscribers.
    pub(crate) fn publish(&self, record: &Arc<Record>) {
        let mut subscribers = self.subscribers();
        self.records.keep(record);
        match &mut *subscribers {
            Subscribers::None(past) => *past = Past::Recorded,
            Subscribers::Some { sender, .. } => _ = sender.send(Event::Fact(record.clone())),
            Subscribers::Closed => (),
        }
        if record.run == self.id && matches!(record.fact, Fact::Ended(_)) {
            *subscribers = Subscribers::Closed;
        }
    }

    /// Sends subscribers a transient notice about a run; `kind` is called only if it concerns any of them.
    pub(crate) fn notify(&self, live_run: &LiveRun, audience: Audience, kind: impl FnOnce() -> TransientKind) {
        if let Some(sender) = self.subscribers().sender(audience) {
            let (place, at) = (live_run.place.clone(), self.clock.now_ms());
            let kind = redacted(kind(), &self.secrets);
            let notice = Transient { tree: self.id, run: live_run.run, place, at, kind };
            let _ = sender.send(Event::Transient(Arc::new(notice)));
        }
    }

    /// Subscribes to a run and its descendants, from the fact at position `from` on.
    pub(crate) fn subscribe(&self, run: Uuid, from: u64, pieces: Pieces) -> Events {
        let top = self.read_run(run, |run| run.place.clone());
        let mut subscribers = self.subscribers();
        let (receiver, past) = match &*subscribers {
            Subscribers::Some { sender, .. } => (sender.subscribe(), Past::Recorded),
            Subscribers::None(past) => {
                let (past, (sender, receiver)) = (*past, broadcast::channel(BACKLOG));
                *subscribers = Subscribers::Some { sender, text_readers: TextReader::default() };
                (receiver, past)
            }
            Subscribers::Closed => (broadcast::Sender::new(1).subscribe(), Past::Recorded),
        };
        let text_reader = match &*subscribers {
            Subscribers::Some { text_readers, .. } if pieces == Pieces::Included => Some(text_readers.clone()),
            Subscribers::Some { .. } | Subscribers::None(_) | Subscribers::Closed => None,
        };
        Events::new(self.records.clone(), receiver, past, SubscribedTo { top, text_reader }, from)
    }

    /// Ends the streams of subscribers, because nothing more will be recorded.
    pub(crate) fn close(&self) {
        *self.subscribers() = Subscribers::Closed;
    }

    fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current time on the tree's clock, which stands still while no process owns the tree.
    pub(crate) fn tree_clock(&self, tree: &RunTree) -> u64 {
        tree.clock_at(self.epoch, self.clock.now_ms())
    }

    /// Locks the fold. The caller must not wait while it holds it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, RunTree> {
        self.fold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes secrets from a notice. Questions are about calls of recorded replies, which contain none.
fn redacted(kind: TransientKind, secrets: &Secrets) -> TransientKind {
    let clean = |text: String| secrets.redact(&text).into_owned();
    match kind {
        TransientKind::Retrying { in_ms, reason } => TransientKind::Retrying { in_ms, reason: clean(reason) },
        TransientKind::Progress(text) => TransientKind::Progress(clean(text)),
        TransientKind::Text(text) => TransientKind::Text(clean(text)),
        TransientKind::Thinking(text) => TransientKind::Thinking(clean(text)),
        TransientKind::Warning(text) => TransientKind::Warning(clean(text)),
        TransientKind::Queued | TransientKind::WaitingForBudget | TransientKind::Question(_) => kind,
    }
}
