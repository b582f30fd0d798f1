//! A disk that takes its time: a call that may change something waits for the record of its beginning, one that only reads does
//! not, and the next model call waits for both.

use std::{sync::Arc, time::Duration};

use homing_core::{
    BoxFuture,
    envelope::Status,
    fact::Record,
    model::Model,
    scripted_model::{call, say},
    tool::{Replay, ToolOutput},
};
use homing_runtime::{
    Runtime, Task,
    journal::{Begun, Claim, Commit, FactListener, Journal, JournalError, MemoryJournal},
};
use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use crate::support::{SimulatedWorld, TestModel, TestSetup, TestTool, agent, wait_for};

/// Duration of a commit.
const COMMIT: Duration = Duration::from_secs(1);

/// A journal whose commits take [`COMMIT`].
struct SlowJournal(Arc<MemoryJournal>);

impl Journal for SlowJournal {
    fn on_durable(&self, listener: FactListener) {
        self.0.on_durable(listener);
    }

    fn begin(&self, first: Arc<Record>) -> BoxFuture<'_, Result<Begun, JournalError>> {
        self.0.begin(first)
    }

    fn append(&self, record: Arc<Record>) -> Commit {
        let (done, written) = (Instant::now() + COMMIT, self.0.append(record));
        Commit::Pending(Box::pin(async move {
            tokio::time::sleep_until(done).await;
            written.await
        }))
    }

    fn load(&self, tree: Uuid) -> BoxFuture<'_, Result<Vec<Arc<Record>>, JournalError>> {
        self.0.load(tree)
    }

    fn claim(&self, tree: Uuid, claim: Claim) -> BoxFuture<'_, Result<u32, JournalError>> {
        self.0.claim(tree, claim)
    }

    fn release(&self, tree: Uuid) {
        self.0.release(tree);
    }
}

#[tokio::test(start_paused = true)]
async fn inv9_only_a_call_without_effect_goes_ahead_of_its_record() {
    // Two model calls wait for their records; a tool that may change something waits for its own, too.
    for (replay, waits) in [(Replay::Safe, 2), (Replay::Keyed, 3), (Replay::Unsafe, 3)] {
        let model = TestModel::new(|request| {
            Ok(match request.messages.len() {
                1 => call([("act", json!({}))]),
                _ => say("over"),
            })
        });
        let act = TestTool::new("act", replay, Duration::ZERO, |_| ToolOutput::text("acted"));
        let setup = TestSetup::new([agent("a")], model.clone() as Arc<dyn Model>).tools([act.clone()]);
        let journal = Arc::new(SlowJournal(MemoryJournal::new()));
        let runtime = Runtime::new(setup.parts(journal, SimulatedWorld::new(1)));
        let (began, run) = (Instant::now(), runtime.spawn(Task::new("a", "go")).unwrap());
        tokio::time::sleep(COMMIT * waits - COMMIT / 2).await;
        assert_eq!((model.times_asked(), act.times_called()), (1, 1), "{replay:?}: the last commit is under way");

        let envelope = wait_for(&run).await;
        assert_eq!((envelope.status, model.times_asked(), act.times_called()), (Status::Done, 2, 1), "{replay:?}");
        // The end of the run is a record, too.
        assert_eq!(began.elapsed().as_secs(), u64::from(waits) + 1, "{replay:?}");
    }
}
