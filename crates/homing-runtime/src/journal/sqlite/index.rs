//! Maintains the index of runs and their usage in the same transaction as the records, so that listing thousands of runs
//! folds none of them. Everything here can be derived from the records.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use homing_core::{
    fact::{Fact, Purpose, Record, Spawned},
    message::Usage,
};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::journal::sqlite::row::int;

const DAY_MS: u64 = 86_400_000;

/// Characters of a task that are kept for lists.
const TASK_CHARS: usize = 500;

/// Days since 1970.
pub(super) fn day(at: u64) -> i64 {
    int(at / DAY_MS)
}

/// The last model call of each run of a tree, to which usage is attributed.
#[derive(Default)]
pub(super) struct LastModels(HashMap<Uuid, LastModel>);

struct LastModel {
    model: Arc<str>,
    is_turn: bool,
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
    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.0.sort_unstable_by(|one, other| one.key().cmp(&other.key()));
        let mut statement = connection.prepare_cached(
            "INSERT INTO spend (run, model, day, tree, input, cached, output, cost_micros, estimated, turns, tool_calls)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT (run, model, day) DO UPDATE SET input = input + excluded.input, cached = cached + excluded.cached,
             output = output + excluded.output, cost_micros = cost_micros + excluded.cost_micros,
             estimated = estimated + excluded.estimated, turns = turns + excluded.turns,
             tool_calls = tool_calls + excluded.tool_calls",
        )?;
        for same in self.0.chunk_by(|one, other| one.key() == other.key()) {
            let AddedUsage { run, model, day, tree, .. } = &same[0];
            let model: &str = model;
            let sum = |sums: Figures, added: &AddedUsage| std::array::from_fn(|at| sums[at] + added.figures[at]);
            let [input, cached, output, cost, estimated, turns, tool_calls] = same.iter().fold(Figures::default(), sum);
            let (run, tree) = (run.to_string(), tree.to_string());
            statement
                .execute(params![run, model, day, tree, input, cached, output, cost, estimated, turns, tool_calls])?;
        }
        self.0.clear();
        Ok(())
    }
}

impl AddedUsage {
    fn key(&self) -> (Uuid, &str, i64) {
        (self.run, &self.model, self.day)
    }
}

/// Updates the index with one record. Usage is added to that of the batch.
pub(super) fn update(
    connection: &Connection,
    record: &Record,
    tree: &str,
    run: &str,
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
        Fact::Spawned(spawned) => add_run(connection, record, tree, run, spawned),
        Fact::Asked(asked) => {
            let ask = LastModel { model: asked.model.as_str().into(), is_turn: asked.purpose != Purpose::Compaction };
            let before = last_models.0.insert(record.run, ask);
            if before.is_some_and(|before| *before.model == *asked.model) {
                return Ok(());
            }
            set_running(connection, run, &asked.model)
        }
        Fact::Replied { reply, .. } => spend(last_models, &reply.usage, 0, true),
        Fact::AskFailed { charge, .. } if *charge == Usage::default() => Ok(()),
        Fact::AskFailed { charge, .. } => spend(last_models, charge, 0, false),
        Fact::Called(_) => spend(last_models, &Usage::default(), 1, false),
        Fact::Ended(ended) => end(connection, run, ended.outcome.status(), record.at),
        Fact::Extended { .. } => reopen(connection, run),
        Fact::Questioned { .. } | Fact::Answered { .. } => Ok(()),
        Fact::Returned { .. } | Fact::Told { .. } | Fact::Halted { .. } | Fact::Compacted { .. } => Ok(()),
    }
}

impl LastModels {
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
        "SELECT body FROM records WHERE tree = ?1 AND run = ?2 AND kind = 'asked' ORDER BY seq DESC LIMIT 1",
    )?;
    let ids = [record.tree.to_string(), record.run.to_string()];
    let body: Option<String> = statement.query_row(ids, |row| row.get(0)).optional()?;
    let asked = body.and_then(|body| match serde_json::from_str(&body) {
        Ok(Fact::Asked(asked)) => Some(asked),
        Ok(_) | Err(_) => None,
    });
    Ok(match asked {
        Some(asked) => LastModel { is_turn: asked.purpose != Purpose::Compaction, model: asked.model.as_str().into() },
        // A scripted model may call a tool before any model call is recorded.
        None => LastModel { model: Arc::default(), is_turn: true },
    })
}

fn add_run(connection: &Connection, record: &Record, tree: &str, run: &str, spawned: &Spawned) -> rusqlite::Result<()> {
    let task: String = spawned.task.chars().take(TASK_CHARS).collect();
    let model = spawned.models.first().map_or("", String::as_str);
    let mut statement = connection.prepare_cached(
        "INSERT INTO runs (id, tree, place, agent, task, model, status, started) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'queued', ?7)",
    )?;
    statement.execute(params![run, tree, record.place.to_string(), spawned.agent.name, task, model, int(record.at)])?;
    Ok(())
}

fn set_running(connection: &Connection, run: &str, model: &str) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("UPDATE runs SET status = 'running', model = ?2 WHERE id = ?1 AND ended IS NULL")?;
    statement.execute([run, model])?;
    Ok(())
}

fn end(connection: &Connection, run: &str, status: &str, at: u64) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("UPDATE runs SET status = ?2, ended = ?3 WHERE id = ?1 AND ended IS NULL")?;
    statement.execute(params![run, status, int(at)])?;
    Ok(())
}

/// Reopens a run that a limit ended, as the fold does when a run gets a larger budget.
fn reopen(connection: &Connection, run: &str) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE runs SET status = 'running', ended = NULL WHERE id = ?1 AND status IN ('exhausted', 'timed_out')",
    )?;
    statement.execute([run])?;
    Ok(())
}
