//! The object of a budget account: what was spent today, and the reservations of model calls in progress on any worker. A call is
//! reserved before it is made, so that simultaneous runs on different workers never exceed the limit of the day.

use std::collections::BTreeMap;

use homing_core::{
    fact::{LimitHit, Reservation},
    limits::Limit,
    place::Place,
};
use homing_runtime::journal::AccountHold;
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Age at which a reservation that was not settled counts as spent. Its worker died, and no other took over the run.
const FORGOTTEN_MS: u64 = 60 * 60 * 1_000;

/// A reservation for the model call of a run, which has at most one in progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) run: Uuid,
    /// The call, so that a repeated request is recognised.
    pub(crate) call: Uuid,
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) hold: Reservation,
    /// Limit of the account per UTC day, in micro-dollars.
    pub(crate) per_day_micros: Option<u64>,
}

/// The usage that replaces a reservation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settlement {
    pub(crate) run: Uuid,
    /// The call; `None` for the one that an earlier owner of the run left behind.
    pub(crate) call: Option<Uuid>,
    pub(crate) used: Reservation,
}

/// State of an account.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Account {
    /// UTC day to which `spent` belongs.
    day: u64,
    spent: Reservation,
    /// Reservations that are not settled, by run.
    open: BTreeMap<Uuid, OpenHold>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct OpenHold {
    call: Uuid,
    at: u64,
    hold: Reservation,
}

impl Account {
    /// Reserves for a call. A reservation of the same run that was not settled is charged in full: the worker that made it died.
    fn hold(&mut self, wanted: &Hold) -> AccountHold {
        if self.open.get(&wanted.run).is_some_and(|open| open.call == wanted.call) {
            return AccountHold::Held;
        }
        self.begin_day(wanted.at / DAY_MS);
        let is_lost =
            |run: &Uuid, open: &OpenHold| *run == wanted.run || wanted.at.saturating_sub(open.at) > FORGOTTEN_MS;
        let lost: Vec<Uuid> = self.open.iter().filter(|(run, open)| is_lost(run, open)).map(|(run, _)| *run).collect();
        for run in lost {
            self.settle(&run, None);
        }
        if let Some(limit) = wanted.per_day_micros {
            let spent = self.spent.cost_micros;
            let needed = spent.saturating_add(wanted.hold.cost_micros);
            if needed > limit {
                return AccountHold::Full(LimitHit { name: Limit::Cost, limit, spent, place: Place::root() });
            }
            if needed.saturating_add(self.reserved()) > limit {
                return AccountHold::Later;
            }
        }
        self.open.insert(wanted.run, OpenHold { call: wanted.call, at: wanted.at, hold: wanted.hold });
        AccountHold::Held
    }

    /// Removes the reservation of a run, and charges what was used, or all of it. It counts for the day on which it was made.
    fn settle(&mut self, run: &Uuid, used: Option<Reservation>) {
        let Some(open) = self.open.remove(run) else { return };
        if open.at / DAY_MS == self.day {
            self.spent += used.unwrap_or(open.hold);
        }
    }

    fn begin_day(&mut self, day: u64) {
        if day > self.day {
            (self.day, self.spent) = (day, Reservation::default());
        }
    }

    /// The reservations that count today.
    fn reserved(&self) -> u64 {
        let today = self.open.values().filter(|open| open.at / DAY_MS == self.day);
        today.fold(0, |sum, open| sum.saturating_add(open.hold.cost_micros))
    }
}

/// The object of an account. Its key is the hash of the account's name.
pub(crate) struct AccountObject;

#[restate_sdk::object(
    name = "HomingAccount",
    journal_retention = "0s",
    invocation_retry_policy(initial_interval = "50ms", max_interval = "5s", max_attempts = 1_000_000_000)
)]
impl AccountObject {
    /// Reserves for a model call.
    #[handler]
    async fn hold(&self, ctx: ObjectContext<'_>, hold: Json<Hold>) -> HandlerResult<Json<AccountHold>> {
        let mut account = ctx.get::<Json<Account>>("account").await?.map(Json::into_inner).unwrap_or_default();
        let result = account.hold(&hold.0);
        ctx.set("account", Json(account));
        Ok(Json(result))
    }

    /// Replaces a reservation by what was used.
    #[handler]
    async fn settle(&self, ctx: ObjectContext<'_>, settlement: Json<Settlement>) -> HandlerResult<()> {
        let Settlement { run, call, used } = settlement.0;
        let Some(Json(mut account)) = ctx.get::<Json<Account>>("account").await? else { return Ok(()) };
        // A reservation of another call was charged when that call began.
        if account.open.get(&run).is_some_and(|open| call.is_none_or(|call| call == open.call)) {
            account.settle(&run, Some(used));
            ctx.set("account", Json(account));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(cost_micros: u64) -> Reservation {
        Reservation { tokens: 0, cost_micros }
    }

    fn wanted(run: u128, call: u128, at: u64, cost: u64) -> Hold {
        let (run, call) = (Uuid::from_u128(run), Uuid::from_u128(call));
        Hold { run, call, at, hold: micros(cost), per_day_micros: Some(100) }
    }

    #[test]
    fn simultaneous_calls_never_exceed_the_day() {
        let mut account = Account::default();
        assert_eq!(account.hold(&wanted(1, 1, DAY_MS, 60)), AccountHold::Held);
        assert_eq!(account.hold(&wanted(1, 1, DAY_MS, 60)), AccountHold::Held, "a repeated request changes nothing");
        assert_eq!(account.hold(&wanted(2, 2, DAY_MS, 60)), AccountHold::Later);
        account.settle(&Uuid::from_u128(1), Some(micros(30)));
        assert_eq!(account.hold(&wanted(2, 2, DAY_MS, 60)), AccountHold::Held);
        assert!(matches!(account.hold(&wanted(3, 3, DAY_MS, 71)), AccountHold::Full(hit) if hit.spent == 30));
        assert_eq!(account.hold(&wanted(4, 4, 2 * DAY_MS, 100)), AccountHold::Held, "another day");
        account.settle(&Uuid::from_u128(2), Some(micros(60)));
        assert_eq!(account.spent, micros(0), "a call of the day before");
    }

    #[test]
    fn reservations_of_dead_workers_are_charged_in_full() {
        let mut account = Account::default();
        assert_eq!(account.hold(&wanted(1, 1, DAY_MS, 60)), AccountHold::Held);
        assert_eq!(account.hold(&wanted(1, 2, DAY_MS, 40)), AccountHold::Held, "the next owner of the run");
        assert_eq!((account.spent, account.reserved()), (micros(60), 40));
        let later = DAY_MS + FORGOTTEN_MS + 1;
        assert!(matches!(account.hold(&wanted(2, 3, later, 10)), AccountHold::Full(hit) if hit.spent == 100));
    }
}
