//! Answers what people ask about past and present runs: which there are, which one is meant, what they cost, how they
//! ended. It only reads.

use std::collections::{BTreeMap, HashSet};

use homing_core::{
    envelope::{Envelope, EnvelopeUsage, Status},
    fact::Record,
    place::Place,
    tree::RunTree,
};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter, types::Value};
use serde::Serialize;
use std::sync::Arc;
use uuid::Uuid;

use crate::journal::{
    JournalError,
    sqlite::{
        SqliteJournal, aside, index,
        owner::Owner,
        reader,
        row::{count, int},
        schema::{self, said},
    },
};

/// The most candidates that are named when an id is ambiguous.
const CANDIDATES: usize = 10;

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Roots, or every run.
    pub which: Which,
    /// Only those that started then or later, in milliseconds since 1970.
    pub since: Option<u64>,
    /// Only those with this status.
    pub status: Option<Status>,
    /// Only this agent's.
    pub agent: Option<String>,
    /// Only trees with this label; `None` as its value means any.
    pub tag: Option<(String, Option<String>)>,
    /// At most so many.
    pub limit: Option<u64>,
}

/// Roots, or every run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The roots of trees, each with the usage of its whole tree.
    #[default]
    Roots,
    /// Every run, with its own usage.
    All,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunRow {
    /// The run.
    pub run: Uuid,
    /// Its tree.
    pub tree: Uuid,
    /// Its place.
    pub place: Place,
    /// Who works.
    pub agent: String,
    /// The model it asked last, or would ask first.
    pub model: String,
    /// What it is to do; the head of it.
    pub task: String,
    /// How it ended, or how it is going: a run without a living owner is interrupted, never running.
    pub status: Status,
    /// When it began, in milliseconds since 1970.
    pub started: u64,
    /// What it used; a root's is its tree's. The time is from start to end by the clock on the wall.
    pub usage: EnvelopeUsage,
    /// Labels of its tree.
    pub tags: BTreeMap<String, String>,
    /// The submission's key of its tree.
    pub key: Option<String>,
}

/// A run that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRef {
    /// Its tree.
    pub tree: Uuid,
    /// The run.
    pub run: Uuid,
    /// Its place.
    pub place: Place,
}

/// Why no run was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// Nothing has this name.
    #[error("there is no run `{0}`: `homing runs` lists them")]
    NotFound(String),
    /// Several runs begin like this.
    #[error("`{id}` could be any of these runs:\n{}", candidates.join("\n"))]
    Ambiguous {
        /// What was asked for.
        id: String,
        /// Each with its agent and the head of its task.
        candidates: Vec<String>,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What to add figures up by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SumBy {
    /// The agent.
    Agent,
    /// The model that was asked.
    Model,
    /// The value of this label.
    Tag(String),
    /// The day of UTC.
    Day,
}

/// Figures of a group of runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsageSum {
    /// The agent, model, label or day; empty where there is none.
    pub name: String,
    /// How many runs.
    pub runs: u64,
    /// What they used; time is not added up.
    pub usage: EnvelopeUsage,
}

