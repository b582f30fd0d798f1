//! A tree under way: its fold, its log, and those who wait for something in it. Every fact goes through one door.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use homing_core::{
    envelope::Envelope,
    fact::{Fact, Record},
    message::{FNV_START, fnv},
    model::Toolbox,
    place::Place,
    run::Run,
    tool::{Tool, ToolSpec, ToolState},
    tool_names,
    tree::RunTree,
};
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    clock::Clock,
    event::{Event, Transient, TransientKind},
    journal::{Commit, Journal, JournalError},
};

/// Events that a slow subscriber may fall behind before it misses some.
const BACKLOG: usize = 4_096;

/// A tree under way.
pub(crate) struct LiveTree {
    pub(crate) id: Uuid,
    pub(crate) epoch: u32,
    tree: Mutex<RunTree>,
    cells: Mutex<HashMap<Uuid, Arc<LiveRun>>>,
    events: Mutex<Subscribers>,
    /// Notified whenever a hold has become smaller: those who wait for room look again.
    pub(crate) settled: Notify,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) environment: Arc<dyn Clock>,
    /// Why the journal does not know how a run of this tree ended.
    unrecorded: OnceLock<String>,
}

/// Who watches a tree. The channel's room is taken only once somebody does: ten thousand trees that nobody watches cost
/// nothing.
enum Subscribers {
    Nobody,
    Watching(broadcast::Sender<Event>),
    /// The tree is over, and so are the subscribers' streams.
    Over,
}

/// The part of a run that lives only while it is under way.
pub(crate) struct LiveRun {
    pub(crate) run: Uuid,
    pub(crate) place: Place,
    /// Cancelled when the run is to stop; a child's follows its parent's.
    pub(crate) stop: CancellationToken,
    /// Cancelled once its end is recorded.
    pub(crate) over: CancellationToken,
    /// Notified when somebody told it something, or a background child ended.
    pub(crate) wake: Notify,
    /// What its tools remember.
    pub(crate) state: Arc<ToolState>,
    pub(crate) kit: OnceLock<Arc<RunTools>>,
    /// The tools that its agent and those above it have brought; `None` before they are needed, and after its end.
    brought: Mutex<Option<AgentTools>>,
}

/// Tools that agents have brought for a run, the nearest agent's first.
pub(crate) type AgentTools = Arc<[Arc<dyn Tool>]>;

/// The tools a run has, as its model sees them.
pub(crate) struct RunTools {
    pub(crate) toolbox: Toolbox,
    /// The size of their faces, which every request carries.
    pub(crate) bytes: u64,
    /// A fingerprint of their faces.
    pub(crate) hash: u64,
}

impl RunTools {
    pub(crate) fn new(specs: Vec<ToolSpec>) -> Arc<Self> {
        let json = serde_json::to_vec(&specs).unwrap_or_default();
        let bytes = if specs.is_empty() { 0 } else { json.len() as u64 };
        Arc::new(Self { toolbox: Toolbox::new(specs), bytes, hash: fnv(FNV_START, &json) })
    }

    /// The name under which this kit has the tool that a model calls `name`.
    pub(crate) fn find(&self, name: &str) -> Option<&ToolSpec> {
        let has = |wanted: &str| self.toolbox.specs.iter().find(|spec| spec.name == wanted);
        has(name).or_else(|| has(tool_names::canonical(name)?))
    }
}

impl LiveRun {
    pub(crate) fn new(run: Uuid, place: Place, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            run,
            place,
            stop,
            over: CancellationToken::new(),
            wake: Notify::new(),
            state: Arc::default(),
            kit: OnceLock::new(),
            brought: Mutex::default(),
        })
    }

    /// The tools that agents have brought for this run, made on first use.
    pub(crate) fn brought(&self, make: impl FnOnce() -> AgentTools) -> AgentTools {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(make).clone()
    }

    /// Lets go of them, and so of what they have started.
    pub(crate) fn let_go(&self) {
        let brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::from([]));
        drop(brought);
    }
}

