//! Cancellation: it reaches all descendants promptly and keeps partial results.

use std::{sync::Arc, time::Duration};

use homing_core::{
    envelope::Status,
    fact::CancelledBy,
    limits::Limits,
    model::{AskFailure, ModelError},
    scripted_model::{call, say},
    tool::Replay,
};
use homing_runtime::{
    Runtime, RuntimeConfig, Task,
    journal::{Claim, Journal, MemoryJournal},
};
use serde_json::json;
use uuid::Uuid;

use crate::support::{SimulatedWorld, TestModel, TestSetup, TestTool, agent, wait_for};

#[tokio::test(start_paused = true)]
async fn inv17_cancel_reaches_queued_asking_acting_sleeping_and_background_runs() {
    let model = TestModel::new(|request| match (request.system, request.messages.len()) {
        ("lead", 1) => Ok(call([
            ("delegate", json!({"agent": "worker", "task": "x"})),
            ("delegate", json!({"agent": "busy", "task": "x"})),
            ("delegate", json!({"agent": "worker", "task": "x", "background": true})),
            ("delegate", json!({"agent": "worker", "task": "queued"})),
            ("delegate", json!({"agent": "worker", "task": "queued"})),
        ])),
        ("busy", _) => Err(AskFailure::free(ModelError::Busy { retry_after_ms: Some(60_000), reason: "529".into() })),
        _ => Ok(call([("nap", json!({}))])),
    });
    let nap = TestTool::new("nap", Default::default(), Duration::from_secs(6_000), |_| Default::default());
    let mut setup = TestSetup::new([agent("lead"), agent("worker"), agent("busy")], model).tools([nap]);
    setup.config.max_runs = 2;
    let (runtime, _) = setup.open();
    let run = runtime.spawn(Task::new("lead", "go")).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let started = tokio::time::Instant::now();
    assert!(run.cancel(CancelledBy::Host));
    let envelope = wait_for(&run).await;
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(envelope.all().len(), 6);
    assert!(envelope.all().iter().all(|run| run.status == Status::Cancelled), "{}", envelope.tree());
}

#[tokio::test(start_paused = true)]
async fn r27_cancelled_tool_may_return_its_partial_result() {
    let model = TestModel::new(|request| {
        let mut reply = call([("nap", json!({}))]);
        reply.parts.insert(0, homing_core::message::Part::Text(format!("step {}", request.messages.len())));
        Ok(reply)
    });
    let nap = TestTool::new("nap", Default::default(), Duration::from_secs(60), |_| Default::default());
    let (runtime, _) = TestSetup::new([agent("a")], model).tools([nap]).open();
    let run = runtime.spawn(Task::new("a", "go")).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    run.cancel(CancelledBy::Signal);
    let envelope = wait_for(&run).await;
    assert_eq!((envelope.status, envelope.output.as_str(), envelope.partial), (Status::Cancelled, "step 1", true));
    assert!(run.log().iter().any(|line| line.contains("interrupted half way")), "{:?}", run.log());
}

#[tokio::test(start_paused = true)]
async fn partial_text_of_a_cancelled_model_call_is_kept() {
    let model = TestModel::with(homing_core::model::ModelCard::free("script/slow"), Duration::from_secs(600), |_| {
        Ok(say("half an ans"))
    });
    let (runtime, _) = TestSetup::new([agent("a")], model).open();
    let run = runtime.spawn(Task::new("a", "go")).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    run.cancel(CancelledBy::Host);
    let envelope = wait_for(&run).await;
    assert_eq!((envelope.output.as_str(), envelope.partial), ("half an ans", true));
}

