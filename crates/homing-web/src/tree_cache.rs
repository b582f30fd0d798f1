//! Folds of trees that are shown in lists, shared by all readers. Each record is read and folded once.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homing::{
    Envelope, JournalError,
    crates::{
        core::{
            fact::{Fact, Purpose, Reservation},
            tree::RunTree,
        },
        runtime::journal::sqlite::{Filter, JournalFeed, RunRow, SqliteJournal},
    },
};
use uuid::Uuid;

use crate::tree_row::{TreeRow, TreeSummary, action};

/// Maximum number of folds in memory. Trees that have ended need only their summary.
const MAX_FOLDS: usize = 64;

/// Maximum number of folds of trees that have ended. A page reads such a tree several times in a row.
const MAX_ENDED: usize = 4;

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
    /// The trees among them that have ended, the oldest first.
    ended: VecDeque<Uuid>,
    summaries: HashMap<Uuid, TreeSummary>,
}

#[derive(Default)]
struct Fold {
    tree: RunTree,
    /// The latest action, and the time of the latest record.
    last: (String, u64),
    /// The reservation of the latest model call.
    last_hold: Reservation,
}

impl CacheState {
    /// Keeps a fold for the next reader.
    fn keep(&mut self, tree: Uuid, fold: Fold) {
        if fold.tree.root().is_none_or(|root| root.ended.is_none()) {
            if self.folds.len() < MAX_FOLDS {
                self.folds.insert(tree, fold);
            }
            return;
        }
        self.ended.retain(|other| *other != tree);
        self.ended.push_back(tree);
        self.folds.insert(tree, fold);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.folds.remove(&oldest);
        }
    }
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
            Ok(()) => TreeSummary::new(&fold.tree, &fold.last, fold.last_hold),
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
        state.keep(row.tree, fold);
        Ok(summary)
    }

    /// Returns the result of a tree so far, from the fold that its row was made of if that is still known.
    pub(crate) fn envelope(&self, tree: Uuid) -> Result<Envelope, JournalError> {
        let mut fold = self.lock().folds.remove(&tree).unwrap_or_default();
        match self.advance(tree, &mut fold) {
            Ok(()) => (),
            // Its records were deleted; the result was kept.
            Err(JournalError::Unknown(_)) => return self.journal.envelope(tree),
            Err(error) => return Err(error),
        }
        let Some(root) = fold.tree.root() else { return self.journal.envelope(tree) };
        let envelope = self.journal.envelope_in(&fold.tree, root);
        self.lock().keep(tree, fold);
        envelope
    }

    /// Applies the records that are new since the last time.
    fn advance(&self, tree: Uuid, fold: &mut Fold) -> Result<(), JournalError> {
        for record in self.journal.follow(tree, fold.tree.next_seq())? {
            fold.tree.apply(&record).map_err(|error| JournalError::Damaged(error.to_string()))?;
            if let Some(action) = action(&fold.tree, &record) {
                fold.last.0 = action;
            }
            fold.last.1 = record.at;
            if let Fact::Asked(asked) = &record.fact
                && asked.purpose == Purpose::Turn
                && asked.hold != Reservation::default()
            {
                fold.last_hold = asked.hold;
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
