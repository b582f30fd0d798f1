//! The hierarchical process: a manager assigns each task, and accepts or rejects its result a limited number of times.

use serde_json::{Value, json};

use crate::{
    crew::{
        CrewTask,
        script::{CrewScript, TaskProgress},
    },
    history::{History, JobResult, JobState},
    limit_fields::LimitFields,
    program::DelegateCall,
};

/// A result that was rejected, with the feedback.
pub(super) struct Rejected {
    pub(super) result: String,
    pub(super) feedback: String,
}

impl CrewScript {
    /// The progress of a task that a manager assigns and reviews.
    pub(crate) fn managed(&self, at: usize, history: &History<'_>, scope: &Value) -> Result<TaskProgress, String> {
        let task = &self.crew.tasks[at];
        let text = self.text(at, scope)?;
        let (agent, instructions) = match self.assign(task, &text, history) {
            Ok(assigned) => assigned,
            Err(progress) => return Ok(progress),
        };
        let mut rejected: Option<Rejected> = None;
        let rounds = self.crew.max_rounds.max(1);
        for round in 1..=rounds {
            let brief = brief(&text, &instructions, rejected.as_ref());
            let done = match history.job(&format!("task/{}/{round}", task.name), task.retries) {
                JobState::Open { id } => {
                    return Ok(TaskProgress::Next(self.delegate_call(task, &agent, brief).call(id)));
                }
                JobState::Running { place } => return Ok(TaskProgress::Running(place)),
                JobState::Ended(done) => done,
            };
            // A failed task is not reviewed, and the result of the last round is accepted as it is.
            if !done.is_done() || round == rounds {
                return Ok(TaskProgress::Ended(Box::new(done)));
            }
            match self.review(task, round, &text, &done, history) {
                Err(progress) => return Ok(progress),
                Ok(None) => return Ok(TaskProgress::Ended(Box::new(done))),
                Ok(Some(feedback)) => rejected = Some(Rejected { result: done.output, feedback }),
            }
        }
        unreachable!("the last round decides")
    }

    /// The agent for the task, and the instructions of the manager.
    fn assign(&self, task: &CrewTask, text: &str, history: &History<'_>) -> Result<(String, String), TaskProgress> {
        if let Some(agent) = &task.agent {
            return Ok((agent.clone(), String::new()));
        }
        let schema = json!({
            "type": "object",
            "properties": {"agent": {"type": "string", "enum": self.candidates}, "instructions": {"type": "string"}},
            "required": ["agent"],
        });
        let question = format!(
            "You lead a team. Choose the member for the task below, and add instructions if they help.\n\nMembers:\n{}\n\n\
             Task `{}`:\n{text}",
            self.described, task.name
        );
        let done = self.ask_manager(format!("assign/{}", task.name), question, &schema, history)?;
        if !done.is_done() && !done.may_fail {
            return Err(unmanaged(done, "choose an agent", String::new()));
        }
        let field = |key: &str| done.data.as_ref()?.get(key)?.as_str().map(str::to_owned);
        let chosen = field("agent").filter(|name| self.candidates.contains(name));
        // If the manager may fail, its failure does not stop the work.
        let agent = chosen.or_else(|| self.candidates.first().cloned()).unwrap_or_default();
        Ok((agent, field("instructions").unwrap_or_default()))
    }

    /// The feedback of the manager; `None` if it accepts the result.
    fn review(
        &self,
        task: &CrewTask,
        round: u32,
        text: &str,
        done: &JobResult,
        history: &History<'_>,
    ) -> Result<Option<String>, TaskProgress> {
        let (question, schema) = review_question(&task.name, text, done);
        let question = format!("You lead a team (round {round} of {}). {question}", self.crew.max_rounds);
        let review = self.ask_manager(format!("review/{}/{round}", task.name), question, &schema, history)?;
        if !review.is_done() && !review.may_fail {
            return Err(unmanaged(review, "review the result", done.output.clone()));
        }
        Ok(verdict_of(review))
    }

    fn ask_manager(
        &self,
        id: String,
        question: String,
        schema: &Value,
        history: &History<'_>,
    ) -> Result<JobResult, TaskProgress> {
        match history.job(&id, 0) {
            JobState::Ended(done) => Ok(done),
            JobState::Running { place } => Err(TaskProgress::Running(place)),
            JobState::Open { id } => {
                let agent = self.crew.manager.as_deref().unwrap_or_default();
                let limits = LimitFields::default();
                let call =
                    DelegateCall { agent, task: question, schema: Some(schema), limits: &limits, background: false };
                Err(TaskProgress::Next(call.call(id)))
            }
        }
    }
}

/// The result of a task whose manager failed. The result of the agent, if there is one, is kept.
fn unmanaged(mut manager: JobResult, what: &str, output: String) -> TaskProgress {
    manager.error = Some(format!("the manager could not {what}: {}", manager.why()));
    (manager.output, manager.data) = (output, None);
    TaskProgress::Ended(Box::new(manager))
}

/// The question whether a result is accepted, and the schema of the verdict.
pub(super) fn review_question(task: &str, text: &str, done: &JobResult) -> (String, Value) {
    let schema = json!({
        "type": "object",
        "properties": {"accepted": {"type": "boolean"}, "feedback": {"type": "string"}},
        "required": ["accepted"],
    });
    let question = format!(
        "Accept the result of the task below, or send it back with feedback.\n\nTask `{task}`:\n{text}\n\nResult:\n{}",
        done.output
    );
    (question, schema)
}

/// The feedback of a verdict; `None` if the result is accepted.
pub(super) fn verdict_of(review: JobResult) -> Option<String> {
    let data = review.data.unwrap_or_default();
    let feedback = data.get("feedback").and_then(Value::as_str).unwrap_or("Do it again, better.").to_owned();
    (data.get("accepted") == Some(&Value::Bool(false))).then_some(feedback)
}

pub(super) fn brief(text: &str, instructions: &str, rejected: Option<&Rejected>) -> String {
    let mut brief = text.to_owned();
    if !instructions.trim().is_empty() {
        brief.push_str(&format!("\n\nInstructions from your manager: {instructions}"));
    }
    if let Some(Rejected { result, feedback }) = rejected {
        brief.push_str(&format!("\n\nYour earlier result was sent back: {feedback}\n\nThe earlier result:\n{result}"));
    }
    brief
}
