//! The disk fills up in the middle: no side effect without a record of its intent, an end that says why, and the same end as
//! ever once there is room.

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
    stage::{Rehearsal, home, root_id},
};

/// A journal with room for so many records.
struct Small {
    memory: Arc<MemoryJournal>,
    room: AtomicUsize,
}

impl Small {
    fn has_room(&self) -> bool {
        self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(1)).is_ok()
    }
}

fn full() -> JournalError {
    JournalError::Unwritable("the disk is full".to_owned())
}

impl Journal for Small {
    fn on_durable(&self, tell: FactListener) {
        self.memory.on_durable(tell);
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        if self.has_room() { self.memory.begin(first) } else { Box::pin(std::future::ready(Err(full()))) }
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        if self.has_room() { self.memory.append(record) } else { Commit::Done(Err(full())) }
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
async fn inv9_fault5_with_a_full_disk_nothing_happens_that_is_not_written_down_and_it_goes_on_once_there_is_room() {
    for (name, scenario) in SCENARIOS {
        let (stage, actor) = (scenario.stage)();
        let (whole, journal) = stage.play((scenario.task)()).await;
        let (records, asks) = (journal.records(root_id()).len(), actor.times_asked());
        for room in 1..records {
            let (stage, actor) = (scenario.stage)();
            let memory = MemoryJournal::new();
            let journal = Arc::new(Small { memory: memory.clone(), room: room.into() });
            let began = Instant::now();
            let runtime = Runtime::new(stage.parts(journal, Rehearsal::new(1)));
            let failed = home(&runtime.spawn((scenario.task)()).unwrap()).await;
            let when = format!("{name} with room for {room}");

            let written = memory.records(root_id());
            assert_eq!(actor.times_asked(), count(&written, asked), "{when}");
            let called: usize = stage.tools.iter().map(|tool| tool.times_called()).sum();
            let meant = count(&written, |fact| matches!(fact, Fact::Called(it) if !it.call.name.contains("delegate")));
            assert!(called <= meant, "{when}: {called} calls, {meant} of them written down");
            let loud =
                failed.status == Status::Failed && failed.error.as_ref().is_some_and(|it| it.message.contains("full"));
            let warned = failed.warnings.iter().any(|warning| warning.contains("not recorded"));
            assert!(loud || warned, "{when}: {failed:?}");
            assert!(began.elapsed() < Duration::from_secs(10), "{when}");

            let spent = count(&written, answered);
            let (stage, actor) = (scenario.stage)();
            let runtime = Runtime::new(stage.parts(memory, Rehearsal::after(1_000)));
            let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
            same_end(name, room, &whole, &home(&run).await);
            assert_eq!(actor.times_asked(), asks - spent, "{when}");
        }
    }
}
