//! The object of a tree: its records in the order in which they arrived, the owners of its segments, and their inboxes. It
//! stores records as they are and does not know their meaning.

use std::collections::BTreeMap;

use restate_sdk::{context::RequestTarget, prelude::*};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::protocol::{
    Append, Appended, Begin, Begun, Claimed, Deleted, Facts, Group, Job, KEY, LEDGER, Meta, Posted, RUN, Release,
    Reopen, Reopened, SegmentState, Start, TREE, Take, VERSION, Waiting,
};

/// After this many deaths of workers at the same step, a segment is not driven any more.
const CRASH_LOOP: u32 = 5;

/// A death of a worker that had recorded nothing counts for less: it may only have waited for other segments.
const IDLE_DEATHS: u32 = 10;

/// Size at which a page of records ends.
const PAGE: usize = 1024 * 1024;

/// Groups of records whose positions are kept at hand, for readers that have read the rest.
const TAIL: usize = 256;

const META: &str = "meta";

/// The name of a group of records, by the position of the first.
fn chunk(from: u64) -> String {
    format!("r{from:010}")
}

fn inbox(segment: Uuid) -> String {
    format!("i{segment}")
}

fn owner(segment: Uuid) -> String {
    format!("s{segment}")
}

/// The object of a tree.
pub(crate) struct TreeObject;

#[restate_sdk::object(
    name = "HomingTree",
    lazy_state,
    journal_retention = "0s",
    idempotency_retention = "1h",
    invocation_retry_policy(initial_interval = "50ms", max_interval = "5s", max_attempts = 1_000_000_000)
)]
impl TreeObject {
    /// Begins the tree and starts the workflow of its root, together or not at all.
    #[handler]
    async fn begin(&self, ctx: ObjectContext<'_>, begin: Json<Begin>) -> HandlerResult<()> {
        let Begin { tree, definitions, first, version, key, .. } = begin.0;
        if ctx.get::<Json<Meta>>(META).await?.is_some() {
            return Ok(());
        }
        let mut meta = Meta { epoch: 1, definitions: definitions.clone(), version, key, ..Meta::default() };
        let mut segment = SegmentState { epoch: 1, ..SegmentState::default() };
        store_bodies(&ctx, first.bodies);
        for group in first.groups {
            store(&ctx, &mut meta, &mut segment, group);
        }
        drive(&ctx, tree, &segment, Job { tree, definitions, version });
        ctx.set(&owner(tree), Json(segment));
        ctx.set(META, Json(meta));
        Ok(())
    }

    /// Appends records of the owners of segments.
    #[handler]
    async fn append(&self, ctx: ObjectContext<'_>, append: Json<Append>) -> HandlerResult<Json<Vec<Appended>>> {
        let Append { groups, bodies } = append.0;
        let Some(mut meta) = read_meta(&ctx).await? else {
            return Ok(Json(groups.iter().map(|_| Appended::Fenced).collect()));
        };
        store_bodies(&ctx, bodies);
        let (mut results, before) = (Vec::with_capacity(groups.len()), meta.next);
        for mut group in groups {
            let (id, key) = (group.segment, owner(group.segment));
            let mut segment = ctx.get::<Json<SegmentState>>(&key).await?.map(Json::into_inner).unwrap_or_default();
            if group.epoch != segment.epoch {
                results.push(Appended::Fenced);
                continue;
            }
            if group.from > segment.written {
                results.push(Appended::Gap { next: segment.written });
                continue;
            }
            // The owner repeats a request whose reply was lost.
            let known = usize::try_from(segment.written - group.from).unwrap_or(usize::MAX);
            group.records.drain(..known.min(group.records.len()));
            results.push(Appended::Stored);
            if group.records.is_empty() {
                continue;
            }
            let is_over = group.is_over;
            store(&ctx, &mut meta, &mut segment, group);
            let parent = segment.parent.filter(|_| is_over);
            meta.is_over |= is_over && segment.parent.is_none() && id.to_string() == ctx.key();
            ctx.set(&key, Json(segment));
            if let Some(parent) = parent {
                nudge(&ctx, parent).await?;
            }
        }
        if meta.next > before {
            ctx.set(META, Json(meta));
        }
        Ok(Json(results))
    }

