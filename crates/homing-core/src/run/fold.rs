//! Applies facts to a run. Only [`crate::tree::RunTree`] uses it. It is deterministic, so that a resumed run has the same
//! state as one that was never interrupted.

use std::sync::Arc;

use super::{
    Landing, Run, TEXT_ANSWER, VERIFICATION,
    answer::{self, Check, TextAnswer},
    calls::waits_for_runs,
    conversation::PendingCompaction,
    cut, nudges,
};
use crate::{
    fact::{Asked, CallRefusal, Called, FailureKind, LimitHit, Outcome, Purpose},
    ledger::Margin,
    limits::Limit,
    message::{Message, MessageOrigin, Part, Reply, StopReason, ToolResult},
    model::{AskFailure, ModelError},
    run::CallState,
    token_estimate::LastAsk,
    tool::CallKey,
    tool_names,
};

/// Identical calls in a row after which the model is warned.
const REPEATS_WARNING: u32 = 3;

/// Identical calls in a row after which the run gets its last turn.
const REPEATS_LIMIT: u32 = 6;

/// Applies facts to one run at one time of the tree's clock.
pub(crate) struct Fold<'a> {
    pub(super) run: &'a mut Run,
    pub(super) clock: u64,
}

impl Fold<'_> {
    pub(crate) fn asked(&mut self, asked: &Arc<Asked>, margin: Margin) {
        let run = &mut *self.run;
        run.work.call_begins(self.clock);
        // Earlier versions went on at the first report; their journals have the call that followed it.
        run.conversation.deliver_reports();
        if let Some(nudge) = &asked.nudge {
            run.conversation.add(nudge.clone(), MessageOrigin::Nudge);
            run.conversation.cuts.told();
        }
        match &asked.purpose {
            Purpose::Landing(hit) => run.stopping.landing = Landing::Due(Box::new(hit.clone())),
            Purpose::Repair => run.answer.repair_asked = true,
            Purpose::Turn | Purpose::Compaction => (),
        }
        run.asks.begin(asked, margin, self.clock);
    }

    pub(crate) fn replied(&mut self, reply: &Arc<Reply>) {
        let run = &mut *self.run;
        let Some(asked) = run.asks.succeed(&reply.usage, self.clock) else { return };
        run.work.call_ends(self.clock);
        run.own.turns += u64::from(asked.purpose != Purpose::Compaction);
        match &asked.purpose {
            Purpose::Compaction => {
                run.conversation.compaction.pending = PendingCompaction::Summarized(summary_of(reply));
                return;
            }
            Purpose::Landing(hit) => run.stopping.landing = Landing::Landed(Box::new(hit.clone())),
            Purpose::Repair => run.answer.repairs += 1,
            Purpose::Turn => (),
        }
        self.add_reply(reply, &asked);
    }

    /// Adds a reply to the transcript and opens its calls.
    fn add_reply(&mut self, reply: &Arc<Reply>, asked: &Asked) {
        let run = &mut *self.run;
        let said = match &asked.purpose {
            Purpose::Landing(_) => without_calls(reply),
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => cut::without_cut_call(reply),
        };
        if reply.data.is_some() {
            run.answer.results.clone_from(&reply.data);
        }
        let (id, turn) = (run.id, run.turn());
        let key = |index: usize| CallKey { run: id, turn, index: u32::try_from(index).unwrap_or(u32::MAX) };
        let calls = said.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call.clone()),
            Part::Text(_) | Part::Thinking { .. } | Part::Opaque { .. } => None,
        });
        run.calls.states = calls.enumerate().map(|(index, call)| CallState::new(key(index), call, None)).collect();
        run.conversation.note_cut(&said, asked);
        run.conversation.push(Message::Assistant(said));
        if !reply.usage.estimated {
            // The next request contains this one and its reply; only later messages are new.
            let messages = run.conversation.current().len();
            run.asks.last_size = Some(LastAsk { input: reply.usage.tokens(), messages });
        }
        run.answer.check = run.answer.check.after_reply();
        run.answer.text = TextAnswer::Unchecked;
        if run.calls.states.is_empty() {
            run.conversation.deliver();
        }
    }

    pub(crate) fn ask_failed(&mut self, failure: &AskFailure) {
        let run = &mut *self.run;
        let asked = run.asks.fail(failure);
        run.work.call_ends(self.clock);
        if let ModelError::Team { data: Some(data), .. } = &failure.error {
            run.answer.results = Some(data.clone());
        }
        let compacting = asked.is_some_and(|asked| asked.purpose == Purpose::Compaction);
        if matches!(failure.error, ModelError::ContextFull { .. }) && !compacting {
            run.conversation.compaction.need();
        }
    }

    pub(crate) fn called(&mut self, called: &Called) {
        let run = &mut *self.run;
        if !waits_for_runs(&called.call.name, Some(called.replay)) {
            run.work.call_begins(self.clock);
        }
        if called.key.index == VERIFICATION {
            run.answer.check = Check::Running(called.replay);
        } else {
            run.calls.begin(called.key, called.replay);
        }
        run.calls.note_called(called);
        run.own.tool_calls += 1;
    }

    pub(crate) fn returned(&mut self, key: CallKey, result: &Arc<ToolResult>, refused: Option<&CallRefusal>) {
        self.close_questions(key);
        let run = &mut *self.run;
        if refused.is_none() && !waits_for_runs(&result.name, run.calls.begun(key)) {
            run.work.call_ends(self.clock);
        }
        if let Some(CallRefusal::Limit(hit)) = refused {
            run.stopping.land(|| hit.clone());
        }
        run.calls.note_returned(key, result, refused);
        if key.index == VERIFICATION {
            return self.checked(result);
        }
        if key.index == TEXT_ANSWER {
            return self.answered_in_text(result);
        }
        if !run.calls.finish(key, result, refused) {
            return;
        }
        if result.name == tool_names::ANSWER {
            self.answered(key, result);
        }
        if self.run.calls.open().next().is_none() {
            self.close_turn();
        }
    }

    /// Takes in the result of the tool `answer`.
    fn answered(&mut self, key: CallKey, result: &ToolResult) {
        let run = &mut *self.run;
        if !result.is_error {
            if let Some(data) = &result.data {
                run.answer.data.get_or_insert_with(|| Arc::new(data.value()));
            }
            return;
        }
        run.answer.repairs += 1;
        if run.answer.repairs > 1 {
            let call = run.calls.states.iter().find(|state| state.key == key).map(|state| &state.call);
            run.answer.best_effort =
                call.and_then(|call| answer::written(call)).filter(|_| run.spawned.accepts_prose());
        }
        if run.answer.repairs > 1 && run.answer.best_effort.is_none() {
            let message = format!("the answer does not match its schema: {}", result.text);
            run.stopping.forced_outcome = Some(Box::new(Outcome::failed(FailureKind::Schema, message)));
        }
    }

    /// Takes in the check of an answer that the last reply gave as text.
    fn answered_in_text(&mut self, result: &ToolResult) {
        let answer = &mut self.run.answer;
        match &result.data {
            Some(data) if !result.is_error => {
                answer.data.get_or_insert_with(|| Arc::new(data.value()));
                answer.text = TextAnswer::Valid;
            }
            Some(_) | None => answer.text = TextAnswer::Invalid(result.text.clone()),
        }
    }

    /// Adds the results of a reply's calls to the transcript, in the order of the calls, when all have returned.
    fn close_turn(&mut self) {
        let run = &mut *self.run;
        let mut warn = false;
        for state in std::mem::take(&mut run.calls.states) {
            let Some(result) = state.result else { continue };
            let count = run.calls.repeats.count(&state.call, &result);
            warn |= count == REPEATS_WARNING;
            if count >= REPEATS_LIMIT {
                let (limit, spent) = (u64::from(REPEATS_LIMIT), u64::from(count));
                let place = &run.place;
                run.stopping.land(|| LimitHit { name: Limit::Repeats, limit, spent, place: place.clone() });
            }
            run.conversation.push_result(result, state.refusal);
        }
        if let Landing::Due(hit) = &run.stopping.landing {
            run.conversation.add(nudges::landing(hit.name), MessageOrigin::Nudge);
        } else if warn {
            run.conversation.add(nudges::REPEATED, MessageOrigin::Nudge);
        }
        run.conversation.deliver();
    }

    /// Takes in the result of the `until` command.
    fn checked(&mut self, result: &ToolResult) {
        let run = &mut *self.run;
        run.answer.check = if result.is_error { Check::Failed } else { Check::Passed };
        if result.is_error {
            run.answer.data = None;
            let command = run.spawned.until.as_deref().unwrap_or_default();
            run.conversation.add(nudges::check_failed(command, &result.text), MessageOrigin::FailedCheck);
        }
    }

    /// Takes in the report of a background child. A run that only waits is not woken for each of its children: it would spend
    /// a turn on every report, and reach its limit before the last.
    pub(crate) fn reported(&mut self, report: &str) {
        if self.run.calls.open().next().is_none() && self.run.is_waiting() {
            self.run.conversation.hold_report(report);
        } else {
            self.told(report);
        }
    }

    /// Delivers the reports that were kept, because the last background child has ended.
    pub(crate) fn all_reported(&mut self) {
        self.run.conversation.deliver_reports();
    }

    /// Takes in a message to the run.
    pub(crate) fn told(&mut self, message: &str) {
        let run = &mut *self.run;
        run.conversation.deliver_reports();
        run.conversation.hold(message);
        if run.asks.open.is_none() && run.calls.states.is_empty() {
            run.conversation.deliver();
        }
    }

    pub(crate) fn compacted(&mut self, summary: &str, upto: usize) {
        let run = &mut *self.run;
        run.conversation.supersede(&run.spawned, summary, upto, run.own.turns);
        run.asks.last_size = None;
    }

    /// Continues the run if a limit had ended it; any other end is final.
    pub(crate) fn reopen(&mut self) {
        let run = &mut *self.run;
        run.stopping.landing = Landing::None;
        let outcome = run.ended.as_ref().map(|ended| &ended.outcome);
        if matches!(outcome, Some(Outcome::Exhausted(_) | Outcome::TimedOut(_))) {
            run.ended = None;
            run.work.reopen();
            run.stopping.forced_outcome = None;
            run.calls.repeats = Default::default();
            run.conversation.cuts.reopen();
            run.conversation.add(nudges::MORE_BUDGET, MessageOrigin::MoreBudget);
        }
    }
}

/// Returns a reply of the last turn without its calls. Tools are off in that turn, so they are not executed, and calls without
/// results must not stay in the transcript, because providers reject them.
fn without_calls(reply: &Arc<Reply>) -> Arc<Reply> {
    let mut said = reply.clone();
    if reply.calls().next().is_some() {
        Arc::make_mut(&mut said).parts.retain(|part| !matches!(part, Part::Call(_)));
    }
    said
}

/// Returns the summary in a reply. A cut summary is used as it is: another attempt would be cut again, and an incomplete
/// summary is better than a history that does not fit. The note makes the model aware that it is incomplete.
fn summary_of(reply: &Reply) -> String {
    match reply.stop {
        StopReason::Length => format!("{}\n[The summary was cut off here.]", reply.text()),
        StopReason::End | StopReason::Calls | StopReason::Refusal | StopReason::Other(_) => reply.text(),
    }
}
