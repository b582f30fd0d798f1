//! Checks of a task's result: a command, a schema or an agent decides, and the worker gets the feedback.

use homing_core::{envelope::Status, tool_names::BASH};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    crew::{
        CrewTask,
        hierarchy::{Rejected, brief, verdict_of},
        script::{CrewScript, TaskProgress},
    },
    history::{History, JobResult, JobState},
    limit_fields::LimitFields,
    program::{DelegateCall, TeamCall},
};

/// A check of a task's result. All parts that are set must accept it; otherwise the task is executed again, with the feedback.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct TaskCheck {
    /// JSON schema that the result must match: its data, or its text as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Command that must succeed; its output is the feedback. It is not a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Agent that accepts the result, or sends it back with feedback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Maximum number of times that the task is executed. If the last result is not accepted either, the task failed.
    pub tries: u32,
}

impl Default for TaskCheck {
    fn default() -> Self {
        Self { schema: None, command: None, agent: None, tries: 3 }
    }
}

impl TaskCheck {
    /// Creates a check by a command that must succeed.
    pub fn command(command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..Self::default() }
    }

    /// Creates a check by a JSON schema.
    pub fn schema(schema: Value) -> Self {
        Self { schema: Some(schema), ..Self::default() }
    }

    /// Creates a check by an agent.
    pub fn agent(name: impl Into<String>) -> Self {
        Self { agent: Some(name.into()), ..Self::default() }
    }

    /// Sets the maximum number of times that the task is executed.
    #[must_use]
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }
}

impl CrewScript {
    /// The progress of a task whose result is checked.
    pub(super) fn checked(
        &self,
        task: &CrewTask,
        check: &TaskCheck,
        text: &str,
        history: &History<'_>,
    ) -> Result<TaskProgress, String> {
        let tries = check.tries.max(1);
        let mut rejected: Option<Rejected> = None;
        for round in 1..=tries {
            let mut done = match history.job(&format!("task/{}/{round}", task.name), task.retries) {
                JobState::Open { id } => {
                    let agent = task.agent.as_deref().unwrap_or_default();
                    let brief = brief(text, "", rejected.as_ref());
                    return Ok(TaskProgress::Next(self.delegate_call(task, agent, brief).call(id)));
                }
                JobState::Running { place } => return Ok(TaskProgress::Running(place)),
                JobState::Ended(done) => done,
            };
            // The result of a task that failed is not checked.
            if !done.is_done() {
                return Ok(TaskProgress::Ended(Box::new(done)));
            }
            match self.feedback(task, check, round, text, &done, history) {
                Err(progress) => return Ok(progress),
                Ok(None) => return Ok(TaskProgress::Ended(Box::new(done))),
                Ok(Some(feedback)) if round == tries => {
                    done.status = Status::Failed;
                    done.error = Some(format!("not accepted after {tries} tries: {}", feedback.trim()));
                    return Ok(TaskProgress::Ended(Box::new(done)));
                }
                Ok(Some(feedback)) => rejected = Some(Rejected { result: done.output, feedback }),
            }
        }
        unreachable!("the last round decides")
    }

    /// The feedback of the first part of the check that does not accept the result. The cheapest part decides first.
    fn feedback(
        &self,
        task: &CrewTask,
        check: &TaskCheck,
        round: u32,
        text: &str,
        done: &JobResult,
        history: &History<'_>,
    ) -> Result<Option<String>, TaskProgress> {
        if let Some(problem) = check.schema.as_ref().and_then(|schema| schema_problem(schema, done)) {
            return Ok(Some(problem));
        }
        if let Some(command) = &check.command {
            let id = format!("check/{}/{round}", task.name);
            let args = json!({"command": command});
            let result = self.of_check(&id, history, |id| TeamCall { id, tool: BASH.to_owned(), args })?;
            if !result.is_done() {
                return Ok(Some(format!("`{command}` failed:\n{}", result.why())));
            }
        }
        let Some(agent) = &check.agent else { return Ok(None) };
        let (question, schema) = crate::crew::hierarchy::review_question(&task.name, text, done);
        let (limits, background) = (LimitFields::default(), self.runs_in_background());
        let call = DelegateCall { agent, task: question, schema: Some(&schema), limits: &limits, background };
        let judged = self.of_check(&format!("judge/{}/{round}", task.name), history, |id| call.call(id))?;
        if !judged.is_done() && !judged.may_fail {
            let mut failed = judged;
            failed.error = Some(format!("`{agent}` could not check the result: {}", failed.why()));
            (failed.output, failed.data) = (done.output.clone(), None);
            return Err(TaskProgress::Ended(Box::new(failed)));
        }
        Ok(verdict_of(judged))
    }

    fn of_check(
        &self,
        id: &str,
        history: &History<'_>,
        call: impl FnOnce(String) -> TeamCall,
    ) -> Result<JobResult, TaskProgress> {
        match history.job(id, 0) {
            JobState::Ended(done) => Ok(done),
            JobState::Running { place } => Err(TaskProgress::Running(place)),
            JobState::Open { id } => Err(TaskProgress::Next(call(id))),
        }
    }
}

/// The problem of a result with a schema.
fn schema_problem(schema: &Value, done: &JobResult) -> Option<String> {
    let parsed = done.data.clone().map_or_else(|| serde_json::from_str(done.output.trim()), Ok);
    let value = match parsed {
        Ok(value) => value,
        Err(error) => return Some(format!("the result must be JSON and nothing else: {error}")),
    };
    let error = jsonschema::validator_for(schema).ok()?.validate(&value).err()?.to_string();
    Some(format!("the result does not match its schema: {error}"))
}
