//! Reads trees while the writer writes, and checks each record. A damaged or unknown record is an error that names it, never
//! a gap.

use std::{collections::HashMap, ops::Range, sync::Arc};

use homing_core::{
    fact::Record,
    place::Place,
    tree::{FoldError, RunTree, skip_record},
};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::journal::{
    JournalError,
    sqlite::row::{Columns, TextStore, count, int, sha256},
};

/// Selects the records of a tree at a range of positions.
const SELECT: &str = "SELECT tree, seq, at, epoch, run, place, kind, body, crc FROM records
                      WHERE tree = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq";

/// All records of a tree from position `from` on, checked to be complete.
pub(super) fn records(connection: &Connection, tree: Uuid, from: u64) -> Result<Vec<Arc<Record>>, JournalError> {
    let mut records = Vec::new();
    each(connection, tree, from, |record| {
        records.push(Arc::new(record));
        Ok(())
    })?;
    Ok(records)
}

/// At most `limit` records of a tree from position `from` on.
pub(super) fn page(
    connection: &Connection,
    tree: Uuid,
    from: u64,
    limit: u64,
) -> Result<Vec<Arc<Record>>, JournalError> {
    let snapshot = connection.unchecked_transaction()?;
    let upto = total(&snapshot, tree)?.min(from.saturating_add(limit));
    let mut records = Vec::new();
    scan(&snapshot, tree, from..upto, |record| {
        records.push(Arc::new(record));
        Ok(())
    })?;
    Ok(records)
}

/// The fold over a tree's records. Each record is dropped once it is applied, so that memory holds them once.
pub(super) fn tree(connection: &Connection, id: Uuid) -> Result<RunTree, JournalError> {
    let mut tree = RunTree::default();
    each(connection, id, 0, |record| {
        tree.apply(&record).map_err(|misfit| JournalError::Damaged(format!("tree {id}: {misfit}")))
    })?;
    Ok(tree)
}

/// The fold over the records of the run at `top` and of the runs below it. Of the runs above it, only the beginning is read; records of other
/// runs, which may be thousands, are neither decoded nor checked.
pub(super) fn branch(connection: &Connection, id: Uuid, top: &Place) -> Result<RunTree, JournalError> {
    let misfit = |misfit: FoldError| JournalError::Damaged(format!("tree {id}: {misfit}"));
    let snapshot = connection.unchecked_transaction()?;
    let total = total(&snapshot, id)?;
    let mut bodies = StoredBodies { connection: &snapshot, found: HashMap::new() };
    let mut statement = snapshot.prepare_cached(SELECT)?;
    let mut rows = statement.query(params![id.to_string(), 0, i64::MAX])?;
    let (mut tree, top, below) = (RunTree::default(), top.to_string(), format!("{top}."));
    while let Some(row) = rows.next()? {
        let text = |at: usize| row.get_ref(at).ok().and_then(|value| value.as_str().ok()).unwrap_or_default();
        let (place, is_start) = (text(5), text(6) == "spawned");
        let is_above = || top.strip_prefix(place).is_some_and(|rest| rest.starts_with('.'));
        if place == top || place.starts_with(&below) || (is_start && is_above()) {
            tree.apply(&read_row(row, &mut bodies)?).map_err(misfit)?;
        } else {
            let (seq, at, epoch) = (count(row.get(1)?), count(row.get(2)?), row.get(3)?);
            skip_record(&mut tree, seq, epoch, at).map_err(misfit)?;
        }
    }
    if tree.next_seq() == total {
        return Ok(tree);
    }
    Err(JournalError::Damaged(format!("tree {id}: {} records found, {total} written", tree.next_seq())))
}

/// Calls `take` with every record of a tree from position `from` on, and makes sure that none is missing.
fn each(
    connection: &Connection,
    tree: Uuid,
    from: u64,
    take: impl FnMut(Record) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    // One snapshot for the count and the rows, so that a concurrent commit is seen as a whole or not at all.
    let snapshot = connection.unchecked_transaction()?;
    let total = total(&snapshot, tree)?;
    let found = scan(&snapshot, tree, from..u64::MAX, take)?;
    if found == total.max(from) {
        return Ok(());
    }
    Err(JournalError::Damaged(format!("tree {tree}: {found} records found, {total} written")))
}

/// The number of records that the tree has.
pub(super) fn total(connection: &Connection, tree: Uuid) -> Result<u64, JournalError> {
    let found: Option<(i64, bool)> = connection
        .prepare_cached("SELECT next_seq, pruned FROM trees WHERE id = ?1")?
        .query_row([tree.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match found {
        None => Err(JournalError::NoSuchTree(tree)),
        Some((_, true)) => Err(JournalError::Pruned(tree)),
        Some((total, false)) => Ok(count(total)),
    }
}

/// Reads the rows at these positions in order, and returns the position after the last one.
fn scan(
    connection: &Connection,
    tree: Uuid,
    positions: Range<u64>,
    mut take: impl FnMut(Record) -> Result<(), JournalError>,
) -> Result<u64, JournalError> {
    let mut bodies = StoredBodies { connection, found: HashMap::new() };
    let mut statement = connection.prepare_cached(SELECT)?;
    let mut rows = statement.query(params![tree.to_string(), int(positions.start), int(positions.end)])?;
    let mut expected = positions.start;
    while let Some(row) = rows.next()? {
        let record = read_row(row, &mut bodies)?;
        if record.seq != expected {
            let what = format!("tree {tree}: record {expected} is missing, {} follows", record.seq);
            return Err(JournalError::Damaged(what));
        }
        expected += 1;
        take(record)?;
    }
    Ok(expected)
}

/// Reads one row of `tree, seq, at, epoch, run, place, kind, body, crc`.
pub(super) fn read_row(row: &rusqlite::Row<'_>, bodies: &mut dyn TextStore) -> Result<Record, JournalError> {
    let text = |at: usize| row.get_ref(at).ok().and_then(|value| value.as_str().ok());
    let number = |at: usize| row.get::<_, i64>(at).ok();
    let columns = (|| {
        let columns = Columns {
            tree: text(0)?,
            seq: number(1)?,
            at: number(2)?,
            epoch: number(3)?,
            run: text(4)?,
            place: text(5)?,
            kind: text(6)?,
            body: text(7)?,
        };
        Some((columns, number(8)?))
    })();
    match columns {
        Some((columns, crc)) => columns.read(crc, bodies),
        None => {
            let (tree, seq) = (text(0).unwrap_or("?"), number(1).unwrap_or(-1));
            Err(JournalError::Damaged(format!("tree {tree}, record {seq}: a column has the wrong type")))
        }
    }
}

/// Long texts from the table `bodies`, each read and checked once.
pub(super) struct StoredBodies<'a> {
    pub(super) connection: &'a Connection,
    pub(super) found: HashMap<String, String>,
}

impl TextStore for StoredBodies<'_> {
    fn find(&mut self, hash: &str) -> Result<String, JournalError> {
        if let Some(text) = self.found.get(hash) {
            return Ok(text.clone());
        }
        let text: Option<String> = self
            .connection
            .prepare_cached("SELECT text FROM bodies WHERE hash = ?1")?
            .query_row([hash], |row| row.get(0))
            .optional()?;
        let Some(text) = text else { return Err(JournalError::Damaged(format!("the stored text {hash} is missing"))) };
        if sha256(&text) != hash {
            return Err(JournalError::Damaged(format!("the stored text {hash} has changed")));
        }
        self.found.insert(hash.to_owned(), text.clone());
        Ok(text)
    }
}
