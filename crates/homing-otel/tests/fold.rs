//! The fold from facts to spans, without a network.

use std::sync::{Arc, Mutex};

use homing_core::{
    BoxFuture,
    definition::AgentDefinition,
    fact::{Fact, Record},
    limits::{Cap, Limit, Limits},
    message::{Args, Part, Reply, StopReason, ToolCall, Usage},
    model::{AskFailure, Delta, Model, ModelCard, ModelRequest, OnDelta, SingleModel},
    registry::Registry,
    scripted_model::{FunctionModel, call, say},
};
use homing_otel::{Attribute, Span, SpanBodies, SpanFold, SpanId};
use homing_runtime::{
    Runtime, RuntimeParts, Task,
    journal::{Claim, MemoryJournal},
};
use serde_json::{Value, json};

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

/// Returns the facts of one agent that calls a tool and answers, started with these tags; the reply is streamed.
async fn traced_facts(tags: &[(&str, &str)]) -> Vec<Arc<Record>> {
    let agents = [AgentDefinition::new("lead", "lead", "be brief")];
    let model = Streaming(ModelCard::free("gemini/large"));
    let records: Arc<Mutex<Vec<Arc<Record>>>> = Arc::default();
    let keep = records.clone();
    let mut parts =
        RuntimeParts::new(Registry::from_iter(agents), Arc::new(SingleModel(Arc::new(model))), MemoryJournal::new());
    parts.on_fact = Some(Arc::new(move |record: &Arc<Record>| keep.lock().expect("fine").push(record.clone())));
    let task = tags.iter().fold(Task::new("lead", "find it"), |task, (name, value)| task.tag(*name, *value));
    Runtime::new(parts).spawn(task).expect("it starts").wait().await;
    std::mem::take(&mut *records.lock().expect("fine"))
}

/// Calls an unknown tool with the provider's own ID, then answers in two pieces.
struct Streaming(ModelCard);

impl Model for Streaming {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        let used = Usage::default().input(100).cached(60).cache_write(5).output(20).reasoning(7);
        let is_first = request.messages.len() == 1;
        Box::pin(async move {
            if is_first {
                let (name, args) = ("grep".to_owned(), Args::Json(json!({"pattern": "needle"})));
                let call = Part::from(ToolCall { id: "call_abc".to_owned(), name, args });
                let thinking = Part::Thinking { text: "hm".to_owned(), signature: None, origin: None };
                return Ok(Reply::default().parts(vec![thinking, call]).stop(StopReason::Calls).usage(used));
            }
            on_delta(Delta::Text("it is "));
            on_delta(Delta::Text("here"));
            Ok(say("it is here").usage(used))
        })
    }
}

