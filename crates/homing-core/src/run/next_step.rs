//! Decides on the next step of a run from its state alone.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Landing, Run, Step,
    answer::{self, Check, TextAnswer},
    conversation::MAX_COMPACTIONS,
    conversation::PendingCompaction,
    lacks_answer, nudges,
};
use crate::{
    fact::{FailureKind, LimitHit, Outcome, Purpose},
    limits::{Cap, Limit},
    message::{Message, Reply, StopReason},
};

/// Decision on the next step of a run.
pub(super) struct Decision<'a>(pub(super) &'a Run);

impl Decision<'_> {
    /// Decides on the next step. The order matters: a request to stop has priority, then open calls, because their results
    /// must enter the transcript before anything else happens.
    pub(super) fn next(&self) -> Step {
        let run = self.0;
        if let Some(by) = &run.stopping.halted {
            return self.stop(Outcome::Cancelled { by: by.clone() });
        }
        let open = run.open_calls();
        if !open.is_empty() {
            return Step::Act(open);
        }
        if let Some(outcome) = &run.stopping.forced_outcome {
            return self.stop(Outcome::clone(outcome));
        }
        match &run.conversation.compaction.pending {
            PendingCompaction::Summarized(summary) => return Step::Supersede { summary: summary.clone() },
            PendingCompaction::Needed => return self.compact(),
            PendingCompaction::None => (),
        }
        match run.conversation.last() {
            Some(Message::Assistant(reply)) => self.after_reply(reply),
            Some(Message::User { .. } | Message::Tool(_)) | None => self.turn(),
        }
    }

    /// The next turn, or the last one if the turns run out.
    fn turn(&self) -> Step {
        let run = self.0;
        if let Some(answer) = &run.answer.data {
            return self.finish(Some(answer.clone()));
        }
        if run.answer.best_effort.is_some() {
            return self.finish(None);
        }
        if let Landing::Due(hit) = &run.stopping.landing {
            return self.land(LimitHit::clone(hit));
        }
        if let Some(hit) = run.conversation.cuts.limit_hit(&run.place) {
            return self.stop(Outcome::Exhausted(hit));
        }
        let turns = run.own.turns;
        match run.limits.turns {
            // The children are paid for, and the last turn needs their reports.
            Cap::At(limit) if turns + 1 >= limit && run.links.open_background > 0 => Step::Await,
            Cap::At(limit) if turns >= limit => self.stop(Outcome::Exhausted(self.hit(Limit::Turns, limit, turns))),
            Cap::At(limit) if limit > 1 && turns + 1 == limit => self.land(self.hit(Limit::Turns, limit, turns)),
            Cap::At(_) | Cap::Unlimited | Cap::Default => {
                let purpose = if run.answer.repair_is_open() { Purpose::Repair } else { Purpose::Turn };
                Step::Ask { purpose, nudge: run.conversation.cut_nudge() }
            }
        }
    }

    /// The last turn because of a limit, or the end if the last turn is over.
    pub(super) fn land(&self, hit: LimitHit) -> Step {
        match &self.0.stopping.landing {
            Landing::Landed(hit) => self.stop(LimitHit::clone(hit).into()),
            Landing::Due(_) => Step::Ask { purpose: Purpose::Landing(hit), nudge: None },
            Landing::None => {
                let nudge = Some(self.0.conversation.landing_nudge(hit.name));
                Step::Ask { purpose: Purpose::Landing(hit), nudge }
            }
        }
    }

    /// The step after a reply without open calls.
    fn after_reply(&self, reply: &Reply) -> Step {
        let run = self.0;
        if let Landing::Landed(hit) = &run.stopping.landing {
            return self.stop(LimitHit::clone(hit).into());
        }
        match reply.stop {
            StopReason::Refusal => {
                return self.stop(Outcome::failed(FailureKind::Refused, "the model declined to answer"));
            }
            StopReason::End | StopReason::Calls | StopReason::Length | StopReason::Other(_) => (),
        }
        // A cut reply never ends a run, not even as a failure: the checks below are for complete replies.
        if run.conversation.cuts.is_cut() {
            return self.turn();
        }
        if lacks_answer(run) {
            return self.without_answer_call();
        }
        if run.conversation.joined_text().trim().is_empty() && run.answer.data.is_none() {
            return self.repair(nudges::EMPTY, FailureKind::Model, "the model ended without an answer");
        }
        self.finish(run.answer.data.clone())
    }

    /// The step after text of a run that needs a structured answer. JSON in the text counts if it matches the schema, prose
    /// if the schema is optional; otherwise the model gets one more attempt.
    fn without_answer_call(&self) -> Step {
        let run = self.0;
        let text = run.conversation.joined_text();
        let problems = match &run.answer.text {
            TextAnswer::Invalid(problems) => Some(problems),
            TextAnswer::Unchecked | TextAnswer::Valid => None,
        };
        if problems.is_none()
            && let Some(value) = answer::json_in(&text)
        {
            return Step::CheckAnswer { value };
        }
        if run.spawned.accepts_prose() && !text.trim().is_empty() {
            return self.finish(None);
        }
        match problems {
            Some(problems) => {
                let message = format!("the answer does not match its schema: {problems}");
                self.repair(&nudges::answer_problems(problems), FailureKind::Schema, &message)
            }
            None => {
                let message = "the model answered with text instead of the structured answer";
                self.repair(nudges::USE_ANSWER, FailureKind::Schema, message)
            }
        }
    }

    /// One more attempt at the answer, then the failure.
    fn repair(&self, nudge: &str, kind: FailureKind, message: &str) -> Step {
        let answer = &self.0.answer;
        if answer.repairs > 0 {
            return self.stop(Outcome::failed(kind, message));
        }
        let nudge = (!answer.repair_asked).then(|| nudge.to_owned());
        Step::Ask { purpose: Purpose::Repair, nudge }
    }

    /// A compaction, or the end if the last ones did not help.
    pub(super) fn compact(&self) -> Step {
        let compaction = &self.0.conversation.compaction;
        if compaction.is_futile(self.0.own.turns) {
            let hit = self.hit(Limit::Compactions, u64::from(MAX_COMPACTIONS), u64::from(compaction.in_a_row));
            return self.stop(Outcome::Exhausted(hit));
        }
        Step::Ask { purpose: Purpose::Compaction, nudge: None }
    }

    /// The end as done, once background children have ended and the `until` command has succeeded.
    fn finish(&self, data: Option<Arc<Value>>) -> Step {
        let run = self.0;
        if run.links.open_background > 0 {
            return Step::Await;
        }
        let check = run.answer.check;
        match &run.spawned.until {
            Some(command) if check != Check::Passed => Step::Verify { command: command.clone(), begun: check.begun() },
            Some(_) | None => {
                let mut ended = run.ending(Outcome::Done);
                if let (None, Some(text)) = (&data, &run.answer.best_effort) {
                    ended.text.clone_from(text);
                }
                let only_data = matches!(run.answer.text, TextAnswer::Valid) || ended.text.trim().is_empty();
                if let (Some(data), true) = (&data, only_data) {
                    ended.text = serde_json::to_string_pretty(data).unwrap_or_default();
                }
                ended.data = data.or(ended.data);
                Step::Stop(ended)
            }
        }
    }

    fn stop(&self, outcome: Outcome) -> Step {
        Step::Stop(self.0.ending(outcome))
    }

    fn hit(&self, name: Limit, limit: u64, spent: u64) -> LimitHit {
        LimitHit { name, limit, spent, place: self.0.place.clone() }
    }
}
