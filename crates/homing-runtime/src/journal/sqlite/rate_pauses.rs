//! Pauses of rate limits that processes share: a provider that asks one process to wait asks all of them. The runtime decides
//! how to wait; this module stores until when.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rusqlite::{Connection, params};

use crate::journal::{
    JournalError,
    sqlite::{
        owner::now,
        row::{count, int},
    },
};

/// Pauses are looked up before each model call, so they are read from the file at most this often.
const MAX_AGE: Duration = Duration::from_millis(100);

/// The pauses as they were read at most [`MAX_AGE`] ago, and those that this process has just set.
#[derive(Default)]
pub(super) struct SharedPauses {
    until: HashMap<String, u64>,
    read_at: Option<Instant>,
}

impl SharedPauses {
    pub(super) fn is_stale(&self) -> bool {
        self.read_at.is_none_or(|read_at| read_at.elapsed() >= MAX_AGE)
    }

    pub(super) fn refresh(&mut self, connection: &Connection) {
        self.read_at = Some(Instant::now());
        let stored: rusqlite::Result<Vec<(String, i64)>> = connection
            .prepare_cached("SELECT name, closed_until FROM gates WHERE closed_until > ?1")
            .and_then(|mut select| select.query_map([int(now())], |row| Ok((row.get(0)?, row.get(1)?)))?.collect());
        // A pause that this process has just set may not be in the file yet: the later of the two counts.
        for (name, until) in stored.unwrap_or_default() {
            self.pause(name, count(until));
        }
    }

    pub(super) fn pause(&mut self, name: String, until: u64) {
        let paused = self.until.entry(name).or_default();
        *paused = until.max(*paused);
    }

    pub(super) fn paused_until(&mut self, name: &str) -> Option<u64> {
        let until = *self.until.get(name)?;
        if until > now() {
            return Some(until);
        }
        self.until.remove(name);
        None
    }
}

/// Stores a pause for all processes. An earlier pause that ends later stays.
pub(super) fn store(connection: &Connection, name: &str, until: u64) -> Result<(), JournalError> {
    let sql = "INSERT INTO gates (name, closed_until) VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET closed_until = max(closed_until, excluded.closed_until)";
    connection.execute(sql, params![name, int(until)])?;
    Ok(())
}
