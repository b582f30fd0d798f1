//! Background children, and messages between runs.

use homing_core::{
    envelope::Status,
    message::Message,
    scripted_model::{call, last_words, say},
};
use homing_runtime::Task;
use serde_json::json;

use crate::support::{TestModel, TestSetup, TestTool, agent, wait_for};

fn background(task: &str) -> serde_json::Value {
    json!({"agent": "scout", "task": task, "background": true})
}

#[tokio::test(start_paused = true)]
async fn run_is_not_done_while_background_children_are_running() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", background("one"))]),
            ("lead", 3) => say("waiting for it"),
            ("lead", _) => say(last_words(&request)),
            _ => say("found it"),
        })
    });
    let (envelope, _) = TestSetup::new([agent("lead"), agent("scout")], model).run(Task::new("lead", "go")).await;
    assert_eq!(envelope.status, Status::Done);
    assert!(envelope.output.starts_with("A background run has ended.\n[scout · run 1.1 · done"), "{}", envelope.output);
    assert!(envelope.output.ends_with("found it"));
}

#[tokio::test(start_paused = true)]
async fn wait_returns_when_all_or_the_first_have_ended() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", background("quick")), ("delegate", background("slow"))]),
            ("lead", 4) => call([("wait", json!({"any": true}))]),
            ("lead", 6..=7) => call([("wait", json!({"runs": ["1.2"]}))]),
            ("lead", _) => {
                let reports = request.messages.iter().filter(
                    |entry| matches!(&entry.message, Message::User { text, .. } if text.starts_with("A background run")),
                );
                say(format!("{} reports", reports.count()))
            }
            _ if last_words(&request) == "slow" => call([("nap", json!({}))]),
            _ => say("ok"),
        })
    });
    let nap = TestTool::new("nap", Default::default(), std::time::Duration::from_secs(60), |_| Default::default());
    let setup = TestSetup::new([agent("lead"), agent("scout")], model).tools([nap]);
    let (envelope, _) = setup.run(Task::new("lead", "go")).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "2 reports"));
}

#[tokio::test(start_paused = true)]
async fn any_other_ending_cancels_background_children() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", background("slow"))]),
            ("lead", _) => say("no").stop(homing_core::message::StopReason::Refusal),
            _ => call([("nap", json!({}))]),
        })
    });
    let nap = TestTool::new("nap", Default::default(), std::time::Duration::from_secs(6_000), |_| Default::default());
    let setup = TestSetup::new([agent("lead"), agent("scout")], model).tools([nap]);
    let (envelope, _) = setup.run(Task::new("lead", "go")).await;
    assert_eq!((envelope.status, envelope.children[0].status), (Status::Failed, Status::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn message_to_a_live_run_is_read_after_its_step() {
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            1 => call([("nap", json!({}))]),
            3 => say("no message"),
            _ => say(format!("heard: {}", last_words(&request))),
        })
    });
    let nap = TestTool::new("nap", Default::default(), std::time::Duration::from_secs(60), |_| Default::default());
    let (runtime, _) = TestSetup::new([agent("a")], model).tools([nap]).open();
    let run = runtime.spawn(Task::new("a", "go")).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    assert!(run.tell_if_open("hurry up"));
    let envelope = wait_for(&run).await;
    assert_eq!(envelope.output, "heard: hurry up");
    assert!(!run.tell_if_open("too late"));
}

#[tokio::test(start_paused = true)]
async fn r41_message_to_an_ended_run_continues_it_with_its_history() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "scout", "task": "look"}))]),
            ("lead", 3) => call([("tell", json!({"run": "1.1", "message": "and the cellar?"}))]),
            ("lead", _) => say(last_words(&request)),
            (_, 1) => say("attic searched"),
            (_, n) => say(format!("cellar searched, I remember {n} messages")),
        })
    });
    let setup = TestSetup::new([agent("lead"), agent("scout")], model);
    let (runtime, _) = setup.open();
    let run = runtime.spawn(Task::new("lead", "go")).unwrap();
    let envelope = wait_for(&run).await;
    assert!(envelope.output.ends_with("cellar searched, I remember 3 messages"), "{}", envelope.output);
    let tree = run.tree();
    assert_eq!(tree.runs()[2].spawned.continues, Some(tree.runs()[1].id));
}

