//! The state of one transaction: the trees it concerns and whether it can still be committed.

use std::{collections::HashSet, hash::BuildHasherDefault};

use homing_core::id_map::IdHasher;
use uuid::Uuid;

use crate::journal::{JournalError, sqlite::index::BatchUsage};

type TreeIds = HashSet<Uuid, BuildHasherDefault<IdHasher>>;

/// One batch of writes, which becomes one commit.
#[derive(Default)]
pub(super) struct Batch {
    /// Trees that the batch concerns. If the commit fails, each of them misses a record.
    pub(super) touched: TreeIds,
    /// Trees that have new records.
    pub(super) grown: TreeIds,
    /// Trees that began in this batch.
    pub(super) begun: Vec<Uuid>,
    /// Trees whose root ended in this batch. If the host closes the journal after its trees, the commit releases them, too.
    pub(super) ended: Vec<Uuid>,
    /// Trees that this process released in this batch.
    pub(super) released: Vec<Uuid>,
    /// Usage that is written at the end of the batch.
    pub(super) usage: BatchUsage,
    /// SQLite's `data_version`: it changes when another connection commits.
    pub(super) data_version: Option<i64>,
    /// The error that makes the whole batch fail.
    failure: Option<JournalError>,
}

impl Batch {
    /// The error that the batch has failed with, if it has.
    pub(super) fn status(&self) -> Result<(), JournalError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Fails the whole batch. The first error is kept and returned.
    pub(super) fn fail(&mut self, error: impl Into<JournalError>) -> JournalError {
        self.failure.get_or_insert_with(|| error.into()).clone()
    }

    /// Returns whether the batch changes a tree, not only the journal's own tables.
    pub(super) fn concerns_trees(&self) -> bool {
        !self.touched.is_empty() || !self.released.is_empty()
    }
}
