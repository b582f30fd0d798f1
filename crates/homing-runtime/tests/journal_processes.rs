//! Many processes and one journal: none is refused, nothing acknowledged is lost, and a tree has one owner.

mod journal_support;

use std::{
    collections::HashMap,
    io::{BufReader, Write as _},
    path::{Path, PathBuf},
    process::Child,
    sync::Arc,
    time::{Duration, Instant},
};

use homing_core::{
    envelope::Status,
    fact::{Fact, Reservation},
    message::Usage,
};
use homing_runtime::journal::{
    AccountHold, Begun, Claim, Journal, JournalError,
    sqlite::{Account, Failpoint, Filter, SqliteJournal},
};
use journal_support::*;
use rustix::process::Signal;
use tempfile::tempdir;
use uuid::Uuid;

/// The process that a test starts, in the role that the test chooses.
#[test]
#[ignore = "started by the other tests as its own process"]
fn child_process() {
    let (Ok(role), Ok(path), Ok(rest)) =
        (std::env::var("JOURNAL_ROLE"), std::env::var("JOURNAL_PATH"), std::env::var("JOURNAL_REST"))
    else {
        return;
    };
    let path = PathBuf::from(path);
    match role.as_str() {
        "write" => write_trees(&path),
        "stall" => stall(&path),
        "hold_lock" => hold_lock(&path),
        "submit" => submit(&path, &rest),
        "stream" => stream(&open(&path)),
        "crash" => crash(&path, &rest),
        "fail" => fail(&path, &rest),
        "spend" => spend(&path),
        other => panic!("unknown role: {other}"),
    }
}

fn line() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

fn write_trees(path: &Path) {
    print_line("ready");
    line();
    let journal = open(path);
    for _ in 0..4 {
        let writer = small_tree(&journal, plain());
        assert_eq!(wait(journal.load(writer.tree)).unwrap().len(), 4);
    }
    print_line("done");
}

#[test]
fn inv10_sixteen_processes_share_one_new_journal() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut children: Vec<Child> = (0..16).map(|_| process("write", &path, &[])).collect();
    for child in &mut children {
        // All of them open the new file at the same time.
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    for mut child in children {
        let lines = all_lines(&mut child);
        let errors = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
        assert_eq!(lines, ["ready", "done"], "{errors}");
    }
    let journal = open(&path);
    let roots = journal.runs(&Filter::default()).unwrap();
    assert_eq!(roots.len(), 64);
    assert!(roots.iter().all(|row| row.status == Status::Done));
    for row in roots {
        journal.tree(row.tree).unwrap();
    }
}

fn stall(path: &Path) {
    let journal = open(path);
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    print_line(writer.tree);
    line();
    print_line(format!("{:?}", writer.write(&*journal, asked())));
}

#[test]
fn inv10_forced_takeover_fences_a_stalled_owner() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut child = process("stall", &path, &[]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let tree: Uuid = next_line(&mut out).unwrap().parse().unwrap();
    signal(&child, Signal::STOP);
    let journal = open(&path);
    assert_eq!(journal.runs(&Filter::default()).unwrap()[0].status, Status::Queued, "stopped is not dead");
    let began = Instant::now();
    let refused = wait(journal.claim(tree, Claim::IfGone));
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(matches!(refused, Err(JournalError::Owned { pid, ref host, .. }) if pid == child.id() && !host.is_empty()));
    let epoch = wait(journal.claim(tree, Claim::Force)).unwrap();
    assert_eq!(epoch, 2);
    signal(&child, Signal::CONT);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(next_line(&mut out).unwrap(), format!("Err(Fenced {{ tree: {tree} }})"));
    child.wait().unwrap();
    let mut writer = RecordWriter { tree, epoch, seq: 1, at: 1_800_000_000_000 };
    assert_eq!(writer.write(&*journal, asked()), Ok(()));
    assert_eq!(wait(journal.load(tree)).unwrap().len(), 2);
}

fn submit(path: &Path, key: &str) {
    print_line("ready");
    line();
    let journal = open(path);
    let mut writer = RecordWriter::new();
    match writer.begin(&*journal, keyed(key, "once")).unwrap() {
        Begun::New => print_line(format!("new {}", writer.tree)),
        Begun::Earlier(tree) => print_line(format!("earlier {tree}")),
    }
    line();
}

#[test]
fn key_submitted_by_many_processes_begins_one_tree() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut children: Vec<Child> = (0..8).map(|_| process("submit", &path, &["k"])).collect();
    for child in &mut children {
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }
    let mut lines = Vec::new();
    for child in &mut children {
        child.stdin.as_mut().unwrap().write_all(b"end\n").unwrap();
        lines.extend(all_lines(child).into_iter().filter(|line| line != "ready"));
    }
    let new: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("new ")).collect();
    let earlier: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("earlier ")).collect();
    assert_eq!((new.len(), earlier.len()), (1, 7), "{lines:?}");
    assert!(earlier.iter().all(|tree| *tree == new[0]));
}

