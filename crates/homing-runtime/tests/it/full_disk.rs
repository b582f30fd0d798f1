//! A disk that fills up during a run: no effect without a record of its beginning, an end that names the reason, and the
//! usual end once there is space.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use homing_core::{
    BoxFuture,
    envelope::Status,
    fact::{Fact, Record},
    limits::Limits,
};
use homing_runtime::{
    Runtime,
    journal::{Begun, Claim, Commit, FactListener, Journal, JournalError, MemoryJournal},
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    cut_anywhere::{SCENARIOS, answered, asked, count, same_end},
    support::{SimulatedWorld, root_id, wait_for},
};

/// A journal that can store a number of records.
struct SmallJournal {
    memory: Arc<MemoryJournal>,
    capacity: AtomicUsize,
}

impl SmallJournal {
    fn has_space(&self) -> bool {
        self.capacity.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

fn full() -> JournalError {
    JournalError::Unwritable("the disk is full".to_owned())
}

impl Journal for SmallJournal {
    fn on_durable(&self, listener: FactListener) {
        self.memory.on_durable(listener);
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        if self.has_space() { self.memory.begin(first) } else { Box::pin(std::future::ready(Err(full()))) }
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        if self.has_space() { self.memory.append(record) } else { Commit::Done(Err(full())) }
    }

    fn load(&self, tree: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        self.memory.load(tree)
    }

    fn claim(&self, tree: Uuid, claim: Claim) -> BoxFuture<'_, Result<u32, JournalError>> {
        self.memory.claim(tree, claim)
    }

    fn release(&self, tree: Uuid) {
        self.memory.release(tree);
    }
}

#[tokio::test(start_paused = true)]
async fn inv9_fault5_full_disk_blocks_effects_until_space_returns() {
    for (name, scenario) in SCENARIOS {
        let (setup, model) = (scenario.setup)();
        let (whole, journal) = setup.run((scenario.task)()).await;
        let (records, asks) = (journal.records(root_id()).len(), model.times_asked());
        for capacity in 1..records {
            let (setup, model) = (scenario.setup)();
            let memory = MemoryJournal::new();
            let journal = Arc::new(SmallJournal { memory: memory.clone(), capacity: capacity.into() });
            let began = Instant::now();
            let runtime = Runtime::new(setup.parts(journal, SimulatedWorld::new(1)));
            let failed = wait_for(&runtime.spawn((scenario.task)()).unwrap()).await;
            let when = format!("{name} with space for {capacity}");

            let written = memory.records(root_id());
            assert_eq!(model.times_asked(), count(&written, asked), "{when}");
            assert!(
                !failed.usage.estimated || whole.usage.estimated,
                "{when}: a call that was not made is charged: {failed:?}"
            );
            let called: usize = setup.tools.iter().map(|tool| tool.times_called()).sum();
            let meant =
                count(&written, |fact| matches!(fact, Fact::Called(called) if !called.call.name.contains("delegate")));
            assert!(called <= meant, "{when}: {called} calls, {meant} of them recorded");
            let failed_for_space = failed.status == Status::Failed
                && failed.error.as_ref().is_some_and(|error| error.message.contains("full"));
            let warned = failed.warnings.iter().any(|warning| warning.contains("could not be recorded"));
            assert!(failed_for_space || warned, "{when}: {failed:?}");
            assert!(began.elapsed() < Duration::from_secs(10), "{when}");

            let spent = count(&written, answered);
            let (setup, model) = (scenario.setup)();
            let runtime = Runtime::new(setup.parts(memory, SimulatedWorld::after(1_000)));
            let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
            same_end(name, capacity, &whole, &wait_for(&run).await);
            assert_eq!(model.times_asked(), asks - spent, "{when}");
        }
    }
}
