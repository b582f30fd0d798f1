//! Finds or makes the journal's file: its folder, its mode, and whether its file system can be trusted with locks. It does
//! not know what is inside.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use crate::journal::JournalError;

/// Makes sure that there is a file at `path` that only its owner can read, on a file system that keeps locks.
pub(super) fn prepare(path: &Path) -> Result<(), JournalError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    let trouble = |what: &str, error: io::Error| {
        JournalError::Unwritable(format!("{what}: {error}; choose another file with --journal"))
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| trouble(&format!("the folder {} cannot be made", folder.display()), error))?;
    refuse_network(folder)?;
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| trouble(&format!("{} cannot be opened for writing", path.display()), error))?;
    keep_private(&file).map_err(|error| trouble(&format!("{} cannot be made private", path.display()), error))
}

/// Transcripts are nobody else's business, also where somebody copied the file with another mode.
fn keep_private(file: &fs::File) -> io::Result<()> {
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    file.set_permissions(fs::Permissions::from_mode(mode & 0o700))
}

#[cfg(target_os = "linux")]
fn refuse_network(folder: &Path) -> Result<(), JournalError> {
    let stat = rustix::fs::statfs(folder)
        .map_err(|error| JournalError::Unwritable(format!("{} cannot be examined: {error}", folder.display())))?;
    // The kernel's numbers are 32 bits wide; the field's type differs between platforms.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)]
    let magic = stat.f_type as u32;
    match network_name(magic) {
        None => Ok(()),
        Some(name) => Err(JournalError::Unwritable(format!(
            "{} is on {name}, where locks between processes cannot be relied on: choose a local file with --journal",
            folder.display()
        ))),
    }
}

#[cfg(not(target_os = "linux"))]
fn refuse_network(_: &Path) -> Result<(), JournalError> {
    Ok(())
}

/// The network file system of this number, as in the kernel's `magic.h`.
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
    fn network_file_systems_are_known_by_their_numbers_and_local_ones_are_not_among_them() {
        for (magic, name) in [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x0102_1997, "9p"), (0x6573_5546, "FUSE")] {
            assert_eq!(network_name(magic), Some(name));
        }
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(network_name(local), None);
        }
    }
}
