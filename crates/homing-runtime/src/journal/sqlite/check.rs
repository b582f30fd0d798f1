//! Checks a whole journal and reports what is damaged. Nothing is repaired.

use std::{collections::HashMap, path::Path};

use rusqlite::{Connection, TransactionBehavior};
use uuid::Uuid;

use crate::journal::{
    JournalError,
    sqlite::{
        SqliteJournal,
        query::parsed,
        reader::{StoredBodies, stored},
        row::{count, sha256},
        schema,
        wal_check::WalFile,
    },
};

/// The most problems that one part of the check reports.
const FINDINGS: u32 = 100;

/// The result of checking a whole journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalReport {
    /// Number of trees that have records.
    pub trees: u64,
    /// Number of records that were read.
    pub records: u64,
    /// Number of stored texts that were read.
    pub bodies: u64,
    /// The problems found; each names its tree and position, if it has one.
    pub problems: Vec<JournalError>,
}

impl SqliteJournal {
    /// Checks the file of this journal like [`check_file`].
    ///
    /// Opening a journal may overwrite the damaged part of a log: to find such damage, call [`check_file`] before.
    ///
    /// # Errors
    /// Fails if the file cannot be opened. Damage is not an error but part of the report.
    pub fn check(&self) -> Result<JournalReport, JournalError> {
        check_file(&self.path)
    }
}

/// Checks the write-ahead log, the structure of the file, the checksum of each record, and that no record is missing.
///
/// Neither the database nor the log is changed, so that damage can be examined afterwards.
///
/// # Errors
/// Fails if the file cannot be opened, is not a journal, or was written by a newer version. Damage is not an error but part
/// of the report.
pub fn check_file(path: &Path) -> Result<JournalReport, JournalError> {
    let mut report = JournalReport::default();
    let mut connection = schema::open_for_check(path)?;
    report.problems.extend(log_damage(&mut connection, path)?);
    let snapshot = connection.unchecked_transaction()?;
    schema::recognise(&snapshot)?;
    let is_empty: bool = snapshot.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    if is_empty {
        return Ok(report);
    }
    schema::require_current(&snapshot)?;
    // A page that cannot be read ends one part of the check, not the whole check.
    for part in [structure, bodies, records, orphans] {
        if let Err(error) = part(&snapshot, &mut report) {
            report.problems.push(error.into());
        }
    }
    Ok(report)
}

/// Damage in the write-ahead log that hides commits.
fn log_damage(connection: &mut Connection, path: &Path) -> Result<Option<JournalError>, JournalError> {
    let log = WalFile::of(path);
    if log.damage().is_none() {
        return Ok(None);
    }
    // Another process may have been writing just then. With the write lock held, none is.
    let _write_lock = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    Ok(log.damage().map(|end| log.error(end)))
}

fn structure(connection: &Connection, report: &mut JournalReport) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({FINDINGS})"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let finding: String = row.get(0)?;
        if finding != "ok" {
            report.problems.push(JournalError::Damaged(finding));
        }
    }
    Ok(())
}

fn bodies(connection: &Connection, report: &mut JournalReport) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT hash, text FROM bodies")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        report.bodies += 1;
        let (hash, text): (String, String) = (row.get(0)?, row.get(1)?);
        if sha256(&text) != hash {
            report.problems.push(JournalError::Damaged(format!("the stored text {hash} has changed")));
        }
    }
    Ok(())
}

fn records(connection: &Connection, report: &mut JournalReport) -> rusqlite::Result<()> {
    let sql = "SELECT id, number, next_seq FROM trees JOIN progress ON tree = number WHERE pruned = 0 ORDER BY id";
    let mut trees = connection.prepare(sql)?;
    let trees: Vec<(Uuid, i64, i64)> =
        trees.query_map([], |row| Ok((parsed(row, 0)?, row.get(1)?, row.get(2)?)))?.collect::<rusqlite::Result<_>>()?;
    for (tree, number, total) in trees {
        report.trees += 1;
        records_of(connection, tree, number, count(total), report)?;
    }
    Ok(())
}

fn records_of(
    connection: &Connection,
    tree: Uuid,
    number: i64,
    total: u64,
    report: &mut JournalReport,
) -> rusqlite::Result<()> {
    let mut bodies = StoredBodies { connection, found: HashMap::new() };
    let mut statement =
        connection.prepare_cached("SELECT seq, epoch, records, crc FROM appends WHERE tree = ?1 ORDER BY seq")?;
    let mut rows = statement.query([number])?;
    // The position of the next record; unknown after a row that cannot be read.
    let mut expected = Some(0);
    while let Some(row) = rows.next()? {
        let seq = count(row.get(0).unwrap_or(0));
        if let Some(missing) = expected.filter(|expected| *expected != seq) {
            report.problems.push(JournalError::Damaged(format!("tree {tree}: record {missing} is missing")));
        }
        let mut found = 0;
        let read = stored(row, tree).and_then(|(stored, crc)| {
            stored.each(crc, &mut bodies, |_| {
                found += 1;
                Ok(())
            })
        });
        report.records += found;
        expected = read.is_ok().then_some(seq + found);
        report.problems.extend(read.err());
    }
    if let Some(found) = expected.filter(|found| *found != total) {
        let what = format!("tree {tree}: {found} records found, {total} written");
        report.problems.push(JournalError::Damaged(what));
    }
    Ok(())
}

/// Finds records of trees that do not exist.
fn orphans(connection: &Connection, report: &mut JournalReport) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare("SELECT tree, seq FROM appends WHERE NOT EXISTS (SELECT 1 FROM trees WHERE number = tree) LIMIT ?1")?;
    let mut rows = statement.query([FINDINGS])?;
    while let Some(row) = rows.next()? {
        let (tree, seq): (i64, i64) = (row.get(0)?, row.get(1)?);
        report
            .problems
            .push(JournalError::Damaged(format!("record {seq} of tree number {tree}: there is no such tree")));
    }
    Ok(())
}
