//! Maintains the index of runs and their usage in the same transaction as the records, so that listing thousands of runs
//! folds none of them. Everything here can be derived from the records.

use std::collections::{HashMap, hash_map::Entry};

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
    model: String,
    is_turn: bool,
}

/// Updates the index with one record.
pub(super) fn update(
    connection: &Connection,
    record: &Record,
    tree: &str,
    run: &str,
    last_models: &mut LastModels,
) -> rusqlite::Result<()> {
    let spend = |last_models: &mut LastModels, used: &Usage, tool_calls: u32, is_reply: bool| {
        // Another tree paid for what a fork took over.
        if record.is_inherited() {
            return Ok(());
        }
        let last = last_models.of(connection, record)?;
        let turns = u32::from(is_reply && last.is_turn);
        add_usage(connection, (tree, run, &last.model, day(record.at)), used, turns, tool_calls)
    };
    match &record.fact {
        Fact::Spawned(spawned) => add_run(connection, record, tree, run, spawned),
        Fact::Asked(asked) => {
            let ask = LastModel { model: asked.model.clone(), is_turn: asked.purpose != Purpose::Compaction };
            let before = last_models.0.insert(record.run, ask);
            if before.is_some_and(|before| before.model == asked.model) {
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
        Some(asked) => LastModel { is_turn: asked.purpose != Purpose::Compaction, model: asked.model },
        // A scripted model may call a tool before any model call is recorded.
        None => LastModel { model: String::new(), is_turn: true },
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

/// The tree, run, model and day that usage belongs to.
type SpendKey<'a> = (&'a str, &'a str, &'a str, i64);

fn add_usage(
    connection: &Connection,
    (tree, run, model, day): SpendKey<'_>,
    used: &Usage,
    turns: u32,
    tool_calls: u32,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO spend (run, model, day, tree, input, cached, output, cost_micros, estimated, turns, tool_calls)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (run, model, day) DO UPDATE SET input = input + excluded.input, cached = cached + excluded.cached,
         output = output + excluded.output, cost_micros = cost_micros + excluded.cost_micros,
         estimated = estimated + excluded.estimated, turns = turns + excluded.turns,
         tool_calls = tool_calls + excluded.tool_calls",
    )?;
    // Sums must stay within an integer, whatever a provider reports.
    let bounded = |figure: u64| int(figure.min(1 << 52));
    let (input, cached, output, cost) =
        (bounded(used.input), bounded(used.cached), bounded(used.output), bounded(used.cost_micros));
    // The column has the estimated part of the cost, at least 1 if there is any: earlier versions wrote 1 for `true`.
    let estimated = if used.estimated { cost.max(1) } else { 0 };
    statement.execute(params![run, model, day, tree, input, cached, output, cost, estimated, turns, tool_calls])?;
    Ok(())
}
