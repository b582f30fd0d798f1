//! The history of a team, read from its transcript: which jobs were started, and how they ended.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use homing_core::{
    envelope::Status,
    fact::CallRefusal,
    message::{Message, MessageOrigin, ToolResult, TranscriptEntry},
    place::Place,
    tool_names::{DELEGATE, WAIT},
};
use homing_runtime::{ChildReport, ChildReports};
use serde::Deserialize;
use serde_json::{Value, json};

/// The transcript of a team, by the IDs of its jobs.
pub(crate) struct History<'a> {
    /// The task of the team, with the outcome of the work that it continues.
    pub(crate) task: Cow<'a, str>,
    /// The task of the team alone.
    pub(crate) own_task: &'a str,
    /// The turn before this one, if the team continues.
    pub(crate) earlier: Option<EarlierTurn<'a>>,
    calls: HashMap<&'a str, FinishedCall<'a>>,
    /// Members that ran in the background and have ended, by place.
    ended: HashMap<Place, JobResult>,
    /// The endings in the order in which the team learned of them.
    order: Vec<Ending<'a>>,
    /// The number of endings since the team's last step.
    #[cfg_attr(not(feature = "scripts"), allow(dead_code, reason = "only scripts ask"))]
    new_endings: usize,
}

/// A job that has ended.
enum Ending<'a> {
    /// The call returned its result.
    Call(&'a str),
    /// The run that a call had left running has ended.
    Run(Place),
}

/// The end of the conversation that a team continues.
pub(crate) struct EarlierTurn<'a> {
    /// The first task of the conversation.
    pub(crate) first_task: &'a str,
    /// The results of the last turn, as data.
    pub(crate) results: &'a Value,
}

/// A call of the team with its result.
struct FinishedCall<'a> {
    result: &'a ToolResult,
    entry: &'a TranscriptEntry,
}

/// The result of a job that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobResult {
    pub(crate) status: Status,
    pub(crate) output: String,
    pub(crate) data: Option<Value>,
    pub(crate) error: Option<String>,
    /// The place of its run; functions and refused delegations have none.
    pub(crate) place: Option<Place>,
    /// True if the agent's own definition says that its failure does not count.
    pub(crate) may_fail: bool,
    /// Tokens that its run and the runs below it used.
    pub(crate) tokens: u64,
    /// True if it ended because the team, or a run above it, reached a limit.
    by_teams_limit: bool,
}

/// The state of a job.
#[derive(Debug, PartialEq)]
pub(crate) enum JobState {
    /// It has to be started under this ID.
    Open { id: String },
    /// It is running, as the run at this place.
    Running { place: Place },
    /// It has ended.
    Ended(JobResult),
}

/// The report about a run, or the reason why it cannot be read.
type ReadReport = Result<ChildReport, String>;

impl<'a> FinishedCall<'a> {
    /// The runtime's report about the run that a `delegate` call started. A delegation that never became a run has none. It is
    /// decoded once, because a team looks at all of its calls at every turn.
    fn report(&self) -> Option<&'a ReadReport> {
        let data = self.result.data.as_ref().filter(|_| self.result.name == DELEGATE)?;
        let unreadable = |error| format!("the report of the run cannot be read: {error}");
        self.entry.derived.get_or_make::<ReadReport>(|| ChildReport::deserialize(data).map_err(unreadable))
    }

    /// Returns whether the call left a run running.
    fn is_running(&self) -> bool {
        matches!(self.report(), Some(Ok(report)) if report.status == Status::Running)
    }
}

/// Returns whether the run ended because of a limit that was not its own: the team's, or one above it.
fn ended_by_others_limit(report: &ChildReport) -> bool {
    let limit = report.ending.as_ref().and_then(|ending| ending.limit.as_ref());
    limit.is_some_and(|hit| hit.place != report.place)
}

impl JobResult {
    /// Returns whether it is the result of a tool and not of a run.
    pub(crate) fn is_of_tool(&self) -> bool {
        self.place.is_none()
    }

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

    fn of_run(report: ChildReport, output: String) -> Self {
        let by_teams_limit = ended_by_others_limit(&report);
        let tokens = report.ending.as_ref().map_or(0, |ending| ending.tokens);
        let (data, error, may_fail) =
            report.ending.map_or((None, None, false), |ending| (ending.data, ending.error, ending.may_fail));
        Self { status: report.status, output, data, error, place: Some(report.place), may_fail, tokens, by_teams_limit }
    }

    fn unreadable(why: String, output: String) -> Self {
        Self {
            status: Status::Failed,
            output,
            data: None,
            error: Some(why),
            place: None,
            may_fail: false,
            tokens: 0,
            by_teams_limit: false,
        }
    }

    fn of_tool(result: &ToolResult) -> Self {
        Self {
            status: if result.is_error { Status::Failed } else { Status::Done },
            output: result.text.clone(),
            data: result.data.clone(),
            error: result.is_error.then(|| result.text.clone()),
            place: None,
            may_fail: false,
            tokens: 0,
            by_teams_limit: false,
        }
    }
}

