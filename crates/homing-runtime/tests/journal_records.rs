//! Records, lists, look-ups, the inbox and accounts of the journal.

mod journal_support;

use std::{
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
};

use homing_core::{
    envelope::Status,
    fact::{Fact, Reservation, Spawned},
    limits::Limit,
    message::Usage,
    model::{AskFailure, Charge, ModelError},
    place::Place,
    short_id::short_id,
    tree::RunTree,
};
use homing_runtime::journal::{
    AccountHold, Begun, Claim, InboxRequest, Journal, JournalError,
    sqlite::{Account, Filter, FindError, Posted, SqliteJournal, SumBy, Which},
};
use journal_support::*;
use rusqlite::Connection;
use tempfile::tempdir;
use uuid::Uuid;

#[test]
fn records_are_read_as_written() {
    let dir = tempdir().unwrap();
    let journal = open(&dir.path().join("deep/er/journal.db"));
    let mut writer = RecordWriter::new();
    let system: Arc<str> = "long prompt ".repeat(500).into();
    let first = writer.root(Fact::Spawned(Arc::new(Spawned { system: system.clone(), ..spawned() })));
    let mut written = vec![first.clone()];
    assert_eq!(wait(journal.begin(first)), Ok(Begun::New));
    for fact in [asked(), replied("ünï\0code"), called(writer.tree, 1), returned(writer.tree, 1, "x"), ended()] {
        let record = writer.root(fact);
        written.push(record.clone());
        assert_eq!(wait(journal.append(record)), Ok(()));
    }
    assert_eq!(wait(journal.load(writer.tree)), Ok(written));
    let other = Uuid::now_v7();
    assert_eq!(wait(journal.load(other)), Err(JournalError::NoSuchTree(other)));
}

#[test]
fn unawaited_records_share_the_next_commit() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let journal = open(&path);
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    let count = || commits(&std::fs::read(path.with_extension("db-wal")).unwrap()).len();
    let before = count();
    for turn in 0..20 {
        for fact in [asked(), replied("so")] {
            drop(journal.append(writer.root(fact)));
        }
        writer.write(&*journal, called(writer.tree, turn)).unwrap();
    }
    // One for each awaited record, and a few more if this thread was delayed for longer than the journal lingers.
    let made = count() - before;
    assert!((20..=30).contains(&made), "{made}");
    // Records that are never awaited are written as well.
    drop(journal.append(writer.root(ended())));
    let written = || wait(journal.load(writer.tree)).unwrap().len();
    let began = std::time::Instant::now();
    while written() < 62 {
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "{} of 62", written());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn first_record_shares_the_commit_of_the_next() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let journal = open(&path);
    let heard: Arc<Mutex<Vec<u64>>> = Arc::default();
    let listener = heard.clone();
    journal.on_durable(Arc::new(move |record| listener.lock().unwrap().push(record.seq)));
    let trees: Vec<RecordWriter> = (0..20)
        .map(|_| {
            let mut writer = RecordWriter::new();
            assert!(journal.begin_ahead(&writer.root(plain())));
            writer.write(&*journal, asked()).unwrap();
            assert_eq!(std::mem::take(&mut *heard.lock().unwrap()), [0, 1]);
            writer
        })
        .collect();
    let made = commits(&std::fs::read(path.with_extension("db-wal")).unwrap()).len();
    assert!((20..=30).contains(&made), "{made}");
    assert!(trees.iter().all(|writer| wait(journal.load(writer.tree)).unwrap().len() == 2));
    // It is written as well if nothing follows.
    let mut writer = RecordWriter::new();
    assert!(journal.begin_ahead(&writer.root(plain())));
    let began = std::time::Instant::now();
    while wait(journal.load(writer.tree)).is_err() {
        assert!(began.elapsed() < std::time::Duration::from_secs(10));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn long_prompt_is_stored_once_for_all_runs() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let journal = open(&path);
    let system: Arc<str> = "long prompt ".repeat(500).into();
    for _ in 0..3 {
        small_tree(&journal, Fact::Spawned(Arc::new(Spawned { system: system.clone(), ..spawned() })));
    }
    let db = Connection::open(&path).unwrap();
    let (count, text): (i64, String) =
        db.query_row("SELECT count(*), text FROM bodies", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!((count, text.as_str()), (1, &*system));
}

#[test]
fn file_and_folder_are_private() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("homing/journal.db");
    let _journal = open(&path);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&dir.path().join("homing/journal.db-wal")), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[test]
