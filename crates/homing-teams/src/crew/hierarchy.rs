//! The hierarchical process: a manager assigns each task, and accepts the result or sends it back, a few times at most.

use serde_json::{Value, json};

use crate::{
    crew::{
        CrewTask,
        script::{CrewScript, Progress},
    },
    history::{Done, History, JobState},
    limit_fields::LimitFields,
    program::Errand,
};

/// What the manager did not like, and about which result.
struct SentBack {
    result: String,
    feedback: String,
}

impl CrewScript {
    /// A task that a manager looks after.
    pub(crate) fn managed(&self, at: usize, past: &History<'_>, scope: &Value) -> Result<Progress, String> {
        let task = &self.crew.tasks[at];
        let text = self.text(at, scope)?;
        let (agent, instructions) = match self.assign(task, &text, past) {
            Ok(assigned) => assigned,
            Err(progress) => return Ok(progress),
        };
        let mut sent_back: Option<SentBack> = None;
        let rounds = self.crew.max_rounds.max(1);
        for round in 1..=rounds {
            let brief = brief(&text, &instructions, sent_back.as_ref());
            let done = match past.stand(&format!("task/{}/{round}", task.name), task.retries) {
                JobState::Open { id } => return Ok(Progress::Next(self.errand(task, &agent, brief).call(id))),
                JobState::Running { place } => return Ok(Progress::Running(place)),
                JobState::Over(done) => done,
            };
            // What failed is not for the manager to accept, and the last round's result is taken as it is.
            if !done.is_done() || round == rounds {
                return Ok(Progress::Over(Box::new(done)));
            }
            match self.review(task, round, &text, &done, past) {
                Err(progress) => return Ok(progress),
                Ok(None) => return Ok(Progress::Over(Box::new(done))),
                Ok(Some(feedback)) => sent_back = Some(SentBack { result: done.output, feedback }),
            }
        }
        unreachable!("the last round decides")
    }

    /// Who does it, and what the manager wants them to know.
    fn assign(&self, task: &CrewTask, text: &str, past: &History<'_>) -> Result<(String, String), Progress> {
        if let Some(agent) = &task.agent {
            return Ok((agent.clone(), String::new()));
        }
        let schema = json!({
            "type": "object",
            "properties": {"agent": {"type": "string", "enum": self.candidates}, "instructions": {"type": "string"}},
            "required": ["agent"],
        });
        let question = format!(
            "You lead a team. Choose who is to do the task below, and add instructions where they help.\n\nMembers: {}\n\n\
             Task `{}`:\n{text}",
            self.candidates.join(", "),
            task.name
        );
        let done = self.ask_manager(format!("assign/{}", task.name), question, &schema, past)?;
        if !done.is_done() && !done.may_fail {
            return Err(unmanaged(done, "choose who does it", String::new()));
        }
        let said = |key: &str| done.data.as_ref()?.get(key)?.as_str().map(str::to_owned);
        let chosen = said("agent").filter(|name| self.candidates.contains(name));
        // A manager that may fail does not stop the work.
        let agent = chosen.or_else(|| self.candidates.first().cloned()).unwrap_or_default();
        Ok((agent, said("instructions").unwrap_or_default()))
    }

    /// `None` where the result is accepted, what is wrong with it where it is not.
    fn review(
        &self,
        task: &CrewTask,
        round: u32,
        text: &str,
        done: &Done,
        past: &History<'_>,
    ) -> Result<Option<String>, Progress> {
        let schema = json!({
            "type": "object",
            "properties": {"accepted": {"type": "boolean"}, "feedback": {"type": "string"}},
            "required": ["accepted"],
        });
        let question = format!(
            "You lead a team. Accept the result of the task below, or send it back with feedback (round {round} of {}).\n\n\
             Task `{}`:\n{text}\n\nResult:\n{}",
            self.crew.max_rounds, task.name, done.output
        );
        let said = self.ask_manager(format!("review/{}/{round}", task.name), question, &schema, past)?;
        if !said.is_done() && !said.may_fail {
            return Err(unmanaged(said, "review the result", done.output.clone()));
        }
        let data = said.data.unwrap_or_default();
        let feedback = data.get("feedback").and_then(Value::as_str).unwrap_or("Do it again, better.").to_owned();
        Ok((data.get("accepted") == Some(&Value::Bool(false))).then_some(feedback))
    }

    fn ask_manager(&self, id: String, question: String, schema: &Value, past: &History<'_>) -> Result<Done, Progress> {
        match past.stand(&id, 0) {
            JobState::Over(done) => Ok(done),
            JobState::Running { place } => Err(Progress::Running(place)),
            JobState::Open { id } => {
                let agent = self.crew.manager.as_deref().unwrap_or_default();
                let bounds = LimitFields::default();
                let errand = Errand { agent, task: question, schema: Some(schema), bounds: &bounds, background: false };
                Err(Progress::Next(errand.call(id)))
            }
        }
    }
}

/// A task whose manager failed: nobody chose who does it, or nobody accepted the result, which is kept.
fn unmanaged(mut manager: Done, what: &str, output: String) -> Progress {
    manager.error = Some(format!("the manager could not {what}: {}", manager.why()));
    (manager.output, manager.data) = (output, None);
    Progress::Over(Box::new(manager))
}

fn brief(text: &str, instructions: &str, sent_back: Option<&SentBack>) -> String {
    let mut brief = text.to_owned();
    if !instructions.trim().is_empty() {
        brief.push_str(&format!("\n\nInstructions of your manager: {instructions}"));
    }
    if let Some(SentBack { result, feedback }) = sent_back {
        brief.push_str(&format!("\n\nYour earlier result was sent back: {feedback}\n\nThe earlier result:\n{result}"));
    }
    brief
}
