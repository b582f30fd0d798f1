//! Queries over past and present runs: lists, sums of usage, envelopes. Only [`SqliteJournal::set_cache_key`]
//! writes.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    envelope::{Envelope, EnvelopeUsage, Status},
    fact::{ON_RESTATE, Record},
    place::Place,
    run::Run,
    tree::RunTree,
};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter, types::Value};
use serde::Serialize;
use uuid::Uuid;

use crate::journal::{
    JournalError,
    sqlite::{
        SqliteJournal, index, live_marks,
        owner::{Owner, now},
        questions, reader,
        row::{count, int},
        run_blocking, schema,
    },
};

/// Selection of the runs to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Root runs only, or all runs.
    pub which: Which,
    /// Only runs of this project.
    pub project: Option<PathBuf>,
    /// Only runs that have not ended.
    pub is_open: bool,
    /// Only runs that started at this time or later, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Only runs that started before this time.
    pub before: Option<u64>,
    /// Only runs of these trees.
    pub trees: Option<Vec<Uuid>>,
    /// Only runs with this status.
    pub status: Option<Status>,
    /// Only runs of this agent.
    pub agent: Option<String>,
    /// Only runs whose tree has this tag; the value `None` matches any value.
    pub tag: Option<(String, Option<String>)>,
    /// Includes the runs of pruned trees, of which only results and totals are left.
    pub with_pruned: bool,
    /// Maximum number of runs to list.
    pub limit: Option<u64>,
}

/// Root runs only, or all runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The root run of each tree, with the usage of the whole tree.
    #[default]
    Roots,
    /// All runs, each with its own usage.
    All,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunRow {
    /// ID of the run.
    pub run: Uuid,
    /// ID of its tree.
    pub tree: Uuid,
    /// Its place in the tree.
    pub place: Place,
    /// Name of its agent.
    pub agent: String,
    /// The last model it called, or the first in its list if it has called none.
    pub model: String,
    /// The beginning of its task.
    pub task: String,
    /// Its status. A run that has not ended and has no living owner is interrupted, or waiting if its tree
    /// waits for an answer of the user, but never running.
    pub status: Status,
    /// Project of its tree; `None` if it is not known, because an earlier version has pruned the tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<PathBuf>,
    /// Start time, in milliseconds since 1970.
    pub started: u64,
    /// Its usage, for a root with [`Which::Roots`] that of its tree. The time is wall-clock time from start to end.
    pub usage: EnvelopeUsage,
    /// Tags of its tree.
    pub tags: BTreeMap<String, String>,
    /// Submission key of its tree.
    pub key: Option<String>,
    /// Number of runs that wait for budget: of the tree for a root, otherwise the run itself.
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting_for_budget: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The property by which usage is grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SumBy {
    /// Name of the agent.
    Agent,
    /// The model that was called.
    Model,
    /// The value of this tag.
    Tag(String),
    /// The UTC day.
    Day,
    /// The project.
    Project,
}

/// Usage of a group of runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsageSum {
    /// The agent, model, tag value, day or project; empty for runs without the tag.
    pub name: String,
    /// Number of runs.
    pub runs: u64,
    /// Sum of their usage; times are not added up.
    pub usage: EnvelopeUsage,
}

