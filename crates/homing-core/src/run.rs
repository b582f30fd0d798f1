//! One run as its facts tell it, and the one decision about it: what comes next. Pure, so that a resumed run decides the
//! same as one that was never interrupted.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use uuid::Uuid;

use crate::{
    fact::{Asked, CancelledBy, Ended, FailureKind, LimitHit, Outcome, Purpose, Reservation, Spawned},
    limits::{Cap, Limit, Limits},
    message::{Message, Reply, ToolCall, ToolResult, TranscriptEntry, Usage},
    place::Place,
    token_estimate::LastAsk,
    tool::{CallKey, Replay},
};

mod cut;
mod fold;

/// The position that the check of `until` takes in a turn: no reply has so many calls.
pub const VERIFICATION: u32 = u32::MAX;

/// One run, as the journal tells it.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its id.
    pub id: Uuid,
    /// Where it stands.
    pub place: Place,
    /// Its position in the tree's list.
    pub(crate) parent: Option<usize>,
    pub(crate) children: Vec<usize>,
    /// How it began.
    pub spawned: Arc<Spawned>,
    /// What it may spend, extensions included.
    pub limits: Limits,
    /// Everything said so far.
    pub transcript: Vec<Arc<TranscriptEntry>>,
    /// How many entries the latest summary stands for.
    pub superseded: usize,
    /// What this run itself used.
    pub own: Totals,
    /// What this run and everything below it used.
    pub subtree: Totals,
    /// What this run and everything below it may still be charged for asks under way.
    pub held: Reservation,
    /// The tree's clock at its first step.
    pub began: Option<u64>,
    /// The tree's clock at its end.
    pub over: Option<u64>,
    /// Milliseconds it spent asking or acting, up to `busy_since`.
    worked_ms: u64,
    /// The tree's clock when it last began to ask or act, while it still does.
    busy_since: Option<u64>,
    busy: u32,
    /// Whether this run's background children are still out.
    pub open_background: u32,
    /// The calls of the last reply.
    pub(crate) calls: Vec<CallState>,
    open_ask: Option<Asked>,
    /// Attempts in a row that failed with the model that was asked last.
    pub failed_asks: u32,
    /// The model that was asked last.
    pub asked_model: Option<String>,
    repair_asked: bool,
    /// Whether its background result has reached the parent.
    pub told_parent: bool,
    last_error: Option<crate::model::ModelError>,
    partial: String,
    waiting_words: Vec<String>,
    landing: Option<Landing>,
    cuts: cut::Cuts,
    repairs: u32,
    repeats: (u64, u32),
    verified: Option<bool>,
    verifying: Option<Replay>,
    compactions: u32,
    turns_at_compaction: u32,
    context_full: bool,
    summary: Option<String>,
    answer: Option<Value>,
    doom: Option<Outcome>,
    last_ask: Option<LastAsk>,
    /// Who asked it to stop.
    pub halted: Option<CancelledBy>,
    /// How it ended.
    pub ended: Option<Arc<Ended>>,
    /// Calls that policy refused.
    pub denied: Vec<String>,
}

/// What was used, in the words of the envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tokens and money.
    pub usage: Usage,
    /// Replies that entered the transcript.
    pub turns: u64,
    /// Calls that began.
    pub tool_calls: u64,
    /// Runs below.
    pub children: u64,
}

/// The last permitted turn: why, and whether it is behind the run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Landing {
    hit: LimitHit,
    landed: bool,
}

/// One call of the last reply, and how far it has come.
#[derive(Clone, Debug, PartialEq)]
pub struct CallState {
    /// The call.
    pub call: ToolCall,
    /// Its identity.
    pub key: CallKey,
    /// Set once it has begun.
    pub begun: Option<Replay>,
    pub(crate) result: Option<Arc<ToolResult>>,
}

impl CallState {
    /// A call that has no result yet.
    pub fn new(key: CallKey, call: ToolCall, begun: Option<Replay>) -> Self {
        Self { call, key, begun, result: None }
    }
}

