//! Changes of the journal, for processes that watch the trees of all others.

use std::{collections::BTreeMap, sync::Arc};

use homing_core::fact::Record;
use rusqlite::Connection;
use uuid::Uuid;

use crate::journal::{
    JournalError,
    sqlite::{
        SqliteJournal,
        index::day,
        owner::now,
        query::parsed,
        reader,
        row::{count, int},
    },
};

/// The trees that changed since a position of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// Position of the last commit of records to the journal.
    pub position: u64,
    /// The trees, in the order of their latest records.
    pub trees: Vec<Uuid>,
}

/// The journal as a process that watches all trees reads it.
#[derive(Clone, Debug)]
pub struct JournalFeed(Arc<SqliteJournal>);

impl JournalFeed {
    /// Creates the feed of a journal.
    pub fn new(journal: Arc<SqliteJournal>) -> Self {
        Self(journal)
    }

    /// Returns the present position of the journal, for [`Self::changes`].
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn position(&self) -> Result<u64, JournalError> {
        self.0.read(|connection| Ok(last(connection)?))
    }

    /// Returns the micro-dollars that each budget account has spent today (UTC).
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn spent_today(&self) -> Result<BTreeMap<String, u64>, JournalError> {
        self.0.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT name, cost_micros FROM accounts WHERE day = ?1")?;
            let rows = statement.query_map([day(now())], |row| Ok((row.get(0)?, row.get(1).map(count)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Returns the number of records of a tree, which is the position of its next one.
    ///
    /// # Errors
    /// Fails if there is no such tree, if its records were pruned, or if the journal cannot be read.
    pub fn record_count(&self, tree: Uuid) -> Result<u64, JournalError> {
        self.0.read(|connection| reader::TreeSize::find(connection, tree).map(|size| size.records))
    }

    /// Returns the trees with records after `position`, as [`Changes::position`] gave it before. 0 stands for the beginning.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn changes(&self, position: u64) -> Result<Changes, JournalError> {
        self.0.read(|connection| Ok(changes(connection, position)?))
    }

    /// Returns at most `limit` records of a tree from position `from` on.
    ///
    /// # Errors
    /// Fails if there is no such tree, or if the journal cannot be read.
    pub fn page(&self, tree: Uuid, from: u64, limit: u64) -> Result<Vec<Arc<Record>>, JournalError> {
        self.0.read(|connection| reader::page(connection, tree, from, limit))
    }
}

fn last(connection: &Connection) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(id), 0) FROM appends")?;
    statement.query_row([], |row| row.get(0).map(count))
}

fn changes(connection: &Connection, position: u64) -> rusqlite::Result<Changes> {
    let last = last(connection)?;
    if last == position {
        return Ok(Changes { position, trees: Vec::new() });
    }
    // Positions are row IDs, which start again if the newest trees were pruned.
    let after = if last < position { 0 } else { position };
    let sql = "SELECT trees.id FROM appends JOIN trees ON number = tree WHERE appends.id > ?1 AND appends.id <= ?2
               GROUP BY tree ORDER BY max(appends.id)";
    let mut statement = connection.prepare_cached(sql)?;
    let trees = statement.query_map([int(after), int(last)], |row| parsed(row, 0))?;
    Ok(Changes { position: last, trees: trees.collect::<rusqlite::Result<_>>()? })
}
