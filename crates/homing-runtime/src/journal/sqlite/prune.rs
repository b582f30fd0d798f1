//! Deletes the records of old trees that have ended, so that the file does not grow for ever. Envelopes, totals, and open or
//! pinned trees are kept.

use std::time::Duration;

use homing_core::envelope::Envelope;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::journal::{
    JournalError,
    sqlite::{
        SqliteJournal,
        owner::{Owner, now},
        query,
        queue::{BegunJob, WriteQueue},
        row::{count, int},
        run_blocking, schema,
        write_txn::WriteTxn,
    },
};

/// The least time between two background prunings.
const EVERY_MS: u64 = 86_400_000;

/// Records that are deleted in one transaction, so that other writers do not wait long.
const CHUNK: u64 = 2_000;

/// Trees that are pruned in one transaction, because each transaction waits for the disk.
const GROUP: usize = 200;

/// Kibibytes of pages that are cached while trees are read.
const PRUNE_CACHE_KIB: i64 = 32 * 1024;

/// Bounds on what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Trees that were last written to longer ago than this are pruned.
    pub age: Duration,
    /// The oldest trees are pruned while the file holds more bytes than this.
    pub bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age: Duration::from_secs(30 * 86_400), bytes: 5_000_000_000 }
    }
}

/// The result of pruning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// The trees whose records were deleted, or would be, the least recently written first.
    pub trees: Vec<Uuid>,
    /// Bytes in use in the file, without free pages.
    pub bytes: u64,
    /// The least size that the file can have, if the size that was asked for is less: results, totals and open trees need it. Trees are
    /// then pruned by age only.
    pub floor: Option<u64>,
    /// Trees that were due but kept because they cannot be read; [`check_file`] reports why.
    ///
    /// [`check_file`]: crate::journal::sqlite::check_file
    pub unreadable: Vec<Uuid>,
}

impl SqliteJournal {
    /// Deletes the records of old trees that have ended, while other work goes on.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be written.
    pub async fn prune(&self, keep: Retention) -> Result<Pruned, JournalError> {
        let pruner = Pruner::of(self);
        run_blocking(move || pruner.prune(keep)).await
    }

    /// Returns what [`SqliteJournal::prune`] would delete, and changes nothing. The size is an estimate.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be read.
    pub async fn prunable(&self, keep: Retention) -> Result<Pruned, JournalError> {
        let pruner = Pruner::of(self);
        run_blocking(move || {
            let connection = schema::open_reader(&pruner.path)?;
            let due = due(&connection, keep, Sizes::Always)?;
            let freed: u64 = due.trees.iter().map(|tree| tree.bytes).sum();
            let bytes = bytes_used(&connection)?.saturating_sub(freed);
            let trees = due.trees.into_iter().map(|candidate| candidate.tree).collect();
            Ok(Pruned { trees, bytes, floor: due.floor, unreadable: Vec::new() })
        })
        .await
    }

    /// Keeps a tree regardless of its age.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be written. An unknown tree is not an error.
    pub async fn pin(&self, tree: Uuid) -> Result<(), JournalError> {
        execute_for(self, "INSERT OR IGNORE INTO pins (tree) SELECT id FROM trees WHERE id = ?1", tree).await
    }

    /// Makes a tree subject to pruning again.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be written.
    pub async fn unpin(&self, tree: Uuid) -> Result<(), JournalError> {
        execute_for(self, "DELETE FROM pins WHERE tree = ?1", tree).await
    }

    /// Starts pruning in the background, unless another process has begun in the meantime.
    pub(super) fn prune_in_background(&self, keep: Retention) {
        let pruner = Pruner::of(self);
        let begin = move |due: Result<bool, JournalError>, _: &_| {
            if due == Ok(true) {
                // If the process ends first, the rest is left for the next day: each tree is pruned as a whole.
                let _ = std::thread::Builder::new().name("homing-prune".to_owned()).spawn(move || pruner.prune(keep));
            }
        };
        self.queue.submit(take_turn, begin);
    }
}

/// Returns whether pruning in the background is due. At most one process does so, once a day.
pub(super) fn is_due(connection: &Connection) -> bool {
    pruned_at(connection).is_ok_and(|last| now() >= last.saturating_add(EVERY_MS))
}

async fn execute_for(journal: &SqliteJournal, sql: &'static str, tree: Uuid) -> Result<(), JournalError> {
    let job = move |txn: &mut WriteTxn| {
        txn.connection.execute(sql, [tree.to_string()])?;
        Ok(())
    };
    journal.queue.run(job).await
}

