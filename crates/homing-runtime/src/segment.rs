//! A segment of a tree that several processes drive: its state in memory, its part of the tree's ledger, and the runs below it
//! that others drive.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homing_core::{
    definition::Isolation,
    fact::{CancelledBy, Fact, FailureKind, LimitHit, OBSERVES, Outcome, Record, Spawned},
    limits::{Limit, Limits},
    run::Run,
    tree::{RunTree, Share, segment},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    handle::RunHandle,
    journal::JournalError,
    ledger::worst_case,
    live_run::LiveRun,
    live_tree::LiveTree,
    placement::{ClaimedSegment, HolderShare, Placement, SegmentRequest, SliceRequest},
    resume::{Interrupted, extends, interrupted_ask},
    runtime::{Inner, Runtime, SpawnError},
    segment_requests::{fresh_key, pass_on},
    task::Task,
};

/// Pause before a request to the server is repeated that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// The segment that a [`LiveTree`] is.
pub(crate) struct Segment {
    /// Its first run.
    pub(crate) root: Uuid,
    pub(crate) placement: Arc<dyn Placement>,
    /// Position up to which the log was read.
    position: tokio::sync::Mutex<u64>,
    /// Position up to which the log was searched for higher limits of the runs above.
    limits_read: tokio::sync::Mutex<u64>,
    /// Held while a request to the ledger is under way, because each states the whole share of the segment.
    turn: tokio::sync::Mutex<()>,
    /// Shares that runs were granted and have not recorded yet.
    granted: Mutex<HashMap<Uuid, Share>>,
    /// Notified when the share becomes smaller, so that others may use the rest.
    pub(crate) settled: Notify,
}

impl Segment {
    pub(crate) fn new(root: Uuid, placement: Arc<dyn Placement>, position: u64) -> Self {
        Self {
            root,
            placement,
            position: tokio::sync::Mutex::new(position),
            limits_read: tokio::sync::Mutex::new(position),
            turn: tokio::sync::Mutex::default(),
            granted: Mutex::default(),
            settled: Notify::new(),
        }
    }

    /// Returns whether a new child begins a segment. Children that report without being waited for, or whose folder or memory
    /// belongs to this machine, do not.
    pub(crate) fn places(&self, child: &Spawned) -> bool {
        let execution = &child.agent.execution;
        let is_tied = child.background
            || child.tags.contains_key(OBSERVES)
            || child.delay_ms > 0
            || execution.isolation == Isolation::Worktree
            || execution.memory.is_some();
        !is_tied && self.placement.places(child)
    }

    fn granted(&self) -> MutexGuard<'_, HashMap<Uuid, Share>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the time between the grant of a share and its record. Called under the lock of the tree.
    pub(crate) fn grant_used(&self, run: Uuid, share: &Share) {
        let mut granted = self.granted();
        let Some(held) = granted.get_mut(&run) else { return };
        *held = held.minus(share);
        if *held == Share::default() {
            granted.remove(&run);
        }
    }
}

/// Asks the ledger for what a call of `run` needs. Returns the refusal if it does not fit; the fold then knows what the other
/// segments use.
pub(crate) async fn reserve_share(tree: &LiveTree, run: Uuid, need: Share) -> Result<Option<Refusal>, JournalError> {
    let Some(segment) = &tree.segment else { return Ok(None) };
    let _turn = segment.turn.lock().await;
    let refusal = send_share(tree, segment, Some((run, need))).await?;
    if refusal.is_none() {
        let mut granted = segment.granted();
        let held = granted.entry(run).or_default();
        *held = held.plus(&need);
    }
    Ok(refusal)
}

/// The limit for which the ledger refused a share; `None` if it knows a later owner of the segment.
pub(crate) struct Refusal(pub(crate) Option<LimitHit>);

/// Tells the ledger what the segment uses, and learns what the others do.
pub(crate) async fn report_share(tree: &LiveTree) -> Result<(), JournalError> {
    let Some(segment) = &tree.segment else { return Ok(()) };
    let _turn = segment.turn.lock().await;
    send_share(tree, segment, None).await?;
    Ok(())
}

/// Returns whether model calls of this segment need a share of limits that others use as well.
pub(crate) fn shares_limits(tree: &LiveTree) -> bool {
    tree.segment.is_some() && tree.read(|fold| shares_limits_in(tree, fold))
}

/// Like [`shares_limits`], under the lock of the tree.
pub(crate) fn shares_limits_in(tree: &LiveTree, fold: &RunTree) -> bool {
    let holders = |segment: &Segment| segment::Segment::new(fold, segment.root).shared_holders();
    tree.segment.as_ref().is_some_and(|segment| !holders(segment).is_empty())
}

