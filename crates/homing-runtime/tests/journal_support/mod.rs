//! Records for journals, and processes that a test can kill.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::{
    future::Future,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use homing_core::{
    authority::{Authority, Grant, Layer, Network, Sandbox},
    definition::AgentDefinition,
    fact::{Asked, Called, Ended, Fact, Outcome, Purpose, Record, Reservation, Spawned},
    limits::Limits,
    message::{Args, Reply, StopReason, ToolCall, ToolResult, Usage},
    place::Place,
    tool::{CallKey, Replay},
};
use homing_runtime::journal::{
    Begun, Journal, JournalError,
    sqlite::{SqliteJournal, SqliteOptions},
};
use uuid::Uuid;

pub fn wait<T>(future: impl Future<Output = T>) -> T {
    futures::executor::block_on(future)
}

pub fn open(path: &Path) -> Arc<SqliteJournal> {
    SqliteJournal::open(path, options()).expect("the journal opens")
}

/// Options without pruning, since the records of the tests are old.
pub fn options() -> SqliteOptions {
    let mut options = SqliteOptions::default();
    options.retention = None;
    options
}

/// Writes the records of one tree, one after another.
pub struct RecordWriter {
    pub tree: Uuid,
    pub epoch: u32,
    pub seq: u64,
    pub at: u64,
}

impl RecordWriter {
    pub fn new() -> Self {
        Self { tree: Uuid::now_v7(), epoch: 1, seq: 0, at: 1_700_000_000_000 }
    }

    pub fn record(&mut self, run: Uuid, place: Place, fact: Fact) -> Arc<Record> {
        let record = Record { tree: self.tree, seq: self.seq, at: self.at, epoch: self.epoch, run, place, fact };
        self.seq += 1;
        self.at += 10;
        Arc::new(record)
    }

    pub fn root(&mut self, fact: Fact) -> Arc<Record> {
        self.record(self.tree, Place::root(), fact)
    }

    /// Begins the tree.
    pub fn begin(&mut self, journal: &dyn Journal, fact: Fact) -> Result<Begun, JournalError> {
        let record = self.root(fact);
        wait(journal.begin(record))
    }

    /// Appends a fact of the root run and waits for the commit.
    pub fn write(&mut self, journal: &dyn Journal, fact: Fact) -> Result<(), JournalError> {
        let record = self.root(fact);
        wait(journal.append(record))
    }
}

pub fn spawned() -> Spawned {
    let grant = Arc::new(
        Grant::new(vec![Arc::new(Layer::everything("test"))])
            .read(vec!["/work".into()])
            .network(Network::Off)
            .sandbox(Sandbox::ReadOnly),
    );
    Spawned {
        parent: None,
        parent_call: None,
        continues: None,
        background: false,
        placed: false,
        agent: Arc::new(AgentDefinition::new("explore", "looks around", "You look around.")),
        system: "You look around.".into(),
        task: "find the door".to_owned(),
        attachments: Vec::new(),
        context: Default::default(),
        inherited: Vec::new(),
        workdir: "/work".into(),
        project: Some("/work".into()),
        authority: Authority { own: grant.clone(), grant },
        limits: Limits::root(),
        default_cost: false,
        models: vec!["test/one".to_owned()],
        schema: None,
        until: None,
        delay_ms: 0,
        key: None,
        account: None,
        tags: Default::default(),
        warnings: Vec::new(),
    }
}

pub fn keyed(key: &str, task: &str) -> Fact {
    Fact::Spawned(Arc::new(Spawned { key: Some(key.to_owned()), task: task.to_owned(), ..spawned() }))
}

pub fn plain() -> Fact {
    Fact::Spawned(Arc::new(spawned()))
}

pub fn asked() -> Fact {
    Fact::Asked(Arc::new(Asked {
        purpose: Purpose::Turn,
        model: "test/one".to_owned(),
        max_output: 100,
        request_hash: u64::MAX,
        input_bound: 50,
        hold: Reservation { tokens: 150, cost_micros: 7 },
        landing: Reservation::default(),
        nudge: None,
    }))
}