impl SqliteJournal {
    /// Lists runs, newest first.
    ///
    /// # Errors
    /// Fails if the journal cannot be read or contains a status that this version does not know.
    pub fn runs(&self, filter: &Filter) -> Result<Vec<RunRow>, JournalError> {
        self.read(|connection| {
            let living = living(connection, &self.me)?;
            let mut rows = list(connection, filter, &living)?;
            questions::mark_waiting(connection, &mut rows)?;
            // The tables do not record whether an owner is alive, so the status is known only now.
            rows.retain(|row| filter.status.is_none_or(|status| status == row.status));
            rows.truncate(filter.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
            let waiting = live_marks::waiting_for_budget(connection)?;
            for row in rows.iter_mut().filter(|row| !row.status.is_over() && row.status != Status::Interrupted) {
                row.usage.wall_ms = row.usage.wall_ms.max(now().saturating_sub(row.started));
                let counts =
                    |(tree, run): &&(Uuid, Uuid)| *run == row.run || (row.run == row.tree && *tree == row.tree);
                row.waiting_for_budget = waiting.iter().filter(counts).count() as u64;
            }
            Ok(rows)
        })
    }

    /// Adds up the usage of runs that started at `since` or later, of one project or of all.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be read.
    pub fn sum_by(
        &self,
        by: &SumBy,
        since: Option<u64>,
        project: Option<&Path>,
    ) -> Result<Vec<UsageSum>, JournalError> {
        self.read(|connection| Ok(sums(connection, by, since.unwrap_or(0), project)?))
    }

    /// The fold over a tree's records.
    ///
    /// # Errors
    ///
    /// Fails if the tree is unknown, its records were pruned, or the journal cannot be read.
    pub fn tree(&self, tree: Uuid) -> Result<RunTree, JournalError> {
        self.read(|connection| reader::tree(connection, tree))
    }

    /// The records of a tree from position `from` on that are written so far.
    ///
    /// # Errors
    ///
    /// Fails if the tree is unknown, its records were pruned, or the journal cannot be read.
    pub fn follow(&self, tree: Uuid, from: u64) -> Result<Vec<Arc<Record>>, JournalError> {
        self.read(|connection| reader::records(connection, tree, from))
    }

    /// The envelope of a tree's root, even after its records were pruned. Runs without a living owner are interrupted.
    ///
    /// # Errors
    ///
    /// Fails if the tree is unknown or the journal cannot be read.
    pub fn envelope(&self, tree: Uuid) -> Result<Envelope, JournalError> {
        self.read(|connection| envelope(connection, &self.me, tree))
    }

    /// The envelope of a run in the fold of its tree, as it is in [`envelope`](Self::envelope).
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be read.
    pub fn envelope_in(&self, fold: &RunTree, run: &Run) -> Result<Envelope, JournalError> {
        self.read(|connection| envelope_in(connection, &self.me, fold, run))
    }

    /// Process ID and host of the living owner of a tree, if it has one.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be read.
    pub fn owner(&self, tree: Uuid) -> Result<Option<(u32, String)>, JournalError> {
        self.read(|connection| {
            let owner = owner_of(connection, tree)?;
            Ok(owner.filter(|owner| owner.is_alive(&self.me)).map(|owner| (owner.pid, owner.host)))
        })
    }

    /// Sets the cache key under which [`SqliteJournal::cached`] finds the result of a tree.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be written.
    pub async fn set_cache_key(&self, tree: Uuid, key: &str) -> Result<(), JournalError> {
        let key = key.to_owned();
        self.queue
            .run(move |txn| {
                let sql = "UPDATE trees SET cache_key = ?2 WHERE id = ?1";
                let changed = txn.connection.execute(sql, [tree.to_string(), key])?;
                if changed == 0 { Err(JournalError::NoSuchTree(tree)) } else { Ok(()) }
            })
            .await
    }

    /// The newest result under a cache key whose run has the status `done`.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be read.
    pub async fn cached(&self, key: &str) -> Result<Option<Envelope>, JournalError> {
        let (path, me, key) = (self.path.clone(), self.me.clone(), key.to_owned());
        run_blocking(move || {
            let connection = schema::open_reader(&path)?;
            match newest_cached(&connection, &key)? {
                None => Ok(None),
                Some(tree) => envelope(&connection, &me, tree).map(Some),
            }
        })
        .await
    }
}

fn living(connection: &Connection, me: &Owner) -> rusqlite::Result<HashSet<String>> {
    let owners = Owner::all(connection)?;
    Ok(owners.into_iter().filter(|owner| owner.is_alive(me)).map(|owner| owner.id).collect())
}

fn owner_of(connection: &Connection, tree: Uuid) -> rusqlite::Result<Option<Owner>> {
    let sql = "SELECT owner FROM trees WHERE id = ?1 AND owner IS NOT NULL";
    let id: Option<String> =
        connection.prepare_cached(sql)?.query_row([tree.to_string()], |row| row.get(0)).optional()?;
    id.map_or(Ok(None), |id| Owner::find(connection, &id))
}

fn list(connection: &Connection, filter: &Filter, living: &HashSet<String>) -> Result<Vec<RunRow>, JournalError> {
    let (group, only) = match filter.which {
        Which::Roots => ("tree", "runs.id = runs.tree"),
        Which::All => ("run", "1"),
    };
    let mut clauses = vec![only.to_owned()];
    clauses.extend((!filter.with_pruned).then(|| "trees.pruned = 0".to_owned()));
    let mut values: Vec<Value> = Vec::new();
    let mut require = |clause: &str, value: Value| {
        values.push(value);
        clauses.push(clause.replace('?', &format!("?{}", values.len())));
    };
    if let Some(project) = &filter.project {
        require("trees.project = ?", project.to_string_lossy().into_owned().into());
    }
    if filter.is_open {
        // A number that every row has: each clause has a value.
        require("runs.ended IS NULL AND ? = 1", 1.into());
    }
    if let Some(since) = filter.since {
        require("runs.started >= ?", int(since).into());
    }
    if let Some(before) = filter.before {
        require("runs.started < ?", int(before).into());
    }
    if let Some(trees) = &filter.trees {
        let ids = serde_json::to_string(trees).unwrap_or_default();
        require("runs.tree IN (SELECT value FROM json_each(?))", ids.into());
    }
    if let Some(agent) = &filter.agent {
        require("runs.agent = ?", agent.clone().into());
    }
    match &filter.tag {
        None => (),
        Some((name, None)) => {
            require("EXISTS (SELECT 1 FROM json_each(trees.tags) WHERE key = ?)", name.clone().into())
        }
        Some((name, Some(value))) => {
            let pair = format!("{name}={value}");
            require("EXISTS (SELECT 1 FROM json_each(trees.tags) WHERE key || '=' || value = ?)", pair.into());
        }
    }
    let sql = format!(
        "SELECT runs.id, runs.tree, runs.place, runs.agent, runs.model, runs.task, runs.status, runs.started,
         coalesce(runs.ended, progress.last_at) - runs.started, trees.owner, trees.tags, trees.key,
         trees.project, coalesce(sum(input), 0), coalesce(sum(cached), 0), coalesce(sum(output), 0), coalesce(sum(cost_micros), 0),
         coalesce(sum(estimated), 0), coalesce(sum(turns), 0), coalesce(sum(tool_calls), 0)
         FROM runs JOIN trees ON trees.id = runs.tree JOIN progress ON progress.tree = trees.number LEFT JOIN spend ON spend.{group} = runs.id
         WHERE {} GROUP BY runs.id ORDER BY runs.started DESC, runs.id DESC",
        clauses.join(" AND ")
    );
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(run_row(row, living)?);
    }
    Ok(found)
}