fn pruned_at(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT value FROM meta WHERE name = 'pruned_at'";
    let at: Option<String> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(at.and_then(|at| at.parse().ok()).unwrap_or(0))
}

/// Records that this process prunes now; `false` if another process has begun in the meantime.
fn take_turn(txn: &mut WriteTxn) -> Result<bool, JournalError> {
    let now = now();
    if now < pruned_at(&txn.connection)?.saturating_add(EVERY_MS) {
        return Ok(false);
    }
    let sql = "INSERT INTO meta (name, value) VALUES ('pruned_at', ?1)
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    txn.connection.execute(sql, [now.to_string()])?;
    Ok(true)
}

/// Selects and reads trees on a thread of its own, and lets the writer delete in small steps.
struct Pruner {
    path: std::path::PathBuf,
    queue: WriteQueue,
    me: Owner,
}

impl Pruner {
    fn of(journal: &SqliteJournal) -> Self {
        Self { path: journal.path.clone(), queue: journal.queue.clone(), me: journal.me.clone() }
    }

    fn prune(self, keep: Retention) -> Result<Pruned, JournalError> {
        let connection = schema::open_reader(&self.path)?;
        // Trees that were written at the same time share pages, which would be read again for each of them.
        connection.pragma_update(None, "cache_size", -PRUNE_CACHE_KIB)?;
        self.finish_interrupted(&connection)?;
        let due = due(&connection, keep, Sizes::IfTooLarge)?;
        let mut pruned = Pruned { floor: due.floor, ..Pruned::default() };
        let mut group = TreeGroup::default();
        // The writer deletes one group while the envelopes of the next are read.
        let mut begun = BegunGroup::default();
        for candidate in due.trees {
            let is_old = candidate.is_old;
            if !is_old || !group.has_room_for(&candidate) {
                pruned.trees.extend(self.finish_group(begun)?);
                begun = self.begin_group(std::mem::take(&mut group));
            }
            if !is_old {
                pruned.trees.extend(self.finish_group(std::mem::take(&mut begun))?);
                // How much a tree frees is an estimate: no more are pruned than needed.
                if bytes_used(&connection)? <= keep.bytes {
                    break;
                }
            }
            match query::envelope(&connection, &self.me, candidate.tree) {
                Ok(envelope) => group.add(&candidate, without_resume(envelope))?,
                Err(_) => pruned.unreadable.push(candidate.tree),
            }
        }
        pruned.trees.extend(self.finish_group(begun)?);
        pruned.trees.extend(self.finish_group(self.begin_group(group))?);
        self.tidy()?;
        pruned.bytes = bytes_used(&connection)?;
        Ok(pruned)
    }

    /// Stores the envelopes, marks the trees and begins to delete their records in one transaction.
    fn begin_group(&self, group: TreeGroup) -> BegunGroup {
        if group.trees.is_empty() {
            return BegunGroup::default();
        }
        let begun = self.queue.begin(move |txn| {
            let mut marked = Vec::new();
            for (tree, envelope) in &group.trees {
                if mark(txn, *tree, envelope)? {
                    marked.push(*tree);
                }
            }
            let rest = delete_some(txn, marked.clone())?;
            Ok(MarkedGroup { trees: marked, rest })
        });
        BegunGroup(Some(begun))
    }

    /// Waits for a group, and deletes the rest of its records in small steps if there are many. Returns the trees.
    fn finish_group(&self, begun: BegunGroup) -> Result<Vec<Uuid>, JournalError> {
        let Some(begun) = begun.0 else { return Ok(Vec::new()) };
        let MarkedGroup { trees, rest } = begun.wait()?;
        self.delete(rest)?;
        Ok(trees)
    }

    fn delete(&self, mut trees: Vec<Uuid>) -> Result<(), JournalError> {
        while !trees.is_empty() {
            trees = self.queue.run_blocking(move |txn| delete_some(txn, trees))?;
        }
        Ok(())
    }

    /// Deletes the records of marked trees that a process left behind because it died while pruning.
    fn finish_interrupted(&self, connection: &Connection) -> Result<(), JournalError> {
        self.delete(half_pruned(connection)?)
    }

