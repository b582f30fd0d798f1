//! The questions that calls of the last reply have asked, with their answers.

use super::{Run, fold::Fold};
use crate::{
    question::{Answer, OpenQuestion, Question, QuestionId, RequestedCall},
    tool::CallKey,
};

/// A question of an open call.
#[derive(Clone, Debug)]
pub(super) struct AskedQuestion {
    id: QuestionId,
    question: Question,
    answer: Option<Answer>,
    /// True if the call had begun: its time does not count while it waits.
    paused: bool,
}

impl AskedQuestion {
    fn is_open_for(&self, key: CallKey) -> bool {
        self.answer.is_none() && self.question.key == key
    }
}

/// The questions of a run's open calls. A run that has ended asks nothing.
#[derive(Clone, Copy, Debug)]
pub struct RunQuestions<'a>(pub(super) &'a Run);

impl<'a> RunQuestions<'a> {
    fn unanswered(self) -> impl Iterator<Item = &'a AskedQuestion> {
        let asked = if self.0.ended.is_none() { &self.0.calls.questions[..] } else { &[] };
        asked.iter().filter(|asked| asked.answer.is_none())
    }

    /// Returns the questions that wait for an answer.
    pub fn open(self) -> impl Iterator<Item = OpenQuestion> + 'a {
        self.unanswered().map(move |asked| OpenQuestion::new(self.0, asked.id, &asked.question))
    }

    /// Returns whether a question waits for an answer.
    pub fn any_open(self) -> bool {
        self.unanswered().next().is_some()
    }

    /// Returns whether this question is recorded and waits for an answer.
    pub fn is_open(self, id: QuestionId) -> bool {
        self.unanswered().any(|asked| asked.id == id)
    }

    /// Returns whether this call waits for an answer.
    pub(super) fn hold(self, key: CallKey) -> bool {
        self.unanswered().any(|asked| asked.question.key == key)
    }

    /// Returns an open call, which a question may be about, as its model wrote it.
    pub fn call(self, key: CallKey) -> Option<RequestedCall> {
        let state = self.0.calls.open().find(|state| state.key == key)?;
        Some(RequestedCall::written(&self.0.spawned.agent.name, &state.call))
    }

    /// Returns the recorded answer to a question.
    pub fn answer_to(self, id: QuestionId) -> Option<&'a Answer> {
        self.0.calls.questions.iter().find(|asked| asked.id == id)?.answer.as_ref()
    }
}

impl Fold<'_> {
    /// Takes in a question. The working time of its call stands still until the answer.
    pub(crate) fn questioned(&mut self, id: QuestionId, question: &Question) {
        let run = &mut *self.run;
        let state = run.calls.open().find(|state| state.key == question.key);
        let Some(paused) = state.map(|state| state.begun.is_some()) else { return };
        if run.calls.questions.iter().any(|asked| asked.id == id) {
            return;
        }
        if paused {
            run.work.call_ends(self.clock);
        }
        let (question, answer) = (question.clone(), None);
        run.calls.questions.push(AskedQuestion { id, question, answer, paused });
    }

    /// Takes in an answer. The first one counts.
    pub(crate) fn question_answered(&mut self, id: QuestionId, answer: &Answer) {
        let run = &mut *self.run;
        let open = run.calls.questions.iter_mut().find(|asked| asked.id == id && asked.answer.is_none());
        let Some(asked) = open else { return };
        asked.answer = Some(answer.clone());
        if asked.paused {
            run.work.call_begins(self.clock);
        }
    }

    /// Closes the questions of a call that returns without their answers.
    pub(super) fn close_questions(&mut self, key: CallKey) {
        let run = &mut *self.run;
        let open = run.calls.questions.iter().filter(|asked| asked.is_open_for(key) && asked.paused).count();
        run.calls.questions.retain(|asked| asked.question.key != key);
        for _ in 0..open {
            run.work.call_begins(self.clock);
        }
    }
}
