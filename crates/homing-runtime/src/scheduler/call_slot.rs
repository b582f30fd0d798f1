//! The run slot that the concurrent calls of one reply share.

use std::sync::Arc;

use crate::{
    agent_loop::Interrupt,
    scheduler::{Scheduler, fair_semaphore::Slot},
};

/// One slot for all calls of a reply. It is given back while all of them wait for the user, so that a question holds up no
/// other run.
pub(crate) struct CallSlot {
    scheduler: Arc<Scheduler>,
    state: tokio::sync::Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    /// Calls that are not waiting for the user.
    working: usize,
    slot: Option<Slot>,
}

impl CallSlot {
    pub(crate) fn new(scheduler: Arc<Scheduler>) -> Arc<Self> {
        Arc::new(Self { scheduler, state: tokio::sync::Mutex::default() })
    }

    /// Waits until this call may work. The lock is held meanwhile, but no other call can need it: without a slot none works.
    pub(crate) async fn enter(&self) -> Result<(), Interrupt> {
        let mut state = self.lock().await;
        if state.slot.is_none() {
            state.slot = Some(self.scheduler.run_slot().await?);
        }
        state.working += 1;
        Ok(())
    }

    /// Notes that this call has ended, or waits for the user.
    pub(crate) async fn leave(&self) {
        let mut state = self.lock().await;
        state.working = state.working.saturating_sub(1);
        if state.working == 0 {
            state.slot = None;
        }
    }

    /// Locks the state. Most replies have one call, so that the lock is free.
    async fn lock(&self) -> tokio::sync::MutexGuard<'_, SlotState> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(_) => self.state.lock().await,
        }
    }
}