    /// Starts the workflow of a segment, unless it was started before.
    #[handler]
    async fn start(&self, ctx: ObjectContext<'_>, start: Json<Start>) -> HandlerResult<()> {
        let Start { segment, parent } = start.0;
        let Some(Meta { definitions, version, .. }) = read_meta(&ctx).await? else { return Ok(()) };
        let key = owner(segment);
        if ctx.get::<Json<SegmentState>>(&key).await?.is_some() {
            return Ok(());
        }
        let state = SegmentState { parent: Some(parent), ..SegmentState::default() };
        drive(&ctx, segment, &state, Job { tree: tree_of(&ctx)?, definitions, version });
        ctx.set(&key, Json(state));
        Ok(())
    }

    /// Lets workers drive a tree again that has ended, to carry out a request about its root.
    #[handler]
    async fn reopen(&self, ctx: ObjectContext<'_>, reopen: Json<Reopen>) -> HandlerResult<Json<Reopened>> {
        let Reopen { next, request } = reopen.0;
        let (tree, key) = (tree_of(&ctx)?, owner(tree_of(&ctx)?));
        let (Some(mut meta), Some(Json(mut root))) =
            (read_meta(&ctx).await?, ctx.get::<Json<SegmentState>>(&key).await?)
        else {
            return Ok(Json(Reopened::NoSuchTree));
        };
        if !meta.is_over || meta.next != next {
            return Ok(Json(Reopened::Changed));
        }
        // Promises belong to a workflow, and the new one has none yet.
        (meta.is_over, root.is_over, root.nudges) = (false, false, 0);
        root.reopened += 1;
        (root.crashes, root.has_owner) = (0, false);
        let waiting = Waiting { at: meta.next, key: format!("reopened-{}", root.reopened), request };
        ctx.set(&inbox(tree), Json(vec![waiting]));
        let job = Job { tree, definitions: meta.definitions.clone(), version: meta.version };
        drive(&ctx, tree, &root, job);
        ctx.set(&key, Json(root));
        ctx.set(META, Json(meta));
        Ok(Json(Reopened::Continues))
    }

    /// Makes the caller the owner of a segment.
    #[handler]
    async fn claim(&self, ctx: ObjectContext<'_>, segment: Json<Uuid>) -> HandlerResult<Json<Claimed>> {
        let key = owner(segment.0);
        let (Some(Json(mut meta)), Some(Json(mut state))) =
            (read_meta(&ctx).await?.map(Json), ctx.get::<Json<SegmentState>>(&key).await?)
        else {
            return Ok(Json(Claimed::NoSuchTree));
        };
        if state.crashed_at != meta.steps {
            (state.crashes, state.crashed_at) = (0, meta.steps);
        }
        if state.has_owner {
            state.crashes += if state.written > 0 { IDLE_DEATHS } else { 1 };
        }
        let times = state.crashes.div_ceil(IDLE_DEATHS);
        let is_stuck = state.crashes >= CRASH_LOOP * IDLE_DEATHS;
        if is_stuck && state.parent.is_none() {
            meta.stuck = Some(format!("{times} workers died at the same step of this run"));
            ctx.set(&key, Json(state));
            ctx.set(META, Json(meta));
            return Ok(Json(Claimed::CrashLoop { times, epoch: None }));
        }
        meta.epoch += 1;
        let epoch = meta.epoch;
        (state.epoch, state.written, state.has_owner) = (epoch, 0, true);
        ctx.set(&key, Json(state));
        ctx.set(META, Json(meta));
        Ok(Json(if is_stuck { Claimed::CrashLoop { times, epoch: Some(epoch) } } else { Claimed::Epoch(epoch) }))
    }

    /// Notes the address at which the worker that drives the root serves the text of replies.
    #[handler]
    async fn announce(&self, ctx: ObjectContext<'_>, live: Json<String>) -> HandlerResult<()> {
        let Some(mut meta) = read_meta(&ctx).await? else { return Ok(()) };
        meta.live = Some(live.0);
        ctx.set(META, Json(meta));
        Ok(())
    }

    /// Gives up the ownership of a segment, if the caller still has it.
    #[handler]
    async fn release(&self, ctx: ObjectContext<'_>, release: Json<Release>) -> HandlerResult<()> {
        let key = owner(release.0.segment);
        let Some(Json(mut state)) = ctx.get::<Json<SegmentState>>(&key).await? else { return Ok(()) };
        if state.epoch == release.0.epoch {
            state.has_owner = false;
            ctx.set(&key, Json(state));
        }
        Ok(())
    }

