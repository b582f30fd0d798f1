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
    sqlite::row::{Selected, StoredRecords, TextStore, count, int, sha256},
};

/// Selects the rows with the records of a tree at a range of positions. The first row may begin before the range.
const SELECT: &str = "SELECT seq, epoch, records, crc FROM appends WHERE tree = ?1 AND seq < ?3
                      AND seq >= coalesce((SELECT max(seq) FROM appends WHERE tree = ?1 AND seq <= ?2), 0) ORDER BY seq";

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
    let size = TreeSize::find(&snapshot, tree)?;
    let upto = size.records.min(from.saturating_add(limit));
    let mut records = Vec::new();
    scan(&snapshot, tree, size.number, from..upto, |record| {
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
    let TreeSize { number, records: total } = TreeSize::find(&snapshot, id)?;
    let mut bodies = StoredBodies { connection: &snapshot, found: HashMap::new() };
    let mut statement = snapshot.prepare_cached(SELECT)?;
    let mut rows = statement.query(params![number, 0, i64::MAX])?;
    let mut tree = RunTree::default();
    let is_needed = |place: &Place, fact: &str| {
        place.is_within(top) || (fact.starts_with(r#"{"spawned":"#) && top.is_within(place))
    };
    while let Some(row) = rows.next()? {
        let (stored, crc) = stored(row, id)?;
        stored.some(crc, &mut bodies, is_needed, |selected| match selected {
            Selected::Record(record) => tree.apply(&record).map_err(misfit),
            Selected::Skipped { seq, epoch, at } => skip_record(&mut tree, seq, epoch, at).map_err(misfit),
        })?;
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
    let TreeSize { number, records: total } = TreeSize::find(&snapshot, tree)?;
    let found = scan(&snapshot, tree, number, from..u64::MAX, take)?;
    if found == total.max(from) {
        return Ok(());
    }
    Err(JournalError::Damaged(format!("tree {tree}: {found} records found, {total} written")))
}

/// The number of a tree in the tables, and that of its records.
pub(super) struct TreeSize {
    number: i64,
    pub(super) records: u64,
}

impl TreeSize {
    /// Looks up a tree whose records are kept.
    pub(super) fn find(connection: &Connection, tree: Uuid) -> Result<Self, JournalError> {
        let sql = "SELECT number, next_seq, pruned FROM trees JOIN progress ON tree = number WHERE id = ?1";
        let found: Option<(i64, i64, bool)> = connection
            .prepare_cached(sql)?
            .query_row([tree.to_string()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        match found {
            None => Err(JournalError::NoSuchTree(tree)),
            Some((_, _, true)) => Err(JournalError::Pruned(tree)),
            Some((number, records, false)) => Ok(Self { number, records: count(records) }),
        }
    }
}

/// Reads the records at these positions in order, and returns the position after the last one.
fn scan(
    connection: &Connection,
    tree: Uuid,
    number: i64,
    positions: Range<u64>,
    mut take: impl FnMut(Record) -> Result<(), JournalError>,
) -> Result<u64, JournalError> {
    let mut bodies = StoredBodies { connection, found: HashMap::new() };
    let mut statement = connection.prepare_cached(SELECT)?;
    let mut rows = statement.query(params![number, int(positions.start), int(positions.end)])?;
    let mut expected = positions.start;
    while let Some(row) = rows.next()? {
        let (stored, crc) = stored(row, tree)?;
        stored.each(crc, &mut bodies, |record| {
            if !positions.contains(&record.seq) {
                return Ok(());
            }
            if record.seq != expected {
                let what = format!("tree {tree}: record {expected} is missing, {} follows", record.seq);
                return Err(JournalError::Damaged(what));
            }
            expected += 1;
            take(record)
        })?;
    }
    Ok(expected)
}

/// Reads one row of `seq, epoch, records, crc`, and returns the records and their checksum.
pub(super) fn stored<'a>(row: &'a rusqlite::Row<'_>, tree: Uuid) -> Result<(StoredRecords<'a>, i64), JournalError> {
    let number = |at: usize| row.get::<_, i64>(at).ok();
    let columns = (|| {
        let json = row.get_ref(2).ok()?.as_str().ok()?;
        Some((StoredRecords { tree, seq: number(0)?, epoch: number(1)?, json }, number(3)?))
    })();
    columns.ok_or_else(|| {
        let seq = number(0).unwrap_or(-1);
        JournalError::Damaged(format!("tree {tree}, record {seq}: a column has the wrong type"))
    })
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
