//! Forgets the records of old, ended trees, so that the file does not grow for ever. Envelopes, totals and open or pinned
//! trees stay.

use std::time::Duration;

use homing_core::envelope::Envelope;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::journal::{
    JournalError,
    sqlite::{
        SqliteJournal, aside,
        owner::{Owner, now},
        query,
        row::{count, int},
        schema::{self, said},
        write_txn::WriteTxn,
        writer::WriteQueue,
    },
};

/// Pruning unasked happens at most this often.
const EVERY_MS: u64 = 86_400_000;

/// Records that are deleted in one transaction, so that nobody who writes waits long.
const CHUNK: u32 = 2_000;

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Trees that were last written to longer ago than this are forgotten.
    pub age: Duration,
    /// The oldest trees are forgotten while the file holds more than this.
    pub bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age: Duration::from_secs(30 * 86_400), bytes: 5_000_000_000 }
    }
}

/// What pruning did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Trees whose records were forgotten.
    pub trees: u64,
    /// Bytes that the file holds now, free pages not counted.
    pub bytes: u64,
    /// Trees that should have been forgotten and were kept because they cannot be read: `doctor` says why.
    pub unreadable: Vec<Uuid>,
}

impl SqliteJournal {
    /// Forgets the records of old ended trees. Runs beside everything else.
    pub async fn prune(&self, keep: Retention) -> Result<Pruned, JournalError> {
        let pruner = self.pruner();
        aside(move || pruner.prune(keep)).await
    }

    /// Keeps a tree whatever its age.
    pub async fn pin(&self, tree: Uuid) -> Result<(), JournalError> {
        self.change("INSERT OR IGNORE INTO pins (tree) SELECT id FROM trees WHERE id = ?1", tree).await
    }

    /// Lets a tree grow old again.
    pub async fn unpin(&self, tree: Uuid) -> Result<(), JournalError> {
        self.change("DELETE FROM pins WHERE tree = ?1", tree).await
    }

    async fn change(&self, sql: &'static str, tree: Uuid) -> Result<(), JournalError> {
        let job = move |desk: &mut WriteTxn| {
            desk.connection.execute(sql, [tree.to_string()]).map_err(|error| said(&error))?;
            Ok(())
        };
        self.orders.ask(job).await
    }

    /// Starts pruning in the background if it is due; at most one process does it, once a day.
    pub(super) fn prune_if_due(&self) {
        let Some(keep) = self.options.retention else { return };
        let pruner = self.pruner();
        let is_due = self.read(|connection| pruned_at(connection).map_err(|error| said(&error)));
        if !is_due.is_ok_and(|last| now() >= last.saturating_add(EVERY_MS)) {
            return;
        }
        let begin = move |due: Result<bool, JournalError>, _: &_| {
            if due == Ok(true) {
                // A process that ends meanwhile leaves the rest for tomorrow: each tree is forgotten as a whole.
                let _ = std::thread::Builder::new().name("homing-prune".to_owned()).spawn(move || pruner.prune(keep));
            }
        };
        self.orders.order(take_turn, begin);
    }

    fn pruner(&self) -> Pruner {
        Pruner { path: self.path.clone(), orders: self.orders.clone(), me: self.me.clone() }
    }
}

fn pruned_at(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT value FROM meta WHERE name = 'pruned_at'";
    let at: Option<String> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(at.and_then(|at| at.parse().ok()).unwrap_or(0))
}

/// Whether nobody else has begun meanwhile.
fn take_turn(desk: &mut WriteTxn) -> Result<bool, JournalError> {
    let now = now();
    let take = || {
        if now < pruned_at(&desk.connection)?.saturating_add(EVERY_MS) {
            return Ok(false);
        }
        let sql = "INSERT INTO meta (name, value) VALUES ('pruned_at', ?1)
                   ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        desk.connection.execute(sql, [now.to_string()])?;
        Ok(true)
    };
    take().map_err(|error: rusqlite::Error| said(&error))
}