async fn send_share(
    tree: &LiveTree,
    segment: &Segment,
    need: Option<(Uuid, Share)>,
) -> Result<Option<Refusal>, JournalError> {
    let shares = tree.read(|fold| {
        let mut pending = segment.granted().clone();
        if let Some((run, need)) = need {
            let held = pending.entry(run).or_default();
            *held = held.plus(&need);
        }
        let holders = segment::Segment::new(fold, segment.root).shared_holders();
        holders.iter().filter_map(|holder| holder_share(fold, *holder, segment.root, &pending)).collect::<Vec<_>>()
    });
    if shares.is_empty() {
        return Ok(None);
    }
    let (root, must_fit) = (segment.root, need.is_some());
    let request = SliceRequest { tree: tree.id, segment: root, epoch: tree.epoch, shares: shares.clone(), must_fit };
    let reply = segment.placement.reserve(request).await?;
    let mut fold = tree.lock();
    for (holder, elsewhere) in &reply.elsewhere {
        segment::set_elsewhere(&mut fold, *holder, root, elsewhere);
    }
    if reply.is_granted {
        return Ok(None);
    }
    let need = need.map(|(_, need)| need).unwrap_or_default();
    let hits =
        shares.iter().zip(&reply.elsewhere).map(|(share, (_, elsewhere))| refused(&fold, share, elsewhere, &need));
    Ok(Some(Refusal(hits.flatten().next())))
}

/// The limit that a share exceeds because of what it needs beyond what it has.
fn refused(fold: &RunTree, wanted: &HolderShare, elsewhere: &Share, need: &Share) -> Option<LimitHit> {
    let (before, sum) = (wanted.share.minus(need), wanted.share.plus(elsewhere));
    let name = wanted.exceeded(&before, &sum)?;
    let (limit, spent) = (wanted.limit(name)?, elsewhere.plus(&before).used(name)?);
    Some(LimitHit { name, limit, spent, place: fold.get(wanted.holder)?.place.clone() })
}

/// Learns whether the limits of runs above the segment were raised, after they refused something. Only the owners of those runs
/// record it.
pub(crate) async fn read_limits(tree: &LiveTree) -> Result<(), JournalError> {
    let Some(segment) = tree.segment.as_ref().filter(|segment| segment.root != tree.id) else { return Ok(()) };
    let mut position = segment.limits_read.lock().await;
    let records = tree.journal.since(tree.id, *position).await?;
    let mut fold = tree.lock();
    for record in &records {
        *position = record.seq + 1;
        let is_above = || fold.is_below(segment.root, record.run);
        if matches!(record.fact, Fact::Extended { .. }) && is_above() {
            let record = Record { seq: fold.next_seq(), ..Record::clone(record) };
            fold.apply(&record).expect("its run exists");
        }
    }
    Ok(())
}

/// Learns what untrusted content runs of other segments have read.
pub(crate) async fn read_origins(tree: &LiveTree) -> Result<(), JournalError> {
    let Some(segment) = &tree.segment else { return Ok(()) };
    let origins = segment.placement.origins(tree.id).await?;
    segment::add_origins(&mut tree.lock(), &origins);
    Ok(())
}

/// Returns whether another process drives the run.
pub(crate) fn is_driven_elsewhere(tree: &LiveTree, run: Uuid) -> bool {
    tree.segment.as_ref().is_some_and(|segment| tree.read(|fold| segment::segment_of(fold, run) != Some(segment.root)))
}

/// The run under which this process knows a tree: the first one of those that it drives.
pub(crate) fn key(tree: &LiveTree) -> Uuid {
    tree.segment.as_ref().map_or(tree.id, |segment| segment.root)
}

/// Applies a record of another segment below `top`. Returns false if it is not about a run below it.
fn apply_foreign(tree: &LiveTree, record: &Record, top: Uuid) -> bool {
    let mut fold = tree.lock();
    let about = match &record.fact {
        Fact::Spawned(spawned) => spawned.parent.filter(|_| fold.get(record.run).is_none()),
        _ => Some(record.run).filter(|run| segment::segment_of(&fold, *run) != Some(top)),
    };
    if !about.is_some_and(|run| run == top || fold.is_below(run, top)) {
        return false;
    }
    // Positions in this fold are those of this process.
    let record = Record { seq: fold.next_seq(), ..record.clone() };
    fold.apply(&record).expect("its run exists");
    true
}

