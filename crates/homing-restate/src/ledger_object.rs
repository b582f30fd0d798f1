//! The object of a tree's ledger: the share of each segment in the limits that several segments use. It grants a share only
//! if the sum fits, so limits hold whichever worker dies. Requests state the whole share of a segment, so a repeated one changes
//! nothing, and a new owner states what the facts of the segment say.

use std::collections::BTreeMap;

use homing_core::tree::Share;
use homing_runtime::placement::{SliceReply, SliceRequest};
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The share of one segment in the limits of each run.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SegmentShares {
    epoch: u32,
    shares: BTreeMap<Uuid, Share>,
}

/// The ledger of a tree.
pub(crate) struct LedgerObject;

#[restate_sdk::object(name = "HomingLedger", lazy_state, journal_retention = "0s")]
impl LedgerObject {
    /// Replaces the share of a segment, unless it must fit and does not.
    #[handler]
    async fn reserve(&self, ctx: ObjectContext<'_>, slice: Json<SliceRequest>) -> HandlerResult<Json<SliceReply>> {
        let SliceRequest { segment, epoch, shares, must_fit, .. } = slice.0;
        let key = format!("s{segment}");
        let mut own = ctx.get::<Json<SegmentShares>>(&key).await?.map(Json::into_inner).unwrap_or_default();
        let mut reply = SliceReply { is_granted: own.epoch <= epoch, elsewhere: Vec::with_capacity(shares.len()) };
        let mut sums = Vec::with_capacity(shares.len());
        for wanted in &shares {
            let sum = ctx.get::<Json<Share>>(&format!("h{}", wanted.holder)).await?.map(Json::into_inner);
            let before = own.shares.get(&wanted.holder).copied().unwrap_or_default();
            let elsewhere = sum.unwrap_or_default().minus(&before);
            let after = elsewhere.plus(&wanted.share);
            let (was, is) = (before.total(), wanted.share.total());
            let grows = is.tokens > was.tokens || is.cost_micros > was.cost_micros;
            reply.is_granted &= !(must_fit && grows && !wanted.fits(after.total()));
            reply.elsewhere.push((wanted.holder, elsewhere));
            sums.push((wanted.holder, after));
        }
        if reply.is_granted {
            sums.into_iter().for_each(|(holder, sum)| ctx.set(&format!("h{holder}"), Json(sum)));
            own.epoch = epoch;
            own.shares.extend(shares.iter().map(|wanted| (wanted.holder, wanted.share)));
            ctx.set(&key, Json(own));
        }
        Ok(Json(reply))
    }
}