fn listener_gets_durable_records_in_order_and_may_panic() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let journal = open(&path);
    let notified = Arc::new(Mutex::new(Vec::new()));
    let reader = open(&path);
    journal.on_durable({
        let notified = notified.clone();
        Arc::new(move |record| {
            let durable = reader.follow(record.tree, record.seq).unwrap();
            assert_eq!(durable[0], *record, "other connections can read it already");
            notified.lock().unwrap().push((record.tree, record.seq));
            assert_ne!(record.seq, 1, "on purpose: a panic of the listener does not end the journal");
        })
    });
    let (mut one, mut two) = (RecordWriter::new(), RecordWriter::new());
    for writer in [&mut one, &mut two] {
        writer.begin(&*journal, plain()).unwrap();
    }
    let mut commits = Vec::new();
    for n in 0..200 {
        let writer = if n % 3 == 0 { &mut one } else { &mut two };
        let record = writer.root(asked());
        commits.push(journal.append(record));
    }
    for commit in commits {
        assert_eq!(wait(commit), Ok(()));
    }
    let notified = notified.lock().unwrap();
    for writer in [&one, &two] {
        let seqs: Vec<u64> = notified.iter().filter(|(tree, _)| *tree == writer.tree).map(|(_, seq)| *seq).collect();
        assert_eq!(seqs, (0..writer.seq).collect::<Vec<_>>());
    }
}

#[test]
fn gap_in_one_tree_does_not_fail_its_batch() {
    let dir = tempdir().unwrap();
    let journal = open(&dir.path().join("journal.db"));
    let (mut good, mut bad) = (RecordWriter::new(), RecordWriter::new());
    good.begin(&*journal, plain()).unwrap();
    bad.begin(&*journal, plain()).unwrap();
    bad.seq += 1;
    let commits: Vec<_> = (0..20)
        .map(|n| {
            let writer = if n % 2 == 0 { &mut good } else { &mut bad };
            (n, journal.append(writer.root(asked())))
        })
        .collect();
    for (n, commit) in commits {
        assert_eq!(wait(commit).is_ok(), n % 2 == 0, "append {n}");
    }
    bad.seq = 1;
    assert!(bad.write(&*journal, asked()).is_err(), "too late: the tree must be claimed again");
    bad.epoch = wait(journal.claim(bad.tree, Claim::IfGone)).unwrap();
    bad.seq = 1;
    assert_eq!(bad.write(&*journal, asked()), Ok(()));
    assert_eq!(wait(journal.load(bad.tree)).unwrap().len(), 2);
}

#[test]
fn key_is_bound_to_one_task() {
    let dir = tempdir().unwrap();
    let journal = open(&dir.path().join("journal.db"));
    let first = small_tree(&journal, keyed("k", "find the door"));
    assert_eq!(RecordWriter::new().begin(&*journal, keyed("k", "find the door")), Ok(Begun::Earlier(first.tree)));
    let taken = JournalError::KeyTaken { key: "k".to_owned() };
    assert_eq!(RecordWriter::new().begin(&*journal, keyed("k", "find the key")), Err(taken));
    assert_eq!(journal.find("k", None).unwrap().run, first.tree);
    assert_eq!(journal.runs(&Filter::default()).unwrap().len(), 1);
}

#[test]
fn inv11_newer_versions_and_unknown_kinds_are_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let writer = small_tree(&open(&path), plain());
    let db = Connection::open(&path).unwrap();
    let tree = writer.tree.to_string();
    let json = format!(r#"[{{"at":5,"run":"{tree}","place":"1","fact":{{"dreamt":{{}}}}}}]"#);
    let mut crc = crc32fast::Hasher::new();
    crc.update(writer.tree.as_bytes());
    [4_i64, 1].iter().for_each(|number| crc.update(&number.to_le_bytes()));
    crc.update(json.as_bytes());
    let insert = "INSERT INTO appends (tree, seq, epoch, records, crc) VALUES (1, 4, 1, ?1, ?2)";
    db.execute(insert, rusqlite::params![json, crc.finalize()]).unwrap();
    db.execute("UPDATE progress SET next_seq = 5", []).unwrap();
    let journal = open(&path);
    let error = wait(journal.load(writer.tree)).unwrap_err();
    assert!(
        matches!(&error, JournalError::Unknown(what) if what.contains("record 4") && what.contains("dreamt")),
        "{error}"
    );
    drop(journal);
    db.pragma_update(None, "user_version", 99).unwrap();
    let error = SqliteJournal::open(&path, options()).unwrap_err();
    assert!(matches!(error, JournalError::Unknown(_)), "{error}");
}

