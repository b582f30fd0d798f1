//! The history of a team, read from its transcript: which jobs were started, and how they ended.
//!
//! A team reads its transcript at every turn. What it has read is kept beside its task until the next turn, so that only the new
//! messages are read: a chain of tasks would otherwise read all earlier results once for each task.

use std::{
    any::Any,
    borrow::Cow,
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use homing_core::{
    envelope::Status,
    fact::CallRefusal,
    json_text::JsonText,
    message::{Message, MessageOrigin, ToolResult, TranscriptEntry},
    place::Place,
    tool_names::{DELEGATE, WAIT},
};
use homing_runtime::{ChildReport, ChildReports};
use serde_json::{Value, json};

/// The transcript of a team, by the IDs of its jobs.
pub(crate) struct History<'a> {
    /// The task of the team, with the outcome of the work that it continues.
    pub(crate) task: Cow<'a, str>,
    /// The task of the team alone.
    pub(crate) own_task: &'a str,
    /// The turn before this one, if the team continues.
    pub(crate) earlier: Option<EarlierTurn<'a>>,
    jobs: Jobs,
    /// Keeps the jobs until the next turn.
    store: Option<&'a Mutex<Jobs>>,
}

/// The jobs in the messages that were read.
#[derive(Default)]
struct Jobs {
    /// The number of messages that were read, counted from the task, and the last of them.
    read: usize,
    last: Weak<TranscriptEntry>,
    calls: HashMap<String, FinishedCall>,
    /// Members that ran in the background and have ended, by place.
    ended: HashMap<Place, JobResult>,
    /// The endings in the order in which the team learned of them.
    order: Vec<Ending>,
    /// The number of endings since the team's last step.
    #[cfg_attr(not(feature = "scripts"), allow(dead_code, reason = "only scripts ask"))]
    new_endings: usize,
    /// Value that the script derived from these jobs. It is dropped when a job is forgotten.
    derived: RefCell<Option<Box<dyn Any + Send>>>,
}

/// A job that has ended.
enum Ending {
    /// The call returned its result.
    Call(String),
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

/// A call of the team that has returned.
struct FinishedCall {
    /// Its result, or the place of the run that it left running.
    outcome: Result<JobResult, Place>,
    /// True for a delegation that never became a run.
    is_refused_delegation: bool,
    /// True if the call may have had its effect, although its result is not known.
    is_outcome_unknown: bool,
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

impl FinishedCall {
    fn new(result: &ToolResult, refusal: Option<&CallRefusal>) -> Self {
        // The runtime's report about the run that the call started.
        let report = result.data.as_ref().filter(|_| result.name == DELEGATE).map(JsonText::parse::<ChildReport>);
        let is_refused_delegation = report.is_none() && result.name == DELEGATE;
        let text = || result.text.clone();
        let outcome = match report {
            None => Ok(JobResult::of_tool(result)),
            Some(Err(error)) => {
                Ok(JobResult::unreadable(format!("the report of the run cannot be read: {error}"), text()))
            }
            Some(Ok(report)) if report.status == Status::Running => Err(report.place),
            Some(Ok(report)) => Ok(JobResult::of_run(report, text())),
        };
        Self { outcome, is_refused_delegation, is_outcome_unknown: refusal == Some(&CallRefusal::OutcomeUnknown) }
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
            data: result.data.as_ref().map(JsonText::value),
            error: result.is_error.then(|| result.text.clone()),
            place: None,
            may_fail: false,
            tokens: 0,
            by_teams_limit: false,
        }
    }
}

impl Jobs {
    /// Reads the messages from the task on, without those that were read before.
    fn read(&mut self, messages: &[Arc<TranscriptEntry>]) {
        let is_same = |entry: &Arc<TranscriptEntry>| Arc::downgrade(entry).ptr_eq(&self.last);
        if self.read > 0 && !messages.get(self.read - 1).is_some_and(is_same) {
            *self = Self::default();
        }
        for entry in &messages[self.read..] {
            match &entry.message {
                // With a larger budget, jobs that a limit had ended are tried again.
                Message::User { .. } if entry.origin == MessageOrigin::MoreBudget => self.forget_ended_by_limits(),
                Message::User { .. } => (),
                Message::Assistant(_) => self.new_endings = 0,
                Message::Tool(result) => self.add(result, entry.refusal.as_ref()),
            }
        }
        self.read = messages.len();
        self.last = messages.last().map(Arc::downgrade).unwrap_or_default();
    }

