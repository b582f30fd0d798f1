//! Telemetry of the real binary: a collector gets spans and figures, and one that is of no use delays nobody.

use std::{
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use homing_fake::{Answer, FakeProvider, Seen, Step};
use tempfile::TempDir;

const BODIES: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// A provider and a collector behind one port, and a user who has heard of both.
struct World {
    home: TempDir,
    server: FakeProvider,
    _runtime: tokio::runtime::Runtime,
}

impl World {
    fn new(collector: fn() -> Answer) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(FakeProvider::start(move |_, seen| match is_telemetry(seen) {
            true => collector(),
            false => Answer::chat_text("private answer"),
        }));
        Self { home: TempDir::new().expect("a temporary folder"), server, _runtime: runtime }
    }

    fn homing(&self, more: &[(&str, &str)]) -> Output {
        let mut command = Command::new(snapbox::cmd::cargo_bin!("homing"));
        command.args(["run", "--model", "openai/gpt-4.1", "private task"]).current_dir(self.home.path()).env_clear();
        command.env("HOME", self.home.path()).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("OPENAI_BASE_URL", self.server.url()).env("OPENAI_API_KEY", "sk-secret-of-the-test");
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", self.server.url()).envs(more.iter().copied());
        command.stdin(Stdio::null()).output().expect("homing runs")
    }

    /// What was sent to a path of the collector. Protobuf leaves words in the clear.
    fn told(&self, path: &str) -> String {
        self.server.requests().iter().filter(|it| it.path == path).map(|it| it.body.as_str()).collect()
    }
}

fn is_telemetry(seen: &Seen) -> bool {
    seen.path.starts_with("/v1/traces") || seen.path.starts_with("/v1/metrics")
}

fn takes() -> Answer {
    Answer::response(200, &[("content-type", "application/x-protobuf")], "")
}

fn answer(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_collector_gets_spans_and_figures_without_what_was_said() {
    let world = World::new(takes);
    let (code, out, err) = answer(&world.homing(&[("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k1")]));
    assert_eq!((code, out.as_str()), (Some(0), "private answer\n"), "{err}");
    let (traces, metrics) = (world.told("/v1/traces"), world.told("/v1/metrics"));
    for name in ["invoke_agent general", "chat gpt-4.1", "gen_ai.usage.input_tokens", "service.name"] {
        assert!(traces.contains(name), "{name} is missing");
    }
    assert!(metrics.contains("homing.runs") && metrics.contains("gen_ai.client.token.usage"));
    assert!(!traces.contains("private") && !metrics.contains("private"));
    assert!(!err.contains("telemetry"), "{err}");
    let mut telemetry = world.server.requests().into_iter().filter(is_telemetry);
    assert!(telemetry.all(|it| it.header("x-key") == Some("k1")));
}

#[test]
fn one_switch_has_spans_carry_what_was_said() {
    let world = World::new(takes);
    world.homing(&[(BODIES, "true")]);
    let traces = world.told("/v1/traces");
    assert!(traces.contains("private task") && traces.contains("private answer"));
    assert!(!traces.contains("sk-secret-of-the-test"));
}

#[test]
fn a_collector_that_stalls_delays_the_end_by_no_more_than_a_bound() {
    let world = World::new(|| Answer::steps(vec![Step::Stall]));
    let begun = Instant::now();
    let (code, out, err) = answer(&world.homing(&[]));
    // Two seconds of patience; the rest is a loaded machine's.
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    assert_eq!((code, out.as_str()), (Some(0), "private answer\n"), "{err}");
    assert!(err.contains("did not reach the telemetry collector: the collector did not answer in time"), "{err}");
}

#[test]
fn a_mistake_in_the_variables_is_a_warning() {
    let world = World::new(takes);
    let (code, out, err) = answer(&world.homing(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]));
    assert_eq!((code, out.as_str()), (Some(0), "private answer\n"), "{err}");
    assert!(err.contains("warning: no telemetry is sent") && err.contains("http/protobuf"), "{err}");
    assert!(!world.server.requests().iter().any(is_telemetry));
}