/// What a run needs next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask the model; `nudge` is added to the transcript first.
    Ask {
        /// What for.
        purpose: Purpose,
        /// Words to add before asking.
        nudge: Option<String>,
    },
    /// Carry out these calls, side by side: tools and delegations.
    Act(Vec<CallState>),
    /// Find out whether the command of `until` succeeds.
    Verify {
        /// The command.
        command: String,
        /// Set where it had begun before a crash.
        begun: Option<Replay>,
    },
    /// Let this summary stand for the older history.
    Supersede {
        /// The summary.
        summary: String,
    },
    /// Wait for background children.
    Await,
    /// Stop, like this.
    Stop(Ended),
}

impl Run {
    pub(crate) fn new(id: Uuid, place: Place, parent: Option<usize>, spawned: Arc<Spawned>) -> Self {
        let inherited = spawned.inherited.iter().cloned().map(TranscriptEntry::new);
        let transcript = inherited.chain([TranscriptEntry::new(Message::user(spawned.task.clone()))]).collect();
        Self {
            id,
            place,
            parent,
            children: Vec::new(),
            limits: spawned.limits,
            spawned,
            transcript,
            superseded: 0,
            own: Totals::default(),
            subtree: Totals::default(),
            held: Reservation::default(),
            began: None,
            over: None,
            worked_ms: 0,
            busy_since: None,
            busy: 0,
            open_background: 0,
            calls: Vec::new(),
            open_ask: None,
            failed_asks: 0,
            asked_model: None,
            repair_asked: false,
            told_parent: false,
            last_error: None,
            partial: String::new(),
            waiting_words: Vec::new(),
            landing: None,
            cuts: cut::Cuts::default(),
            repairs: 0,
            repeats: (0, 0),
            verified: None,
            verifying: None,
            compactions: 0,
            turns_at_compaction: 0,
            context_full: false,
            summary: None,
            answer: None,
            doom: None,
            last_ask: None,
            halted: None,
            ended: None,
            denied: Vec::new(),
        }
    }

    /// Decides what comes next, from the facts alone.
    pub fn next_step(&self) -> Step {
        if let Some(by) = &self.halted {
            return self.stop(Outcome::Cancelled { by: by.clone() });
        }
        let open = self.open_calls();
        if !open.is_empty() {
            return Step::Act(open);
        }
        if let Some(outcome) = &self.doom {
            return self.stop(outcome.clone());
        }
        if let Some(summary) = &self.summary {
            return Step::Supersede { summary: summary.clone() };
        }
        if self.context_full {
            return self.compact();
        }
        match self.transcript.last().map(|entry| &entry.message) {
            Some(Message::Assistant(reply)) => self.after_last_word(reply),
            Some(Message::User { .. } | Message::Tool(_)) | None => self.ask_turn(),
        }
    }

    /// The next turn, or the landing where the turns run out with it.
    fn ask_turn(&self) -> Step {
        if let Some(answer) = &self.answer {
            return self.finish(Some(answer.clone()));
        }
        if let Some(Landing { hit, landed: false }) = &self.landing {
            return self.land(hit.clone());
        }
        if let Some(hit) = self.output_hit() {
            return self.stop(Outcome::Exhausted(hit));
        }
        match self.limits.turns {
            Cap::At(limit) if self.own.turns >= limit => self.stop(Outcome::Exhausted(self.turns_hit(limit))),
            Cap::At(limit) if limit > 1 && self.own.turns + 1 == limit => self.land(self.turns_hit(limit)),
            Cap::At(_) | Cap::Unlimited | Cap::Default => Step::Ask { purpose: Purpose::Turn, nudge: self.cut_nudge() },
        }
    }

    /// The step that ends this run in good order because of a limit: one last ask, or the end where that is behind it.
    pub fn land(&self, hit: LimitHit) -> Step {
        match &self.landing {
            Some(Landing { landed: true, hit }) => self.stop(out_of(hit.clone())),
            Some(Landing { landed: false, .. }) => Step::Ask { purpose: Purpose::Landing(hit), nudge: None },
            None => {
                let nudge = Some(self.landing_nudge(hit.name));
                Step::Ask { purpose: Purpose::Landing(hit), nudge }
            }
        }
    }

