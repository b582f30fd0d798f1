//! Reserves what a model call may cost, and settles it afterwards: at the run, at all its ancestors, and at the account
//! that pays.
//!
//! Reservations exist because the runs of a tree call models concurrently and share their ancestors' budgets. Checking
//! the budget and then calling would let ten runs spend the last dollar ten times. So a call first reserves its worst
//! case (all input tokens at full price, all output tokens it may use) at the run and at every ancestor. The check and
//! the record of the reservation happen under the tree's lock, so that a budget can never be exceeded, whatever the
//! calls return. Settling replaces the reservation by the usage that the provider reports, which is usually far less,
//! and wakes the runs that wait for budget. A call that breaks off is charged its input and an upper bound of what was
//! streamed, or, if nothing arrived, of what a model can write in that time; after a crash, by the mark that is stored once
//! a second. It is never more than the reservation, and marked as an estimate.
//!
//! The account is reserved first, because it is shared between processes and must be awaited; the tree follows, under
//! its lock and with no more output than the account allowed. If the tree then refuses, the account's reservation is
//! settled at zero.

mod count;
mod slice;

use std::sync::Arc;

use homing_core::{
    fact::{Asked, Fact, LimitHit, Reservation},
    ledger::{AskSize, Fit},
    message::{Reply, Usage},
    model::{AskFailure, Charge, ModelError, Rates},
};
use tokio::sync::futures::Notified;

pub(crate) use self::count::{record_call, record_child};
use self::slice::SliceFit;
use crate::{
    agent_loop::Interrupt,
    journal::{AccountHold, CallProgress, JournalError},
    live_run::LiveRun,
    live_tree::LiveTree,
    segment::shares_limits,
};

/// The reservations of one run.
pub(crate) struct Reservations {
    tree: Arc<LiveTree>,
    live_run: Arc<LiveRun>,
}

/// A recorded reservation for one model call.
pub(crate) struct ReservedCall {
    pub(crate) asked: Arc<Asked>,
    rates: Rates,
    account: Option<AccountPart>,
}

/// The reservation at the account that pays.
struct AccountPart {
    account: String,
    max_output: u64,
    hold: Reservation,
}

/// The result of an attempt to reserve.
pub(crate) enum ReserveResult {
    /// The reservation is recorded and durable.
    Reserved(Box<ReservedCall>),
    /// It fits once other calls are settled.
    Later,
    /// It can never fit, because this limit is reached.
    Full(LimitHit),
}

/// The account's part of a reservation.
enum AccountFit {
    /// No account pays for the run, or the tree refuses the call anyway.
    NotNeeded,
    Held(AccountPart),
    Later,
    Full(LimitHit),
}

impl Reservations {
    pub(crate) fn new(tree: Arc<LiveTree>, live_run: Arc<LiveRun>) -> Self {
        Self { tree, live_run }
    }

    /// Checks whether a call of this size fits the budgets of the run and its ancestors now.
    pub(crate) fn fit(&self, size: AskSize, rates: &Rates) -> Fit {
        self.tree.read(|tree| tree.ledger().fit(self.live_run.run, size, rates))
    }

    /// Returns whether the limits of the run are only those of runs that this process drives.
    pub(crate) fn is_alone(&self) -> bool {
        !shares_limits(&self.tree)
    }