fn run_row(row: &Row<'_>, living: &HashSet<String>) -> Result<RunRow, JournalError> {
    let owner: Option<String> = row.get(9)?;
    let (run, word): (Uuid, String) = (parsed(row, 0)?, row.get(6)?);
    let status =
        status(&word).ok_or_else(|| JournalError::Unknown(format!("run {run} has the unknown status `{word}`")))?;
    let tags: BTreeMap<String, String> = serde_json::from_str(&row.get::<_, String>(10)?).unwrap_or_default();
    // Workers resume their trees by themselves.
    let is_driven = owner.is_some_and(|owner| living.contains(&owner)) || tags.contains_key(ON_RESTATE);
    let mut usage = figures(row, 13)?;
    usage.wall_ms = count(row.get(8)?);
    Ok(RunRow {
        run,
        tree: parsed(row, 1)?,
        place: parsed(row, 2)?,
        agent: row.get(3)?,
        model: row.get(4)?,
        task: row.get(5)?,
        status: if status.is_over() || is_driven { status } else { Status::Interrupted },
        started: count(row.get(7)?),
        usage,
        tags,
        key: row.get(11)?,
        project: row.get::<_, Option<String>>(12)?.filter(|project| !project.is_empty()).map(PathBuf::from),
        waiting_for_budget: 0,
    })
}

/// Reads input, cached, output, cost, estimated, turns and calls from column `at` on.
fn figures(row: &Row<'_>, at: usize) -> rusqlite::Result<EnvelopeUsage> {
    let figure = |offset: usize| row.get(at + offset).map(count);
    let mut usage = EnvelopeUsage::default();
    usage.input = figure(0)?;
    usage.cached = figure(1)?;
    usage.output = figure(2)?;
    usage.cost_micros = figure(3)?;
    usage.estimated = figure(4)? > 0;
    usage.at_most_micros = figure(4)?.min(figure(3)?);
    usage.turns = figure(5)?;
    usage.tool_calls = figure(6)?;
    Ok(usage)
}

