//! The projects that the server has opened. A run that is continued uses the agents and permissions of its own project.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homing::{JournalError, RunHandle, Team, crates::runtime::journal::sqlite::SqliteJournal, crates::teams};
use uuid::Uuid;

use crate::{
    host::{HostError, OpenProject, WebHost},
    problem::Problem,
};

/// The projects that the server has opened.
pub(crate) struct Projects {
    host: Arc<dyn WebHost>,
    /// The folder in which runs are started.
    pub(crate) folder: PathBuf,
    open: Mutex<OpenProjects>,
}

#[derive(Default)]
struct OpenProjects {
    /// The present form of each project, with the fingerprint of its agents.
    current: HashMap<PathBuf, (u64, Arc<dyn OpenProject>)>,
    /// Projects with other agents or teams, whose runs may still work.
    earlier: Vec<Arc<dyn OpenProject>>,
}

impl Projects {
    pub(crate) fn new(host: Arc<dyn WebHost>, folder: PathBuf) -> Self {
        Self { host, folder, open: Mutex::default() }
    }

    /// Returns the project in which runs are started.
    pub(crate) async fn main(&self) -> Result<Arc<dyn OpenProject>, HostError> {
        self.of_folder(&self.folder).await
    }

    /// Returns the project of a folder. It is opened again if its agents have changed.
    pub(crate) async fn of_folder(&self, folder: &Path) -> Result<Arc<dyn OpenProject>, HostError> {
        let (host, path) = (self.host.clone(), folder.to_owned());
        let stamp = tokio::task::spawn_blocking(move || host.stamp(&path)).await.unwrap_or_default();
        if let Some((known, project)) = self.lock().current.get(folder)
            && *known == stamp
        {
            return Ok(project.clone());
        }
        let project = self.host.open(folder, Vec::new()).await?;
        let mut open = self.lock();
        if let Some((_, before)) = open.current.insert(folder.to_owned(), (stamp, project.clone())) {
            open.keep(before);
        }
        Ok(project)
    }

    /// Returns the project of a recorded tree, with the teams that were recorded in it.
    pub(crate) async fn of_tree(
        &self,
        journal: &Arc<SqliteJournal>,
        tree: Uuid,
    ) -> Result<Arc<dyn OpenProject>, Problem> {
        let reader = journal.clone();
        let read = move || -> Result<(PathBuf, Vec<Team>), JournalError> {
            let records = reader.follow(tree, 0)?;
            let recorded = teams::recorded_in(records.iter().map(|record| &**record));
            let fold = reader.tree(tree)?;
            let folder = fold.root().map(|root| root.spawned.workdir.clone()).unwrap_or_default();
            Ok((folder, recorded))
        };
        let (folder, teams) = crate::call::blocking(move || Ok(read()?)).await?;
        let folder = if folder.is_dir() { folder } else { self.folder.clone() };
        if teams.is_empty() {
            return Ok(self.of_folder(&folder).await?);
        }
        let project = self.host.open(&folder, teams).await?;
        self.lock().keep(project.clone());
        Ok(project)
    }

    /// Returns the root of a tree, if this process drives it.
    pub(crate) fn live_run(&self, tree: Uuid) -> Option<RunHandle> {
        self.all().iter().find_map(|project| project.homing().runtime().get(tree))
    }

    /// Returns the runs that this process drives.
    pub(crate) fn live_runs(&self) -> Vec<RunHandle> {
        let runs = self.all().into_iter().flat_map(|project| project.homing().runs());
        runs.filter(|run| !run.status().is_over()).collect()
    }

    fn all(&self) -> Vec<Arc<dyn OpenProject>> {
        let open = self.lock();
        open.current.values().map(|(_, project)| project).chain(&open.earlier).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, OpenProjects> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenProjects {
    /// Keeps a project as long as its runs work.
    fn keep(&mut self, project: Arc<dyn OpenProject>) {
        self.earlier.retain(|project| project.homing().runs().iter().any(|run| !run.status().is_over()));
        self.earlier.push(project);
    }
}