impl LiveTree {
    pub(crate) fn new(
        id: Uuid,
        epoch: u32,
        tree: RunTree,
        journal: Arc<dyn Journal>,
        environment: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            epoch,
            tree: Mutex::new(tree),
            cells: Mutex::default(),
            events: Mutex::new(Subscribers::Nobody),
            settled: Notify::new(),
            journal,
            environment,
            unrecorded: OnceLock::new(),
        })
    }

    /// Looks at the fold. Short and without waiting.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&RunTree) -> T) -> T {
        look(&self.lock())
    }

    /// Looks at one run, which was recorded before anybody could ask for it.
    pub(crate) fn look_at<T>(&self, run: Uuid, look: impl FnOnce(&Run) -> T) -> T {
        look(self.lock().get(run).expect("a run is recorded before it is driven"))
    }

    /// How a run stands, or what it brought home. A result that is not on disk says so.
    pub(crate) fn envelope(&self, run: Uuid) -> Option<Envelope> {
        let mut envelope = self.look(|tree| tree.get(run).map(|it| Envelope::new(tree, it)))?;
        envelope.warnings.extend(self.unrecorded.get().cloned());
        Some(envelope)
    }

    /// The end of a run could not be written.
    pub(crate) fn lose_end(&self, run: Uuid, error: &JournalError) {
        tracing::error!(%run, %error, "a run has ended, and the journal does not know");
        let _ = self
            .unrecorded
            .set(format!("this result is not recorded, and a resumed run would begin before it: {error}"));
    }

    /// Records a fact.
    pub(crate) fn record(&self, run: Uuid, fact: Fact) -> Commit {
        let mut tree = self.lock();
        self.write(&mut tree, run, fact)
    }

    /// Decides under the lock what to record, if anything: what was true when it was decided is true when it is written.
    pub(crate) fn record_if<T>(
        &self,
        run: Uuid,
        decide: impl FnOnce(&RunTree) -> Result<Fact, T>,
    ) -> Result<Commit, T> {
        let mut tree = self.lock();
        let fact = decide(&tree)?;
        Ok(self.write(&mut tree, run, fact))
    }

    /// Records several facts with nothing between them.
    pub(crate) fn record_all(&self, decide: impl FnOnce(&RunTree) -> Vec<(Uuid, Fact)>) -> Option<Commit> {
        let mut tree = self.lock();
        let facts = decide(&tree);
        facts.into_iter().map(|(run, fact)| self.write(&mut tree, run, fact)).last()
    }

    /// Records a new run. `spawn` gets its place and makes its first fact.
    pub(crate) fn record_spawn<E>(
        &self,
        run: Uuid,
        parent: Option<Uuid>,
        spawn: impl FnOnce(&RunTree) -> Result<Fact, E>,
    ) -> Result<(Place, Commit), E> {
        let mut tree = self.lock();
        let fact = spawn(&tree)?;
        let place = tree.next_place(parent);
        let record = self.make(&tree, run, place.clone(), fact);
        Ok((place, self.append(&mut tree, record)))
    }

    /// The one door: the fold first, then the journal, in the same order.
    fn write(&self, tree: &mut RunTree, run: Uuid, fact: Fact) -> Commit {
        let place = tree.get(run).map_or_else(Place::root, |run| run.place.clone());
        let record = self.make(tree, run, place, fact);
        self.append(tree, record)
    }

    pub(crate) fn make(&self, tree: &RunTree, run: Uuid, place: Place, fact: Fact) -> Arc<Record> {
        let at = self.environment.now_ms();
        Arc::new(Record { tree: self.id, seq: tree.next_seq(), at, epoch: self.epoch, run, place, fact })
    }

    fn append(&self, tree: &mut RunTree, record: Arc<Record>) -> Commit {
        let settles = matches!(record.fact, Fact::Replied { .. } | Fact::AskFailed { .. } | Fact::Ended(_));
        tree.apply(&record).expect("positions are given out under the lock");
        let commit = self.journal.append(record);
        if settles {
            self.settled.notify_waiters();
        }
        commit
    }

    /// Takes a first record in that the journal has already.
    pub(crate) fn adopt(&self, record: &Record) {
        self.lock().apply(record).expect("the first record of a tree");
    }

    pub(crate) fn add_cell(&self, cell: Arc<LiveRun>) {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).insert(cell.run, cell);
    }

    pub(crate) fn cell(&self, run: Uuid) -> Option<Arc<LiveRun>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned()
    }

    pub(crate) fn remove_cell(&self, run: Uuid) {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
    }

    /// Shows a durable fact to subscribers.
    pub(crate) fn publish(&self, record: &Arc<Record>) {
        let mut audience = self.audience();
        if let Subscribers::Watching(sender) = &*audience {
            let _ = sender.send(Event::Fact(record.clone()));
        }
        if record.run == self.id && matches!(record.fact, Fact::Ended(_)) {
            *audience = Subscribers::Over;
        }
    }

    /// Shows something passing, if anybody looks.
    pub(crate) fn pass(&self, cell: &LiveRun, what: impl FnOnce() -> TransientKind) {
        if let Subscribers::Watching(sender) = &*self.audience() {
            let at = self.environment.now_ms();
            let passing = Transient { tree: self.id, run: cell.run, place: cell.place.clone(), at, what: what() };
            let _ = sender.send(Event::Transient(Arc::new(passing)));
        }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        let mut audience = self.audience();
        match &*audience {
            Subscribers::Watching(sender) => sender.subscribe(),
            Subscribers::Nobody => {
                let (sender, receiver) = broadcast::channel(BACKLOG);
                *audience = Subscribers::Watching(sender);
                receiver
            }
            Subscribers::Over => broadcast::Sender::new(1).subscribe(),
        }
    }

    fn audience(&self) -> MutexGuard<'_, Subscribers> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tree's clock now.
    pub(crate) fn clock(&self, tree: &RunTree) -> u64 {
        tree.clock_at(self.epoch, self.environment.now_ms())
    }

    fn lock(&self) -> MutexGuard<'_, RunTree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
