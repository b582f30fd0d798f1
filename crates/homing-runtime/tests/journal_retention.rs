//! Pruning, and trees as cassettes.

mod journal_support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use homing_core::{
    envelope::Status,
    fact::{Fact, Spawned},
};
use homing_runtime::journal::{
    Begun, Claim, Journal, JournalError,
    sqlite::{Cassette, CassetteError, Filter, Retention, SqliteJournal, SqliteOptions, SumBy},
};
use journal_support::*;
use rusqlite::Connection;
use tempfile::tempdir;

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn with_prompt(key: &str) -> Fact {
    let system: Arc<str> = "shared prompt ".repeat(200).into();
    Fact::Spawned(Arc::new(Spawned { system, key: Some(key.to_owned()), ..spawned() }))
}

fn all() -> Filter {
    Filter { with_pruned: true, ..Filter::default() }
}

fn records(path: &std::path::Path) -> i64 {
    let db = Connection::open(path).unwrap();
    db.query_row("SELECT count(*) FROM records", [], |row| row.get(0)).unwrap()
}

#[test]
fn pruning_keeps_results_and_totals() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let journal = open(&path);
    let old = small_tree(&journal, with_prompt("old"));
    let pinned = small_tree(&journal, with_prompt("pinned"));
    wait(journal.pin(pinned.tree)).unwrap();
    let mut stays_open = RecordWriter::new();
    stays_open.begin(&*journal, with_prompt("open")).unwrap();
    journal.release(stays_open.tree);
    let mut recent = RecordWriter { at: now(), ..RecordWriter::new() };
    recent.begin(&*journal, with_prompt("recent")).unwrap();
    recent.write(&*journal, ended()).unwrap();
    journal.release(recent.tree);
    let before = (journal.runs(&all()).unwrap(), journal.sum_by(&SumBy::Agent, None, None).unwrap());
    let envelope = journal.envelope(old.tree).unwrap();

    let pruned = wait(journal.prune(Retention::default())).unwrap();
    assert_eq!((pruned.trees.len(), pruned.unreadable), (1, vec![]));
    assert_eq!((journal.runs(&all()).unwrap(), journal.sum_by(&SumBy::Agent, None, None).unwrap()), before);
    assert_eq!(journal.envelope(old.tree), Ok(envelope));
    assert!(matches!(wait(journal.load(old.tree)), Err(JournalError::Pruned(tree)) if tree == old.tree));
    assert!(wait(journal.claim(old.tree, Claim::Force)).is_err());
    assert_eq!(
        RecordWriter::new().begin(&*journal, with_prompt("old")),
        Ok(Begun::Earlier(old.tree)),
        "its key stays in use"
    );
    for kept in [pinned.tree, stays_open.tree, recent.tree] {
        assert!(wait(journal.load(kept)).is_ok());
    }
    assert_eq!(journal.check().unwrap().problems, []);

    wait(journal.unpin(pinned.tree)).unwrap();
    let small = Retention { age: Duration::MAX, bytes: 0 };
    let unreachable = wait(journal.prune(small)).unwrap();
    assert!(
        unreachable.trees.is_empty() && unreachable.floor.is_some(),
        "nothing is lost for a size that cannot be reached"
    );
    let all_ended = Retention { age: Duration::ZERO, ..Retention::default() };
    assert_eq!(wait(journal.prunable(all_ended)).unwrap().trees.len(), 2);
    assert_eq!(wait(journal.prune(all_ended)).unwrap().trees.len(), 2, "never an open tree");
    assert_eq!(records(&path), 1);
    assert_eq!(journal.runs(&all()).unwrap().len(), 4);
    assert_eq!(journal.check().unwrap().problems, []);
}

#[test]
fn pruning_shrinks_the_file() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let journal = open(&path);
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    for _ in 0..100 {
        let commits: Vec<_> = (0..50).map(|_| journal.append(writer.root(replied(&"x".repeat(1_000))))).collect();
        commits.into_iter().for_each(|commit| wait(commit).unwrap());
    }
    writer.write(&*journal, ended()).unwrap();
    journal.release(writer.tree);
    let pages = || -> i64 {
        let db = Connection::open(&path).unwrap();
        db.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap()
    };
    let before = pages();
    let pruned = wait(journal.prune(Retention::default())).unwrap();
    assert!(pages() * 10 < before, "{} of {before} pages", pages());
    assert!(pruned.bytes < 500_000);
    assert_eq!(journal.envelope(writer.tree).unwrap().status, Status::Done);
}

#[test]
fn opening_prunes_once_a_day_in_the_background() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    small_tree(&open(&path), plain());
    let journal = SqliteJournal::open(&path, SqliteOptions::default()).unwrap();
    let began = Instant::now();
    while records(&path) > 0 && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(records(&path), 0);
    small_tree(&journal, plain());
    drop(journal);
    let journal = SqliteJournal::open(&path, SqliteOptions::default()).unwrap();
    wait(journal.prune(Retention { age: Duration::MAX, bytes: u64::MAX })).unwrap();
    assert_eq!(records(&path), 4, "already pruned today");
}

#[test]
fn cassette_contains_the_tree_without_secrets() {
    let dir = tempdir().unwrap();
    let journal = open(&dir.path().join("journal.db"));
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    for fact in [asked(), replied("the key is sk-123"), ended()] {
        writer.write(&*journal, fact).unwrap();
    }
    let cassette = journal.cassette(writer.tree).unwrap();
    let plain = cassette.write(&str::to_owned).unwrap();
    assert_eq!(Cassette::read(&plain), Ok(cassette.clone()));
    let clean = cassette.write(&|text| text.replace("sk-123", "…")).unwrap();
    assert!(!clean.contains("sk-123"));
    assert_eq!(Cassette::read(&clean).unwrap().records().len(), 4);
    assert!(cassette.write(&|_| String::new()).is_err(), "a cassette that could not be read again is not written");
}

#[test]
fn cassette_is_read_strictly() {
    let dir = tempdir().unwrap();
    let journal = open(&dir.path().join("journal.db"));
    let writer = small_tree(&journal, plain());
    let text = journal.cassette(writer.tree).unwrap().write(&str::to_owned).unwrap();
    assert_eq!(Cassette::read(&text.replace("cassette\":1", "cassette\":2")), Err(CassetteError::Newer(2)));
    for (what, bad) in [
        ("an unknown kind", text.replace("{\"ended\"", "{\"dreamt\"")),
        ("an unknown field of a fact", text.replace("\"max_output\"", "\"colour\":{\"of\":[]},\"max_output\"")),
        ("an unknown field of the file", text.replace("\"records\"", "\"extra\":1,\"records\"")),
        ("a missing record", text.lines().enumerate().filter(|(n, _)| *n != 2).map(|(_, line)| line).collect()),
        ("the ID of another tree", text.replacen(&writer.tree.to_string(), &uuid::Uuid::nil().to_string(), 1)),
        ("invalid JSON", text[..text.len() / 2].to_owned()),
    ] {
        assert!(Cassette::read(&bad).is_err(), "{what}");
    }
    assert!(matches!(Cassette::from_records(Vec::new()), Err(CassetteError::Broken(_))));
}
