//! Cancellation: it reaches all descendants promptly and keeps partial results.

use std::time::Duration;

use homing_core::{
    envelope::Status,
    fact::CancelledBy,
    model::{AskFailure, ModelError},
    scripted_model::{call, say},
};
use homing_runtime::{RuntimeConfig, Task};
use serde_json::json;

use crate::support::{TestModel, TestSetup, TestTool, agent, wait_for};

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
