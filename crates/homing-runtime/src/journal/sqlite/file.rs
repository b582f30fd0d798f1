//! Finds or creates the journal's file: its folder, its permissions, and whether its file system supports locks. It does not
//! look at the content.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use crate::journal::JournalError;

/// Identifies a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file at `path`; `None` if there is none.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self { device: file.dev(), inode: file.ino() })
    }
}

/// Makes sure that there is a file at `path` that only its owner can read, on a file system that supports locks.
pub(super) fn prepare(path: &Path) -> Result<(), JournalError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    let unwritable = |what: String, error: io::Error| JournalError::Unwritable(format!("{what}: {error}"));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| unwritable(format!("cannot create the folder {}", folder.display()), error))?;
    refuse_network(folder)?;
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| unwritable(format!("cannot open {} for writing", path.display()), error))?;
    keep_private(&file)
        .map_err(|error| unwritable(format!("cannot restrict the permissions of {}", path.display()), error))
}

/// Removes the permissions of other users, which a copied file may have: transcripts are private.
fn keep_private(file: &fs::File) -> io::Result<()> {
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    file.set_permissions(fs::Permissions::from_mode(mode & 0o700))
}

#[cfg(target_os = "linux")]
fn refuse_network(folder: &Path) -> Result<(), JournalError> {
    let stat = rustix::fs::statfs(folder).map_err(|error| {
        JournalError::Unwritable(format!("cannot determine the file system of {}: {error}", folder.display()))
    })?;
    // The kernel uses 32 bits; the type of the field differs between platforms.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    let magic = stat.f_type as u32;
    match network_name(magic) {
        None => Ok(()),
        Some(name) => Err(JournalError::Unwritable(format!(
            "{} is on {name}, which does not support reliable locks between processes: choose a local file",
            folder.display()
        ))),
    }
}

#[cfg(not(target_os = "linux"))]
fn refuse_network(_: &Path) -> Result<(), JournalError> {
    Ok(())
}

/// Name of the network file system with this number in the kernel's `magic.h`.
#[cfg(target_os = "linux")]
fn network_name(magic: u32) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517b => Some("SMB"),
        0xff53_4d42 | 0xfe53_4d42 => Some("CIFS"),
        0x0102_1997 => Some("9p"),
        0x6573_5546 => Some("FUSE"),
        0x5346_414f => Some("AFS"),
        0x7375_7245 => Some("Coda"),
        0x564c => Some("NCP"),
        0x00c3_6400 => Some("Ceph"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x4750_4653 => Some("GPFS"),
        _ => None,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_recognised() {
        for (magic, name) in [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x0102_1997, "9p"), (0x6573_5546, "FUSE")] {
            assert_eq!(network_name(magic), Some(name));
        }
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(network_name(local), None);
        }
    }
}
