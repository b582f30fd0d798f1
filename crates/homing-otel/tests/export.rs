//! Exports facts of real runs over a socket to a collector that decodes them with OpenTelemetry's own types.

mod collector;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use collector::{Collector, closed_port, silent_server};
use homing_core::{
    BoxFuture,
    definition::AgentDefinition,
    fact::Record,
    message::{Reply, Usage},
    model::{AskFailure, Model, ModelCard, ModelError, ModelRequest, OnDelta, Rates, SingleModel},
    registry::Registry,
    scripted_model::{call, say},
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use homing_otel::{SpanBodies, Telemetry, TelemetryListener, TelemetryOptions};
use homing_runtime::{Runtime, RuntimeParts, Task, journal::MemoryJournal};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value as One},
    metrics::v1::metric::Data,
    trace::v1::Span,
};
use serde_json::{Value, json};

/// The model of a lead that delegates to two workers at once. Each worker reads once, and the first call of one fails.
struct TeamModel {
    card: ModelCard,
    failed: Mutex<bool>,
}

impl Model for TeamModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(&'a self, request: ModelRequest<'a>, _: OnDelta<'a>) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        let step = request.messages.len();
        let used = Usage::default().input(100).output(10);
        let reply = match (request.system, step) {
            ("lead", 1) => call(["one", "two"].map(|task| ("delegate", json!({"agent": "worker", "task": task})))),
            ("worker", 1) => call([("read", json!({"path": "secret-argument"}))]),
            _ => say("secret-answer"),
        };
        let breaks = request.system == "worker" && !std::mem::replace(&mut *self.failed.lock().expect("fine"), true);
        let broken = || AskFailure::free(ModelError::Broken { reason: "cut".into() });
        Box::pin(async move { if breaks { Err(broken()) } else { Ok(reply.usage(used)) } })
    }
}

struct FailingRead(ToolSpec);

impl Tool for FailingRead {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a ToolContext, _: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async { ToolOutput::error("secret-result") })
    }
}

fn runtime(on_fact: TelemetryListener) -> Runtime {
    let agents = ["lead", "worker"].map(|name| AgentDefinition::new(name, name, name));
    // 250 micro-dollars for each reply.
    let rates = Rates::default().input(2_000_000).output(5_000_000);
    let card = ModelCard::free("acme/large").rates(rates);
    let model = TeamModel { card, failed: Mutex::new(false) };
    let mut parts =
        RuntimeParts::new(Registry::from_iter(agents), Arc::new(SingleModel(Arc::new(model))), MemoryJournal::new());
    let spec = ToolSpec::new("read", "reads", json!({"type": "object"}))
        .replay(Replay::Safe)
        .effect(homing_core::tool::Effect::Reads);
    parts.tools = vec![Arc::new(FailingRead(spec))];
    parts.on_fact = Some(on_fact);
    Runtime::new(parts)
}

async fn run_a_lead(telemetry: &Telemetry) {
    let run = runtime(telemetry.listener()).spawn(Task::new("lead", "secret-task")).expect("it starts");
    assert!(run.wait().await.output.contains("secret-answer"));
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|pair| pair.key == key)?.value.clone();
    match value {
        Some(AnyValue { value: Some(One::StringValue(text)) }) => Some(text),
        Some(AnyValue { value: Some(One::IntValue(int)) }) => Some(int.to_string()),
        Some(AnyValue { value: Some(One::DoubleValue(double)) }) => Some(double.to_string()),
        other => panic!("{key} is {other:?}"),
    }
}

/// Returns the names of the spans around a span and its own, the outermost first.
fn path(span: &Span, by_id: &HashMap<Vec<u8>, Span>) -> String {
    match by_id.get(&span.parent_span_id) {
        Some(parent) => format!("{} > {}", path(parent, by_id), span.name),
        None => {
            assert!(span.parent_span_id.is_empty(), "{}: the span around it is missing", span.name);
            span.name.clone()
        }
    }
}

