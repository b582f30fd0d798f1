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
    is_final: fn(&Envelope) -> bool,
    calls: HashMap<CallKey, usize>,
    runs: HashMap<Uuid, usize>,
    /// Results of runs that are not known yet by their item.
    early: HashMap<Uuid, Value>,
}

impl Printer {
    /// Items that are tried again after a failure are not known before they are done.
    pub(super) fn new(items: Vec<String>, results: Results, open: Vec<usize>, retries: u32) -> Self {
        let is_final: fn(&Envelope) -> bool =
            if retries == 0 { |_| true } else { |envelope| envelope.status == Status::Done };
        let (calls, runs, early) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (lines, written) = channel();
        let writer = Some((lines, std::thread::spawn(move || write(&written))));
        Self { items, results, printed: 0, writer, open, is_final, calls, runs, early }
    }

    /// Learns from the tree's facts which run works on which item.
    pub(super) fn learn(&mut self, record: &Record) {
        match &record.fact {
            Fact::Called(called) => {
                if let Some(at) = position(&called.call.id) {
                    self.calls.insert(called.key, at);
                }
            }
            Fact::Spawned(spawned) => {
                let at = spawned.parent_call.and_then(|key| self.calls.get(&key));
                if let Some(item) = at.and_then(|at| self.open.get(*at)).copied() {
                    self.runs.insert(record.run, item);
                    self.early.remove(&record.run).into_iter().for_each(|line| self.note(item, line));
                }
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

    /// A run of the map has ended.
    pub(super) fn take(&mut self, envelope: &Envelope) {
        if envelope.place.depth() != 1 || !(self.is_final)(envelope) {
            return;
        }
        match self.runs.get(&envelope.run).copied() {
            Some(item) => self.note(item, line(envelope)),
            None => _ = self.early.insert(envelope.run, line(envelope)),
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

/// The item that a call of the map is about: its id says so.
pub(super) fn position(call: &str) -> Option<usize> {
    call.strip_prefix("item/")?.split(['/', '#', ':']).next()?.parse().ok()
}