impl SqliteJournal {
    /// Runs, newest first.
    pub fn runs(&self, filter: &Filter) -> Result<Vec<RunRow>, JournalError> {
        self.read(|connection| {
            let living = living(connection, &self.me).map_err(|error| said(&error))?;
            let mut rows = list(connection, filter, &living).map_err(|error| said(&error))?;
            // Whether an owner lives is not in the tables, so the status is only known now.
            rows.retain(|row| filter.status.is_none_or(|status| status == row.status));
            rows.truncate(filter.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
            Ok(rows)
        })
    }

    /// Which run is meant by a UUID, its beginning, a submission key, or a place within the newest tree.
    pub fn find(&self, id: &str) -> Result<RunRef, FindError> {
        let (found, near) = self.read(|connection| look_up(connection, id.trim()).map_err(|error| said(&error)))?;
        match found {
            Some(found) => Ok(found),
            None if near.is_empty() => Err(FindError::NotFound(id.to_owned())),
            None => Err(FindError::Ambiguous { id: id.to_owned(), candidates: near }),
        }
    }

    /// Adds up what runs used since then.
    pub fn sum_by(&self, by: &SumBy, since: Option<u64>) -> Result<Vec<UsageSum>, JournalError> {
        self.read(|connection| sums(connection, by, since.unwrap_or(0)).map_err(|error| said(&error)))
    }

    /// The fold over a tree's records.
    pub fn tree(&self, tree: Uuid) -> Result<RunTree, JournalError> {
        self.read(|connection| reader::tree(connection, tree))
    }

    /// The records of a tree from position `from` on, as far as they are written: call it again for more.
    pub fn follow(&self, tree: Uuid, from: u64) -> Result<Vec<Arc<Record>>, JournalError> {
        self.read(|connection| reader::records(connection, tree, from))
    }

    /// The envelope of a tree's root, also after its records were pruned. Runs without a living owner are interrupted.
    pub fn envelope(&self, tree: Uuid) -> Result<Envelope, JournalError> {
        self.read(|connection| envelope(connection, &self.me, tree))
    }

    /// Whether a living process works on the tree, and which.
    pub fn owner(&self, tree: Uuid) -> Result<Option<(u32, String)>, JournalError> {
        self.read(|connection| {
            let owner = owner_of(connection, tree).map_err(|error| said(&error))?;
            Ok(owner.filter(|owner| owner.lives(&self.me)).map(|owner| (owner.pid, owner.host)))
        })
    }

    /// Notes under which cache key the result of a tree can be found again.
    pub async fn set_cache_key(&self, tree: Uuid, key: &str) -> Result<(), JournalError> {
        let key = key.to_owned();
        self.orders
            .ask(move |desk| {
                let sql = "UPDATE trees SET cache_key = ?2 WHERE id = ?1";
                let changed = desk.connection.execute(sql, [tree.to_string(), key]).map_err(|error| said(&error))?;
                if changed == 0 { Err(JournalError::NoSuchTree(tree)) } else { Ok(()) }
            })
            .await
    }

    /// The newest result under a cache key whose run was done.
    pub async fn cached(&self, key: &str) -> Result<Option<Envelope>, JournalError> {
        let (path, me, key) = (self.path.clone(), self.me.clone(), key.to_owned());
        aside(move || {
            let connection = schema::open_reader(&path)?;
            match newest_cached(&connection, &key).map_err(|error| said(&error))? {
                None => Ok(None),
                Some(tree) => envelope(&connection, &me, tree).map(Some),
            }
        })
        .await
    }
}

fn living(connection: &Connection, me: &Owner) -> rusqlite::Result<HashSet<String>> {
    let owners = Owner::all(connection)?;
    Ok(owners.into_iter().filter(|owner| owner.lives(me)).map(|owner| owner.id).collect())
}

fn owner_of(connection: &Connection, tree: Uuid) -> rusqlite::Result<Option<Owner>> {
    let sql = "SELECT owner FROM trees WHERE id = ?1 AND owner IS NOT NULL";
    let id: Option<String> = connection.query_row(sql, [tree.to_string()], |row| row.get(0)).optional()?;
    id.map_or(Ok(None), |id| Owner::find(connection, &id))
}

fn list(connection: &Connection, filter: &Filter, living: &HashSet<String>) -> rusqlite::Result<Vec<RunRow>> {
    let (group, only) = match filter.which {
        Which::Roots => ("tree", "runs.id = runs.tree"),
        Which::All => ("run", "1"),
    };
    let mut wanted = vec![only.to_owned()];
    let mut values: Vec<Value> = Vec::new();
    let mut want = |clause: &str, value: Value| {
        values.push(value);
        wanted.push(clause.replace('?', &format!("?{}", values.len())));
    };
    if let Some(since) = filter.since {
        want("runs.started >= ?", int(since).into());
    }
    if let Some(agent) = &filter.agent {
        want("runs.agent = ?", agent.clone().into());
    }
    match &filter.tag {
        None => (),
        Some((name, None)) => want("EXISTS (SELECT 1 FROM json_each(trees.tags) WHERE key = ?)", name.clone().into()),
        Some((name, Some(value))) => {
            let pair = format!("{name}={value}");
            want("EXISTS (SELECT 1 FROM json_each(trees.tags) WHERE key || '=' || value = ?)", pair.into());
        }
    }
    let sql = format!(
        "SELECT runs.id, runs.tree, runs.place, runs.agent, runs.model, runs.task, runs.status, runs.started,
         coalesce(runs.ended, trees.last_at) - runs.started, trees.owner, trees.tags, trees.key,
         coalesce(sum(input), 0), coalesce(sum(cached), 0), coalesce(sum(output), 0), coalesce(sum(cost_micros), 0),
         coalesce(max(estimated), 0), coalesce(sum(turns), 0), coalesce(sum(tool_calls), 0)
         FROM runs JOIN trees ON trees.id = runs.tree LEFT JOIN spend ON spend.{group} = runs.id
         WHERE {} GROUP BY runs.id ORDER BY runs.started DESC, runs.id DESC",
        wanted.join(" AND ")
    );
    let mut statement = connection.prepare(&sql)?;
    statement.query_map(params_from_iter(values), |row| run_row(row, living))?.collect()
}

fn run_row(row: &Row<'_>, living: &HashSet<String>) -> rusqlite::Result<RunRow> {
    let owner: Option<String> = row.get(9)?;
    let status = status(&row.get::<_, String>(6)?);
    let owned = owner.is_some_and(|owner| living.contains(&owner));
    let mut usage = figures(row, 12)?;
    usage.wall_ms = count(row.get(8)?);
    Ok(RunRow {
        run: parsed(row, 0)?,
        tree: parsed(row, 1)?,
        place: parsed(row, 2)?,
        agent: row.get(3)?,
        model: row.get(4)?,
        task: row.get(5)?,
        status: if status.is_over() || owned { status } else { Status::Interrupted },
        started: count(row.get(7)?),
        usage,
        tags: serde_json::from_str(&row.get::<_, String>(10)?).unwrap_or_default(),
        key: row.get(11)?,
    })
}

/// Reads input, cached, output, cost, estimated, turns and calls from `at` on.
fn figures(row: &Row<'_>, at: usize) -> rusqlite::Result<EnvelopeUsage> {
    let figure = |offset: usize| row.get(at + offset).map(count);
    Ok(EnvelopeUsage {
        input: figure(0)?,
        cached: figure(1)?,
        output: figure(2)?,
        cost_micros: figure(3)?,
        estimated: figure(4)? > 0,
        turns: figure(5)?,
        tool_calls: figure(6)?,
        wall_ms: 0,
    })
}

pub(super) fn parsed<T: std::str::FromStr>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    let text: String = row.get(at)?;
    text.parse().map_err(|_| {
        let what = format!("`{text}` stands where an id or a place is expected");
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, what.into())
    })
}

