//! Damaged files and failing disks: everything committed before the damage can be read, and damaged data is never used.

#![cfg(target_os = "linux")]

mod journal_support;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use homing_core::envelope::Status;
use homing_runtime::journal::{
    Claim, Journal, JournalError,
    sqlite::{Filter, SqliteJournal, check_file},
};
use journal_support::*;
use rusqlite::Connection;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::tempdir;

/// A folder in memory, if possible: these tests open hundreds of files and do not depend on real syncs.
fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap()
}

/// Copies the database with `wal` as its log, as a crash might leave them.
fn copy(from: &Path, to: &Path, wal: &[u8]) {
    fs::copy(from, to).unwrap();
    fs::write(to.with_extension("db-wal"), wal).unwrap();
    let _ = fs::remove_file(to.with_extension("db-shm"));
}

/// An open journal, whose log is therefore not checkpointed, with some commits in the log.
fn with_a_log(path: &Path) -> (std::sync::Arc<SqliteJournal>, RecordWriter) {
    let journal = open(path);
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    for n in 0..12 {
        let fact = if n % 2 == 0 { asked() } else { replied(&format!("answer {n}")) };
        writer.write(&*journal, fact).unwrap();
    }
    (journal, writer)
}

#[test]
fn inv7_fault3_truncated_log_opens_with_all_commits_before_the_cut() {
    let dir = quick_dir();
    let path = dir.path().join("journal.db");
    let (journal, writer) = with_a_log(&path);
    let wal = fs::read(path.with_extension("db-wal")).unwrap();
    let commits = commits(&wal);
    assert!(commits.len() >= 13);
    // Every byte of the last frame, which completes the last commit; the headers of all frames; the header of the log.
    let last = wal.len() - FRAME;
    let heads = (WAL_HEADER..last).step_by(FRAME).flat_map(|frame| [0, 1, 4, 8, 16, 23, 24, 25].map(|at| frame + at));
    let cuts: Vec<usize> = (0..=WAL_HEADER).chain(heads).chain(last..=wal.len()).collect();
    let (cuts, path) = (&cuts, &path);
    let (wal, commits, dir) = (&wal, &commits, dir.path());
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || {
                let cut_db = dir.join(format!("cut-{part}.db"));
                for cut in cuts.iter().skip(part).step_by(4) {
                    copy(path, &cut_db, &wal[..*cut.min(&wal.len())]);
                    opens_with(&cut_db, writer.tree, commits, *cut);
                }
            });
        }
    });
    drop(journal);
}

/// Opens a truncated log: every record whose commit ends before the cut is there, and none after it.
fn opens_with(database: &Path, tree: uuid::Uuid, commits: &[usize], cut: usize) {
    let committed = commits.iter().filter(|at| **at <= cut).count();
    let journal = open(database);
    // One commit creates the tables, and one begins the tree.
    let expected = committed.saturating_sub(commits.len() - 13);
    match wait(journal.load(tree)) {
        Ok(records) => assert_eq!(records.len(), expected, "cut at {cut}"),
        Err(error) => assert_eq!((error, expected), (JournalError::NoSuchTree(tree), 0), "cut at {cut}"),
    }
    if cut.is_multiple_of(100) {
        assert_eq!(journal.check().unwrap().problems, []);
    }
}