    fn forget_ended_by_limits(&mut self) {
        let by_limit = self.ended.iter().filter(|(_, job)| job.by_teams_limit);
        let places: Vec<Place> = by_limit.map(|(place, _)| place.clone()).collect();
        self.ended.retain(|_, job| !job.by_teams_limit);
        self.calls.retain(|_, call| match &call.outcome {
            Ok(job) => {
                let is_forgotten = job.place.as_ref().is_some_and(|place| places.contains(place));
                !call.is_refused_delegation && !job.by_teams_limit && !is_forgotten
            }
            Err(place) => !places.contains(place),
        });
        let (calls, ended) = (&self.calls, &self.ended);
        self.order.retain(|ending| match ending {
            Ending::Call(id) => calls.contains_key(id),
            Ending::Run(place) => ended.contains_key(place),
        });
        self.derived.take();
    }

    fn add(&mut self, result: &ToolResult, refusal: Option<&CallRefusal>) {
        if result.name != WAIT {
            let call = FinishedCall::new(result, refusal);
            if call.outcome.is_ok() {
                self.order.push(Ending::Call(result.call_id.clone()));
                self.new_endings += 1;
            }
            self.calls.insert(result.call_id.clone(), call);
            return;
        }
        // A `wait` that was refused has no reports; the team waits again.
        let reports = result.data.as_ref().and_then(|data| data.parse::<ChildReports>().ok()).unwrap_or_default();
        for mut report in reports.runs {
            let place = report.place.clone();
            if self.ended.contains_key(&place) {
                continue;
            }
            let output = report.output.take().unwrap_or_default();
            self.ended.insert(place.clone(), JobResult::of_run(report, output));
            self.order.push(Ending::Run(place));
            self.new_endings += 1;
        }
    }
}

impl<'a> History<'a> {
    pub(crate) fn new(messages: &'a [Arc<TranscriptEntry>]) -> Self {
        // Results before the task belong to the run that this one continues, and not to its own jobs.
        let begin = messages.iter().position(|entry| entry.origin == MessageOrigin::Task);
        let store = begin.and_then(|begin| messages[begin].derived.get_or_make::<Mutex<Jobs>>(Mutex::default));
        let (earlier, own) = messages.split_at(begin.unwrap_or(0));
        // Taken out, not locked: a thread that reads the same transcript meanwhile reads it from its beginning.
        let mut jobs = store.map_or_else(Jobs::default, |store| std::mem::take(&mut *lock(store)));
        jobs.read(own);
        let own_task = own_task(own);
        Self { task: continued(earlier, own_task), own_task, earlier: earlier_turn(earlier), jobs, store }
    }

    /// The state of the job `id`, which is started again up to `retries` times after a failure.
    pub(crate) fn job(&self, id: &str, retries: u32) -> JobState {
        for attempt in 0..=retries {
            let key = format!("{id}#{attempt}");
            let Some(call) = self.jobs.calls.get(key.as_str()) else { return JobState::Open { id: key } };
            let job = match self.attempt(call) {
                Ok(job) => job,
                Err(place) => return JobState::Running { place: place.clone() },
            };
            // A run that the user cancelled is not started again, and neither is a call that may have had its effect.
            let is_final = job.status == Status::Cancelled || call.is_outcome_unknown;
            if job.is_done() || attempt == retries || is_final {
                return JobState::Ended(job.clone());
            }
        }
        unreachable!("the last attempt always returns")
    }

    /// The result of a call, or the place of the run that it left running.
    fn attempt<'b>(&'b self, call: &'b FinishedCall) -> Result<&'b JobResult, &'b Place> {
        match &call.outcome {
            Ok(job) => Ok(job),
            Err(place) => self.jobs.ended.get(place).ok_or(place),
        }
    }

