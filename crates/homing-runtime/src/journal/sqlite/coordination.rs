//! What processes share beside trees: rate gates, accounts, and the inbox. Each is a small table; who waits or pays is the
//! runtime's business.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use homing_core::{
    fact::{LimitHit, Reservation},
    limits::Limit,
    message::Usage,
    place::Place,
};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::journal::{
    InboxRequest, JournalError,
    sqlite::{
        index::day,
        owner::{Owner, now},
        row::{count, int},
        schema::said,
        write_txn::WriteTxn,
    },
};

/// Gates are looked up before each ask, so they are read from the file at most this often.
const FRESH: Duration = Duration::from_millis(100);

/// What an account may spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Micro-dollars per day of UTC; `None` only counts.
    pub per_day_micros: Option<u64>,
}

/// The gates as they were a moment ago.
#[derive(Default)]
pub(super) struct SharedPauses {
    closed: HashMap<String, u64>,
    read: Option<Instant>,
}

impl SharedPauses {
    pub(super) fn is_stale(&self) -> bool {
        self.read.is_none_or(|read| read.elapsed() >= FRESH)
    }

    pub(super) fn refresh(&mut self, connection: &Connection) {
        self.read = Some(Instant::now());
        let closed: rusqlite::Result<Vec<(String, i64)>> = connection
            .prepare_cached("SELECT name, closed_until FROM gates WHERE closed_until > ?1")
            .and_then(|mut it| it.query_map([int(now())], |row| Ok((row.get(0)?, row.get(1)?)))?.collect());
        // What this process has just said may not be in the file yet: the later of the two counts.
        for (name, until) in closed.unwrap_or_default() {
            self.close(name, count(until));
        }
    }

    pub(super) fn close(&mut self, name: String, until: u64) {
        let closed = self.closed.entry(name).or_default();
        *closed = until.max(*closed);
    }

    pub(super) fn closed_until(&mut self, gate: &str) -> Option<u64> {
        let until = *self.closed.get(gate)?;
        if until > now() {
            return Some(until);
        }
        self.closed.remove(gate);
        None
    }
}

impl WriteTxn {
    pub(super) fn close_gate(&mut self, gate: &str, until: u64) -> Result<(), JournalError> {
        let sql = "INSERT INTO gates (name, closed_until) VALUES (?1, ?2)
                   ON CONFLICT (name) DO UPDATE SET closed_until = max(closed_until, excluded.closed_until)";
        self.connection.execute(sql, params![gate, int(until)]).map_err(|error| said(&error))?;
        Ok(())
    }

    /// Reserves at an account, unless the day's limit would be broken.
    pub(super) fn hold(
        &mut self,
        name: &str,
        account: Account,
        hold: Reservation,
    ) -> Result<Option<LimitHit>, JournalError> {
        let today = day(now());
        settle_the_dead(&self.connection, &self.me, name).map_err(|error| said(&error))?;
        let spent = spent_and_held(&self.connection, name, today).map_err(|error| said(&error))?;
        if let Some(limit) = account.per_day_micros
            && spent.saturating_add(hold.cost_micros) > limit
        {
            return Ok(Some(LimitHit { name: Limit::Cost, limit, spent, place: Place::root() }));
        }
        let insert = || {
            self.me.beat(&self.connection)?;
            self.connection.execute(
                "INSERT INTO holds (account, owner, day, tokens, cost_micros) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![name, self.me.id, today, int(hold.tokens), int(hold.cost_micros)],
            )
        };
        insert().map_err(|error| said(&error))?;
        self.holds += 1;
        Ok(None)
    }

    /// Turns a reservation of this process into what was used. One that is not there was settled at its worst case.
    pub(super) fn settle(&mut self, name: &str, hold: Reservation, used: Usage) -> Result<(), JournalError> {
        let settle = || {
            let found: Option<(i64, i64)> = self
                .connection
                .query_row(
                    "DELETE FROM holds WHERE id = (SELECT id FROM holds WHERE account = ?1 AND owner = ?2 AND tokens = ?3
                     AND cost_micros = ?4 LIMIT 1) RETURNING id, day",
                    params![name, self.me.id, int(hold.tokens), int(hold.cost_micros)],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .optional()?;
            let Some((_, day)) = found else { return Ok(false) };
            let used = Reservation { tokens: used.tokens(), cost_micros: used.cost_micros };
            charge(&self.connection, name, day, used)?;
            Ok(true)
        };
        let settled = settle().map_err(|error: rusqlite::Error| said(&error))?;
        self.holds = self.holds.saturating_sub(u64::from(settled));
        Ok(())
    }

