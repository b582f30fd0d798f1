//! `RestateJournal`: the journal of trees whose facts are kept by a Restate server.
//!
//! Each tree of which this worker owns a segment has a queue. One task per tree appends everything that is queued as one
//! request, so that a thousand runs of a tree share their requests to the server, whichever segments they belong to.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use homing_core::{
    BoxFuture,
    fact::{Fact, Record, Reservation},
    message::Usage,
    tree::RunTree,
};
use homing_runtime::{
    journal::{AccountHold, Begun, Claim, Commit, FactListener, Journal, JournalError},
    placement::Placement,
};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{
    accounts::Accounts,
    bodies,
    protocol::{Facts, TREE},
    rate_limits::RateLimits,
    segments::{Segments, Spread},
    server::{Server, ServerError},
    writer::{Queued, Writer},
};

/// The journal of trees on a Restate server.
pub struct RestateJournal {
    segments: Arc<Segments>,
    accounts: Accounts,
    rate_limits: Arc<RateLimits>,
    listener: Arc<OnceLock<FactListener>>,
}

/// The trees of which this worker owns segments.
#[derive(Default)]
pub(crate) struct OwnedTrees(Mutex<HashMap<Uuid, OwnedTree>>);

struct OwnedTree {
    sender: mpsc::UnboundedSender<Queued>,
    /// The owned segments, by their epochs.
    claims: HashMap<u32, OwnedSegment>,
}

/// A segment that this worker owns.
pub(crate) struct OwnedSegment {
    pub(crate) segment: Uuid,
    /// Runs in progress.
    pub(crate) open: usize,
}

impl OwnedTrees {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, OwnedTree>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this worker owns a segment.
    pub(crate) fn add(&self, tree: Uuid, epoch: u32, segment: Uuid, open: usize, writer: impl FnOnce() -> Writer) {
        let mut trees = self.lock();
        let owned = trees.entry(tree).or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(writer().work(receiver));
            OwnedTree { sender, claims: HashMap::new() }
        });
        owned.claims.insert(epoch, OwnedSegment { segment, open });
    }

    /// Notes that this worker has given a segment up, and returns the segment.
    pub(crate) fn remove(&self, tree: Uuid, epoch: u32) -> Option<OwnedSegment> {
        let mut trees = self.lock();
        let owned = trees.get_mut(&tree)?;
        let removed = owned.claims.remove(&epoch);
        if owned.claims.is_empty() {
            trees.remove(&tree);
        }
        removed
    }

    /// Returns whether this worker owns a segment of the tree.
    pub(crate) fn has(&self, tree: Uuid) -> bool {
        self.lock().contains_key(&tree)
    }

    /// The number of runs in progress.
    pub(crate) fn open_runs(&self) -> usize {
        self.lock().values().flat_map(|tree| tree.claims.values()).map(|claim| claim.open).sum()
    }

    /// Queues a record; returns false if its writer does not own the segment any more.
    fn queue(&self, record: Arc<Record>, done: oneshot::Sender<Result<(), JournalError>>) -> bool {
        let mut trees = self.lock();
        let Some(owned) = trees.get_mut(&record.tree) else { return false };
        let Some(claim) = owned.claims.get_mut(&record.epoch) else { return false };
        match &record.fact {
            Fact::Spawned(spawned) if !spawned.placed => claim.open += 1,
            Fact::Ended(_) => claim.open = claim.open.saturating_sub(1),
            _ => (),
        }
        owned.sender.send(Queued::Record { segment: claim.segment, record, done }).is_ok()
    }

    /// Waits until everything that is queued for a tree is stored or has failed.
    pub(crate) async fn flush(&self, tree: Uuid) {
        let (done, flushed) = oneshot::channel();
        let sent = self.lock().get(&tree).is_some_and(|owned| owned.sender.send(Queued::Flush(done)).is_ok());
        if sent {
            let _ = flushed.await;
        }
    }
}

impl RestateJournal {
    /// A journal that owns no tree yet.
    pub(crate) fn new(server: Server, spread: Spread, accounts: Accounts, rate_limits: Arc<RateLimits>) -> Arc<Self> {
        let listener = Arc::<OnceLock<FactListener>>::default();
        let segments = Segments::new(server, spread, listener.clone());
        Arc::new(Self { segments, accounts, rate_limits, listener })
    }

    pub(crate) fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }
}

