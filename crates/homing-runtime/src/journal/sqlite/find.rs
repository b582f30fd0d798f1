//! Look-up of runs by what a user types: an ID, a short ID, the beginning of an ID, a submission key, or a place.

use std::path::{Path, PathBuf};

use homing_core::{
    place::Place,
    short_id::{MIN_ID_BEGINNING, SHORT_ID_LEN, short_id},
    tree::RunTree,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use crate::journal::{
    JournalError,
    sqlite::{SqliteJournal, query::parsed, reader, row::int},
};

/// The most candidates that are listed for an ambiguous ID.
const CANDIDATES: usize = 10;

/// A run that a look-up found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunRef {
    /// ID of its tree.
    pub tree: Uuid,
    /// ID of the run.
    pub run: Uuid,
    /// Its place in the tree.
    pub place: Place,
    /// Name of its agent.
    pub agent: String,
    /// The beginning of its task.
    pub task: String,
    /// Project of its tree; `None` if it is not known, because an earlier version has pruned the tree.
    pub project: Option<PathBuf>,
}

impl RunRef {
    /// Folds the records of the run and of the runs below it, if it has ended; else those of the whole tree, whose other runs decide
    /// what it waits for.
    ///
    /// # Errors
    /// Fails if the records cannot be read, or were pruned.
    pub fn branch(&self, journal: &SqliteJournal) -> Result<RunTree, JournalError> {
        journal.read(|connection| {
            let sql = "SELECT ended IS NOT NULL FROM runs WHERE id = ?1";
            let ended = connection.query_row(sql, [self.run.to_string()], |row| row.get(0)).optional()?;
            if ended == Some(true) {
                reader::branch(connection, self.tree, &self.place)
            } else {
                reader::tree(connection, self.tree)
            }
        })
    }
}

/// The value of a tag of a tree whose records are kept. Nothing of the tree is folded.
///
/// # Errors
///
/// Fails if the journal cannot be read.
pub fn tree_tag(journal: &SqliteJournal, tree: Uuid, name: &str) -> Result<Option<String>, JournalError> {
    let sql =
        "SELECT value FROM trees, json_each(trees.tags) WHERE trees.id = ?1 AND json_each.key = ?2 AND NOT pruned";
    journal.read(|connection| {
        let mut statement = connection.prepare_cached(sql)?;
        Ok(statement.query_row([tree.to_string().as_str(), name], |row| row.get(0)).optional()?)
    })
}