#[tokio::test(start_paused = true)]
async fn run_cannot_reach_runs_that_are_not_below_it() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "scout", "task": "look"}))]),
            ("scout", 1) => call([("cancel", json!({"run": "1"}))]),
            _ => say(last_words(&request)),
        })
    });
    let (envelope, _) = TestSetup::new([agent("lead"), agent("scout")], model).run(Task::new("lead", "go")).await;
    assert!(envelope.children[0].output.starts_with("there is no run `1` below this one"));
}

#[tokio::test(start_paused = true)]
async fn lead_that_only_waits_is_woken_once_for_all_children() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call((0..40).map(|n| ("delegate", background(&n.to_string())))),
            ("lead", 42) => say("waiting for them"),
            ("lead", n) => say(format!("{} reports", n - 42)),
            (_, 1) => call([("nap", json!({"n": last_words(&request)}))]),
            _ => say("ok"),
        })
    });
    let nap = TestTool::new("nap", Default::default(), std::time::Duration::from_secs(5), |_| Default::default());
    let mut setup = TestSetup::new([agent("lead"), agent("scout")], model.clone()).tools([nap]);
    setup.config.max_runs = 4;
    let (envelope, _) = setup.run(Task::new("lead", "go")).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "41 reports"), "40 and its own last words");
    assert!(envelope.children.iter().all(|child| child.status == Status::Done));
    assert_eq!(model.asked.lock().unwrap().iter().filter(|system| *system == "lead").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn message_of_the_host_wakes_a_waiting_lead_at_once() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call(["quick", "slow"].map(|task| ("delegate", background(task)))),
            ("lead", 4) => say("waiting for them"),
            ("lead", 7) => say(format!("heard: {}", last_words(&request))),
            ("lead", n) => say(format!("{n} messages")),
            (_, 1) if last_words(&request) == "slow" => call([("nap", json!({}))]),
            _ => say("ok"),
        })
    });
    let nap = TestTool::new("nap", Default::default(), std::time::Duration::from_secs(600), |_| Default::default());
    let setup = TestSetup::new([agent("lead"), agent("scout")], model.clone()).tools([nap]);
    let (runtime, _) = setup.open();
    let run = runtime.spawn(Task::new("lead", "go")).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(run.tell_if_open("how far are you?"));
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert!(run.log().iter().any(|line| line.contains("heard: how far are you?")), "{:?}", run.log());
    assert_eq!(wait_for(&run).await.output, "9 messages");
}

#[tokio::test(start_paused = true)]
async fn turn_limit_waits_for_background_children() {
    let model = TestModel::new(|request| {
        let reports = |entry: &std::sync::Arc<homing_core::message::TranscriptEntry>| matches!(&entry.message, Message::User { text, .. } if text.starts_with("A background run"));
        Ok(match (request.system, request.choice, request.messages.len()) {
            ("lead", homing_core::model::ToolChoice::Off, _) => {
                say(format!("{} reports", request.messages.iter().filter(|entry| reports(entry)).count()))
            }
            ("lead", _, n) => call([("delegate", background(&n.to_string()))]),
            (_, _, 1) => call([("nap", json!({}))]),
            _ => say("ok"),
        })
    });
    let nap = TestTool::new("nap", Default::default(), std::time::Duration::from_secs(300), |_| Default::default());
    let setup = TestSetup::new([agent("lead"), agent("scout")], model).tools([nap]);
    let limits = homing_core::limits::Limits::default().turns(5);
    let (envelope, _) = setup.run(Task::new("lead", "go").limits(limits)).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Exhausted, "4 reports"));
    assert!(envelope.children.iter().all(|child| child.status == Status::Done), "{}", envelope.tree());
}
