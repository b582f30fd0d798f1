//! The state of the runs of a tree as a viewer sees it, folded from events.

pub(crate) mod answer_stream;
pub(crate) mod figures;
pub(crate) mod frame;
pub(crate) mod plain;

use std::collections::{BTreeMap, HashMap};

use homing_core::{
    envelope::Status,
    fact::{Ended, Fact, Record, Spawned},
    message::{Args, ToolCall, ToolResult, Usage},
    place::Place,
    sanitize,
};
use homing_runtime::event::{Event, TransientKind};
use uuid::Uuid;

/// The activity of a run whose next call fits once other runs release what they have reserved.
const WAITING_FOR_BUDGET: &str = "waiting for budget";

/// Bytes of streamed text that are kept for the line of a run.
const MAX_STREAMED: usize = 2_000;

/// Characters of streamed text that the line of a run shows: the newest ones.
const MAX_LIVE_LINE: usize = 60;

/// All runs of a tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    rows: BTreeMap<Place, BoardRow>,
    ids: HashMap<Uuid, Place>,
    /// Time of the newest event, in milliseconds since 1970.
    pub(crate) now: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct BoardRow {
    pub(crate) place: Place,
    pub(crate) agent: String,
    pub(crate) status: Status,
    /// The current activity, in one line.
    pub(crate) activity: String,
    /// The end of the text that the model has streamed in this turn.
    pub(crate) streamed: String,
    pub(crate) tokens: u64,
    pub(crate) cost_micros: u64,
    pub(crate) began: Option<u64>,
    pub(crate) ended: Option<u64>,
}

impl Board {
    /// Returns every run, parents before their children.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &BoardRow> {
        self.rows.values()
    }

    pub(crate) fn row(&self, run: Uuid) -> Option<&BoardRow> {
        self.rows.get(self.ids.get(&run)?)
    }

    /// Returns the board with the place of each run before its agent's name.
    pub(crate) fn with_places(&self) -> Self {
        let rows = self.rows.iter().map(|(place, row)| (place.clone(), row.with_place())).collect();
        Self { rows, ids: HashMap::new(), now: self.now }
    }

    /// Updates the rows with an event.
    pub(crate) fn take(&mut self, event: &Event) {
        match event {
            Event::Fact(record) => self.take_fact(record),
            Event::Transient(notice) => {
                self.now = self.now.max(notice.at);
                let Some(row) = self.row_mut(notice.run) else { return };
                match &notice.kind {
                    TransientKind::Queued => row.activity = "queued".to_owned(),
                    TransientKind::WaitingForBudget => row.activity = WAITING_FOR_BUDGET.to_owned(),
                    TransientKind::Retrying { in_ms, reason } => {
                        row.activity =
                            format!("retrying in {}: {}", figures::time(*in_ms), sanitize::inert_line(reason));
                    }
                    TransientKind::Progress(line) => row.set_activity(line),
                    TransientKind::Text(text) => row.stream(text),
                    TransientKind::Thinking(_) => "thinking".clone_into(&mut row.activity),
                    TransientKind::Question(_) => "waiting for an answer".clone_into(&mut row.activity),
                    TransientKind::Warning(_) => (),
                }
            }
            Event::Missed(_) => (),
        }
    }

    fn take_fact(&mut self, record: &Record) {
        self.now = self.now.max(record.at);
        if let Fact::Spawned(spawned) = &record.fact {
            return self.add(record, spawned);
        }
        let (at, is_inherited) = (record.at, record.is_inherited());
        let Some(row) = self.row_mut(record.run) else { return };
        match &record.fact {
            Fact::Spawned(_) | Fact::Told { .. } | Fact::Compacted { .. } => (),
            Fact::Asked(asked) => {
                row.began.get_or_insert(at);
                row.status = Status::Running;
                row.streamed.clear();
                row.activity = format!("waiting for {}", model_name(&asked.model));
            }
            Fact::Replied { reply, .. } => {
                if !is_inherited {
                    row.pay(&reply.usage);
                }
                row.set_activity(&reply.text());
            }
            Fact::AskFailed { .. } if is_inherited => (),
            Fact::AskFailed { charge, .. } => row.pay(charge),
            Fact::Called(called) => {
                // The program of a team calls before it asks.
                row.began.get_or_insert(at);
                row.status = if homing_core::tool_names::is_delegation(&called.call.name) {
                    Status::Waiting
                } else {
                    Status::Running
                };
                row.activity = call_line(&called.call);
            }
            Fact::Questioned { .. } => {
                row.status = Status::Waiting;
                "waiting for an answer".clone_into(&mut row.activity);
            }
            Fact::Returned { result, .. } => {
                row.status = Status::Running;
                if let Some(line) = failed_line(result) {
                    row.activity = line;
                }
            }
            Fact::Answered { .. } => row.status = Status::Running,
            Fact::Halted { .. } => "stopping".clone_into(&mut row.activity),
            Fact::Extended { .. } => (row.status, row.ended) = (Status::Running, None),
            Fact::Ended(ended) => {
                (row.status, row.ended) = (Status::from(&ended.outcome), Some(at));
                row.streamed = String::new();
                row.set_activity(summary(ended));
            }
        }
    }

    fn add(&mut self, record: &Record, spawned: &Spawned) {
        let key = record.place.clone();
        self.ids.insert(record.run, key.clone());
        let row = BoardRow {
            place: record.place.clone(),
            agent: sanitize::inert_line(&spawned.agent.name),
            status: Status::Queued,
            activity: first_line(&spawned.task),
            streamed: String::new(),
            tokens: 0,
            cost_micros: 0,
            began: None,
            ended: None,
        };
        self.rows.insert(key, row);
    }

    fn row_mut(&mut self, run: Uuid) -> Option<&mut BoardRow> {
        self.rows.get_mut(self.ids.get(&run)?)
    }
}

