//! Telemetry of the program: a collector gets spans and metrics, and a broken one does not delay the end.

use std::{
    process::Output,
    time::{Duration, Instant},
};

use homing_testing::{FakeResponse, ReceivedRequest, ResponseStep};

use crate::world::*;

const BODIES: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// A user with a provider and a collector on one port.
struct Observed(World);

impl Observed {
    fn new(collector: fn() -> FakeResponse) -> Self {
        Self(World::new(
            move |_, seen| if is_telemetry(seen) { collector() } else { FakeResponse::chat_text("private answer") },
        ))
    }

    fn homing(&self, more: &[(&str, &str)]) -> Output {
        let mut command = self.0.command(&run(&["private task"]));
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", self.0.provider.url()).envs(more.iter().copied());
        command.output().expect("homing runs")
    }

    /// Returns what was sent to a path of the collector. Protobuf does not encode text.
    fn received(&self, path: &str) -> String {
        self.0
            .provider
            .requests()
            .iter()
            .filter(|request| request.path == path)
            .map(|request| request.body.as_str())
            .collect()
    }
}

fn is_telemetry(seen: &ReceivedRequest) -> bool {
    seen.path.starts_with("/v1/traces") || seen.path.starts_with("/v1/metrics")
}

fn takes() -> FakeResponse {
    FakeResponse::response(200, &[("content-type", "application/x-protobuf")], "")
}

fn answer(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), out(output), err(output))
}

#[test]
fn collector_gets_spans_and_metrics_without_content() {
    let world = Observed::new(takes);
    let (code, out, err) = answer(&world.homing(&[("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k1")]));
    assert_eq!((code, out.as_str()), (Some(0), "private answer\n"), "{err}");
    let (traces, metrics) = (world.received("/v1/traces"), world.received("/v1/metrics"));
    for name in ["invoke_agent general", "chat gpt-4.1", "gen_ai.usage.input_tokens", "service.name"] {
        assert!(traces.contains(name), "{name} is missing");
    }
    assert!(metrics.contains("homing.runs") && metrics.contains("gen_ai.client.token.usage"));
    assert!(!traces.contains("private") && !metrics.contains("private"));
    assert!(!err.contains("telemetry"), "{err}");
    let mut telemetry = world.0.provider.requests().into_iter().filter(is_telemetry);
    assert!(telemetry.all(|request| request.header("x-key") == Some("k1")));
}

#[test]
fn one_variable_adds_content_to_spans() {
    let world = Observed::new(takes);
    world.homing(&[(BODIES, "true")]);
    let traces = world.received("/v1/traces");
    assert!(traces.contains("private task") && traces.contains("private answer"));
    assert!(!traces.contains("sk-secret-of-the-test"));
}

#[test]
fn stalled_collector_delays_the_end_only_briefly() {
    let world = Observed::new(|| FakeResponse::steps(vec![ResponseStep::Stall]));
    let begun = Instant::now();
    let (code, out, err) = answer(&world.homing(&[]));
    // Two seconds, plus an allowance for a loaded machine.
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    assert_eq!((code, out.as_str()), (Some(0), "private answer\n"), "{err}");
    assert!(err.contains("did not reach the telemetry collector: the collector did not answer in time"), "{err}");
}

#[test]
fn invalid_telemetry_variable_is_a_warning() {
    let world = Observed::new(takes);
    let (code, out, err) = answer(&world.homing(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]));
    assert_eq!((code, out.as_str()), (Some(0), "private answer\n"), "{err}");
    assert!(err.contains("warning: no telemetry is sent") && err.contains("http/protobuf"), "{err}");
    assert!(!world.0.provider.requests().iter().any(is_telemetry));
}

const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn run_continues_the_trace_of_its_caller_and_commands_see_it() {
    let world = World::new(|at, seen| {
        if is_telemetry(seen) {
            return takes();
        }
        let command = r#"{"command": "echo parent=$TRACEPARENT"}"#;
        if at == 0 { FakeResponse::chat_calls(&[("bash", command)]) } else { FakeResponse::chat_text("done") }
    });
    let mut command = world.command(&run(&["--json", "--allow", "bash", "--sandbox", "off", "go"]));
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", world.provider.url()).env("TRACEPARENT", SENT);
    let output = command.output().expect("homing runs");
    assert_eq!(code(&output), 0, "{}", err(&output));
    let seen = world.provider.requests();
    let second = seen.iter().filter(|request| !is_telemetry(request)).nth(1).expect("a second model call");
    // The command's parent is the span of its call, in the caller's trace.
    assert!(second.body.contains("parent=00-4bf92f3577b34da6a3ce929d0e0e4736-"), "{}", second.body);
    assert!(!second.body.contains(SENT), "the command is below its call, not beside the run");
    assert!(
        seen.iter().all(|request| is_telemetry(request) || request.header("traceparent").is_none()),
        "providers are not told"
    );
}