#[tokio::test]
async fn tree_is_one_trace_with_children_below_their_delegation() {
    let collector = Collector::start().await;
    let mut options = TelemetryOptions::new(&collector.url());
    options.headers = vec![("Authorization".into(), "Bearer abc".into())];
    options.service = "our-agents".into();
    let telemetry = Telemetry::start(options).expect("valid options");
    run_a_lead(&telemetry).await;
    let report = telemetry.finish(Duration::from_secs(20)).await;
    let received = collector.received.lock().expect("fine");
    let spans = received.spans();
    assert_eq!((report.sent, report.dropped, report.why), (spans.len() as u64, 0, None));

    let by_id: HashMap<Vec<u8>, Span> = spans.iter().map(|span| (span.span_id.clone(), span.clone())).collect();
    assert_eq!(by_id.len(), spans.len(), "IDs are unique");
    assert!(spans.iter().all(|span| span.trace_id == spans[0].trace_id && span.trace_id.len() == 16));
    assert!(spans.iter().all(|span| span.end_time_unix_nano >= span.start_time_unix_nano));
    let mut paths: Vec<String> = spans.iter().map(|span| path(span, &by_id)).collect();
    paths.sort();
    let worker = "invoke_agent lead > execute_tool delegate > invoke_agent worker";
    let chat = format!("{worker} > chat large");
    let read = format!("{worker} > execute_tool read");
    let expected = [
        "invoke_agent lead",
        "invoke_agent lead > chat large",
        "invoke_agent lead > chat large",
        "invoke_agent lead > execute_tool delegate",
        "invoke_agent lead > execute_tool delegate",
        worker,
        worker,
        // Two turns of each, and one attempt that failed.
        &chat,
        &chat,
        &chat,
        &chat,
        &chat,
        &read,
        &read,
    ];
    assert_eq!(paths, expected);

    let chat = spans.iter().find(|span| span.name == "chat large" && span.status.is_none()).expect("a reply");
    let of = |key: &str| text(&chat.attributes, key);
    assert_eq!(of("gen_ai.operation.name").as_deref(), Some("chat"));
    assert_eq!(of("gen_ai.provider.name").as_deref(), Some("acme"));
    assert_eq!(of("gen_ai.request.model").as_deref(), Some("large"));
    assert_eq!(of("gen_ai.usage.input_tokens").as_deref(), Some("100"));
    assert_eq!(of("gen_ai.usage.output_tokens").as_deref(), Some("10"));
    let broken = spans.iter().find(|span| span.name == "chat large" && span.status.is_some()).expect("it broke once");
    assert_eq!(text(&broken.attributes, "error.type").as_deref(), Some("broken"));
    let read = spans.iter().find(|span| span.name == "execute_tool read").expect("a call");
    assert_eq!(text(&read.attributes, "gen_ai.tool.name").as_deref(), Some("read"));
    assert_eq!(text(&read.attributes, "error.type").as_deref(), Some("tool_error"));
    let lead = spans.iter().find(|span| span.name == "invoke_agent lead").expect("the root");
    assert_eq!(text(&lead.attributes, "homing.status").as_deref(), Some("done"));

    assert!(received.heads.iter().all(|head| head.contains("authorization: bearer abc")), "{:?}", received.heads);
    let resource = received.traces[0].resource_spans[0].resource.clone().expect("resource attributes");
    assert_eq!(text(&resource.attributes, "service.name").as_deref(), Some("our-agents"));
    assert!(!format!("{:?}", received.traces).contains("secret"), "bodies are omitted");
}

