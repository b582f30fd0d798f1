//! Who owns a tree, and whether that process still lives. It knows processes and hosts, not what a tree holds.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

/// On another host nothing but the heartbeat can be seen: after so many milliseconds without one, its owner is gone.
const SILENCE_MS: u64 = 30_000;

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// One open journal of one process, as other processes must be able to tell it apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// Of this journal: one process may open the same file more than once.
    pub(super) id: String,
    pub(super) pid: u32,
    /// When the process started, in the kernel's ticks: a number that was used before means another process.
    pub(super) start: u64,
    pub(super) boot_id: String,
    /// Process ids mean nothing outside of their namespace.
    pub(super) pid_ns: String,
    pub(super) host: String,
    pub(super) heartbeat: u64,
}

impl Owner {
    /// This process.
    pub(super) fn this() -> Self {
        let pid = std::process::id();
        Self {
            id: Uuid::now_v7().to_string(),
            pid,
            start: started(pid).unwrap_or(0),
            boot_id: first_line("/proc/sys/kernel/random/boot_id"),
            pid_ns: std::fs::read_link("/proc/self/ns/pid")
                .map_or_else(|_| String::new(), |link| link.to_string_lossy().into_owned()),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            heartbeat: now(),
        }
    }

    /// Whether it lives, as far as `me` can tell.
    pub(super) fn lives(&self, me: &Self) -> bool {
        if self.id == me.id {
            return true;
        }
        if self.host == me.host && self.boot_id != me.boot_id {
            return false;
        }
        if self.host == me.host && self.pid_ns == me.pid_ns {
            return is_same_process(self.pid, self.start);
        }
        self.heartbeat.saturating_add(SILENCE_MS) > now()
    }

    /// The owner of that id; `None` where it has said goodbye.
    pub(super) fn find(connection: &Connection, id: &str) -> rusqlite::Result<Option<Self>> {
        let mut statement = connection
            .prepare_cached("SELECT id, pid, start, boot_id, pid_ns, host, heartbeat FROM owners WHERE id = ?1")?;
        statement.query_row([id], Self::from_row).optional()
    }

    /// Everybody who is written down.
    pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Self>> {
        let mut statement =
            connection.prepare_cached("SELECT id, pid, start, boot_id, pid_ns, host, heartbeat FROM owners")?;
        statement.query_map([], Self::from_row)?.collect()
    }

    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            pid: row.get(1)?,
            start: crate::journal::sqlite::row::count(row.get(2)?),
            boot_id: row.get(3)?,
            pid_ns: row.get(4)?,
            host: row.get(5)?,
            heartbeat: crate::journal::sqlite::row::count(row.get(6)?),
        })
    }

    /// Writes this owner down, or its heartbeat where it is.
    pub(super) fn beat(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "INSERT INTO owners (id, pid, start, boot_id, pid_ns, host, heartbeat) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (id) DO UPDATE SET heartbeat = excluded.heartbeat",
        )?;
        let (start, beat) = (crate::journal::sqlite::row::int(self.start), crate::journal::sqlite::row::int(now()));
        statement.execute(params![self.id, self.pid, start, self.boot_id, self.pid_ns, self.host, beat])?;
        Ok(())
    }

    /// Whether it ever owned anything, so that a journal that only read writes nothing when it goes.
    pub(super) fn is_written_down(&self, connection: &Connection) -> bool {
        matches!(Self::find(connection, &self.id), Ok(Some(_)))
    }

    /// Says goodbye: whatever it still owned is nobody's from now on.
    pub(super) fn leave(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.execute("UPDATE trees SET owner = NULL WHERE owner = ?1", [&self.id])?;
        connection.execute("DELETE FROM owners WHERE id = ?1", [&self.id])?;
        Ok(())
    }
}

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

#[cfg(target_os = "linux")]
fn is_same_process(pid: u32, start: u64) -> bool {
    started(pid) == Some(start)
}

#[cfg(not(target_os = "linux"))]
fn is_same_process(pid: u32, _: u64) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
}

/// When a living process started; a zombie is dead, it only has not been buried.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything, brackets included.
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
    fn a_process_is_known_by_its_number_and_its_start() {
        let me = Owner::this();
        assert!(me.start > 0);
        assert!(is_same_process(me.pid, me.start));
        assert!(!is_same_process(me.pid, me.start + 1), "the number was used again");
        let rebooted = Owner { id: "other".into(), boot_id: "other".into(), ..me.clone() };
        assert!(!rebooted.lives(&me));
    }

    #[test]
    fn on_another_host_only_the_heartbeat_counts() {
        let me = Owner::this();
        let far = Owner { id: "far".into(), host: "far".into(), pid: 1, ..me.clone() };
        assert!(Owner { heartbeat: now(), ..far.clone() }.lives(&me));
        assert!(!Owner { heartbeat: now() - SILENCE_MS - 1, ..far }.lives(&me));
    }
}
