//! The times at which things happened to the runs of a tree, as segments for a timeline. The fold keeps no times of its own
//! beyond its clock, which stands still between processes; a timeline shows when things happened for the user.

use std::collections::HashMap;

use homing_core::{
    fact::{CallRefusal, Called, Fact, Record},
    message::ToolCall,
    model::ModelError,
    question::QuestionId,
    tool::{CallKey, Replay},
    tool_names,
};
use serde::{Serialize, Serializer, ser::SerializeTuple};
use uuid::Uuid;

/// The way in which a run spends time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentKind {
    /// Spawned, but not started.
    Queued,
    /// Between two steps: for a free slot, for budget, or for the delay before a retry.
    Waiting,
    /// After the provider said that it is busy.
    RateLimit,
    /// A model call.
    Model,
    /// A tool call.
    Tool,
    /// Waiting for child runs.
    Children,
    /// Waiting for an answer of the user.
    Person,
    /// No process worked on the tree.
    Stopped,
}

/// A stretch of time of a run. Written as `[kind, start, end]`, with an end of null while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The way in which the time was spent.
    pub kind: SegmentKind,
    /// Start, in milliseconds since the first record of the tree.
    pub start: u64,
    /// End, if it is over.
    pub end: Option<u64>,
}

impl Segment {
    fn is_empty_wait(&self) -> bool {
        let is_wait = matches!(self.kind, SegmentKind::Queued | SegmentKind::Waiting | SegmentKind::RateLimit);
        is_wait && self.end == Some(self.start)
    }
}

impl Serialize for Segment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(3)?;
        tuple.serialize_element(&self.kind)?;
        tuple.serialize_element(&self.start)?;
        tuple.serialize_element(&self.end)?;
        tuple.end()
    }
}

/// The times of one run.
#[derive(Clone, Debug, Default)]
pub struct RunTimes {
    /// Position of its parent in the tree's list of runs.
    pub parent: Option<usize>,
    /// Time of its creation, in milliseconds since the first record of the tree.
    pub spawned: u64,
    /// Time of its first step.
    pub began: Option<u64>,
    /// Time of its end.
    pub ended: Option<u64>,
    /// Everything that it did and waited for, in the order of the starts.
    pub segments: Vec<Segment>,
    /// Calls that may have had an effect before a crash, as tool and subject.
    pub unknown_outcomes: Vec<String>,
    /// The jobs of a team's program, in the order in which they began.
    pub jobs: Vec<Job>,
    open: Vec<(OpenKey, usize)>,
    calls: HashMap<CallKey, OpenCall>,
}

/// A call that has not returned.
#[derive(Clone, Debug)]
struct OpenCall {
    subject: String,
    /// It may have an effect, and must not be repeated.
    is_unsafe: bool,
}

/// A call of a team's program, which is the work of one of its nodes.
#[derive(Clone, Debug)]
pub struct Job {
    /// The node.
    pub node: String,
    /// The call.
    pub key: CallKey,
    /// True if it succeeded; `None` if it has not returned.
    pub succeeded: Option<bool>,
}

impl RunTimes {
    /// Returns the calls whose outcome would not be known if the process died now.
    pub fn at_risk(&self) -> impl Iterator<Item = &str> {
        self.calls.values().filter(|call| call.is_unsafe).map(|call| call.subject.as_str())
    }
}

/// Returns the node of a team that a job belongs to. The program of each pattern names its jobs by its nodes: those of a graph
/// `node/STEP/NAME/ITEM` or `cached/NAME/HASH`, of a crew `task/NAME` and checks of it `KIND/NAME/ROUND`, of a chat
/// `say/ROUND/MEMBER`, of a map `item/INDEX` and `reduce`. The number of the attempt follows.
pub fn node_of(job: &str) -> Option<&str> {
    let (job, _) = job.rsplit_once('#')?;
    let (kind, rest) = job.split_once('/').unwrap_or((job, ""));
    let node = match kind {
        "node" => rest.split_once('/')?.1.rsplit_once('/')?.0,
        "say" => rest.split_once('/')?.1,
        "task" => rest,
        "item" => "agent",
        "reduce" => "reduce",
        _ => rest.rsplit_once('/')?.0,
    };
    Some(node).filter(|node| !node.is_empty())
}

