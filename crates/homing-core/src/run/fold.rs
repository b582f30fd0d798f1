//! How facts change a run. Called by the tree's fold only, and as pure as the decision that follows from it.

use std::sync::Arc;

use super::{CallState, Landing, MORE_ROOM, Run, VERIFICATION, cut, is_family, landing_words};
use crate::{
    fact::{Asked, CallRefusal, FailureKind, LimitHit, Outcome, Purpose},
    limits::Limit,
    message::{Args, FNV_START, Message, Part, Reply, StopReason, ToolCall, ToolResult, TranscriptEntry, fnv},
    token_estimate::LastAsk,
    tool::{CallKey, Replay},
};

/// Calls in a row that are the same and bring the same: at the first number the model is told, at the second it ends.
const REPEATS: (u32, u32) = (3, 6);

const REPEATED: &str = "You have made the same call three times in a row with the same result. Another repetition will not help: \
     try something else, or give your answer with what you have.";

impl Run {
    pub(crate) fn asked(&mut self, asked: &Asked, clock: u64) {
        self.work_begins(clock);
        if let Some(nudge) = &asked.nudge {
            self.push(Message::user(nudge.clone()));
            self.cuts.told();
        }
        match &asked.purpose {
            Purpose::Landing(hit) => self.landing = Some(Landing { hit: hit.clone(), landed: false }),
            Purpose::Repair => self.repair_asked = true,
            Purpose::Turn | Purpose::Compaction => (),
        }
        if self.asked_model.as_ref() != Some(&asked.model) {
            self.asked_model = Some(asked.model.clone());
            self.failed_asks = 0;
        }
        self.open_ask = Some(asked.clone());
    }

    pub(crate) fn work_begins(&mut self, clock: u64) {
        self.began.get_or_insert(clock);
        self.busy += 1;
        self.busy_since.get_or_insert(clock);
    }

    pub(crate) fn work_ends(&mut self, clock: u64) {
        self.busy = self.busy.saturating_sub(1);
        if self.busy == 0
            && let Some(since) = self.busy_since.take()
        {
            self.worked_ms += clock.saturating_sub(since);
        }
    }

    /// Milliseconds the run has spent asking or acting, by the tree's clock.
    pub fn worked_ms(&self, clock: u64) -> u64 {
        self.worked_ms + self.busy_since.map_or(0, |since| clock.saturating_sub(since))
    }

    /// Milliseconds from its first step to its end or to now, by the tree's clock.
    pub fn wall_ms(&self, clock: u64) -> u64 {
        self.began.map_or(0, |began| self.over.unwrap_or(clock).saturating_sub(began))
    }

    pub(crate) fn replied(&mut self, reply: &Arc<Reply>, clock: u64) {
        let Some(asked) = self.open_ask.take() else { return };
        self.work_ends(clock);
        self.failed_asks = 0;
        self.last_error = None;
        self.partial.clear();
        if asked.purpose == Purpose::Compaction {
            self.summary = Some(summary_of(reply));
            return;
        }
        self.own.turns += 1;
        match &asked.purpose {
            Purpose::Landing(hit) => self.landing = Some(Landing { hit: hit.clone(), landed: true }),
            Purpose::Repair => self.repairs += 1,
            Purpose::Turn | Purpose::Compaction => (),
        }
        let turn = self.turn();
        let key = |index: usize| CallKey { run: self.id, turn, index: u32::try_from(index).unwrap_or(u32::MAX) };
        let mut said = Reply::clone(reply);
        match &asked.purpose {
            // Calls in a landing are not carried out: tools are off. A call without a result would make the transcript unfit
            // to be sent again.
            Purpose::Landing(_) => said.parts.retain(|part| !matches!(part, Part::Call(_))),
            Purpose::Turn | Purpose::Repair | Purpose::Compaction => cut::drop_cut_call(&mut said),
        }
        self.calls = said.calls().enumerate().map(|(i, call)| CallState::new(key(i), call.clone(), None)).collect();
        self.note_cut(&said, &asked);
        self.push(Message::Assistant(said));
        if !reply.usage.estimated {
            // The next request holds this one and its reply; only what comes after them is new.
            let messages = self.transcript.len() - self.superseded;
            self.last_ask = Some(LastAsk { input: reply.usage.tokens(), messages });
        }
        self.verified = None;
        if self.calls.is_empty() {
            self.hear();
        }
    }

    pub(crate) fn ask_failed(&mut self, failure: &crate::model::AskFailure, clock: u64) {
        let asked = self.open_ask.take();
        self.work_ends(clock);
        self.failed_asks += 1;
        self.last_error = Some(failure.error.clone());
        if !failure.partial.is_empty() {
            self.partial.clone_from(&failure.partial);
        }
        let compacting = asked.is_some_and(|asked| asked.purpose == Purpose::Compaction);
        if matches!(failure.error, crate::model::ModelError::ContextFull { .. }) && !compacting {
            self.context_full = true;
        }
    }

    pub(crate) fn called(&mut self, key: CallKey, tool: &str, replay: Replay, clock: u64) {
        if !is_family(tool) {
            self.work_begins(clock);
        }
        if key.index == VERIFICATION {
            self.verifying = Some(replay);
        } else if let Some(state) = self.calls.iter_mut().find(|state| state.key == key) {
            state.begun = Some(replay);
        }
    }