    /// Resolves when a call of the tree is settled.
    pub(crate) fn next_settlement(&self) -> Notified<'_> {
        self.tree.settled.notified()
    }

    /// Reserves the worst case of a call. `ask` makes the record from the output tokens that fit and their reservation.
    pub(crate) async fn reserve(
        &self,
        mut size: AskSize,
        rates: &Rates,
        ask: impl FnOnce(u64, Reservation, Reservation) -> Asked,
    ) -> Result<ReserveResult, Interrupt> {
        let account = match self.reserve_at_account(&size, rates).await? {
            AccountFit::NotNeeded => None,
            AccountFit::Held(held) => Some(held),
            AccountFit::Later => return Ok(ReserveResult::Later),
            AccountFit::Full(hit) => return Ok(ReserveResult::Full(hit)),
        };
        if let Some(account) = &account {
            size.output = account.max_output;
        }
        let slice = match self.reserve_slice(&size, rates).await? {
            SliceFit::NotNeeded => None,
            SliceFit::Held(slice) => Some(slice),
            SliceFit::Not(fit) => return Ok(self.not_reserved(account, fit)),
        };
        if let Some(slice) = &slice {
            size.output = slice.max_output;
        }
        let mut recorded = None;
        let reserved = self.tree.record_if(self.live_run.run, |tree| {
            let fit = tree.ledger().fit(self.live_run.run, size, rates);
            match self.within_slice(tree, slice.as_ref(), fit) {
                Fit::Fits { max_output, hold, landing } => {
                    let asked = Arc::new(ask(max_output, hold, landing));
                    recorded = Some(asked.clone());
                    Ok(Fact::Asked(asked))
                }
                other => Err(other),
            }
        });
        match reserved {
            Ok(commit) => {
                if let Err(error) = commit.await {
                    return Err(self.not_recorded(account, error));
                }
                let asked = recorded.expect("a successful record has set it");
                Ok(ReserveResult::Reserved(Box::new(ReservedCall { asked, rates: rates.clone(), account })))
            }
            Err(fit) => Ok(self.not_reserved(account, fit)),
        }
    }

    /// Releases what the account holds for a call that the tree refuses.
    fn not_reserved(&self, account: Option<AccountPart>, fit: Fit) -> ReserveResult {
        self.settle_at_account(account, Usage::default());
        match fit {
            Fit::Full(hit) => ReserveResult::Full(hit),
            Fit::Later | Fit::Fits { .. } => ReserveResult::Later,
        }
    }

    /// Releases what is held for a call whose record could not be written: the request is not sent, so it costs nothing.
    fn not_recorded(&self, account: Option<AccountPart>, error: JournalError) -> Interrupt {
        self.settle_at_account(account, Usage::default());
        let failure = AskFailure::new(ModelError::Broken { reason: error.to_string() }, Charge::Nothing);
        let failed = Fact::AskFailed { failure: Box::new(failure), charge: Usage::default() };
        drop(self.tree.record(self.live_run.run, failed));
        error.into()
    }

    /// Replaces the reservation by what the reply used, and records the reply.
    pub(crate) fn settle_reply(&self, call: ReservedCall, mut reply: Reply, first_token_ms: Option<u64>) {
        reply.usage = settled_usage(reply.usage, &call);
        self.settle_at_account(call.account, reply.usage);
        drop(self.tree.record(self.live_run.run, Fact::Replied { reply: Arc::new(reply), first_token_ms }));
    }

    /// Replaces the reservation by what the failed call is charged, and records the failure. If its usage is not known, its
    /// output is `progress`.
    pub(crate) fn settle_failure(&self, call: ReservedCall, failure: AskFailure, progress: CallProgress) {
        let charge = match failure.charge {
            Charge::Nothing => Usage::default(),
            Charge::Hold => interrupted(&call.asked, Some(&call.rates), progress),
            Charge::Used(usage) => settled_usage(usage, &call),
        };
        self.settle_at_account(call.account, charge);
        drop(self.tree.record(self.live_run.run, Fact::AskFailed { failure: Box::new(failure), charge }));
    }

    async fn reserve_at_account(&self, size: &AskSize, rates: &Rates) -> Result<AccountFit, Interrupt> {
        let account = self.tree.read_run(self.live_run.run, |run| run.spawned.account.clone());
        let Some(account) = account else { return Ok(AccountFit::NotNeeded) };
        // Boxed, because few runs have an account.
        Box::pin(self.hold_at_account(account, *size, rates)).await
    }

    async fn hold_at_account(&self, account: String, size: AskSize, rates: &Rates) -> Result<AccountFit, Interrupt> {
        // As at an ancestor, the output shrinks before the call waits.
        let mut fit = AccountFit::NotNeeded;
        for output in [size.output, size.floor.min(size.output)] {
            let Fit::Fits { max_output, hold, .. } = self.fit(AskSize { output, ..size }, rates) else { break };
            fit = match self.tree.journal.hold_at_account(&account, self.live_run.run, hold).await? {
                AccountHold::Held => return Ok(AccountFit::Held(AccountPart { account, max_output, hold })),
                AccountHold::Later => AccountFit::Later,
                AccountHold::Full(hit) => AccountFit::Full(hit),
            };
        }
        Ok(fit)
    }

    fn settle_at_account(&self, account: Option<AccountPart>, used: Usage) {
        if let Some(AccountPart { account, hold, .. }) = account {
            self.tree.journal.settle_at_account(&account, self.live_run.run, hold, used);
        }
    }
}

/// The usage to charge: as reported, else as estimated from what the provider sent, else the worst case.
fn settled_usage(usage: Usage, call: &ReservedCall) -> Usage {
    if !usage.estimated {
        return usage.cost_micros(call.rates.cost(&usage));
    }
    if usage.tokens() == 0 {
        return worst_case(&call.asked);
    }
    let input = if usage.input == 0 { call.asked.input_bound } else { usage.input };
    usage.input(input).cost_micros(call.rates.worst(input, usage.output))
}

/// The usage that is charged for a call that broke off: at most its reservation. Without a price, its cost is the whole
/// reservation.
pub(crate) fn interrupted(asked: &Asked, rates: Option<&Rates>, progress: CallProgress) -> Usage {
    let worst = worst_case(asked);
    let output = progress.output_bound().min(worst.output);
    let cost = rates.map_or(worst.cost_micros, |rates| rates.worst(worst.input, output));
    worst.output(output).cost_micros(cost.min(worst.cost_micros))
}

/// The usage that is charged for a call whose usage is unknown: its whole reservation.
pub(crate) fn worst_case(asked: &Asked) -> Usage {
    let Reservation { cost_micros, .. } = asked.hold;
    Usage::default().input(asked.input_bound).output(asked.max_output).cost_micros(cost_micros).estimated(true)
}