impl BoardRow {
    /// Returns the row with its place before the agent's name, for views in which the user names places.
    pub(crate) fn with_place(&self) -> Self {
        Self { agent: format!("{} {}", self.place, self.agent), ..self.clone() }
    }

    fn set_activity(&mut self, text: &str) {
        let line = first_line(text);
        if !line.is_empty() {
            self.activity = line;
        }
    }

    /// Adds text that the model streams, and shows the end of its last line.
    fn stream(&mut self, text: &str) {
        self.streamed.push_str(text);
        if let Some(surplus) = self.streamed.len().checked_sub(MAX_STREAMED) {
            let from = self.streamed.ceil_char_boundary(surplus);
            self.streamed.drain(..from);
        }
        let line = self.streamed.lines().rev().find(|line| line.contains(char::is_alphanumeric)).unwrap_or_default();
        let from = line.char_indices().rev().nth(MAX_LIVE_LINE).map_or(0, |(at, _)| at);
        let line = sanitize::inert_line(line[from..].trim());
        if !line.is_empty() {
            self.activity = line;
        }
    }

    fn pay(&mut self, usage: &Usage) {
        self.tokens += usage.input + usage.output;
        self.cost_micros += usage.cost_micros;
    }

    pub(crate) fn waits_for_budget(&self) -> bool {
        !self.status.is_over() && self.activity == WAITING_FOR_BUDGET
    }

    /// Returns the time it has taken so far, in milliseconds.
    pub(crate) fn took(&self, now: u64) -> u64 {
        let Some(began) = self.began else { return 0 };
        self.ended.unwrap_or(now).saturating_sub(began)
    }
}

/// Returns the first text of a structured answer, or the answer itself.
fn summary(ended: &Ended) -> &str {
    let texts = ended.data.iter().filter_map(|data| data.as_object()).flat_map(serde_json::Map::values);
    texts.filter_map(serde_json::Value::as_str).find(|text| !text.trim().is_empty()).unwrap_or(&ended.text)
}

/// Describes a call that failed, in one line.
pub(crate) fn failed_line(result: &ToolResult) -> Option<String> {
    result.is_error.then(|| format!("{} failed: {}", sanitize::inert_line(&result.name), first_line(&result.text)))
}

