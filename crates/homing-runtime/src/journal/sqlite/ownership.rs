//! Ownership of trees: which process may write to a tree, and how it takes a tree over or lets go of it.
//!
//! A tree has one owner at a time, because two processes that continue the same run would pay for the same model call and
//! execute the same tool call twice. A process that is stopped (a closed laptop, SIGSTOP, a stalled disk) cannot be told that
//! it lost a tree, so ownership is checked where it matters: at the write. Each claim raises the tree's *epoch*, every record
//! carries the epoch of its writer, and a batch compares owner and epoch with the row of the tree before it inserts. A former
//! owner that wakes up fails with [`JournalError::Fenced`] at its next record, before it acts on it. That comparison costs a
//! query per tree and batch, so it is skipped while `PRAGMA data_version` shows that no other connection has committed
//! since the last one: without another commit, the owner cannot have changed.

use homing_core::{
    fact::{ON_RESTATE, Record},
    id_map::IdMap,
};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::journal::{
    Claim, JournalError, LiveMark,
    sqlite::{
        append::Stored,
        batch::Batch,
        index::LastModels,
        live_marks,
        owner::Owner,
        row::{count, int},
    },
};

/// After this many deaths of owners at the same step, a tree is only claimed by force.
const CRASH_LOOP: u32 = 3;

/// A tree that this process owns.
pub(super) struct OwnedTree {
    /// Number of the tree in the tables.
    pub(super) number: i64,
    pub(super) epoch: u32,
    pub(super) next_seq: u64,
    pub(super) steps: u64,
    pub(super) last_at: u64,
    /// Error for further records: one is missing, or another process owns the tree.
    pub(super) closed: Option<JournalError>,
    /// The `data_version` at which owner and epoch were last compared with the database.
    pub(super) checked_at: Option<i64>,
    pub(super) last_models: LastModels,
    /// False if no run of the tree can have a live mark.
    pub(super) may_have_marks: bool,
}

impl OwnedTree {
    pub(super) fn new(epoch: u32, stored: &Stored, checked_at: Option<i64>) -> Self {
        let Stored { number, seq: next_seq, steps, last_at } = *stored;
        let (closed, last_models) = (None, LastModels::default());
        // An earlier owner of stored records may have left marks.
        let may_have_marks = next_seq > 0;
        Self { number, epoch, next_seq, steps, last_at, closed, checked_at, last_models, may_have_marks }
    }
}

/// The trees that this process owns, and those it still has to release.
#[derive(Default)]
pub(super) struct OwnedTrees {
    pub(super) trees: IdMap<Uuid, OwnedTree>,
    /// Trees that were released while nothing could be written.
    unreleased: Vec<Uuid>,
}

impl OwnedTrees {
    pub(super) fn is_empty(&self) -> bool {
        self.trees.is_empty() && self.unreleased.is_empty()
    }

    /// Trees that this process still drives and that may have live marks.
    pub(super) fn with_marks(&self) -> impl Iterator<Item = Uuid> {
        let is_marked = |owned: &OwnedTree| owned.may_have_marks && owned.closed.is_none();
        self.trees.iter().filter(move |(_, owned)| is_marked(owned)).map(|(tree, _)| *tree)
    }

    /// Closes a tree for further records, unless it is closed already.
    pub(super) fn close(&mut self, tree: Uuid, why: &JournalError) {
        if let Some(owned) = self.trees.get_mut(&tree) {
            owned.closed.get_or_insert_with(|| why.clone());
        }
    }

    /// Has the records of a tree that could not begin fail with this error, until the tree is released.
    pub(super) fn refuse(&mut self, first: &Record, why: &JournalError) {
        let nothing = Stored { number: 0, seq: 0, steps: 0, last_at: first.at };
        self.trees.entry(first.tree).or_insert_with(|| OwnedTree::new(first.epoch, &nothing, None));
        self.close(first.tree, why);
    }

