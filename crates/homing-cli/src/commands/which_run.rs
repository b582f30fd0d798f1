//! The run that a command is about: looked up in this project, or in all of them, and named in every line that acts on it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use homing::environment;
use homing_core::{
    definition::Isolation,
    fact::{Fact, Record, Spawned},
    sanitize,
    short_id::short_id,
};
use homing_runtime::{
    journal::sqlite::{FindError, RunRef, SqliteJournal},
    project_folder,
};
use uuid::Uuid;

use crate::{
    cli::{journal::ScopeArgs, run::WithArgs},
    columns,
    exit::Trouble,
    terminal,
};

/// Maximum number of characters of a task in a line about its run.
const MAX_TASK: usize = 40;

/// Returns the project of the working folder.
pub(crate) fn this_project(cwd: Option<&Path>) -> PathBuf {
    let folder = cwd.map_or_else(|| environment::current_folder().unwrap_or_default(), Path::to_owned);
    project_folder(&std::fs::canonicalize(&folder).unwrap_or(folder))
}

impl ScopeArgs {
    /// Returns the only project whose runs are meant, or `None` if those of all projects are.
    pub(crate) fn project(&self, cwd: Option<&Path>) -> Option<PathBuf> {
        (!self.all).then(|| this_project(cwd))
    }
}

/// Finds a run by its ID, or by its place in the newest tree of the project.
pub(crate) fn find(journal: &SqliteJournal, id: &str, project: Option<PathBuf>) -> Result<RunRef, Trouble> {
    journal.find(id, project.as_deref()).map_err(|error| {
        let trouble = Trouble::usage(error.to_string());
        match error {
            FindError::NotInProject { .. } => {
                trouble.hint("`homing runs --all` lists the runs of all projects; an ID works in any folder")
            }
            FindError::NotFound(_) => {
                trouble.hint("`homing runs` lists the runs of this project, `--all` those of all")
            }
            FindError::TooShort(_) | FindError::Ambiguous { .. } | FindError::Journal(_) => trouble,
        }
    })
}

/// Finds a run as [`find`] does. A tree that only the Restate server has, because another machine submitted it, is copied first.
pub(crate) async fn find_anywhere(
    journal: &SqliteJournal,
    id: &str,
    project: Option<PathBuf>,
) -> Result<RunRef, Trouble> {
    let is_unknown = matches!(journal.find(id, project.as_deref()), Err(FindError::NotFound(_)));
    if is_unknown && let Err(trouble) = super::restate::fetch(journal, id).await {
        terminal::say(&format!("warning: the run was only looked for on this machine: {}", trouble.message));
    }
    find(journal, id, project)
}

/// Names a run, its agent, its task and its project.
pub(crate) fn described(run: &RunRef) -> String {
    let place = if run.place.depth() == 0 { String::new() } else { format!("{} ", run.place) };
    let task = columns::cut(&sanitize::inert_line(run.task.trim()), MAX_TASK);
    let agent = sanitize::inert_line(&run.agent);
    format!("run {} ({place}{agent}, {task:?}){}", short_id(run.run), in_project(run.project.as_deref()))
}

/// Names a run of which only the ID is at hand.
pub(crate) fn described_by_id(journal: &SqliteJournal, run: Uuid) -> String {
    journal.find(&run.to_string(), None).map_or_else(|_| format!("run {}", short_id(run)), |found| described(&found))
}

/// Returns " in PROJECT", or nothing if the project is not known.
pub(crate) fn in_project(project: Option<&Path>) -> String {
    project.map(|project| format!(" in {}", sanitize::inert_line(&project.display().to_string()))).unwrap_or_default()
}

/// Returns the arguments with the folder in which a root was started, so that it continues there with the agents, the rules and the
/// trust of that folder. A folder that the user names wins.
pub(crate) fn in_recorded_folder(with: &WithArgs, root: &Spawned) -> Result<WithArgs, Trouble> {
    let folder = started_in(root);
    if with.cwd.is_some() {
        return Ok(with.clone());
    }
    if !folder.is_dir() {
        return Err(Trouble::usage(format!("the folder of this run is gone: {}", folder.display()))
            .hint("restore it, or name another one with --cwd"));
    }
    Ok(WithArgs { cwd: Some(folder.to_owned()), ..with.clone() })
}

/// Returns the folder in which a root was started. A root with a worktree of its own was started in the project.
fn started_in(root: &Spawned) -> &Path {
    match (&root.agent.execution.isolation, &root.project) {
        (Isolation::Worktree, Some(project)) => project,
        _ => &root.workdir,
    }
}

/// Returns the first fact of a tree.
pub(crate) fn root_of(records: &[Arc<Record>]) -> Option<&Arc<Spawned>> {
    records.first().and_then(|record| match &record.fact {
        Fact::Spawned(spawned) => Some(spawned),
        _ => None,
    })
}
