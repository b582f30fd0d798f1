//! Putting new contents in a file's place in one step: readers see the old file or the new one, never half of either.
//! Contents and their meaning are not known here.

use std::{
    fs::{File, Metadata},
    io::Write,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use homing_core::tool::ToolContext;
use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat, renameat_with, unlinkat},
    io::Errno,
};

use crate::files::{
    file_versions::{Face, SeenVersion, Stamp, Writer, Writers, hash},
    path_arg::RequestedPath,
    workspace_files::Target,
};

/// Writes `content` at `target`. `before` is what the caller took the file to be; anything else found there now is
/// somebody else's work, and is told, not overwritten.
pub(crate) fn replace(
    context: &ToolContext,
    writers: &Writers,
    wanted: &RequestedPath,
    target: &Target,
    content: &[u8],
) -> Result<(), String> {
    let broken = |error: std::io::Error| format!("{} could not be written: {error}", wanted.shown);
    let before = target.existing.as_ref().map(|it| &it.metadata);
    let staged = Staged::new(context, &target.folder, content, before).map_err(broken)?;
    let mut last = writers.lock();
    let now = look(&target.folder, Path::new(&target.name)).map_err(broken)?;
    if now.as_ref().map(Face::of) != before.map(Face::of) {
        return Err(format!("{} was changed by somebody else just now: read it again, then decide", wanted.shown));
    }
    staged.move_to(target, before.is_some()).map_err(|error| match error {
        Errno::EXIST => format!("{} was created by somebody else just now: read it first", wanted.shown),
        error => broken(error.into()),
    })?;
    last.insert(target.real.clone(), Writer::of(context));
    drop(last);
    if let Ok(Some(metadata)) = look(&target.folder, Path::new(&target.name)) {
        let stamp = Stamp { face: Face::of(&metadata), hash: Some(hash(content)) };
        context.state.get::<SeenVersion>().note(&target.real, stamp);
    }
    Ok(())
}

/// The state of `name` in `folder`; `None` where there is nothing.
fn look(folder: &OwnedFd, name: &Path) -> std::io::Result<Option<Metadata>> {
    match openat(folder, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => File::from(fd).metadata().map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// New contents under a name of their own, beside the file they are to replace; gone when not moved.
struct Staged<'a> {
    folder: &'a OwnedFd,
    name: Option<String>,
}

impl<'a> Staged<'a> {
    fn new(
        context: &ToolContext,
        folder: &'a OwnedFd,
        content: &[u8],
        before: Option<&Metadata>,
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
        }
        file.sync_data()?;
        Ok(staged)
    }

    fn move_to(mut self, target: &Target, replacing: bool) -> Result<(), Errno> {
        let name = self.name.as_ref().expect("set until moved");
        let moved = match replacing {
            true => renameat(self.folder, name, &target.folder, &target.name),
            false => rename_to_nothing(self.folder, name, target),
        };
        if moved.is_ok() {
            self.name = None;
        }
        moved
    }
}

/// Some file systems cannot refuse to replace; there the look before must do.
fn rename_to_nothing(folder: &OwnedFd, name: &str, target: &Target) -> Result<(), Errno> {
    match renameat_with(folder, name, &target.folder, &target.name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => renameat(folder, name, &target.folder, &target.name),
        moved => moved,
    }
}

fn keep_owner_and_mode(file: &File, before: &Metadata) -> std::io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        // Only root may give files away; others keep what they made.
        let _ = std::os::unix::fs::fchown(file, Some(before.uid()), Some(before.gid()));
    }
    file.set_permissions(std::fs::Permissions::from_mode(before.mode() & 0o7777))
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(self.folder, name, AtFlags::empty());
        }
    }
}