    /// Removes rows that are not referenced any more, and returns free pages to the file system.
    fn tidy(&self) -> Result<(), JournalError> {
        let me = self.me.clone();
        self.queue.run_blocking(move |txn| Ok(remove_dead_owners(&txn.connection, &me)?))?;
        while self.queue.run_blocking(|txn| Ok(vacuum_some(&txn.connection)?))? {}
        Ok(())
    }
}

/// A tree that may be pruned.
struct Candidate {
    tree: Uuid,
    /// True if it is older than what is kept.
    is_old: bool,
    records: u64,
    /// About the bytes that pruning it frees; 0 if it was not measured.
    bytes: u64,
}

/// Trees that are pruned together, with their envelopes as JSON.
#[derive(Default)]
struct TreeGroup {
    trees: Vec<(Uuid, String)>,
    records: u64,
}

/// A group that the writer is pruning, if there is one.
#[derive(Default)]
struct BegunGroup(Option<BegunJob<MarkedGroup>>);

/// A group whose trees are marked as pruned.
struct MarkedGroup {
    trees: Vec<Uuid>,
    /// The trees that may have more records.
    rest: Vec<Uuid>,
}

impl TreeGroup {
    /// Returns whether the records of one more tree can be deleted in the same transaction.
    fn has_room_for(&self, candidate: &Candidate) -> bool {
        self.trees.is_empty() || (self.trees.len() < GROUP && self.records + candidate.records < CHUNK)
    }

    fn add(&mut self, candidate: &Candidate, envelope: Envelope) -> Result<(), JournalError> {
        let tree = candidate.tree;
        let envelope = serde_json::to_string(&envelope)
            .map_err(|error| JournalError::Unwritable(format!("cannot write the result of {tree} as JSON: {error}")))?;
        self.trees.push((tree, envelope));
        self.records += candidate.records;
        Ok(())
    }
}

/// Marks every run as not resumable, since its records will be gone.
fn without_resume(mut envelope: Envelope) -> Envelope {
    envelope.resumable = false;
    envelope.children = envelope.children.into_iter().map(without_resume).collect();
    envelope
}

/// Selects whether trees are measured, which reads all of their records.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    Always,
    IfTooLarge,
}

/// The trees to prune.
struct DueTrees {
    trees: Vec<Candidate>,
    floor: Option<u64>,
}

/// The trees that are older than what is kept, and the oldest others while the file is too large. A size that cannot be reached
/// prunes none of them: all history would be lost without reaching it.
fn due(connection: &Connection, keep: Retention, sizes: Sizes) -> Result<DueTrees, JournalError> {
    let oldest = now().saturating_sub(u64::try_from(keep.age.as_millis()).unwrap_or(u64::MAX));
    let used = bytes_used(connection)?;
    let all = candidates(connection, oldest, sizes == Sizes::Always || used > keep.bytes)?;
    let floor = used.saturating_sub(all.iter().map(|tree| tree.bytes).sum());
    let is_reachable = keep.bytes >= floor;
    let mut left = used;
    let mut trees = all;
    trees.retain(|tree| {
        let is_due = tree.is_old || (is_reachable && left > keep.bytes);
        left = left.saturating_sub(if is_due { tree.bytes } else { 0 });
        is_due
    });
    Ok(DueTrees { trees, floor: (!is_reachable && used > keep.bytes).then_some(floor) })
}

/// Trees that have ended and are not pinned, the least recently written first.
fn candidates(connection: &Connection, oldest: u64, measured: bool) -> rusqlite::Result<Vec<Candidate>> {
    let mut statement = connection.prepare(
        "SELECT trees.id, last_at, next_seq, CASE WHEN ?1 THEN
         (SELECT coalesce(sum(length(CAST(records AS BLOB)) + 100), 0) FROM appends WHERE appends.tree = number) ELSE 0 END
         FROM trees JOIN progress ON progress.tree = number JOIN runs ON runs.id = trees.id
         WHERE pruned = 0 AND runs.ended IS NOT NULL AND trees.id NOT IN (SELECT tree FROM pins)
         AND NOT EXISTS (SELECT 1 FROM runs AS open WHERE open.tree = trees.id AND open.ended IS NULL)
         ORDER BY last_at, trees.id",
    )?;
    let rows = statement.query_map([measured], |row| {
        let (tree, is_old) = (query::parsed(row, 0)?, count(row.get(1)?) < oldest);
        Ok(Candidate { tree, is_old, records: count(row.get(2)?), bytes: count(row.get(3)?) })
    })?;
    rows.collect()
}

