//! Questions that wait for an answer, in all trees of the journal.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::{Path, PathBuf},
};

use homing_core::{
    envelope::{Status, status},
    fact::ON_RESTATE,
    question::{OpenQuestion, QuestionId},
    short_id::{MIN_ID_BEGINNING, short_id},
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
    /// Project of the tree.
    pub project: PathBuf,
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
    /// The beginning of an ID is so short that it would find a question by chance.
    #[error("`{0}` is too short to find a question: give at least {MIN_ID_BEGINNING} characters of its ID")]
    TooShort(String),
    /// The IDs of several questions begin like this.
    #[error("`{0}` is ambiguous: several open questions begin like this")]
    Ambiguous(String),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl SqliteJournal {
    /// Lists the questions that wait for an answer, of one project or of all, oldest tree first.
    ///
    /// # Errors
    /// Fails if the journal cannot be read.
    pub fn questions(&self, project: Option<&Path>) -> Result<Vec<JournalQuestion>, JournalError> {
        self.read(|connection| {
            let mut found = Vec::new();
            for (tree, of) in asking_trees(connection)? {
                if project.is_some() && of.as_deref() != project {
                    continue;
                }
                let fold = reader::tree(connection, tree)?;
                let folder = fold.root().map(|root| root.spawned.workdir.clone()).unwrap_or_default();
                let project = of.unwrap_or_else(|| folder.clone());
                let with_tree = |open| JournalQuestion { tree, folder: folder.clone(), project: project.clone(), open };
                found.extend(fold.open_questions().into_iter().map(with_tree));
            }
            Ok(found)
        })
    }

    /// Finds an open question of any project by its ID, the beginning of its ID, or the ID of the only run that asks.
    ///
    /// # Errors
    /// Fails if there is none, or more than one.
    pub fn find_question(&self, id: &str) -> Result<JournalQuestion, FindQuestionError> {
        let text = id.trim().to_lowercase();
        if text.len() < MIN_ID_BEGINNING {
            return Err(FindQuestionError::TooShort(id.to_owned()));
        }
        let begins = |question: &QuestionId| question.to_string().starts_with(&text);
        let of_run = |run: Uuid| run.to_string().starts_with(&text) || short_id(run).starts_with(&text);
        let all = self.questions(None)?;
        let matching = |is_match: &dyn Fn(&JournalQuestion) -> bool| -> Vec<JournalQuestion> {
            all.iter().filter(|question| is_match(question)).cloned().collect()
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

/// The trees that have not ended and have asked a question, each with its project.
fn asking_trees(connection: &Connection) -> rusqlite::Result<Vec<(Uuid, Option<PathBuf>)>> {
    let sql = "SELECT trees.id, nullif(trees.project, '') FROM trees JOIN runs ON runs.id = trees.id WHERE runs.ended IS NULL AND EXISTS
               (SELECT 1 FROM appends WHERE appends.tree = number AND instr(records, '{\"questioned\":')) ORDER BY trees.started";
    let mut statement = connection.prepare(sql)?;
    let trees =
        statement.query_map([], |row| Ok((parsed(row, 0)?, row.get::<_, Option<String>>(1)?.map(PathBuf::from))))?;
    trees.collect()
}

/// Corrects the status of runs without a living owner, and of those on workers: a tree in which everything waits for an answer is
/// neither interrupted nor running.
pub(super) fn mark_waiting(connection: &Connection, rows: &mut [RunRow]) -> Result<(), JournalError> {
    let may_wait = |row: &RunRow| {
        row.status == Status::Interrupted || (!row.status.is_over() && row.tags.contains_key(ON_RESTATE))
    };
    if !rows.iter().any(may_wait) {
        return Ok(());
    }
    let asking: Vec<Uuid> = asking_trees(connection)?.into_iter().map(|(tree, _)| tree).collect();
    let mut folds: HashMap<Uuid, RunTree> = HashMap::new();
    for row in rows.iter_mut().filter(|row| may_wait(row) && asking.contains(&row.tree)) {
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
