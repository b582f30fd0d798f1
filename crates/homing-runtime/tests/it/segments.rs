//! Trees that several workers drive: the same results as in one process, shared limits, and segments at which workers die.

use std::{sync::Arc, time::Duration};

use homing_core::{
    definition::AgentDefinition,
    envelope::{Envelope, Status},
    fact::CancelledBy,
    limits::Limits,
    message::{Message, Reply, Usage},
    model::{AskFailure, Model, ModelCard, ModelRequest, Rates, SingleModel, ToolChoice},
    scripted_model::{call, last_words, say},
};
use homing_runtime::{Runtime, RuntimeParts, Task, journal::MemoryJournal};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, segments_in},
    support::{TestModel, TestTool, agent_with},
};

fn delegate(agent: &str, number: usize) -> (&'static str, Value) {
    ("delegate", json!({"agent": agent, "task": format!("part {number}")}))
}

/// `lead` delegates to three `mid`, each `mid` to two `leaf`, and each `leaf` reads twice.
fn decide(request: ModelRequest<'_>) -> Result<Reply, AskFailure> {
    let usage = Usage::default().input(100).output(10);
    if request.choice == ToolChoice::Off {
        return Ok(say("what I have").usage(usage));
    }
    let turn = request.messages.iter().filter(|entry| matches!(entry.message, Message::Assistant(_))).count();
    let name = request.system.split_whitespace().next().unwrap_or_default();
    let reply = match (name, turn) {
        ("lead", 0) => call((0..3).map(|number| delegate("mid", number))),
        ("mid", 0) => call((0..2).map(|number| delegate("leaf", number))),
        ("leaf", 0) => call([("read", json!({"n": 1})), ("read", json!({"n": 2}))]),
        _ => say(format!("{name}: {}", last_words(&request))),
    };
    Ok(reply.usage(usage))
}

fn agents() -> Vec<AgentDefinition> {
    let mut all =
        vec![agent_with("lead", &["delegate"]), agent_with("mid", &["delegate"]), agent_with("leaf", &["read"])];
    for agent in &mut all {
        agent.tools.delegates = Some(vec!["delegate".parse().unwrap(), "read".parse().unwrap()]);
    }
    all
}

fn model(takes: Duration) -> Arc<dyn Model> {
    TestModel::with(
        ModelCard::free("script/m").rates(Rates::default().input(1_000_000).output(2_000_000)),
        takes,
        decide,
    )
}

fn worker(model: &Arc<dyn Model>, journal: Arc<dyn homing_runtime::journal::Journal>) -> Runtime {
    let registry = agents().into_iter().collect();
    let mut parts = RuntimeParts::new(registry, Arc::new(SingleModel(model.clone())), journal);
    parts.tools = vec![TestTool::simple("read")];
    Runtime::new(parts)
}

async fn on_workers(cluster: &Arc<Cluster>, takes: Duration, task: &Task) -> homing_runtime::RunHandle {
    let model = model(takes);
    let workers = (0..3).map(|_| worker(&model, cluster.journal())).collect();
    cluster.submit(workers, task).await
}

/// An envelope without ids and times.
fn shape(envelope: &Envelope) -> Value {
    let children: Vec<Value> = envelope.children.iter().map(shape).collect();
    let sums = [&envelope.usage, &envelope.subtree].map(|usage| {
        let (input, output) = (usage.input, usage.output);
        json!([input, output, usage.turns, usage.tool_calls])
    });
    json!([envelope.agent, envelope.status, envelope.output, envelope.limit, sums, children])
}

#[tokio::test(start_paused = true)]
async fn workers_give_the_envelope_of_one_process() {
    let (task, takes) = (Task::new("lead", "go"), Duration::from_millis(100));
    let here = worker(&model(takes), MemoryJournal::new()).spawn(task.clone()).unwrap().wait().await;
    let cluster = Cluster::new(None);
    let there = on_workers(&cluster, takes, &task).await.wait().await;
    assert_eq!(here.status, Status::Done);
    assert_eq!(shape(&here), shape(&there));
    assert_eq!((cluster.segments(), segments_in(&cluster.tree())), (10, 10), "every run works on a worker of its own");
}

