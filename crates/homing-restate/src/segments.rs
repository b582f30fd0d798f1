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
    fact::Spawned,
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
    journal::{Mirror, OwnedSegment, OwnedTrees, unwritable},
    protocol::{Claimed, LEDGER, Posted, Release, Start, TREE, Take},
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
    pub(crate) async fn take(
        &self,
        tree: Uuid,
        segment: Uuid,
        done: usize,
    ) -> Result<Vec<SegmentRequest>, ServerError> {
        self.server.call(&[TREE, &tree.to_string(), "take"], &Take { segment, done }).await
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

    fn send(&self, tree: Uuid, segment: Uuid, request: SegmentRequest) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let posted = Posted { segment, request };
            self.server.call::<bool>(&[TREE, &tree.to_string(), "post"], &posted).await.map_err(unwritable)?;
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
