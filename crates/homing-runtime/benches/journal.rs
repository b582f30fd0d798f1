//! How fast the journal takes records in, alone and in company, and how long and how large the loading of a big tree is.
//!
//! `cargo bench -p homing-runtime --bench journal [FOLDER]` writes into FOLDER, else into the system's temporary folder.
#![allow(clippy::print_stdout, reason = "a benchmark is read by people")]

#[path = "../tests/journal_support/mod.rs"]
mod journal_support;

use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use homing_runtime::{journal::Journal, sqlite::SqliteJournal};
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
    let dir = match args.first() {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    };
    let dir = dir.expect("a folder to write to");
    alone(&dir.path().join("alone.db"));
    in_company(&dir.path().join("company.db"));
    big(&dir.path().join("big.db"));
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
    let mut pen = Pen::new();
    pen.begin(&*journal, plain()).unwrap();
    let began = Instant::now();
    for _ in 0..ALONE {
        pen.write(&*journal, asked()).unwrap();
    }
    println!("one task, one commit each: {}", rate(ALONE, began.elapsed()));
}

fn in_company(path: &Path) {
    let journal = open(path);
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
    let mut pens: Vec<Pen> = (0..TASKS).map(|_| Pen::new()).collect();
    for pen in &mut pens {
        pen.begin(&*journal, plain()).unwrap();
    }
    let began = Instant::now();
    let tasks: Vec<_> = pens.into_iter().map(|pen| runtime.spawn(write_each(journal.clone(), pen))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no task fails");
        }
    });
    println!("{TASKS} tasks side by side: {}", rate(TASKS * EACH, began.elapsed()));
}

async fn write_each(journal: Arc<SqliteJournal>, mut pen: Pen) {
    for n in 0..EACH {
        let record = pen.root(if n % 2 == 0 { asked() } else { replied("an answer of a few words") });
        journal.append(record).await.expect("the disk has room");
    }
}

/// Writes one tree of 100,000 records and 200 MB, and has another process load it, whose memory is its own.
fn big(path: &Path) {
    let journal = open(path);
    let mut pen = Pen::new();
    pen.begin(&*journal, plain()).unwrap();
    let text = "some words of a tool's result, ".repeat(BODY * 2 / 31);
    let tree = pen.tree;
    let mut last = None;
    for n in 1..BIG {
        let turn = u32::try_from(n / 4).expect("few turns");
        let fact = match n % 4 {
            1 => asked(),
            2 => replied(&text),
            3 => called(tree, turn),
            _ => returned(tree, turn, &text),
        };
        last = Some(journal.append(pen.root(fact)));
    }
    wait(last.expect("there are many")).unwrap();
    drop(journal);
    let size = std::fs::metadata(path).map_or(0, |file| file.len());
    println!("a tree of {BIG} records, {} MB on disk:", size / 1_000_000);
    let this = std::env::current_exe().expect("a benchmark has a file");
    let status = Command::new(this).arg("load").arg(path).arg(tree.to_string()).status();
    assert!(status.is_ok_and(|status| status.success()));
}

fn load(path: &Path, tree: &str) {
    let journal = open(path);
    let before = peak();
    let began = Instant::now();
    let records = wait(journal.load(tree.parse().expect("an id"))).unwrap();
    println!(
        "  loaded {} in {:.2} s, peak memory {} MB (before: {before} MB)",
        records.len(),
        began.elapsed().as_secs_f64(),
        peak()
    );
    let began = Instant::now();
    let mut fold = homing_core::tree::RunTree::default();
    for record in &records {
        fold.apply(record).expect("they fit");
    }
    println!("  folded in {:.2} s, peak memory {} MB", began.elapsed().as_secs_f64(), peak());
}

/// The largest memory this process ever had, in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) / 1_000
}
