//! Replaces one file atomically: the new content is complete before it takes the place of the old one.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::Path,
};

use crate::file;

/// Replaces the content of `path`, which must still be `before`, by `after`. The file must be a regular one inside `root`.
pub(super) fn replace(path: &Path, root: &Path, before: &[u8], after: &[u8]) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file: not changed"));
    }
    let real = fs::canonicalize(path)?;
    if !real.starts_with(fs::canonicalize(root)?) {
        return Err(io::Error::other("reached through a symbolic link: not changed"));
    }
    if file::read(&real).map_err(io::Error::other)? != before {
        return Err(io::Error::other("changed in the meantime: not changed"));
    }
    let folder = real.parent().unwrap_or(Path::new("."));
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let new = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    let written = fill(new, after, &metadata).and_then(|()| fs::rename(&temporary, &real));
    if written.is_err() {
        // The old content is still in place; the rest of a failed attempt would only be in the way.
        _ = fs::remove_file(&temporary);
    }
    written
}

fn fill(mut new: File, content: &[u8], like: &fs::Metadata) -> io::Result<()> {
    new.set_permissions(like.permissions())?;
    new.write_all(content)?;
    new.sync_all()
}