    /// Leaves a request for the owner of a segment and wakes it; returns false if the segment has ended.
    #[handler]
    async fn post(&self, ctx: ObjectContext<'_>, posted: Json<Posted>) -> HandlerResult<Json<bool>> {
        let Posted { segment, key, request } = posted.0;
        let state = ctx.get::<Json<SegmentState>>(&owner(segment)).await?.map(Json::into_inner);
        if state.is_none_or(|state| state.is_over) {
            return Ok(Json(false));
        }
        let Some(Meta { next, .. }) = read_meta(&ctx).await? else { return Ok(Json(false)) };
        let inbox = inbox(segment);
        let mut requests = ctx.get::<Json<Vec<Waiting>>>(&inbox).await?.map(Json::into_inner).unwrap_or_default();
        requests.push(Waiting { at: next, key, request });
        ctx.set(&inbox, Json(requests));
        nudge(&ctx, segment).await?;
        Ok(Json(true))
    }

    /// Removes the requests that are carried out, and returns the others.
    #[handler]
    async fn take(&self, ctx: ObjectContext<'_>, take: Json<Take>) -> HandlerResult<Json<Vec<Waiting>>> {
        let key = inbox(take.0.segment);
        let mut requests = ctx.get::<Json<Vec<Waiting>>>(&key).await?.map(Json::into_inner).unwrap_or_default();
        if take.0.done > 0 {
            requests.drain(..take.0.done.min(requests.len()));
            // The records of those that are removed are stored, and prove nothing about the others.
            let next = read_meta(&ctx).await?.map_or(0, |meta| meta.next);
            requests.iter_mut().for_each(|waiting| waiting.at = next);
            if requests.is_empty() {
                ctx.clear(&key);
            } else {
                ctx.set(&key, Json(requests.clone()));
            }
        }
        Ok(Json(requests))
    }

    /// Deletes everything that is kept of a tree that has ended. Its last owner is refused from then on, as of an unknown tree. The
    /// definitions stay, because other trees use them.
    #[handler]
    async fn delete(&self, ctx: ObjectContext<'_>) -> HandlerResult<Json<Deleted>> {
        let Some(meta) = read_meta(&ctx).await? else { return Ok(Json(Deleted::Unknown)) };
        if !meta.is_over {
            return Ok(Json(Deleted::Open));
        }
        let ledger = RequestTarget::object(LEDGER, ctx.key(), "clear");
        ctx.request::<_, ()>(ledger, ()).send();
        if let Some(key) = meta.key {
            ctx.request::<_, ()>(RequestTarget::object(KEY, key, "forget"), Json(tree_of(&ctx)?)).send();
        }
        ctx.clear_all();
        Ok(Json(Deleted::Deleted))
    }

    /// Returns records from a position on, as many as fit a page.
    #[handler]
    async fn facts(&self, ctx: SharedObjectContext<'_>, from: Json<u64>) -> HandlerResult<Json<Option<Facts>>> {
        let Some(Json(meta)) = ctx.get::<Json<Meta>>(META).await? else { return Ok(Json(None)) };
        let Meta { next, is_over, stuck, live, definitions, tail, .. } = meta;
        let mut page = Facts { records: Vec::new(), next, is_over, stuck, live, definitions };
        if from.0 >= next {
            return Ok(Json(Some(page)));
        }
        let mut chunks = tail;
        if chunks.first().is_none_or(|first| *first > from.0) {
            chunks = ctx.get_keys().await?.iter().filter_map(|key| key.strip_prefix('r')?.parse().ok()).collect();
            chunks.sort_unstable();
        }
        let first = chunks.partition_point(|start| *start <= from.0).saturating_sub(1);
        let mut size = 0;
        for start in chunks.drain(first..).filter(|start| *start < next) {
            let records = ctx.get::<Json<Vec<Box<RawValue>>>>(&chunk(start)).await?;
            let skip = usize::try_from(from.0.saturating_sub(start)).unwrap_or(usize::MAX);
            for record in records.map(Json::into_inner).unwrap_or_default().into_iter().skip(skip) {
                size += record.get().len();
                page.records.push(record);
            }
            if size > PAGE {
                break;
            }
        }
        Ok(Json(Some(page)))
    }

    /// Returns whether a segment has ended.
    #[handler]
    async fn is_over(&self, ctx: SharedObjectContext<'_>, segment: Json<Uuid>) -> HandlerResult<Json<bool>> {
        let state = ctx.get::<Json<SegmentState>>(&owner(segment.0)).await?;
        Ok(Json(state.is_some_and(|state| state.0.is_over)))
    }

