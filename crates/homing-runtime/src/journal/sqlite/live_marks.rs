//! Marks of what runs are doing, one row per run while there is something to tell. They are not facts: a lost mark changes
//! nothing but an estimate or a word on a screen.

use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use crate::journal::{
    JournalError, LiveMark, LiveMarks,
    sqlite::{query::parsed, row::count},
};

/// The name of a mark in the table `meta`, which every version of the file has.
fn name(tree: Uuid, run: Uuid) -> String {
    format!("live {tree} {run}")
}

/// The bounds of the names of a tree's marks.
fn bounds(tree: &str) -> [String; 2] {
    [format!("live {tree} "), format!("live {tree}!")]
}

/// Stores the mark of a run, or removes it.
pub(super) fn store(
    connection: &Connection,
    tree: Uuid,
    run: Uuid,
    mark: Option<LiveMark>,
) -> Result<(), JournalError> {
    let name = name(tree, run);
    let Some(mark) = mark.and_then(|mark| serde_json::to_string(&mark).ok()) else {
        connection.prepare_cached("DELETE FROM meta WHERE name = ?1")?.execute([name])?;
        return Ok(());
    };
    let sql = "INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.prepare_cached(sql)?.execute([name, mark])?;
    Ok(())
}

/// Removes the marks of a tree that is not driven any more.
pub(super) fn clear(connection: &Connection, tree: Uuid) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached("DELETE FROM meta WHERE name >= ?1 AND name < ?2")?;
    delete.execute(bounds(&tree.to_string()))?;
    Ok(())
}

/// Reads the marks of a tree, and when its owner was last seen.
pub(super) fn of_tree(connection: &Connection, tree: Uuid) -> Result<LiveMarks, JournalError> {
    let id = tree.to_string();
    let mut select = connection.prepare_cached("SELECT name, value FROM meta WHERE name >= ?1 AND name < ?2")?;
    let rows = select.query_map(bounds(&id), |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let mut marks = LiveMarks::default();
    for row in rows {
        let (name, value) = row?;
        let run = name.rsplit(' ').next().and_then(|run| run.parse().ok());
        if let (Some(run), Ok(mark)) = (run, serde_json::from_str(&value)) {
            marks.runs.insert(run, mark);
        }
    }
    let sql = "SELECT heartbeat FROM owners JOIN trees ON trees.owner = owners.id WHERE trees.id = ?1";
    marks.seen_at = connection.prepare_cached(sql)?.query_row([&id], |row| row.get(0).map(count)).optional()?;
    Ok(marks)
}

/// Counts the runs of each tree that wait for budget.
pub(super) fn waiting_for_budget(connection: &Connection) -> Result<Vec<(Uuid, Uuid)>, JournalError> {
    let sql = "SELECT substr(name, 6, 36), substr(name, 43, 36) FROM meta
               WHERE name >= 'live ' AND name < 'live!' AND value = ?1";
    let mut select = connection.prepare_cached(sql)?;
    let waiting = serde_json::to_string(&LiveMark::WaitingForBudget).unwrap_or_default();
    let rows = select.query_map([waiting], |row| Ok((parsed(row, 0)?, parsed(row, 1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
