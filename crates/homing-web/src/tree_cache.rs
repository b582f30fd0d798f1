//! Folds of trees that are shown in lists, shared by all readers. Each record is read and folded once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homing::{
    JournalError, Status,
    crates::{
        core::tree::RunTree,
        runtime::journal::sqlite::{Filter, JournalFeed, RunRow, SqliteJournal},
    },
};
use uuid::Uuid;

use crate::tree_row::{TreeRow, TreeSummary, action};

/// Maximum number of folds in memory. Trees that have ended need only their summary.
const MAX_FOLDS: usize = 64;

/// Maximum number of summaries in memory.
const MAX_SUMMARIES: usize = 10_000;

/// The folds and summaries of trees.
pub(crate) struct TreeCache {
    journal: Arc<SqliteJournal>,
    feed: JournalFeed,
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    /// Position of the journal up to which changes are known; `None` before the first look.
    position: Option<u64>,
    folds: HashMap<Uuid, Fold>,
    summaries: HashMap<Uuid, TreeSummary>,
}

#[derive(Default)]
struct Fold {
    tree: RunTree,
    /// The latest action, and the time of the latest record.
    last: (String, u64),
}

impl TreeCache {
    pub(crate) fn new(journal: Arc<SqliteJournal>) -> Self {
        Self { feed: JournalFeed::new(journal.clone()), journal, state: Mutex::default() }
    }

    /// Forgets the summaries of trees that have changed since the last call.
    pub(crate) fn catch_up(&self) -> Result<(), JournalError> {
        let mut state = self.lock();
        // Before the first call nothing is cached, so the past does not matter.
        let changes = match state.position {
            Some(before) => self.feed.changes(before)?,
            None => return self.feed.position().map(|position| state.position = Some(position)),
        };
        state.position = Some(changes.position);
        for tree in &changes.trees {
            state.summaries.remove(tree);
        }
        Ok(())
    }

    /// Lists trees, newest first.
    pub(crate) fn rows(&self, filter: &Filter) -> Result<Vec<TreeRow>, JournalError> {
        self.catch_up()?;
        self.journal.runs(filter)?.into_iter().map(|row| self.row(row)).collect()
    }

    /// Completes the row of a tree.
    pub(crate) fn row(&self, row: RunRow) -> Result<TreeRow, JournalError> {
        let owner = if row.status.is_over() { None } else { self.journal.owner(row.tree)? };
        let summary = self.summary(&row)?;
        Ok(TreeRow::new(row, summary, owner))
    }

    fn summary(&self, row: &RunRow) -> Result<TreeSummary, JournalError> {
        let mut state = self.lock();
        if let Some(summary) = state.summaries.get(&row.tree) {
            return Ok(summary.clone());
        }
        let mut fold = state.folds.remove(&row.tree).unwrap_or_default();
        let position = state.position;
        // Reading may take a while; others can use the cache meanwhile.
        drop(state);
        let summary = match self.advance(row.tree, &mut fold) {
            Ok(()) => TreeSummary::new(&fold.tree, &fold.last),
            Err(JournalError::Unknown(_)) => TreeSummary::pruned(&self.journal.envelope(row.tree)?),
            Err(error) => return Err(error),
        };
        let mut state = self.lock();
        if state.summaries.len() >= MAX_SUMMARIES {
            state.summaries.clear();
        }
        // If the journal has changed meanwhile, the summary may be old already.
        if state.position == position {
            state.summaries.insert(row.tree, summary.clone());
        }
        if !row.status.is_over() && row.status != Status::Interrupted && state.folds.len() < MAX_FOLDS {
            state.folds.insert(row.tree, fold);
        }
        Ok(summary)
    }

    /// Applies the records that are new since the last time.
    fn advance(&self, tree: Uuid, fold: &mut Fold) -> Result<(), JournalError> {
        for record in self.journal.follow(tree, fold.tree.next_seq())? {
            fold.tree.apply(&record).map_err(|error| JournalError::Damaged(error.to_string()))?;
            if let Some(action) = action(&fold.tree, &record) {
                fold.last.0 = action;
            }
            fold.last.1 = record.at;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