/// Chooses and reads on a thread of its own, and has the writer delete in small pieces.
struct Pruner {
    path: std::path::PathBuf,
    orders: WriteQueue,
    me: Owner,
}

impl Pruner {
    fn prune(self, keep: Retention) -> Result<Pruned, JournalError> {
        let connection = schema::open_reader(&self.path)?;
        let mut pruned = Pruned::default();
        let oldest = now().saturating_sub(u64::try_from(keep.age.as_millis()).unwrap_or(u64::MAX));
        self.finish_what_was_begun(&connection)?;
        for (tree, last_at) in candidates(&connection).map_err(|error| said(&error))? {
            if last_at >= oldest && bytes_held(&connection).map_err(|error| said(&error))? <= keep.bytes {
                break;
            }
            match query::envelope(&connection, &self.me, tree) {
                Ok(envelope) => pruned.trees += u64::from(self.forget(tree, final_word(envelope))?),
                Err(_) => pruned.unreadable.push(tree),
            }
        }
        self.tidy()?;
        pruned.bytes = bytes_held(&connection).map_err(|error| said(&error))?;
        Ok(pruned)
    }

    /// Keeps the envelope and marks the tree in one transaction; only then the records go, piece by piece.
    fn forget(&self, tree: Uuid, envelope: Envelope) -> Result<bool, JournalError> {
        let envelope = serde_json::to_string(&envelope)
            .map_err(|error| JournalError::Unwritable(format!("the result of {tree} is no JSON: {error}")))?;
        if !self.order(move |desk| mark(desk, tree, &envelope))? {
            return Ok(false);
        }
        self.delete(tree)?;
        Ok(true)
    }

    fn delete(&self, tree: Uuid) -> Result<(), JournalError> {
        while self.order(move |desk| delete_some(desk, tree))? {}
        Ok(())
    }

    /// A process that died while pruning left records of trees that are marked.
    fn finish_what_was_begun(&self, connection: &Connection) -> Result<(), JournalError> {
        for tree in half_pruned(connection).map_err(|error| said(&error))? {
            self.delete(tree)?;
        }
        Ok(())
    }

    /// Clears away what nobody points to any more, and gives free pages back.
    fn tidy(&self) -> Result<(), JournalError> {
        let me = self.me.clone();
        self.order(move |desk| forget_the_dead(&desk.connection, &me).map_err(|error| said(&error)))?;
        while self.order(|desk| vacuum_some(&desk.connection).map_err(|error| said(&error)))? {}
        Ok(())
    }

    fn order<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut WriteTxn) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let (reply, said) = std::sync::mpsc::channel();
        self.orders.order(job, move |result, _| {
            let _ = reply.send(result);
        });
        said.recv().unwrap_or_else(|_| Err(crate::journal::sqlite::gone()))
    }
}

/// Without its records, no run goes on.
fn final_word(mut envelope: Envelope) -> Envelope {
    envelope.resumable = false;
    envelope.children = envelope.children.into_iter().map(final_word).collect();
    envelope
}

/// Ended trees that nobody pinned, the one that was quiet for longest first.
fn candidates(connection: &Connection) -> rusqlite::Result<Vec<(Uuid, u64)>> {
    let mut statement = connection.prepare(
        "SELECT trees.id, trees.last_at FROM trees JOIN runs ON runs.id = trees.id
         WHERE pruned = 0 AND runs.ended IS NOT NULL AND trees.id NOT IN (SELECT tree FROM pins)
         AND NOT EXISTS (SELECT 1 FROM runs AS open WHERE open.tree = trees.id AND open.ended IS NULL)
         ORDER BY trees.last_at, trees.id",
    )?;
    let rows = statement.query_map([], |row| Ok((query::parsed(row, 0)?, count(row.get(1)?))))?;
    rows.collect()
}

