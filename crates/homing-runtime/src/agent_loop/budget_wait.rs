//! [`BudgetWait`]: shows that a call waits for budget, to subscribers at once and to other processes if it takes longer.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

use crate::{agent_loop::active_run::ActiveRun, event::TransientKind, journal::LiveMark};

/// Time after which a wait is stored for other processes. Short waits are frequent and not worth a write.
const MARK_AFTER: Duration = Duration::from_secs(1);

/// The wait of one call. Dropping it removes what was stored.
pub(super) struct BudgetWait<'a> {
    run: &'a ActiveRun,
    began: Option<Instant>,
    is_marked: bool,
}

impl<'a> BudgetWait<'a> {
    /// A call of `run` that does not wait yet.
    pub(super) fn new(run: &'a ActiveRun) -> Self {
        Self { run, began: None, is_marked: false }
    }

    /// Waits for `work`, and shows it.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        if self.began.is_none() {
            self.run.notify(|| TransientKind::WaitingForBudget);
        }
        let began = *self.began.get_or_insert_with(Instant::now);
        tokio::pin!(work);
        if !self.is_marked {
            if let Ok(done) = tokio::time::timeout_at(began + MARK_AFTER, &mut work).await {
                return done;
            }
            self.is_marked = true;
            self.run.mark(Some(LiveMark::WaitingForBudget));
        }
        work.await
    }
}

impl Drop for BudgetWait<'_> {
    fn drop(&mut self) {
        if self.is_marked {
            self.run.mark(None);
        }
    }
}
