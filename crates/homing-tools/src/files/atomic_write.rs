//! Replaces a file atomically: readers see the old contents or the new ones, never a mixture.

use std::{
    fs::{File, Metadata},
    io::Write,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use homing_core::{receipts::FileReceipt, tool::ToolContext};
use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, unlinkat},
    io::Errno,
};
use serde_json::Value;

use crate::files::{
    contents::{ContentStore, sha256},
    file_versions::{FileStat, FileVersion, LastWriter, LastWriters, SeenVersions, hash},
    path_arg::RequestedPath,
    workspace_files::WriteTarget,
};

/// State that the tools that write files share.
#[derive(Debug, Default)]
pub(crate) struct FileWrites {
    pub(crate) writers: LastWriters,
    /// Keeps contents before and after each change; without it changes cannot be undone.
    pub(crate) contents: Option<Arc<ContentStore>>,
}

impl FileWrites {
    /// Keeps contents, and returns their hash.
    fn keep(&self, content: &[u8]) -> String {
        self.contents.as_ref().map_or_else(|| sha256(content), |contents| contents.keep(content))
    }
}

/// Writes the second contents to `target`, which has the first, and returns the receipt. If the file differs from the one that
/// `target` describes, another process changed it, and an error is returned instead. A new file gets the permission bits `mode`.
pub(crate) fn replace(
    context: &ToolContext,
    writes: &FileWrites,
    requested: &RequestedPath,
    target: &WriteTarget,
    (old, content): (Option<&[u8]>, &[u8]),
    mode: Option<u32>,
) -> Result<Option<Value>, String> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", requested.shown);
    let before = target.existing.as_ref().map(|opened| &opened.metadata);
    // Kept before the file changes: a crash in between must not lose them.
    let (old, new) = (old.map(|old| writes.keep(old)), writes.keep(content));
    let staged = StagedFile::new(context, &target.folder, content, before, mode).map_err(failed)?;
    let mut last = writes.writers.lock();
    let now = stat(&target.folder, Path::new(&target.name)).map_err(failed)?;
    if now.as_ref().map(FileStat::of) != before.map(FileStat::of) {
        return Err(format!("{} was just changed by another process: read it again before you write", requested.shown));
    }
    staged.move_to(target, before.is_some()).map_err(|error| match error {
        Errno::EXIST => format!("{} was just created by another process: read it before you write", requested.shown),
        error => failed(error.into()),
    })?;
    last.insert(target.real.clone(), LastWriter::of(context));
    drop(last);
    if let Ok(Some(metadata)) = stat(&target.folder, Path::new(&target.name)) {
        let version = FileVersion { stat: FileStat::of(&metadata), hash: Some(hash(content)) };
        context.state.get::<SeenVersions>().note(&target.real, version);
    }
    let path = requested.shown.clone();
    let receipt = FileReceipt { path, sha256: new, created: old.is_none(), before: old, ..FileReceipt::default() };
    Ok(serde_json::to_value(receipt).ok())
}

/// Deletes `target`, which has the contents `old`, and returns the receipt.
pub(crate) fn remove(
    writes: &FileWrites,
    requested: &RequestedPath,
    target: &WriteTarget,
    old: Option<&[u8]>,
) -> Result<Option<Value>, String> {
    let failed = |error: std::io::Error| format!("cannot delete {}: {error}", requested.shown);
    let before = target.existing.as_ref().map(|opened| &opened.metadata);
    let hash = old.map(|old| writes.keep(old));
    let mut last = writes.writers.lock();
    let now = stat(&target.folder, Path::new(&target.name)).map_err(failed)?;
    if now.as_ref().map(FileStat::of) != before.map(FileStat::of) {
        return Err(format!("{} was just changed by another process", requested.shown));
    }
    unlinkat(&target.folder, &target.name, AtFlags::empty()).map_err(|error| failed(error.into()))?;
    last.remove(&target.real);
    let (path, mode) = (requested.shown.clone(), before.map(|metadata| metadata.mode() & 0o7777));
    let receipt = FileReceipt { path, before: hash, deleted: true, mode, ..FileReceipt::default() };
    Ok(serde_json::to_value(receipt).ok())
}

/// Returns the metadata of `name` in `folder`; `None` if it does not exist.
fn stat(folder: &OwnedFd, name: &Path) -> std::io::Result<Option<Metadata>> {
    match openat(folder, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => File::from(fd).metadata().map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// New contents in a temporary file beside the file to replace; removed on drop unless moved.
struct StagedFile<'a> {
    folder: &'a OwnedFd,
    name: Option<String>,
}

impl<'a> StagedFile<'a> {
    fn new(
        context: &ToolContext,
        folder: &'a OwnedFd,
        content: &[u8],
        before: Option<&Metadata>,
        mode: Option<u32>,
    ) -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            ".homing-{}-{}-{}.tmp",
            context.key.run.simple(),
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(folder, &name, flags, Mode::from_raw_mode(0o644))?);
        let staged = Self { folder, name: Some(name) };
        file.write_all(content)?;
        if let Some(before) = before {
            keep_owner_and_mode(&file, before)?;
        } else if let Some(mode) = mode {
            file.set_permissions(std::fs::Permissions::from_mode(mode & 0o777))?;
        }
        file.sync_data()?;
        Ok(staged)
    }

    fn move_to(mut self, target: &WriteTarget, replacing: bool) -> Result<(), Errno> {
        let name = self.name.as_ref().expect("set until moved");
        let moved = if replacing {
            renameat(self.folder, name, &target.folder, &target.name)
        } else {
            rename_new(self.folder, name, target)
        };
        if moved.is_ok() {
            self.name = None;
        }
        moved
    }
}

/// Renames without replacing. On file systems that do not support this, the check before the rename must suffice.
fn rename_new(folder: &OwnedFd, name: &str, target: &WriteTarget) -> Result<(), Errno> {
    match renameat_with(folder, name, &target.folder, &target.name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => renameat(folder, name, &target.folder, &target.name),
        moved => moved,
    }
}

fn keep_owner_and_mode(file: &File, before: &Metadata) -> std::io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        // Only root may change the owner; the error is ignored for other users.
        let _ = std::os::unix::fs::fchown(file, Some(before.uid()), Some(before.gid()));
    }
    file.set_permissions(std::fs::Permissions::from_mode(before.mode() & 0o7777))
}

impl Drop for StagedFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(self.folder, name, AtFlags::empty());
        }
    }
}
