//! The end of trees and of a journal: what is queued is written, and what was owned is released.

mod journal_support;

use std::{path::Path, time::Duration};

use homing_runtime::journal::{
    Claim, Journal, JournalError,
    sqlite::{SqliteJournal, begin_close},
};
use journal_support::*;
use tempfile::tempdir;
use uuid::Uuid;

#[test]
fn closing_writes_what_is_queued_and_nothing_later() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut options = options();
    options.begins_trees = true;
    let journal = SqliteJournal::open(&path, options).unwrap();
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    drop(journal.append(writer.root(asked())));
    begin_close(&journal);
    assert!(matches!(writer.write(&*journal, replied("late")), Err(JournalError::Unwritable(_))));
    drop(journal);
    assert!(!path.with_extension("db-wal").exists(), "the log is emptied");
    let again = open(&path);
    assert_eq!(wait(again.load(writer.tree)).unwrap().len(), 2);
    let count =
        |sql: &str| rusqlite::Connection::open(&path).unwrap().query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM owners"), 0);
    assert_eq!(count("SELECT count(*) FROM trees WHERE owner IS NOT NULL"), 0);
}

#[test]
fn end_of_a_tree_releases_it_in_the_same_commit() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut options = options();
    (options.begins_trees, options.closes_after_trees) = (true, true);
    let journal = SqliteJournal::open(&path, options).unwrap();
    let count =
        |sql: &str| rusqlite::Connection::open(&path).unwrap().query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
    let (owners, owned) = ("SELECT count(*) FROM owners", "SELECT count(*) FROM trees WHERE owner IS NOT NULL");
    let mut first = RecordWriter::new();
    let mut second = RecordWriter::new();
    first.begin(&*journal, plain()).unwrap();
    second.begin(&*journal, plain()).unwrap();
    first.write(&*journal, ended()).unwrap();
    assert_eq!((count(owners), count(owned)), (1, 1), "the other tree is still driven");
    second.write(&*journal, ended()).unwrap();
    assert_eq!((count(owners), count(owned)), (0, 0));
    assert_eq!(wait(open(&path).claim(first.tree, Claim::IfGone)), Ok(2), "any process may continue it");
    assert!(matches!(first.write(&*journal, asked()), Err(JournalError::Fenced { .. })));

    // The releases that the runtime asks for afterwards write nothing, and another tree records the owner again.
    let log = || std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
    let before = log();
    journal.release(first.tree);
    journal.release(second.tree);
    assert!(wait(journal.claim(Uuid::now_v7(), Claim::IfGone)).is_err(), "the writer has done what was asked before");
    assert_eq!(log(), before);
    let mut third = RecordWriter::new();
    third.begin(&*journal, plain()).unwrap();
    assert_eq!((count(owners), count(owned)), (1, 1));
    journal.release(third.tree);
    drop(journal);
    assert_eq!((count(owners), count(owned)), (0, 0), "a tree that has not ended is released as before");
}

/// The number of trees in the journal's file without its log.
fn trees_in_file(path: &Path) -> u32 {
    let alone = path.with_file_name("alone.db");
    std::fs::copy(path, &alone).unwrap();
    let count = |file: rusqlite::Connection| file.query_row("SELECT count(*) FROM trees", [], |row| row.get(0));
    rusqlite::Connection::open(&alone).and_then(count).unwrap_or(0)
}

#[test]
fn log_is_copied_into_the_file_when_the_last_tree_has_ended() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut options = options();
    (options.begins_trees, options.closes_after_trees) = (true, true);
    let journal = SqliteJournal::open(&path, options).unwrap();
    let (mut first, mut second) = (RecordWriter::new(), RecordWriter::new());
    first.begin(&*journal, plain()).unwrap();
    second.begin(&*journal, plain()).unwrap();
    first.write(&*journal, ended()).unwrap();
    // The writer has gone on when it answers this.
    assert!(wait(journal.claim(Uuid::now_v7(), Claim::IfGone)).is_err());
    assert_eq!(trees_in_file(&path), 0, "the other tree is still driven");
    second.write(&*journal, ended()).unwrap();
    assert!(wait(journal.claim(Uuid::now_v7(), Claim::IfGone)).is_err());
    assert_eq!(trees_in_file(&path), 2, "nothing is left for closing");
}

#[test]
fn log_is_left_to_others_that_have_the_journal_open() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut options = options();
    (options.begins_trees, options.closes_after_trees) = (true, true);
    let other = SqliteJournal::open(&path, options.clone()).unwrap();
    let journal = SqliteJournal::open(&path, options).unwrap();
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    writer.write(&*journal, ended()).unwrap();
    assert!(wait(journal.claim(Uuid::now_v7(), Claim::IfGone)).is_err());
    drop(journal);
    assert_eq!(trees_in_file(&path), 0);
    drop(other);
    assert_eq!(trees_in_file(&path), 1, "the last one empties it");
}

#[test]
fn tree_that_begins_and_is_released_in_one_batch_has_no_owner() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let journal = open(&path);
    let mut writer = RecordWriter::new();
    assert!(journal.begin_ahead(&writer.root(plain())));
    journal.release(writer.tree);
    let mut other = RecordWriter::new();
    other.begin(&*journal, plain()).unwrap();
    assert_eq!(wait(open(&path).claim(writer.tree, Claim::IfGone)), Ok(2));
}

#[test]
fn tree_that_is_claimed_again_in_the_commit_of_its_end_stays_owned() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut options = options();
    options.closes_after_trees = true;
    let journal = SqliteJournal::open(&path, options).unwrap();
    let mut writer = RecordWriter::new();
    let mut other = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    other.begin(&*journal, plain()).unwrap();
    // The writer waits for the lock with this record, so what follows is one batch.
    let lock = rusqlite::Connection::open(&path).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting = std::thread::spawn({
        let (journal, record) = (journal.clone(), other.root(asked()));
        move || wait(journal.append(record))
    });
    std::thread::sleep(Duration::from_millis(100));
    let end = journal.append(writer.root(ended()));
    journal.release(writer.tree);
    let claim = journal.claim(writer.tree, Claim::IfGone);
    drop(lock);
    assert_eq!(waiting.join().unwrap(), Ok(()));
    assert_eq!((wait(end), wait(claim)), (Ok(()), Ok(2)));
    writer.epoch = 2;
    assert_eq!(writer.write(&*journal, asked()), Ok(()), "no other process took it");
}

#[test]
fn records_after_the_end_of_a_tree_are_written_unless_the_host_closes_then() {
    let dir = tempdir().unwrap();
    let journal = open(&dir.path().join("journal.db"));
    let mut fork = RecordWriter::new();
    fork.begin(&*journal, plain()).unwrap();
    assert_eq!(fork.write(&*journal, ended()), Ok(()));
    assert_eq!(fork.write(&*journal, asked()), Ok(()), "a fork copies the end of a tree that was given more");
}
