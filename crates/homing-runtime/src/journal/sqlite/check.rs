//! Looks at everything in the journal and says what cannot be believed, for `doctor`. It mends nothing.

use std::collections::HashMap;

use rusqlite::Connection;

use crate::journal::{
    JournalError,
    sqlite::{
        SqliteJournal,
        reader::{Stored, read_row},
        row::{count, sha256},
        schema::said,
    },
};

/// The most findings that SQLite's own check is asked for.
const FINDINGS: u32 = 100;

/// What a check of the whole journal found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalReport {
    /// Trees that have records.
    pub trees: u64,
    /// Records that were looked at.
    pub records: u64,
    /// Stored texts that were looked at.
    pub bodies: u64,
    /// What cannot be believed, each with its tree and position where it has one.
    pub problems: Vec<JournalError>,
}

impl SqliteJournal {
    /// Checks the file's structure, each record's checksum, and that none is missing.
    pub fn check(&self) -> Result<JournalReport, JournalError> {
        self.read(|connection| {
            let snapshot = connection.unchecked_transaction().map_err(|error| said(&error))?;
            let mut report = JournalReport::default();
            // A page that cannot be read ends a part of the check, not the check.
            for part in [structure, bodies, records, strangers] {
                if let Err(error) = part(&snapshot, &mut report) {
                    report.problems.push(said(&error));
                }
            }
            Ok(report)
        })
    }
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
            report.problems.push(JournalError::Damaged(format!("the stored text {hash} is not what was stored")));
        }
    }
    Ok(())
}

fn records(connection: &Connection, report: &mut JournalReport) -> rusqlite::Result<()> {
    let mut trees = connection.prepare("SELECT id, next_seq FROM trees WHERE pruned = 0 ORDER BY id")?;
    let trees: Vec<(String, i64)> =
        trees.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    for (tree, total) in trees {
        report.trees += 1;
        records_of(connection, &tree, count(total), report)?;
    }
    Ok(())
}

fn records_of(connection: &Connection, tree: &str, total: u64, report: &mut JournalReport) -> rusqlite::Result<()> {
    let mut bodies = Stored { connection, found: HashMap::new() };
    let mut statement = connection.prepare_cached(
        "SELECT tree, seq, at, epoch, run, place, kind, body, crc FROM records WHERE tree = ?1 ORDER BY seq",
    )?;
    let mut rows = statement.query([tree])?;
    let mut expected = 0;
    while let Some(row) = rows.next()? {
        report.records += 1;
        let seq = count(row.get(1).unwrap_or(0));
        if seq != expected {
            report.problems.push(JournalError::Damaged(format!("tree {tree}: record {expected} is missing")));
        }
        expected = seq + 1;
        if let Err(problem) = read_row(row, &mut bodies) {
            report.problems.push(problem);
        }
    }
    if expected != total {
        let what = format!("tree {tree}: {expected} records were found where {total} were written");
        report.problems.push(JournalError::Damaged(what));
    }
    Ok(())
}

/// Records of trees that do not exist.
fn strangers(connection: &Connection, report: &mut JournalReport) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "SELECT tree, seq FROM records WHERE NOT EXISTS (SELECT 1 FROM trees WHERE trees.id = records.tree) LIMIT ?1",
    )?;
    let mut rows = statement.query([FINDINGS])?;
    while let Some(row) = rows.next()? {
        let (tree, seq): (String, i64) = (row.get(0)?, row.get(1)?);
        report.problems.push(JournalError::Damaged(format!("tree {tree}, record {seq}: there is no such tree")));
    }
    Ok(())
}