/// Identity of an open segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenKey {
    Idle,
    Ask,
    Call(CallKey),
    Question(QuestionId, CallKey),
}

/// The times of all runs of a tree.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    runs: Vec<RunTimes>,
    by_id: HashMap<Uuid, usize>,
    start: Option<u64>,
    last: (u32, u64),
}

impl Timeline {
    /// Takes in a record that the fold has accepted.
    pub fn apply(&mut self, record: &Record) {
        let start = *self.start.get_or_insert(record.at);
        let at = record.at.saturating_sub(start);
        let (epoch, before) = self.last;
        if epoch != 0 && record.epoch > epoch {
            self.runs.iter_mut().for_each(|run| run.interrupt(before, at));
        }
        self.last = (record.epoch, at);
        if let Fact::Spawned(spawned) = &record.fact {
            let parent = spawned.parent.and_then(|parent| self.by_id.get(&parent).copied());
            self.by_id.insert(record.run, self.runs.len());
            let mut run = RunTimes { parent, spawned: at, ..RunTimes::default() };
            run.begin(OpenKey::Idle, SegmentKind::Queued, at);
            self.runs.push(run);
        } else if let Some(index) = self.by_id.get(&record.run) {
            self.runs[*index].apply(&record.fact, at);
        }
    }

    /// Returns the times of the runs, in the order in which they were spawned.
    pub fn runs(&self) -> &[RunTimes] {
        &self.runs
    }

    /// Returns the time of the first record, in milliseconds since 1970.
    pub fn start(&self) -> u64 {
        self.start.unwrap_or(0)
    }

    /// Returns the time of the last record, in milliseconds since the first one.
    pub fn now(&self) -> u64 {
        self.last.1
    }
}

impl RunTimes {
    fn apply(&mut self, fact: &Fact, at: u64) {
        match fact {
            Fact::Spawned(_) | Fact::Told { .. } | Fact::Halted { .. } | Fact::Compacted { .. } => (),
            Fact::Asked(_) => self.step(OpenKey::Ask, SegmentKind::Model, at),
            Fact::Replied { .. } => self.finish(at, SegmentKind::Waiting, |key| key == OpenKey::Ask),
            Fact::AskFailed { failure, .. } => {
                let is_busy = matches!(failure.error, ModelError::Busy { .. });
                let then = if is_busy { SegmentKind::RateLimit } else { SegmentKind::Waiting };
                self.finish(at, then, |key| key == OpenKey::Ask);
            }
            Fact::Called(called) => self.called(called, at),
            Fact::Returned { key: call, refused, result, .. } => {
                if refused == &Some(CallRefusal::OutcomeUnknown) {
                    let subject = self.calls.get(call).map(|call| call.subject.clone()).unwrap_or_default();
                    self.unknown_outcomes.push(subject);
                }
                if let Some(job) = self.jobs.iter_mut().rev().find(|job| job.key == *call) {
                    job.succeeded = Some(!result.is_error);
                }
                self.calls.remove(call);
                let is_of_call = |key| match key {
                    OpenKey::Call(other) | OpenKey::Question(_, other) => other == *call,
                    OpenKey::Idle | OpenKey::Ask => false,
                };
                self.finish(at, SegmentKind::Waiting, is_of_call);
            }
            Fact::Questioned { id, question } => {
                self.step(OpenKey::Question(*id, question.key), SegmentKind::Person, at)
            }
            Fact::Answered { id, .. } => {
                let is_it = |key| matches!(key, OpenKey::Question(other, _) if other == *id);
                self.finish(at, SegmentKind::Waiting, is_it);
            }
            Fact::Extended { .. } => {
                if self.ended.take().is_some() {
                    self.begin(OpenKey::Idle, SegmentKind::Waiting, at);
                }
            }
            Fact::Ended(_) => {
                self.close(at, |_| true);
                self.ended = Some(at);
            }
        }
    }

