//! The writer's transaction: begins, commits and rolls back batches, and gives access to the tables by responsibility
//! (records, ownership, inbox, accounts).

use std::path::PathBuf;

use rusqlite::Connection;
use uuid::Uuid;

use crate::journal::{
    JournalError,
    sqlite::{
        accounts::Accounts,
        append::Records,
        batch::Batch,
        failpoint::FailpointCounter,
        file::FileId,
        inbox::Inbox,
        live_marks,
        owner::Owner,
        ownership::{OwnedTrees, Ownership},
        row::Row,
        schema,
    },
};

/// The writer's connection, and the state it keeps between batches.
pub(super) struct WriteTxn {
    pub(super) connection: Connection,
    pub(super) me: Owner,
    path: PathBuf,
    /// The file that the connection has open.
    file: Option<FileId>,
    owned: OwnedTrees,
    /// Reservations of this process at accounts that are not settled.
    open_reservations: u64,
    batch: Batch,
    points: FailpointCounter,
    /// True if commits wait for the disk.
    syncs: bool,
    /// True if the commit that ends a tree releases it, and that of the last one removes this process from the owners.
    closes_after_trees: bool,
}

impl WriteTxn {
    pub(super) fn new(connection: Connection, path: PathBuf, me: Owner, points: FailpointCounter) -> Self {
        let (owned, batch, file) = (OwnedTrees::default(), Batch::default(), FileId::at(&path));
        let (open_reservations, syncs, closes_after_trees) = (0, true, false);
        Self { connection, me, path, file, owned, open_reservations, batch, points, syncs, closes_after_trees }
    }

    /// Sets whether the commit that ends a tree releases it, and that of the last one removes this process from the owners.
    pub(super) fn closes_after_trees(self, closes_after_trees: bool) -> Self {
        Self { closes_after_trees, ..self }
    }