/// Appends batches until it is killed, and prints which records were acknowledged.
fn stream(journal: &SqliteJournal) {
    let mut writers: Vec<RecordWriter> = (0..4).map(|_| RecordWriter::new()).collect();
    for writer in &mut writers {
        writer.begin(journal, plain()).unwrap();
    }
    for n in 0_u64.. {
        let commits: Vec<_> = writers
            .iter_mut()
            .map(|writer| {
                let record = writer.root(if n % 2 == 0 { asked() } else { replied(&"x".repeat(500)) });
                (record.clone(), journal.append(record))
            })
            .collect();
        for (record, commit) in commits {
            wait(commit).unwrap();
            print_line(format!("{} {}", record.tree, record.seq));
        }
    }
}

#[test]
fn fault2_acknowledged_records_survive_sigkill() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut acknowledged = 0;
    for round in 0..6 {
        let mut child = process("stream", &path, &[]);
        std::thread::sleep(Duration::from_millis(150 + 37 * round));
        child.kill().unwrap();
        let lines = all_lines(&mut child);
        acknowledged += lines.len();
        assert_all_there(&path, &lines);
    }
    assert!(acknowledged > 0);
}

/// Asserts that every acknowledged record is in the journal, and that the journal is sound.
fn assert_all_there(path: &Path, acknowledged: &[String]) {
    let journal = open(path);
    let mut last: HashMap<Uuid, u64> = HashMap::new();
    for line in acknowledged {
        let (tree, seq) = line.split_once(' ').unwrap();
        let last = last.entry(tree.parse().unwrap()).or_default();
        *last = seq.parse::<u64>().unwrap().max(*last);
    }
    for (tree, seq) in last {
        let records = wait(journal.load(tree)).unwrap();
        assert!(u64::try_from(records.len()).unwrap() > seq, "record {seq} of {tree}");
    }
    let roots = journal.runs(&Filter::default()).unwrap();
    assert!(roots.iter().all(|row| row.status != Status::Running), "its process is dead");
    let report = journal.check().unwrap();
    assert_eq!(report.problems, []);
}

fn crash(path: &Path, tree: &str) {
    let journal = open(path);
    let tree: Uuid = tree.parse().unwrap();
    let epoch = match wait(journal.claim(tree, Claim::IfGone)) {
        Ok(epoch) => epoch,
        Err(error) => return print_line(error),
    };
    let seq = u64::try_from(wait(journal.load(tree)).unwrap().len()).unwrap();
    let mut writer = RecordWriter { tree, epoch, seq, at: 1_800_000_000_000 };
    writer.write(&*journal, asked()).unwrap();
    print_line(format!("epoch {epoch}"));
    rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
}

#[test]
fn crash_loop_is_not_resumed_without_force() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let tree = {
        let journal = open(&path);
        let mut writer = RecordWriter::new();
        writer.begin(&*journal, plain()).unwrap();
        writer.tree
    };
    let try_it = || all_lines(&mut process("crash", &path, &[&tree.to_string()]));
    for epoch in 2..5 {
        assert_eq!(try_it(), [format!("epoch {epoch}")], "the intent of the step is written again each time");
    }
    let looped = JournalError::CrashLoop { tree, times: 3 };
    assert_eq!(try_it(), [looped.to_string()]);
    let journal = open(&path);
    assert_eq!(wait(journal.claim(tree, Claim::IfGone)), Err(looped));
    let epoch = wait(journal.claim(tree, Claim::Force)).unwrap();
    let mut writer = RecordWriter { tree, epoch, seq: 4, at: 1_900_000_000_000 };
    writer.write(&*journal, replied("past it")).unwrap();
    drop(journal);
    assert_eq!(try_it(), ["epoch 6"], "another step, another count");
}

fn fail(path: &Path, rest: &str) {
    let mut options = options();
    options.failpoint = Some(Failpoint { nth: rest.parse().unwrap() });
    let journal = SqliteJournal::open(path, options).unwrap();
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    print_line(format!("{} 0", writer.tree));
    for fact in [asked(), replied("a"), called(writer.tree, 1), returned(writer.tree, 1, "b"), ended()] {
        let seq = writer.seq;
        writer.write(&*journal, fact).unwrap();
        print_line(format!("{} {seq}", writer.tree));
    }
    print_line("survived");
}

#[test]
fn fault1_kill_around_each_write_loses_nothing_acknowledged() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    // Six records, each in its own batch: five points each. The last process survives.
    for nth in 1..=31 {
        let mut lines = all_lines(&mut process("fail", &path, &[&nth.to_string()]));
        let survived = lines.last().is_some_and(|line| line == "survived");
        assert_eq!(survived, nth > 30, "point {nth}");
        lines.retain(|line| line != "survived");
        assert_all_there(&path, &lines);
        // A record is acknowledged after its fifth point.
        assert_eq!(lines.len(), (nth - 1) / 5, "point {nth}");
    }
}