#[tokio::test(start_paused = true)]
async fn workers_share_limits_exactly() {
    for calls in [1, 7, 11] {
        let task = Task::new("lead", "go").limits(Limits::default().tool_calls(calls));
        let cluster = Cluster::new(None);
        let end = on_workers(&cluster, Duration::from_millis(100), &task).await.wait().await;
        assert!(end.subtree.tool_calls <= calls, "{} of {calls} calls", end.subtree.tool_calls);
        assert_eq!(cluster.tree().root().unwrap().subtree.tool_calls, end.subtree.tool_calls);
        assert!(cluster.most(end.run).tool_calls <= calls);
    }
    for runs in [1, 4, 8] {
        let task = Task::new("lead", "go").limits(Limits::default().children(runs));
        let cluster = Cluster::new(None);
        let end = on_workers(&cluster, Duration::from_millis(100), &task).await.wait().await;
        assert_eq!(end.all().len() as u64 - 1, runs, "as many as are allowed, and no more");
        assert!(cluster.most(end.run).children <= runs);
    }
    for micros in [20_000, 60_000] {
        let task = Task::new("lead", "go").limits(Limits::default().cost_micros(micros));
        let cluster = Cluster::new(None);
        let end = on_workers(&cluster, Duration::from_millis(100), &task).await.wait().await;
        assert!(end.subtree.cost_micros <= micros, "{} of {micros} micro-dollars", end.subtree.cost_micros);
        assert!(cluster.most(end.run).spent.cost_micros <= micros);
    }
}

#[tokio::test(start_paused = true)]
async fn raised_limits_reach_the_workers_of_child_runs() {
    let task = Task::new("lead", "go").limits(Limits::default().tool_calls(10));
    let cluster = Cluster::new(None);
    let root = on_workers(&cluster, Duration::from_millis(100), &task).await;
    // The third `mid` would be the last to call something: 3 + 6 calls to delegate, and one of twelve to read.
    tokio::time::sleep(Duration::from_millis(250)).await;
    cluster.raise(Limits::default().tool_calls(20)).await;
    let end = root.wait().await;
    assert_eq!((end.status, end.subtree.tool_calls), (Status::Done, 21));
    assert!(end.all().iter().all(|run| run.status == Status::Done));
}

#[tokio::test(start_paused = true)]
async fn exhausted_root_goes_on_with_more_budget() {
    let task = Task::new("leaf", "go").limits(Limits::default().tool_calls(1));
    let cluster = Cluster::new(None);
    let end = on_workers(&cluster, Duration::from_millis(100), &task).await.wait().await;
    assert_eq!((end.status, end.usage.tool_calls), (Status::Exhausted, 1));
    let same = cluster.resume(Limits::default()).await.wait().await;
    assert_eq!((same.status, same.usage.turns), (Status::Exhausted, end.usage.turns), "nothing happens without more");
    let more = Limits::default().tool_calls(2);
    let end = cluster.resume(more).await.wait().await;
    assert_eq!(end.status, Status::Done);
    let again = cluster.resume(more).await.wait().await;
    assert_eq!(
        (again.status, again.usage.turns),
        (Status::Done, end.usage.turns),
        "a run that is done is not continued"
    );
}

#[tokio::test(start_paused = true)]
async fn child_at_which_workers_die_fails_and_its_parent_goes_on() {
    let cluster = Cluster::new(Some("leaf"));
    let end = on_workers(&cluster, Duration::from_millis(100), &Task::new("mid", "go")).await.wait().await;
    assert_eq!((end.status, end.children.len()), (Status::Done, 2));
    for child in &end.children {
        assert_eq!(child.status, Status::Failed);
        let error = child.error.as_ref().unwrap();
        assert_eq!(error.message, "5 workers died at the same step of this run");
    }
    assert!(end.output.contains("workers died at the same step"), "{}", end.output);
}

#[tokio::test(start_paused = true)]
async fn cancel_reaches_other_workers() {
    let cluster = Cluster::new(None);
    let root = on_workers(&cluster, Duration::from_secs(60), &Task::new("lead", "go")).await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    root.cancel(CancelledBy::Signal);
    let end = root.wait().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let open = cluster.tree().runs().iter().filter(|run| run.ended.is_none()).count();
    assert_eq!((end.status, open), (Status::Cancelled, 0), "no run is left behind");
}