#[tokio::test]
async fn metrics_cover_status_tokens_cost_and_queue_time() {
    let collector = Collector::start().await;
    let telemetry = Telemetry::start(TelemetryOptions::new(&collector.url())).expect("valid options");
    run_a_lead(&telemetry).await;
    run_a_lead(&telemetry).await;
    telemetry.finish(Duration::from_secs(20)).await;
    let metrics = collector.received.lock().expect("fine").last_metrics();
    let data = |name: &str| metrics.iter().find(|metric| metric.name == name).and_then(|metric| metric.data.clone());
    let Some(Data::Sum(runs)) = data("homing.runs") else { panic!("runs are a sum") };
    let count = |agent: &str| {
        let of = |point: &&opentelemetry_proto::tonic::metrics::v1::NumberDataPoint| {
            text(&point.attributes, "gen_ai.agent.name").as_deref() == Some(agent)
                && text(&point.attributes, "homing.status").as_deref() == Some("done")
        };
        format!("{:?}", runs.data_points.iter().find(of).and_then(|point| point.value))
    };
    assert_eq!((count("lead"), count("worker")), ("Some(AsInt(2))".into(), "Some(AsInt(4))".into()));
    assert!(runs.is_monotonic && runs.aggregation_temporality == 2);
    let Some(Data::Sum(cost)) = data("homing.cost") else { panic!("cost is a sum") };
    // 6 replies in each tree; a failed attempt costs nothing.
    assert!(format!("{:?}", cost.data_points[0].value).starts_with("Some(AsDouble(0.003"), "{cost:?}");
    let Some(Data::Histogram(tokens)) = data("gen_ai.client.token.usage") else { panic!("tokens are a histogram") };
    let sums: Vec<Option<f64>> = tokens.data_points.iter().map(|point| point.sum).collect();
    assert_eq!(sums, [Some(1_200.0), Some(120.0)]);
    assert!(tokens.data_points.iter().all(|point| point.bucket_counts.iter().sum::<u64>() == point.count));
    let Some(Data::Histogram(queue)) = data("homing.run.queue.duration") else { panic!("a histogram") };
    assert_eq!(queue.data_points.iter().map(|point| point.count).sum::<u64>(), 6);
}

#[tokio::test]
async fn bodies_are_exported_only_if_enabled() {
    let collector = Collector::start().await;
    let mut options = TelemetryOptions::new(&collector.url());
    options.bodies = SpanBodies::Included;
    let telemetry = Telemetry::start(options).expect("valid options");
    run_a_lead(&telemetry).await;
    telemetry.finish(Duration::from_secs(20)).await;
    let exported = format!("{:?}", collector.received.lock().expect("fine").traces);
    for body in ["secret-task", "secret-answer", "secret-argument", "secret-result"] {
        assert!(exported.contains(body), "{body} is missing");
    }
}

#[tokio::test]
async fn unresponsive_or_missing_collector_delays_nothing() {
    for address in [silent_server().await, closed_port().await] {
        let mut options = TelemetryOptions::new(&format!("http://{address}"));
        options.every = Duration::from_millis(10);
        let telemetry = Telemetry::start(options).expect("valid options");
        let begun = Instant::now();
        for _ in 0..2 {
            run_a_lead(&telemetry).await;
        }
        let runs = begun.elapsed();
        let report = telemetry.finish(Duration::from_millis(300)).await;
        let finish = begun.elapsed() - runs;
        assert!(finish < Duration::from_secs(5), "finishing took {finish:?}");
        assert_eq!(report.sent, 0);
        assert_eq!(report.dropped, 2 * 14, "{report:?}");
        assert!(report.why.is_some());
    }
}

#[tokio::test]
async fn facts_beyond_the_queue_are_dropped_and_counted() {
    let telemetry =
        Telemetry::start(TelemetryOptions::new(&format!("http://{}", silent_server().await))).expect("fine");
    let records = Arc::new(Mutex::new(Vec::new()));
    let keep = records.clone();
    let run = runtime(Arc::new(move |record: &Arc<Record>| keep.lock().expect("fine").push(record.clone())));
    run.spawn(Task::new("lead", "go")).expect("it starts").wait().await;
    let records = records.lock().expect("fine").clone();
    // The worker cannot run during this loop, because the test's runtime has only one thread.
    for record in records.iter().cycle().take(20_000) {
        telemetry.take(record);
    }
    let report = telemetry.finish(Duration::from_millis(200)).await;
    assert!(report.dropped >= 20_000 - 16_384, "{report:?}");
}

#[test]
fn invalid_collector_url_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _guard = runtime.enter();
    for address in ["collector:4318", "ftp://collector", "not an address"] {
        assert!(Telemetry::start(TelemetryOptions::new(address)).is_err(), "{address}");
    }
}
