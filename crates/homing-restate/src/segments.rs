//! `Segments`: places runs on any worker, claims segments, and connects their owners through the objects of the tree.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use homing_core::{
    BoxFuture,
    fact::{Record, Spawned},
    taint::Origin,
    tree::{
        RunTree,
        segment::{Segment, segment_of},
    },
};
use homing_runtime::{
    journal::{FactListener, JournalError},
    placement::{ClaimedSegment, Placement, SegmentRequest, SliceReply, SliceRequest},
};
use uuid::Uuid;

use crate::{
    journal::{Mirror, OwnedSegment, OwnedTrees, records_since, unwritable},
    protocol::{Claimed, LEDGER, Posted, Release, Start, TREE, Take, Waiting},
    server::{Server, ServerError},
    writer::Writer,
};

/// When child runs are left to other workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Never: a tree stays on one worker.
    Never,
    /// When this worker has many runs in progress.
    #[default]
    Auto,
    /// Always.
    Always,
}

/// The segments of trees that this worker drives.
pub(crate) struct Segments {
    pub(crate) server: Server,
    pub(crate) owned: OwnedTrees,
    spread: Spread,
    /// Runs in progress from which on this worker leaves new children to others.
    busy: AtomicUsize,
    listener: Arc<OnceLock<FactListener>>,
    mirrors: Mutex<HashMap<Uuid, Arc<tokio::sync::Mutex<Mirror>>>>,
}

impl Segments {
    pub(crate) fn new(server: Server, spread: Spread, listener: Arc<OnceLock<FactListener>>) -> Arc<Self> {
        let (owned, busy) = (OwnedTrees::default(), AtomicUsize::new(usize::MAX));
        Arc::new(Self { server, owned, spread, busy, listener, mirrors: Mutex::default() })
    }

    /// Sets the number of runs in progress from which on this worker leaves new children to others.
    pub(crate) fn set_busy(&self, runs: usize) {
        self.busy.store(runs, Ordering::Relaxed);
    }

    /// Reads the requests to the owner of a segment, after `done` of them were carried out.
    pub(crate) async fn take(&self, tree: Uuid, segment: Uuid, done: usize) -> Result<Vec<Waiting>, ServerError> {
        self.server.call(&[TREE, &tree.to_string(), "take"], &Take { segment, done }).await
    }

    /// Returns the requests that no record of the tree shows as carried out.
    pub(crate) async fn not_done(&self, tree: Uuid, requests: Vec<Waiting>) -> Result<Vec<Waiting>, JournalError> {
        let needs_proof = |waiting: &&Waiting| match waiting.request {
            SegmentRequest::Tell { .. } | SegmentRequest::Extend { .. } => true,
            SegmentRequest::Cancel { .. } | SegmentRequest::Answer { .. } => false,
        };
        let Some(from) = requests.iter().filter(needs_proof).map(|waiting| waiting.at).min() else {
            return Ok(requests);
        };
        // What this worker has recorded itself may be on its way.
        self.owned.flush(tree).await;
        Ok(without_proof(requests, records_since(&self.server, tree, from).await?))
    }

    /// Returns whether the end of a segment is stored.
    pub(crate) async fn is_over(&self, tree: Uuid, segment: Uuid) -> Result<bool, ServerError> {
        self.server.call(&[TREE, &tree.to_string(), "is_over"], &segment).await
    }

    fn mirror(&self, tree: Uuid) -> Arc<tokio::sync::Mutex<Mirror>> {
        self.mirrors.lock().unwrap_or_else(PoisonError::into_inner).entry(tree).or_default().clone()
    }

    /// The segment, folded from all records of its tree.
    async fn fold(&self, tree: Uuid, segment: Uuid, epoch: u32) -> Result<RunTree, JournalError> {
        let mirror = self.mirror(tree);
        let mut mirror = mirror.lock().await;
        mirror.update(&self.server, tree).await?;
        let fold = Segment::new(&mirror.fold, segment).fold().ok_or(JournalError::NoSuchTree(segment))?;
        let is_own = |id: Uuid| segment_of(&fold, id) == Some(segment);
        let open = fold.runs().iter().filter(|run| run.ended.is_none() && is_own(run.id)).count();
        let writer = || Writer { server: self.server.clone(), listener: self.listener.clone(), tree };
        self.owned.add(tree, epoch, segment, open, writer);
        Ok(fold)
    }

    fn give_back(&self, tree: Uuid, segment: Uuid, epoch: u32) {
        let server = self.server.clone();
        tokio::spawn(async move {
            // Without it, the next claim only counts one death too many.
            let _ = server.call::<()>(&[TREE, &tree.to_string(), "release"], &Release { segment, epoch }).await;
        });
    }
}

/// Removes the requests that records show as carried out. Each record is the proof of one request.
fn without_proof(requests: Vec<Waiting>, mut records: Vec<Arc<Record>>) -> Vec<Waiting> {
    let mut left = Vec::new();
    for waiting in requests {
        let proof = |record: &Arc<Record>| record.seq >= waiting.at && waiting.request.is_done_by(record);
        match records.iter().position(proof) {
            Some(at) => drop(records.remove(at)),
            None => left.push(waiting),
        }
    }
    left
}

