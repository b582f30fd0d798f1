//! Workers of one process that share a log, a ledger and inboxes in memory, as the workers of a server do.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use homing_core::{
    BoxFuture,
    fact::{Fact, Record, Spawned},
    limits::Limits,
    place::Place,
    taint::Origin,
    tree::{
        RunTree, Share,
        segment::{self, segment_of},
    },
};
use homing_runtime::{
    RunHandle, Runtime, Task,
    journal::{Begun, Claim, Commit, FactListener, Journal, JournalError},
    learn_news,
    placement::{ClaimedSegment, Placement, SegmentRequest, SegmentShares, SliceReply, SliceRequest},
    settle_share,
};
use uuid::Uuid;

/// A tree and its workers.
pub struct Cluster {
    state: Mutex<State>,
    workers: OnceLock<Vec<Runtime>>,
    next: AtomicUsize,
    /// The agent whose segments count as crashed again and again.
    crashing: Option<&'static str>,
}

#[derive(Default)]
struct State {
    log: Vec<Arc<Record>>,
    epoch: u32,
    owners: HashMap<Uuid, u32>,
    handles: HashMap<Uuid, (Runtime, RunHandle)>,
    sums: BTreeMap<Uuid, Share>,
    shares: BTreeMap<Uuid, SegmentShares>,
    /// The largest sum of shares that the ledger has granted, by run.
    most: BTreeMap<Uuid, Share>,
}

/// The journal of one worker.
pub struct WorkerJournal {
    cluster: Arc<Cluster>,
    listener: OnceLock<FactListener>,
}

impl Cluster {
    pub fn new(crashing: Option<&'static str>) -> Arc<Self> {
        let (state, workers, next) = (Mutex::default(), OnceLock::new(), AtomicUsize::new(0));
        Arc::new(Self { state, workers, next, crashing })
    }

    pub fn journal(self: &Arc<Self>) -> Arc<WorkerJournal> {
        Arc::new(WorkerJournal { cluster: self.clone(), listener: OnceLock::new() })
    }

    /// Submits a task to these workers and returns the root, which the first of them drives.
    pub async fn submit(self: &Arc<Self>, workers: Vec<Runtime>, task: &Task) -> RunHandle {
        let (spawned, id) = (workers[0].root(task).unwrap(), Uuid::from_u128(u128::MAX));
        let at = workers[0].parts().sources.clock.now_ms();
        let fact = Fact::Spawned(Arc::new(spawned));
        let first = Record { tree: id, seq: 0, at, epoch: 1, run: id, place: Place::root(), fact };
        {
            let mut state = self.state.lock().unwrap();
            (state.epoch, state.log) = (1, vec![Arc::new(first)]);
        }
        assert!(self.workers.set(workers).is_ok());
        self.drive(id, id).await
    }

    /// Gives the root to the next worker, with more budget.
    pub async fn resume(self: &Arc<Self>, more: Limits) -> RunHandle {
        let id = Uuid::from_u128(u128::MAX);
        self.drive_with(id, id, more).await
    }

    /// Gives a segment to the next worker.
    async fn drive(self: &Arc<Self>, tree: Uuid, segment: Uuid) -> RunHandle {
        self.drive_with(tree, segment, Limits::default()).await
    }

    async fn drive_with(self: &Arc<Self>, tree: Uuid, segment: Uuid, more: Limits) -> RunHandle {
        let workers = self.workers.get().unwrap();
        let worker = &workers[self.next.fetch_add(1, Ordering::Relaxed) % workers.len()];
        let handle = worker.resume_segment(tree, segment, more).await.unwrap();
        self.state.lock().unwrap().handles.insert(segment, (worker.clone(), handle.clone()));
        handle
    }

    /// Raises the limits of the root, through the worker that drives it.
    pub async fn raise(&self, more: Limits) {
        let run = Uuid::from_u128(u128::MAX);
        let (worker, _) = self.handle(run).unwrap();
        worker.deliver(run, SegmentRequest::Extend { run, more }, "one").await;
    }

    /// Number of segments that were started.
    pub fn segments(&self) -> usize {
        self.state.lock().unwrap().handles.len()
    }

    /// The largest share of the limits of a run that was ever granted.
    pub fn most(&self, run: Uuid) -> Share {
        self.state.lock().unwrap().most.get(&run).copied().unwrap_or_default()
    }

    fn fold(&self) -> RunTree {
        let mut fold = RunTree::default();
        for record in &self.state.lock().unwrap().log {
            fold.apply(record).unwrap();
        }
        fold
    }

    fn handle(&self, segment: Uuid) -> Option<(Runtime, RunHandle)> {
        self.state.lock().unwrap().handles.get(&segment).cloned()
    }
}

impl Journal for WorkerJournal {
    fn on_durable(&self, listener: FactListener) {
        let _ = self.listener.set(listener);
    }