#[test]
fn inv8_check_reports_flipped_bit_in_log_with_byte_to_cut_at() {
    let dir = quick_dir();
    let path = dir.path().join("journal.db");
    let (journal, writer) = with_a_log(&path);
    let wal = fs::read(path.with_extension("db-wal")).unwrap();
    let commits = commits(&wal);
    let last = commits[commits.len() - 2];
    // Every byte of the log header; of each frame one byte of its header, a different one each time, and one of its page.
    let frames = (WAL_HEADER..wal.len()).step_by(FRAME).enumerate();
    let places = (0..WAL_HEADER).chain(frames.flat_map(|(n, frame)| [frame + n * 5 % 24, frame + 24 + n * 47 % 2048]));
    let broken = dir.path().join("broken.db");
    for (n, at) in places.enumerate() {
        let mut bytes = wal.clone();
        bytes[at] ^= 1 << (n % 8);
        copy(&path, &broken, &bytes);
        let problems = check_file(&broken).unwrap().problems;
        assert_eq!(fs::read(broken.with_extension("db-wal")).unwrap(), bytes, "the check changes nothing");
        // A crash can leave the last commit like this too: then it is as if it had never been.
        if problems.is_empty() && at >= last {
            assert_eq!(wait(open(&broken).load(writer.tree)).unwrap().len(), 12, "a flip at {at}");
            continue;
        }
        let [JournalError::Damaged(what)] = problems.as_slice() else { panic!("a flip at {at}: {problems:?}") };
        let cut: usize =
            what.split("truncate -s ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
        assert_eq!(cut, commits.iter().copied().rfind(|end| *end <= at).unwrap_or(cut), "a flip at {at}");
        copy(&path, &broken, &bytes[..cut]);
        opens_with(&broken, writer.tree, &commits, cut);
    }
    drop(journal);
}

#[test]
fn opening_does_not_scan_the_log() {
    let dir = quick_dir();
    let path = dir.path().join("journal.db");
    let (journal, writer) = with_a_log(&path);
    let wal = fs::read(path.with_extension("db-wal")).unwrap();
    let commits = commits(&wal);
    let cut = commits[commits.len() - 5];
    let mut bytes = wal.clone();
    bytes[cut + 30] ^= 1;
    let broken = dir.path().join("broken.db");
    copy(&path, &broken, &bytes);
    let opened = open(&broken);
    assert_eq!(wait(opened.load(writer.tree)).unwrap().len(), 9, "the commits before the flipped bit");
    let problems = opened.check().unwrap().problems;
    let [JournalError::Damaged(what)] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(what.contains(&format!("damaged at byte {cut}")), "{what}");
    drop((journal, opened));
}

#[test]
fn inv7_truncated_database_file_is_reported() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let tree = {
        let (_journal, writer) = with_a_log(&path);
        writer.tree
    };
    let whole = fs::read(&path).unwrap();
    assert!(!path.with_extension("db-wal").exists(), "the last process to close checkpoints the log");
    // By a page, because the end of the last page may be unused.
    for cut in [whole.len() - 2_048, whole.len() / 2, 4096, 100] {
        fs::write(&path, &whole[..cut]).unwrap();
        let found = SqliteJournal::open(&path, options()).and_then(|journal| wait(journal.load(tree)));
        assert!(matches!(found, Err(JournalError::Damaged(_))), "cut at {cut}: {found:?}");
    }
}

#[test]
fn records_of_a_tree_that_could_not_begin_fail_with_the_reason() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let journal = open(&path);
    let mut first = small_tree(&journal, plain());
    // A second tree with the same ID, whose record follows at once or after the first one was refused.
    for pause in [0, 50] {
        let mut same = RecordWriter { tree: first.tree, epoch: 1, seq: 0, at: first.at };
        journal.release(first.tree);
        assert!(journal.begin_ahead(&same.root(plain())));
        std::thread::sleep(Duration::from_millis(pause));
        let failed = same.write(&*journal, asked());
        assert!(matches!(&failed, Err(JournalError::Unwritable(why)) if why.contains("UNIQUE")), "{failed:?}");
    }
    journal.release(first.tree);
    first.epoch = wait(journal.claim(first.tree, Claim::IfGone)).unwrap();
    assert_eq!(first.write(&*journal, ended()), Ok(()), "the earlier tree is as it was");
    // The whole batch fails.
    fs::remove_file(&path).unwrap();
    let mut other = RecordWriter::new();
    assert!(journal.begin_ahead(&other.root(plain())));
    let failed = other.write(&*journal, asked());
    assert!(matches!(failed, Err(JournalError::Gone(_))), "{failed:?}");
    let failed = other.write(&*journal, asked());
    assert!(matches!(failed, Err(JournalError::Gone(_))), "{failed:?}");
}

#[test]
fn inv8_flipped_bit_in_any_column_names_the_record() {
    let dir = quick_dir();
    let path = dir.path().join("journal.db");
    let writer = {
        let (_journal, writer) = with_a_log(&path);
        writer
    };
    let columns = ["tree", "seq", "epoch", "crc"];
    let parts = ["\"at\":", "\"run\":\"", "\"place\":\"", "\"fact\":{\""];
    for column in columns.into_iter().chain(parts) {
        for seq in [0, 5, 12] {
            let broken = dir.path().join("broken.db");
            fs::copy(&path, &broken).unwrap();
            flip(&broken, column, seq);
            let journal = open(&broken);
            let found = wait(journal.load(writer.tree));
            let Err(JournalError::Damaged(what)) = &found else { panic!("{column} of {seq}: {found:?}") };
            assert!(what.contains(&writer.tree.to_string()), "{column} of {seq}: {what}");
            if !["tree", "seq"].contains(&column) {
                assert!(what.contains(&format!("record {seq}:")), "{column} of {seq}: {what}");
            }
            assert!(!journal.check().unwrap().problems.is_empty(), "{column} of {seq}");
        }
    }
}

