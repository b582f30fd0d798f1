//! The tables, their version, and how a connection is set up. Plain enough that a person can query them with any SQLite
//! tool; who writes what is not known here.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, config::DbConfig};

use crate::journal::{JournalError, sqlite::wal_check::Log};

/// Grows with each change that an older program could not read.
pub(super) const VERSION: i64 = 1;

/// Marks the file as a journal of Homing's: `HOMJ`.
const APPLICATION: i64 = 0x484f_4d4a;

/// How long a process waits for others to finish writing before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);

const TABLES: &str = "
-- Journals of living and dead processes; a tree or a hold points to the one that owns it.
CREATE TABLE owners (
    id TEXT PRIMARY KEY, pid INTEGER NOT NULL, start INTEGER NOT NULL, boot_id TEXT NOT NULL, pid_ns TEXT NOT NULL,
    host TEXT NOT NULL, heartbeat INTEGER NOT NULL
) STRICT;
-- One row per tree. `next_seq` is how many records it has; `steps` counts answers, `crashes` deaths at the same step.
CREATE TABLE trees (
    id TEXT PRIMARY KEY, owner TEXT, epoch INTEGER NOT NULL, next_seq INTEGER NOT NULL, key TEXT UNIQUE,
    task_hash TEXT NOT NULL, cache_key TEXT, tags TEXT NOT NULL, started INTEGER NOT NULL, last_at INTEGER NOT NULL,
    steps INTEGER NOT NULL, crashed_at INTEGER, crashes INTEGER NOT NULL DEFAULT 0, pruned INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX trees_started ON trees (started);
CREATE INDEX trees_owner ON trees (owner) WHERE owner IS NOT NULL;
CREATE INDEX trees_cache_key ON trees (cache_key) WHERE cache_key IS NOT NULL;
-- The facts. Everything below, but for the shared desk of processes, can be made again from them.
CREATE TABLE records (
    id INTEGER PRIMARY KEY, tree TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, epoch INTEGER NOT NULL,
    run TEXT NOT NULL, place TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, crc INTEGER NOT NULL,
    UNIQUE (tree, seq)
) STRICT;
-- Long prompts, stored once; records name them by their SHA-256.
CREATE TABLE bodies (hash TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
CREATE TABLE body_uses (tree TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (tree, hash)) STRICT, WITHOUT ROWID;
CREATE INDEX body_uses_hash ON body_uses (hash);
-- An index of runs and what they spent; kept after pruning.
CREATE TABLE runs (
    id TEXT PRIMARY KEY, tree TEXT NOT NULL, place TEXT NOT NULL, agent TEXT NOT NULL, task TEXT NOT NULL,
    model TEXT NOT NULL, status TEXT NOT NULL, started INTEGER NOT NULL, ended INTEGER
) STRICT;
CREATE INDEX runs_tree ON runs (tree, place);
CREATE TABLE spend (
    run TEXT NOT NULL, model TEXT NOT NULL, day INTEGER NOT NULL, tree TEXT NOT NULL, input INTEGER NOT NULL,
    cached INTEGER NOT NULL, output INTEGER NOT NULL, cost_micros INTEGER NOT NULL, estimated INTEGER NOT NULL,
    turns INTEGER NOT NULL, tool_calls INTEGER NOT NULL, PRIMARY KEY (run, model, day)
) STRICT, WITHOUT ROWID;
CREATE INDEX spend_tree ON spend (tree);
CREATE TABLE results (tree TEXT PRIMARY KEY, envelope TEXT NOT NULL) STRICT;
CREATE TABLE pins (tree TEXT PRIMARY KEY) STRICT;
-- What processes tell each other.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY, tree TEXT NOT NULL, run TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, at INTEGER NOT NULL
) STRICT;
CREATE TABLE gates (name TEXT PRIMARY KEY, closed_until INTEGER NOT NULL) STRICT;
CREATE TABLE accounts (
    name TEXT NOT NULL, day INTEGER NOT NULL, tokens INTEGER NOT NULL, cost_micros INTEGER NOT NULL, PRIMARY KEY (name, day)
) STRICT, WITHOUT ROWID;
CREATE TABLE holds (
    id INTEGER PRIMARY KEY, account TEXT NOT NULL, owner TEXT NOT NULL, day INTEGER NOT NULL, tokens INTEGER NOT NULL,
    cost_micros INTEGER NOT NULL
) STRICT;
CREATE INDEX holds_account ON holds (account);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
";

/// Opens the file for writing, with its tables.
pub(super) fn open_writer(path: &Path) -> Result<Connection, JournalError> {
    let began = Instant::now();
    loop {
        match try_open(path) {
            // Several processes that open a new file at once: SQLite does not wait while one of them turns WAL on.
            Err(OpenMode::Sqlite(error)) if is_busy(&error) && began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(OpenMode::Sqlite(error)) => return Err(said(&error)),
            Err(OpenMode::Journal(error)) => return Err(error),
            Ok(connection) => return Ok(connection),
        }
    }
}

/// Opens the file for reading beside the writer.
pub(super) fn open_reader(path: &Path) -> Result<Connection, JournalError> {
    // A reader may have to recover the WAL after a crash, so it needs to be able to write; it is only asked to read.
    let mut connection = Connection::open_with_flags(path, flags()).map_err(|error| said(&error))?;
    let mut set_up = || {
        connection.busy_handler(Some(wait_for_others))?;
        connection.pragma_update(None, "query_only", true)
    };
    set_up().map_err(|error| said(&error))?;
    Ok(connection)
}

enum OpenMode {
    Sqlite(rusqlite::Error),
    Journal(JournalError),
}

impl From<rusqlite::Error> for OpenMode {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn flags() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn try_open(path: &Path) -> Result<Connection, OpenMode> {
    let mut connection = Connection::open_with_flags(path, flags())?;
    connection.busy_handler(Some(wait_for_others))?;
    connection.set_prepared_statement_cache_capacity(64);
    // Whoever is refused below leaves the log as it is.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    refuse_damaged_log(&mut connection, &Log::of(path))?;
    // One snapshot for all that is looked at: another process may be making the tables at this very moment.
    let snapshot = connection.transaction()?;
    recognise(&snapshot)?;
    snapshot.finish()?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        let what = format!("{} cannot use a write-ahead log (its mode is `{mode}`)", path.display());
        return Err(OpenMode::Journal(JournalError::Unwritable(what)));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A thousand trees at work touch more pages than SQLite keeps by default; without room for them it reads and writes
    // the same pages again and again. In kibibytes.
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    // The log is folded into the database every 16 MB: each folding costs two more syncs.
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    // After a burst the log is cut back to this size, instead of staying as large as it once was.
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    create(&mut connection)?;
    Ok(connection)
}

fn refuse_damaged_log(connection: &mut Connection, log: &Log) -> Result<(), OpenMode> {
    if log.damage().is_none() {
        return Ok(());
    }
    // Somebody may have been writing it just then: nobody is while this lock is held.
    let _still = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    log.damage().map_or(Ok(()), |end| Err(OpenMode::Journal(log.refusal(end))))
}

/// Refuses files of other programs and of newer versions before anything is changed in them.
fn recognise(connection: &Connection) -> Result<(), OpenMode> {
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let things: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let unknown = |what: String| Err(OpenMode::Journal(JournalError::Unknown(what)));
    match (application, version) {
        (APPLICATION, VERSION) => Ok(()),
        (APPLICATION, newer) if newer > VERSION => {
            unknown(format!("its tables have version {newer}, this program knows {VERSION}: use a newer homing"))
        }
        (0, 0) if things == 0 => Ok(()),
        (APPLICATION, other) => unknown(format!("its tables have version {other}, which was never released")),
        (_, _) => unknown("the file is another program's database".to_owned()),
    }
}

fn create(connection: &mut Connection) -> Result<(), OpenMode> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    recognise(&transaction)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Waits a little, a different little in each process, so that many writers take turns instead of marching in step.
fn wait_for_others(times: i32) -> bool {
    let step = u64::from(std::process::id()).wrapping_mul(0x9e37_79b9).rotate_left(times.unsigned_abs() % 61) % 4;
    let millis = 1 + step + u64::from(times.unsigned_abs()).min(8);
    std::thread::sleep(Duration::from_millis(millis));
    u128::from(times.unsigned_abs()) * 8 < PATIENCE.as_millis()
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// SQLite's error in the journal's words.
pub(super) fn said(error: &rusqlite::Error) -> JournalError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => JournalError::Damaged(error.to_string()),
        Some(ErrorCode::NotADatabase) => JournalError::Damaged("the file is no SQLite database".to_owned()),
        Some(ErrorCode::DiskFull) => JournalError::Unwritable("the disk is full".to_owned()),
        Some(_) | None => JournalError::Unwritable(error.to_string()),
    }
}