impl Placement for Segments {
    fn places(&self, _: &Spawned) -> bool {
        match self.spread {
            Spread::Never => false,
            Spread::Auto => self.owned.open_runs() >= self.busy.load(Ordering::Relaxed),
            Spread::Always => true,
        }
    }

    fn start(&self, tree: Uuid, segment: Uuid, parent: Uuid) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            // The record of the run must be stored before another worker looks for it.
            self.owned.flush(tree).await;
            let start = Start { segment, parent };
            let path = [TREE, &tree.to_string(), "start"];
            self.server.call_until_answered::<()>(&path, &start).await.map_err(unwritable)
        })
    }

    fn claim(&self, tree: Uuid, segment: Uuid) -> BoxFuture<'_, Result<ClaimedSegment, JournalError>> {
        Box::pin(async move {
            let claimed = self.server.call(&[TREE, &tree.to_string(), "claim"], &segment).await.map_err(unwritable)?;
            let (epoch, crashes) = match claimed {
                Claimed::Epoch(epoch) => (epoch, None),
                Claimed::CrashLoop { times, epoch: Some(epoch) } => (epoch, Some(times)),
                Claimed::CrashLoop { times, epoch: None } => return Err(JournalError::CrashLoop { tree, times }),
                Claimed::NoSuchTree => return Err(JournalError::NoSuchTree(tree)),
            };
            let folded = self.fold(tree, segment, epoch).await;
            if folded.is_err() {
                // A worker that cannot read the records is not one that died while it drove the segment.
                self.give_back(tree, segment, epoch);
            }
            let fold = folded?;
            Ok(ClaimedSegment { epoch, position: fold.next_seq(), fold, crashes })
        })
    }

    fn release(&self, tree: Uuid, epoch: u32) {
        let Some(OwnedSegment { segment, open }) = self.owned.remove(tree, epoch) else { return };
        if !self.owned.has(tree) {
            self.mirrors.lock().unwrap_or_else(PoisonError::into_inner).remove(&tree);
        }
        // The end of a segment gives it back, too.
        if open > 0 {
            self.give_back(tree, segment, epoch);
        }
    }

    fn send(
        &self,
        tree: Uuid,
        segment: Uuid,
        request: SegmentRequest,
        key: String,
    ) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let posted = Posted { segment, key, request };
            self.server.post_once(tree, &posted).await.map_err(unwritable)?;
            Ok(())
        })
    }

    fn origins(&self, tree: Uuid) -> BoxFuture<'_, Result<BTreeSet<Origin>, JournalError>> {
        Box::pin(async move {
            let mirror = self.mirror(tree);
            let mut mirror = mirror.lock().await;
            mirror.update(&self.server, tree).await?;
            Ok(mirror.fold.origins().clone())
        })
    }

    fn reserve(&self, slice: SliceRequest) -> BoxFuture<'_, Result<SliceReply, JournalError>> {
        Box::pin(async move {
            let path = [LEDGER, &slice.tree.to_string(), "reserve"];
            self.server.call_until_answered(&path, &slice).await.map_err(unwritable)
        })
    }
}

#[cfg(test)]
mod tests {
    use homing_core::{
        fact::Fact,
        limits::{Cap, Limits},
        place::Place,
    };

    use super::*;

    fn record(seq: u64, fact: Fact) -> Arc<Record> {
        Arc::new(Record { tree: Uuid::nil(), seq, at: 1, epoch: 1, run: Uuid::nil(), place: Place::root(), fact })
    }

    fn told(seq: u64, message: &str) -> Arc<Record> {
        record(seq, Fact::Told { from: None, message: message.to_owned() })
    }

    fn tell(at: u64, message: &str) -> Waiting {
        let request = SegmentRequest::Tell { run: Uuid::nil(), from: None, message: message.to_owned() };
        Waiting { at, key: at.to_string(), request }
    }

    #[test]
    fn requests_that_a_dead_owner_carried_out_are_not_repeated() {
        let left = |requests, records| -> Vec<u64> {
            without_proof(requests, records).into_iter().map(|waiting| waiting.at).collect()
        };
        assert_eq!(left(vec![tell(3, "go on")], vec![told(4, "go on")]), Vec::<u64>::new());
        assert_eq!(left(vec![tell(3, "go on")], vec![told(2, "go on")]), [3], "an earlier one with the same words");
        assert_eq!(
            left(vec![tell(3, "go on"), tell(4, "go on")], vec![told(5, "go on")]),
            [4],
            "one record, one request"
        );
        assert_eq!(left(vec![tell(3, "go on")], vec![told(5, "stop")]), [3]);
        let mut more = Limits::default();
        more.turns = Cap::At(2);
        let extend = Waiting { at: 3, key: String::new(), request: SegmentRequest::Extend { run: Uuid::nil(), more } };
        assert_eq!(
            left(vec![extend.clone()], vec![record(3, Fact::Extended { more: Box::new(more) })]),
            Vec::<u64>::new()
        );
        assert_eq!(left(vec![extend], vec![told(3, "more")]), [3]);
    }
}