impl<'a> History<'a> {
    pub(crate) fn new(messages: &'a [Arc<TranscriptEntry>]) -> Self {
        let task = Cow::Borrowed("");
        let (calls, ended, order) = (HashMap::new(), HashMap::new(), Vec::new());
        let mut history = Self { task, own_task: "", earlier: None, calls, ended, order, new_endings: 0 };
        // Results before the task belong to the run that this one continues, and not to its own jobs.
        let begin = messages.iter().position(|entry| entry.origin == MessageOrigin::Task).unwrap_or(0);
        let mut has_begun = false;
        for entry in &messages[begin..] {
            match &entry.message {
                Message::User { text, .. } if !has_begun => history.own_task = text,
                // With a larger budget, jobs that a limit had ended are tried again.
                Message::User { .. } if entry.origin == MessageOrigin::MoreBudget => {
                    history.forget_jobs_ended_by_limits()
                }
                Message::User { .. } => (),
                Message::Assistant(_) => (has_begun, history.new_endings) = (true, 0),
                Message::Tool(result) => history.add(result, entry),
            }
        }
        history.task = continued(&messages[..begin], history.own_task);
        history.earlier = earlier_turn(&messages[..begin]);
        history
    }

    fn forget_jobs_ended_by_limits(&mut self) {
        let by_limit = self.ended.iter().filter(|(_, job)| job.by_teams_limit);
        let places: Vec<Place> = by_limit.map(|(place, _)| place.clone()).collect();
        self.ended.retain(|_, job| !job.by_teams_limit);
        self.calls.retain(|_, call| match call.report() {
            None => call.result.name != DELEGATE,
            Some(Err(_)) => true,
            Some(Ok(report)) => !ended_by_others_limit(report) && !places.contains(&report.place),
        });
        let (calls, ended) = (&self.calls, &self.ended);
        self.order.retain(|ending| match ending {
            Ending::Call(id) => calls.contains_key(id),
            Ending::Run(place) => ended.contains_key(place),
        });
    }

    fn add(&mut self, result: &'a ToolResult, entry: &'a TranscriptEntry) {
        if result.name != WAIT {
            let call = FinishedCall { result, entry };
            if !call.is_running() {
                self.order.push(Ending::Call(&result.call_id));
                self.new_endings += 1;
            }
            self.calls.insert(&result.call_id, call);
            return;
        }
        // A `wait` that was refused has no reports; the team waits again.
        let read = || result.data.as_ref().and_then(|data| ChildReports::deserialize(data).ok()).unwrap_or_default();
        for report in entry.derived.get_or_make::<ChildReports>(read).iter().flat_map(|reports| &reports.runs) {
            let place = report.place.clone();
            if self.ended.contains_key(&place) {
                continue;
            }
            let output = report.output.clone().unwrap_or_default();
            self.ended.insert(place.clone(), JobResult::of_run(report.clone(), output));
            self.order.push(Ending::Run(place));
            self.new_endings += 1;
        }
    }

    /// The state of the job `id`, which is started again up to `retries` times after a failure.
    pub(crate) fn job(&self, id: &str, retries: u32) -> JobState {
        for attempt in 0..=retries {
            let key = format!("{id}#{attempt}");
            let Some(call) = self.calls.get(key.as_str()) else { return JobState::Open { id: key } };
            let job = match self.attempt(call) {
                Ok(job) => job,
                Err(place) => return JobState::Running { place },
            };
            // A run that the user cancelled is not started again, and neither is a call that may have had its effect.
            let is_final = job.status == Status::Cancelled || call.entry.refusal == Some(CallRefusal::OutcomeUnknown);
            if job.is_done() || attempt == retries || is_final {
                return JobState::Ended(job);
            }
        }
        unreachable!("the last attempt always returns")
    }

    /// The result of a call, or the place of the run that it left running.
    fn attempt(&self, call: &FinishedCall<'_>) -> Result<JobResult, Place> {
        let output = || call.result.text.clone();
        match call.report() {
            None => Ok(JobResult::of_tool(call.result)),
            Some(Err(why)) => Ok(JobResult::unreadable(why.clone(), output())),
            Some(Ok(report)) if report.status == Status::Running => {
                self.ended.get(&report.place).cloned().ok_or_else(|| report.place.clone())
            }
            Some(Ok(report)) => Ok(JobResult::of_run(report.clone(), output())),
        }
    }

