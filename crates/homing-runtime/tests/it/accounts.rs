//! Accounts, which processes share: a call that would fit once others settle waits.

use std::{sync::Arc, time::Duration};

use homing_core::{
    envelope::Status,
    limits::{Cap, Limit, Limits},
    message::Usage,
    model::{ModelCard, Rates},
    scripted_model::{call, say},
};
use homing_runtime::{
    Runtime, Task,
    clock::Sources,
    journal::sqlite::{Account, SqliteJournal, SqliteOptions},
};
use serde_json::json;

use crate::support::{SimulatedWorld, TestModel, TestSetup, agent, wait_for};

/// A model whose replies cost $0.001, of which each call must reserve far more.
fn model() -> Arc<TestModel> {
    let rates = Rates::default().input(2_500_000).output(10_000_000);
    let card = ModelCard::free("script/paid").rates(rates);
    TestModel::with(card, Duration::from_millis(30), |request| {
        let reply = match (request.system, request.messages.len()) {
            ("lead", 1) => call((0..24).map(|n| ("delegate", json!({"agent": "worker", "task": format!("part {n}")})))),
            _ => say("done"),
        };
        Ok(reply.usage(Usage::default().input(200).output(50)))
    })
}

fn runtime(setup: &TestSetup, folder: &tempfile::TempDir, micros: u64) -> Runtime {
    let mut options = SqliteOptions::default();
    options.accounts.insert("team".to_owned(), Account { per_day_micros: Some(micros) });
    let journal = SqliteJournal::open(folder.path().join("journal.db"), options).unwrap();
    let mut parts = setup.parts(journal, SimulatedWorld::new(1));
    parts.sources = Sources::default();
    Runtime::new(parts)
}

fn task() -> Task {
    let limits = Limits::default().with(Limit::Cost, Cap::Unlimited);
    let mut task = Task::new("lead", "go").limits(limits);
    task.account = Some("team".to_owned());
    task
}

#[tokio::test]
async fn children_wait_for_their_account_instead_of_ending() {
    let setup = TestSetup::new([agent("lead"), agent("worker")], model());
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime(&setup, &folder, 150_000);
    let envelope = wait_for(&runtime.spawn(task()).unwrap()).await;
    assert_eq!(envelope.status, Status::Done, "{}", envelope.tree());
    assert!(envelope.children.iter().all(|child| child.status == Status::Done), "{}", envelope.tree());
    assert_eq!(envelope.subtree.cost_micros, 26 * 1_000);
}

#[tokio::test]
async fn roots_of_several_journal_owners_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let setup = TestSetup::new([agent("lead"), agent("worker")], model());
    let runtimes: Vec<Runtime> = (0..5).map(|_| runtime(&setup, &folder, 400_000)).collect();
    let runs: Vec<_> = runtimes.iter().map(|runtime| runtime.spawn(task()).unwrap()).collect();
    for run in &runs {
        let envelope = wait_for(run).await;
        assert_eq!(envelope.status, Status::Done, "{}", envelope.tree());
        assert!(envelope.children.iter().all(|child| child.status == Status::Done), "{}", envelope.tree());
    }
}