    /// Puts a request into the inbox of whoever owns the tree.
    pub(super) fn post(&mut self, request: &InboxRequest) -> Result<Posted, JournalError> {
        let (tree, run, kind, body) = match request {
            InboxRequest::Cancel { tree, run, by } => (tree, run, "cancel", by),
            InboxRequest::Tell { tree, run, message } => (tree, run, "tell", message),
        };
        let owner = owner_of(&self.connection, *tree).map_err(|error| said(&error))?;
        let Some(owner) = owner.ok_or(JournalError::NoSuchTree(*tree))?.filter(|owner| owner.lives(&self.me)) else {
            return Ok(Posted::Nobody);
        };
        let sql = "INSERT INTO inbox (tree, run, kind, body, at) VALUES (?1, ?2, ?3, ?4, ?5)";
        let at = int(now());
        self.connection
            .execute(sql, params![tree.to_string(), run.to_string(), kind, body, at])
            .map_err(|error| said(&error))?;
        Ok(Posted::ToOwner { pid: owner.pid, host: owner.host })
    }

    /// Takes what is in the inbox for trees of this process.
    pub(super) fn take_inbox(&mut self) -> Result<Vec<InboxRequest>, JournalError> {
        let take = || {
            let mut statement = self.connection.prepare_cached(
                "DELETE FROM inbox WHERE tree IN (SELECT id FROM trees WHERE owner = ?1) RETURNING id, tree, run, kind, body",
            )?;
            let rows = statement.query_map([&self.me.id], |row| {
                let note: [String; 4] = [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?];
                Ok((row.get::<_, i64>(0)?, note))
            })?;
            rows.collect::<rusqlite::Result<BTreeMap<_, _>>>()
        };
        let taken = take().map_err(|error| said(&error))?;
        Ok(taken.into_values().filter_map(|[tree, run, kind, body]| request(&tree, &run, &kind, body)).collect())
    }
}

/// What became of a request to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The owner will find it.
    ToOwner {
        /// The owner's process id.
        pid: u32,
        /// The owner's machine.
        host: String,
    },
    /// Nobody works on the tree: it is over or interrupted, and nothing was posted.
    Nobody,
}

fn request(tree: &str, run: &str, kind: &str, body: String) -> Option<InboxRequest> {
    let (tree, run) = (tree.parse().ok()?, run.parse().ok()?);
    match kind {
        "cancel" => Some(InboxRequest::Cancel { tree, run, by: body }),
        "tell" => Some(InboxRequest::Tell { tree, run, message: body }),
        _ => None,
    }
}

/// The tree's owner: `None` where there is no such tree.
fn owner_of(connection: &Connection, tree: Uuid) -> rusqlite::Result<Option<Option<Owner>>> {
    let owner: Option<Option<String>> = connection
        .query_row("SELECT owner FROM trees WHERE id = ?1", [tree.to_string()], |row| row.get(0))
        .optional()?;
    match owner {
        None => Ok(None),
        Some(None) => Ok(Some(None)),
        Some(Some(id)) => Owner::find(connection, &id).map(Some),
    }
}

/// Reservations whose process is gone are charged in full: nobody will ever know what they cost.
fn settle_the_dead(connection: &Connection, me: &Owner, account: &str) -> rusqlite::Result<()> {
    let owners: Vec<String> = connection
        .prepare_cached("SELECT DISTINCT owner FROM holds WHERE account = ?1 AND owner <> ?2")?
        .query_map([account, &me.id], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for id in owners {
        if Owner::find(connection, &id)?.is_some_and(|owner| owner.lives(me)) {
            continue;
        }
        let holds: Vec<(i64, i64, i64)> = connection
            .prepare_cached("DELETE FROM holds WHERE account = ?1 AND owner = ?2 RETURNING day, tokens, cost_micros")?
            .query_map([account, &id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?;
        for (day, tokens, cost) in holds {
            charge(connection, account, day, Reservation { tokens: count(tokens), cost_micros: count(cost) })?;
        }
    }
    Ok(())
}

fn spent_and_held(connection: &Connection, account: &str, day: i64) -> rusqlite::Result<u64> {
    let sum: i64 = connection
        .prepare_cached(
            "SELECT coalesce((SELECT cost_micros FROM accounts WHERE name = ?1 AND day = ?2), 0)
             + coalesce((SELECT sum(cost_micros) FROM holds WHERE account = ?1 AND day = ?2), 0)",
        )?
        .query_row(params![account, day], |row| row.get(0))?;
    Ok(count(sum))
}

fn charge(connection: &Connection, account: &str, day: i64, used: Reservation) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO accounts (name, day, tokens, cost_micros) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (name, day)
         DO UPDATE SET tokens = tokens + excluded.tokens, cost_micros = cost_micros + excluded.cost_micros",
    )?;
    statement.execute(params![account, day, int(used.tokens), int(used.cost_micros)])?;
    Ok(())
}
