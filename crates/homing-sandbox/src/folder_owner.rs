//! Records which process a private folder belongs to, and finds folders whose process was killed.
//!
//! A process ID alone is not enough: it is used again, and a home folder may be shared by containers and machines, whose
//! processes cannot be seen from here. A folder counts as abandoned only if that is certain.

use std::{
    fs,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::fs::{Mode, OFlags, openat};
use serde::{Deserialize, Serialize};

const FILE: &str = "owner";

/// A process, identified across reboots, containers and machines.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FolderOwner {
    machine: String,
    boot: String,
    pid_namespace: String,
    pid: u32,
    /// The start of the process in clock ticks after the boot.
    started: u64,
}

/// Records this process as the owner of a folder. Commands cannot write the file.
pub(crate) fn record(folder: &OwnedFd) -> io::Result<()> {
    let Some(owner) = FolderOwner::this_process() else { return Ok(()) };
    let text = serde_json::to_string(&owner)?;
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = fs::File::from(openat(folder, FILE, flags, Mode::RUSR | Mode::WUSR)?);
    let mut found = String::new();
    file.read_to_string(&mut found)?;
    if found == text {
        return Ok(());
    }
    // A resumed run has another owner than before.
    file.set_len(0)?;
    io::Seek::rewind(&mut file)?;
    file.write_all(text.as_bytes())
}

/// Returns true if the folder's owner is known and has ended.
pub(crate) fn is_abandoned(folder: &Path) -> bool {
    let owner = fs::read(folder.join(FILE)).ok().and_then(|bytes| serde_json::from_slice::<FolderOwner>(&bytes).ok());
    let (Some(owner), Some(this)) = (owner, FolderOwner::this_process()) else { return false };
    let is_earlier_boot = owner.machine == this.machine && owner.boot != this.boot;
    let is_visible = owner.boot == this.boot && owner.pid_namespace == this.pid_namespace;
    is_earlier_boot || (is_visible && start_of(owner.pid) != Some(owner.started))
}

impl FolderOwner {
    /// Returns `None` where the system does not tell enough about processes.
    fn this_process() -> Option<Self> {
        let line = |path: &str| {
            fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let pid = std::process::id();
        Some(Self {
            // Without an identity of the machine, another boot could be another machine.
            machine: line("/etc/machine-id").unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            boot: line("/proc/sys/kernel/random/boot_id")?,
            pid_namespace: fs::read_link("/proc/self/ns/pid").ok()?.to_str()?.to_owned(),
            pid,
            started: start_of(pid)?,
        })
    }
}

fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // A zombie has ended.
    (*fields.first()? != "Z").then(|| fields.get(19)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abandoned(change: impl FnOnce(&mut FolderOwner)) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let mut owner = FolderOwner::this_process().unwrap();
        change(&mut owner);
        fs::write(folder.path().join(FILE), serde_json::to_string(&owner).unwrap()).unwrap();
        is_abandoned(folder.path())
    }

    #[test]
    fn folder_is_abandoned_only_if_its_process_has_certainly_ended() {
        assert!(!abandoned(|_| ()));
        assert!(abandoned(|owner| owner.started += 1), "the process ID was used again");
        assert!(abandoned(|owner| owner.pid = u32::MAX));
        assert!(abandoned(|owner| owner.boot = "earlier".to_owned()) == Path::new("/etc/machine-id").exists());
        let elsewhere = |owner: &mut FolderOwner| {
            owner.machine = "other".to_owned();
            owner.boot = "other".to_owned();
        };
        assert!(!abandoned(elsewhere));
        assert!(!abandoned(|owner| {
            owner.pid_namespace = "pid:[1]".to_owned();
            owner.pid = u32::MAX;
        }));
        assert!(!is_abandoned(tempfile::tempdir().unwrap().path()), "a folder without an owner");
    }
}