    /// The records of trees.
    pub(super) fn records(&mut self) -> Records<'_> {
        let Self { connection, me, owned, batch, points, .. } = self;
        Records { connection, me, owned, batch, points, insertion: None }
    }

    /// The owners of trees.
    pub(super) fn ownership(&mut self) -> Ownership<'_> {
        let Self { connection, me, owned, batch, .. } = self;
        Ownership { connection, me, owned, batch }
    }

    /// The requests that processes send each other.
    pub(super) fn inbox(&self) -> Inbox<'_> {
        Inbox { connection: &self.connection, me: &self.me }
    }

    /// The accounts that processes share.
    pub(super) fn accounts(&mut self) -> Accounts<'_> {
        let Self { connection, me, open_reservations, .. } = self;
        Accounts { connection, me, open_reservations }
    }

    /// Returns whether this process owns trees or reservations, for which it needs a heartbeat.
    pub(super) fn owns_something(&self) -> bool {
        self.open_reservations > 0 || !self.owned.is_empty()
    }

    /// Begins a batch. Its commit waits for the disk if anything in it must survive a power failure.
    pub(super) fn begin_batch(&mut self, lasts: bool) {
        self.batch = Batch::default();
        if let Err(error) = self.set_sync(lasts) {
            self.batch.fail(error);
            return;
        }
        match schema::wait_for_lock(&self.path, || execute(&self.connection, "BEGIN IMMEDIATE")) {
            Ok(()) => {
                let version = self.connection.prepare_cached("PRAGMA data_version");
                self.batch.data_version = version.and_then(|mut version| version.query_row([], |row| row.get(0))).ok();
            }
            Err(error) => {
                self.batch.fail(error);
            }
        }
    }

    /// Commits the batch. If that fails, nothing of it has happened, and its trees are closed until they are claimed again.
    pub(super) fn end_batch(&mut self) -> Result<(), JournalError> {
        let committed = self.commit();
        if committed.is_ok() {
            self.owned.forget(&self.batch.ended);
            self.pass_commit();
            return Ok(());
        }
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        let batch = std::mem::take(&mut self.batch);
        committed.inspect_err(|error| self.owned.undo(batch, error))
    }

    /// Copies the log into the file if this was the last tree before the journal is closed. The host is busy with its result
    /// meanwhile, and closing only has to delete the log. Other processes go on with the log, so it is left to them.
    pub(super) fn copy_log_after_trees(&self) {
        if self.closes_after_trees && !self.batch.ended.is_empty() && !self.owns_something() && !self.has_others() {
            // If it fails, closing does it.
            let _ = self.connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE)");
        }
    }

    /// Returns whether other processes are recorded as owners.
    fn has_others(&self) -> bool {
        Owner::is_any_recorded(&self.connection).unwrap_or(true)
    }

    fn commit(&mut self) -> Result<(), JournalError> {
        self.batch.status()?;
        self.owned.save_progress(&self.connection, &self.batch.grown)?;
        self.batch.usage.write(&self.connection, &mut self.owned)?;
        self.release_ended()?;
        // SQLite goes on writing to a file that was deleted, and reports success.
        if FileId::at(&self.path) != self.file {
            return Err(JournalError::Gone(self.path.display().to_string()));
        }
        self.pass_commit();
        Ok(execute(&self.connection, "COMMIT")?)
    }

    /// Lets go of the trees that ended in this batch, if nothing follows their end, so that no further transaction is needed for it.
    fn release_ended(&mut self) -> rusqlite::Result<()> {
        if !self.closes_after_trees {
            self.batch.ended.clear();
        }
        let ended = &self.batch.ended;
        if ended.is_empty() {
            return Ok(());
        }
        self.owned.release_ended(&self.connection, &self.me, ended)?;
        if self.open_reservations == 0 && self.owned.are_all_in(ended) {
            self.me.remove(&self.connection)?;
        }
        Ok(())
    }

    /// Returns whether this process owns a tree.
    pub(super) fn owns(&self, tree: Uuid) -> bool {
        self.owned.trees.contains_key(&tree)
    }

    /// Only commits that concern a tree count as failpoints: the journal's own housekeeping has no fixed order.
    fn pass_commit(&mut self) {
        if self.batch.concerns_trees() {
            self.points.pass();
        }
    }

    /// Fails the whole batch.
    pub(super) fn fail_batch(&mut self, why: &str) {
        self.batch.fail(JournalError::Unwritable(why.to_owned()));
    }

    /// Runs `job` in a savepoint, so that it happens as a whole or not at all, whatever the rest of the batch does.
    pub(super) fn all_or_nothing<T>(
        &mut self,
        job: impl FnOnce(&mut Self) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        self.batch.status()?;
        self.execute("SAVEPOINT job")?;
        let usage = self.batch.usage.mark();
        let result = job(self);
        match &result {
            Ok(_) => self.execute("RELEASE job")?,
            // A disk error may have ended the whole transaction, and the savepoint with it.
            Err(error) if self.connection.is_autocommit() => {
                self.batch.fail(error.clone());
            }
            Err(_) => {
                self.batch.usage.undo(usage);
                self.execute("ROLLBACK TO job")?;
                self.execute("RELEASE job")?;
            }
        }
        result
    }

    /// Begins a tree whose next records may be queued already. If that fails, they fail with the same error.
    pub(super) fn begin_ahead(&mut self, row: &Row) -> Result<(), JournalError> {
        let begun = self.all_or_nothing(|txn| txn.records().insert_first(row));
        begun.inspect_err(|error| self.owned.refuse(&row.record, error))
    }

    fn execute(&mut self, sql: &str) -> Result<(), JournalError> {
        execute(&self.connection, sql).map_err(|error| self.batch.fail(error))
    }

    /// Sets whether commits wait for the disk. One that does makes those before it last, too.
    fn set_sync(&mut self, syncs: bool) -> rusqlite::Result<()> {
        if self.syncs != syncs {
            self.connection.pragma_update(None, "synchronous", if syncs { "FULL" } else { "NORMAL" })?;
            self.syncs = syncs;
        }
        Ok(())
    }

    /// Renews this process's heartbeat. A missed beat does no harm.
    pub(super) fn beat(&mut self) {
        let _ = self.set_sync(false);
        let _ = self.me.beat(&self.connection);
        self.owned.retry_releases(&self.connection, &self.me);
    }

    /// Lets go of everything that this process owns. If that fails, others notice that the process is gone.
    pub(super) fn leave(&mut self) {
        let _ = self.set_sync(false);
        if self.me.is_recorded(&self.connection) {
            let _ = self.release_all();
        }
    }

    fn release_all(&self) -> rusqlite::Result<()> {
        let txn = self.connection.unchecked_transaction()?;
        for tree in self.owned.with_marks() {
            live_marks::clear(&txn, tree)?;
        }
        self.me.leave(&txn)?;
        txn.commit()
    }
}

/// Executes a statement that every batch needs. It is compiled once.
fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