    fn called(&mut self, called: &Called, at: u64) {
        let tool = tool_names::canonical(&called.call.name).unwrap_or(&called.call.name);
        let kind = if tool_names::is_delegation(tool) { SegmentKind::Children } else { SegmentKind::Tool };
        let is_unsafe = called.replay == Replay::Unsafe && !tool_names::is_delegation(tool);
        self.calls.insert(called.key, OpenCall { subject: subject(&called.call), is_unsafe });
        if let Some(node) = node_of(&called.call.id) {
            self.jobs.push(Job { node: node.to_owned(), key: called.key, succeeded: None });
        }
        self.step(OpenKey::Call(called.key), kind, at);
    }

    /// Begins something that the run does, which ends its idle time.
    fn step(&mut self, key: OpenKey, kind: SegmentKind, at: u64) {
        self.began.get_or_insert(at);
        self.close(at, |open| open == OpenKey::Idle);
        self.begin(key, kind, at);
    }

    fn begin(&mut self, key: OpenKey, kind: SegmentKind, at: u64) {
        self.open.push((key, self.segments.len()));
        self.segments.push(Segment { kind, start: at, end: None });
    }

    /// Ends what matches. A run that does nothing afterwards waits.
    fn finish(&mut self, at: u64, then: SegmentKind, matches: impl Fn(OpenKey) -> bool) {
        self.close(at, matches);
        if self.open.is_empty() && self.ended.is_none() {
            self.begin(OpenKey::Idle, then, at);
        }
    }

    fn close(&mut self, at: u64, matches: impl Fn(OpenKey) -> bool) {
        let segments = &mut self.segments;
        self.open.retain(|(key, index)| {
            let is_over = matches(*key);
            if is_over {
                segments[*index].end = Some(at);
            }
            !is_over
        });
        // Most waits between two steps last no time at all; without this they would be half of all segments.
        while self.open.is_empty() && segments.last().is_some_and(Segment::is_empty_wait) {
            segments.pop();
        }
    }

    /// Notes that no process worked on the run between two times.
    fn interrupt(&mut self, from: u64, to: u64) {
        if self.ended.is_some() {
            return;
        }
        self.close(from, |_| true);
        self.segments.push(Segment { kind: SegmentKind::Stopped, start: from, end: Some(to) });
        self.begin(OpenKey::Idle, SegmentKind::Waiting, to);
    }
}

/// The arguments that say most about a call, in the order of preference.
const TELLING: [&str; 12] =
    ["command", "path", "file_path", "pattern", "query", "url", "task", "question", "message", "name", "text", "agent"];

/// Longest subject of a call, in bytes.
const MAX_SUBJECT: usize = 160;

/// Returns a tool and its most telling argument, such as `bash npm test`.
pub fn subject(call: &ToolCall) -> String {
    use homing_core::message::Args;
    let argument = match &call.args {
        Args::Json(args) => TELLING.iter().find_map(|key| args.get(key)?.as_str()).unwrap_or_default(),
        Args::Malformed(text) => text,
    };
    shorten(&format!("{} {}", call.name, argument.trim()), MAX_SUBJECT)
}

/// Returns the first line of a text, of at most `most` bytes.
pub fn shorten(text: &str, most: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let shown = &line[..line.floor_char_boundary(most)];
    let ellipsis = if shown.len() < text.trim().len() { "…" } else { "" };
    format!("{}{ellipsis}", shown.trim_end())
}

#[cfg(test)]
mod tests {
    use super::node_of;

    #[test]
    fn jobs_belong_to_nodes() {
        for (job, node) in [
            ("node/3/review/0#1", Some("review")),
            ("node/1/a/b/2#0", Some("a/b")),
            ("cached/look up/00ff#0", Some("look up")),
            ("task/write#0", Some("write")),
            ("judge/write/2#0", Some("write")),
            ("say/4/critic#0", Some("critic")),
            ("item/17#2", Some("agent")),
            ("reduce#0", Some("reduce")),
            ("call_abc", None),
            ("toolu#x", None),
        ] {
            assert_eq!(node_of(job), node, "{job}");
        }
    }
}
