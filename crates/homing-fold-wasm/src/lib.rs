//! The fold of run trees for browsers: facts in, rows and timelines out, both as JSON.
//!
//! The state of every run comes from [`homing_core::tree::RunTree`]. This crate adds only what is needed for display: when things
//! happened ([`timeline`]) and the shape of the JSON ([`view`]). It does no IO, and natively it is an ordinary library.

pub mod abi;
pub mod timeline;
pub mod view;

use homing_core::{
    fact::{Fact, Record},
    tree::{FoldError, RunTree},
};
use serde::{Deserialize, Serialize};
use timeline::Timeline;
use uuid::Uuid;
use view::View;

/// The records of one tree, with its newest state and, while the user looks back, an earlier one.
#[derive(Default)]
pub struct Viewer {
    records: Vec<Record>,
    newest: Folded,
    past: Folded,
}

/// The state of a tree after some of its records.
#[derive(Default)]
pub struct Folded {
    /// The tree.
    pub tree: RunTree,
    /// The times at which things happened to its runs.
    pub timeline: Timeline,
}

impl Folded {
    /// Applies the next record.
    ///
    /// # Errors
    /// Fails if the record does not follow the last one, or its run does not exist.
    pub fn apply(&mut self, record: &Record) -> Result<(), FoldError> {
        self.tree.apply(record)?;
        self.timeline.apply(record);
        Ok(())
    }
}

/// Answer to [`Viewer::push`].
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Pushed {
    /// Number of records that are known now, which is also the position of the next one.
    pub next: u64,
    /// Number of records that were new.
    pub added: u64,
    /// True if the page says that more records follow it.
    pub more: bool,
}

/// One record, or a page of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Page { records: Vec<Record>, next: Option<u64>, more: Option<bool> },
    One(Box<Record>),
}

/// A record in words, for the caption of the scrubber.
#[derive(Debug, Serialize)]
pub struct Mark<'a> {
    /// Position.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    /// The run.
    pub run: Uuid,
    /// Its place.
    pub place: String,
    /// Name of its agent.
    pub agent: &'a str,
    /// Kind of the fact.
    pub kind: &'static str,
}

impl Viewer {
    /// Takes in one record, or a page `{"records": […]}`, as JSON. Records that are known already are skipped, so that a stream
    /// may repeat the end of a page.
    ///
    /// # Errors
    /// Fails if the text is not such JSON, or if records are missing before the first new one.
    pub fn push(&mut self, json: &[u8]) -> Result<Pushed, String> {
        let (records, more) = match serde_json::from_slice(json).map_err(|error| error.to_string())? {
            Input::Page { records, next, more } => (records, more.unwrap_or(next.is_some())),
            Input::One(record) => (vec![*record], false),
        };
        let before = self.records.len();
        for record in records {
            if record.seq >= self.records.len() as u64 {
                self.newest.apply(&record).map_err(|error| error.to_string())?;
                self.records.push(record);
            }
        }
        Ok(Pushed { next: self.records.len() as u64, added: (self.records.len() - before) as u64, more })
    }

    /// Returns the state after the first `position` records; all of them if there are fewer.
    pub fn view(&mut self, position: u64) -> View<'_> {
        let total = self.records.len() as u64;
        if position >= total {
            return View::new(&self.newest, total);
        }
        self.go_to(position);
        View::new(&self.past, total)
    }

    /// Moves the earlier state. Only the way forward is incremental, because the fold has no inverse.
    fn go_to(&mut self, position: u64) {
        if self.past.tree.next_seq() > position {
            self.past = Folded::default();
        }
        let from = self.past.tree.next_seq() as usize;
        for record in &self.records[from..position as usize] {
            // The newest state has accepted these records in this order.
            let _ = self.past.apply(record);
        }
    }

    /// Returns the records of a run among the first `position`.
    pub fn facts(&self, run: Uuid, position: u64) -> Vec<&Record> {
        let end = self.records.len().min(usize::try_from(position).unwrap_or(usize::MAX));
        self.records[..end].iter().filter(|record| record.run == run).collect()
    }

    /// Returns the last of the first `position` records in words.
    pub fn mark(&self, position: u64) -> Option<Mark<'_>> {
        let end = self.records.len().min(usize::try_from(position).unwrap_or(usize::MAX));
        let record = self.records[..end].last()?;
        let agent = self.newest.tree.get(record.run).map_or("", |run| &run.spawned.agent.name);
        let (place, kind) = (record.place.to_string(), Fact::kind(&record.fact));
        Some(Mark { seq: record.seq, at: record.at, run: record.run, place, agent, kind })
    }
}
