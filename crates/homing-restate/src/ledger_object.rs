//! The object of a tree's ledger: the share of each segment in the limits that several segments use. It grants a share only
//! if the sum fits, so limits hold whichever worker dies. Requests state the whole share of a segment, so a repeated one changes
//! nothing, and a new owner states what the facts of the segment say.

use homing_core::tree::Share;
use homing_runtime::placement::{HolderShare, SegmentShares, SliceReply, SliceRequest};
use restate_sdk::prelude::*;

/// The ledger of a tree.
pub(crate) struct LedgerObject;

#[restate_sdk::object(
    name = "HomingLedger",
    lazy_state,
    journal_retention = "0s",
    invocation_retry_policy(initial_interval = "50ms", max_interval = "5s", max_attempts = 1_000_000_000)
)]
impl LedgerObject {
    /// Replaces the share of a segment, unless it must fit and does not.
    #[handler]
    async fn reserve(&self, ctx: ObjectContext<'_>, slice: Json<SliceRequest>) -> HandlerResult<Json<SliceReply>> {
        let request = slice.0;
        let key = format!("s{}", request.segment);
        let holder_key = |wanted: &HolderShare| format!("h{}", wanted.holder);
        let mut own = ctx.get::<Json<SegmentShares>>(&key).await?.map(Json::into_inner).unwrap_or_default();
        let mut sums = Vec::with_capacity(request.shares.len());
        for wanted in &request.shares {
            let sum = ctx.get::<Json<Share>>(&holder_key(wanted)).await?;
            sums.push(sum.map(Json::into_inner).unwrap_or_default());
        }
        let reply = own.replace(&request, &mut sums);
        if reply.is_granted {
            for (wanted, sum) in request.shares.iter().zip(sums) {
                ctx.set(&holder_key(wanted), Json(sum));
            }
            ctx.set(&key, Json(own));
        }
        Ok(Json(reply))
    }

    /// Forgets a tree that is deleted.
    #[handler]
    async fn clear(&self, ctx: ObjectContext<'_>) -> HandlerResult<()> {
        ctx.clear_all();
        Ok(())
    }
}
