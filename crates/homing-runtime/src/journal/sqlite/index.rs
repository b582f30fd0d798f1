//! Maintains the index of runs and their usage in the same transaction as the records, so that listing thousands of runs
//! folds none of them. Everything here can be derived from the records.

use std::{collections::hash_map::Entry, sync::Arc};

use homing_core::{
    fact::{Fact, Purpose, Record, Spawned},
    id_map::IdMap,
    message::Usage,
};
use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::journal::sqlite::{
    ownership::OwnedTrees,
    row::{self, int},
};

const DAY_MS: u64 = 86_400_000;

/// Characters of a task that are kept for lists.
const TASK_CHARS: usize = 500;

/// Days since 1970.
pub(super) fn day(at: u64) -> i64 {
    int(at / DAY_MS)
}

/// The last model call of each run of a tree, to which usage is attributed.
#[derive(Default)]
pub(super) struct LastModels(IdMap<Uuid, LastModel>);

struct LastModel {
    model: Arc<str>,
    is_turn: bool,
    /// The day and the number of the row that has the usage of the run with this model, once it is written.
    row: Option<(i64, i64)>,
}

/// Usage that a record adds to that of its run.
struct AddedUsage {
    run: Uuid,
    model: Arc<str>,
    day: i64,
    tree: Uuid,
    figures: Figures,
}

/// Input, cached input, output, cost, the estimated part of the cost, turns and tool calls, as the table has them.
type Figures = [i64; 7];

/// The usage of a batch, which is written once for each run: a reply and the calls in it are usually in the same batch.
#[derive(Default)]
pub(super) struct BatchUsage(Vec<AddedUsage>);

impl BatchUsage {
    /// A mark for [`BatchUsage::undo`].
    pub(super) fn mark(&self) -> usize {
        self.0.len()
    }

    /// Takes back what was added since the mark.
    pub(super) fn undo(&mut self, mark: usize) {
        self.0.truncate(mark);
    }

    fn add(&mut self, record: &Record, model: Arc<str>, used: &Usage, turns: i64, tool_calls: i64) {
        // Sums must stay within an integer, whatever a provider reports.
        let bounded = |figure: u64| int(figure.min(1 << 52));
        let cost = bounded(used.cost_micros);
        // The column has the estimated part of the cost, at least 1 if there is any: earlier versions wrote 1 for `true`.
        let estimated = if used.estimated { cost.max(1) } else { 0 };
        let figures =
            [bounded(used.input), bounded(used.cached), bounded(used.output), cost, estimated, turns, tool_calls];
        self.0.push(AddedUsage { run: record.run, model, day: day(record.at), tree: record.tree, figures });
    }

    /// Writes the sums.
    pub(super) fn write(&mut self, connection: &Connection, owned: &mut OwnedTrees) -> rusqlite::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.0.sort_unstable_by(|one, other| one.key().cmp(&other.key()));
        let mut update = connection.prepare_cached(
            "UPDATE spend SET input = input + ?2, cached = cached + ?3, output = output + ?4, cost_micros = cost_micros + ?5,
             estimated = estimated + ?6, turns = turns + ?7, tool_calls = tool_calls + ?8 WHERE id = ?1",
        )?;
        for same in self.0.chunk_by(|one, other| one.key() == other.key()) {
            let usage = &same[0];
            let mut unknown = None;
            let row = owned.trees.get_mut(&usage.tree).and_then(|tree| tree.last_models.row_of(usage));
            let row = row.unwrap_or(&mut unknown);
            let sum = |sums: Figures, added: &AddedUsage| std::array::from_fn(|at| sums[at] + added.figures[at]);
            let sums = same.iter().fold(Figures::default(), sum);
            let id = match *row {
                Some((_, id)) => id,
                None => match usage.insert(connection, sums)? {
                    Inserted::New(id) => {
                        *row = Some((usage.day, id));
                        continue;
                    }
                    Inserted::Earlier(id) => id,
                },
            };
            *row = Some((usage.day, id));
            let [input, cached, output, cost, estimated, turns, tool_calls] = sums;
            let updated = update.execute([id, input, cached, output, cost, estimated, turns, tool_calls])?;
            if updated != 1 {
                return Err(rusqlite::Error::StatementChangedRows(updated));
            }
        }
        self.0.clear();
        Ok(())
    }
}

impl AddedUsage {
    fn key(&self) -> (Uuid, &str, i64) {
        (self.run, &self.model, self.day)
    }

    /// Inserts the row of this run, model and day with these figures, unless there is one. Usually there is none, so the insertion
    /// itself looks for it.
    fn insert(&self, connection: &Connection, sums: Figures) -> rusqlite::Result<Inserted> {
        let (run, model, tree) = (self.run.to_string(), &*self.model, self.tree.to_string());
        let mut statement = connection.prepare_cached(
            "INSERT INTO spend (run, model, day, tree, input, cached, output, cost_micros, estimated, turns, tool_calls)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (run, model, day) DO NOTHING",
        )?;
        let [input, cached, output, cost, estimated, turns, tool_calls] = sums;
        let figures = params![run, model, self.day, tree, input, cached, output, cost, estimated, turns, tool_calls];
        if statement.execute(figures)? == 1 {
            return Ok(Inserted::New(connection.last_insert_rowid()));
        }
        let earlier = connection
            .prepare_cached("SELECT id FROM spend WHERE run = ?1 AND model = ?2 AND day = ?3")?
            .query_row(params![run, model, self.day], |row| row.get(0))?;
        Ok(Inserted::Earlier(earlier))
    }
}