fn half_pruned(connection: &Connection) -> rusqlite::Result<Vec<Uuid>> {
    let mut statement = connection.prepare(
        "SELECT id FROM trees WHERE pruned = 1 AND EXISTS (SELECT 1 FROM appends WHERE appends.tree = number)",
    )?;
    let rows = statement.query_map([], |row| query::parsed(row, 0))?;
    rows.collect()
}

/// Marks a tree as pruned, unless it has a living owner or was reopened in the meantime.
fn mark(txn: &mut WriteTxn, tree: Uuid, envelope: &str) -> Result<bool, JournalError> {
    let connection = &txn.connection;
    let id = tree.to_string();
    let owner: Option<String> =
        connection.prepare_cached("SELECT owner FROM trees WHERE id = ?1")?.query_row([&id], |row| row.get(0))?;
    let owner = owner.map(|owner| Owner::find(connection, &owner)).transpose()?.flatten();
    let open: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM runs WHERE tree = ?1 AND ended IS NULL)")?
        .query_row([&id], |row| row.get(0))?;
    if open || owner.is_some_and(|owner| owner.is_alive(&txn.me)) {
        return Ok(false);
    }
    let sql = "INSERT OR REPLACE INTO results (tree, envelope) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute([&id, envelope])?;
    connection.prepare_cached("UPDATE trees SET pruned = 1 WHERE id = ?1")?.execute([&id])?;
    Ok(true)
}

/// Deletes some records of marked trees, and everything else that only a tree without records refers to. Returns the trees that
/// may have more.
fn delete_some(txn: &mut WriteTxn, trees: Vec<Uuid>) -> Result<Vec<Uuid>, JournalError> {
    let connection = &txn.connection;
    let mut room = CHUNK;
    let mut trees = trees.into_iter();
    for tree in trees.by_ref() {
        let id = tree.to_string();
        let sql = "DELETE FROM appends WHERE id IN
                   (SELECT id FROM appends WHERE tree = (SELECT number FROM trees WHERE id = ?1) LIMIT ?2)";
        room -= connection.prepare_cached(sql)?.execute(params![id, int(room)])? as u64;
        if room == 0 {
            return Ok([tree].into_iter().chain(trees).collect());
        }
        let sql = "DELETE FROM bodies WHERE hash IN (SELECT hash FROM body_uses WHERE tree = ?1)
                       AND NOT EXISTS (SELECT 1 FROM body_uses WHERE body_uses.hash = bodies.hash AND tree <> ?1)";
        connection.prepare_cached(sql)?.execute([&id])?;
        connection.prepare_cached("DELETE FROM body_uses WHERE tree = ?1")?.execute([&id])?;
        connection.prepare_cached("DELETE FROM inbox WHERE tree = ?1")?.execute([&id])?;
    }
    Ok(Vec::new())
}

/// Removes dead owners that no open tree and no reservation refers to.
fn remove_dead_owners(connection: &Connection, me: &Owner) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE trees SET owner = NULL WHERE owner IS NOT NULL AND owner <> ?1
         AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.tree = trees.id AND runs.ended IS NULL)
         AND NOT EXISTS (SELECT 1 FROM owners WHERE owners.id = trees.owner AND heartbeat > ?2)",
        params![me.id, int(now().saturating_sub(EVERY_MS))],
    )?;
    for owner in Owner::all(connection)?.into_iter().filter(|owner| !owner.is_alive(me)) {
        connection.execute(
            "DELETE FROM owners WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM trees WHERE owner = ?1)
             AND NOT EXISTS (SELECT 1 FROM holds WHERE owner = ?1)",
            [&owner.id],
        )?;
    }
    connection.execute("DELETE FROM gates WHERE closed_until < ?1", [int(now())])?;
    Ok(())
}

/// Returns some free pages to the file system; returns whether there are more.
fn vacuum_some(connection: &Connection) -> rusqlite::Result<bool> {
    let free = || connection.pragma_query_value(None, "freelist_count", |row| row.get::<_, i64>(0));
    let before = free()?;
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({CHUNK})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    let after = free()?;
    // A file that cannot shrink stays as it is.
    Ok(after > 0 && after < before)
}

fn bytes_used(connection: &Connection) -> rusqlite::Result<u64> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get(0)).map(count);
    Ok((pragma("page_count")? - pragma("freelist_count")?.min(pragma("page_count")?)) * pragma("page_size")?)
}
