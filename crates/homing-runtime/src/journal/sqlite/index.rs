//! Keeps the index of runs and of what they spent beside the records, so that listing thousands of runs folds none of
//! them. Everything here follows from the records.

use std::collections::{HashMap, hash_map::Entry};

use homing_core::{
    fact::{Fact, Purpose, Record, Spawned},
    message::Usage,
};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::journal::sqlite::row::int;

const DAY_MS: u64 = 86_400_000;

/// How much of a task is kept for lists.
const TASK_CHARS: usize = 500;

/// Days since 1970.
pub(super) fn day(at: u64) -> i64 {
    int(at / DAY_MS)
}

/// What the index has to remember of a tree's runs between records.
#[derive(Default)]
pub(super) struct Notes(HashMap<Uuid, Note>);

struct Note {
    model: String,
    is_turn: bool,
}

/// Brings the index up to date with one record.
pub(super) fn note(
    connection: &Connection,
    record: &Record,
    tree: &str,
    run: &str,
    notes: &mut Notes,
) -> rusqlite::Result<()> {
    let spend = |notes: &mut Notes, used: &Usage, tool_calls: u32, turn: bool| {
        let note = notes.of(connection, record)?;
        let turns = u32::from(turn && note.is_turn);
        add(connection, (tree, run, &note.model, day(record.at)), used, turns, tool_calls)
    };
    match &record.fact {
        Fact::Spawned(spawned) => add_run(connection, record, tree, run, spawned),
        Fact::Asked(asked) => {
            let note = Note { model: asked.model.clone(), is_turn: asked.purpose != Purpose::Compaction };
            let before = notes.0.insert(record.run, note);
            if before.is_some_and(|before| before.model == asked.model) {
                return Ok(());
            }
            set_running(connection, run, &asked.model)
        }
        Fact::Replied { reply } => spend(notes, &reply.usage, 0, true),
        Fact::AskFailed { charge, .. } if *charge == Usage::default() => Ok(()),
        Fact::AskFailed { charge, .. } => spend(notes, charge, 0, false),
        Fact::Called(_) => spend(notes, &Usage::default(), 1, false),
        Fact::Ended(ended) => end(connection, run, ended.outcome.status(), record.at),
        Fact::Extended { .. } => reopen(connection, run),
        Fact::Returned { .. } | Fact::Told { .. } | Fact::Halted { .. } | Fact::Compacted { .. } => Ok(()),
    }
}

impl Notes {
    /// The model that the run asked last; after a resume it has to be looked up.
    fn of(&mut self, connection: &Connection, record: &Record) -> rusqlite::Result<&Note> {
        match self.0.entry(record.run) {
            Entry::Occupied(noted) => Ok(noted.into_mut()),
            Entry::Vacant(empty) => Ok(empty.insert(last_asked(connection, record)?)),
        }
    }
}

fn last_asked(connection: &Connection, record: &Record) -> rusqlite::Result<Note> {
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
        Some(asked) => Note { is_turn: asked.purpose != Purpose::Compaction, model: asked.model },
        // A program's model is never asked over a wire, and a call may precede any ask in it.
        None => Note { model: String::new(), is_turn: true },
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

/// The fold's rule: only a limit's ending is undone by more room.
fn reopen(connection: &Connection, run: &str) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "UPDATE runs SET status = 'running', ended = NULL WHERE id = ?1 AND status IN ('exhausted', 'timed_out')",
    )?;
    statement.execute([run])?;
    Ok(())
}

/// Whose spending: tree, run, model, day.
type Whose<'a> = (&'a str, &'a str, &'a str, i64);

fn add(
    connection: &Connection,
    (tree, run, model, day): Whose<'_>,
    used: &Usage,
    turns: u32,
    tool_calls: u32,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO spend (run, model, day, tree, input, cached, output, cost_micros, estimated, turns, tool_calls)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (run, model, day) DO UPDATE SET input = input + excluded.input, cached = cached + excluded.cached,
         output = output + excluded.output, cost_micros = cost_micros + excluded.cost_micros,
         estimated = max(estimated, excluded.estimated), turns = turns + excluded.turns,
         tool_calls = tool_calls + excluded.tool_calls",
    )?;
    // Sums stay integers, whatever a provider claims.
    let sane = |figure: u64| int(figure.min(1 << 52));
    let (input, cached, output, cost) =
        (sane(used.input), sane(used.cached), sane(used.output), sane(used.cost_micros));
    let estimated = used.estimated;
    statement.execute(params![run, model, day, tree, input, cached, output, cost, estimated, turns, tool_calls])?;
    Ok(())
}