/// The status of that name; the index only ever holds these.
fn status(name: &str) -> Status {
    let all = [
        Status::Queued,
        Status::Waiting,
        Status::Interrupted,
        Status::Done,
        Status::Exhausted,
        Status::TimedOut,
        Status::Cancelled,
        Status::Failed,
    ];
    all.into_iter().find(|status| status.name() == name).unwrap_or(Status::Running)
}

/// The one run that is meant, or the runs that might be.
fn look_up(connection: &Connection, id: &str) -> rusqlite::Result<(Option<RunRef>, Vec<String>)> {
    let uuid = id.parse::<Uuid>().ok().map(|it| it.to_string());
    let found = match uuid {
        Some(uuid) => one(connection, "id = ?1", &uuid)?,
        None => None,
    };
    if found.is_some() {
        return Ok((found, Vec::new()));
    }
    if let Some(found) = one(connection, "id = (SELECT trees.id FROM trees WHERE key = ?1)", id)? {
        return Ok((Some(found), Vec::new()));
    }
    if id.parse::<Place>().is_ok_and(|place| place.to_string() == id) {
        let newest = "place = ?1 AND tree = (SELECT trees.id FROM trees ORDER BY started DESC, trees.id DESC LIMIT 1)";
        if let Some(found) = one(connection, newest, id)? {
            return Ok((Some(found), Vec::new()));
        }
    }
    by_prefix(connection, id)
}

