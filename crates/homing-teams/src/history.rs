//! The history of a team, read from its transcript: which jobs were started, and how they ended.

use std::{collections::HashMap, sync::Arc};

use homing_core::{
    envelope::Status,
    fact::LimitHit,
    message::{Message, MessageOrigin, ToolResult, TranscriptEntry},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The tool that starts a member.
pub(crate) const DELEGATE: &str = "delegate";

/// The tool that waits for members in the background.
pub(crate) const WAIT: &str = "wait";

/// The beginning of the runtime's result for a call that was interrupted by a crash.
const OUTCOME_UNKNOWN: &str = "interrupted, outcome unknown";

/// The transcript of a team, by the IDs of its jobs.
pub(crate) struct History<'a> {
    /// The task of the team.
    pub(crate) task: &'a str,
    results: HashMap<&'a str, &'a ToolResult>,
    /// Members that ran in the background and have ended, by place.
    ended: HashMap<String, JobResult>,
}

/// The result of a job that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobResult {
    pub(crate) status: Status,
    pub(crate) output: String,
    pub(crate) data: Option<Value>,
    pub(crate) error: Option<String>,
    /// The place of its run; functions and refused delegations have none.
    pub(crate) place: Option<String>,
    /// True if the agent's own definition says that its failure does not count.
    pub(crate) may_fail: bool,
    /// True if it ended because the team, or a run above it, reached a limit.
    by_teams_limit: bool,
}

/// The state of a job.
#[derive(Debug, PartialEq)]
pub(crate) enum JobState {
    /// It has to be started under this ID.
    Open { id: String },
    /// It is running, as the run at this place.
    Running { place: String },
    /// It has ended.
    Ended(JobResult),
}

/// The runtime's report about a child run, from the `data` of `delegate` and `wait`. All reading of that data is here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct MemberReport {
    status: Option<Status>,
    place: Option<String>,
    output: Option<String>,
    data: Option<Value>,
    error: Option<String>,
    may_fail: bool,
    limit: Option<LimitHit>,
}

/// The `data` of `wait`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WaitReport {
    runs: Vec<MemberReport>,
}

impl MemberReport {
    /// The report in the result of a `delegate` call. A delegation that never became a run has none.
    fn of_delegate(result: &ToolResult) -> Option<Self> {
        let data = result.data.as_ref().filter(|_| result.name == DELEGATE)?;
        let report = Self::deserialize(data);
        Some(report.unwrap_or_else(|error| Self {
            error: Some(format!("the report of the run cannot be read: {error}")),
            ..Self::default()
        }))
    }

    /// The reports in the result of a `wait` call.
    fn of_wait(result: &ToolResult) -> Vec<Self> {
        let report = result.data.as_ref().and_then(|data| WaitReport::deserialize(data).ok());
        report.unwrap_or_default().runs
    }

    /// Returns whether the run ended because of a limit that was not its own: the team's, or one above it.
    fn ended_by_others_limit(&self) -> bool {
        self.limit.as_ref().is_some_and(|hit| Some(hit.place.to_string()) != self.place)
    }

    fn into_result(self, output: String) -> JobResult {
        JobResult {
            by_teams_limit: self.ended_by_others_limit(),
            status: self.status.unwrap_or(Status::Failed),
            output,
            data: self.data,
            error: self.error,
            place: self.place,
            may_fail: self.may_fail,
        }
    }
}

impl JobResult {
    /// Returns whether it delivered. A member that its own limit stopped did not, whatever it had written by then.
    pub(crate) fn is_done(&self) -> bool {
        self.status == Status::Done
    }

    pub(crate) fn why(&self) -> String {
        self.error.clone().unwrap_or_else(|| self.status.name().to_owned())
    }

    /// The values that templates and conditions can use.
    pub(crate) fn in_scope(&self) -> Value {
        json!({"status": self.status.name(), "output": self.output, "data": self.data, "error": self.error})
    }