    pub(crate) fn returned(
        &mut self,
        key: CallKey,
        result: &Arc<ToolResult>,
        refused: Option<&CallRefusal>,
        clock: u64,
    ) {
        if refused.is_none() && !is_family(&result.name) {
            self.work_ends(clock);
        }
        match refused {
            Some(CallRefusal::Denied) => self.denied.push(result.text.clone()),
            Some(CallRefusal::Limit(hit)) if self.landing.is_none() => {
                self.landing = Some(Landing { hit: hit.clone(), landed: false });
            }
            Some(CallRefusal::Limit(_) | CallRefusal::Mistake | CallRefusal::NoTool | CallRefusal::OutcomeUnknown)
            | None => (),
        }
        if key.index == VERIFICATION {
            return self.checked(result);
        }
        let Some(state) = self.calls.iter_mut().find(|state| state.key == key && state.result.is_none()) else {
            return;
        };
        state.result = Some(result.clone());
        if let (Some(data), "answer", false) = (&result.data, result.name.as_str(), result.is_error) {
            self.answer.get_or_insert(data.clone());
        }
        if result.is_error && result.name == "answer" {
            self.repairs += 1;
            if self.repairs > 1 {
                let why = format!("the answer did not fit its schema: {}", result.text);
                self.doom = Some(Outcome::failed(FailureKind::Schema, why));
            }
        }
        if self.calls.iter().all(|state| state.result.is_some()) {
            self.close_turn();
        }
    }

    /// All calls of a reply have returned: their results enter the transcript in the order of the calls.
    fn close_turn(&mut self) {
        let mut told = false;
        for state in std::mem::take(&mut self.calls) {
            let Some(result) = state.result else { continue };
            let fingerprint = fingerprint(&state.call, &result);
            self.repeats = match self.repeats {
                (last, count) if last == fingerprint => (last, count + 1),
                _ => (fingerprint, 1),
            };
            told |= self.repeats.1 == REPEATS.0;
            if self.repeats.1 >= REPEATS.1 && self.landing.is_none() {
                let spent = u64::from(self.repeats.1);
                let limit = u64::from(REPEATS.1);
                let hit = LimitHit { name: Limit::Repeats, limit, spent, place: self.place.clone() };
                self.landing = Some(Landing { hit, landed: false });
            }
            self.push(Message::Tool(ToolResult::clone(&result)));
        }
        if let Some(Landing { hit, landed: false }) = &self.landing {
            self.push(Message::user(landing_words(hit.name)));
        } else if told {
            self.push(Message::user(REPEATED));
        }
        self.hear();
    }

    fn checked(&mut self, result: &ToolResult) {
        self.verifying = None;
        self.verified = Some(!result.is_error);
        if result.is_error {
            let text = format!(
                "The check `{}` did not succeed yet:\n{}",
                self.spawned.until.as_deref().unwrap_or(""),
                result.text
            );
            self.answer = None;
            self.push(Message::user(text));
        }
    }

    /// Words wait until no ask and no call is open, so that the transcript shows what the model knew when it spoke.
    pub(crate) fn told(&mut self, message: &str) {
        self.waiting_words.push(message.to_owned());
        if self.open_ask.is_none() && self.calls.is_empty() {
            self.hear();
        }
    }

    fn hear(&mut self) {
        for words in std::mem::take(&mut self.waiting_words) {
            self.push(Message::user(words));
        }
    }

    pub(crate) fn compacted(&mut self, summary: &str, upto: usize) {
        let upto = upto.clamp(self.superseded, self.transcript.len());
        let task = self.spawned.task.as_str();
        let text = format!("The task:\n{task}\n\nWhat happened so far, summarised:\n{summary}");
        self.transcript.insert(upto, TranscriptEntry::new(Message::user(text)));
        self.superseded = upto;
        self.context_full = false;
        self.summary = None;
        self.last_ask = None;
        self.compactions = match self.own.turns > u64::from(self.turns_at_compaction) {
            true => 1,
            false => self.compactions + 1,
        };
        self.turns_at_compaction = self.turn();
    }

    /// A run that a limit ended goes on when it gets more; any other ending is final.
    pub(crate) fn reopen(&mut self) {
        self.landing = None;
        let over = self.ended.as_ref().map(|ended| &ended.outcome);
        if matches!(over, Some(Outcome::Exhausted(_) | Outcome::TimedOut(_))) {
            self.ended = None;
            self.over = None;
            self.doom = None;
            self.repeats = (0, 0);
            self.cuts.reopen();
            self.push(Message::user(MORE_ROOM));
        }
    }

    pub(crate) fn doom(&mut self, outcome: Outcome) {
        self.doom.get_or_insert(outcome);
    }

    fn push(&mut self, message: Message) {
        self.transcript.push(TranscriptEntry::new(message));
    }
}

/// The summary in a reply. One that the provider cut is used as far as it goes, because asking again would be cut again, and a
/// summary that lacks its end is better than a history that does not fit; the model is told, so that it does not take the
/// summary for complete.
fn summary_of(reply: &Reply) -> String {
    match reply.stop {
        StopReason::Length => format!("{}\n[The summary was cut off here.]", reply.text()),
        StopReason::End | StopReason::Calls | StopReason::Refusal | StopReason::Other(_) => reply.text(),
    }
}

/// Tells calls and results apart; stable within one version of the program, which is all a guard needs.
fn fingerprint(call: &ToolCall, result: &ToolResult) -> u64 {
    let args = match &call.args {
        Args::Json(value) => value.to_string(),
        Args::Malformed(text) => text.clone(),
    };
    [call.name.as_str(), &args, &result.text].iter().fold(FNV_START, |hash, text| fnv(hash, text.as_bytes()))
}
