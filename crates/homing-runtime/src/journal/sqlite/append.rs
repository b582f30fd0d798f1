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
        row::{Row, count, int, sha256},
    },
};

/// Appends records within a transaction.
pub(super) struct Records<'a> {
    pub(super) connection: &'a Connection,
    pub(super) me: &'a Owner,
    pub(super) owned: &'a mut OwnedTrees,
    pub(super) batch: &'a mut Batch,
    pub(super) points: &'a mut FailpointCounter,
    /// Compiled at the first record: looking it up for each record takes longer than some of its work.
    pub(super) insertion: Option<CachedStatement<'a>>,
}

impl Records<'_> {
    /// Appends one record. A failure closes this tree only, unless the disk is the cause.
    pub(super) fn append(&mut self, row: &Row) -> Result<(), JournalError> {
        let tree = row.record.tree;
        self.batch.touched.insert(tree);
        self.batch.status()?;
        let result = self.check(&row.record).and_then(|()| self.insert(row));
        if let Err(error) = &result {
            self.owned.close(tree, error);
        }
        result
    }

    /// Checks that this record is the next of a tree that this process still owns.
    fn check(&mut self, record: &Record) -> Result<(), JournalError> {
        let fenced = JournalError::Fenced { tree: record.tree };
        let Some(owned) = self.owned.trees.get(&record.tree) else { return Err(fenced) };
        if record.epoch < owned.epoch {
            return Err(fenced);
        }
        if let Some(closed) = &owned.closed {
            return Err(closed.clone());
        }
        if record.epoch != owned.epoch || record.seq != owned.next_seq {
            return Err(JournalError::Unwritable(format!(
                "tree {}: expected record {} of epoch {}, got record {} of epoch {}",
                record.tree, owned.next_seq, owned.epoch, record.seq, record.epoch
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
            .prepare_cached("SELECT owner, epoch, next_seq FROM trees WHERE id = ?1")?
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

    fn insert(&mut self, row: &Row) -> Result<(), JournalError> {
        self.points.pass();
        let owned = self.owned.trees.get_mut(&row.record.tree).expect("append has looked it up");
        let Row { record, tree, run, .. } = row;
        let inserted = insert_record(self.connection, &mut self.insertion, row).and_then(|()| {
            index::update(self.connection, record, tree, run, &mut owned.last_models, &mut self.batch.usage)
        });
        match inserted {
            Ok(()) => {
                self.batch.grown.insert(row.record.tree);
                owned.next_seq += 1;
                owned.last_at = row.record.at;
                owned.steps += u64::from(is_step(&row.record.fact));
                self.points.pass();
                Ok(())
            }
            Err(error) => Err(self.failed(error)),
        }
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
        // An owner of other trees is recorded.
        if self.owned.trees.is_empty() {
            self.me.beat(self.connection)?;
        }
        insert_tree(self.connection, record, &self.me.id)?;
        let owned = OwnedTree::new(record.epoch, 0, 0, record.at, self.batch.data_version);
        self.owned.trees.insert(record.tree, owned);
        self.batch.begun.push(record.tree);
        if let Err(error) = self.append(row) {
            self.owned.trees.remove(&record.tree);
            return Err(error);
        }
        Ok(Begun::New)
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
    /// Position of the next record.
    pub(super) seq: u64,
    pub(super) steps: u64,
    pub(super) last_at: u64,
}

impl Records<'_> {
    /// Looks up the end of a tree.
    pub(super) fn stored(&self, tree: Uuid) -> Result<Option<Stored>, JournalError> {
        let mut select = self.connection.prepare_cached("SELECT next_seq, steps, last_at FROM trees WHERE id = ?1")?;
        let stored = select.query_row([tree.to_string()], |row| {
            Ok(Stored { seq: count(row.get(0)?), steps: count(row.get(1)?), last_at: count(row.get(2)?) })
        });
        Ok(stored.optional()?)
    }
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

fn insert_tree(connection: &Connection, record: &Record, owner: &str) -> rusqlite::Result<()> {
    let spawned = match &record.fact {
        Fact::Spawned(spawned) => Some(spawned),
        _ => None,
    };
    let key = spawned.and_then(|spawned| spawned.key.as_deref());
    let tags = spawned.map_or_else(|| "{}".to_owned(), |spawned| serde_json::json!(spawned.tags).to_string());
    let project = spawned.map(|spawned| spawned.project.as_ref().unwrap_or(&spawned.workdir).to_string_lossy());
    let project = project.unwrap_or_default();
    let mut statement = connection.prepare_cached(
        "INSERT INTO trees (id, owner, epoch, next_seq, key, task_hash, tags, started, last_at, steps, project)
         VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?7, 0, ?8)",
    )?;
    let id = record.tree.to_string();
    // Without a key it is not compared with anything.
    let task_hash = if key.is_some() { task_hash(record) } else { String::new() };
    statement.execute(params![id, owner, record.epoch, key, task_hash, tags, int(record.at), project])?;
    Ok(())
}

fn insert_record<'a>(
    connection: &'a Connection,
    insertion: &mut Option<CachedStatement<'a>>,
    row: &Row,
) -> rusqlite::Result<()> {
    for long in &row.long_texts {
        connection
            .prepare_cached("INSERT OR IGNORE INTO bodies (hash, text) VALUES (?1, ?2)")?
            .execute([&long.hash, &long.text])?;
        connection
            .prepare_cached("INSERT OR IGNORE INTO body_uses (tree, hash) VALUES (?1, ?2)")?
            .execute([&row.tree, &long.hash])?;
    }
    let columns = row.columns();
    let statement = match insertion {
        Some(statement) => statement,
        None => insertion.insert(connection.prepare_cached(
            "INSERT INTO records (tree, seq, at, epoch, run, place, kind, body, crc)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?),
    };
    statement.execute(params![
        columns.tree,
        columns.seq,
        columns.at,
        columns.epoch,
        columns.run,
        columns.place,
        columns.kind,
        columns.body,
        row.crc
    ])?;
    Ok(())
}