impl Journal for RestateJournal {
    fn on_durable(&self, listener: FactListener) {
        let _ = self.listener.set(listener);
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        // Trees are begun by their submitter, through the object of the tree.
        let error = format!("tree {} must be submitted to the server", first.tree);
        Box::pin(std::future::ready(Err(JournalError::Unwritable(error))))
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        let tree = record.tree;
        let (done, result) = oneshot::channel();
        if !self.segments.owned.queue(record, done) {
            return Commit::Done(Err(JournalError::Fenced { tree }));
        }
        Commit::Pending(Box::pin(async move { result.await.unwrap_or(Err(JournalError::Fenced { tree })) }))
    }

    fn load(&self, tree: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        self.since(tree, 0)
    }

    fn since(&self, tree: Uuid, from: u64) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        Box::pin(records_since(&self.segments.server, tree, from))
    }

    fn claim(&self, tree: Uuid, _: Claim) -> BoxFuture<'_, Result<u32, JournalError>> {
        // Segments are claimed, not whole trees.
        let error = format!("tree {tree} is driven by the workers of a server");
        Box::pin(std::future::ready(Err(JournalError::Unwritable(error))))
    }

    fn release(&self, _: Uuid) {}

    fn placement(&self) -> Option<Arc<dyn Placement>> {
        Some(self.segments.clone())
    }

    fn pause_rate_limit(&self, key: &str, until: u64) {
        self.rate_limits.set(key, until);
    }

    fn rate_limited_until(&self, key: &str) -> Option<u64> {
        self.rate_limits.until(key)
    }

    fn refresh_rate_limit<'a>(&'a self, key: &'a str) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(self.rate_limits.refresh(key)))
    }

    fn hold_at_account<'a>(
        &'a self,
        account: &'a str,
        run: Uuid,
        hold: Reservation,
    ) -> BoxFuture<'a, Result<AccountHold, JournalError>> {
        Box::pin(self.accounts.hold(account, run, hold))
    }

    fn settle_at_account(&self, account: &str, run: Uuid, _: Reservation, used: Usage) {
        self.accounts.settle(account, run, used);
    }

    fn charge_interrupted(&self, account: &str, run: Uuid, used: Usage) {
        self.accounts.settle(account, run, used);
    }
}

/// The records of a tree from a position on.
pub(crate) async fn records_since(server: &Server, tree: Uuid, from: u64) -> Result<Vec<Arc<Record>>, JournalError> {
    let mut records: Vec<Arc<Record>> = Vec::new();
    loop {
        let from = from + records.len() as u64;
        let path = [TREE, &tree.to_string(), "facts"];
        let page: Option<Facts> = server.call_until_answered(&path, &from).await.map_err(unwritable)?;
        let page = page.ok_or(JournalError::NoSuchTree(tree))?;
        records.extend(read(server, tree, from, &page).await?);
        if from + page.records.len() as u64 >= page.next || page.records.is_empty() {
            return Ok(records);
        }
    }
}

/// A fold of a whole tree that segments of this worker share, so that each reads only what is new.
#[derive(Default)]
pub(crate) struct Mirror {
    pub(crate) fold: RunTree,
}

impl Mirror {
    /// Applies what was recorded since the last time.
    pub(crate) async fn update(&mut self, server: &Server, tree: Uuid) -> Result<(), JournalError> {
        for record in records_since(server, tree, self.fold.next_seq()).await? {
            self.fold.apply(&record).map_err(|error| JournalError::Damaged(error.to_string()))?;
        }
        Ok(())
    }
}

/// A page of a tree's records.
pub(crate) async fn page(server: &Server, tree: Uuid, from: u64) -> Result<Option<Facts>, ServerError> {
    server.call(&[TREE, &tree.to_string(), "facts"], &from).await
}

/// Parses the records of a page that begins at a position.
pub(crate) async fn read(
    server: &Server,
    tree: Uuid,
    from: u64,
    page: &Facts,
) -> Result<Vec<Arc<Record>>, JournalError> {
    let mut texts = BTreeMap::new();
    let mut hashes: Vec<String> = page.records.iter().flat_map(|raw| bodies::references(raw)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    for hash in hashes {
        let path = [TREE, &tree.to_string(), "body"];
        let text: Option<String> = server.call_until_answered(&path, &hash).await.map_err(unwritable)?;
        texts.insert(hash, text.unwrap_or_default());
    }
    let parsed = page.records.iter().zip(from..).map(|(raw, seq)| {
        bodies::read(raw, seq, &texts).map(Arc::new).map_err(|error| JournalError::Unknown(error.to_string()))
    });
    parsed.collect()
}

pub(crate) fn unwritable(error: ServerError) -> JournalError {
    JournalError::Unwritable(error.to_string())
}