    /// Takes back what a failed batch did: its trees miss a record from now on, and its releases have to be repeated.
    pub(super) fn undo(&mut self, batch: Batch, why: &JournalError) {
        for tree in batch.begun {
            self.trees.remove(&tree);
        }
        for tree in batch.touched {
            self.close(tree, why);
        }
        self.unreleased.extend(batch.released);
    }

    /// Lets go of trees that ended, in the transaction that records it. They are forgotten once it is committed.
    pub(super) fn release_ended(&self, connection: &Connection, me: &Owner, ended: &[Uuid]) -> rusqlite::Result<()> {
        for (tree, owned) in ended.iter().filter_map(|tree| self.trees.get_key_value(tree)) {
            release(connection, me, *tree, owned.may_have_marks)?;
        }
        Ok(())
    }

    /// Forgets trees that were released when they ended.
    pub(super) fn forget(&mut self, ended: &[Uuid]) {
        for tree in ended {
            self.trees.remove(tree);
        }
    }

    /// Returns whether this process owns no other trees.
    pub(super) fn are_all_in(&self, ended: &[Uuid]) -> bool {
        self.unreleased.is_empty() && self.trees.keys().all(|tree| ended.contains(tree))
    }

    /// Writes the number of records and steps of trees.
    pub(super) fn save_progress<'a>(
        &self,
        connection: &Connection,
        trees: impl IntoIterator<Item = &'a Uuid>,
    ) -> rusqlite::Result<()> {
        let mut statement =
            connection.prepare_cached("UPDATE progress SET next_seq = ?2, last_at = ?3, steps = ?4 WHERE tree = ?1")?;
        for owned in trees.into_iter().filter_map(|tree| self.trees.get(tree)) {
            statement.execute([owned.number, int(owned.next_seq), int(owned.last_at), int(owned.steps)])?;
        }
        Ok(())
    }

    /// Repeats the releases that could not be written.
    pub(super) fn retry_releases(&mut self, connection: &Connection, me: &Owner) {
        let trees = std::mem::take(&mut self.unreleased);
        // A tree that was claimed again in the meantime stays owned.
        let is_left = |tree: &Uuid| !self.trees.contains_key(tree) && release(connection, me, *tree, true).is_err();
        self.unreleased = trees.into_iter().filter(is_left).collect();
    }
}

/// Claims and releases trees within a transaction.
pub(super) struct Ownership<'a> {
    pub(super) connection: &'a Connection,
    pub(super) me: &'a Owner,
    pub(super) owned: &'a mut OwnedTrees,
    pub(super) batch: &'a mut Batch,
}

