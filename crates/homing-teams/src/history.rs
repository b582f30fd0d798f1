//! What has happened to a team so far, read from its transcript: who was sent out, and what came back.

use std::{collections::HashMap, sync::Arc};

use homing_core::message::{Message, MessageOrigin, ToolResult, TranscriptEntry};
use serde_json::{Value, json};

/// How the runtime's answer begins when it cannot know whether a function had its effect before the process died.
const OUTCOME_UNKNOWN: &str = "interrupted, outcome unknown";

/// The transcript of a team, by the names of its jobs.
pub(crate) struct History<'a> {
    /// What the team is to do.
    pub(crate) task: &'a str,
    results: HashMap<&'a str, &'a ToolResult>,
    over: HashMap<String, Done>,
}

/// How a job came out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) status: String,
    pub(crate) output: String,
    pub(crate) data: Option<Value>,
    pub(crate) error: Option<String>,
    /// The place of its run; a function and a delegation that was refused have none.
    pub(crate) place: Option<String>,
    /// The agent's own definition says that its failure does not count.
    pub(crate) may_fail: bool,
    /// It ended because the team, or something above it, had no more to spend.
    by_teams_limit: bool,
}

/// How a job stands.
#[derive(Debug, PartialEq)]
pub(crate) enum JobState {
    /// It is to be sent out under this id.
    Open { id: String },
    /// It is on its way, as the run at this place.
    Running { place: String },
    /// It is behind us.
    Over(Done),
}

impl Done {
    /// Whether it delivered. A member that a limit of its own stopped did not, whatever it had written by then.
    pub(crate) fn is_done(&self) -> bool {
        self.status == "done"
    }

    pub(crate) fn why(&self) -> String {
        self.error.clone().unwrap_or_else(|| self.status.clone())
    }

    /// What templates and conditions get to see of it.
    pub(crate) fn in_scope(&self) -> Value {
        json!({"status": self.status, "output": self.output, "data": self.data, "error": self.error})
    }

    fn from_facts(facts: &Value, output: &str) -> Self {
        let text = |key: &str| facts.get(key).and_then(Value::as_str).map(str::to_owned);
        Self {
            status: text("status").unwrap_or_else(|| "failed".to_owned()),
            output: output.to_owned(),
            data: facts.get("data").filter(|data| !data.is_null()).cloned(),
            error: text("error"),
            place: text("place"),
            may_fail: facts.get("may_fail").and_then(Value::as_bool).unwrap_or(false),
            by_teams_limit: ended_by_others_limit(facts),
        }
    }

    /// Something that has not been done.
    pub(crate) fn open() -> Self {
        Self {
            status: "open".to_owned(),
            output: String::new(),
            data: None,
            error: None,
            place: None,
            may_fail: false,
            by_teams_limit: false,
        }
    }

    fn of_tool(result: &ToolResult) -> Self {
        Self {
            status: if result.is_error { "failed" } else { "done" }.to_owned(),
            output: result.text.clone(),
            data: result.data.clone(),
            error: result.is_error.then(|| result.text.clone()),
            place: None,
            may_fail: false,
            by_teams_limit: false,
        }
    }
}

impl<'a> History<'a> {
    pub(crate) fn new(messages: &'a [Arc<TranscriptEntry>]) -> Self {
        let mut past = Self { task: "", results: HashMap::new(), over: HashMap::new() };
        let mut begun = false;
        for entry in messages {
            match &entry.message {
                Message::User { text, .. } if !begun => past.task = text,
                // What a limit had refused may be tried again now.
                Message::User { .. } if entry.origin == MessageOrigin::MoreBudget => past.forget_what_limits_ended(),
                Message::User { .. } => (),
                Message::Assistant(_) => begun = true,
                Message::Tool(result) => past.take(result),
            }
        }
        past
    }

    fn forget_what_limits_ended(&mut self) {
        let spent: Vec<String> =
            self.over.iter().filter(|(_, it)| it.by_teams_limit).map(|(at, _)| at.clone()).collect();
        self.over.retain(|_, done| !done.by_teams_limit);
        self.results.retain(|_, result| match result.data.as_ref().filter(|_| result.name == "delegate") {
            // A delegation that never became a run carries no facts.
            None => result.name != "delegate",
            Some(facts) => !ended_by_others_limit(facts) && !spent.iter().any(|place| place == text(facts, "place")),
        });
    }

    fn take(&mut self, result: &'a ToolResult) {
        if result.name != "wait" {
            self.results.insert(&result.call_id, result);
            return;
        }
        let runs = result.data.as_ref().and_then(|data| data.get("runs")).and_then(Value::as_array);
        for facts in runs.into_iter().flatten() {
            let done = || Done::from_facts(facts, text(facts, "output"));
            self.over.entry(text(facts, "place").to_owned()).or_insert_with(done);
        }
    }

    /// How the job `id` stands, which may be tried again so many times after a failure.
    pub(crate) fn stand(&self, id: &str, retries: u32) -> JobState {
        for attempt in 0..=retries {
            let key = format!("{id}#{attempt}");
            let Some(result) = self.results.get(key.as_str()) else { return JobState::Open { id: key } };
            let done = match self.come_back(result) {
                Ok(done) => done,
                Err(place) => return JobState::Running { place },
            };
            // Somebody who stops a run does not want to see it again; and what may have happened is never done twice.
            let is_final = done.status == "cancelled" || result.text.starts_with(OUTCOME_UNKNOWN);
            if done.is_done() || attempt == retries || is_final {
                return JobState::Over(done);
            }
        }
        unreachable!("the last attempt always decides")
    }

    /// What came of a call, or the place of the run that it left under way.
    fn come_back(&self, result: &ToolResult) -> Result<Done, String> {
        let facts = result.data.as_ref().filter(|_| result.name == "delegate");
        let Some(facts) = facts else { return Ok(Done::of_tool(result)) };
        match (facts.get("status").and_then(Value::as_str), facts.get("place").and_then(Value::as_str)) {
            (Some("running"), Some(place)) => self.over.get(place).cloned().ok_or_else(|| place.to_owned()),
            _ => Ok(Done::from_facts(facts, &result.text)),
        }
    }

    /// The job's result, where it is over.
    pub(crate) fn done(&self, id: &str, retries: u32) -> Option<Done> {
        match self.stand(id, retries) {
            JobState::Over(done) => Some(done),
            JobState::Open { .. } | JobState::Running { .. } => None,
        }
    }
}

fn text<'a>(facts: &'a Value, key: &str) -> &'a str {
    facts.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a run ended because of a limit that was not its own: the team's, or one above it.
fn ended_by_others_limit(facts: &Value) -> bool {
    let limit = facts.get("limit").filter(|limit| !limit.is_null());
    limit.is_some_and(|limit| limit.get("place") != facts.get("place"))
}