/// Error of a look-up that found no single run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// No run has this ID.
    #[error("there is no run `{0}`")]
    NotFound(String),
    /// No run of the project has this place or ID.
    #[error("there is no run `{id}` in {}", project.display())]
    NotInProject {
        /// The text that was looked up.
        id: String,
        /// The project.
        project: PathBuf,
    },
    /// The beginning of an ID is so short that it would find a run by chance.
    #[error("`{0}` is too short to find a run by its ID: give at least {MIN_ID_BEGINNING} characters")]
    TooShort(String),
    /// The IDs of several runs begin like this.
    #[error("`{id}` is ambiguous; it matches these runs:\n{}", candidates.join("\n"))]
    Ambiguous {
        /// The text that was looked up.
        id: String,
        /// The runs it matches, each with its agent and the beginning of its task.
        candidates: Vec<String>,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl SqliteJournal {
    /// Finds a run by its ID, its short ID, the beginning of either, a submission key, or a place within the newest tree.
    ///
    /// A place means the newest tree of `project`, or of the whole journal without one. Everything else is unique in the journal
    /// and finds the runs of any project. The beginning of an ID has at least [`MIN_ID_BEGINNING`] characters.
    ///
    /// # Errors
    /// Fails if there is no such run, or more than one.
    pub fn find(&self, id: &str, project: Option<&Path>) -> Result<RunRef, FindError> {
        let (found, candidates) = self.read(|connection| Ok(look_up(connection, id.trim(), project)?))?;
        match (found, project) {
            (Some(found), _) => Ok(found),
            (None, _) if !candidates.is_empty() => Err(FindError::Ambiguous { id: id.to_owned(), candidates }),
            (None, Some(project)) if is_place(id.trim()) => {
                Err(FindError::NotInProject { id: id.to_owned(), project: project.to_owned() })
            }
            (None, _) if is_too_short(id.trim()) => Err(FindError::TooShort(id.to_owned())),
            (None, _) => Err(FindError::NotFound(id.to_owned())),
        }
    }
}

/// The run that `id` names, or the candidates if it is ambiguous.
fn look_up(
    connection: &Connection,
    id: &str,
    project: Option<&Path>,
) -> rusqlite::Result<(Option<RunRef>, Vec<String>)> {
    let uuid = id.parse::<Uuid>().ok().map(|uuid| uuid.to_string());
    let found = match uuid {
        Some(uuid) => one(connection, "runs.id = ?1", params![uuid])?,
        None => None,
    };
    if found.is_some() {
        return Ok((found, Vec::new()));
    }
    if let Some(found) = one(connection, "runs.id = (SELECT trees.id FROM trees WHERE key = ?1)", params![id])? {
        return Ok((Some(found), Vec::new()));
    }
    if is_place(id) {
        let found = in_newest_tree(connection, id, project)?;
        // A place that does not exist must not find a run of another project whose ID happens to begin with it.
        let is_only_place = project.is_some() && id.contains('.');
        if found.is_some() || is_only_place {
            return Ok((found, Vec::new()));
        }
    }
    by_beginning(connection, id)
}

/// Returns whether `id` could be the beginning of an ID if it were longer.
fn is_too_short(id: &str) -> bool {
    (1..MIN_ID_BEGINNING).contains(&id.len()) && !is_place(id) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether `id` is a place. One short ID in forty has only decimal digits; no run has such a number.
fn is_place(id: &str) -> bool {
    let is_short_id = id.len() >= SHORT_ID_LEN && !id.contains('.');
    !is_short_id && id.parse::<Place>().is_ok_and(|place| place.to_string() == id)
}

fn in_newest_tree(connection: &Connection, place: &str, project: Option<&Path>) -> rusqlite::Result<Option<RunRef>> {
    let Some(project) = project else {
        let newest = "place = ?1 AND tree = (SELECT id FROM trees ORDER BY started DESC, id DESC LIMIT 1)";
        return one(connection, newest, params![place]);
    };
    let newest =
        "place = ?1 AND tree = (SELECT id FROM trees WHERE project = ?2 ORDER BY started DESC, id DESC LIMIT 1)";
    one(connection, newest, params![place, project.to_string_lossy()])
}

const COLUMNS: &str = "SELECT tree, runs.id, place, agent, task, project FROM runs JOIN trees ON trees.id = runs.tree";

fn one(connection: &Connection, clause: &str, values: impl rusqlite::Params) -> rusqlite::Result<Option<RunRef>> {
    let sql = format!("{COLUMNS} WHERE {clause}");
    connection.prepare_cached(&sql)?.query_row(values, run_ref).optional()
}

fn run_ref(row: &Row<'_>) -> rusqlite::Result<RunRef> {
    let project: Option<String> = row.get(5)?;
    Ok(RunRef {
        tree: parsed(row, 0)?,
        run: parsed(row, 1)?,
        place: parsed(row, 2)?,
        agent: row.get(3)?,
        task: row.get(4)?,
        project: project.filter(|project| !project.is_empty()).map(PathBuf::from),
    })
}

/// Finds a run by the beginning of its short ID, else of its ID. IDs begin with the time, so the runs of one tree begin alike: if a
/// single root is among several matches, it is the result.
fn by_beginning(connection: &Connection, text: &str) -> rusqlite::Result<(Option<RunRef>, Vec<String>)> {
    let text = text.to_ascii_lowercase();
    if text.len() < MIN_ID_BEGINNING || !text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Ok((None, Vec::new()));
    }
    if text.len() <= SHORT_ID_LEN {
        let found = beginning(connection, "substr(runs.id, 29)", &text)?;
        match found.as_slice() {
            [] => (),
            [only] => return Ok((Some(only.clone()), Vec::new())),
            many => return Ok((None, candidates(many))),
        }
    }
    let found = beginning(connection, "runs.id", &text)?;
    let roots = found.iter().filter(|found| found.run == found.tree).count();
    match found.as_slice() {
        [only] => Ok((Some(only.clone()), Vec::new())),
        [root, ..] if roots == 1 => Ok((Some(root.clone()), Vec::new())),
        many => Ok((None, candidates(many))),
    }
}

fn beginning(connection: &Connection, column: &str, text: &str) -> rusqlite::Result<Vec<RunRef>> {
    let sql = format!(
        "{COLUMNS} WHERE {column} >= ?1 AND {column} < ?1 || 'g' ORDER BY runs.id = tree DESC, runs.id LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_map(params![text, int(CANDIDATES as u64 + 1)], run_ref)?;
    found.collect()
}

fn candidates(found: &[RunRef]) -> Vec<String> {
    let line = |run: &RunRef| {
        let task: String = run.task.chars().take(60).collect();
        format!("{} {} {} {} {task}", short_id(run.run), run.run, run.place, run.agent)
    };
    found.iter().take(CANDIDATES).map(line).collect()
}
