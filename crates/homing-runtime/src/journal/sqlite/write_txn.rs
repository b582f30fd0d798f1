//! What the writer does within a transaction: take records in, begin trees, change their owners. It checks that every tree
//! it writes to is still its own and that no record is missing.

use std::collections::{HashMap, HashSet};

use homing_core::fact::{Fact, Record};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use uuid::Uuid;

use crate::journal::{
    Begun, Claim, JournalError,
    sqlite::{
        failpoint::Counter,
        index::{self, Notes},
        owner::Owner,
        row::{Row, count, int, sha256},
        schema::said,
    },
};

/// A tree whose owners die so often at the same step is not tried again unasked.
const CRASH_LOOP: u32 = 3;

/// The writer's connection and what it remembers between batches.
pub(super) struct WriteTxn {
    pub(super) connection: Connection,
    pub(super) me: Owner,
    held: HashMap<Uuid, AccountTotals>,
    /// Reservations of this process at accounts that are not settled.
    pub(super) holds: u64,
    /// Trees that were let go of while nothing could be written.
    unreleased: Vec<Uuid>,
    batch: Batch,
    points: Counter,
}

/// A tree of which this process is the owner.
struct AccountTotals {
    epoch: u32,
    next_seq: u64,
    steps: u64,
    last_at: u64,
    /// Why nothing more is taken: a record is missing, or somebody else owns the tree.
    closed: Option<JournalError>,
    /// What others had committed when this was last found to be true.
    seen: Option<i64>,
    notes: Notes,
}

#[derive(Default)]
struct Batch {
    /// Trees that were spoken of: where the commit fails, they have a gap.
    touched: HashSet<Uuid>,
    /// Trees that have new records.
    grown: HashSet<Uuid>,
    begun: Vec<Uuid>,
    released: Vec<Uuid>,
    /// SQLite's mark of what other connections have committed so far.
    others: Option<i64>,
    trouble: Option<JournalError>,
}

impl WriteTxn {
    pub(super) fn new(connection: Connection, me: Owner, points: Counter) -> Self {
        Self { connection, me, held: HashMap::new(), holds: 0, unreleased: Vec::new(), batch: Batch::default(), points }
    }

    pub(super) fn owns_something(&self) -> bool {
        self.holds > 0 || !self.held.is_empty() || !self.unreleased.is_empty()
    }

    pub(super) fn begin_batch(&mut self) {
        self.batch = Batch::default();
        if let Err(error) = self.connection.execute_batch("BEGIN IMMEDIATE") {
            self.batch.trouble = Some(said(&error));
            return;
        }
        self.batch.others = self.connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok();
    }

    /// Commits; where that fails, nothing of the batch has happened, and its trees have a gap from here on.
    pub(super) fn end_batch(&mut self) -> Result<(), JournalError> {
        self.update_trees();
        if self.batch.trouble.is_none() {
            self.pass_commit();
            if let Err(error) = self.connection.execute_batch("COMMIT") {
                self.batch.trouble = Some(said(&error));
            }
        }
        let Some(trouble) = self.batch.trouble.take() else {
            self.pass_commit();
            return Ok(());
        };
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        self.close_touched(&trouble);
        Err(trouble)
    }

    /// Only commits that concern a tree count as points: what the journal does for itself comes at odd moments.
    fn pass_commit(&mut self) {
        if !self.batch.touched.is_empty() || !self.batch.released.is_empty() {
            self.points.pass();
        }
    }

    fn close_touched(&mut self, trouble: &JournalError) {
        let batch = std::mem::take(&mut self.batch);
        for tree in batch.begun {
            self.held.remove(&tree);
        }
        for tree in batch.touched {
            if let Some(held) = self.held.get_mut(&tree) {
                held.closed.get_or_insert(trouble.clone());
            }
        }
        self.unreleased.extend(batch.released);
    }

    /// Nothing of this batch is to happen.
    pub(super) fn give_up(&mut self, why: &str) {
        self.batch.trouble.get_or_insert_with(|| JournalError::Unwritable(why.to_owned()));
    }

    fn update_trees(&mut self) {
        let grown = std::mem::take(&mut self.batch.grown);
        grown.iter().for_each(|tree| self.update_tree(*tree));
        self.batch.grown = grown;
    }

    fn update_tree(&mut self, tree: Uuid) {
        let Some(held) = self.held.get(&tree) else { return };
        if self.batch.trouble.is_some() {
            return;
        }
        let update = || {
            let mut statement = self
                .connection
                .prepare_cached("UPDATE trees SET next_seq = ?2, last_at = ?3, steps = ?4 WHERE id = ?1")?;
            statement.execute(params![tree.to_string(), int(held.next_seq), int(held.last_at), int(held.steps)])
        };
        if let Err(error) = update() {
            self.batch.trouble = Some(said(&error));
        }
    }

