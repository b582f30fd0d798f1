//! Failed model calls: retries, pauses and charges.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use homing_core::{
    definition::ModelChoice,
    envelope::Status,
    limits::Limits,
    message::Usage,
    model::{AskFailure, Charge, Model, ModelCard, ModelError, Models, ResolvedModel},
    scripted_model::{call, last_words, say},
};
use homing_runtime::{Runtime, Task, journal::MemoryJournal};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{SimulatedWorld, TestModel, TestSetup, agent, wait_for};

fn busy(retry_after_ms: Option<u64>) -> AskFailure {
    AskFailure::free(ModelError::Busy { retry_after_ms, reason: "529".into() })
}

/// A model that fails a number of times, then answers.
fn after(failures: usize, failure: AskFailure) -> Arc<TestModel> {
    let left = AtomicUsize::new(failures);
    TestModel::with(ModelCard::free("script/shaky"), Duration::from_millis(10), move |_| {
        match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Err(failure.clone()),
            Err(_) => Ok(say("at last")),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn fifty_overload_errors_cost_nothing() {
    let model = after(50, busy(None));
    let (envelope, _) = TestSetup::new([agent("a")], model.clone()).run(Task::new("a", "go")).await;
    assert_eq!((envelope.status, model.times_asked()), (Status::Done, 51));
    assert_eq!((envelope.usage.turns, envelope.usage.input, envelope.usage.output), (1, 10, 5));
}

#[tokio::test(start_paused = true)]
async fn broken_connection_is_tried_six_times() {
    let broken = AskFailure::free(ModelError::Broken { reason: "reset".into() });
    let model = after(5, broken.clone());
    let (envelope, _) = TestSetup::new([agent("a")], model).run(Task::new("a", "go")).await;
    assert_eq!(envelope.status, Status::Done);
    let model = after(99, broken);
    let (envelope, _) = TestSetup::new([agent("a")], model.clone()).run(Task::new("a", "go")).await;
    let error = envelope.error.unwrap();
    assert_eq!((error.kind.as_str(), error.retryable, model.times_asked()), ("model", true, 6));
}

#[tokio::test(start_paused = true)]
async fn fault23_wrong_api_key_fails_at_once() {
    let model = after(99, AskFailure::free(ModelError::Unauthorized { reason: "401".into() }));
    let (envelope, _) = TestSetup::new([agent("a")], model.clone()).run(Task::new("a", "go")).await;
    assert_eq!((envelope.error.unwrap().kind.as_str(), model.times_asked()), ("auth", 1));
}

#[tokio::test(start_paused = true)]
async fn broken_stream_is_charged_by_its_time_or_reported_usage() {
    let cut = AskFailure::free(ModelError::Broken { reason: "cut".into() }).charge(Charge::Hold);
    let (envelope, _) = TestSetup::new([agent("a")], after(1, cut)).run(Task::new("a", "go")).await;
    // Nothing was shown of what arrived: 500 tokens for the first second.
    assert!(envelope.usage.output == 500 + 5 && envelope.usage.estimated, "{:?}", envelope.usage);
    let used = Usage::default().input(100).output(7);
    let cut = AskFailure::free(ModelError::Broken { reason: "cut".into() }).charge(Charge::Used(used));
    let (envelope, _) = TestSetup::new([agent("a")], after(1, cut)).run(Task::new("a", "go")).await;
    assert_eq!((envelope.usage.input, envelope.usage.output), (110, 12));
}

#[tokio::test(start_paused = true)]
async fn fault21_retry_after_pauses_all_runs_and_loses_none() {
    // For the first minute the provider asks for a pause of 30 seconds; the log has the time of each request.
    let log: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let started = Instant::now();
    let model = {
        let log = log.clone();
        TestModel::new(move |request| {
            if request.system == "lead" {
                return Ok(match request.messages.len() {
                    1 => call((0..64).map(|n| ("delegate", json!({"agent": "scout", "task": n.to_string()})))),
                    _ => say("all back"),
                });
            }
            log.lock().unwrap().push(started.elapsed());
            if started.elapsed() < Duration::from_secs(60) { Err(busy(Some(30_000))) } else { Ok(say("here")) }
        })
    };
    let mut setup = TestSetup::new([agent("lead"), agent("scout")], model);
    setup.config.max_runs = 64;
    setup.config.max_asks = 64;
    let limits = Limits::default().children(64);
    let (envelope, _) = setup.run(Task::new("lead", "go").limits(limits)).await;
    assert_eq!(envelope.children.iter().filter(|child| child.status == Status::Done).count(), 64);
    let log = log.lock().unwrap();
    let first = log[0];
    let early =
        log.iter().filter(|at| **at > first + Duration::from_millis(200) && **at < first + Duration::from_secs(30));
    assert_eq!(early.count(), 0, "no request during the pause: {log:?}");
}

#[tokio::test(start_paused = true)]
async fn fault22_five_minutes_of_overload_lose_no_run() {
    let started = Instant::now();
    let asks = Arc::new(Mutex::new(0_u32));
    let model = {
        let asks = asks.clone();
        TestModel::new(move |request| {
            if request.system == "lead" {
                return Ok(match request.messages.len() {
                    1 => call((0..16).map(|n| ("delegate", json!({"agent": "scout", "task": n.to_string()})))),
                    _ => say("all back"),
                });
            }
            *asks.lock().unwrap() += 1;
            if started.elapsed() < Duration::from_secs(300) { Err(busy(None)) } else { Ok(say("here")) }
        })
    };
    let setup = TestSetup::new([agent("lead"), agent("scout")], model);
    let (envelope, _) = setup.run(Task::new("lead", "go").limits(Limits::default().children(16))).await;
    assert_eq!(envelope.children.iter().filter(|child| child.status == Status::Done).count(), 16, "{envelope:?}");
    let asks = *asks.lock().unwrap();
    assert!(asks < 16 * 60, "{asks} requests of 16 children in five minutes are too many");
}

#[tokio::test(start_paused = true)]
async fn retry_after_beyond_the_deadline_fails_at_once() {
    let started = Instant::now();
    let limits = Limits::default().wall(Duration::from_secs(60));
    let (envelope, _) =
        TestSetup::new([agent("a")], after(9, busy(Some(86_400_000)))).run(Task::new("a", "go").limits(limits)).await;
    assert!(started.elapsed() < Duration::from_secs(2));
    let error = envelope.error.unwrap();
    assert!(error.message.contains("more than this run has left") && error.retryable, "{}", error.message);
}

/// Two models by name.
struct Two(Arc<dyn Model>, Arc<dyn Model>);

impl Models for Two {
    fn resolve(&self, _: &ModelChoice, _: Option<&str>) -> Result<ResolvedModel, ModelError> {
        Ok(ResolvedModel { names: vec!["script/first".into(), "script/second".into()], warnings: vec![] })
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(if name == "script/first" { self.0.clone() } else { self.1.clone() })
    }
}

#[tokio::test(start_paused = true)]
async fn unusable_model_is_replaced_by_the_next() {
    let unusable = AskFailure::free(ModelError::Unusable { reason: "404".into() });
    let first = TestModel::with(ModelCard::free("script/first"), Duration::ZERO, move |_| Err(unusable.clone()));
    let second =
        TestModel::with(ModelCard::free("script/second"), Duration::ZERO, |request| Ok(say(last_words(&request))));
    let setup = TestSetup::new([agent("a")], first.clone());
    let mut parts = setup.parts(MemoryJournal::new(), SimulatedWorld::new(1));
    parts.models = Arc::new(Two(first.clone(), second));
    let run = Runtime::new(parts).spawn(Task::new("a", "go")).unwrap();
    let envelope = wait_for(&run).await;
    assert_eq!((envelope.output.as_str(), first.times_asked()), ("go", 1));
    assert_eq!(run.tree().root().unwrap().asked_model(), Some("script/second"));
}

#[tokio::test(start_paused = true)]
async fn fault24_full_context_is_summarised_and_the_run_continues() {
    let model = TestModel::new(|request| {
        if request.system.starts_with("You keep the notes") {
            return Ok(say("notes: nine files read"));
        }
        if request.messages.len() > 12 {
            return Err(AskFailure::free(ModelError::ContextFull { reason: "too long".into() }));
        }
        let first = format!("{:?}", request.messages[0].message);
        Ok(if first.contains("notes: nine files") {
            say("done with notes")
        } else {
            call([("read", json!({"n": request.messages.len()}))])
        })
    });
    let setup = TestSetup::new([agent("a")], model).tools([crate::support::TestTool::simple("read")]);
    let (envelope, _) = setup.run(Task::new("a", "go")).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "done with notes"));
}

#[tokio::test(start_paused = true)]
async fn conversation_is_summarised_at_the_size_that_the_agent_names() {
    let summaries = |window: Option<u64>| async move {
        let model = TestModel::new(|request| {
            if request.system.starts_with("You keep the notes") {
                return Ok(say("notes: much was read"));
            }
            let noted = format!("{:?}", request.messages[0].message).contains("notes: much");
            Ok(match (noted, request.messages.len()) {
                (true, _) => say("done with notes"),
                (false, n) if n > 12 => say("done"),
                (false, n) => call([("read", json!({"n": n}))]),
            })
        });
        let mut agent = agent("a");
        agent.context.compact_window = window;
        let text = "word ".repeat(20_000);
        let read = crate::support::TestTool::new("read", Default::default(), Duration::ZERO, move |_| {
            homing_core::tool::ToolOutput::text(text.clone())
        });
        TestSetup::new([agent], model).tools([read]).run(Task::new("a", "go")).await.0.output
    };
    assert_eq!(summaries(Some(20_000)).await, "done with notes");
    assert_eq!(summaries(None).await, "done");
    assert_eq!(summaries(Some(1_000_000)).await, "done");
}

#[tokio::test(start_paused = true)]
async fn context_that_stays_full_ends_the_run() {
    let model = TestModel::new(|request| {
        if request.system.starts_with("You keep the notes") {
            return Ok(say("notes"));
        }
        match request.messages.len() {
            n if n < 9 && !format!("{:?}", request.messages[0].message).contains("notes") => {
                Ok(call([("read", json!({"n": n}))]))
            }
            _ => Err(AskFailure::free(ModelError::ContextFull { reason: "too long".into() })),
        }
    });
    let setup = TestSetup::new([agent("a")], model.clone()).tools([crate::support::TestTool::simple("read")]);
    let (envelope, _) = setup.run(Task::new("a", "go")).await;
    assert!(envelope.status != Status::Done && model.times_asked() < 20, "{:?}", envelope.status);
}

#[tokio::test(start_paused = true)]
async fn call_that_a_crash_interrupted_is_repeated_at_once() {
    let model = TestModel::new(|_| Ok(say("hello")));
    let setup = TestSetup::new([agent("a")], model);
    let (_, journal) = setup.run(Task::new("a", "go")).await;
    let is_open = |record: &&std::sync::Arc<homing_core::fact::Record>| record.seq < 2;
    let records: Vec<_> = journal.records(crate::support::root_id()).iter().filter(is_open).cloned().collect();
    assert_eq!(records.last().unwrap().fact.kind(), "asked");
    let cut = homing_runtime::journal::MemoryJournal::with(records);
    let runtime = homing_runtime::Runtime::new(setup.parts(cut, crate::support::SimulatedWorld::after(9)));
    let started = tokio::time::Instant::now();
    let claim = homing_runtime::journal::Claim::IfGone;
    let run = runtime.resume(crate::support::root_id(), claim, Default::default()).await.unwrap();
    assert_eq!(crate::support::wait_for(&run).await.output, "hello");
    assert_eq!(started.elapsed(), Duration::from_millis(100), "the reply takes 100 ms, and nothing waits before it");
}

#[tokio::test(start_paused = true)]
async fn interrupted_call_is_charged_what_was_streamed() {
    let rates = homing_core::model::Rates::default().output(10_000_000);
    let card = ModelCard::free("script/paid").rates(rates);
    let model = TestModel::with(card, Duration::from_secs(6_000), |_| Ok(say("words ".repeat(500))));
    let limits = homing_core::limits::Limits::default().wall(Duration::from_secs(5));
    let setup = TestSetup::new([agent("a")], model);
    let (envelope, journal) = setup.run(Task::new("a", "go").limits(limits)).await;
    assert_eq!(envelope.status, Status::TimedOut);
    assert!(envelope.output.starts_with("words words"), "{}", envelope.output);
    assert_eq!(
        (envelope.usage.output, envelope.usage.estimated),
        (1_320, true),
        "3,000 bytes are at most 1,320 tokens"
    );
    assert_eq!((envelope.usage.cost_micros, envelope.usage.at_most_micros), (13_200, 13_200));
    let records = journal.records(crate::support::root_id());
    let charged = records.iter().find_map(|record| match &record.fact {
        homing_core::fact::Fact::AskFailed { failure, .. } => Some(failure.charge),
        _ => None,
    });
    assert_eq!(charged, Some(Charge::Hold), "the record says that the usage is not known");
}
