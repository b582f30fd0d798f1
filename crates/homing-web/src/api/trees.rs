//! Trees: lists, one tree, its records.

use std::sync::Arc;

use homing::{
    Envelope, Status,
    crates::{
        core::fact::Record,
        runtime::journal::sqlite::{CassetteError, Filter, Which},
    },
};
use homing_http::full;
use hyper::{
    StatusCode,
    header::{CONTENT_DISPOSITION, HeaderValue},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    call::{Call, Outcome, blocking, json, number},
    export,
    problem::Problem,
    server::Server,
    tree_row::TreeRow,
    watch::JournalWatch,
};

/// Number of trees in a list that names no limit.
const DEFAULT_TREES: u64 = 50;

/// Maximum number of trees in a list.
const MAX_TREES: u64 = 1_000;

/// Maximum number of records in a response.
const MAX_RECORDS: u64 = 10_000;

/// Selection of the trees to list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TreesQuery {
    /// Only trees of this project folder.
    project: Option<String>,
    /// Only trees whose root has this status.
    status: Option<String>,
    /// Only trees whose root has this agent.
    agent: Option<String>,
    /// Only trees with this tag: `KEY` or `KEY=VALUE`.
    tag: Option<String>,
    /// Only trees that started at this time or later, in milliseconds since 1970.
    #[serde(deserialize_with = "number")]
    since: Option<u64>,
    /// Only trees that started before this time.
    #[serde(deserialize_with = "number")]
    before: Option<u64>,
    /// Maximum number of trees.
    #[serde(deserialize_with = "number")]
    limit: Option<u64>,
    /// Only trees whose task, agent or ID contains these words.
    q: Option<String>,
}

/// A list of trees.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Trees {
    /// The trees, newest first.
    trees: Vec<TreeRow>,
    /// The value of `before` for the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

pub(crate) async fn list(server: Arc<Server>, call: Call) -> Outcome {
    let query: TreesQuery = call.query()?;
    let watch = server.watch.clone();
    json(StatusCode::OK, &blocking(move || listed(&watch, &query)).await?)
}

fn listed(watch: &JournalWatch, query: &TreesQuery) -> Result<Trees, Problem> {
    let status = query.status.as_deref().filter(|status| !status.is_empty());
    let status: Option<Status> =
        status.map(str::parse).transpose().map_err(|error| Problem::bad_request(format!("{error}")))?;
    let tag = query.tag.as_deref().filter(|tag| !tag.is_empty()).map(|tag| match tag.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (tag.to_owned(), None),
    });
    let agent = query.agent.clone().filter(|agent| !agent.is_empty());
    let (since, before) = (query.since, query.before);
    let filter = Filter { which: Which::Roots, since, before, agent, tag, ..Filter::default() };
    let limit = usize::try_from(query.limit.unwrap_or(DEFAULT_TREES).min(MAX_TREES)).unwrap_or(usize::MAX);
    let words: Vec<String> = query.q.iter().flat_map(|q| q.split_whitespace()).map(str::to_lowercase).collect();
    watch.cache.catch_up()?;
    let (mut trees, mut next) = (Vec::new(), None);
    for row in watch.journal.runs(&filter)? {
        let text = format!("{} {} {}", row.task, row.agent, row.tree).to_lowercase();
        if !words.iter().all(|word| text.contains(word)) {
            continue;
        }
        // Several trees may have started in the same millisecond, so a page ends only between two times.
        if trees.len() >= limit && trees.last().is_some_and(|last: &TreeRow| last.started != row.started) {
            next = trees.last().map(|last| last.started);
            break;
        }
        let row = watch.cache.row(row)?;
        if status.is_some_and(|status| status != row.status) {
            continue;
        }
        if query.project.as_ref().is_none_or(|project| project.is_empty() || *project == row.summary.project) {
            trees.push(row);
        }
    }
    Ok(Trees { trees, next: next.filter(|_| limit > 0) })
}

/// One tree with its result.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tree {
    #[serde(flatten)]
    row: TreeRow,
    /// The result so far, as `homing show --json` prints it.
    #[schemars(with = "Value")]
    envelope: Envelope,
}

pub(crate) async fn get(server: Arc<Server>, call: Call) -> Outcome {
    let id = call.id(0)?;
    let watch = server.watch.clone();
    let tree = blocking(move || {
        let run = watch.journal.find(&id.to_string(), None)?;
        found(&watch, run.tree)
    });
    json(StatusCode::OK, &tree.await?)
}

fn found(watch: &JournalWatch, tree: Uuid) -> Result<Tree, Problem> {
    let mut rows = watch.cache.rows(&Filter { trees: Some(vec![tree]), ..Filter::default() })?;
    let row = rows.pop().ok_or_else(|| no_such_tree(tree))?;
    Ok(Tree { row, envelope: watch.cache.envelope(tree)? })
}

fn no_such_tree(tree: Uuid) -> Problem {
    Problem::not_found(format!("there is no run tree {tree} in the journal"))
}

/// Selection of records.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FactsQuery {
    /// Position of the first record.
    #[serde(deserialize_with = "number")]
    from: Option<u64>,
    /// Maximum number of records.
    #[serde(deserialize_with = "number")]
    limit: Option<u64>,
}

/// Records of a tree.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Facts {
    /// The records, in order.
    #[schemars(with = "Vec<Value>")]
    records: Vec<Arc<Record>>,
    /// Position after the last of these records, where events begin.
    position: u64,
    /// The value of `from` for the next page, if there are more records by now.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

pub(crate) async fn facts(server: Arc<Server>, call: Call) -> Outcome {
    let (tree, query) = (call.id(0)?, call.query::<FactsQuery>()?);
    let feed = server.watch.feed.clone();
    let facts = blocking(move || {
        let from = query.from.unwrap_or(0);
        let records = feed.page(tree, from, query.limit.unwrap_or(MAX_RECORDS).min(MAX_RECORDS))?;
        let position = records.last().map_or(from, |record| record.seq + 1);
        let next = Some(position).filter(|position| feed.record_count(tree).is_ok_and(|count| count > *position));
        Ok(Facts { records, position, next })
    });
    json(StatusCode::OK, &facts.await?)
}

/// Responds with the tree as a page that needs no server.
pub(crate) async fn export(server: Arc<Server>, call: Call) -> Outcome {
    let id = call.id(0)?;
    let project = server.projects.main().await?;
    let journal = server.watch.journal.clone();
    let page = blocking(move || {
        let cassette = journal.cassette(journal.find(&id.to_string(), None)?.tree)?;
        let unreadable = |error: CassetteError| Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
        let records = cassette.write(&|text| project.redacted(text)).map_err(unreadable)?;
        Ok(export::page("Homing: an exported run", &records))
    });
    let mut response = full(StatusCode::OK, "text/html; charset=utf-8", page.await?);
    let name = format!("attachment; filename=\"homing-{}.html\"", &id.to_string()[28..]);
    let name = HeaderValue::from_str(&name).expect("an ID has only digits");
    response.headers_mut().insert(CONTENT_DISPOSITION, name);
    Ok(response)
}
