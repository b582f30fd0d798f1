//! Server-sent events: those of one tree, or the changes of the list of trees.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use crate::{
    call::{Call, Outcome, blocking, number},
    problem::Problem,
    server::Server,
    sse,
    tree_channel::TreeReader,
};

/// Selection of events.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Only events of this tree.
    #[schemars(with = "Option<String>")]
    tree: Option<Uuid>,
    /// Position of the first event. The header `Last-Event-ID`, which browsers send when they reconnect, comes first.
    #[serde(deserialize_with = "number")]
    from: Option<u64>,
}

pub(crate) async fn follow(server: Arc<Server>, call: Call) -> Outcome {
    let query: EventsQuery = call.query()?;
    let last = call.header("last-event-id").filter(|id| !id.is_empty());
    let not_an_id = |_| Problem::bad_request("Last-Event-ID is not a position");
    let last = last.map(str::parse::<u64>).transpose().map_err(not_an_id)?;
    let (sender, response) = sse::response();
    let Some(tree) = query.tree else {
        // The position of the list is the last one that was seen, not the next one.
        let from = last.or(query.from);
        tokio::spawn(server.watch.clone().feed_list(from, sender));
        return Ok(response);
    };
    let watch = server.watch.clone();
    let count = blocking(move || {
        watch.begin()?;
        Ok(watch.feed.record_count(tree)?)
    });
    let count = count.await?;
    let next_seq = last.map(|last| last.saturating_add(1)).or(query.from).unwrap_or(0);
    let channel = server.watch.channels.open(tree, count, || server.projects.live_run(tree));
    server.watch.wake();
    tokio::spawn(TreeReader { channel, next_seq, sender }.feed());
    Ok(response)
}