/// The share of a segment in the limits of one run, with what its runs were granted.
fn holder_share(fold: &RunTree, holder: Uuid, segment: Uuid, pending: &HashMap<Uuid, Share>) -> Option<HolderShare> {
    let run = fold.get(holder)?;
    let own = segment::Segment::new(fold, segment).own_share(holder);
    let below =
        pending.iter().filter(|(id, _)| fold.get(**id).is_some_and(|run_below| run_below.place.is_within(&run.place)));
    let share = below.fold(own, |sum, (_, granted)| sum.plus(granted));
    let limit = |name| run.limits.cap(name).value();
    Some(HolderShare {
        holder,
        tokens: limit(Limit::Tokens),
        cost_micros: limit(Limit::Cost),
        tool_calls: limit(Limit::ToolCalls),
        children: limit(Limit::Children),
        share,
    })
}

impl Runtime {
    /// Returns what the root of a tree is created with, for a host that submits it to the workers of a server.
    ///
    /// # Errors
    /// Fails as [`Runtime::spawn`] does.
    pub fn root(&self, task: &Task) -> Result<Spawned, SpawnError> {
        self.0.root_spawned(task)
    }

    /// Claims a segment of a tree and drives it. A segment that has ended stays ended, unless a limit ended it and `more` extends
    /// that limit.
    ///
    /// # Errors
    ///
    /// Fails if the journal places no runs, the segment is unknown or another worker drives it, or the journal cannot be written.
    pub async fn resume_segment(&self, tree: Uuid, segment: Uuid, more: Limits) -> Result<RunHandle, SpawnError> {
        let Some(placement) = self.0.parts.journal.placement() else {
            return Err(JournalError::NoSuchTree(tree).into());
        };
        let ClaimedSegment { epoch, fold, position, crashes } = placement.claim(tree, segment).await?;
        let interrupted = Interrupted::unknown();
        let had_ended = fold.get(segment).is_none_or(|run| run.ended.is_some());
        let is_over = had_ended && !extends(&fold, segment, more);
        let state = Segment::new(segment, placement, position);
        let tree = live_segment(&self.0, tree, epoch, fold, state);
        if had_ended && !is_over {
            drop(tree.record(segment, Fact::Extended { more: Box::new(more) }));
        }
        match crashes {
            Some(times) if !is_over => end_crashed(&tree, segment, times).await?,
            None if !is_over => {
                self.0.add_tree(tree.clone());
                self.0.resume_open_runs(&tree, &interrupted);
                tokio::spawn(report_settlements(tree.clone()));
            }
            Some(_) | None => (),
        }
        if is_over || crashes.is_some() {
            give_up(&self.0, &tree);
        }
        Ok(RunHandle::new(self.clone(), tree, segment))
    }
}

/// Reads what other processes have recorded about runs of the tree of `run`.
///
/// # Errors
/// Fails if the journal cannot be read.
pub async fn learn_news(run: &RunHandle) -> Result<(), JournalError> {
    read_news(&run.runtime().0, run.live_tree()).await
}

/// Tells the tree's ledger what the segment of `run` has used.
///
/// # Errors
/// Fails if the ledger cannot be reached.
pub async fn settle_share(run: &RunHandle) -> Result<(), JournalError> {
    report_share(run.live_tree()).await
}

fn live_segment(runtime: &Inner, id: Uuid, epoch: u32, fold: RunTree, segment: Segment) -> Arc<LiveTree> {
    let (journal, clock) = (runtime.parts.journal.clone(), runtime.parts.sources.clock.clone());
    LiveTree::new(id, epoch, fold, journal, clock, runtime.secrets.clone(), Some(segment))
}

/// Applies the records of other segments to the fold, and wakes the runs that wait for them.
pub(crate) async fn read_news(runtime: &Inner, tree: &LiveTree) -> Result<(), JournalError> {
    let Some(segment) = &tree.segment else { return Ok(()) };
    let mut position = segment.position.lock().await;
    let records = tree.journal.since(tree.id, *position).await?;
    for record in &records {
        *position = record.seq + 1;
        if record.epoch == tree.epoch || !apply_foreign(tree, record, segment.root) {
            continue;
        }
        wake_for(runtime, tree, record);
    }
    drop(position);
    if !records.is_empty() {
        tree.settled.notify_waiters();
    }
    Ok(())
}

