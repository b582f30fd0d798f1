//! Arguments of `delegate` that are only for programs.

use std::sync::Arc;

use homing_core::{
    definition::AgentDefinition,
    envelope::{Envelope, Status},
    fact::Spawned,
    limits::{Cap, Limits},
    message::{Message, ToolResult},
    model::{ModelRequest, SingleModel},
    registry::Registry,
    scripted_model::{FunctionModel, call, say},
};
use homing_runtime::{ChildReport, Runtime, RuntimeParts, Task, journal::MemoryJournal};
use serde_json::{Value, json};

/// Runs a boss that delegates once with these arguments, and returns the result of that call.
async fn delegate(args: Value) -> (Envelope, ToolResult, Arc<Spawned>) {
    let decide = move |request: ModelRequest<'_>| {
        Ok(match (request.system.split_whitespace().next(), request.messages.len()) {
            (Some("boss"), 1) => call([("delegate", args.clone())]),
            (Some("boss"), _) => say("done"),
            _ if request.tools.specs.iter().any(|spec| spec.name == "answer") => call([("answer", json!({"n": 1}))]),
            _ => say("the whole answer"),
        })
    };
    let mut worker = AgentDefinition::new("worker", "works", "worker on {{topic}}");
    worker.limits = Limits::default().turns(3);
    let registry = Registry::from_iter([AgentDefinition::new("boss", "leads", "boss"), worker]);
    let model = Arc::new(SingleModel(Arc::new(FunctionModel::new("script/both", decide))));
    let runtime = Runtime::new(RuntimeParts::new(registry, model, MemoryJournal::new()));
    let handle = runtime.spawn(Task::new("boss", "lead")).unwrap();
    let envelope = handle.wait().await;
    let tree = handle.tree();
    let Message::Tool(result) = &tree.runs()[0].transcript()[2].message else { panic!("the result of the delegation") };
    (envelope, ToolResult::clone(result), tree.runs()[1].spawned.clone())
}

#[tokio::test(start_paused = true)]
async fn program_gets_a_report_and_the_plain_answer() {
    let (envelope, result, _) = delegate(json!({"agent": "worker", "task": "work", "report": "facts"})).await;
    assert_eq!((envelope.status, result.text.as_str()), (Status::Done, "the whole answer"));
    let report: ChildReport = result.data.unwrap().parse().unwrap();
    assert_eq!((report.place.to_string().as_str(), report.status), ("1.1", Status::Done));
    assert_eq!((report.ending.unwrap().error, report.output), (None, None));
}

#[tokio::test(start_paused = true)]
async fn model_gets_text_without_a_report() {
    let (_, result, _) = delegate(json!({"agent": "worker", "task": "work"})).await;
    assert!(result.text.starts_with("[worker · run 1.1 · done · 1 turns, 0 tool calls]\nthe whole answer"));
    assert_eq!(result.data, None);
}

#[tokio::test(start_paused = true)]
async fn child_can_get_its_own_schema_and_context() {
    let args = json!({
        "agent": "worker", "task": "work", "report": "facts", "context": {"topic": "ants"},
        "schema": {"type": "object", "required": ["n"]},
    });
    let (_, result, spawned) = delegate(args).await;
    assert_eq!(result.data.unwrap().value()["data"], json!({"n": 1}));
    assert!(spawned.system.starts_with("worker on ants"), "{}", spawned.system);
}

#[tokio::test(start_paused = true)]
async fn limits_of_one_child_only_narrow_its_agents() {
    let with = |turns: u64| json!({"agent": "worker", "task": "work", "limits": {"turns": {"at": turns}}});
    assert_eq!(delegate(with(2)).await.2.limits.turns, Cap::At(2));
    assert_eq!(delegate(with(50)).await.2.limits.turns, Cap::At(3));
    let tokens = json!({"agent": "worker", "task": "work", "limits": {"tokens": {"at": 20_000}}});
    let limits = delegate(tokens).await.2.limits;
    assert_eq!((limits.tokens, limits.turns), (Cap::At(20_000), Cap::At(3)));
}
