//! The tables, their version, and the set-up of connections. The tables are plain enough to be queried with any SQLite tool.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig};

use crate::journal::{
    JournalError,
    sqlite::{lock_holder::LockHolder, migrate},
};

/// Grows with each change that an older program could not read.
pub(super) const VERSION: i64 = 2;

/// Size of a page of a new journal. Each table and index takes one from the beginning, and a commit writes every page that it
/// changes, so small pages make small files and short writes. Journals of earlier versions keep theirs, which is twice as large.
const PAGE: i64 = 2_048;

/// Marks the file as a journal of Homing: `HOMJ`.
const APPLICATION: i64 = 0x484f_4d4a;

/// The longest wait for other processes that write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest wait for a process that is stopped in the middle of a write.
const STOPPED_TIMEOUT: Duration = Duration::from_secs(3);

/// Trees, their records and their usage, whose form has changed between versions.
pub(super) const TREES: &str = "
-- One row per tree, which rarely changes. `crashes` counts owners that died at the same step.
CREATE TABLE trees (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT, epoch INTEGER NOT NULL, key TEXT,
    task_hash TEXT NOT NULL, cache_key TEXT, tags TEXT NOT NULL, started INTEGER NOT NULL, crashed_at INTEGER,
    crashes INTEGER NOT NULL DEFAULT 0, pruned INTEGER NOT NULL DEFAULT 0, project TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX trees_key ON trees (key) WHERE key IS NOT NULL;
CREATE INDEX trees_owner ON trees (owner) WHERE owner IS NOT NULL;
CREATE INDEX trees_cache_key ON trees (cache_key) WHERE cache_key IS NOT NULL;
CREATE INDEX trees_project ON trees (project, started);
-- What changes with every commit, in rows so short that many trees share a page. `next_seq` is the number of records, `steps`
-- counts replies and results.
CREATE TABLE progress (
    tree INTEGER PRIMARY KEY, next_seq INTEGER NOT NULL, last_at INTEGER NOT NULL, steps INTEGER NOT NULL
) STRICT;
-- The facts. A row has the records of one tree that were committed together, as a JSON array; `seq` is the position of the first.
-- The index and the results below can be derived from them.
CREATE TABLE appends (
    id INTEGER PRIMARY KEY, tree INTEGER NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL, records TEXT NOT NULL,
    crc INTEGER NOT NULL, UNIQUE (tree, seq)
) STRICT;
-- Usage of runs by model and day. A run that works updates its row by number.
CREATE TABLE spend (
    id INTEGER PRIMARY KEY, run TEXT NOT NULL, model TEXT NOT NULL, day INTEGER NOT NULL, tree TEXT NOT NULL, input INTEGER NOT NULL,
    cached INTEGER NOT NULL, output INTEGER NOT NULL, cost_micros INTEGER NOT NULL, estimated INTEGER NOT NULL,
    turns INTEGER NOT NULL, tool_calls INTEGER NOT NULL, UNIQUE (run, model, day)
) STRICT;
CREATE INDEX spend_tree ON spend (tree);
-- The facts one by one, for other tools.
CREATE VIEW records AS
SELECT trees.id AS tree, seq + record.key AS seq, json_extract(record.value, '$.at') AS at, appends.epoch,
    json_extract(record.value, '$.run') AS run, json_extract(record.value, '$.place') AS place,
    (SELECT fact.key FROM json_each(record.value, '$.fact') AS fact) AS kind, json_extract(record.value, '$.fact') AS body
FROM appends JOIN trees ON number = appends.tree, json_each(records) AS record;
";

/// Everything else.
const OTHERS: &str = "
-- Open journals of processes, dead ones included; trees and reservations (holds) refer to their owner.
CREATE TABLE owners (
    id TEXT PRIMARY KEY, pid INTEGER NOT NULL, start INTEGER NOT NULL, boot_id TEXT NOT NULL, pid_ns TEXT NOT NULL,
    host TEXT NOT NULL, heartbeat INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- Long prompts, stored once; records refer to them by their SHA-256.
CREATE TABLE bodies (hash TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE body_uses (tree TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (tree, hash)) STRICT, WITHOUT ROWID;
CREATE INDEX body_uses_hash ON body_uses (hash);
-- Index of runs; kept after pruning, as their usage is.
CREATE TABLE runs (
    id TEXT PRIMARY KEY, tree TEXT NOT NULL, place TEXT NOT NULL, agent TEXT NOT NULL, task TEXT NOT NULL,
    model TEXT NOT NULL, status TEXT NOT NULL, started INTEGER NOT NULL, ended INTEGER
) STRICT;
CREATE INDEX runs_tree ON runs (tree, place);
-- The random end of IDs, by which users name runs.
CREATE INDEX runs_short_id ON runs (substr(id, 29));
CREATE TABLE results (tree TEXT PRIMARY KEY, envelope TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE pins (tree TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
-- Data that processes share: requests, pauses of rate limits (gates), accounts and their reservations (holds).
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY, tree TEXT NOT NULL, run TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, at INTEGER NOT NULL
) STRICT;
CREATE TABLE gates (name TEXT PRIMARY KEY, closed_until INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE accounts (
    name TEXT NOT NULL, day INTEGER NOT NULL, tokens INTEGER NOT NULL, cost_micros INTEGER NOT NULL, PRIMARY KEY (name, day)
) STRICT, WITHOUT ROWID;
CREATE TABLE holds (
    id INTEGER PRIMARY KEY, account TEXT NOT NULL, owner TEXT NOT NULL, day INTEGER NOT NULL, tokens INTEGER NOT NULL,
    cost_micros INTEGER NOT NULL
) STRICT;
CREATE INDEX holds_account ON holds (account);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
";

/// Opens the file for writing, and creates its tables if they are missing.
pub(super) fn open_writer(path: &Path) -> Result<Connection, JournalError> {
    // When several processes open a new file at once, SQLite does not wait while one of them switches to WAL.
    wait_for_lock(path, || match try_open(path) {
        Ok(connection) => Ok(Ok(connection)),
        Err(OpenError::Journal(error)) => Ok(Err(error)),
        Err(OpenError::Sqlite(error)) => Err(error),
    })?
}

/// Repeats `attempt` while another process holds the lock of the journal. A holder that is stopped is not waited for as long as one
/// that works, because only the user can continue it; the error names it.
pub(super) fn wait_for_lock<T>(
    path: &Path,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> Result<T, JournalError> {
    let began = Instant::now();
    loop {
        let error = match attempt() {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if !is_busy(&error) {
            return Err(error.into());
        }
        let waited = began.elapsed();
        if waited >= STOPPED_TIMEOUT {
            let holder = LockHolder::of(path);
            let stopped = holder.as_ref().filter(|holder| holder.is_stopped).map(|holder| holder.pid);
            if stopped.is_some() || waited >= BUSY_TIMEOUT {
                return Err(JournalError::Locked { holder: holder.map(|holder| holder.to_string()), stopped });
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Opens the file for reading while the writer writes.
pub(super) fn open_reader(path: &Path) -> Result<Connection, JournalError> {
    // A reader may have to recover the WAL after a crash, so the file is opened for writing; queries cannot write.
    let mut connection = Connection::open_with_flags(path, flags())?;
    connection.busy_handler(Some(wait_for_others))?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Opens the file for a check, which changes neither the database nor the log, not even when it is closed.
pub(super) fn open_for_check(path: &Path) -> Result<Connection, JournalError> {
    let mut connection = Connection::open_with_flags(path, flags())?;
    connection.busy_handler(Some(wait_for_others))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Error of opening a file. SQLite's own errors are kept, because a busy file is tried again.
pub(super) enum OpenError {
    Sqlite(rusqlite::Error),
    Journal(JournalError),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn try_open(path: &Path) -> Result<Connection, OpenError> {
    let mut connection = Connection::open_with_flags(path, flags())?;
    connection.busy_handler(Some(wait_briefly))?;
    connection.set_prepared_statement_cache_capacity(64);
    // A file that is refused below is left as it is, its log included.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // One snapshot for everything that is compared: another process may be creating the tables right now.
    let snapshot = connection.transaction()?;
    recognise(&snapshot)?;
    let version: i64 = snapshot.pragma_query_value(None, "user_version", |row| row.get(0))?;
    snapshot.finish()?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    // Only a new file needs this, and it is a write: an opening must not sync, nor overwrite what a check could still find.
    if version == 0 {
        connection.pragma_update(None, "page_size", PAGE)?;
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        let what = format!("{} does not support a write-ahead log (its journal mode is `{mode}`)", path.display());
        return Err(OpenError::Journal(JournalError::Unwritable(what)));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A thousand live trees touch more pages than SQLite caches by default, so that it would read and write the same pages
    // again and again. Negative numbers are kibibytes.
    connection.pragma_update(None, "cache_size", -4 * 1024)?;
    // A checkpoint every 16 MB: each costs two more syncs.
    connection.pragma_update(None, "wal_autocheckpoint", 16 * 1024 * 1024 / PAGE)?;
    // After a burst the log is truncated to this size instead of keeping its largest size.
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    create(&mut connection)?;
    Ok(connection)
}

/// Refuses files of other programs and of newer versions before anything is changed in them.
pub(super) fn recognise(connection: &Connection) -> Result<(), OpenError> {
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let unknown = |what: String| Err(OpenError::Journal(JournalError::Unknown(what)));
    match (application, version) {
        (APPLICATION, VERSION | migrate::BEFORE) => Ok(()),
        (APPLICATION, newer) if newer > VERSION => unknown(format!(
            "its tables have version {newer}, this program supports version {VERSION}: use a newer version of homing"
        )),
        (0, 0) if tables == 0 => Ok(()),
        (APPLICATION, other) => unknown(format!("its tables have version {other}, which was never released")),
        (_, _) => unknown("the file is a database of another program".to_owned()),
    }
}

/// Refuses tables of the version before, which opening the journal converts.
pub(super) fn require_current(connection: &Connection) -> Result<(), JournalError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == VERSION {
        return Ok(());
    }
    let what = format!("its tables have version {version}; opening the journal converts them to version {VERSION}");
    Err(JournalError::Unknown(what))
}

/// Creates the tables if they are missing, or converts those of the version before. A file that has them is not locked: it can be
/// opened while another process writes.
fn create(connection: &mut Connection) -> Result<(), OpenError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    recognise(&transaction)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match version {
        0 => {
            transaction.execute_batch(TREES)?;
            transaction.execute_batch(OTHERS)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
        }
        migrate::BEFORE => migrate::convert(&transaction)?,
        // Another process was faster.
        _ => return Ok(()),
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(())
}

/// Waits a few milliseconds, a different time in each process, so that many writers do not retry at the same moment.
fn wait_for_others(times: i32) -> bool {
    let step = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9).rotate_left(times.unsigned_abs() % 61) % 4;
    let millis = 1 + step + u64::from(times.unsigned_abs()).min(8);
    std::thread::sleep(Duration::from_millis(millis));
    u128::from(times.unsigned_abs()) * 8 < BUSY_TIMEOUT.as_millis()
}

/// Like [`wait_for_others`], for at most about a second: the caller repeats the attempt, and looks at the holder of the lock.
fn wait_briefly(times: i32) -> bool {
    times < 150 && wait_for_others(times)
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

impl From<rusqlite::Error> for JournalError {
    fn from(error: rusqlite::Error) -> Self {
        if let rusqlite::Error::FromSqlConversionFailure(_, _, what) = &error {
            return Self::Damaged(what.to_string());
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged(error.to_string()),
            Some(ErrorCode::NotADatabase) => Self::Damaged("the file is not an SQLite database".to_owned()),
            Some(ErrorCode::DiskFull) => Self::Unwritable("the disk is full".to_owned()),
            Some(ErrorCode::SystemIoFailure) => Self::Unwritable(format!("{error}{}", size_limit())),
            Some(_) | None => Self::Unwritable(error.to_string()),
        }
    }
}

/// Names the limit of this process on the size of files, if it has one: SQLite reports a file that reaches it as an IO error.
fn size_limit() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    limit
        .map(|bytes| format!("; this process may write files of at most {bytes} bytes (ulimit -f)"))
        .unwrap_or_default()
}

impl From<OpenError> for JournalError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Sqlite(error) => error.into(),
            OpenError::Journal(error) => error,
        }
    }
}