/// Flips one bit of a column, or of the byte after a text in the JSON, in a way that SQLite's own file format does not detect.
fn flip(path: &Path, what: &str, seq: i64) {
    let db = Connection::open(path).unwrap();
    let changed = match what {
        "seq" => db.execute("UPDATE appends SET seq = seq | 16 WHERE seq = ?1", [seq]),
        "tree" | "epoch" | "crc" => {
            db.execute(&format!("UPDATE appends SET {what} = (~{what} & 4) | ({what} & ~4) WHERE seq = ?1"), [seq])
        }
        text => {
            let json: String =
                db.query_row("SELECT records FROM appends WHERE seq = ?1", [seq], |row| row.get(0)).unwrap();
            let at = json.find(text).unwrap() + text.len();
            let mut bytes = json.into_bytes();
            bytes[at] ^= 1;
            let json = String::from_utf8(bytes).unwrap();
            db.execute("UPDATE appends SET records = ?2 WHERE seq = ?1", rusqlite::params![seq, json])
        }
    };
    assert_eq!(changed.unwrap(), 1);
}

#[test]
fn inv8_flipped_bits_in_the_file_never_change_records() {
    let dir = quick_dir();
    let path = dir.path().join("journal.db");
    let (writer, written) = {
        let (journal, writer) = with_a_log(&path);
        let written = wait(journal.load(writer.tree)).unwrap();
        (writer, written)
    };
    let whole = fs::read(&path).unwrap();
    let broken = dir.path().join("broken.db");
    let mut found = 0;
    for at in (0..whole.len()).step_by(211) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&broken, &bytes).unwrap();
        for rest in ["db-wal", "db-shm"] {
            let _ = fs::remove_file(broken.with_extension(rest));
        }
        match SqliteJournal::open(&broken, options()).and_then(|journal| wait(journal.load(writer.tree))) {
            Ok(records) => assert_eq!(records, written, "byte {at}"),
            Err(_) => found += 1,
        }
    }
    assert!(found > 0);
}

#[test]
fn changed_stored_prompt_is_reported() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let system = "long prompt ".repeat(500).into();
    let spawned = homing_core::fact::Spawned { system, ..spawned() };
    let writer = small_tree(&open(&path), homing_core::fact::Fact::Spawned(spawned.into()));
    Connection::open(&path).unwrap().execute("UPDATE bodies SET text = replace(text, 'long', 'lung')", []).unwrap();
    let journal = open(&path);
    assert!(matches!(wait(journal.load(writer.tree)), Err(JournalError::Damaged(_))));
    assert!(!journal.check().unwrap().problems.is_empty());
}

