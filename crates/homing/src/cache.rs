//! Reuses the recorded result of an identical earlier run, if the host asks for it.

use std::{path::Path, sync::Arc, time::UNIX_EPOCH};

use homing_core::envelope::{Envelope, Status};
use homing_runtime::{
    RunHandle, SpawnError, Task,
    journal::{JournalError, sqlite::SqliteJournal},
};
use ignore::WalkBuilder;
use sha2::{Digest, Sha256};

use crate::Homing;

/// A folder with more entries than this is never treated as unchanged.
const MAX_ENTRIES: usize = 100_000;

/// The result of [`Homing::spawn_cached`].
///
/// # Examples
///
/// ```
/// use homing::{Cached, Envelope, Homing, SpawnError, Task};
///
/// async fn run_once(homing: &Homing, task: Task) -> Result<Envelope, SpawnError> {
///     match homing.spawn_cached(task).await? {
///         Cached::Before(envelope) => Ok(*envelope),
///         Cached::Now(run, keep) => {
///             keep.keep().await?;
///             Ok(run.await)
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub enum Cached {
    /// The recorded result of an identical earlier run. Nothing was spent.
    Before(Box<Envelope>),
    /// There is none: the task runs now.
    Now(RunHandle, Keep),
}

/// Stores a result for later calls of [`Homing::spawn_cached`].
#[derive(Debug)]
#[must_use = "the result is stored only by calling `keep`"]
pub struct Keep(Option<(Arc<SqliteJournal>, RunHandle, String)>);

impl Keep {
    /// Waits for the end of the run and stores its result if it is done.
    ///
    /// The key describes the folder as it was before the run: an agent that changed files worked on files that no longer exist.
    ///
    /// # Errors
    ///
    /// Fails if the journal cannot be written.
    pub async fn keep(self) -> Result<(), JournalError> {
        let Some((journal, run, key)) = self.0 else { return Ok(()) };
        match run.wait().await.status {
            Status::Done => journal.set_cache_key(run.tree_id(), &key).await,
            _ => Ok(()),
        }
    }
}

impl Homing {
    /// Spawns `task`, unless an identical run is recorded: same agent, task, context, model and schema, in a folder whose
    /// files have the same names, sizes and modification times.
    ///
    /// # Errors
    ///
    /// Fails like [`Homing::spawn`], or if the journal cannot be read.
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

    /// The key decides whether a paid answer is reused, so it must not collide even for hostile input: SHA-256.
    fn cache_key(&self, task: &Task) -> Result<Option<String>, SpawnError> {
        let agent = self.registry.get(&task.agent)?;
        let (spawned, _) = self.runtime.plan(task.clone())?;
        let mut hash = Sha256::new();
        let inputs =
            serde_json::json!([**agent, spawned.task, spawned.context, spawned.models, spawned.schema, spawned.until]);
        add_part(&mut hash, inputs.to_string().as_bytes());
        spawned.attachments.iter().for_each(|image| add_part(&mut hash, image.base64.as_bytes()));
        Ok(add_files(&mut hash, &spawned.workdir).map(|()| format!("{:x}", hash.finalize())))
    }
}

/// Adds the files of a folder by path, size and modification time. Files that git ignores do not count. Returns `None` if
/// there are too many.
fn add_files(hash: &mut Sha256, folder: &Path) -> Option<()> {
    let walk = WalkBuilder::new(folder)
        .hidden(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_name(Ord::cmp)
        .build();
    for (count, entry) in walk.filter_map(Result::ok).enumerate() {
        if count > MAX_ENTRIES {
            return None;
        }
        let Ok(metadata) = entry.metadata() else { continue };
        add_part(hash, entry.path().as_os_str().as_encoded_bytes());
        if metadata.is_file() {
            let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            add_part(hash, &metadata.len().to_le_bytes());
            add_part(hash, &modified.unwrap_or_default().as_nanos().to_le_bytes());
        }
    }
    Some(())
}

/// Adds a part with its length in front, so that no two lists of parts give the same bytes.
fn add_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_kept_apart() {
        let digest = |parts: &[&str]| {
            let mut hash = Sha256::new();
            parts.iter().for_each(|part| add_part(&mut hash, part.as_bytes()));
            hash.finalize()
        };
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }
}