    /// Returns whether the team has made no call yet.
    #[cfg(feature = "scripts")]
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The IDs of the calls that were made.
    #[cfg(feature = "scripts")]
    pub(crate) fn calls(&self) -> impl Iterator<Item = &'a str> {
        self.calls.keys().copied()
    }

    /// The calls that have ended, in the order in which the team learned of it.
    #[cfg(feature = "scripts")]
    pub(crate) fn endings(&self) -> Vec<(&'a str, JobResult)> {
        let started: HashMap<Place, &'a str> = self.started().collect();
        let endings = self.order.iter().filter_map(|ending| match ending {
            Ending::Call(id) => Some((*id, self.attempt(self.calls.get(id)?).ok()?)),
            Ending::Run(place) => Some((*started.get(place)?, self.ended.get(place)?.clone())),
        });
        endings.collect()
    }

    /// The number of endings since the team's last step.
    #[cfg(feature = "scripts")]
    pub(crate) fn new_endings(&self) -> usize {
        self.new_endings
    }

    /// The places of the runs that have not ended, in their order.
    #[cfg(feature = "scripts")]
    pub(crate) fn running(&self) -> Vec<Place> {
        let mut places: Vec<Place> =
            self.started().map(|(place, _)| place).filter(|place| !self.ended.contains_key(place)).collect();
        places.sort();
        places
    }

    /// The runs that calls left running, with the calls.
    #[cfg(feature = "scripts")]
    fn started(&self) -> impl Iterator<Item = (Place, &'a str)> {
        self.calls.iter().filter_map(|(id, call)| {
            let report = call.report()?.as_ref().ok().filter(|report| report.status == Status::Running)?;
            Some((report.place.clone(), *id))
        })
    }

    /// The result of the job, if it has ended.
    pub(crate) fn result(&self, id: &str, retries: u32) -> Option<JobResult> {
        match self.job(id, retries) {
            JobState::Ended(job) => Some(job),
            JobState::Open { .. } | JobState::Running { .. } => None,
        }
    }
}

/// The task of a team that continues earlier work: the new task, and the earlier one with its result.
fn continued<'a>(earlier: &[Arc<TranscriptEntry>], task: &'a str) -> Cow<'a, str> {
    let asked = earlier.iter().find_map(|entry| match &entry.message {
        Message::User { text, .. } => Some(text.as_str()),
        Message::Assistant(_) | Message::Tool(_) => None,
    });
    let answered = earlier.iter().rev().find_map(|entry| match &entry.message {
        Message::Assistant(reply) => Some(reply.text()).filter(|text| !text.trim().is_empty()),
        Message::User { .. } | Message::Tool(_) => None,
    });
    match (asked, answered) {
        (Some(asked), Some(answered)) => {
            format!("{task}\n\nThis continues earlier work. The earlier task:\n{asked}\n\nIts result:\n{answered}")
                .into()
        }
        (None, _) | (_, None) => task.into(),
    }
}

fn earlier_turn(earlier: &[Arc<TranscriptEntry>]) -> Option<EarlierTurn<'_>> {
    let first_task = earlier.iter().find_map(|entry| match &entry.message {
        Message::User { text, .. } => Some(text.as_str()),
        Message::Assistant(_) | Message::Tool(_) => None,
    })?;
    let results = earlier.iter().rev().find_map(|entry| match &entry.message {
        Message::Assistant(reply) => reply.data.as_ref(),
        Message::User { .. } | Message::Tool(_) => None,
    })?;
    Some(EarlierTurn { first_task, results })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, text: &str, data: Option<Value>) -> ToolResult {
        let (call_id, is_error) = ("job#0".to_owned(), data.is_none());
        ToolResult { index: 0, call_id, name: name.into(), text: text.into(), images: Vec::new(), data, is_error }
    }

    fn job(result: ToolResult, refusal: Option<CallRefusal>, retries: u32) -> JobState {
        History::new(&[TranscriptEntry::with_refusal(result, refusal)]).job("job", retries)
    }

    fn ended(state: JobState) -> JobResult {
        match state {
            JobState::Ended(job) => job,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn member_report_is_read_from_delegate_data() {
        let hit = json!({"name": "cost", "limit": 5, "spent": 5, "place": "1"});
        let data = json!({"run": "00000000-0000-0000-0000-000000000001", "place": "1.2", "agent": "a",
            "status": "exhausted", "error": "e", "data": null, "limit": hit, "may_fail": true});
        let job = ended(job(result(DELEGATE, "text", Some(data)), None, 0));
        assert_eq!((job.status, job.place.unwrap().to_string(), job.data), (Status::Exhausted, "1.2".into(), None));
        assert!(job.may_fail && job.by_teams_limit);
    }

    #[test]
    fn unreadable_report_is_a_failure() {
        let job = ended(job(result(DELEGATE, "text", Some(json!({"status": 3}))), None, 0));
        assert_eq!(job.status, Status::Failed);
        assert!(job.why().contains("cannot be read"));
    }

    #[test]
    fn recorded_refusal_decides_about_a_retry_not_the_text() {
        let text = "interrupted, outcome unknown";
        let again = job(result("deploy", text, None), None, 1);
        assert_eq!(again, JobState::Open { id: "job#1".to_owned() });
        let last = ended(job(result("deploy", "any text", None), Some(CallRefusal::OutcomeUnknown), 1));
        assert_eq!(last.status, Status::Failed);
    }
}
