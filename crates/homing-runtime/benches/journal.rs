//! Throughput of the journal with one and many tasks, time and memory to load a large tree, and the cost of the journal for
//! a thousand runs.
//!
//! `cargo bench -p homing-runtime --bench journal -- [runs] [FOLDER]` writes into FOLDER, by default into the system's temporary
//! folder; with `runs` it runs only the last part.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "../tests/journal_support/mod.rs"]
mod journal_support;

use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use homing_core::{
    BoxFuture,
    definition::AgentDefinition,
    message::Reply,
    model::{AskFailure, Model, ModelCard, ModelRequest, OnDelta, SingleModel},
    registry::Registry,
    scripted_model,
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use homing_runtime::{
    Runtime, RuntimeParts, Task,
    journal::{Journal, MemoryJournal, sqlite::SqliteJournal},
};
use journal_support::*;

const ALONE: u32 = 2_000;
const TASKS: u32 = 64;
const EACH: u32 = 300;
const BIG: usize = 100_000;
const BODY: usize = 1_800;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let [what, path, tree] = args.as_slice()
        && what == "load"
    {
        return load(Path::new(path), tree);
    }
    let only_runs = args.first().is_some_and(|what| what == "runs");
    let dir = match args.get(usize::from(only_runs)) {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    };
    let dir = dir.expect("a folder to write to");
    if !only_runs {
        alone(&dir.path().join("alone.db"));
        concurrent(&dir.path().join("company.db"));
        big(&dir.path().join("big.db"));
    }
    runs("off, in memory only", MemoryJournal::new());
    runs("on", open(&dir.path().join("runs.db")));
}

/// A thousand concurrent runs, each with four calls of a model that takes 100 ms.
fn runs(what: &str, journal: Arc<dyn Journal>) {
    let agent = AgentDefinition::new("asker", "asks", "you ask");
    let mut parts =
        RuntimeParts::new(Registry::from_iter([agent]), Arc::new(SingleModel(Arc::new(SlowModel::new()))), journal);
    parts.tools = vec![Arc::new(NodTool::new())];
    (parts.config.max_runs, parts.config.max_asks) = (1_000, 1_000);
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let (began, busy) = (Instant::now(), cpu_seconds());
    tokio.block_on(async {
        let runtime = Runtime::new(parts);
        let runs: Vec<_> = (0..1_000).map(|_| runtime.spawn(Task::new("asker", "ask")).expect("it starts")).collect();
        for run in runs {
            let envelope = run.wait().await;
            assert_eq!((envelope.status.name(), envelope.usage.turns), ("done", 4));
        }
    });
    let (took, busy) = (began.elapsed().as_secs_f64(), cpu_seconds() - busy);
    println!("1,000 runs of 4 model calls of 100 ms, journal {what}: {took:.2} s, {busy:.2} s CPU");
}

/// A model that takes 100 ms and calls a tool three times before it answers.
struct SlowModel(ModelCard);

impl SlowModel {
    fn new() -> Self {
        Self(ModelCard::free("script/slow"))
    }
}

impl Model for SlowModel {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    fn reply<'a>(&'a self, request: ModelRequest<'a>, _: OnDelta<'a>) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        let turn = request.messages.len() / 2;
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let turn_args = serde_json::json!({ "turn": turn });
            Ok(if turn < 3 { scripted_model::call([("nod", turn_args)]) } else { scripted_model::say("done") })
        })
    }
}

/// A tool that does nothing.
struct NodTool(ToolSpec);

impl NodTool {
    fn new() -> Self {
        let schema = serde_json::json!({"type": "object"});
        Self(ToolSpec::new("nod", "nods", schema).replay(Replay::Safe).effect(homing_core::tool::Effect::Reads))
    }
}

impl Tool for NodTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, _: &'a ToolContext, _: serde_json::Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(std::future::ready(ToolOutput::text("nods")))
    }
}

fn rate(records: u32, took: Duration) -> String {
    format!(
        "{records} records in {:.2} s: {:.0} per second",
        took.as_secs_f64(),
        f64::from(records) / took.as_secs_f64()
    )
}

fn alone(path: &Path) {
    let journal = open(path);
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    let began = Instant::now();
    for _ in 0..ALONE {
        writer.write(&*journal, asked()).unwrap();
    }
    println!("one task, one commit per record: {}", rate(ALONE, began.elapsed()));
}

fn concurrent(path: &Path) {
    let journal = open(path);
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    let mut writers: Vec<RecordWriter> = (0..TASKS).map(|_| RecordWriter::new()).collect();
    for writer in &mut writers {
        writer.begin(&*journal, plain()).unwrap();
    }
    let began = Instant::now();
    let tasks: Vec<_> = writers.into_iter().map(|writer| runtime.spawn(write_each(journal.clone(), writer))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no task fails");
        }
    });
    println!("{TASKS} concurrent tasks: {}", rate(TASKS * EACH, began.elapsed()));
}

async fn write_each(journal: Arc<SqliteJournal>, mut writer: RecordWriter) {
    for n in 0..EACH {
        let record = writer.root(if n % 2 == 0 { asked() } else { replied("an answer of a few words") });
        journal.append(record).await.expect("the disk has space");
    }
}

/// Writes one tree of 100,000 records and 200 MB, and loads it in another process, to measure its memory alone.
fn big(path: &Path) {
    let journal = open(path);
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    let text = "some words of a tool's result, ".repeat(BODY * 2 / 31);
    let tree = writer.tree;
    let mut last = None;
    for n in 1..BIG {
        let turn = u32::try_from(n / 4).expect("few turns");
        let fact = match n % 4 {
            1 => asked(),
            2 => replied(&text),
            3 => called(tree, turn),
            _ => returned(tree, turn, &text),
        };
        last = Some(journal.append(writer.root(fact)));
    }
    wait(last.expect("there are records")).unwrap();
    drop(journal);
    let size = std::fs::metadata(path).map_or(0, |file| file.len());
    println!("a tree of {BIG} records, {} MB on disk:", size / 1_000_000);
    let this = std::env::current_exe().expect("the benchmark has a path");
    let status = Command::new(this).arg("load").arg(path).arg(tree.to_string()).status();
    assert!(status.is_ok_and(|status| status.success()));
}

fn load(path: &Path, tree: &str) {
    let journal = open(path);
    let tree = tree.parse().expect("an id");
    let before = peak();
    let (began, busy) = (Instant::now(), cpu_seconds());
    let fold = journal.tree(tree).unwrap();
    let (took, busy) = (began.elapsed().as_secs_f64(), cpu_seconds() - busy);
    println!("  folded {} records in {took:.2} s, {busy:.2} s CPU", fold.next_seq());
    println!("  peak memory {} MB (before: {before} MB)", peak());
    drop(fold);
    let (began, busy) = (Instant::now(), cpu_seconds());
    let records = wait(journal.load(tree)).unwrap();
    let (took, busy) = (began.elapsed().as_secs_f64(), cpu_seconds() - busy);
    println!("  loaded {} records in {took:.2} s, {busy:.2} s CPU", records.len());
    println!("  peak memory {} MB", peak());
}

/// CPU time of this process, which does not depend on other processes.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let (_, rest) = stat.rsplit_once(") ").unwrap_or_default();
    let ticks: f64 = rest.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// Peak memory of this process, in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) / 1_000
}