    /// Writes down how far a tree has come in this very batch, which is known here only. The end of the batch does so again,
    /// since the order that wanted to know may be undone.
    fn catch_up(&mut self, tree: Uuid) {
        if self.batch.grown.contains(&tree) {
            self.update_tree(tree);
        }
    }

    /// Runs `job` so that it happens as a whole or not at all, whatever becomes of the rest of the batch.
    pub(super) fn all_or_nothing<T>(
        &mut self,
        job: impl FnOnce(&mut Self) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        if let Some(trouble) = &self.batch.trouble {
            return Err(trouble.clone());
        }
        self.run("SAVEPOINT job")?;
        let result = job(self);
        match &result {
            Ok(_) => self.run("RELEASE job")?,
            // Disk trouble may have ended the whole transaction, and the savepoint with it.
            Err(error) if self.connection.is_autocommit() => self.batch.trouble = Some(error.clone()),
            Err(_) => self.run("ROLLBACK TO job; RELEASE job")?,
        }
        result
    }

    fn run(&mut self, sql: &str) -> Result<(), JournalError> {
        self.connection.execute_batch(sql).map_err(|error| {
            let error = said(&error);
            self.batch.trouble.get_or_insert(error).clone()
        })
    }

    /// Takes one record in. What fails here fails this tree alone, unless the disk is to blame.
    pub(super) fn append(&mut self, row: &Row) -> Result<(), JournalError> {
        let tree = row.record.tree;
        self.batch.touched.insert(tree);
        if let Some(trouble) = &self.batch.trouble {
            return Err(trouble.clone());
        }
        let result = self.check(&row.record).and_then(|()| self.insert(row));
        if let (Err(error), Some(held)) = (&result, self.held.get_mut(&tree)) {
            held.closed.get_or_insert(error.clone());
        }
        result
    }

    /// Whether this record is the next of a tree that is still ours.
    fn check(&mut self, record: &Record) -> Result<(), JournalError> {
        let fenced = JournalError::Fenced { tree: record.tree };
        let Some(held) = self.held.get(&record.tree) else { return Err(fenced) };
        if record.epoch < held.epoch {
            return Err(fenced);
        }
        if let Some(closed) = &held.closed {
            return Err(closed.clone());
        }
        if record.epoch != held.epoch || record.seq != held.next_seq {
            let (seq, epoch) = (record.seq, record.epoch);
            let (next, held) = (held.next_seq, held.epoch);
            let what = format!("record {seq} of epoch {epoch} came where {next} of epoch {held} was expected");
            return Err(JournalError::Unwritable(format!("tree {}: {what}", record.tree)));
        }
        // Where nobody else has written since the tree was last looked at, it is as it was.
        if self.batch.others.is_none() || held.seen != self.batch.others {
            let (epoch, next_seq) = (held.epoch, held.next_seq);
            self.check_owner(record.tree, epoch, next_seq)?;
        }
        Ok(())
    }