    fn turns_hit(&self, limit: u64) -> LimitHit {
        LimitHit { name: Limit::Turns, limit, spent: self.own.turns, place: self.place.clone() }
    }

    /// What follows a reply without open calls.
    fn after_last_word(&self, reply: &Reply) -> Step {
        if let Some(Landing { hit, landed: true }) = &self.landing {
            return self.stop(out_of(hit.clone()));
        }
        if let Some(outcome) = stopped_short(reply) {
            return self.stop(outcome);
        }
        // A reply that the provider cut is never an ending, not even a wrong one: the rules below are for whole replies.
        if self.cuts.is_cut() {
            return self.ask_turn();
        }
        if self.spawned.schema.is_some() && self.answer.is_none() {
            return self.repair(
                PROSE,
                FailureKind::Schema,
                "the answer was prose, not the structured answer asked for",
            );
        }
        if self.joined_text().trim().is_empty() && self.answer.is_none() {
            return self.repair(EMPTY, FailureKind::Model, "the model ended without an answer");
        }
        if self.open_background > 0 {
            return Step::Await;
        }
        self.finish(self.answer.clone())
    }

    /// One more try, then the failure.
    fn repair(&self, nudge: &str, kind: FailureKind, message: &str) -> Step {
        if self.repairs > 0 {
            return self.stop(Outcome::failed(kind, message));
        }
        let nudge = (!self.repair_asked).then(|| nudge.to_owned());
        Step::Ask { purpose: Purpose::Repair, nudge }
    }

    /// The step that makes the history shorter, or the end where that brought nothing twice.
    pub fn compact(&self) -> Step {
        if self.compactions >= 2 && self.own.turns <= u64::from(self.turns_at_compaction) {
            let spent = u64::from(self.compactions);
            let hit = LimitHit { name: Limit::Compactions, limit: 2, spent, place: self.place.clone() };
            return self.stop(Outcome::Exhausted(hit));
        }
        Step::Ask { purpose: Purpose::Compaction, nudge: None }
    }

    /// Done, once the command of `until` has succeeded.
    fn finish(&self, data: Option<Value>) -> Step {
        if self.open_background > 0 {
            return Step::Await;
        }
        match (&self.spawned.until, self.verified) {
            (Some(command), None | Some(false)) => Step::Verify { command: command.clone(), begun: self.verifying },
            (None, _) | (Some(_), Some(true)) => {
                let mut ended = self.ending(Outcome::Done);
                if let (Some(data), true) = (&data, ended.text.trim().is_empty()) {
                    ended.text = serde_json::to_string_pretty(data).unwrap_or_default();
                }
                ended.data = data;
                Step::Stop(ended)
            }
        }
    }

    fn stop(&self, outcome: Outcome) -> Step {
        Step::Stop(self.ending(outcome))
    }

    /// How the run ends if it ends like this now: with its last words.
    pub fn ending(&self, outcome: Outcome) -> Ended {
        Ended { text: self.last_words(), data: self.answer.clone().filter(|_| outcome.is_done()), outcome }
    }

    /// The latest words of the model that say anything, whole or partial.
    fn last_words(&self) -> String {
        if !self.partial.trim().is_empty() {
            return self.partial_text();
        }
        let joined = self.joined_text();
        if !joined.trim().is_empty() {
            return joined;
        }
        let words = self.transcript.iter().rev().filter_map(|entry| match &entry.message {
            Message::Assistant(reply) => Some(reply.text()),
            Message::User { .. } | Message::Tool(_) => None,
        });
        words.into_iter().find(|text| !text.trim().is_empty()).unwrap_or_default()
    }

    /// The last reply's calls that have no result yet.
    pub fn open_calls(&self) -> Vec<CallState> {
        self.calls.iter().filter(|state| state.result.is_none()).cloned().collect()
    }