fn one(connection: &Connection, clause: &str, value: &str) -> rusqlite::Result<Option<RunRef>> {
    let sql = format!("SELECT tree, id, place FROM runs WHERE {clause}");
    connection.prepare_cached(&sql)?.query_row([value], run_ref).optional()
}

fn run_ref(row: &Row<'_>) -> rusqlite::Result<RunRef> {
    Ok(RunRef { tree: parsed(row, 0)?, run: parsed(row, 1)?, place: parsed(row, 2)? })
}

/// Runs of one tree begin alike, because ids begin with the time: among several, a single root is what was meant.
fn by_prefix(connection: &Connection, prefix: &str) -> rusqlite::Result<(Option<RunRef>, Vec<String>)> {
    let prefix = prefix.to_ascii_lowercase();
    if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Ok((None, Vec::new()));
    }
    let mut statement = connection.prepare_cached(
        "SELECT tree, id, place, agent, task FROM runs WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id = tree DESC, id LIMIT ?2",
    )?;
    let limit = int(CANDIDATES as u64 + 1);
    let found: Vec<(RunRef, String)> = statement
        .query_map(params![prefix, limit], |row| {
            let found = run_ref(row)?;
            let task: String = row.get::<_, String>(4)?.chars().take(60).collect();
            let line = format!("{} {} {} {task}", found.run, found.place, row.get::<_, String>(3)?);
            Ok((found, line))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let roots = found.iter().filter(|(it, _)| it.run == it.tree).count();
    match found.as_slice() {
        [(only, _)] => Ok((Some(only.clone()), Vec::new())),
        [(root, _), ..] if roots == 1 => Ok((Some(root.clone()), Vec::new())),
        _ => Ok((None, found.into_iter().map(|(_, line)| line).take(CANDIDATES).collect())),
    }
}

fn sums(connection: &Connection, by: &SumBy, since: u64) -> rusqlite::Result<Vec<UsageSum>> {
    let (name, tag) = match by {
        SumBy::Agent => ("runs.agent", None),
        SumBy::Model => ("spend.model", None),
        SumBy::Day => ("date(spend.day * 86400, 'unixepoch')", None),
        SumBy::Tag(tag) => {
            ("coalesce((SELECT value FROM json_each(trees.tags) WHERE key = ?2), '')", Some(tag.as_str()))
        }
    };
    let sql = format!(
        "SELECT {name}, count(DISTINCT spend.run), sum(input), sum(cached), sum(output), sum(cost_micros), max(estimated),
         sum(turns), sum(tool_calls) FROM spend JOIN runs ON runs.id = spend.run JOIN trees ON trees.id = spend.tree
         WHERE spend.day >= ?1 AND runs.started >= ?3 AND ?2 IS ?2 GROUP BY 1 ORDER BY 6 DESC, 1"
    );
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map(params![index::day(since), tag, int(since)], |row| {
        Ok(UsageSum { name: row.get(0)?, runs: count(row.get(1)?), usage: figures(row, 2)? })
    })?;
    rows.collect()
}

/// The envelope of a tree's root, with runs that nobody works on marked as interrupted.
pub(super) fn envelope(connection: &Connection, me: &Owner, tree: Uuid) -> Result<Envelope, JournalError> {
    let sql = "SELECT envelope FROM results WHERE tree = ?1";
    let kept: Option<String> =
        connection.query_row(sql, [tree.to_string()], |row| row.get(0)).optional().map_err(|error| said(&error))?;
    if let Some(kept) = kept {
        return serde_json::from_str(&kept)
            .map_err(|error| JournalError::Damaged(format!("the kept result of {tree}: {error}")));
    }
    let fold = reader::tree(connection, tree)?;
    let root = fold.root().ok_or(JournalError::NoSuchTree(tree))?;
    let mut envelope = Envelope::new(&fold, root);
    let owner = owner_of(connection, tree).map_err(|error| said(&error))?;
    if !owner.is_some_and(|owner| owner.lives(me)) {
        interrupt(&mut envelope);
    }
    Ok(envelope)
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