/// Returns the first line that contains a letter or digit.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| line.contains(char::is_alphanumeric)).unwrap_or_default();
    let line = line.trim();
    let heading = line.trim_start_matches('#');
    // A heading of Markdown is shown without its marks; `#1` and `#!/bin/sh` stay as they are.
    let line = if heading.len() < line.len() && heading.starts_with(' ') { heading.trim_start() } else { line };
    sanitize::inert_line(&crate::columns::cut(line, 200))
}

/// Returns the name of a model without its provider.
fn model_name(model: &str) -> String {
    sanitize::inert_line(model.rsplit('/').next().unwrap_or(model))
}

/// Describes a call in one line: its name and its most telling arguments.
pub(crate) fn call_line(call: &ToolCall) -> String {
    let args = match &call.args {
        Args::Json(serde_json::Value::Object(args)) => {
            let text = |key: &str| args.get(key).and_then(serde_json::Value::as_str);
            if let ("delegate", Some(agent), Some(task)) = (call.name.as_str(), text("agent"), text("task")) {
                return format!("delegate to {}: {}", sanitize::inert_line(agent), first_line(task));
            }
            let main = ["command", "task", "path", "pattern", "url", "query", "question", "agent", "name"];
            main.iter().filter_map(|key| text(key)).take(2).collect::<Vec<_>>().join(" ")
        }
        Args::Json(_) => String::new(),
        Args::Malformed(text) => text.clone(),
    };
    let args = first_line(&args);
    if args.is_empty() { call.name.clone() } else { format!("{} {args}", call.name) }
}

#[cfg(test)]
mod tests {
    use homing_core::fact::Outcome;
    use serde_json::json;

    use super::*;

    #[test]
    fn structured_answer_is_shown_by_its_first_text() {
        let ended = |data: Option<_>| Ended {
            outcome: Outcome::Done,
            text: "all of it".to_owned(),
            data: data.map(std::sync::Arc::new),
        };
        assert_eq!(summary(&ended(Some(json!({"n": 1, "empty": " ", "answer": "so it is"})))), "so it is");
        assert_eq!(summary(&ended(Some(json!({"n": 1})))), "all of it");
        assert_eq!(summary(&ended(Some(json!([1, "x"])))), "all of it");
        assert_eq!(summary(&ended(None)), "all of it");
    }

    #[test]
    fn streamed_text_is_shown_by_its_end() {
        let mut board = Board::default();
        let place: Place = "1".parse().unwrap();
        let mut row = BoardRow {
            place: place.clone(),
            agent: "a".to_owned(),
            status: Status::Running,
            activity: String::new(),
            streamed: String::new(),
            tokens: 0,
            cost_micros: 0,
            began: None,
            ended: None,
        };
        for token in ["The ", "door ", "is\n", "in the ", "wall\u{1b}", "\n\n"] {
            row.stream(token);
        }
        assert_eq!(row.activity, "in the wall\u{fffd}");
        row.stream(&"x".repeat(5_000));
        assert!(row.streamed.len() <= MAX_STREAMED && row.activity.len() <= MAX_LIVE_LINE + 1, "{}", row.activity);
        board.rows.insert(place, row);
        assert_eq!(board.rows().count(), 1);
    }

    #[test]
    fn failed_call_says_so() {
        let result = |is_error| ToolResult {
            index: 0,
            call_id: "c".into(),
            name: "bash".into(),
            text: "\nexit code 1".into(),
            images: vec![],
            data: None,
            is_error,
        };
        assert_eq!(failed_line(&result(true)).as_deref(), Some("bash failed: exit code 1"));
        assert_eq!(failed_line(&result(false)), None);
    }

    #[test]
    fn delegation_names_the_agent_and_the_task() {
        let args = Args::Json(json!({"task": "EXP-A find it", "agent": "explore"}));
        let call = ToolCall { id: "1".to_owned(), name: "delegate".to_owned(), args };
        assert_eq!(call_line(&call), "delegate to explore: EXP-A find it");
        assert_eq!(model_name("openai/gpt-6.1-sol"), "gpt-6.1-sol");
    }
}
