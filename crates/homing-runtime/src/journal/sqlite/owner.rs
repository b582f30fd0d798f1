//! Owners of trees: one open journal of one process, and whether that process is still alive.
//!
//! A process ID alone does not identify a process: IDs are reused, and they mean nothing after a reboot, in another PID
//! namespace or on another host. So an owner records the start time of its process, the boot, the namespace and the host.
//! On the same host the process table decides, at once and without waiting: a process that is stopped is alive, a zombie is
//! dead. Only if the process table cannot be seen does the heartbeat count, with a timeout long enough that a busy machine
//! is not taken for a dead one. A wrong answer loses time, never data: fencing (see `ownership.rs`) keeps a former owner
//! from writing.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use crate::journal::sqlite::row::{count, int};

/// An owner on another host counts as dead after this many milliseconds without a heartbeat.
const HEARTBEAT_TIMEOUT_MS: u64 = 30_000;

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// One open journal of one process, identified for other processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// ID of the open journal: one process may open the same file more than once.
    pub(super) id: String,
    pub(super) pid: u32,
    /// Start time of the process in kernel ticks, which tells apart two processes with the same ID.
    pub(super) start: u64,
    pub(super) boot_id: String,
    /// The PID namespace; process IDs mean nothing outside of it.
    pub(super) pid_ns: String,
    pub(super) host: String,
    pub(super) heartbeat: u64,
}

/// The name of this machine.
pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Owner {
    /// The owner that stands for a journal opened by this process.
    pub(super) fn this() -> Self {
        let pid = std::process::id();
        Self {
            id: Uuid::now_v7().to_string(),
            pid,
            start: start_time(pid).unwrap_or(0),
            boot_id: first_line("/proc/sys/kernel/random/boot_id"),
            pid_ns: std::fs::read_link("/proc/self/ns/pid")
                .map_or_else(|_| String::new(), |link| link.to_string_lossy().into_owned()),
            host: host_name(),
            heartbeat: now(),
        }
    }

    /// Returns whether the process is alive, as far as `me` can see.
    pub(super) fn is_alive(&self, me: &Self) -> bool {
        if self.id == me.id {
            return true;
        }
        if self.host == me.host && self.boot_id != me.boot_id {
            return false;
        }
        if self.host == me.host && self.pid_ns == me.pid_ns {
            return is_same_process(self.pid, self.start);
        }
        self.heartbeat.saturating_add(HEARTBEAT_TIMEOUT_MS) > now()
    }

    /// The owner with this ID; `None` if it has closed its journal.
    pub(super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection
            .prepare_cached("SELECT id, pid, start, boot_id, pid_ns, host, heartbeat FROM owners WHERE id = ?1")?;
        statement.query_row([id], Self::from_row).optional()
    }

    /// All recorded owners.
    pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Self>> {
        let mut statement =
            connection.prepare_cached("SELECT id, pid, start, boot_id, pid_ns, host, heartbeat FROM owners")?;
        statement.query_map([], Self::from_row)?.collect()
    }

    /// Returns whether any owner is recorded.
    pub(super) fn is_any_recorded(connection: &Connection) -> rusqlite::Result<bool> {
        connection.query_row("SELECT EXISTS (SELECT 1 FROM owners)", [], |row| row.get(0))
    }

    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            pid: row.get(1)?,
            start: count(row.get(2)?),
            boot_id: row.get(3)?,
            pid_ns: row.get(4)?,
            host: row.get(5)?,
            heartbeat: count(row.get(6)?),
        })
    }

    /// Records this owner, or renews its heartbeat if it is recorded.
    pub(super) fn beat(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "INSERT INTO owners (id, pid, start, boot_id, pid_ns, host, heartbeat) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (id) DO UPDATE SET heartbeat = excluded.heartbeat",
        )?;
        let (start, beat) = (int(self.start), int(now()));
        statement.execute(params![self.id, self.pid, start, self.boot_id, self.pid_ns, self.host, beat])?;
        Ok(())
    }

    /// Returns whether this owner is recorded. A journal that was only read is not, and then closing it writes nothing.
    pub(super) fn is_recorded(&self, connection: &Connection) -> bool {
        matches!(Self::find(connection, &self.id), Ok(Some(_)))
    }

    /// Removes this owner and releases the trees it still owned.
    pub(super) fn leave(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.execute("UPDATE trees SET owner = NULL WHERE owner = ?1", [&self.id])?;
        self.remove(connection)
    }

    /// Removes this owner, which owns no tree.
    pub(super) fn remove(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.execute("DELETE FROM owners WHERE id = ?1", [&self.id])?;
        Ok(())
    }
}

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

#[cfg(target_os = "linux")]
fn is_same_process(pid: u32, start: u64) -> bool {
    start_time(pid) == Some(start)
}

#[cfg(not(target_os = "linux"))]
fn is_same_process(pid: u32, _: u64) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
}

/// Start time of a living process in kernel ticks; zombies count as dead.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may itself contain parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn process_is_identified_by_id_and_start_time() {
        let me = Owner::this();
        assert!(me.start > 0);
        assert!(is_same_process(me.pid, me.start));
        assert!(!is_same_process(me.pid, me.start + 1), "the ID was reused");
        let rebooted = Owner { id: "other".into(), boot_id: "other".into(), ..me.clone() };
        assert!(!rebooted.is_alive(&me));
    }

    #[test]
    fn heartbeat_decides_on_another_host() {
        let me = Owner::this();
        let far = Owner { id: "far".into(), host: "far".into(), pid: 1, ..me.clone() };
        assert!(Owner { heartbeat: now(), ..far.clone() }.is_alive(&me));
        assert!(!Owner { heartbeat: now() - HEARTBEAT_TIMEOUT_MS - 1, ..far }.is_alive(&me));
    }
}
