//! Begins trees and appends records within a transaction, after checking that this process still owns the tree and that no
//! record is missing.

use homing_core::fact::{Fact, Record};
use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension, params};
use uuid::Uuid;

use crate::journal::{
    Begun, JournalError,
    sqlite::{
        batch::Batch,
        failpoint::FailpointCounter,
        index,
        owner::Owner,
        ownership::{OwnedTree, OwnedTrees},
        row::{Row, StoredRecords, count, int, sha256},
    },
};

/// Records that are appended together are one row, unless it would get longer than this: a reader of a few records should not have
/// to parse many more.
pub(super) const MAX_ROW_BYTES: usize = 64 * 1024;

/// Appends records within a transaction.
pub(super) struct Records<'a> {
    pub(super) connection: &'a Connection,
    pub(super) me: &'a Owner,
    pub(super) owned: &'a mut OwnedTrees,
    pub(super) batch: &'a mut Batch,
    pub(super) points: &'a mut FailpointCounter,
    /// Compiled at the first row: looking it up for each takes a fifth of the time of an insertion.
    pub(super) insertion: Option<CachedStatement<'a>>,
}

/// The result of appending records of one tree: the first `written` of them are appended, the others failed.
#[derive(Default)]
pub(super) struct Appended {
    pub(super) written: usize,
    pub(super) error: Option<JournalError>,
}

impl Appended {
    /// The result of the record at an index.
    pub(super) fn of(&self, at: usize) -> Result<(), JournalError> {
        match &self.error {
            Some(error) if at >= self.written => Err(error.clone()),
            Some(_) | None => Ok(()),
        }
    }

    /// An error if any record failed.
    pub(super) fn all(self) -> Result<(), JournalError> {
        self.error.map_or(Ok(()), Err)
    }
}

