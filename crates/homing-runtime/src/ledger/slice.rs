//! The part of a reservation that concerns limits which several segments of a tree share. The tree's ledger grants it before
//! the fact is recorded, because the facts of the other segments are not in this fold.

use homing_core::{
    fact::Reservation,
    ledger::{AskSize, Fit},
    model::Rates,
    tree::{RunTree, Share, segment::landing_hold},
};

use super::Reservations;
use crate::{
    agent_loop::Interrupt,
    segment::{read_limits, report_share, reserve_share, shares_limits},
};

/// A reservation that the tree's ledger granted.
pub(super) struct Slice {
    pub(super) max_output: u64,
    need: Reservation,
}

/// The result of asking the tree's ledger.
pub(super) enum SliceFit {
    /// This process drives everything that counts against the limits.
    NotNeeded,
    Held(Slice),
    /// The call does not fit.
    Not(Fit),
}

impl Reservations {
    /// Reserves the worst case of a call at the limits that this segment shares with others. A refusal by the fold counts only
    /// after the ledger has told what the others use.
    pub(super) async fn reserve_slice(&self, size: &AskSize, rates: &Rates) -> Result<SliceFit, Interrupt> {
        if !shares_limits(&self.tree) {
            return Ok(SliceFit::NotNeeded);
        }
        Box::pin(self.reserve_shared(*size, rates)).await
    }

    async fn reserve_shared(&self, size: AskSize, rates: &Rates) -> Result<SliceFit, Interrupt> {
        let run = self.live_run.run;
        for _ in 0..3 {
            match self.fit(size, rates) {
                Fit::Fits { max_output, hold, landing } => {
                    let need = hold + landing - self.tree.read_run(run, landing_hold);
                    if reserve_share(&self.tree, run, held(need)).await?.is_none() {
                        return Ok(SliceFit::Held(Slice { max_output, need }));
                    }
                }
                Fit::Later | Fit::Full(_) => {
                    read_limits(&self.tree).await?;
                    report_share(&self.tree).await?;
                    let fit = self.fit(size, rates);
                    if !matches!(fit, Fit::Fits { .. }) {
                        return Ok(SliceFit::Not(fit));
                    }
                }
            }
        }
        // Others reserve at the same time.
        Ok(SliceFit::Not(Fit::Later))
    }

    /// Learns what other segments use of shared limits, before a call that waits for them is checked again.
    pub(crate) async fn read_others(&self) {
        if shares_limits(&self.tree)
            && let Err(error) = async { read_limits(&self.tree).await.and(report_share(&self.tree).await) }.await
        {
            tracing::warn!(tree = %self.tree.id, %error, "cannot read what other workers use of the limits");
        }
    }

    /// Ends the grant, and checks that the call is still as large as it was when it was granted. Called under the lock of the
    /// tree.
    pub(super) fn within_slice(&self, tree: &RunTree, slice: Option<&Slice>, fit: Fit) -> Fit {
        let (Some(slice), Some(segment)) = (slice, &self.tree.segment) else { return fit };
        segment.grant_used(self.live_run.run, &held(slice.need));
        let Fit::Fits { hold, landing, .. } = &fit else { return fit };
        let kept = tree.get(self.live_run.run).map(landing_hold).unwrap_or_default();
        let need = *hold + *landing - kept;
        let is_within = need.tokens <= slice.need.tokens && need.cost_micros <= slice.need.cost_micros;
        if is_within { fit } else { Fit::Later }
    }
}

fn held(need: Reservation) -> Share {
    Share { held: need, ..Share::default() }
}
