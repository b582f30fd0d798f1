//! The fold alone: facts in, spans out, without a socket.

use std::sync::{Arc, Mutex};

use homing_core::{
    definition::AgentDefinition,
    fact::{Fact, Record},
    limits::{Cap, Limits},
    model::{ModelCard, SingleModel},
    registry::Registry,
    scripted_model::{FunctionModel, call, say},
};
use homing_otel::{Bodies, Fold, Span, SpanId};
use homing_runtime::{
    Runtime, RuntimeParts, Task,
    journal::{Claim, MemoryJournal},
};
use serde_json::json;

/// Every fact of a lead with one child that stops at its limit of turns and is given one more.
async fn facts() -> Vec<Arc<Record>> {
    let agents = ["lead", "worker"].map(|name| AgentDefinition::new(name, name, name));
    let model = FunctionModel::with_card(ModelCard::free("acme/large"), |request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call(["worker", "nobody"].map(|agent| ("delegate", json!({"agent": agent, "task": "go"})))),
            _ => say("done"),
        })
    });
    let records: Arc<Mutex<Vec<Arc<Record>>>> = Arc::default();
    let keep = records.clone();
    let mut parts =
        RuntimeParts::new(Registry::from_iter(agents), Arc::new(SingleModel(Arc::new(model))), MemoryJournal::new());
    parts.on_fact = Some(Arc::new(move |it: &Arc<Record>| keep.lock().expect("fine").push(it.clone())));
    let runtime = Runtime::new(parts);
    let limits = Limits { turns: Cap::At(2), ..Limits::default() };
    let run = runtime.spawn(Task::new("lead", "go").limits(limits)).expect("it starts");
    run.wait().await;
    let more = Limits { turns: Cap::At(2), ..Limits::default() };
    let again = runtime.resume(run.id(), Claim::Force, more).await.expect("it goes on");
    again.wait().await;
    std::mem::take(&mut *records.lock().expect("fine"))
}

fn spans<'a>(fold: &mut Fold, records: impl IntoIterator<Item = &'a Arc<Record>>) -> Vec<Span> {
    let finished = records.into_iter().filter_map(|record| fold.apply(record));
    finished.filter_map(|it| Span::of(&it, Bodies::Left)).collect()
}

fn is_root_end(record: &Record) -> bool {
    record.run == record.tree && matches!(record.fact, Fact::Ended(_))
}

#[tokio::test]
async fn a_run_that_was_given_more_goes_on_under_a_second_span_of_the_same_trace() {
    let records = facts().await;
    let first_end = records.iter().position(|it| is_root_end(it)).expect("it ended");
    let (before, after) = records.split_at(first_end + 1);
    let mut fold = Fold::default();
    let first = spans(&mut fold, before);
    let mut later = Fold::default();
    before.iter().for_each(|record| later.recall(record));
    let second = spans(&mut later, after);
    let root = |spans: &[Span]| spans.iter().rev().find(|it| it.parent.is_none()).expect("a root span").clone();
    let (first, second) = (root(&first), root(&second));
    assert_eq!((&*first.name, first.trace), ("invoke_agent lead", second.trace));
    assert_eq!((first.id, second.id), (SpanId::of_run(first.trace, 0), SpanId::of_run(first.trace, 1)));
    assert!(second.from_ms >= first.to_ms, "it began where the first one ended");
    assert!(first.attributes.iter().any(|(name, _)| *name == "homing.limit"), "{first:?}");
    assert_eq!(first.error, None, "a limit is an outcome, not an error");
}

#[tokio::test]
async fn a_tree_that_is_folded_by_two_processes_gives_the_spans_of_one() {
    let records = facts().await;
    let first_end = records.iter().position(|it| is_root_end(it)).expect("it ended");
    let records = &records[..=first_end];
    let whole = spans(&mut Fold::default(), records);
    for cut in 0..=records.len() {
        let (before, after) = records.split_at(cut);
        let mut both = spans(&mut Fold::default(), before);
        let mut second = Fold::default();
        before.iter().for_each(|record| second.recall(record));
        both.extend(spans(&mut second, after));
        assert_eq!(both, whole, "cut after {cut} facts");
    }
}

#[tokio::test]
async fn a_call_that_never_began_is_a_span_with_its_reason() {
    let all = spans(&mut Fold::default(), &facts().await);
    let refused = all.iter().filter(|it| it.name == "execute_tool delegate").find(|it| it.error.is_some());
    assert_eq!(refused.expect("nobody is no agent").error.as_deref(), Some("mistake"));
}

#[tokio::test]
async fn facts_of_a_run_that_nobody_introduced_change_nothing() {
    let records = facts().await;
    let orphans = records.iter().filter(|record| !matches!(record.fact, Fact::Spawned(_)));
    assert_eq!(spans(&mut Fold::default(), orphans), []);
}