impl Records<'_> {
    /// Appends consecutive records of one tree. A failure closes this tree only, unless the disk is the cause.
    pub(super) fn append(&mut self, rows: &[&Row]) -> Appended {
        let mut appended = Appended::default();
        let Some(tree) = rows.first().map(|row| row.record.tree) else { return appended };
        self.batch.touched.insert(tree);
        let mut result = self.batch.status();
        while result.is_ok() && appended.written < rows.len() {
            let rest = &rows[appended.written..];
            let (count, failure) = self.take_row(rest);
            result = self.insert(&rest[..count]);
            appended.written += if result.is_ok() { count } else { 0 };
            result = result.and(failure.map_or(Ok(()), Err));
        }
        if let Err(error) = result {
            self.owned.close(tree, &error);
            appended.error = Some(error);
        }
        appended
    }

    /// Checks the first records and adds them to the index, as many as fit into one row. Returns how many, and the error of the
    /// next one, if it has one.
    fn take_row(&mut self, rows: &[&Row]) -> (usize, Option<JournalError>) {
        let mut bytes = 0;
        for (at, row) in rows.iter().enumerate() {
            bytes += row.json.len();
            if at > 0 && bytes > MAX_ROW_BYTES {
                return (at, None);
            }
            if let Err(error) = self.check(&row.record, at).and_then(|()| self.index(&row.record)) {
                return (at, Some(error));
            }
        }
        (rows.len(), None)
    }

    /// Checks that this record is the next of a tree that this process still owns, after `before` others.
    fn check(&mut self, record: &Record, before: usize) -> Result<(), JournalError> {
        let fenced = JournalError::Fenced { tree: record.tree };
        let Some(owned) = self.owned.trees.get(&record.tree) else { return Err(fenced) };
        if record.epoch < owned.epoch {
            return Err(fenced);
        }
        if let Some(closed) = &owned.closed {
            return Err(closed.clone());
        }
        let next_seq = owned.next_seq + before as u64;
        if record.epoch != owned.epoch || record.seq != next_seq {
            return Err(JournalError::Unwritable(format!(
                "tree {}: expected record {next_seq} of epoch {}, got record {} of epoch {}",
                record.tree, owned.epoch, record.seq, record.epoch
            )));
        }
        // While no other connection commits, the tree cannot have another owner.
        if self.batch.data_version.is_none() || owned.checked_at != self.batch.data_version {
            let (epoch, next_seq) = (owned.epoch, owned.next_seq);
            self.check_owner(record.tree, epoch, next_seq)?;
        }
        Ok(())
    }

    fn check_owner(&mut self, tree: Uuid, epoch: u32, next_seq: u64) -> Result<(), JournalError> {
        let found: Option<(Option<String>, u32, i64)> = self
            .connection
            .prepare_cached("SELECT owner, epoch, next_seq FROM trees JOIN progress ON tree = number WHERE id = ?1")?
            .query_row([tree.to_string()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        match found {
            None => Err(JournalError::NoSuchTree(tree)),
            Some((owner, found, _)) if owner.as_deref() != Some(&self.me.id) || found != epoch => {
                Err(JournalError::Fenced { tree })
            }
            Some((_, _, found)) if count(found) != next_seq => {
                Err(JournalError::Damaged(format!("tree {tree}: {found} records found, {next_seq} written")))
            }
            Some(_) => {
                if let Some(owned) = self.owned.trees.get_mut(&tree) {
                    owned.checked_at = self.batch.data_version;
                }
                Ok(())
            }
        }
    }

    /// Adds a record to the index of runs and their usage.
    fn index(&mut self, record: &Record) -> Result<(), JournalError> {
        self.points.pass();
        let owned = self.owned.trees.get_mut(&record.tree).expect("append has looked it up");
        let indexed = index::update(self.connection, record, &mut owned.last_models, &mut self.batch.usage);
        indexed.map_err(|error| self.failed(error))
    }

    /// Inserts records as one row.
    fn insert(&mut self, rows: &[&Row]) -> Result<(), JournalError> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        self.points.pass();
        let tree = first.record.tree;
        let owned = self.owned.trees.get_mut(&tree).expect("append has looked it up");
        let inserted = prepared(self.connection, &mut self.insertion)
            .and_then(|statement| insert_rows(self.connection, statement, owned.number, &first.record, rows));
        if let Err(error) = inserted {
            return Err(self.failed(error));
        }
        self.batch.grown.insert(tree);
        if rows.iter().any(|row| ends_tree(&row.record)) {
            self.batch.ended.push(tree);
        }
        owned.next_seq += rows.len() as u64;
        owned.last_at = last.record.at;
        owned.steps += rows.iter().filter(|row| is_step(&row.record.fact)).count() as u64;
        self.points.pass();
        Ok(())
    }

    /// An error that concerns one row stays with its tree; any other fails the whole batch.
    fn failed(&mut self, error: rusqlite::Error) -> JournalError {
        let is_own = matches!(error.sqlite_error_code(), Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig));
        let error = JournalError::from(error);
        if !is_own || self.connection.is_autocommit() {
            self.batch.fail(error.clone());
        }
        error
    }

    /// Begins a tree with its first record, or returns the earlier tree that has its key.
    pub(super) fn begin(&mut self, row: &Row) -> Result<Begun, JournalError> {
        let record = &row.record;
        if let Some(earlier) = self.earlier(record)? {
            return Ok(Begun::Earlier(earlier));
        }
        self.batch.begun.push(record.tree);
        if let Err(error) = self.insert_first(row) {
            self.owned.trees.remove(&record.tree);
            return Err(error);
        }
        Ok(Begun::New)
    }

    /// Inserts a tree and its first record.
    pub(super) fn insert_first(&mut self, row: &Row) -> Result<(), JournalError> {
        let record = &row.record;
        // An owner of other trees is recorded.
        if self.owned.trees.is_empty() {
            self.me.beat(self.connection)?;
        }
        let number = insert_tree(self.connection, record, &self.me.id)?;
        let stored = Stored { number, seq: 0, steps: 0, last_at: record.at };
        let owned = OwnedTree::new(record.epoch, &stored, self.batch.data_version);
        self.owned.trees.insert(record.tree, owned);
        self.append(&[row]).all()
    }

    fn earlier(&self, record: &Record) -> Result<Option<Uuid>, JournalError> {
        let Fact::Spawned(spawned) = &record.fact else { return Ok(None) };
        let Some(key) = &spawned.key else { return Ok(None) };
        let found: Option<(String, String)> = self
            .connection
            .query_row("SELECT id, task_hash FROM trees WHERE key = ?1", [key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match found {
            None => Ok(None),
            Some((id, hash)) if hash == task_hash(record) => {
                let id = id.parse().map_err(|_| JournalError::Damaged(format!("`{id}` is not a tree ID")))?;
                Ok(Some(id))
            }
            Some(_) => Err(JournalError::KeyTaken { key: key.clone() }),
        }
    }
}

/// The end of a stored tree.
pub(super) struct Stored {
    /// Number of the tree.
    pub(super) number: i64,
    /// Position of the next record.
    pub(super) seq: u64,
    pub(super) steps: u64,
    pub(super) last_at: u64,
}

impl Records<'_> {
    /// Looks up the end of a tree.
    pub(super) fn stored(&self, tree: Uuid) -> Result<Option<Stored>, JournalError> {
        let sql = "SELECT number, next_seq, steps, last_at FROM trees JOIN progress ON tree = number WHERE id = ?1";
        let stored = self.connection.prepare_cached(sql)?.query_row([tree.to_string()], |row| {
            let (seq, steps, last_at) = (count(row.get(1)?), count(row.get(2)?), count(row.get(3)?));
            Ok(Stored { number: row.get(0)?, seq, steps, last_at })
        });
        Ok(stored.optional()?)
    }
}