#[tokio::test(start_paused = true)]
async fn tool_that_ignores_cancellation_is_abandoned_after_the_grace_period() {
    struct Deaf(homing_core::tool::ToolSpec);
    impl homing_core::tool::Tool for Deaf {
        fn spec(&self) -> &homing_core::tool::ToolSpec {
            &self.0
        }
        fn call<'a>(
            &'a self,
            _: &'a homing_core::tool::ToolContext,
            _: serde_json::Value,
        ) -> homing_core::BoxFuture<'a, homing_core::tool::ToolOutput> {
            Box::pin(std::future::pending())
        }
    }
    let setup = TestSetup::new([agent("a")], TestModel::new(|_| Ok(call([("deaf", json!({}))]))));
    let journal = homing_runtime::journal::MemoryJournal::new();
    let mut parts = setup.parts(journal, crate::support::SimulatedWorld::new(1));
    let spec = TestTool::simple("deaf");
    parts.tools = vec![std::sync::Arc::new(Deaf(homing_core::tool::Tool::spec(&*spec).clone()))];
    let runtime = homing_runtime::Runtime::new(parts);
    let run = runtime.spawn(Task::new("a", "go")).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let started = tokio::time::Instant::now();
    run.cancel(CancelledBy::Host);
    assert_eq!(wait_for(&run).await.status, Status::Cancelled);
    assert!(started.elapsed() <= RuntimeConfig::default().grace + Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn inv20_panic_in_a_tool_or_model_fails_only_its_run() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([
                ("delegate", json!({"agent": "clumsy", "task": "x"})),
                ("delegate", json!({"agent": "mad", "task": "x"})),
                ("delegate", json!({"agent": "calm", "task": "x"})),
            ]),
            ("clumsy", 1) => call([("trip", json!({}))]),
            ("mad", _) => panic!("the model is mad"),
            _ => say("fine"),
        })
    });
    let trip = TestTool::new("trip", Default::default(), Duration::ZERO, |_| panic!("tripped"));
    let agents = ["lead", "clumsy", "mad", "calm"].map(agent);
    let (envelope, _) = TestSetup::new(agents, model).tools([trip]).run(Task::new("lead", "go")).await;
    let statuses: Vec<Status> = envelope.children.iter().map(|child| child.status).collect();
    assert_eq!(statuses, [Status::Failed, Status::Failed, Status::Done]);
    let kinds: Vec<String> =
        envelope.children.iter().filter_map(|child| Some(child.error.as_ref()?.kind.clone())).collect();
    assert_eq!(kinds, ["panic", "panic"]);
    assert_eq!(envelope.status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn inv18_failed_child_does_not_lose_its_siblings_results() {
    let model = TestModel::new(|request| match (request.system, request.messages.len()) {
        ("lead", 1) => Ok(call([
            ("delegate", json!({"agent": "good", "task": "x"})),
            ("delegate", json!({"agent": "bad", "task": "x"})),
        ])),
        ("lead", _) => Ok(say(request.messages.iter().map(|entry| format!("{:?}", entry.message)).collect::<String>())),
        ("bad", _) => {
            Err(AskFailure::new(ModelError::Refused { reason: "no".into() }, homing_core::model::Charge::Nothing)
                .partial("I had found"))
        }
        _ => Ok(say("treasure")),
    });
    let (envelope, _) = TestSetup::new(["lead", "good", "bad"].map(agent), model).run(Task::new("lead", "go")).await;
    assert!(envelope.output.contains("treasure") && envelope.output.contains("I had found"), "{}", envelope.output);
    assert_eq!((envelope.children[1].output.as_str(), envelope.children[1].partial), ("I had found", true));
}

/// Starts a lead whose two workers sleep, and returns the records of that moment as a journal of which no process is left.
async fn interrupted(setup: &TestSetup) -> (Uuid, Arc<MemoryJournal>) {
    let (runtime, journal) = setup.open();
    let run = runtime.spawn(Task::new("lead", "go")).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(run.envelope().all().len(), 3, "{}", run.envelope().tree());
    (run.id(), MemoryJournal::with(journal.records(run.id())))
}

fn lead_and_workers() -> (Arc<TestModel>, Arc<TestTool>, TestSetup) {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([
                ("delegate", json!({"agent": "worker", "task": "x"})),
                ("delegate", json!({"agent": "worker", "task": "y"})),
            ]),
            ("lead", _) => say("finished"),
            ("worker", 1) => call([("nap", json!({}))]),
            _ => say("slept"),
        })
    });
    let nap = TestTool::new("nap", Replay::Safe, Duration::from_secs(60), |_| Default::default());
    let setup = TestSetup::new([agent("lead"), agent("worker")], model.clone()).tools([nap.clone()]);
    (model, nap, setup)
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_a_tree_that_no_process_drives_without_a_step() {
    let (model, nap, setup) = lead_and_workers();
    let (tree, journal) = interrupted(&setup).await;
    let before = (model.times_asked(), nap.times_called());
    let runtime = Runtime::new(setup.parts(journal.clone(), SimulatedWorld::after(100)));
    let envelope = runtime.cancel(tree, tree, CancelledBy::Host).await.unwrap();
    assert!(envelope.all().iter().all(|run| run.status == Status::Cancelled), "{}", envelope.tree());
    assert_eq!((model.times_asked(), nap.times_called()), before);
    let fold = journal.fold(tree).await.unwrap();
    assert!(fold.runs().iter().all(|run| run.ended.is_some()), "the ends are recorded");
    assert_eq!(fold.last_epoch(), 2, "by a new owner");
    let again = runtime.cancel(tree, tree, CancelledBy::Signal).await.unwrap();
    assert_eq!(again.status, Status::Cancelled, "an earlier result is returned");
    assert!(runtime.cancel(tree, Uuid::nil(), CancelledBy::Host).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn cancel_of_a_child_leaves_the_rest_of_an_interrupted_tree_to_resume() {
    let (_, _, setup) = lead_and_workers();
    let (tree, journal) = interrupted(&setup).await;
    let child = journal.fold(tree).await.unwrap().runs()[1].id;
    let runtime = Runtime::new(setup.parts(journal.clone(), SimulatedWorld::after(100)));
    let envelope = runtime.cancel(tree, child, CancelledBy::Host).await.unwrap();
    assert_eq!((envelope.run, envelope.status), (child, Status::Cancelled));
    let fold = journal.fold(tree).await.unwrap();
    let open = fold.runs().iter().filter(|run| run.ended.is_none()).count();
    assert_eq!((open, runtime.roots().len()), (2, 0), "its parent and sibling are not driven");
    let resumed = runtime.resume(tree, Claim::IfGone, Limits::default()).await.unwrap();
    let envelope = wait_for(&resumed).await;
    let statuses: Vec<Status> = envelope.all().iter().map(|run| run.status).collect();
    assert_eq!(statuses, [Status::Done, Status::Cancelled, Status::Done], "{}", envelope.tree());
}