    fn begin(&self, _: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        unreachable!("trees are submitted")
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        let mut state = self.cluster.state.lock().unwrap();
        if !state.owners.values().any(|epoch| *epoch == record.epoch) {
            return Commit::Done(Err(JournalError::Fenced { tree: record.tree }));
        }
        let seq = state.log.len() as u64;
        state.log.push(Arc::new(Record { seq, ..Record::clone(&record) }));
        drop(state);
        if let Some(listener) = self.listener.get() {
            listener(&record);
        }
        Commit::Done(Ok(()))
    }

    fn load(&self, _: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        let log = self.cluster.state.lock().unwrap().log.clone();
        Box::pin(std::future::ready(Ok(log)))
    }

    fn claim(&self, tree: Uuid, _: Claim) -> BoxFuture<'_, Result<u32, JournalError>> {
        Box::pin(std::future::ready(Err(JournalError::NoSuchTree(tree))))
    }

    fn release(&self, _: Uuid) {}

    fn placement(&self) -> Option<Arc<dyn Placement>> {
        Some(Arc::new(Workers(self.cluster.clone())))
    }
}

/// The placement that all workers share.
struct Workers(Arc<Cluster>);

impl Placement for Workers {
    fn places(&self, _: &Spawned) -> bool {
        true
    }

    fn start(&self, tree: Uuid, segment: Uuid, parent: Uuid) -> BoxFuture<'_, Result<(), JournalError>> {
        let cluster = self.0.clone();
        Box::pin(async move {
            if cluster.handle(segment).is_some() {
                return Ok(());
            }
            tokio::spawn(async move {
                let handle = cluster.drive(tree, segment).await;
                handle.wait().await;
                settle_share(&handle).await.unwrap();
                if let Some((_, parent)) = cluster.handle(parent) {
                    learn_news(&parent).await.unwrap();
                }
            });
            Ok(())
        })
    }

    fn claim(&self, tree: Uuid, segment: Uuid) -> BoxFuture<'_, Result<ClaimedSegment, JournalError>> {
        let all = self.0.fold();
        let mut state = self.0.state.lock().unwrap();
        state.epoch += 1;
        let epoch = state.epoch;
        state.owners.insert(segment, epoch);
        let fold = segment::Segment::new(&all, segment).fold().ok_or(JournalError::NoSuchTree(tree));
        let crashes =
            all.get(segment).and_then(|run| (self.0.crashing == Some(run.spawned.agent.name.as_str())).then_some(5));
        let claimed = fold.map(|fold| ClaimedSegment { epoch, position: all.next_seq(), fold, crashes });
        Box::pin(std::future::ready(claimed))
    }

    fn release(&self, _: Uuid, _: u32) {}

    fn send(
        &self,
        _: Uuid,
        segment: Uuid,
        request: SegmentRequest,
        key: String,
    ) -> BoxFuture<'_, Result<(), JournalError>> {
        let handle = self.0.handle(segment);
        Box::pin(async move {
            let (worker, _) = handle.ok_or(JournalError::NoSuchTree(segment))?;
            worker.deliver(segment, request, &key).await;
            Ok(())
        })
    }

    fn origins(&self, _: Uuid) -> BoxFuture<'_, Result<BTreeSet<Origin>, JournalError>> {
        let origins = self.0.fold().origins().clone();
        Box::pin(std::future::ready(Ok(origins)))
    }

    fn reserve(&self, slice: SliceRequest) -> BoxFuture<'_, Result<SliceReply, JournalError>> {
        Box::pin(async move {
            // Others have their turn while a request is under way.
            tokio::task::yield_now().await;
            let mut state = self.0.state.lock().unwrap();
            let sum = |holder: &Uuid| state.sums.get(holder).copied().unwrap_or_default();
            let mut sums: Vec<Share> = slice.shares.iter().map(|wanted| sum(&wanted.holder)).collect();
            let reply = state.shares.entry(slice.segment).or_default().replace(&slice, &mut sums);
            for (wanted, sum) in slice.shares.iter().zip(sums) {
                let most = state.most.entry(wanted.holder).or_default();
                most.tool_calls = most.tool_calls.max(sum.tool_calls);
                most.children = most.children.max(sum.children);
                most.spent.cost_micros = most.spent.cost_micros.max(sum.total().cost_micros);
                state.sums.insert(wanted.holder, sum);
            }
            Ok(reply)
        })
    }
}

/// The number of segments in a log.
pub fn segments_in(fold: &RunTree) -> usize {
    let all: BTreeSet<Option<Uuid>> = fold.runs().iter().map(|run| segment_of(fold, run.id)).collect();
    all.len()
}

impl Cluster {
    /// The tree, as everyone sees it.
    pub fn tree(&self) -> RunTree {
        self.fold()
    }
}
