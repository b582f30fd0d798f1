//! The fold from facts to spans, without a network.

use std::sync::{Arc, Mutex};

use homing_core::{
    definition::AgentDefinition,
    fact::{Fact, Record},
    limits::{Cap, Limit, Limits},
    model::{ModelCard, SingleModel},
    registry::Registry,
    scripted_model::{FunctionModel, call, say},
};
use homing_otel::{Span, SpanBodies, SpanFold, SpanId};
use homing_runtime::{
    Runtime, RuntimeParts, Task,
    journal::{Claim, MemoryJournal},
};
use serde_json::json;

/// Returns every fact of a lead with one child that reaches its turn limit and is continued with one more turn.
async fn facts() -> Vec<Arc<Record>> {
    let agents = ["lead", "worker"].map(|name| AgentDefinition::new(name, name, name));
    let model = FunctionModel::with_card(ModelCard::free("acme/large"), |request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call(["worker", "unknown"].map(|agent| ("delegate", json!({"agent": agent, "task": "go"})))),
            _ => say("done"),
        })
    });
    let records: Arc<Mutex<Vec<Arc<Record>>>> = Arc::default();
    let keep = records.clone();
    let mut parts =
        RuntimeParts::new(Registry::from_iter(agents), Arc::new(SingleModel(Arc::new(model))), MemoryJournal::new());
    parts.on_fact = Some(Arc::new(move |record: &Arc<Record>| keep.lock().expect("fine").push(record.clone())));
    let runtime = Runtime::new(parts);
    let limits = Limits::default().with(Limit::Turns, Cap::At(2));
    let run = runtime.spawn(Task::new("lead", "go").limits(limits)).expect("it starts");
    run.wait().await;
    let more = Limits::default().with(Limit::Turns, Cap::At(2));
    let again = runtime.resume(run.id(), Claim::Force, more).await.expect("it goes on");
    again.wait().await;
    std::mem::take(&mut *records.lock().expect("fine"))
}

fn spans<'a>(fold: &mut SpanFold, records: impl IntoIterator<Item = &'a Arc<Record>>) -> Vec<Span> {
    let finished = records.into_iter().filter_map(|record| fold.apply(record));
    finished.filter_map(|activity| Span::of(&activity, SpanBodies::Omitted)).collect()
}

fn is_root_end(record: &Record) -> bool {
    record.run == record.tree && matches!(record.fact, Fact::Ended(_))
}

#[tokio::test]
async fn continued_run_has_a_second_span_in_the_same_trace() {
    let records = facts().await;
    let first_end = records.iter().position(|record| is_root_end(record)).expect("it ended");
    let (before, after) = records.split_at(first_end + 1);
    let mut fold = SpanFold::default();
    let first = spans(&mut fold, before);
    let mut later = SpanFold::default();
    before.iter().for_each(|record| later.replay(record));
    let second = spans(&mut later, after);
    let root = |spans: &[Span]| spans.iter().rev().find(|span| span.parent.is_none()).expect("a root span").clone();
    let (first, second) = (root(&first), root(&second));
    assert_eq!((&*first.name, first.trace), ("invoke_agent lead", second.trace));
    assert_eq!((first.id, second.id), (SpanId::of_run(first.trace, 0), SpanId::of_run(first.trace, 1)));
    assert!(second.from_ms >= first.to_ms, "it begins after the first one ended");
    assert!(first.attributes.iter().any(|(name, _)| *name == "homing.limit"), "{first:?}");
    assert_eq!(first.error, None, "a limit is an outcome, not an error");
}

#[tokio::test]
async fn two_processes_produce_the_same_spans_as_one() {
    let records = facts().await;
    let first_end = records.iter().position(|record| is_root_end(record)).expect("it ended");
    let records = &records[..=first_end];
    let whole = spans(&mut SpanFold::default(), records);
    for cut in 0..=records.len() {
        let (before, after) = records.split_at(cut);
        let mut both = spans(&mut SpanFold::default(), before);
        let mut second = SpanFold::default();
        before.iter().for_each(|record| second.replay(record));
        both.extend(spans(&mut second, after));
        assert_eq!(both, whole, "cut after {cut} facts");
    }
}

#[tokio::test]
async fn refused_call_is_a_span_with_its_reason() {
    let all = spans(&mut SpanFold::default(), &facts().await);
    let refused = all.iter().find(|span| span.name == "execute_tool delegate" && span.error.is_some());
    assert_eq!(refused.expect("`unknown` is not an agent").error.as_deref(), Some("mistake"));
}

#[tokio::test]
async fn facts_of_unknown_runs_have_no_effect() {
    let records = facts().await;
    let orphans = records.iter().filter(|record| !matches!(record.fact, Fact::Spawned(_)));
    assert_eq!(spans(&mut SpanFold::default(), orphans), []);
}