    /// What calls of `tool` returned to this run, the latest reply's included.
    pub fn results<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a ToolResult> {
        let earlier = self.transcript.iter().filter_map(|entry| match &entry.message {
            Message::Tool(result) => Some(result),
            Message::User { .. } | Message::Assistant(_) => None,
        });
        let latest = self.calls.iter().filter_map(|state| state.result.as_deref());
        earlier.chain(latest).filter(move |result| result.name == tool)
    }

    /// The ask that is under way, if one is.
    pub fn open_ask(&self) -> Option<&Asked> {
        self.open_ask.as_ref()
    }

    /// The size of the last request that the provider reported.
    pub fn last_ask(&self) -> Option<LastAsk> {
        self.last_ask
    }

    /// What the model is sent: the transcript, or the summary and what came after it.
    pub fn messages(&self) -> &[Arc<TranscriptEntry>] {
        &self.transcript[self.superseded..]
    }

    /// The turn that the next reply, or the calls of the last one, belong to.
    pub fn turn(&self) -> u32 {
        u32::try_from(self.own.turns).unwrap_or(u32::MAX)
    }

    /// Whether the command of `until` succeeded; `None` where there is none.
    pub fn verified(&self) -> Option<bool> {
        self.spawned.until.as_ref().map(|_| self.verified == Some(true))
    }

    /// Whether the run only waits for others.
    pub fn is_waiting(&self) -> bool {
        let open = self.open_calls();
        let family = |state: &CallState| state.begun.is_some() && is_family(&state.call.name);
        self.ended.is_none() && ((!open.is_empty() && open.iter().all(family)) || self.next_step() == Step::Await)
    }

    /// The error of the last attempt, if the last attempt failed.
    pub fn last_error(&self) -> Option<&crate::model::ModelError> {
        self.last_error.as_ref()
    }
}

/// The calls through which runs reach other runs.
pub fn is_family(tool: &str) -> bool {
    matches!(tool, "delegate" | "wait" | "tell" | "cancel")
}

/// What a run reads first when it goes on after a limit had ended it.
pub const MORE_ROOM: &str = "You have been given more room. Go on with the task; tools are available again.";
const PROSE: &str = "Give your answer by calling the tool `answer`; its parameters are the form that is expected.";
const EMPTY: &str = "Your last message was empty. Report now what you found or did, in words.";

fn landing_words(limit: Limit) -> String {
    let reason = landing_reason(limit);
    format!("{reason} Tools are off now. Report what you have: results first, then what is missing.")
}

fn landing_reason(limit: Limit) -> &'static str {
    match limit {
        Limit::Turns => "This is your last turn.",
        Limit::Tokens => "Your token budget is nearly used up.",
        Limit::Cost => "Your money budget is nearly used up.",
        Limit::ToolCalls => "You have used all the tool calls you were given.",
        Limit::Wall | Limit::Work => "Your time is nearly up.",
        Limit::Repeats => "You are repeating yourself.",
        Limit::Depth | Limit::Children | Limit::Compactions | Limit::Output => "You have reached a limit.",
    }
}

/// Running out of time has a name of its own.
pub fn out_of(hit: LimitHit) -> Outcome {
    match hit.name {
        Limit::Wall | Limit::Work => Outcome::TimedOut(hit),
        Limit::Turns
        | Limit::Depth
        | Limit::Tokens
        | Limit::Cost
        | Limit::ToolCalls
        | Limit::Children
        | Limit::Repeats
        | Limit::Compactions
        | Limit::Output => Outcome::Exhausted(hit),
    }
}

/// A reply that ended for a reason that makes it no answer.
fn stopped_short(reply: &Reply) -> Option<Outcome> {
    use crate::message::StopReason;
    match reply.stop {
        StopReason::Refusal => Some(Outcome::failed(FailureKind::Refused, "the model declined to answer")),
        StopReason::End | StopReason::Calls | StopReason::Length | StopReason::Other(_) => None,
    }
}

/// Context keys that a child gets to see: those its definition names, and no others.
pub fn shared(context: &BTreeMap<String, Value>, keys: &[String]) -> BTreeMap<String, Value> {
    context.iter().filter(|(key, _)| keys.contains(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}
