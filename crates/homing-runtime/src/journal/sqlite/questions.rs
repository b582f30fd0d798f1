//! Questions that wait for an answer, in all trees of the journal.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::PathBuf,
};

use homing_core::{
    envelope::{Status, status},
    question::{OpenQuestion, QuestionId},
    tree::RunTree,
};
use rusqlite::Connection;
use serde::Serialize;
use uuid::Uuid;

use crate::journal::{
    JournalError,
    sqlite::{RunRow, SqliteJournal, query::parsed, reader},
};

/// A question that waits for an answer, with its tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JournalQuestion {
    /// The tree.
    pub tree: Uuid,
    /// Folder in which the root of the tree works.
    pub folder: PathBuf,
    /// The question.
    #[serde(flatten)]
    pub open: OpenQuestion,
}

/// Error of a look-up that found no single question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindQuestionError {
    /// No open question has this ID.
    #[error("there is no open question `{0}`")]
    NotFound(String),
    /// The IDs of several questions begin like this.
    #[error("`{0}` is ambiguous: several open questions begin like this")]
    Ambiguous(String),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl SqliteJournal {
    /// Lists the questions that wait for an answer, oldest tree first.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn questions(&self) -> Result<Vec<JournalQuestion>, JournalError> {
        self.read(|connection| {
            let mut found = Vec::new();
            for tree in asking_trees(connection)? {
                let fold = reader::tree(connection, tree)?;
                let folder = fold.root().map(|root| root.spawned.workdir.clone()).unwrap_or_default();
                let open = fold.open_questions().into_iter();
                found.extend(open.map(|open| JournalQuestion { tree, folder: folder.clone(), open }));
            }
            Ok(found)
        })
    }

    /// Finds an open question by its ID, the beginning of its ID, or the ID of the only run that asks.
    ///
    /// # Errors
    /// Fails if there is none, or more than one.
    pub fn find_question(&self, id: &str) -> Result<JournalQuestion, FindQuestionError> {
        let text = id.trim().to_lowercase();
        let begins = |question: &QuestionId| question.to_string().starts_with(&text);
        let of_run = |run: Uuid| run.to_string().starts_with(&text);
        let all = self.questions()?;
        let matching = |is_match: &dyn Fn(&JournalQuestion) -> bool| -> Vec<JournalQuestion> {
            all.iter().filter(|question| !text.is_empty() && is_match(question)).cloned().collect()
        };
        let mut found = matching(&|question| begins(&question.open.id));
        if found.is_empty() {
            found = matching(&|question| of_run(question.open.run) || of_run(question.tree));
        }
        match found.len() {
            0 => Err(FindQuestionError::NotFound(id.to_owned())),
            1 => Ok(found.remove(0)),
            _ => Err(FindQuestionError::Ambiguous(id.to_owned())),
        }
    }
}

/// The trees that have not ended and have asked a question.
fn asking_trees(connection: &Connection) -> rusqlite::Result<Vec<Uuid>> {
    let sql = "SELECT trees.id FROM trees JOIN runs ON runs.id = trees.id WHERE runs.ended IS NULL AND EXISTS
               (SELECT 1 FROM records WHERE records.tree = trees.id AND records.kind = 'questioned') ORDER BY trees.started";
    let mut statement = connection.prepare(sql)?;
    let trees = statement.query_map([], |row| parsed(row, 0))?;
    trees.collect()
}

/// Corrects the status of runs without a living owner: a tree in which everything waits for an answer was not interrupted.
pub(super) fn mark_waiting(connection: &Connection, rows: &mut [RunRow]) -> Result<(), JournalError> {
    if rows.iter().all(|row| row.status != Status::Interrupted) {
        return Ok(());
    }
    let asking = asking_trees(connection)?;
    let mut folds: HashMap<Uuid, RunTree> = HashMap::new();
    for row in rows.iter_mut().filter(|row| row.status == Status::Interrupted && asking.contains(&row.tree)) {
        let fold = match folds.entry(row.tree) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(empty) => empty.insert(reader::tree(connection, row.tree)?),
        };
        let fold = fold.is_parked().then_some(&*fold);
        if let Some(run) = fold.and_then(|fold| fold.get(row.run)) {
            row.status = status(run);
        }
    }
    Ok(())
}