fn wake_for(runtime: &Inner, tree: &LiveTree, record: &Record) {
    match &record.fact {
        Fact::Spawned(spawned) => {
            let parent = spawned.parent.and_then(|id| tree.live_run(id));
            let stop = parent.map_or_else(CancellationToken::new, |parent| parent.stop.child_token());
            tree.add_live_run(LiveRun::new(record.run, record.place.clone(), stop));
        }
        Fact::Ended(_) => {
            let parent = tree.read_run(record.run, |run| run.spawned.parent);
            runtime.run_ended(tree, record.run);
            if let Some(live_run) = tree.live_run(record.run) {
                live_run.over.cancel();
                tree.remove_live_run(record.run);
            }
            if let Some(parent) = parent.and_then(|id| tree.live_run(id)) {
                parent.wake.notify_one();
            }
        }
        _ => (),
    }
}

/// Ends the runs of a segment at which workers died again and again.
async fn end_crashed(tree: &LiveTree, segment: Uuid, times: u32) -> Result<(), JournalError> {
    let open: Vec<Uuid> = tree.read(|fold| {
        let is_own = |run: &&Run| run.ended.is_none() && segment::segment_of(fold, run.id) == Some(segment);
        fold.runs().iter().rev().filter(is_own).map(|run| run.id).collect()
    });
    for below in tree.read(|fold| segment::Segment::new(fold, segment).open_below()) {
        pass_on(tree, SegmentRequest::Cancel { run: below, by: CancelledBy::ParentEnded });
    }
    for run in open {
        let (asked, account) = tree.read_run(run, |run| (run.open_ask().cloned(), run.spawned.account.clone()));
        if let Some(asked) = asked {
            let charge = worst_case(&asked);
            if let Some(account) = account {
                tree.journal.charge_interrupted(&account, run, charge);
            }
            drop(tree.record(run, interrupted_ask(charge)));
        }
        let message = format!("{times} workers died at the same step of this run");
        let ended = tree.read_run(run, |run| run.ending(Outcome::failed(FailureKind::CrashLoop, message)));
        tree.record(run, Fact::Ended(Arc::new(ended))).await?;
    }
    Ok(())
}

/// Drives a new child, or leaves it to another worker.
pub(crate) fn drive_child(runtime: &Arc<Inner>, tree: &Arc<LiveTree>, live_run: Arc<LiveRun>, is_placed: bool) {
    if is_placed {
        attend_elsewhere(tree, live_run);
    } else {
        runtime.drive(tree.clone(), live_run);
    }
}

/// Attends to a run that another process drives: starts its segment, and cancels it if this run must stop.
pub(crate) fn attend_elsewhere(tree: &Arc<LiveTree>, live_run: Arc<LiveRun>) {
    let (tree, abandoned) = (tree.clone(), tree.abandoned.clone());
    tokio::spawn(abandoned.run_until_cancelled_owned(async move {
        let Some(segment) = &tree.segment else { return };
        // The ledger must know what this segment uses before the other one asks for its share.
        until_done(|| report_share(&tree)).await;
        until_done(|| segment.placement.start(tree.id, live_run.run, segment.root)).await;
        tokio::select! {
            () = live_run.over.cancelled() => return,
            () = live_run.stop.cancelled() => (),
        }
        let cancel = || SegmentRequest::Cancel { run: live_run.run, by: CancelledBy::ParentEnded };
        let key = fresh_key();
        until_done(|| segment.placement.send(tree.id, live_run.run, cancel(), key.clone())).await;
    }));
}

/// Gives up the ownership of a tree, or of the segment of it that this process drives.
pub(crate) fn give_up(runtime: &Inner, tree: &LiveTree) {
    match &tree.segment {
        Some(segment) => segment.placement.release(tree.id, tree.epoch),
        None => runtime.parts.journal.release(tree.id),
    }
}

/// Repeats a request until it succeeds.
pub(crate) async fn until_done<F: Future<Output = Result<(), JournalError>>>(request: impl Fn() -> F) {
    while let Err(error) = request().await {
        tracing::warn!(%error, "a request to other workers failed; trying again");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Tells the ledger whenever the segment needs less of a shared limit.
async fn report_settlements(tree: Arc<LiveTree>) {
    let Some(segment) = &tree.segment else { return };
    let over = tree.live_run(segment.root).map(|run| run.over.clone()).unwrap_or_default();
    loop {
        tokio::select! {
            () = tree.abandoned.cancelled() => return,
            () = over.cancelled() => return,
            () = segment.settled.notified() => (),
        }
        if shares_limits(&tree)
            && let Err(error) = report_share(&tree).await
        {
            tracing::warn!(tree = %tree.id, %error, "cannot report to the ledger");
        }
    }
}