pub fn replied(text: &str) -> Fact {
    let usage = Usage::default().input(40).output(5).cost_micros(3);
    Fact::Replied { reply: Arc::new(Reply::text_only(text).usage(usage).stop(StopReason::End)), first_token_ms: None }
}

pub fn called(run: Uuid, turn: u32) -> Fact {
    let call = ToolCall { id: "c".into(), name: "read".into(), args: Args::Json(serde_json::json!({"path": "a"})) };
    let key = CallKey { run, turn, index: 0 };
    Fact::Called(Box::new(Called {
        key,
        call: call.into(),
        replay: Replay::Safe,
        allowed_by: "test".into(),
        origin: None,
    }))
}

pub fn returned(run: Uuid, turn: u32, text: &str) -> Fact {
    let result = ToolResult {
        index: 0,
        call_id: "c".into(),
        name: "read".into(),
        text: text.to_owned(),
        images: Vec::new(),
        data: None,
        is_error: false,
    };
    Fact::Returned { key: CallKey { run, turn, index: 0 }, result: Arc::new(result), refused: None, denied: None }
}

pub fn ended() -> Fact {
    Fact::Ended(Arc::new(Ended { outcome: Outcome::Done, text: "it is green".to_owned(), data: None }))
}

/// A small tree: a root that calls the model once and ends.
pub fn small_tree(journal: &SqliteJournal, fact: Fact) -> RecordWriter {
    let mut writer = RecordWriter::new();
    assert_eq!(writer.begin(journal, fact), Ok(Begun::New));
    for fact in [asked(), replied("it is green"), ended()] {
        assert_eq!(writer.write(journal, fact), Ok(()));
    }
    journal.release(writer.tree);
    writer
}

/// Starts this test binary as another process that runs only `role`.
pub fn process(role: &str, journal: &Path, rest: &[&str]) -> Child {
    Command::new(std::env::current_exe().expect("the test binary has a path"))
        .args(["--exact", "child_process", "--ignored", "--nocapture", "--test-threads=1"])
        .env("JOURNAL_ROLE", role)
        .env("JOURNAL_PATH", journal)
        .env("JOURNAL_REST", rest.join(" "))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the process starts")
}

/// Prints a line for the test that started this process.
pub fn print_line(what: impl std::fmt::Display) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n> {what}").and_then(|()| out.flush()).expect("the test reads it");
}

/// The next line that a process prints with [`print_line`], or `None` at its end.
pub fn next_line(from: &mut impl std::io::BufRead) -> Option<String> {
    let mut line = String::new();
    while from.read_line(&mut line).expect("the output can be read") > 0 {
        if let Some(text) = line.strip_prefix("> ") {
            return Some(text.trim_end().to_owned());
        }
        line.clear();
    }
    None
}

/// All lines that a process prints with [`print_line`] until it ends.
pub fn all_lines(child: &mut Child) -> Vec<String> {
    let mut out = std::io::BufReader::new(child.stdout.take().expect("its output is a pipe"));
    let lines = std::iter::from_fn(|| next_line(&mut out)).collect();
    child.wait().expect("the process ends");
    lines
}

pub fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process has an ID");
    rustix::process::kill_process(pid, signal).expect("the process exists");
}

/// Size of the header of the write-ahead log.
pub const WAL_HEADER: usize = 32;
/// Size of one frame of the log.
pub const FRAME: usize = 24 + 2048;

/// The sizes of the log after each commit.
pub fn commits(wal: &[u8]) -> Vec<usize> {
    let frames = (wal.len() - WAL_HEADER) / FRAME;
    let is_commit = |n: &usize| {
        let at = WAL_HEADER + n * FRAME + 4;
        wal[at..at + 4] != [0; 4]
    };
    (0..frames).filter(is_commit).map(|n| WAL_HEADER + (n + 1) * FRAME).collect()
}