#[test]
fn files_of_other_programs_are_not_changed() {
    let dir = tempdir().unwrap();
    let other = dir.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE mine (it TEXT)").unwrap();
    assert!(matches!(SqliteJournal::open(&other, options()), Err(JournalError::Unknown(_))));
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "dear diary, ".repeat(100)).unwrap();
    assert!(matches!(SqliteJournal::open(&text, options()), Err(JournalError::Damaged(_))));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("dear diary"));
}

#[test]
fn runs_are_listed_found_and_summed() {
    let dir = tempdir().unwrap();
    let journal = open(&dir.path().join("journal.db"));
    let tags = [("team".to_owned(), "red".to_owned())].into();
    let first = small_tree(&journal, Fact::Spawned(Arc::new(Spawned { tags, ..spawned() })));
    std::thread::sleep(std::time::Duration::from_millis(2));
    let mut second = RecordWriter { at: 1_700_000_100_000, ..RecordWriter::new() };
    second.begin(&*journal, plain()).unwrap();
    let child = Uuid::now_v7();
    let helper = Spawned {
        parent: Some(second.tree),
        agent: Arc::new(homing_core::definition::AgentDefinition::new("helper", "", "")),
        ..spawned()
    };
    for fact in [Fact::Spawned(Arc::new(helper)), asked(), replied("yes"), called(child, 1)] {
        let record = second.record(child, Place::root().child(1), fact);
        wait(journal.append(record)).unwrap();
    }

    let roots = journal.runs(&Filter::default()).unwrap();
    let seen: Vec<_> = roots.iter().map(|row| (row.run, row.status, row.usage.turns, row.usage.tool_calls)).collect();
    assert_eq!(seen, [(second.tree, Status::Queued, 1, 1), (first.tree, Status::Done, 1, 0)]);
    assert_eq!(roots[1].usage.cost_micros, 3);
    let all = journal.runs(&Filter { which: Which::All, ..Filter::default() }).unwrap();
    assert_eq!(all.len(), 3);
    let red = Filter { tag: Some(("team".into(), Some("red".into()))), ..Filter::default() };
    assert_eq!(journal.runs(&red).unwrap()[0].run, first.tree);
    let done = Filter { status: Some(Status::Done), agent: Some("explore".into()), ..Filter::default() };
    assert_eq!(journal.runs(&done).unwrap().len(), 1);
    assert!(journal.runs(&Filter { since: Some(1_700_000_200_000), ..Filter::default() }).unwrap().is_empty());

    assert_eq!(journal.find("1.1", None).unwrap().run, child);
    assert_eq!(journal.find("1", None).unwrap().run, second.tree);
    assert_eq!(journal.find(&first.tree.to_string(), None).unwrap().run, first.tree);
    assert_eq!(journal.find(&first.tree.to_string()[..35], None).unwrap().run, first.tree);
    let ambiguous = journal.find(&first.tree.to_string()[..6], None);
    assert!(matches!(ambiguous, Err(FindError::Ambiguous { candidates, .. }) if candidates.len() == 3));
    assert!(matches!(journal.find("nothing", None), Err(FindError::NotFound(_))));

    let sums = journal.sum_by(&SumBy::Agent, None, None).unwrap();
    assert_eq!(
        sums.iter().map(|sum| (sum.name.as_str(), sum.runs)).collect::<Vec<_>>(),
        [("explore", 1), ("helper", 1)]
    );
    assert_eq!(journal.sum_by(&SumBy::Model, None, None).unwrap()[0].usage.input, 80);
    assert_eq!(journal.sum_by(&SumBy::Day, None, None).unwrap()[0].name, "2023-11-14");
    let teams = journal.sum_by(&SumBy::Tag("team".into()), None, None).unwrap();
    assert_eq!(teams.iter().map(|sum| sum.name.as_str()).collect::<Vec<_>>(), ["", "red"]);

    assert_eq!(journal.tree(second.tree).unwrap().runs().len(), 2);
    assert_eq!(journal.follow(second.tree, 3).unwrap().len(), 2);
    assert_eq!(journal.follow(second.tree, 5).unwrap(), []);
    assert_eq!(journal.envelope(first.tree).unwrap().output, "it is green");
    assert_eq!(journal.envelope(second.tree).unwrap().status, Status::Queued);
    journal.release(second.tree);
    wait(journal.set_cache_key(first.tree, "cache")).unwrap();
    assert_eq!(journal.envelope(second.tree).unwrap().children[0].status, Status::Interrupted);
    assert_eq!(wait(journal.cached("cache")).unwrap().unwrap().run, first.tree);
    assert_eq!(wait(journal.cached("other")).unwrap(), None);
}