/// Returns whether a record ends its tree.
fn ends_tree(record: &Record) -> bool {
    record.run == record.tree && matches!(record.fact, Fact::Ended(_))
}

/// Returns whether a fact is progress. Replies and results are; intents are not, since a resumed run writes them again at each
/// attempt.
fn is_step(fact: &Fact) -> bool {
    match fact {
        Fact::Spawned(_) | Fact::Replied { .. } | Fact::Told { .. } | Fact::Compacted { .. } | Fact::Ended(_) => true,
        Fact::Answered { .. } => true,
        Fact::Returned { refused, .. } => refused.is_none(),
        Fact::Asked(_)
        | Fact::AskFailed { .. }
        | Fact::Called(_)
        | Fact::Questioned { .. }
        | Fact::Halted { .. }
        | Fact::Extended { .. } => false,
    }
}

/// The hash by which two submissions under one key are recognised as the same.
fn task_hash(record: &Record) -> String {
    match &record.fact {
        Fact::Spawned(spawned) => {
            let attached: String = spawned.attachments.iter().map(|image| format!("\n{}", image.base64)).collect();
            sha256(&format!("{}\n{}{attached}", spawned.agent.name, spawned.task))
        }
        _ => String::new(),
    }
}

/// Inserts a tree without records, and returns its number.
fn insert_tree(connection: &Connection, record: &Record, owner: &str) -> rusqlite::Result<i64> {
    let spawned = match &record.fact {
        Fact::Spawned(spawned) => Some(spawned),
        _ => None,
    };
    let key = spawned.and_then(|spawned| spawned.key.as_deref());
    let tags = spawned.map_or_else(|| "{}".to_owned(), |spawned| serde_json::json!(spawned.tags).to_string());
    let project = spawned.map(|spawned| spawned.project.as_ref().unwrap_or(&spawned.workdir).to_string_lossy());
    let project = project.unwrap_or_default();
    let mut statement = connection.prepare_cached(
        "INSERT INTO trees (id, owner, epoch, key, task_hash, tags, started, project)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let id = record.tree.to_string();
    // Without a key it is not compared with anything.
    let task_hash = if key.is_some() { task_hash(record) } else { String::new() };
    let number = statement.insert(params![id, owner, record.epoch, key, task_hash, tags, int(record.at), project])?;
    let mut statement =
        connection.prepare_cached("INSERT INTO progress (tree, next_seq, last_at, steps) VALUES (?1, 0, ?2, 0)")?;
    statement.execute([number, int(record.at)])?;
    Ok(number)
}

/// The statement that inserts a row of records.
fn prepared<'a, 'c>(
    connection: &'c Connection,
    insertion: &'a mut Option<CachedStatement<'c>>,
) -> rusqlite::Result<&'a mut CachedStatement<'c>> {
    match insertion {
        Some(statement) => Ok(statement),
        None => Ok(insertion.insert(insertion_of_rows(connection)?)),
    }
}

pub(super) fn insertion_of_rows(connection: &Connection) -> rusqlite::Result<CachedStatement<'_>> {
    connection.prepare_cached("INSERT INTO appends (tree, seq, epoch, records, crc) VALUES (?1, ?2, ?3, ?4, ?5)")
}

/// Inserts records as one row, `first` being the first of them.
fn insert_rows(
    connection: &Connection,
    insertion: &mut CachedStatement<'_>,
    tree: i64,
    first: &Record,
    rows: &[&Row],
) -> rusqlite::Result<()> {
    for long in rows.iter().flat_map(|row| &row.long_texts) {
        connection
            .prepare_cached("INSERT OR IGNORE INTO bodies (hash, text) VALUES (?1, ?2)")?
            .execute([&long.hash, &long.text])?;
        connection
            .prepare_cached("INSERT OR IGNORE INTO body_uses (tree, hash) VALUES (?1, ?2)")?
            .execute([&first.tree.to_string(), &long.hash])?;
    }
    let mut json = String::with_capacity(rows.iter().map(|row| row.json.len() + 1).sum::<usize>() + 1);
    for row in rows {
        json.push(if json.is_empty() { '[' } else { ',' });
        json.push_str(&row.json);
    }
    json.push(']');
    let stored = StoredRecords { tree: first.tree, seq: int(first.seq), epoch: first.epoch.into(), json: &json };
    insert_stored(insertion, tree, &stored, stored.crc())
}

/// Inserts a row of records with this checksum.
pub(super) fn insert_stored(
    insertion: &mut CachedStatement<'_>,
    tree: i64,
    stored: &StoredRecords<'_>,
    crc: u32,
) -> rusqlite::Result<()> {
    insertion.execute(params![tree, stored.seq, stored.epoch, stored.json, crc])?;
    Ok(())
}
