//! Prints the results of a map in input order, each as soon as it is final and all earlier ones are printed.

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

use super::is_done;
use crate::terminal;

/// The result line of each item, if there is one.
pub(super) type Results = Vec<Option<Value>>;

/// The result of an item, as far as it is still needed.
enum ItemResult {
    Line(Value),
    /// The line is printed.
    Printed {
        is_done: bool,
    },
}

/// The items, their results, and the number that is printed.
pub(super) struct Printer {
    items: Vec<String>,
    results: Vec<Option<ItemResult>>,
    printed: usize,
    /// The thread that writes to stdout, so that a slow reader does not delay the runs.
    writer: Option<(Sender<String>, JoinHandle<io::Result<()>>)>,
    /// The items of this run tree, by their position in it.
    open: Vec<usize>,
    /// With retries, only a finished item is final.
    retries: u32,
    positions: Positions,
    /// Results of runs whose item is not known yet.
    early: HashMap<Uuid, Value>,
}

impl Printer {
    pub(super) fn new(items: Vec<String>, results: Results, open: Vec<usize>, retries: u32) -> Self {
        let (lines, written) = channel();
        let writer = Some((lines, std::thread::spawn(move || write(&written))));
        let (positions, early) = (Positions::default(), HashMap::new());
        let results = results.into_iter().map(|line| line.map(ItemResult::Line)).collect();
        Self { items, results, printed: 0, writer, open, retries, positions, early }
    }

    /// Takes the results that an interrupted run tree has already, by their position in it, and prints what can be printed.
    pub(super) fn add_known(&mut self, lines: impl IntoIterator<Item = (usize, Value)>) {
        for (at, line) in lines {
            if let Some(item) = self.open.get(at).copied() {
                self.results[item] = Some(ItemResult::Line(line));
            }
        }
        self.print_ready();
    }

    /// Notes which run works on which item.
    pub(super) fn add_record(&mut self, record: &Record) {
        self.positions.add(record);
        if let Some(line) = self.early.remove(&record.run) {
            self.place(record.run, line);
        }
    }

    /// Notes the result of a run.
    pub(super) fn add_result(&mut self, envelope: &Envelope) {
        let is_final = self.retries == 0 || envelope.status == Status::Done;
        if envelope.place.depth() == 1 && is_final {
            self.place(envelope.run, line(envelope));
        }
    }

    fn place(&mut self, run: Uuid, line: Value) {
        match self.positions.of(run).and_then(|at| self.open.get(at)).copied() {
            Some(item) => self.set(item, line),
            None => _ = self.early.insert(run, line),
        }
    }

    fn set(&mut self, item: usize, line: Value) {
        self.results[item] = Some(ItemResult::Line(line));
        self.print_ready();
    }

    /// Prints the results up to the first item that has none. On a terminal the progress bar would overwrite the lines, so they are
    /// printed at the end.
    fn print_ready(&mut self) {
        if stdout().is_terminal() {
            return;
        }
        while self.results.get(self.printed).is_some_and(Option::is_some) {
            self.print_next();
        }
    }

    /// Returns whether the item of every run of a finished map is known. Records can arrive too late.
    pub(super) fn knows_items_of(&self, map: &Envelope) -> bool {
        map.children.iter().all(|child| self.positions.of(child.run).is_some())
    }

    pub(super) fn use_positions(&mut self, positions: Positions) {
        self.positions = positions;
    }

    /// Takes the results of a finished map. The last attempt at an item counts.
    pub(super) fn add_final_results(&mut self, map: &Envelope) {
        for child in &map.children {
            if let Some(item) = self.positions.of(child.run).and_then(|at| self.open.get(at)).copied() {
                let is_printed = item < self.printed;
                let printed = ItemResult::Printed { is_done: child.status == Status::Done };
                self.results[item] = Some(if is_printed { printed } else { ItemResult::Line(line(child)) });
            }
        }
    }

    /// Prints the remaining items.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        while self.printed < self.items.len() {
            self.print_next();
        }
        let Some((lines, thread)) = self.writer.take() else { return Ok(()) };
        drop(lines);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("cannot write the results")))
    }

    /// Returns the number of items.
    pub(super) fn count(&self) -> usize {
        self.items.len()
    }

    /// Returns the number of items that are done.
    pub(super) fn done(&self) -> usize {
        let is_done = |result: &&ItemResult| match result {
            ItemResult::Line(line) => is_done(Some(line)),
            ItemResult::Printed { is_done } => *is_done,
        };
        self.results.iter().flatten().filter(is_done).count()
    }

    fn print_next(&mut self) {
        let at = self.printed;
        self.printed += 1;
        let unknown = || json!({"status": "queued", "output": "", "data": null, "error": null});
        let mut whole = json!({"item": self.items[at]});
        let rest = match self.results[at].take() {
            Some(ItemResult::Line(line)) => line,
            Some(ItemResult::Printed { .. }) | None => unknown(),
        };
        self.results[at] = Some(ItemResult::Printed { is_done: is_done(Some(&rest)) });
        if let (Some(whole), Value::Object(rest)) = (whole.as_object_mut(), rest) {
            whole.extend(rest);
        }
        if let Some((lines, _)) = &self.writer {
            // A closed pipe does not stop the map; `finish` reports it.
            let _ = lines.send(terminal::json_line(&whole));
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

/// Returns the result line of one item.
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

/// The item of each run of a map, collected from the records of its tree.
#[derive(Default)]
pub(super) struct Positions {
    calls: HashMap<CallKey, usize>,
    runs: HashMap<Uuid, usize>,
}

impl Positions {
    pub(super) fn add(&mut self, record: &Record) {
        match &record.fact {
            // The ID of a call contains the position of its item.
            Fact::Called(called) => {
                let position = called.call.id.strip_prefix("item/");
                let at = position.and_then(|text| text.split(['/', '#', ':']).next()?.parse().ok());
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
            | Fact::Questioned { .. }
            | Fact::Answered { .. }
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
