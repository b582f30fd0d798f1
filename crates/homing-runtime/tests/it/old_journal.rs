//! Journals with the tables of version 1 are converted when they are opened.

use std::path::{Path, PathBuf};

use homing_runtime::journal::{
    Journal, JournalError,
    sqlite::{Filter, JournalFeed, SqliteJournal, SqliteOptions, SumBy, Which, check_file},
};
use rusqlite::Connection;
use tempfile::TempDir;
use uuid::Uuid;

/// A copy of the journal that version 0.1.0 wrote: three trees with 189 records.
fn old_journal() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("journal.db");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../homing-cli/tests/data/journal-0.1.0.sqlite");
    std::fs::copy(data, &path).unwrap();
    (folder, path)
}

fn open(path: &Path) -> std::sync::Arc<SqliteJournal> {
    SqliteJournal::open(path, SqliteOptions::default()).unwrap()
}

fn trees(path: &Path) -> Vec<(Uuid, u64)> {
    let db = Connection::open(path).unwrap();
    let mut statement = db.prepare("SELECT id, next_seq FROM trees").unwrap();
    let rows = statement.query_map([], |row| {
        let id: String = row.get(0)?;
        Ok((id.parse().unwrap(), row.get::<_, i64>(1)?.unsigned_abs()))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn every_record_of_an_old_journal_is_converted() {
    let (_folder, path) = old_journal();
    let before = trees(&path);
    let facts: Vec<String> = {
        let db = Connection::open(&path).unwrap();
        let mut statement =
            db.prepare("SELECT tree || seq || run || place || kind || body FROM records ORDER BY tree, seq").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(
        check_file(&path).unwrap_err().to_string().matches("version 1").count(),
        1,
        "it is not checked as it is"
    );
    let journal = open(&path);
    for (tree, records) in before {
        assert_eq!(journal.load(tree).await.unwrap().len() as u64, records);
        assert_eq!(JournalFeed::new(journal.clone()).record_count(tree), Ok(records));
    }
    let report = check_file(&path).unwrap();
    assert_eq!((report.trees, report.records, report.problems), (3, 189, vec![]));
    let all = Filter { which: Which::All, ..Filter::default() };
    let spent: u64 = journal.runs(&all).unwrap().iter().map(|row| row.usage.turns).sum();
    let sums: u64 = journal.sum_by(&SumBy::Model, None, None).unwrap().iter().map(|sum| sum.usage.turns).sum();
    assert!(spent > 0 && spent == sums, "{spent} and {sums} turns");
    drop(journal);
    let db = Connection::open(&path).unwrap();
    // Other tools see the records one by one, as before.
    let mut statement =
        db.prepare("SELECT tree || seq || run || place || kind || body FROM records ORDER BY tree, seq").unwrap();
    let after: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(after, facts);
    let rows: i64 = db.query_row("SELECT count(*) FROM appends", [], |row| row.get(0)).unwrap();
    assert!(rows < 60, "{rows} rows");
}

#[tokio::test]
async fn damage_in_an_old_journal_is_still_reported() {
    let (_folder, path) = old_journal();
    let trees = trees(&path);
    let (changed, cut, whole) = (trees[0].0, trees[1].0, trees[2].0);
    let db = Connection::open(&path).unwrap();
    let sql = "UPDATE records SET body = replace(body, 'a', 'b') WHERE tree = ?1 AND seq = 7";
    assert_eq!(db.execute(sql, [changed.to_string()]), Ok(1));
    assert_eq!(db.execute("DELETE FROM records WHERE tree = ?1 AND seq = 20", [cut.to_string()]), Ok(1));
    drop(db);
    let journal = open(&path);
    let error = journal.load(changed).await.unwrap_err();
    assert!(matches!(&error, JournalError::Damaged(what) if what.contains("record 7:")), "{error}");
    let error = journal.load(cut).await.unwrap_err();
    assert!(matches!(&error, JournalError::Damaged(what) if what.contains("record 20 is missing")), "{error}");
    assert!(journal.load(whole).await.is_ok());
    assert_eq!(journal.check().unwrap().problems.len(), 2);
}

#[test]
fn old_journal_is_not_converted_while_a_process_uses_it() {
    let (_folder, path) = old_journal();
    let db = Connection::open(&path).unwrap();
    let (pid, stat) = (std::process::id(), std::fs::read_to_string("/proc/self/stat").unwrap());
    let start: i64 = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap().to_string_lossy().into_owned();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let insert =
        "INSERT INTO owners (id, pid, start, boot_id, pid_ns, host, heartbeat) VALUES ('o', ?1, ?2, ?3, ?4, ?5, 0)";
    db.execute(insert, rusqlite::params![pid, start, boot.trim(), namespace, host]).unwrap();
    let error = SqliteJournal::open(&path, SqliteOptions::default()).unwrap_err();
    assert!(error.to_string().contains(&format!("process {pid}, which runs an earlier version")), "{error}");
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 1, "nothing was changed");
    db.execute("DELETE FROM owners", []).unwrap();
    assert!(SqliteJournal::open(&path, SqliteOptions::default()).is_ok());
}
