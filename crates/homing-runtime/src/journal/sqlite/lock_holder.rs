//! Names the process that holds the write lock of a journal, so that a user knows which process to continue or end.

use std::{fmt, fs, os::unix::fs::MetadataExt, path::Path};

/// The byte of the `-shm` file that SQLite locks while a transaction writes (`WAL_WRITE_LOCK`).
const WRITE_LOCK_BYTE: &str = "120";

/// The process that holds the write lock of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process ID.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// True if it was stopped, as Ctrl-Z does, so that it will not let go by itself.
    pub is_stopped: bool,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} (`{}`)", self.pid, self.command)?;
        if self.is_stopped { f.write_str(", which is stopped") } else { Ok(()) }
    }
}

impl LockHolder {
    /// Finds the holder in the kernel's list of locks; `None` if there is none, or no such list.
    ///
    /// The file is not opened: closing it would drop the locks of this process on it.
    pub(super) fn of(journal: &Path) -> Option<Self> {
        let mut shared = journal.as_os_str().to_owned();
        shared.push("-shm");
        let inode = fs::metadata(&shared).ok()?.ino().to_string();
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let pid = locks.lines().find_map(|line| holder_in(line, &inode))?;
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_stopped = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']));
        Some(Self { pid, command: command.chars().take(80).collect(), is_stopped })
    }
}

/// The process of a line such as `1: POSIX  ADVISORY  WRITE 4711 08:01:1234 120 120`, if it is the write lock.
fn holder_in(line: &str, inode: &str) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    let (kind, _, access) = (fields.next()?, fields.next()?, fields.next()?);
    let (pid, file, from) = (fields.next()?, fields.next()?, fields.next()?);
    let is_it =
        kind == "POSIX" && access == "WRITE" && from == WRITE_LOCK_BYTE && file.rsplit(':').next() == Some(inode);
    if is_it { pid.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_lock_is_found_in_the_list_of_locks() {
        let lock = "7: POSIX  ADVISORY  WRITE 4711 08:01:1234 120 120";
        assert_eq!(holder_in(lock, "1234"), Some(4711));
        assert_eq!(holder_in(lock, "1235"), None);
        assert_eq!(holder_in("7: POSIX  ADVISORY  READ 4711 08:01:1234 123 123", "1234"), None);
        assert_eq!(holder_in("7: -> POSIX  ADVISORY  WRITE 4711 08:01:1234 120 120", "1234"), None);
        assert_eq!(holder_in("", "1234"), None);
    }
}