fn with_bodies(records: &[Arc<Record>]) -> Vec<Span> {
    let mut fold = SpanFold::new(SpanBodies::Included);
    let finished = records.iter().filter_map(|record| fold.apply(record));
    finished.filter_map(|activity| Span::of(&activity, SpanBodies::Included)).collect()
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// Returns an attribute that is JSON.
fn json_of(span: &Span, name: &str) -> Value {
    match span.attributes.iter().find(|(key, _)| *key == name) {
        Some((_, Attribute::Text(text))) => serde_json::from_str(text).expect("valid JSON"),
        other => panic!("{name} is {other:?}"),
    }
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a Attribute> {
    span.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[tokio::test]
async fn messages_have_the_form_of_the_conventions() {
    let spans = with_bodies(&traced_facts(&[]).await);
    let chats = named(&spans, "chat large");
    let user = json!({"role": "user", "parts": [{"type": "text", "content": "find it"}]});
    assert_eq!(json_of(chats[0], "gen_ai.input.messages"), json!([user]));
    let call = json!({"type": "tool_call", "id": "call_abc", "name": "grep", "arguments": {"pattern": "needle"}});
    let parts = json!([{"type": "reasoning", "content": "hm"}, call]);
    let output = json!([{"role": "assistant", "parts": parts, "finish_reason": "tool_call"}]);
    assert_eq!(json_of(chats[0], "gen_ai.output.messages"), output);
    let second = json_of(chats[1], "gen_ai.input.messages");
    assert_eq!(second[0], user, "the request contains the whole conversation");
    assert_eq!(second[1], json!({"role": "assistant", "parts": parts}));
    assert_eq!((&second[2]["role"], &second[2]["parts"][0]["type"]), (&json!("tool"), &json!("tool_call_response")));
    assert_eq!(second[2]["parts"][0]["id"], "call_abc");
    let system = json_of(chats[0], "gen_ai.system_instructions");
    assert_eq!(system[0]["type"], "text");
    assert!(system[0]["content"].as_str().expect("text").contains("be brief"));
    let run = named(&spans, "invoke_agent lead")[0];
    assert_eq!(json_of(run, "gen_ai.input.messages"), json!([user]));
    let answer =
        json!({"role": "assistant", "parts": [{"type": "text", "content": "it is here"}], "finish_reason": "stop"});
    assert_eq!(json_of(run, "gen_ai.output.messages"), json!([answer]));
}

#[tokio::test]
async fn spans_have_the_providers_names_ids_and_token_kinds() {
    let spans = with_bodies(&traced_facts(&[]).await);
    let chats = named(&spans, "chat large");
    let is = |span: &Span, name: &str, value: Attribute| assert_eq!(attribute(span, name), Some(&value), "{name}");
    is(chats[0], "gen_ai.provider.name", Attribute::Text("gcp.gemini".to_owned()));
    is(chats[0], "gen_ai.usage.cache_read.input_tokens", Attribute::Int(60));
    is(chats[0], "gen_ai.usage.cache_creation.input_tokens", Attribute::Int(5));
    is(chats[0], "gen_ai.usage.reasoning.output_tokens", Attribute::Int(7));
    assert_eq!(attribute(chats[0], "gen_ai.response.time_to_first_chunk"), None, "it came whole");
    assert!(matches!(attribute(chats[1], "gen_ai.response.time_to_first_chunk"), Some(Attribute::Double(_))));
    is(named(&spans, "execute_tool grep")[0], "gen_ai.tool.call.id", Attribute::Text("call_abc".to_owned()));
    let run = named(&spans, "invoke_agent lead")[0];
    is(run, "gen_ai.agent.id", Attribute::Text("command_line/lead".to_owned()));
    let Some(Attribute::Text(version)) = attribute(run, "gen_ai.agent.version") else { panic!("no version") };
    assert_eq!(version.len(), 16, "a fingerprint of the definition");
}

const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn tree_continues_the_trace_of_its_caller() {
    let spans = with_bodies(&traced_facts(&[("traceparent", SENT), ("tracestate", "acme=1"), ("team", "a")]).await);
    let trace: uuid::Uuid = "4bf92f3577b34da6a3ce929d0e0e4736".parse().expect("an ID");
    assert!(spans.iter().all(|span| span.trace == trace && span.trace_state.as_deref() == Some("acme=1")));
    let run = named(&spans, "invoke_agent lead")[0];
    assert_eq!(run.parent, Some(SpanId(0x00f0_67aa_0ba9_02b7_u64.to_be_bytes())));
    assert_eq!(attribute(run, "homing.tags"), Some(&Attribute::List(vec!["team=a".to_owned()])));
    let unsampled = with_bodies(&traced_facts(&[("traceparent", &SENT.replace("-01", "-00"))]).await);
    assert_eq!(unsampled, [], "the caller decided that its trace is not recorded");
    let malformed = with_bodies(&traced_facts(&[("traceparent", "nonsense")]).await);
    assert_eq!(malformed.last().expect("the run").parent, None);
}

#[tokio::test]
async fn long_conversations_stay_valid_json() {
    let long = "x".repeat(40_000);
    let records = traced_facts(&[]).await;
    let longer = records.iter().map(|record| {
        let mut record = (**record).clone();
        match &mut record.fact {
            Fact::Spawned(spawned) => Arc::make_mut(spawned).task.clone_from(&long),
            Fact::Returned { result, .. } => Arc::make_mut(result).text.clone_from(&long),
            _ => (),
        }
        Arc::new(record)
    });
    let spans = with_bodies(&longer.collect::<Vec<_>>());
    let messages = json_of(named(&spans, "chat large")[1], "gen_ai.input.messages");
    let text = messages.to_string();
    assert!(text.len() < 70_000, "{} bytes", text.len());
    assert_eq!(messages[0]["parts"][0]["type"], "omitted", "the oldest message is left out");
    assert_eq!(messages.as_array().and_then(|list| list.last()).expect("messages")["role"], "tool");
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
