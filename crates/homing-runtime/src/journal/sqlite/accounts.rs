//! Budget accounts that processes share: a daily limit, the reservations under it, and the usage that was settled.

use homing_core::{
    fact::{LimitHit, Reservation},
    limits::Limit,
    message::Usage,
    place::Place,
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::journal::{
    AccountHold, JournalError,
    sqlite::{
        index::day,
        owner::{Owner, now},
        row::{count, int},
    },
};

/// The limits of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Micro-dollars per UTC day; `None` counts without a limit.
    pub per_day_micros: Option<u64>,
}

/// The accounts within a transaction.
pub(super) struct Accounts<'a> {
    pub(super) connection: &'a Connection,
    pub(super) me: &'a Owner,
    pub(super) open_reservations: &'a mut u64,
}

impl Accounts<'_> {
    /// Reserves at an account, unless that would exceed the day's limit. Reservations of living processes are settled some
    /// day, mostly for less, so an amount that fits beside what is spent may fit later.
    pub(super) fn reserve(
        &mut self,
        name: &str,
        account: Account,
        reservation: Reservation,
    ) -> Result<AccountHold, JournalError> {
        let today = day(now());
        charge_reservations_of_dead_owners(self.connection, self.me, name)?;
        let (spent, reserved) = spent_and_reserved(self.connection, name, today)?;
        if let Some(limit) = account.per_day_micros {
            let needed = spent.saturating_add(reservation.cost_micros);
            if needed > limit {
                return Ok(AccountHold::Full(LimitHit { name: Limit::Cost, limit, spent, place: Place::root() }));
            }
            if needed.saturating_add(reserved) > limit {
                return Ok(AccountHold::Later);
            }
        }
        self.me.beat(self.connection)?;
        self.connection.execute(
            "INSERT INTO holds (account, owner, day, tokens, cost_micros) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![name, self.me.id, today, int(reservation.tokens), int(reservation.cost_micros)],
        )?;
        *self.open_reservations += 1;
        Ok(AccountHold::Held)
    }

    /// Turns a reservation of this process into usage. If the reservation is missing, it was charged in full before.
    pub(super) fn settle(&mut self, name: &str, reservation: Reservation, used: Usage) -> Result<(), JournalError> {
        let day: Option<i64> = self
            .connection
            .query_row(
                "DELETE FROM holds WHERE id = (SELECT id FROM holds WHERE account = ?1 AND owner = ?2 AND tokens = ?3
                 AND cost_micros = ?4 LIMIT 1) RETURNING day",
                params![name, self.me.id, int(reservation.tokens), int(reservation.cost_micros)],
                |row| row.get(0),
            )
            .optional()?;
        let Some(day) = day else { return Ok(()) };
        let used = Reservation { tokens: used.tokens(), cost_micros: used.cost_micros };
        charge(self.connection, name, day, used)?;
        *self.open_reservations = self.open_reservations.saturating_sub(1);
        Ok(())
    }
}

/// Charges reservations in full if their process is gone, since their real cost cannot be found out any more.
fn charge_reservations_of_dead_owners(connection: &Connection, me: &Owner, account: &str) -> rusqlite::Result<()> {
    let owners: Vec<String> = connection
        .prepare_cached("SELECT DISTINCT owner FROM holds WHERE account = ?1 AND owner <> ?2")?
        .query_map([account, &me.id], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for id in owners {
        if Owner::find(connection, &id)?.is_some_and(|owner| owner.is_alive(me)) {
            continue;
        }
        let reservations: Vec<(i64, i64, i64)> = connection
            .prepare_cached("DELETE FROM holds WHERE account = ?1 AND owner = ?2 RETURNING day, tokens, cost_micros")?
            .query_map([account, &id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?;
        for (day, tokens, cost) in reservations {
            charge(connection, account, day, Reservation { tokens: count(tokens), cost_micros: count(cost) })?;
        }
    }
    Ok(())
}

fn spent_and_reserved(connection: &Connection, account: &str, day: i64) -> rusqlite::Result<(u64, u64)> {
    connection
        .prepare_cached(
            "SELECT coalesce((SELECT cost_micros FROM accounts WHERE name = ?1 AND day = ?2), 0),
             coalesce((SELECT sum(cost_micros) FROM holds WHERE account = ?1 AND day = ?2), 0)",
        )?
        .query_row(params![account, day], |row| Ok((count(row.get(0)?), count(row.get(1)?))))
}

fn charge(connection: &Connection, account: &str, day: i64, used: Reservation) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO accounts (name, day, tokens, cost_micros) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (name, day)
         DO UPDATE SET tokens = tokens + excluded.tokens, cost_micros = cost_micros + excluded.cost_micros",
    )?;
    statement.execute(params![account, day, int(used.tokens), int(used.cost_micros)])?;
    Ok(())
}
