//! What a run has seen of files, and which run wrote one last: so that nobody's change is overwritten unseen.
//! It remembers stamps, never contents.

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

/// A file's state as the system tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Face {
    inode: (u64, u64),
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Face {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file's state at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) face: Face,
    /// Of the whole content, where all of it was read.
    pub(crate) hash: Option<u64>,
}

impl Stamp {
    /// Whether the file is still what it was. Contents decide where both are known: a clock may be too coarse to show a
    /// change, and a changed time without a changed byte is none.
    pub(crate) fn still_holds(&self, now: &Self) -> bool {
        match (self.hash, now.hash) {
            (Some(then), Some(now)) => then == now,
            (Some(_), None) | (None, Some(_)) | (None, None) => self.face == now.face,
        }
    }
}

/// A fingerprint of contents; tells changes apart, not enemies.
pub(crate) fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}

/// What one run has seen.
#[derive(Default)]
pub(crate) struct SeenVersion(Mutex<HashMap<PathBuf, Stamp>>);

impl SeenVersion {
    pub(crate) fn note(&self, path: &Path, stamp: Stamp) {
        lock(&self.0).insert(path.to_owned(), stamp);
    }

    pub(crate) fn get(&self, path: &Path) -> Option<Stamp> {
        lock(&self.0).get(path).copied()
    }
}

/// Who wrote a file last.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) run: Uuid,
    pub(crate) who: String,
}

impl Writer {
    pub(crate) fn of(context: &ToolContext) -> Self {
        Self { run: context.key.run, who: format!("agent {} (run {})", context.agent, context.place) }
    }
}

/// The last writers of files, shared by all runs whose tools were made together.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<HashMap<PathBuf, Writer>>);

impl Writers {
    /// Held from the last look at a file until its replacement, so that of two runs one sees the other.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Writer>> {
        lock(&self.0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