impl Ownership<'_> {
    /// Makes this process the owner of a tree, if the claim allows it, and returns the new epoch.
    pub(super) fn claim(&mut self, tree: Uuid, claim: Claim) -> Result<u32, JournalError> {
        self.catch_up(tree);
        self.refuse_copy(tree)?;
        let row = TreeRow::find(self.connection, tree)?;
        let crashes = self.crashes_if_claimable(tree, &row, claim)?;
        let epoch = row.epoch + 1;
        self.me.beat(self.connection)?;
        self.connection.execute(
            "UPDATE trees SET owner = ?2, epoch = ?3, crashes = ?4, crashed_at = ?5 WHERE id = ?1",
            params![tree.to_string(), self.me.id, epoch, crashes, int(row.stored.steps)],
        )?;
        let owned = OwnedTree::new(epoch, &row.stored, self.batch.data_version);
        self.owned.trees.insert(tree, owned);
        self.batch.touched.insert(tree);
        // A tree that ended in this very batch is owned again.
        self.batch.ended.retain(|ended| *ended != tree);
        Ok(epoch)
    }

    /// Fails if the tree is a copy: a worker drives it, and a second driver would pay for the same calls.
    fn refuse_copy(&self, tree: Uuid) -> Result<(), JournalError> {
        let sql = "SELECT value FROM trees, json_each(trees.tags) WHERE trees.id = ?1 AND json_each.key = ?2";
        let server: Option<String> = self
            .connection
            .prepare_cached(sql)?
            .query_row([&tree.to_string(), ON_RESTATE], |row| row.get(0))
            .optional()?;
        match server {
            None => Ok(()),
            Some(server) => {
                let host = format!("a worker of {server}");
                Err(JournalError::Owned { tree, pid: 0, host })
            }
        }
    }

    /// Lets go of a tree.
    pub(super) fn release(&mut self, tree: Uuid) -> Result<(), JournalError> {
        self.catch_up(tree);
        let owned = self.owned.trees.remove(&tree);
        self.batch.released.push(tree);
        let may_have_marks = owned.is_none_or(|owned| owned.may_have_marks);
        Ok(release(self.connection, self.me, tree, may_have_marks)?)
    }

    /// Stores the live mark of a run, or removes it. A tree that has ended has no marks.
    pub(super) fn mark(&mut self, tree: Uuid, run: Uuid, mark: Option<LiveMark>) -> Result<(), JournalError> {
        let Some(owned) = self.owned.trees.get_mut(&tree) else { return Ok(()) };
        owned.may_have_marks = true;
        live_marks::store(self.connection, tree, run, mark)
    }

    /// Writes the progress that a tree has made in this very batch, before its row is read. The end of the batch writes it
    /// again, since the job that reads it may be rolled back.
    fn catch_up(&mut self, tree: Uuid) {
        if self.batch.grown.contains(&tree)
            && self.batch.status().is_ok()
            && let Err(error) = self.owned.save_progress(self.connection, [&tree])
        {
            self.batch.fail(error);
        }
    }

    /// The number of owners that have died at this step, if the tree may be claimed.
    fn crashes_if_claimable(&self, tree: Uuid, row: &TreeRow, claim: Claim) -> Result<u32, JournalError> {
        let before = if row.crashed_at == Some(row.stored.steps) { row.crashes } else { 0 };
        let Some(owner) = &row.owner else { return Ok(before) };
        let is_idle = || self.owned.trees.get(&tree).is_none_or(|owned| owned.closed.is_some());
        if owner.id == self.me.id && (claim == Claim::Force || is_idle()) {
            return Ok(before);
        }
        if owner.is_alive(self.me) {
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
}

/// Removes the owner of a tree, and its live marks if there may be any.
fn release(connection: &Connection, me: &Owner, tree: Uuid, may_have_marks: bool) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("UPDATE trees SET owner = NULL WHERE id = ?1 AND owner = ?2")?;
    statement.execute(params![tree.to_string(), me.id])?;
    if may_have_marks {
        live_marks::clear(connection, tree)?;
    }
    Ok(())
}

/// The row of a tree, as a claim finds it.
struct TreeRow {
    owner: Option<Owner>,
    epoch: u32,
    stored: Stored,
    crashes: u32,
    crashed_at: Option<u64>,
}

impl TreeRow {
    fn find(connection: &Connection, tree: Uuid) -> Result<Self, JournalError> {
        let found = connection.query_row(
            "SELECT owner, epoch, next_seq, steps, last_at, crashes, crashed_at, pruned, number
             FROM trees JOIN progress ON tree = number WHERE id = ?1",
            [tree.to_string()],
            |row| {
                let found = Self {
                    owner: None,
                    epoch: row.get(1)?,
                    stored: Stored {
                        number: row.get(8)?,
                        seq: count(row.get(2)?),
                        steps: count(row.get(3)?),
                        last_at: count(row.get(4)?),
                    },
                    crashes: row.get(5)?,
                    crashed_at: row.get::<_, Option<i64>>(6)?.map(count),
                };
                Ok((row.get::<_, Option<String>>(0)?, row.get::<_, bool>(7)?, found))
            },
        );
        let Some((owner, is_pruned, mut row)) = found.optional()? else { return Err(JournalError::NoSuchTree(tree)) };
        if is_pruned {
            return Err(JournalError::Unknown(format!("the records of run {tree} were pruned")));
        }
        // An owner without a row has closed its journal, or was removed by pruning long after its death.
        row.owner = owner.map(|id| Owner::find(connection, &id)).transpose()?.flatten();
        Ok(row)
    }
}
