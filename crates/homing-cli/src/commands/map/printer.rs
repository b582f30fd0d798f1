//! Prints the lines of a map as soon as their turn has come: in the order of the input, each when it cannot change any more.
//! It does not know how runs are started or why they end.

use std::{
    collections::HashMap,
    io::{self, IsTerminal, Write, stdout},
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
};

use homing_core::{
    envelope::{Envelope, Status},
    fact::{Fact, Record},
    tool::CallKey,
};
use serde_json::{Value, json};
use uuid::Uuid;

/// What is known of each item: its line, once there is one.
pub(super) type Results = Vec<Option<Value>>;

/// The items and how far they have been printed.
pub(super) struct Printer {
    items: Vec<String>,
    results: Results,
    printed: usize,
    /// The way to the thread that writes: a slow reader keeps nobody from working.
    writer: Option<(Sender<String>, JoinHandle<io::Result<()>>)>,
    /// The items that this tree works on, by their position in it.
    open: Vec<usize>,
    /// An item that is tried again after a failure is not known before it is done.
    retries: u32,
    positions: Positions,
    /// Results of runs that are not known yet by their item.
    early: HashMap<Uuid, Value>,
}

impl Printer {
    pub(super) fn new(items: Vec<String>, results: Results, open: Vec<usize>, retries: u32) -> Self {
        let (lines, written) = channel();
        let writer = Some((lines, std::thread::spawn(move || write(&written))));
        let (positions, early) = (Positions::default(), HashMap::new());
        Self { items, results, printed: 0, writer, open, retries, positions, early }
    }

    /// Learns from the tree's facts which run works on which item.
    pub(super) fn learn(&mut self, record: &Record) {
        self.positions.learn(record);
        if let Some(line) = self.early.remove(&record.run) {
            self.place(record.run, line);
        }
    }

    /// A run of the map has ended.
    pub(super) fn take(&mut self, envelope: &Envelope) {
        let is_final = self.retries == 0 || envelope.status == Status::Done;
        if envelope.place.depth() == 1 && is_final {
            self.place(envelope.run, line(envelope));
        }
    }

    fn place(&mut self, run: Uuid, line: Value) {
        match self.positions.of(run).and_then(|at| self.open.get(at)).copied() {
            Some(item) => self.note(item, line),
            None => _ = self.early.insert(run, line),
        }
    }

    fn note(&mut self, item: usize, line: Value) {
        self.results[item] = Some(line);
        // Between the lines of a bar on the same screen nobody could read them.
        if !stdout().is_terminal() {
            while self.results.get(self.printed).is_some_and(Option::is_some) {
                self.print_next();
            }
        }
    }

    /// Prints what is left, with the results as the finished tree has them.
    pub(super) fn finish(&mut self, lines: impl IntoIterator<Item = (usize, Value)>) -> io::Result<()> {
        for (at, line) in lines {
            if let Some(item) = self.open.get(at) {
                self.results[*item] = Some(line);
            }
        }
        while self.printed < self.items.len() {
            self.print_next();
        }
        let Some((lines, thread)) = self.writer.take() else { return Ok(()) };
        drop(lines);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the lines could not be written")))
    }

    pub(super) fn results(&self) -> &Results {
        &self.results
    }

    pub(super) fn items(&self) -> &[String] {
        &self.items
    }

    fn print_next(&mut self) {
        let at = self.printed;
        self.printed += 1;
        let unknown = || json!({"status": "queued", "output": "", "data": null, "error": null});
        let mut whole = json!({"item": self.items[at]});
        let rest = self.results[at].clone().unwrap_or_else(unknown);
        if let (Some(whole), Value::Object(rest)) = (whole.as_object_mut(), rest) {
            whole.extend(rest);
        }
        if let Some((lines, _)) = &self.writer {
            // A reader who has gone away does not stop the map; the end of it says so.
            let _ = lines.send(whole.to_string());
        }
    }
}

fn write(lines: &Receiver<String>) -> io::Result<()> {
    for line in lines {
        let mut out = stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()?;
    }
    Ok(())
}

/// What came of one item.
pub(super) fn line(child: &Envelope) -> Value {
    json!({
        "status": child.status,
        "output": child.output,
        "data": child.data,
        "error": child.error,
        "run": child.run,
        "usage": child.subtree,
    })
}

/// Which item of a map each of its runs is about, as the tree's facts tell it.
#[derive(Default)]
pub(super) struct Positions {
    calls: HashMap<CallKey, usize>,
    runs: HashMap<Uuid, usize>,
}

impl Positions {
    pub(super) fn learn(&mut self, record: &Record) {
        match &record.fact {
            // The id of a call says which item it is about.
            Fact::Called(called) => {
                let at =
                    called.call.id.strip_prefix("item/").and_then(|it| it.split(['/', '#', ':']).next()?.parse().ok());
                self.calls.extend(at.map(|at| (called.key, at)));
            }
            Fact::Spawned(spawned) => {
                let at = spawned.parent_call.and_then(|key| self.calls.get(&key));
                self.runs.extend(at.map(|at| (record.run, *at)));
            }
            Fact::Asked(_)
            | Fact::Replied { .. }
            | Fact::AskFailed { .. }
            | Fact::Returned { .. }
            | Fact::Told { .. }
            | Fact::Halted { .. }
            | Fact::Extended { .. }
            | Fact::Compacted { .. }
            | Fact::Ended(_) => (),
        }
    }

    pub(super) fn of(&self, run: Uuid) -> Option<usize> {
        self.runs.get(&run).copied()
    }
}