    /// Returns a long text.
    #[handler]
    async fn body(&self, ctx: SharedObjectContext<'_>, hash: Json<String>) -> HandlerResult<Json<Option<String>>> {
        let text = ctx.get::<Json<String>>(&format!("b{}", hash.0)).await?;
        Ok(Json(text.map(Json::into_inner)))
    }
}

/// The state of the tree. A worker that is too old for it fails, and Restate asks another one.
async fn read_meta(ctx: &ObjectContext<'_>) -> HandlerResult<Option<Meta>> {
    let meta = ctx.get::<Json<Meta>>(META).await?.map(Json::into_inner);
    match meta.as_ref().map(|meta| meta.version) {
        Some(needed) if needed > VERSION => Err(HandlerError::from(too_old(needed))),
        Some(_) | None => Ok(meta),
    }
}

/// The reason why a worker leaves a tree alone.
pub(crate) fn too_old(needed: u32) -> String {
    format!("this run needs version {needed} of the protocol, and this worker has {VERSION}")
}

fn tree_of(ctx: &ObjectContext<'_>) -> HandlerResult<Uuid> {
    ctx.key().parse().map_err(|_| TerminalError::new("the key is not a run ID").into())
}

/// Starts the workflow of a segment.
fn drive(ctx: &ObjectContext<'_>, segment: Uuid, state: &SegmentState, job: Job) {
    let target = RequestTarget::workflow(RUN, state.workflow(segment), "run");
    ctx.request::<_, ()>(target, Json(job)).send();
}

/// Wakes the owner of a segment.
async fn nudge(ctx: &ObjectContext<'_>, segment: Uuid) -> HandlerResult<()> {
    let key = owner(segment);
    let Some(Json(mut state)) = ctx.get::<Json<SegmentState>>(&key).await? else { return Ok(()) };
    let target = RequestTarget::workflow(RUN, state.workflow(segment), "nudge");
    ctx.request::<_, ()>(target, Json(state.nudges)).send();
    state.nudges += 1;
    ctx.set(&key, Json(state));
    Ok(())
}

fn store_bodies(ctx: &ObjectContext<'_>, bodies: BTreeMap<String, String>) {
    for (hash, text) in bodies {
        ctx.set(&format!("b{hash}"), Json(text));
    }
}

/// Stores records, and notes the state that follows from them.
fn store(ctx: &ObjectContext<'_>, meta: &mut Meta, segment: &mut SegmentState, group: Group) {
    let count = group.records.len() as u64;
    segment.written += count;
    meta.steps += group.steps;
    segment.is_over |= group.is_over;
    segment.has_owner &= !group.is_over;
    meta.tail.push(meta.next);
    if meta.tail.len() > TAIL {
        meta.tail.drain(..TAIL / 2);
    }
    ctx.set(&chunk(meta.next), Json(group.records));
    meta.next += count;
}

/// The object of a submission key: the tree that has it.
pub(crate) struct KeyObject;

#[restate_sdk::object(
    name = "HomingKey",
    journal_retention = "0s",
    invocation_retry_policy(initial_interval = "50ms", max_interval = "5s", max_attempts = 1_000_000_000)
)]
impl KeyObject {
    /// Begins a tree, unless the key is taken.
    #[handler]
    async fn submit(&self, ctx: ObjectContext<'_>, begin: Json<Begin>) -> HandlerResult<Json<Begun>> {
        if let Some(Json((tree, task))) = ctx.get::<Json<(Uuid, String)>>("tree").await? {
            let is_same = task == begin.0.task;
            return Ok(Json(if is_same { Begun::Earlier(tree) } else { Begun::KeyTaken }));
        }
        ctx.set("tree", Json((begin.0.tree, begin.0.task.clone())));
        let target = RequestTarget::object(TREE, begin.0.tree.to_string(), "begin");
        ctx.request::<_, ()>(target, begin).call().await?;
        Ok(Json(Begun::New))
    }

    /// Frees the key of a tree that is deleted.
    #[handler]
    async fn forget(&self, ctx: ObjectContext<'_>, tree: Json<Uuid>) -> HandlerResult<()> {
        if ctx.get::<Json<(Uuid, String)>>("tree").await?.is_some_and(|known| known.0.0 == tree.0) {
            ctx.clear_all();
        }
        Ok(())
    }
}