/// The number of a row with usage that was to be inserted.
enum Inserted {
    New(i64),
    /// The row was there before, and was not changed.
    Earlier(i64),
}

/// Updates the index with one record. Usage is added to that of the batch.
pub(super) fn update(
    connection: &Connection,
    record: &Record,
    last_models: &mut LastModels,
    usage: &mut BatchUsage,
) -> rusqlite::Result<()> {
    let mut spend = |last_models: &mut LastModels, used: &Usage, tool_calls: i64, is_reply: bool| {
        // Another tree paid for what a fork took over.
        if record.is_inherited() {
            return Ok(());
        }
        let last = last_models.of(connection, record)?;
        let turns = i64::from(is_reply && last.is_turn);
        usage.add(record, last.model.clone(), used, turns, tool_calls);
        Ok(())
    };
    match &record.fact {
        Fact::Spawned(spawned) => add_run(connection, record, spawned),
        Fact::Asked(asked) => {
            let is_turn = asked.purpose != Purpose::Compaction;
            if let Some(last) = last_models.0.get_mut(&record.run).filter(|last| *last.model == *asked.model) {
                last.is_turn = is_turn;
                return Ok(());
            }
            last_models.0.insert(record.run, LastModel::new(&asked.model, is_turn));
            set_running(connection, record.run, &asked.model)
        }
        Fact::Replied { reply, .. } => spend(last_models, &reply.usage, 0, true),
        Fact::AskFailed { charge, .. } if *charge == Usage::default() => Ok(()),
        Fact::AskFailed { charge, .. } => spend(last_models, charge, 0, false),
        Fact::Called(_) => spend(last_models, &Usage::default(), 1, false),
        Fact::Ended(ended) => end(connection, record.run, ended.outcome.status(), record.at),
        Fact::Extended { .. } => reopen(connection, record.run),
        Fact::Questioned { .. } | Fact::Answered { .. } => Ok(()),
        Fact::Returned { .. } | Fact::Told { .. } | Fact::Halted { .. } | Fact::Compacted { .. } => Ok(()),
    }
}

impl LastModel {
    fn new(model: &str, is_turn: bool) -> Self {
        Self { model: model.into(), is_turn, row: None }
    }
}

impl LastModels {
    /// The row of this usage, if it is that of the last model call of its run: known, or still unknown.
    fn row_of(&mut self, usage: &AddedUsage) -> Option<&mut Option<(i64, i64)>> {
        let last = self.0.get_mut(&usage.run).filter(|last| last.model == usage.model)?;
        // Another day has another row.
        if last.row.is_some_and(|(day, _)| day != usage.day) {
            last.row = None;
        }
        Some(&mut last.row)
    }

    /// The last model call of the run of `record`; after a resume it is read from the records.
    fn of(&mut self, connection: &Connection, record: &Record) -> rusqlite::Result<&LastModel> {
        match self.0.entry(record.run) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(empty) => Ok(empty.insert(last_asked(connection, record)?)),
        }
    }
}

fn last_asked(connection: &Connection, record: &Record) -> rusqlite::Result<LastModel> {
    let mut statement = connection.prepare_cached(
        "SELECT records FROM appends WHERE tree = (SELECT number FROM trees WHERE id = ?1) ORDER BY seq DESC",
    )?;
    let mut rows = statement.query([record.tree.to_string()])?;
    while let Some(row) = rows.next()? {
        if let Some(asked) = row::last_asked(row.get_ref(0)?.as_str()?, record.run) {
            return Ok(LastModel::new(&asked.model, asked.purpose != Purpose::Compaction));
        }
    }
    // A scripted model may call a tool before any model call is recorded.
    Ok(LastModel::new("", true))
}

fn add_run(connection: &Connection, record: &Record, spawned: &Spawned) -> rusqlite::Result<()> {
    let task: String = spawned.task.chars().take(TASK_CHARS).collect();
    let model = spawned.models.first().map_or("", String::as_str);
    let mut statement = connection.prepare_cached(
        "INSERT INTO runs (id, tree, place, agent, task, model, status, started) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'queued', ?7)",
    )?;
    let (run, tree, place) = (record.run.to_string(), record.tree.to_string(), record.place.to_string());
    statement.execute(params![run, tree, place, spawned.agent.name, task, model, int(record.at)])?;
    Ok(())
}

fn set_running(connection: &Connection, run: Uuid, model: &str) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("UPDATE runs SET status = 'running', model = ?2 WHERE id = ?1 AND ended IS NULL")?;
    statement.execute([run.to_string().as_str(), model])?;
    Ok(())
}

fn end(connection: &Connection, run: Uuid, status: &str, at: u64) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("UPDATE runs SET status = ?2, ended = ?3 WHERE id = ?1 AND ended IS NULL")?;
    statement.execute(params![run.to_string(), status, int(at)])?;
    Ok(())
}

/// Reopens a run that a limit ended, as the fold does when a run gets a larger budget.
fn reopen(connection: &Connection, run: Uuid) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE runs SET status = 'running', ended = NULL WHERE id = ?1 AND status IN ('exhausted', 'timed_out')",
    )?;
    statement.execute([run.to_string()])?;
    Ok(())
}
