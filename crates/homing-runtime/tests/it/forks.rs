//! Forks of recorded trees: calls that had begun, and messages to runs that have new IDs.

use std::{sync::Arc, time::Duration};

use homing_core::{
    envelope::Status,
    fact::{CallRefusal, Fact},
    model::Model,
    scripted_model::{call, say},
    tool::{Replay, ToolOutput},
};
use homing_runtime::{Fork, Runtime, Task, journal::MemoryJournal};
use serde_json::json;

use crate::support::{SimulatedWorld, TestModel, TestSetup, TestTool, agent, wait_for};

fn setup(replay: Replay) -> (TestSetup, Arc<TestModel>, Arc<TestTool>) {
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            1 => call([("act", json!({}))]),
            _ => say("over"),
        })
    });
    let act = TestTool::new("act", replay, Duration::from_millis(30), |_| ToolOutput::text("acted"));
    let setup = TestSetup::new([agent("a")], model.clone() as Arc<dyn Model>).tools([act.clone()]);
    (setup, model, act)
}

#[tokio::test(start_paused = true)]
async fn fork_does_not_repeat_a_call_that_had_begun() {
    for (replay, is_repeated) in [(Replay::Safe, true), (Replay::Keyed, false), (Replay::Unsafe, false)] {
        let (first, ..) = setup(replay);
        let (whole, journal) = first.run(Task::new("a", "go")).await;
        let records = journal.records(whole.run);
        let called = records.iter().position(|record| matches!(record.fact, Fact::Called(_))).unwrap();

        let (setup, model, act) = setup(replay);
        let journal = MemoryJournal::with(records.iter().cloned());
        let runtime = Runtime::new(setup.parts(journal.clone(), SimulatedWorld::after(100)));
        let fork = wait_for(&runtime.fork(whole.run, Fork::at(called as u64)).await.unwrap()).await;
        assert_eq!((fork.status, fork.output.as_str()), (Status::Done, "over"), "{replay:?}");
        assert_eq!((act.times_called(), model.times_asked()), (usize::from(is_repeated), 1), "{replay:?}");
        let is_unknown = |fact: &Fact| matches!(fact, Fact::Returned { refused: Some(refused), .. } if *refused == CallRefusal::OutcomeUnknown);
        let unknown = journal.records(fork.run).iter().filter(|record| is_unknown(&record.fact)).count();
        assert_eq!(unknown, usize::from(!is_repeated), "{replay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn fork_during_a_model_call_makes_it_once_and_charges_nothing_for_the_other() {
    let (first, ..) = setup(Replay::Safe);
    let (whole, journal) = first.run(Task::new("a", "go")).await;
    let records = journal.records(whole.run);
    let asked = records.iter().position(|record| matches!(record.fact, Fact::Asked(_))).unwrap();
    let (setup, model, _) = setup(Replay::Safe);
    let journal = MemoryJournal::with(records.iter().cloned());
    let runtime = Runtime::new(setup.parts(journal.clone(), SimulatedWorld::after(100)));
    let fork = wait_for(&runtime.fork(whole.run, Fork::at(asked as u64)).await.unwrap()).await;
    assert_eq!((fork.output.as_str(), model.times_asked()), ("over", 2));
    let copies: Vec<_> =
        journal.records(fork.run).into_iter().filter(|record| matches!(record.fact, Fact::AskFailed { .. })).collect();
    assert!(copies.is_empty(), "{copies:?}");
}
