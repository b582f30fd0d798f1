//! Reserves one more tool call or child run at limits that several segments of a tree share. Others may begin theirs at the same
//! moment, so the tree's ledger decides.

use std::sync::Arc;

use homing_core::{
    fact::{Called, Fact, LimitHit, Spawned},
    limits::Limit,
    place::Place,
    tree::{RunTree, Share},
};
use uuid::Uuid;

use crate::{
    journal::{Commit, JournalError},
    live_tree::LiveTree,
    runtime::SpawnError,
    segment::{Refusal, read_limits, reserve_share, shares_limits, shares_limits_in},
};

/// A tool call or a child run that may be recorded.
struct CountGrant {
    tree: Arc<LiveTree>,
    run: Uuid,
    /// The share that the ledger granted; `None` if this process drives everything that counts.
    share: Option<Share>,
}

impl CountGrant {
    /// Reserves one more tool call or child of `run`.
    ///
    /// # Errors
    /// Fails with the limit if it is reached.
    async fn new(tree: &Arc<LiveTree>, run: Uuid, counted: Limit) -> Result<Result<Self, LimitHit>, JournalError> {
        if !shares_limits(tree) {
            return Ok(Ok(Self { tree: tree.clone(), run, share: None }));
        }
        Box::pin(Self::new_shared(tree, run, counted)).await
    }

    async fn new_shared(
        tree: &Arc<LiveTree>,
        run: Uuid,
        counted: Limit,
    ) -> Result<Result<Self, LimitHit>, JournalError> {
        let one = match counted {
            Limit::Children => Share { children: 1, ..Share::default() },
            _ => Share { tool_calls: 1, ..Share::default() },
        };
        let mut refusal = reserve_share(tree, run, one).await?;
        if refusal.is_some() {
            read_limits(tree).await?;
            refusal = reserve_share(tree, run, one).await?;
        }
        match refusal {
            None => Ok(Ok(Self { tree: tree.clone(), run, share: Some(one) })),
            Some(Refusal(Some(hit))) => Ok(Err(hit)),
            Some(Refusal(None)) => Err(JournalError::Fenced { tree: tree.id }),
        }
    }

    /// Ends the time between the grant and the record. Called under the lock of the tree. Returns false if limits have become
    /// shared meanwhile: then the ledger must be asked.
    fn end(self, fold: &RunTree) -> bool {
        self.share.is_some() || !shares_limits_in(&self.tree, fold)
    }
}

impl Drop for CountGrant {
    fn drop(&mut self) {
        if let (Some(share), Some(segment)) = (&self.share, &self.tree.segment) {
            segment.grant_used(self.run, share);
        }
    }
}

/// Records the beginning of a tool call, or returns the limit that is reached.
pub(crate) async fn record_call(
    tree: &Arc<LiveTree>,
    run: Uuid,
    called: Called,
) -> Result<Result<Commit, LimitHit>, JournalError> {
    let mut called = Some(Box::new(called));
    loop {
        let grant = match CountGrant::new(tree, run, Limit::ToolCalls).await? {
            Ok(grant) => grant,
            Err(hit) => return Ok(Err(hit)),
        };
        let recorded = tree.record_if(run, |fold| match (grant.end(fold), fold.ledger().no_more_calls(run)) {
            (true, None) => called.take().map(Fact::Called).ok_or(None),
            (true, Some(hit)) => Err(Some(hit)),
            (false, _) => Err(None),
        });
        match recorded {
            Ok(commit) => return Ok(Ok(commit)),
            Err(Some(hit)) => return Ok(Err(hit)),
            Err(None) => (),
        }
    }
}

/// Records a new child, unless a limit is reached.
pub(crate) async fn record_child(
    tree: &Arc<LiveTree>,
    parent: Uuid,
    id: Uuid,
    spawned: &Arc<Spawned>,
) -> Result<(Place, Commit), SpawnError> {
    loop {
        let grant = CountGrant::new(tree, parent, Limit::Children).await?.map_err(SpawnError::Limit)?;
        let recorded = tree.record_spawn(id, Some(parent), |fold| {
            match (grant.end(fold), fold.ledger().no_more_children(parent)) {
                (true, None) => Ok(Fact::Spawned(spawned.clone())),
                (true, Some(hit)) => Err(Some(hit)),
                (false, _) => Err(None),
            }
        });
        match recorded {
            Ok(recorded) => return Ok(recorded),
            Err(Some(hit)) => return Err(SpawnError::Limit(hit)),
            Err(None) => (),
        }
    }
}