/// A small tmpfs, unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(size: &str) -> Option<Self> {
        let dir = tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        match mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), options.as_c_str()) {
            Ok(()) => Some(Self(dir)),
            Err(error) => {
                skip(&format!("cannot mount a tmpfs here ({error})"));
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

fn skip(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

#[test]
fn inv9_fault5_full_disk_fails_at_once_and_recovers_with_space() {
    let Some(small) = SmallDisk::new("2m") else { return };
    let path = small.0.path().join("journal.db");
    let journal = open(&path);
    let (mut idle, mut busy) = (RecordWriter::new(), RecordWriter::new());
    idle.begin(&*journal, plain()).unwrap();
    busy.begin(&*journal, plain()).unwrap();
    let ballast = small.0.path().join("ballast");
    let mut full = Vec::new();
    while fs::write(&ballast, &full).is_ok() {
        full.resize(full.len() + 16 * 1024, 0);
    }
    let (failed, took) = until_full(&journal, &mut busy);
    assert!(matches!(&failed, JournalError::Unwritable(what) if what.contains("full")), "{failed:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(busy.write(&*journal, asked()).is_err(), "a tree that misses a record takes no more");
    assert!(RecordWriter::new().begin(&*journal, replied_prompt()).is_err(), "and nothing large can begin");

    fs::remove_file(&ballast).unwrap();
    assert_eq!(idle.write(&*journal, asked()), Ok(()), "a tree that misses nothing goes on");
    small_tree(&journal, plain());
    let written = wait(journal.load(busy.tree)).unwrap();
    busy.seq = u64::try_from(written.len()).unwrap();
    assert!(busy.write(&*journal, asked()).is_err(), "still with its old epoch");
    busy.epoch = wait(journal.claim(busy.tree, Claim::IfGone)).unwrap();
    busy.seq = u64::try_from(written.len()).unwrap();
    assert_eq!(busy.write(&*journal, asked()), Ok(()));
    assert_eq!(journal.check().unwrap().problems, []);
    assert_eq!(journal.runs(&Filter { status: Some(Status::Done), ..Filter::default() }).unwrap().len(), 1);
}

fn replied_prompt() -> homing_core::fact::Fact {
    let task = "long ".repeat(500_000);
    homing_core::fact::Fact::Spawned(homing_core::fact::Spawned { task, ..spawned() }.into())
}

/// Writes until the disk is full; returns the error and how long it took.
fn until_full(journal: &SqliteJournal, writer: &mut RecordWriter) -> (JournalError, Duration) {
    for _ in 0..10_000 {
        let began = Instant::now();
        if let Err(error) = writer.write(journal, replied(&"x".repeat(20_000))) {
            return (error, began.elapsed());
        }
    }
    panic!("the disk never filled up");
}

/// The process that a test starts.
#[test]
#[ignore = "started by another test as its own process"]
fn child_process() {
    let Ok(path) = std::env::var("JOURNAL_PATH") else { return };
    let journal = open(Path::new(&path));
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    writer.write(&*journal, asked()).unwrap();
    print_line(format!("{} {}", writer.tree, writer.seq));
    // A release is committed without a sync; the record after it must be synced again.
    let mut other = RecordWriter::new();
    other.begin(&*journal, plain()).unwrap();
    journal.release(other.tree);
    while journal.owner(other.tree).unwrap().is_some() {
        std::thread::sleep(Duration::from_millis(5));
    }
    if let Err(error) = break_the_disk() {
        return print_line(format!("skipped {error}"));
    }
    let began = Instant::now();
    let failed = writer.write(&*journal, replied("not acknowledged")).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(writer.write(&*journal, asked()).is_err(), "no more records are accepted");
    assert!(RecordWriter::new().begin(&*journal, plain()).is_err(), "and no new tree begins");
    print_line(failed);
}

/// Makes every further sync of this process fail in the kernel, as on a failing disk.
fn break_the_disk() -> Result<(), String> {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let syncs = [sync_number("fsync"), sync_number("fdatasync")].into_iter().map(|number| (number, vec![]));
    let eio = u32::try_from(rustix::io::Errno::IO.raw_os_error()).expect("error numbers are positive");
    let arch = std::env::consts::ARCH.try_into().map_err(|error| text(&error))?;
    let filter = SeccompFilter::new(syncs.collect(), SeccompAction::Allow, SeccompAction::Errno(eio), arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(|error| text(&error))?;
    apply_filter_all_threads(&program).map_err(|error| text(&error))
}

fn sync_number(call: &str) -> i64 {
    match (call, std::env::consts::ARCH) {
        ("fsync", "x86_64") => 74,
        ("fdatasync", "x86_64") => 75,
        ("fsync", _) => 82,
        (_, _) => 83,
    }
}

#[test]
fn inv9_fault6_failing_sync_fails_at_once_and_loses_nothing_acknowledged() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut child = process("eio", &path, &[]);
    let said = all_lines(&mut child);
    let errors = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    let [written, failed] = said.as_slice() else { panic!("{said:?} {errors}") };
    if let Some(why) = failed.strip_prefix("skipped ") {
        return skip(&format!("this kernel does not accept a filter ({why})"));
    }
    assert!(failed.contains("I/O error"), "{failed}");
    let (tree, acknowledged) = written.split_once(' ').unwrap();
    let (tree, acknowledged) = (tree.parse().unwrap(), acknowledged.parse().unwrap());
    let journal = open(&path);
    let records = wait(journal.load(tree)).unwrap();
    // The record that failed may have reached the disk or not; it was not acknowledged.
    assert!([acknowledged, acknowledged + 1].contains(&records.len()), "{} of {acknowledged}", records.len());
    let epoch = wait(journal.claim(tree, Claim::IfGone)).unwrap();
    let mut writer = RecordWriter { tree, epoch, seq: u64::try_from(records.len()).unwrap(), ..RecordWriter::new() };
    assert_eq!(writer.write(&*journal, asked()), Ok(()), "with a good disk the tree goes on");
    assert_eq!(journal.check().unwrap().problems, []);
}

#[test]
fn fault7_read_only_folder_is_a_clear_error() {
    let Some(small) = SmallDisk::new("1m") else { return };
    mount("tmpfs", small.0.path(), "tmpfs", MountFlags::RDONLY, None).unwrap();
    for path in ["journal.db", "deep/journal.db"] {
        let error = SqliteJournal::open(small.0.path().join(path), options()).unwrap_err();
        let JournalError::Unwritable(what) = &error else { panic!("{error:?}") };
        assert!(what.contains("Read-only file system") && what.contains(small.0.path().to_str().unwrap()), "{what}");
    }
    unmount(small.0.path(), UnmountFlags::DETACH).unwrap();
}