    fn of_tool(result: &ToolResult) -> Self {
        Self {
            status: if result.is_error { Status::Failed } else { Status::Done },
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
        let mut history = Self { task: "", results: HashMap::new(), ended: HashMap::new() };
        let mut has_begun = false;
        for entry in messages {
            match &entry.message {
                Message::User { text, .. } if !has_begun => history.task = text,
                // With a larger budget, jobs that a limit had ended are tried again.
                Message::User { .. } if entry.origin == MessageOrigin::MoreBudget => {
                    history.forget_jobs_ended_by_limits()
                }
                Message::User { .. } => (),
                Message::Assistant(_) => has_begun = true,
                Message::Tool(result) => history.add(result),
            }
        }
        history
    }

    fn forget_jobs_ended_by_limits(&mut self) {
        let by_limit = self.ended.iter().filter(|(_, job)| job.by_teams_limit);
        let places: Vec<String> = by_limit.map(|(place, _)| place.clone()).collect();
        self.ended.retain(|_, job| !job.by_teams_limit);
        self.results.retain(|_, result| match MemberReport::of_delegate(result) {
            None => result.name != DELEGATE,
            Some(report) => {
                !report.ended_by_others_limit() && !places.iter().any(|place| report.place.as_ref() == Some(place))
            }
        });
    }

    fn add(&mut self, result: &'a ToolResult) {
        if result.name != WAIT {
            self.results.insert(&result.call_id, result);
            return;
        }
        for mut report in MemberReport::of_wait(result) {
            let output = report.output.take().unwrap_or_default();
            self.ended.entry(report.place.clone().unwrap_or_default()).or_insert_with(|| report.into_result(output));
        }
    }

    /// The state of the job `id`, which is started again up to `retries` times after a failure.
    pub(crate) fn job(&self, id: &str, retries: u32) -> JobState {
        for attempt in 0..=retries {
            let key = format!("{id}#{attempt}");
            let Some(result) = self.results.get(key.as_str()) else { return JobState::Open { id: key } };
            let job = match self.attempt(result) {
                Ok(job) => job,
                Err(place) => return JobState::Running { place },
            };
            // A run that the user cancelled is not started again, and neither is a call that may have had its effect.
            let is_final = job.status == Status::Cancelled || result.text.starts_with(OUTCOME_UNKNOWN);
            if job.is_done() || attempt == retries || is_final {
                return JobState::Ended(job);
            }
        }
        unreachable!("the last attempt always returns")
    }

    /// The result of a call, or the place of the run that it left running.
    fn attempt(&self, result: &ToolResult) -> Result<JobResult, String> {
        let Some(report) = MemberReport::of_delegate(result) else { return Ok(JobResult::of_tool(result)) };
        match (report.status, &report.place) {
            (Some(Status::Running), Some(place)) => self.ended.get(place).cloned().ok_or_else(|| place.clone()),
            _ => Ok(report.into_result(result.text.clone())),
        }
    }

    /// The result of the job, if it has ended.
    pub(crate) fn result(&self, id: &str, retries: u32) -> Option<JobResult> {
        match self.job(id, retries) {
            JobState::Ended(job) => Some(job),
            JobState::Open { .. } | JobState::Running { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delegated(data: Value) -> ToolResult {
        ToolResult {
            index: 0,
            call_id: "job#0".into(),
            name: DELEGATE.into(),
            text: "text".into(),
            images: Vec::new(),
            data: Some(data),
            is_error: false,
        }
    }

    #[test]
    fn member_report_is_read_from_delegate_data() {
        let hit = json!({"name": "cost", "limit": 5, "spent": 5, "place": "1"});
        let data = json!({"run": "x", "place": "1.2", "agent": "a", "status": "exhausted", "error": "e", "data": null,
            "limit": hit, "may_fail": true});
        let job = MemberReport::of_delegate(&delegated(data)).unwrap().into_result("text".into());
        assert_eq!((job.status, job.place.as_deref(), job.data), (Status::Exhausted, Some("1.2"), None));
        assert!(job.may_fail && job.by_teams_limit);
    }

    #[test]
    fn unreadable_report_is_a_failure() {
        let job = MemberReport::of_delegate(&delegated(json!({"status": 3}))).unwrap().into_result(String::new());
        assert_eq!(job.status, Status::Failed);
        assert!(job.why().contains("cannot be read"));
    }
}