    fn check_owner(&mut self, tree: Uuid, epoch: u32, next_seq: u64) -> Result<(), JournalError> {
        let found: Option<(Option<String>, u32, i64)> = {
            let mut statement = self
                .connection
                .prepare_cached("SELECT owner, epoch, next_seq FROM trees WHERE id = ?1")
                .map_err(|error| said(&error))?;
            let row = statement.query_row([tree.to_string()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
            row.optional().map_err(|error| said(&error))?
        };
        match found {
            None => Err(JournalError::NoSuchTree(tree)),
            Some((owner, found, _)) if owner.as_deref() != Some(&self.me.id) || found != epoch => {
                Err(JournalError::Fenced { tree })
            }
            Some((_, _, seq)) if count(seq) != next_seq => {
                Err(JournalError::Damaged(format!("tree {tree}: it has {seq} records where {next_seq} were written")))
            }
            Some(_) => {
                if let Some(held) = self.held.get_mut(&tree) {
                    held.seen = self.batch.others;
                }
                Ok(())
            }
        }
    }

    fn insert(&mut self, row: &Row) -> Result<(), JournalError> {
        self.points.pass();
        let held = self.held.get_mut(&row.record.tree).expect("append has looked it up");
        let inserted = insert_record(&self.connection, row)
            .and_then(|()| index::note(&self.connection, &row.record, &row.tree, &row.run, &mut held.notes));
        match inserted {
            Ok(()) => {
                self.batch.grown.insert(row.record.tree);
                held.next_seq += 1;
                held.last_at = row.record.at;
                held.steps += u64::from(is_step(&row.record.fact));
                self.points.pass();
                Ok(())
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// An error that concerns one row stays with its tree; any other is the whole batch's.
    fn failed(&mut self, error: &rusqlite::Error) -> JournalError {
        let own = matches!(error.sqlite_error_code(), Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig));
        let error = said(error);
        if !own || self.connection.is_autocommit() {
            self.batch.trouble.get_or_insert(error.clone());
        }
        error
    }

    /// Begins a tree with its first record, or names the one that has its key.
    pub(super) fn begin(&mut self, row: &Row) -> Result<Begun, JournalError> {
        let record = &row.record;
        if let Some(earlier) = self.earlier(record)? {
            return Ok(Begun::Earlier(earlier));
        }
        let create = || {
            self.me.beat(&self.connection)?;
            insert_tree(&self.connection, record, &self.me.id)
        };
        create().map_err(|error| said(&error))?;
        let seen = self.batch.others;
        self.held.insert(record.tree, AccountTotals { seen, ..AccountTotals::new(record.epoch, 0, 0, record.at) });
        self.batch.begun.push(record.tree);
        match self.append(row) {
            Ok(()) => Ok(Begun::New),
            Err(error) => {
                self.held.remove(&record.tree);
                Err(error)
            }
        }
    }

    fn earlier(&self, record: &Record) -> Result<Option<Uuid>, JournalError> {
        let Fact::Spawned(spawned) = &record.fact else { return Ok(None) };
        let Some(key) = &spawned.key else { return Ok(None) };
        let found: Option<(String, String)> = self
            .connection
            .query_row("SELECT id, task_hash FROM trees WHERE key = ?1", [key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(|error| said(&error))?;
        match found {
            None => Ok(None),
            Some((id, hash)) if hash == task_hash(record) => {
                let id = id.parse().map_err(|_| JournalError::Damaged(format!("`{id}` is no tree's id")))?;
                Ok(Some(id))
            }
            Some(_) => Err(JournalError::KeyTaken { key: key.clone() }),
        }
    }

    /// Makes this process the owner of a tree, where that is right, and raises its epoch.
    pub(super) fn claim(&mut self, tree: Uuid, claim: Claim) -> Result<u32, JournalError> {
        self.catch_up(tree);
        let found = TreeOwner::find(&self.connection, tree)?;
        let crashes = self.may_claim(tree, &found, claim)?;
        let epoch = found.epoch + 1;
        let take = || {
            self.me.beat(&self.connection)?;
            self.connection.execute(
                "UPDATE trees SET owner = ?2, epoch = ?3, crashes = ?4, crashed_at = ?5 WHERE id = ?1",
                params![tree.to_string(), self.me.id, epoch, crashes, int(found.steps)],
            )
        };
        take().map_err(|error| said(&error))?;
        let seen = self.batch.others;
        self.held.insert(
            tree,
            AccountTotals { seen, ..AccountTotals::new(epoch, found.next_seq, found.steps, found.last_at) },
        );
        self.batch.touched.insert(tree);
        Ok(epoch)
    }

    /// How often its owners have died at this step, if it may be claimed.
    fn may_claim(&self, tree: Uuid, found: &TreeOwner, claim: Claim) -> Result<u32, JournalError> {
        let before = if found.crashed_at == Some(found.steps) { found.crashes } else { 0 };
        let Some(owner) = &found.owner else { return Ok(before) };
        let idle = || self.held.get(&tree).is_none_or(|held| held.closed.is_some());
        if owner.id == self.me.id && (claim == Claim::Force || idle()) {
            return Ok(before);
        }
        if owner.lives(&self.me) {
            return match claim {
                Claim::IfGone => Err(JournalError::Owned { tree, pid: owner.pid, host: owner.host.clone() }),
                Claim::Force => Ok(before),
            };
        }
        let times = before + 1;
        match claim {
            Claim::IfGone if times >= CRASH_LOOP => Err(JournalError::CrashLoop { tree, times }),
            Claim::IfGone | Claim::Force => Ok(times),
        }
    }

    /// Lets go of a tree.
    pub(super) fn release(&mut self, tree: Uuid) -> Result<(), JournalError> {
        self.catch_up(tree);
        self.held.remove(&tree);
        self.batch.released.push(tree);
        self.clear_owner(tree).map_err(|error| said(&error))
    }

    fn clear_owner(&self, tree: Uuid) -> rusqlite::Result<()> {
        let mut statement =
            self.connection.prepare_cached("UPDATE trees SET owner = NULL WHERE id = ?1 AND owner = ?2")?;
        statement.execute(params![tree.to_string(), self.me.id])?;
        Ok(())
    }

    /// Says that this process lives. Missing one beat is no harm.
    pub(super) fn beat(&mut self) {
        let _ = self.me.beat(&self.connection);
        let trees = std::mem::take(&mut self.unreleased);
        // A tree that was claimed again meanwhile is not let go of.
        let left = trees.into_iter().filter(|tree| !self.held.contains_key(tree) && self.clear_owner(*tree).is_err());
        self.unreleased = left.collect();
    }

    /// Lets go of everything.
    pub(super) fn leave(&self) {
        if self.me.is_written_down(&self.connection) {
            let _ = self.me.leave(&self.connection);
        }
    }
}

impl AccountTotals {
    fn new(epoch: u32, next_seq: u64, steps: u64, last_at: u64) -> Self {
        Self { epoch, next_seq, steps, last_at, closed: None, seen: None, notes: Notes::default() }
    }
}

/// How a tree stands before it is claimed.
struct TreeOwner {
    owner: Option<Owner>,
    epoch: u32,
    next_seq: u64,
    steps: u64,
    last_at: u64,
    crashes: u32,
    crashed_at: Option<u64>,
}

impl TreeOwner {
    fn find(connection: &Connection, tree: Uuid) -> Result<Self, JournalError> {
        let read = || {
            let found = connection.query_row(
                "SELECT owner, epoch, next_seq, steps, last_at, crashes, crashed_at, pruned FROM trees WHERE id = ?1",
                [tree.to_string()],
                |row| {
                    let standing = Self {
                        owner: None,
                        epoch: row.get(1)?,
                        next_seq: count(row.get(2)?),
                        steps: count(row.get(3)?),
                        last_at: count(row.get(4)?),
                        crashes: row.get(5)?,
                        crashed_at: row.get::<_, Option<i64>>(6)?.map(count),
                    };
                    Ok((row.get::<_, Option<String>>(0)?, row.get::<_, bool>(7)?, standing))
                },
            );
            let Some((owner, pruned, mut standing)) = found.optional()? else { return Ok(None) };
            // An owner that is not written down has said goodbye, or was cleared away long after its death.
            standing.owner = owner.map(|id| Owner::find(connection, &id)).transpose()?.flatten();
            Ok(Some((pruned, standing)))
        };
        match read().map_err(|error: rusqlite::Error| said(&error))? {
            None => Err(JournalError::NoSuchTree(tree)),
            Some((true, _)) => Err(JournalError::Unknown(format!("the records of run {tree} were pruned"))),
            Some((false, standing)) => Ok(standing),
        }
    }
}

/// Answers bring a run on; intents alone do not, and a resumed run writes them anew at each attempt.
fn is_step(fact: &Fact) -> bool {
    match fact {
        Fact::Spawned(_) | Fact::Replied { .. } | Fact::Told { .. } | Fact::Compacted { .. } | Fact::Ended(_) => true,
        Fact::Returned { refused, .. } => refused.is_none(),
        Fact::Asked(_) | Fact::AskFailed { .. } | Fact::Called(_) | Fact::Halted { .. } | Fact::Extended { .. } => {
            false
        }
    }
}

/// What makes two submissions the same.
fn task_hash(record: &Record) -> String {
    match &record.fact {
        Fact::Spawned(spawned) => sha256(&format!("{}\n{}", spawned.agent.name, spawned.task)),
        _ => String::new(),
    }
}

fn insert_tree(connection: &Connection, record: &Record, owner: &str) -> rusqlite::Result<()> {
    let spawned = match &record.fact {
        Fact::Spawned(spawned) => Some(spawned),
        _ => None,
    };
    let key = spawned.and_then(|it| it.key.as_deref());
    let tags = spawned.map_or_else(|| "{}".to_owned(), |it| serde_json::json!(it.tags).to_string());
    let mut statement = connection.prepare_cached(
        "INSERT INTO trees (id, owner, epoch, next_seq, key, task_hash, tags, started, last_at, steps)
         VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?7, 0)",
    )?;
    let id = record.tree.to_string();
    statement.execute(params![id, owner, record.epoch, key, task_hash(record), tags, int(record.at)])?;
    Ok(())
}

fn insert_record(connection: &Connection, row: &Row) -> rusqlite::Result<()> {
    for large in &row.large {
        connection
            .prepare_cached("INSERT OR IGNORE INTO bodies (hash, text) VALUES (?1, ?2)")?
            .execute([&large.hash, &large.text])?;
        connection
            .prepare_cached("INSERT OR IGNORE INTO body_uses (tree, hash) VALUES (?1, ?2)")?
            .execute([&row.tree, &large.hash])?;
    }
    let cells = row.cells();
    let mut statement = connection.prepare_cached(
        "INSERT INTO records (tree, seq, at, epoch, run, place, kind, body, crc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    statement.execute(params![
        cells.tree,
        cells.seq,
        cells.at,
        cells.epoch,
        cells.run,
        cells.place,
        cells.kind,
        cells.body,
        row.crc
    ])?;
    Ok(())
}
