//! The cost of the runtime itself: spawning, waiting, steps. Ratios within one run, because machines are shared and noisy.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use homing_core::{
    BoxFuture,
    definition::AgentDefinition,
    limits::{Cap, Limit, Limits},
    message::{Message, Reply, TranscriptEntry},
    model::{AskFailure, Model, ModelCard, ModelRequest, OnDelta, SingleModel, Toolbox},
    registry::Registry,
    scripted_model::{call, say},
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use homing_runtime::{RunHandle, Runtime, RuntimeParts, Task, journal::NullJournal};
use serde_json::{Value, json};

/// A model that reads `steps` times and then answers, after a pause.
struct Worker {
    card: ModelCard,
    steps: usize,
    children: usize,
    pause: Duration,
}

impl Worker {
    fn decide(&self, request: &ModelRequest<'_>) -> Reply {
        let turn = request.messages.len() / 2;
        match (request.system, turn) {
            ("lead", 0) => {
                call((0..self.children).map(|n| ("delegate", json!({"agent": "worker", "task": n.to_string()}))))
            }
            ("lead", _) => say("done"),
            (_, turn) if turn < self.steps => call([("read", json!({"n": turn}))]),
            _ => say("done"),
        }
    }
}

impl Model for Worker {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(&'a self, request: ModelRequest<'a>, _: OnDelta<'a>) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        let reply = self.decide(&request);
        Box::pin(async move {
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
            Ok(reply)
        })
    }
}

/// A tool that returns at once.
struct ReadTool(ToolSpec, AtomicU64);

impl Tool for ReadTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.act(&args) })
    }
}

impl ReadTool {
    fn new() -> Arc<Self> {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let spec = ToolSpec::new("read", "reads", schema).replay(Replay::Safe).effect(homing_core::tool::Effect::Reads);
        Arc::new(Self(spec, AtomicU64::new(0)))
    }

    fn act(&self, args: &Value) -> ToolOutput {
        self.1.fetch_add(1, Ordering::Relaxed);
        ToolOutput::text(format!("{args} and some forty bytes of content"))
    }
}

fn runtime(worker: Worker) -> Runtime {
    let agent = |name: &str| AgentDefinition::new(name, name, name);
    let registry = Registry::from_iter([agent("lead"), agent("worker")]);
    let mut parts =
        RuntimeParts::new(registry, Arc::new(SingleModel(Arc::new(worker))), Arc::new(NullJournal::default()));
    parts.tools = vec![ReadTool::new()];
    (parts.config.max_runs, parts.config.max_asks) = (20_000, 20_000);
    Runtime::new(parts)
}

fn worker(steps: usize, children: usize, pause: Duration) -> Worker {
    Worker { card: ModelCard::free("bench/worker"), steps, children, pause }
}

fn open_limits() -> Limits {
    let none = Cap::Unlimited;
    Limits::default().with(Limit::Turns, none).with(Limit::ToolCalls, none).with(Limit::Children, none)
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn resident_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
}

async fn wait(runs: Vec<RunHandle>) {
    for run in &runs {
        assert!(run.wait().await.status.is_over());
    }
}

/// Microseconds to spawn a run.
async fn spawning() -> f64 {
    let runtime = runtime(worker(0, 0, Duration::ZERO));
    let started = Instant::now();
    let runs: Vec<RunHandle> = (0..2_000).map(|_| runtime.spawn(Task::new("worker", "x")).unwrap()).collect();
    let each = started.elapsed().as_secs_f64() * 1e6 / 2_000.0;
    wait(runs).await;
    each
}

/// Memory of ten thousand runs that wait for their model, in megabytes.
async fn waiting() -> f64 {
    let before = resident_mb();
    let runtime = runtime(worker(0, 0, Duration::from_secs(3)));
    let runs: Vec<RunHandle> = (0..10_000).map(|_| runtime.spawn(Task::new("worker", "x")).unwrap()).collect();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let grown = resident_mb() - before;
    wait(runs).await;
    grown
}

/// CPU microseconds per step of `count` children with three tool steps each.
async fn children(count: usize) -> f64 {
    let runtime = runtime(worker(3, count, Duration::ZERO));
    let before = cpu();
    let run = runtime.spawn(Task::new("lead", "go").limits(open_limits())).unwrap();
    let envelope = run.wait().await;
    let spent = cpu() - before;
    assert_eq!(envelope.children.len(), count);
    spent.as_secs_f64() * 1e6 / (count * 4) as f64
}

/// The same steps by a bare loop over the same model and tool.
async fn bare(count: usize) -> f64 {
    let model = worker(3, 0, Duration::ZERO);
    let tool = ReadTool::new();
    let toolbox = Toolbox::new(vec![tool.0.clone()]);
    let before = cpu();
    for _ in 0..count {
        let mut messages = vec![TranscriptEntry::new(Message::user("x"))];
        loop {
            let request = ModelRequest::new("worker", &messages, &toolbox, "")
                .choice(Default::default())
                .max_output(8_192)
                .sampling(&homing_core::model::Sampling::NONE);
            let reply = model.reply(request, &|_| ()).await.unwrap();
            let Some(wanted) = reply.calls().next().cloned() else { break };
            let output = tool.act(&json!({"n": messages.len() / 2}));
            messages.push(TranscriptEntry::new(Message::Assistant(reply.into())));
            messages.push(TranscriptEntry::new(Message::Tool(
                homing_core::message::ToolResult {
                    index: 0,
                    call_id: wanted.id,
                    name: wanted.name,
                    text: output.text,
                    images: vec![],
                    data: None,
                    is_error: false,
                }
                .into(),
            )));
        }
    }
    (cpu() - before).as_secs_f64() * 1e6 / (count * 4) as f64
}

/// CPU milliseconds of one conversation of `steps` steps.
async fn conversation(steps: usize) -> f64 {
    let runtime = runtime(worker(steps, 0, Duration::ZERO));
    let before = cpu();
    let run = runtime.spawn(Task::new("worker", "go").limits(open_limits())).unwrap();
    assert_eq!(run.wait().await.usage.tool_calls, steps as u64);
    (cpu() - before).as_secs_f64() * 1e3
}

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let line = |name: &str, value: String| {
            use std::io::Write;
            let _ = writeln!(std::io::stdout(), "{name:<64} {value}");
        };
        line("spawning a run", format!("{:.1} µs", spawning().await));
        line("10,000 runs waiting at once", format!("{:.0} MB", waiting().await));
        // The first round pays for memory that the allocator then keeps.
        children(1_000).await;
        let (ours, bare) = (children(1_000).await, bare(1_000).await);
        line("1,000 children × 3 tool steps, CPU per step", format!("{ours:.1} µs, bare loop {bare:.1} µs"));
        let (few, many) = (children(500).await, children(5_000).await);
        line("growth: CPU per step with 500 and with 5,000 children", format!("{few:.1} µs, {many:.1} µs"));
        let (short, long) = (conversation(50).await, conversation(500).await);
        let exponent = (long / short).log10();
        line(
            "a conversation of 50 and of 500 steps, CPU",
            format!("{short:.2} ms, {long:.2} ms (exponent {exponent:.2})"),
        );
    });
}