#[test]
fn beginning_of_an_id_finds_a_run_from_four_characters_on() {
    let dir = tempdir().unwrap();
    let journal = open(&dir.path().join("journal.db"));
    let first = small_tree(&journal, plain());
    assert_eq!(journal.find(&short_id(first.tree)[..4], None).map(|found| found.run), Ok(first.tree));
    let beginnings = [short_id(first.tree)[..3].to_owned(), first.tree.to_string()[..3].to_owned(), "f".to_owned()];
    for short in beginnings.into_iter().filter(|text| text.contains(|c: char| c.is_ascii_alphabetic())) {
        assert_eq!(journal.find(&short, None), Err(FindError::TooShort(short)));
    }
    assert!(matches!(journal.find("7", None), Err(FindError::NotFound(_))), "a place that does not exist");
    let project = std::path::Path::new("/p");
    let digits = "12345678".to_owned();
    assert_eq!(journal.find(&digits, Some(project)), Err(FindError::NotFound(digits)), "a short ID, not a place");
}

#[test]
fn branch_of_an_ended_run_has_the_same_result_as_the_whole_tree() {
    let dir = tempdir().unwrap();
    let journal = open(&dir.path().join("journal.db"));
    let mut writer = RecordWriter::new();
    writer.begin(&*journal, plain()).unwrap();
    let mut runs = vec![(writer.tree, Place::root())];
    // The third run is a child of the second, whose sibling is the fourth.
    for (parent, step) in [(0, 1), (1, 1), (0, 2)] {
        let (parent, above): (Uuid, Place) = runs[parent].clone();
        let (run, place) = (Uuid::now_v7(), above.child(step));
        let fact = Fact::Spawned(Arc::new(Spawned { parent: Some(parent), ..spawned() }));
        wait(journal.append(writer.record(run, place.clone(), fact))).unwrap();
        runs.push((run, place));
    }
    for (run, place) in runs.iter().rev() {
        for fact in [asked(), replied("so"), ended()] {
            wait(journal.append(writer.record(*run, place.clone(), fact))).unwrap();
        }
    }
    let whole = journal.tree(writer.tree).unwrap();
    for (run, _) in &runs {
        let found = journal.find(&run.to_string(), None).unwrap();
        let branch = found.branch(&journal).unwrap();
        let result = |tree: &RunTree| journal.envelope_in(tree, tree.get(*run).unwrap()).unwrap();
        assert_eq!(result(&branch), result(&whole));
        assert_eq!(branch.next_seq(), whole.next_seq());
    }
    let last = journal.find(&runs[3].0.to_string(), None).unwrap().branch(&journal).unwrap();
    assert_eq!(last.runs().len(), 2, "the run and the root");
}

#[test]
fn sums_show_estimates_apart_from_measured_usage() {
    let dir = tempdir().unwrap();
    let journal = open(&dir.path().join("journal.db"));
    let mut writer = RecordWriter::new();
    assert_eq!(writer.begin(&*journal, plain()), Ok(Begun::New));
    for fact in [asked(), replied("one")] {
        writer.write(&*journal, fact).unwrap();
    }
    let measured = journal.sum_by(&SumBy::Agent, None, None).unwrap()[0].usage;
    assert_eq!((measured.estimated, measured.at_most_micros), (false, 0));
    let error = ModelError::Broken { reason: "the process died".to_owned() };
    let charge = Usage::default().input(50).output(100).cost_micros(7).estimated(true);
    let failure = AskFailure::new(error, Charge::Hold);
    for fact in [asked(), Fact::AskFailed { failure: Box::new(failure), charge }] {
        writer.write(&*journal, fact).unwrap();
    }
    let sum = journal.sum_by(&SumBy::Agent, None, None).unwrap()[0].usage;
    assert_eq!((sum.cost_micros, sum.at_most_micros), (measured.cost_micros + 7, 7));
    let listed = journal.runs(&Filter::default()).unwrap()[0].usage;
    assert_eq!((listed.cost_micros, listed.at_most_micros, listed.estimated), (sum.cost_micros, 7, true));
    assert_eq!(journal.envelope(writer.tree).unwrap().usage.at_most_micros, 7);
}

