//! Tracks the versions of files that a run has read and the last writer of each file, so that no run overwrites a change
//! that it has not seen. Only metadata and hashes are kept.

use std::{
    collections::HashMap,
    fs::Metadata,
    hash::{DefaultHasher, Hasher},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use homing_core::tool::ToolContext;
use uuid::Uuid;

/// The metadata that changes when a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStat {
    inode: (u64, u64),
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStat {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A version of a file: its metadata and, if known, a hash of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    pub(crate) stat: FileStat,
    /// The hash of the whole contents; `None` if only a part was read.
    pub(crate) hash: Option<u64>,
}

impl FileVersion {
    /// Returns true if the file is unchanged. If both hashes are known they decide: a clock may be too coarse to show a
    /// change, and a new time without a changed byte is not a change.
    pub(crate) fn is_same(&self, now: &Self) -> bool {
        match (self.hash, now.hash) {
            (Some(then), Some(now)) => then == now,
            (Some(_), None) | (None, Some(_)) | (None, None) => self.stat == now.stat,
        }
    }
}

/// Hashes contents. It detects changes, but is not collision-resistant against an attacker.
pub(crate) fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}

/// The versions of files that one run has read or written.
#[derive(Default)]
pub(crate) struct SeenVersions(Mutex<HashMap<PathBuf, FileVersion>>);

impl SeenVersions {
    pub(crate) fn note(&self, path: &Path, version: FileVersion) {
        lock(&self.0).insert(path.to_owned(), version);
    }

    pub(crate) fn get(&self, path: &Path) -> Option<FileVersion> {
        lock(&self.0).get(path).copied()
    }
}

/// The run that wrote a file last.
#[derive(Clone, Debug)]
pub(crate) struct LastWriter {
    pub(crate) run: Uuid,
    pub(crate) description: String,
}

impl LastWriter {
    pub(crate) fn of(context: &ToolContext) -> Self {
        Self { run: context.key.run, description: format!("agent {} (run {})", context.agent, context.place) }
    }
}

/// The last writers of files, shared by all runs whose tools were made together.
#[derive(Debug, Default)]
pub(crate) struct LastWriters(Mutex<HashMap<PathBuf, LastWriter>>);

impl LastWriters {
    /// Locks the table. Hold the lock from the last check of a file until its replacement, so that two runs cannot both
    /// pass the check.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, LastWriter>> {
        lock(&self.0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
