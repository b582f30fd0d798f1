//! The recorded answers of the user, so that a replay asks no one.

use std::collections::HashMap;

use homing_core::{
    BoxFuture,
    fact::{Fact, Record},
    question::{Answer, Question, QuestionId},
};

use super::{CassetteReplay, RecordedStep};
use crate::runtime::PermissionHandler;

/// The questions of a recording, with their answers.
#[derive(Default)]
pub(super) struct RecordedAnswers {
    steps: HashMap<QuestionId, (RecordedStep, String)>,
    answers: HashMap<(RecordedStep, String), Answer>,
}

impl RecordedAnswers {
    /// Adds a record of the recording.
    pub(super) fn take(&mut self, record: &Record) {
        if let Fact::Questioned { id, question } = &record.fact {
            let step = (record.place.clone(), question.key.turn, question.key.index);
            self.steps.insert(*id, (step, question.text.clone()));
        }
        if let Fact::Answered { id, answer, .. } = &record.fact
            && let Some(asked) = self.steps.get(id)
        {
            self.answers.insert(asked.clone(), answer.clone());
        }
    }
}

impl PermissionHandler for CassetteReplay {
    /// Answers as the user did. A call that was made was approved, in recordings without questions, too.
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        let place = self.order.place(question.key.run);
        let step = place.map(|place| (place, question.key.turn, question.key.index));
        let recorded = step.as_ref().and_then(|step| {
            let was_made = || self.calls.contains_key(step).then_some(Answer::Yes);
            self.answers.answers.get(&(step.clone(), question.text.clone())).cloned().or_else(was_made)
        });
        Box::pin(std::future::ready(recorded.unwrap_or(Answer::Unavailable)))
    }
}