fn spend(path: &Path) {
    let mut options = options();
    options.accounts.insert("ci".into(), Account { per_day_micros: Some(50) });
    let journal = SqliteJournal::open(path, options).unwrap();
    let hold = Reservation { tokens: 10, cost_micros: 2 };
    let mut held = 0;
    while wait(journal.hold_at_account("ci", Uuid::nil(), hold)).unwrap() == AccountHold::Held {
        held += 1;
        if held % 2 == 0 {
            journal.settle_at_account("ci", Uuid::nil(), hold, Usage::default().cost_micros(1));
        }
    }
    print_line(held);
    // Killed without settling: its reservations are charged in full.
    rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
}

#[test]
fn account_is_never_overdrawn_by_racing_processes() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let children: Vec<Child> = (0..6).map(|_| process("spend", &path, &[])).collect();
    let held: u64 = children.into_iter().map(|mut child| all_lines(&mut child)[0].parse::<u64>().unwrap()).sum();
    assert!((25..=34).contains(&held), "{held} reservations of 2, half of them settled at 1, and a limit of 50");
    let journal = open(&path);
    wait(journal.hold_at_account("ci", Uuid::nil(), Reservation::default())).unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    let spent: i64 = db.query_row("SELECT sum(cost_micros) FROM accounts", [], |row| row.get(0)).unwrap();
    assert!((49..=50).contains(&spent), "{spent}");
}

#[test]
fn opening_resumes_nothing_and_dead_owner_means_interrupted() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let mut child = process("stall", &path, &[]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let tree: Uuid = next_line(&mut out).unwrap().parse().unwrap();
    // Killed and not yet reaped: zombies count as dead.
    child.kill().unwrap();
    let journal = open(&path);
    let began = Instant::now();
    while journal.owner(tree).unwrap().is_some() && began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let row = journal.runs(&Filter::default()).unwrap().remove(0);
    assert_eq!((row.run, row.status), (tree, Status::Interrupted));
    assert_eq!(wait(journal.load(tree)).unwrap().len(), 1);
    assert_eq!(wait(journal.claim(tree, Claim::IfGone)), Ok(2));
    assert_eq!(journal.runs(&Filter::default()).unwrap()[0].status, Status::Queued);
    child.wait().unwrap();
}

#[test]
fn two_journals_of_one_process_are_two_owners() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let (one, two) = (open(&path), open(&path));
    let mut writer = RecordWriter::new();
    writer.begin(&*one, plain()).unwrap();
    assert!(matches!(wait(two.claim(writer.tree, Claim::IfGone)), Err(JournalError::Owned { .. })));
    assert!(
        matches!(wait(one.claim(writer.tree, Claim::IfGone)), Err(JournalError::Owned { .. })),
        "the tree is live there"
    );
    drop(one);
    assert_eq!(wait(two.claim(writer.tree, Claim::IfGone)), Ok(2));
    let late = Arc::new(homing_core::fact::Record {
        tree: writer.tree,
        seq: 1,
        at: 0,
        epoch: 1,
        run: writer.tree,
        place: homing_core::place::Place::root(),
        fact: Fact::Told { from: None, message: String::new() },
    });
    assert_eq!(wait(two.append(late)), Err(JournalError::Fenced { tree: writer.tree }));
    assert_eq!(two.owner(writer.tree).unwrap().map(|(pid, _)| pid), Some(std::process::id()));
}

#[test]
fn inv10_takeover_is_noticed_after_writes_to_other_trees() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let (one, two) = (open(&path), open(&path));
    let (mut taken, mut kept) = (RecordWriter::new(), RecordWriter::new());
    taken.begin(&*one, plain()).unwrap();
    kept.begin(&*one, plain()).unwrap();
    assert_eq!(wait(two.claim(taken.tree, Claim::Force)), Ok(2));
    for _ in 0..3 {
        kept.write(&*one, asked()).unwrap();
    }
    assert_eq!(taken.write(&*one, asked()), Err(JournalError::Fenced { tree: taken.tree }));
    assert_eq!(kept.write(&*one, asked()), Ok(()));
    let mut writer = RecordWriter { epoch: 2, seq: 1, ..taken };
    assert_eq!(writer.write(&*two, asked()), Ok(()));
}

fn hold_lock(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    print_line("locked");
    line();
}

#[test]
fn stopped_process_that_holds_the_lock_is_named() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    small_tree(&open(&path), plain());
    let mut child = process("hold_lock", &path, &[]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(next_line(&mut out).unwrap(), "locked");
    signal(&child, Signal::STOP);
    let began = Instant::now();
    let journal = open(&path);
    assert_eq!(journal.runs(&Filter::default()).unwrap().len(), 1, "reading needs no lock");
    let refused = RecordWriter::new().begin(&*journal, plain());
    let Err(JournalError::Locked { holder: Some(holder), stopped }) = refused else { panic!("{refused:?}") };
    assert_eq!(stopped, Some(child.id()));
    assert!(holder.contains(&format!("process {} (`", child.id())) && holder.ends_with("which is stopped"), "{holder}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    child.kill().unwrap();
    child.wait().unwrap();
    RecordWriter::new().begin(&*journal, plain()).unwrap();
}
