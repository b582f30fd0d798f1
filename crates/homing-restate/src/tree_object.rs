//! The object of a tree: its records in the order of their positions, its owner, and its inbox. It stores records as they are
//! and does not know their meaning.

use restate_sdk::{context::RequestTarget, prelude::*};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::protocol::{Append, Appended, Begin, Begun, Claimed, Facts, Meta, Post, RUN, TREE};

/// After this many deaths of workers at the same step, a tree is not driven any more.
const CRASH_LOOP: u32 = 5;

/// Size at which a page of records ends.
const PAGE: usize = 1024 * 1024;

const META: &str = "meta";
const INBOX: &str = "inbox";

/// The name of a group of records, by the position of the first.
fn chunk(from: u64) -> String {
    format!("r{from:010}")
}

/// The object of a tree.
pub(crate) struct TreeObject;

#[restate_sdk::object(name = "HomingTree", lazy_state, journal_retention = "0s")]
impl TreeObject {
    /// Begins the tree and starts its workflow, together or not at all.
    #[handler]
    async fn begin(&self, ctx: ObjectContext<'_>, begin: Json<Begin>) -> HandlerResult<()> {
        let Begin { tree, definitions, first, .. } = begin.0;
        if ctx.get::<Json<Meta>>(META).await?.is_some() {
            return Ok(());
        }
        let meta = Meta { epoch: first.epoch, definitions: definitions.clone(), ..Meta::default() };
        store(&ctx, meta, first);
        let target = RequestTarget::workflow(RUN, tree.to_string(), "run");
        ctx.request::<_, ()>(target, Json(definitions)).send();
        Ok(())
    }

    /// Appends records of the owner.
    #[handler]
    async fn append(&self, ctx: ObjectContext<'_>, append: Json<Append>) -> HandlerResult<Json<Appended>> {
        let mut append = append.0;
        let meta = ctx.get::<Json<Meta>>(META).await?.map(Json::into_inner).unwrap_or_default();
        if append.epoch != meta.epoch {
            return Ok(Json(Appended::Fenced));
        }
        if append.from > meta.next {
            return Ok(Json(Appended::Gap { next: meta.next }));
        }
        // The owner repeats a request whose reply was lost.
        let known = usize::try_from(meta.next - append.from).unwrap_or(usize::MAX);
        if known > 0 {
            append.records.drain(..known.min(append.records.len()));
            append.from = meta.next;
        }
        if !append.records.is_empty() {
            store(&ctx, meta, append);
        }
        Ok(Json(Appended::Stored))
    }

    /// Makes the caller the owner.
    #[handler]
    async fn claim(&self, ctx: ObjectContext<'_>) -> HandlerResult<Json<Claimed>> {
        let Some(Json(mut meta)) = ctx.get::<Json<Meta>>(META).await? else { return Ok(Json(Claimed::NoSuchTree)) };
        if meta.crashed_at != meta.steps {
            (meta.crashes, meta.crashed_at) = (0, meta.steps);
        }
        meta.crashes += u32::from(meta.has_owner);
        if meta.crashes >= CRASH_LOOP {
            let times = meta.crashes;
            ctx.set(META, Json(meta));
            return Ok(Json(Claimed::CrashLoop { times }));
        }
        meta.epoch += 1;
        meta.has_owner = true;
        let epoch = meta.epoch;
        ctx.set(META, Json(meta));
        Ok(Json(Claimed::Epoch(epoch)))
    }

    /// Gives up the ownership, if the caller still has it.
    #[handler]
    async fn release(&self, ctx: ObjectContext<'_>, epoch: Json<u32>) -> HandlerResult<()> {
        let Some(Json(mut meta)) = ctx.get::<Json<Meta>>(META).await? else { return Ok(()) };
        if meta.epoch == epoch.0 {
            meta.has_owner = false;
            ctx.set(META, Json(meta));
        }
        Ok(())
    }

    /// Leaves a request for the owner and wakes it; returns false if the tree has ended.
    #[handler]
    async fn post(&self, ctx: ObjectContext<'_>, post: Json<Post>) -> HandlerResult<Json<bool>> {
        let Some(Json(mut meta)) = ctx.get::<Json<Meta>>(META).await? else { return Ok(Json(false)) };
        if meta.is_over {
            return Ok(Json(false));
        }
        let mut inbox = ctx.get::<Json<Vec<Post>>>(INBOX).await?.map(Json::into_inner).unwrap_or_default();
        inbox.push(post.0);
        ctx.set(INBOX, Json(inbox));
        let target = RequestTarget::workflow(RUN, ctx.key().to_owned(), "nudge");
        ctx.request::<_, ()>(target, Json(meta.posted)).send();
        meta.posted += 1;
        ctx.set(META, Json(meta));
        Ok(Json(true))
    }

    /// Takes the requests.
    #[handler]
    async fn take(&self, ctx: ObjectContext<'_>) -> HandlerResult<Json<Vec<Post>>> {
        let inbox = ctx.get::<Json<Vec<Post>>>(INBOX).await?.map(Json::into_inner).unwrap_or_default();
        if !inbox.is_empty() {
            ctx.clear(INBOX);
        }
        Ok(Json(inbox))
    }

    /// Returns records from a position on, as many as fit a page.
    #[handler]
    async fn facts(&self, ctx: SharedObjectContext<'_>, from: Json<u64>) -> HandlerResult<Json<Option<Facts>>> {
        let Some(Json(meta)) = ctx.get::<Json<Meta>>(META).await? else { return Ok(Json(None)) };
        let mut page = Facts {
            records: Vec::new(),
            next: meta.next,
            is_over: meta.is_over,
            stuck: (meta.crashes >= CRASH_LOOP)
                .then(|| format!("{} workers died at the same step of this run", meta.crashes)),
            definitions: meta.definitions,
        };
        if from.0 >= meta.next {
            return Ok(Json(Some(page)));
        }
        let mut chunks: Vec<u64> =
            ctx.get_keys().await?.iter().filter_map(|key| key.strip_prefix('r')?.parse().ok()).collect();
        chunks.sort_unstable();
        let first = chunks.partition_point(|start| *start <= from.0).saturating_sub(1);
        let mut size = 0;
        for start in chunks.drain(first..) {
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

    /// Returns a long text.
    #[handler]
    async fn body(&self, ctx: SharedObjectContext<'_>, hash: Json<String>) -> HandlerResult<Json<Option<String>>> {
        let text = ctx.get::<Json<String>>(&format!("b{}", hash.0)).await?;
        Ok(Json(text.map(Json::into_inner)))
    }
}

/// Stores records and the state that follows from them.
fn store(ctx: &ObjectContext<'_>, mut meta: Meta, append: Append) {
    for (hash, text) in append.bodies {
        ctx.set(&format!("b{hash}"), Json(text));
    }
    meta.next = append.from + append.records.len() as u64;
    meta.steps += append.steps;
    meta.is_over = append.is_over;
    ctx.set(&chunk(append.from), Json(append.records));
    ctx.set(META, Json(meta));
}

/// The object of a submission key: the tree that has it.
pub(crate) struct KeyObject;

#[restate_sdk::object(name = "HomingKey", journal_retention = "0s")]
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
}
