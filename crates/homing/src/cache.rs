//! The same agent, task, inputs and files need not be paid twice. Only where a host asks for it, and it says so.

use std::{path::Path, sync::Arc};

use homing_core::{
    envelope::{Envelope, Status},
    message::{FNV_START, fnv},
};
use homing_runtime::{
    RunHandle, SpawnError, Task,
    journal::{JournalError, sqlite::SqliteJournal},
};
use ignore::WalkBuilder;

use crate::Homing;

/// The most files that are looked at; a larger folder is never the same.
const MOST_FILES: usize = 100_000;

/// What came of a task that may have been done before.
pub enum Cached {
    /// It was: this is the recorded result, and nothing was spent.
    Before(Box<Envelope>),
    /// It was not: it runs now.
    Now(RunHandle, Keep),
}

/// Keeps a result for the next time.
#[must_use = "a result is kept only when it is asked for"]
pub struct Keep(Option<(Arc<SqliteJournal>, RunHandle, String)>);

impl Keep {
    /// Waits for the run's end and, if it is done, keeps its result.
    ///
    /// The key is that of the folder as it was before: an agent that changed files worked on what is not there any more.
    pub async fn keep(self) -> Result<(), JournalError> {
        let Some((journal, run, key)) = self.0 else { return Ok(()) };
        match run.wait().await.status {
            Status::Done => journal.set_cache_key(run.tree_id(), &key).await,
            _ => Ok(()),
        }
    }
}

impl Homing {
    /// Starts `task`, unless the same was done before: the same agent, words, context, model and schema, in a folder
    /// whose files are the same by name, size and time.
    pub async fn spawn_cached(&self, task: Task) -> Result<Cached, SpawnError> {
        let (Some(journal), Some(key)) = (self.journal.clone(), self.cache_key(&task)?) else {
            return Ok(Cached::Now(self.spawn(task)?, Keep(None)));
        };
        if let Some(envelope) = journal.cached(&key).await? {
            return Ok(Cached::Before(Box::new(envelope)));
        }
        let run = self.spawn(task)?;
        let keep = Keep(Some((journal, run.clone(), key)));
        Ok(Cached::Now(run, keep))
    }

    fn cache_key(&self, task: &Task) -> Result<Option<String>, SpawnError> {
        let agent = self.registry.get(&task.agent)?;
        let (spawned, _) = self.runtime.plan(task.clone())?;
        let Some(files) = fingerprint(&spawned.workdir) else { return Ok(None) };
        let said =
            serde_json::json!([**agent, spawned.task, spawned.context, spawned.models, spawned.schema, spawned.until]);
        Ok(Some(format!("{:016x}{files:016x}", fnv(FNV_START, said.to_string().as_bytes()))))
    }
}

/// The files of a folder by name, size and time of change; what git ignores does not count.
fn fingerprint(folder: &Path) -> Option<u64> {
    let mut hash = FNV_START;
    let walk = WalkBuilder::new(folder)
        .hidden(false)
        .filter_entry(|it| it.file_name() != ".git")
        .sort_by_file_name(Ord::cmp)
        .build();
    for (count, entry) in walk.filter_map(Result::ok).enumerate() {
        if count > MOST_FILES {
            return None;
        }
        let Ok(about) = entry.metadata() else { continue };
        let changed = about.modified().ok().and_then(|it| it.duration_since(std::time::UNIX_EPOCH).ok());
        hash = fnv(hash, entry.path().as_os_str().as_encoded_bytes());
        if about.is_file() {
            hash = fnv(hash, &about.len().to_le_bytes());
            hash = fnv(hash, &changed.unwrap_or_default().as_nanos().to_le_bytes());
        }
    }
    Some(hash)
}