#[test]
fn unknown_status_is_an_error_that_names_run_and_word() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let journal = open(&path);
    let writer = small_tree(&journal, plain());
    Connection::open(&path).unwrap().execute("UPDATE runs SET status = 'dreaming'", []).unwrap();
    let error = journal.runs(&Filter::default()).unwrap_err();
    let JournalError::Unknown(what) = &error else { panic!("{error:?}") };
    assert!(what.contains(&writer.tree.to_string()) && what.contains("`dreaming`"), "{what}");
}

#[test]
fn requests_reach_only_the_owner_and_only_once() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let (owner, other) = (open(&path), open(&path));
    let mut writer = RecordWriter::new();
    writer.begin(&*owner, plain()).unwrap();
    let tell = InboxRequest::Tell { tree: writer.tree, run: writer.tree, message: "hurry".into() };
    let cancel = InboxRequest::Cancel { tree: writer.tree, run: writer.tree, by: "ctrl-c".into() };
    let pid = std::process::id();
    for request in [&tell, &cancel] {
        let posted = wait(other.post(request.clone())).unwrap();
        assert!(matches!(posted, Posted::ToOwner { pid: found, .. } if found == pid));
    }
    assert_eq!(wait(other.inbox()), []);
    assert_eq!(wait(owner.inbox()), [tell.clone(), cancel]);
    assert_eq!(wait(owner.inbox()), []);
    owner.release(writer.tree);
    drop(owner);
    assert_eq!(wait(other.post(tell)), Ok(Posted::NoOwner));
    let nowhere = Uuid::now_v7();
    let lost = InboxRequest::Tell { tree: nowhere, run: nowhere, message: String::new() };
    assert_eq!(wait(other.post(lost)), Err(JournalError::NoSuchTree(nowhere)));
}

#[test]
fn rate_limit_pause_is_shared_by_all_processes() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let (one, two) = (open(&path), open(&path));
    assert_eq!(two.rate_limited_until("p"), None);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let until = u64::try_from(now.as_millis()).unwrap() + 60_000;
    one.pause_rate_limit("p", until);
    one.pause_rate_limit("p", until - 30_000);
    assert_eq!(one.rate_limited_until("p"), Some(until), "at once, and never shortened");
    let began = std::time::Instant::now();
    while two.rate_limited_until("p").is_none() && began.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(two.rate_limited_until("p"), Some(until));
    assert_eq!(two.rate_limited_until("q"), None);
    one.pause_rate_limit("q", 5);
    assert_eq!(one.rate_limited_until("q"), None, "a pause that is over does not count");
}

#[test]
fn account_is_shared_by_all_processes() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("journal.db");
    let open = || {
        let mut options = options();
        options.accounts.insert("ci".into(), Account { per_day_micros: Some(100) });
        SqliteJournal::open(&path, options).unwrap()
    };
    let full = |hold: Result<AccountHold, JournalError>| match hold.unwrap() {
        AccountHold::Full(hit) => hit,
        other => panic!("{other:?}"),
    };
    let (one, two) = (open(), open());
    let hold = |cost_micros| Reservation { tokens: 1, cost_micros };
    assert_eq!(wait(one.hold_at_account("ci", Uuid::nil(), hold(60))), Ok(AccountHold::Held));
    assert_eq!(
        wait(two.hold_at_account("ci", Uuid::nil(), hold(60))),
        Ok(AccountHold::Later),
        "it fits once the first is settled"
    );
    let hit = full(wait(two.hold_at_account("ci", Uuid::nil(), hold(101))));
    assert_eq!((hit.name, hit.limit, hit.spent), (Limit::Cost, 100, 0));
    one.settle_at_account("ci", Uuid::nil(), hold(60), Usage::default().cost_micros(10));
    assert_eq!(wait(one.hold_at_account("ci", Uuid::nil(), hold(0))), Ok(AccountHold::Held));
    assert_eq!(wait(two.hold_at_account("ci", Uuid::nil(), hold(60))), Ok(AccountHold::Held));
    drop(two);
    let hit = full(wait(one.hold_at_account("ci", Uuid::nil(), hold(31))));
    assert_eq!(hit.spent, 70, "reservations of a process that is gone are charged in full");
    assert_eq!(wait(one.hold_at_account("unknown", Uuid::nil(), hold(1_000))), Ok(AccountHold::Held));
}