    /// Returns whether the team has made no call yet.
    #[cfg(feature = "scripts")]
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.calls.is_empty()
    }

    /// The IDs of the calls that were made.
    #[cfg(feature = "scripts")]
    pub(crate) fn calls(&self) -> impl Iterator<Item = &str> {
        self.jobs.calls.keys().map(String::as_str)
    }

    /// The calls that have ended, in the order in which the team learned of it.
    #[cfg(feature = "scripts")]
    pub(crate) fn endings(&self) -> Vec<(&str, JobResult)> {
        let started: HashMap<&Place, &str> = self.started().collect();
        let endings = self.jobs.order.iter().filter_map(|ending| match ending {
            Ending::Call(id) => Some((id.as_str(), self.attempt(self.jobs.calls.get(id)?).ok()?.clone())),
            Ending::Run(place) => Some((*started.get(place)?, self.jobs.ended.get(place)?.clone())),
        });
        endings.collect()
    }

    /// The number of endings since the team's last step.
    #[cfg(feature = "scripts")]
    pub(crate) fn new_endings(&self) -> usize {
        self.jobs.new_endings
    }

    /// The places of the runs that have not ended, in their order.
    #[cfg(feature = "scripts")]
    pub(crate) fn running(&self) -> Vec<Place> {
        let places = self.started().map(|(place, _)| place).filter(|place| !self.jobs.ended.contains_key(place));
        let mut places: Vec<Place> = places.cloned().collect();
        places.sort();
        places
    }

    /// The runs that calls left running, with the calls.
    #[cfg(feature = "scripts")]
    fn started(&self) -> impl Iterator<Item = (&Place, &str)> {
        self.jobs.calls.iter().filter_map(|(id, call)| Some((call.outcome.as_ref().err()?, id.as_str())))
    }

    /// The result of the job, if it has ended.
    pub(crate) fn result(&self, id: &str, retries: u32) -> Option<JobResult> {
        match self.job(id, retries) {
            JobState::Ended(job) => Some(job),
            JobState::Open { .. } | JobState::Running { .. } => None,
        }
    }

    /// Drops what was read instead of keeping it for the next turn, because the team is about to end.
    pub(crate) fn discard(mut self) {
        self.store = None;
    }

    /// Takes out the value that the script derived from the history at an earlier turn.
    pub(crate) fn take_derived<T: 'static>(&self) -> Option<T> {
        self.jobs.derived.take()?.downcast().ok().map(|derived| *derived)
    }

    /// Keeps a value that the script derived from the history for its next turn. It must stay true as the history grows.
    pub(crate) fn keep_derived<T: Send + 'static>(&self, derived: T) {
        self.jobs.derived.replace(Some(Box::new(derived)));
    }
}

impl Drop for History<'_> {
    fn drop(&mut self) {
        if let Some(store) = self.store {
            *lock(store) = std::mem::take(&mut self.jobs);
        }
    }
}

fn lock(jobs: &Mutex<Jobs>) -> std::sync::MutexGuard<'_, Jobs> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task at the beginning of a team's own messages: the last message to it before its first step.
fn own_task(messages: &[Arc<TranscriptEntry>]) -> &str {
    let before = messages.iter().take_while(|entry| !matches!(entry.message, Message::Assistant(_)));
    let texts = before.filter_map(|entry| match &entry.message {
        Message::User { text, .. } => Some(text.as_str()),
        Message::Assistant(_) | Message::Tool(_) => None,
    });
    texts.last().unwrap_or_default()
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
        Message::Assistant(reply) => reply.data.as_deref(),
        Message::User { .. } | Message::Tool(_) => None,
    })?;
    Some(EarlierTurn { first_task, results })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, text: &str, data: Option<Value>) -> ToolResult {
        let (call_id, is_error) = ("job#0".to_owned(), data.is_none());
        ToolResult {
            index: 0,
            call_id,
            name: name.into(),
            text: text.into(),
            images: Vec::new(),
            data: data.map(JsonText::from),
            is_error,
        }
    }

    fn job(result: ToolResult, refusal: Option<CallRefusal>, retries: u32) -> JobState {
        History::new(&[TranscriptEntry::with_refusal(result.into(), refusal)]).job("job", retries)
    }

    fn calls(name: &str, id: &str, data: Option<Value>) -> Arc<TranscriptEntry> {
        TranscriptEntry::with_refusal(ToolResult { call_id: id.to_owned(), ..result(name, "text", data) }.into(), None)
    }

    #[test]
    fn history_is_continued_with_new_messages_only() {
        let user = |origin| TranscriptEntry::with_origin(Message::user("task"), origin);
        let mut messages = vec![user(MessageOrigin::Task), calls("tool", "a#0", None)];
        History::new(&messages).keep_derived("derived");
        messages.push(calls("tool", "b#0", None));
        let history = History::new(&messages);
        assert_eq!((history.jobs.calls.len(), history.take_derived()), (2, Some("derived")));
        drop(history);
        // Another continuation of the same task does not see what only this one did.
        let other = History::new(&messages[..2]);
        assert_eq!((other.jobs.calls.len(), other.take_derived::<&str>()), (1, None));
    }

    #[test]
    fn more_budget_forgets_jobs_that_the_teams_limit_ended() {
        let hit = json!({"name": "cost", "limit": 5, "spent": 5, "place": "1"});
        let data = json!({"run": "00000000-0000-0000-0000-000000000001", "place": "1.2", "agent": "a",
            "status": "exhausted", "error": "e", "data": null, "limit": hit, "may_fail": true});
        let user = |origin| TranscriptEntry::with_origin(Message::user("task"), origin);
        let mut messages =
            vec![user(MessageOrigin::Task), calls(DELEGATE, "a#0", Some(data)), calls("tool", "b#0", None)];
        History::new(&messages).keep_derived("derived");
        messages.push(user(MessageOrigin::MoreBudget));
        let history = History::new(&messages);
        assert_eq!(history.job("a", 0), JobState::Open { id: "a#0".to_owned() });
        assert!(history.result("b", 0).is_some() && history.take_derived::<&str>().is_none());
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