fn half_pruned(connection: &Connection) -> rusqlite::Result<Vec<Uuid>> {
    let mut statement = connection.prepare(
        "SELECT id FROM trees WHERE pruned = 1 AND EXISTS (SELECT 1 FROM records WHERE records.tree = trees.id)",
    )?;
    let rows = statement.query_map([], |row| query::parsed(row, 0))?;
    rows.collect()
}

/// Marks a tree as pruned, unless somebody owns it or has reopened it meanwhile.
fn mark(desk: &mut WriteTxn, tree: Uuid, envelope: &str) -> Result<bool, JournalError> {
    let me = desk.me.clone();
    let connection = &desk.connection;
    let mark = || {
        let id = tree.to_string();
        let owner: Option<String> =
            connection.query_row("SELECT owner FROM trees WHERE id = ?1", [&id], |row| row.get(0))?;
        let owner = owner.map(|owner| Owner::find(connection, &owner)).transpose()?.flatten();
        let open: bool = connection.query_row(
            "SELECT EXISTS (SELECT 1 FROM runs WHERE tree = ?1 AND ended IS NULL)",
            [&id],
            |row| row.get(0),
        )?;
        if open || owner.is_some_and(|owner| owner.lives(&me)) {
            return Ok(false);
        }
        connection.execute("INSERT OR REPLACE INTO results (tree, envelope) VALUES (?1, ?2)", [&id, envelope])?;
        connection.execute("UPDATE trees SET pruned = 1 WHERE id = ?1", [&id])?;
        Ok(true)
    };
    mark().map_err(|error: rusqlite::Error| said(&error))
}

/// Deletes some records of a marked tree; says whether there may be more.
fn delete_some(desk: &mut WriteTxn, tree: Uuid) -> Result<bool, JournalError> {
    let connection = &desk.connection;
    let delete = || {
        let id = tree.to_string();
        let gone = connection.execute(
            "DELETE FROM records WHERE id IN (SELECT id FROM records WHERE tree = ?1 LIMIT ?2)",
            params![id, CHUNK],
        )?;
        if gone > 0 {
            return Ok(true);
        }
        connection.execute(
            "DELETE FROM bodies WHERE hash IN (SELECT hash FROM body_uses WHERE tree = ?1)
             AND NOT EXISTS (SELECT 1 FROM body_uses WHERE body_uses.hash = bodies.hash AND tree <> ?1)",
            [&id],
        )?;
        connection.execute("DELETE FROM body_uses WHERE tree = ?1", [&id])?;
        connection.execute("DELETE FROM inbox WHERE tree = ?1", [&id])?;
        Ok(false)
    };
    delete().map_err(|error: rusqlite::Error| said(&error))
}

/// Owners that are gone and that no open tree and no reservation speaks of.
fn forget_the_dead(connection: &Connection, me: &Owner) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE trees SET owner = NULL WHERE owner IS NOT NULL AND owner <> ?1
         AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.tree = trees.id AND runs.ended IS NULL)
         AND NOT EXISTS (SELECT 1 FROM owners WHERE owners.id = trees.owner AND heartbeat > ?2)",
        params![me.id, int(now().saturating_sub(EVERY_MS))],
    )?;
    for owner in Owner::all(connection)?.into_iter().filter(|owner| !owner.lives(me)) {
        connection.execute(
            "DELETE FROM owners WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM trees WHERE owner = ?1)
             AND NOT EXISTS (SELECT 1 FROM holds WHERE owner = ?1)",
            [&owner.id],
        )?;
    }
    connection.execute("DELETE FROM gates WHERE closed_until < ?1", [int(now())])?;
    Ok(())
}

/// Gives some free pages back to the file system; says whether there are more.
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

fn bytes_held(connection: &Connection) -> rusqlite::Result<u64> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get(0)).map(count);
    Ok((pragma("page_count")? - pragma("freelist_count")?.min(pragma("page_count")?)) * pragma("page_size")?)
}