pub(super) fn parsed<T: std::str::FromStr>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    let text: String = row.get(at)?;
    text.parse().map_err(|_| {
        let what = format!("`{text}` is not an ID or place");
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, what.into())
    })
}

/// The status with this name.
fn status(name: &str) -> Option<Status> {
    name.parse().ok()
}

fn sums(connection: &Connection, by: &SumBy, since: u64, project: Option<&Path>) -> rusqlite::Result<Vec<UsageSum>> {
    let (name, tag) = match by {
        SumBy::Agent => ("runs.agent", None),
        SumBy::Model => ("spend.model", None),
        SumBy::Project => ("coalesce(trees.project, '')", None),
        SumBy::Day => ("date(spend.day * 86400, 'unixepoch')", None),
        SumBy::Tag(tag) => {
            ("coalesce((SELECT value FROM json_each(trees.tags) WHERE key = ?2), '')", Some(tag.as_str()))
        }
    };
    let sql = format!(
        "SELECT {name}, count(DISTINCT spend.run), sum(input), sum(cached), sum(output), sum(cost_micros), sum(estimated),
         sum(turns), sum(tool_calls) FROM spend JOIN runs ON runs.id = spend.run JOIN trees ON trees.id = spend.tree
         WHERE spend.day >= ?1 AND runs.started >= ?3 AND ?2 IS ?2
         AND (?4 IS NULL OR trees.project = ?4) GROUP BY 1 ORDER BY 6 DESC, 1"
    );
    let project = project.map(Path::to_string_lossy);
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map(params![index::day(since), tag, int(since), project], |row| {
        Ok(UsageSum { name: row.get(0)?, runs: count(row.get(1)?), usage: figures(row, 2)? })
    })?;
    rows.collect()
}

/// The envelope of a tree's root, in which runs without a living owner are interrupted.
pub(super) fn envelope(connection: &Connection, me: &Owner, tree: Uuid) -> Result<Envelope, JournalError> {
    let sql = "SELECT envelope FROM results WHERE tree = ?1";
    let stored: Option<String> =
        connection.prepare_cached(sql)?.query_row([tree.to_string()], |row| row.get(0)).optional()?;
    if let Some(stored) = stored {
        return serde_json::from_str(&stored)
            .map_err(|error| JournalError::Damaged(format!("the stored result of {tree}: {error}")));
    }
    let fold = reader::tree(connection, tree)?;
    let root = fold.root().ok_or(JournalError::NoSuchTree(tree))?;
    envelope_in(connection, me, &fold, root)
}

fn envelope_in(connection: &Connection, me: &Owner, fold: &RunTree, run: &Run) -> Result<Envelope, JournalError> {
    let mut envelope = Envelope::new(fold, run);
    let owner = fold.root().map_or(Ok(None), |root| owner_of(connection, root.id))?;
    let is_remote = fold.root().is_some_and(|root| root.spawned.tags.contains_key(ON_RESTATE));
    if is_remote || owner.is_some_and(|owner| owner.is_alive(me)) {
        add_elapsed(&mut envelope, fold);
    } else if !fold.is_parked() {
        interrupt(&mut envelope);
    }
    Ok(envelope)
}

/// Sets the time of runs that work to the time since they began: the records say nothing of the time since the last one.
fn add_elapsed(envelope: &mut Envelope, fold: &RunTree) {
    let began = fold.get(envelope.run).and_then(|run| run.began());
    if let (false, Some(began)) = (envelope.status.is_over(), began) {
        envelope.usage.wall_ms = envelope.usage.wall_ms.max(now().saturating_sub(began));
        envelope.subtree.wall_ms = envelope.usage.wall_ms;
    }
    envelope.children.iter_mut().for_each(|child| add_elapsed(child, fold));
}

fn interrupt(envelope: &mut Envelope) {
    if !envelope.status.is_over() {
        envelope.status = Status::Interrupted;
    }
    envelope.children.iter_mut().for_each(interrupt);
}

fn newest_cached(connection: &Connection, key: &str) -> rusqlite::Result<Option<Uuid>> {
    let sql = "SELECT trees.id FROM trees JOIN runs ON runs.id = trees.id
               WHERE cache_key = ?1 AND runs.status = 'done' ORDER BY trees.started DESC LIMIT 1";
    connection.query_row(sql, [key], |row| parsed(row, 0)).optional()
}
