//! `Run`: the state of one run, folded from its facts, and the decision on its next step.
//!
//! Both are deterministic and do no IO, so that a resumed run decides the same as one that was never interrupted.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use uuid::Uuid;

use crate::{
    fact::{Asked, CancelledBy, Ended, LimitHit, Outcome, Purpose, Reservation, Spawned},
    limits::{Limit, Limits},
    message::{Message, ToolResult, TranscriptEntry, Usage},
    model::ModelError,
    place::Place,
    token_estimate::LastAsk,
    tool::Replay,
    tree::Share,
};

mod answer;
mod ask_state;
mod calls;
mod conversation;
mod cut;
mod fold;
mod next_step;
mod nudges;
mod questions;
mod work_clock;

pub use calls::{CallEffects, CallState};
pub use conversation::SharedMessages;
use fold::Fold;
use next_step::Decision;
pub use questions::RunQuestions;

/// Position of the `until` command among the calls of a turn. No reply has this many calls.
pub const VERIFICATION: u32 = u32::MAX;

/// Position of the check of an answer that a reply gave as JSON text among the calls of a turn.
pub const TEXT_ANSWER: u32 = u32::MAX - 1;

/// State of one run, folded from its facts.
#[derive(Clone, Debug)]
pub struct Run {
    /// ID of the run.
    pub id: Uuid,
    /// Place of the run in its tree.
    pub place: Place,
    /// Everything that the run was created with.
    pub spawned: Arc<Spawned>,
    /// Current limits, including later increases.
    pub limits: Limits,
    /// Usage of this run.
    pub own: Totals,
    /// Usage of this run and all runs below it.
    pub subtree: Totals,
    /// Reservations of this run and all runs below it.
    pub held: Reservation,
    /// The end, if the run has ended.
    pub ended: Option<Arc<Ended>>,
    pub(crate) links: Links,
    pub(crate) stopping: Stopping,
    pub(crate) work: work_clock::WorkClock,
    pub(crate) conversation: conversation::Conversation,
    pub(crate) asks: ask_state::AskState,
    calls: calls::Calls,
    answer: answer::AnswerState,
}

/// Relations of a run to others of its tree, by their position in the tree's list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    pub(crate) parent: Option<usize>,
    pub(crate) children: Vec<usize>,
    /// Background children that have not ended.
    pub(crate) open_background: u32,
    /// True if the parent has received the result of this background run.
    pub(crate) told_parent: bool,
    /// Position of this run, which is the order of spawning.
    pub(crate) index: usize,
    /// Number by which the tree looks up what similar runs needed.
    pub(crate) agent: usize,
    /// Runs below that have not ended.
    pub(crate) open_below: u64,
    /// The part of `held` that is for landings.
    pub(crate) landings: Reservation,
    /// The most that calls of the subtree that broke off may have cost beyond their estimates.
    pub(crate) unknown: Reservation,
    /// The part of the subtree that other processes drive, as far as its facts are not in this fold.
    pub(crate) unseen: Option<Box<Share>>,
}

impl Links {
    pub(crate) fn unseen(&self) -> &Share {
        self.unseen.as_deref().unwrap_or(&Share::NONE)
    }
}

/// Reasons for the run to end that do not come from its model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopping {
    /// Origin of the request to stop, if there was one.
    pub(crate) halted: Option<CancelledBy>,
    /// Outcome that the run must end with.
    forced_outcome: Option<Box<Outcome>>,
    landing: Landing,
    /// Amount held for the landing of this run.
    pub(crate) landing_hold: Reservation,
    /// The same before the last call.
    pub(crate) landing_before: Reservation,
}

/// Progress of the last turn that a run gets when it reaches a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Landing {
    /// No limit was reached.
    #[default]
    None,
    /// The last turn must come next, or is under way.
    Due(Box<LimitHit>),
    /// The last turn is over.
    Landed(Box<LimitHit>),
}

impl Stopping {
    /// Sets the outcome that the run must end with, unless there is one.
    pub(crate) fn force_outcome(&mut self, outcome: Outcome) {
        self.forced_outcome.get_or_insert_with(|| Box::new(outcome));
    }

    /// Makes the last turn due, unless it is due or over.
    fn land(&mut self, hit: impl FnOnce() -> LimitHit) {
        if self.landing == Landing::None {
            self.landing = Landing::Due(Box::new(hit()));
        }
    }
}

/// Usage of one or more runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tokens and money.
    pub usage: Usage,
    /// Of the money, the part that is an upper estimate, because the provider reported no usage.
    pub at_most_micros: u64,
    /// Replies that entered the transcript.
    pub turns: u64,
    /// Tool calls that began.
    pub tool_calls: u64,
    /// Runs below.
    pub children: u64,
}

/// The next step of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Call the model.
    Ask {
        /// Purpose of the call.
        purpose: Purpose,
        /// Instruction to add to the transcript first.
        nudge: Option<String>,
    },
    /// Execute these tool calls and delegations concurrently.
    Act(Vec<CallState>),
    /// Run the `until` command.
    Verify {
        /// The command.
        command: String,
        /// Set if it had begun before a crash.
        begun: Option<Replay>,
    },
    /// Check whether this answer, which the last reply gave as text, matches the schema.
    CheckAnswer {
        /// The answer.
        value: Value,
    },
    /// Replace the older history by this summary.
    Supersede {
        /// The summary.
        summary: String,
    },
    /// Wait for background children.
    Await,
    /// End the run.
    Stop(Ended),
}

impl Run {
    pub(crate) fn new(id: Uuid, place: Place, links: Links, spawned: Arc<Spawned>) -> Self {
        Self {
            id,
            place,
            limits: spawned.limits,
            own: Totals::default(),
            subtree: Totals::default(),
            held: Reservation::default(),
            ended: None,
            links,
            stopping: Stopping::default(),
            work: work_clock::WorkClock::default(),
            conversation: conversation::Conversation::new(&spawned),
            asks: ask_state::AskState::default(),
            calls: calls::Calls::default(),
            answer: answer::AnswerState::default(),
            spawned,
        }
    }

    /// Prepares to apply a fact that happened at this time of the tree's clock.
    pub(crate) fn fold(&mut self, clock: u64) -> Fold<'_> {
        Fold { run: self, clock }
    }

    /// Decides on the next step.
    pub fn next_step(&self) -> Step {
        Decision(self).next()
    }

    /// Returns the step that ends the run because of a limit: one last turn, or the end if that turn is over.
    pub fn land(&self, hit: LimitHit) -> Step {
        Decision(self).land(hit)
    }

    /// Returns whether the history was shortened since the last turn.
    pub fn is_freshly_compacted(&self) -> bool {
        self.conversation.compaction.is_fresh(self.own.turns)
    }

    /// Returns the step that shortens the history, or the end if earlier compactions did not help.
    pub fn compact(&self) -> Step {
        Decision(self).compact()
    }

    /// Returns the end of the run if it ended now with this outcome.
    pub fn ending(&self, outcome: Outcome) -> Ended {
        let text = self.conversation.latest_text(&self.asks.partial);
        let answer = self.answer.data.clone().filter(|_| outcome.is_done());
        Ended { text, data: answer.or_else(|| self.answer.results.clone()), outcome }
    }

    /// Returns the transcript.
    pub fn transcript(&self) -> &[Arc<TranscriptEntry>] {
        &self.conversation.entries
    }

    /// Returns the number of transcript entries that the latest summary replaces.
    pub fn superseded(&self) -> usize {
        self.conversation.superseded
    }

    /// Returns the part of the transcript that the model is sent: everything, or the latest summary and what follows it.
    pub fn messages(&self) -> &[Arc<TranscriptEntry>] {
        self.conversation.current()
    }

    /// Returns the last reply's calls that have no result yet.
    pub fn open_calls(&self) -> Vec<CallState> {
        self.calls.open().cloned().collect()
    }

    /// Returns the results of all calls of `tool`, including those of the last reply.
    pub fn results<'a>(&'a self, tool: &'a str) -> impl Iterator<Item = &'a ToolResult> {
        let earlier = self.transcript().iter().filter_map(|entry| match &entry.message {
            Message::Tool(result) => Some(&**result),
            Message::User { .. } | Message::Assistant(_) => None,
        });
        earlier.chain(self.calls.results()).filter(move |result| result.name == tool)
    }

    /// Returns what the run's calls did.
    pub fn effects(&self) -> CallEffects<'_> {
        self.calls.effects()
    }

    /// Returns the questions that its open calls have asked the user.
    pub fn questions(&self) -> RunQuestions<'_> {
        RunQuestions(self)
    }

    /// Returns the open model call, if there is one.
    pub fn open_ask(&self) -> Option<&Arc<Asked>> {
        self.asks.open.as_ref()
    }

    /// Returns the time at which the last model call began, by the tree's clock.
    pub fn last_ask_began(&self) -> u64 {
        self.asks.began
    }

    /// Returns the size of the last request, as reported by the provider.
    pub fn last_ask(&self) -> Option<LastAsk> {
        self.asks.last_size
    }

    /// Returns the number of attempts in a row that failed with the model of the last attempt.
    pub fn failed_asks(&self) -> u32 {
        self.asks.failed
    }

    /// Returns the model of the last attempt.
    pub fn asked_model(&self) -> Option<&str> {
        self.asks.model.as_deref()
    }

    /// Returns the error of the last attempt, if it failed.
    pub fn last_error(&self) -> Option<&ModelError> {
        self.asks.last_error.as_deref()
    }

    /// Returns the turn that the next reply, or the calls of the last one, belong to.
    pub fn turn(&self) -> u32 {
        u32::try_from(self.own.turns).unwrap_or(u32::MAX)
    }

    /// Returns whether the run only waits, for other runs or for answers of the user.
    pub fn is_waiting(&self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let delegated =
            |state: &CallState| state.begun.is_some() && calls::waits_for_runs(&state.call.name, state.begun);
        let waits = |state: &CallState| delegated(state) || self.questions().hold(state.key);
        if self.calls.open().next().is_some() {
            return self.calls.open().all(waits);
        }
        self.links.open_background > 0 && self.asks.open.is_none() && self.next_step() == Step::Await
    }

    /// Returns whether the parent has received the result of this background run.
    pub fn told_parent(&self) -> bool {
        self.links.told_parent
    }

    /// Returns the origin of the request to stop the run, if there was one.
    pub fn halted(&self) -> Option<&CancelledBy> {
        self.stopping.halted.as_ref()
    }

    /// Returns the time of the first step by the tree's clock.
    pub fn began(&self) -> Option<u64> {
        self.work.began
    }
}

/// Returns whether the `until` command of a run succeeded, or `None` if there is no such command.
pub(crate) fn verified(run: &Run) -> Option<bool> {
    run.spawned.until.as_ref().map(|_| run.answer.check == answer::Check::Passed)
}

/// A run that reached a time limit is timed out; one that reached any other limit is exhausted.
impl From<LimitHit> for Outcome {
    fn from(hit: LimitHit) -> Self {
        match hit.name {
            Limit::Wall | Limit::Work => Self::TimedOut(hit),
            Limit::Turns
            | Limit::Depth
            | Limit::Tokens
            | Limit::Cost
            | Limit::ToolCalls
            | Limit::Children
            | Limit::Repeats
            | Limit::Compactions
            | Limit::Output => Self::Exhausted(hit),
        }
    }
}

/// Returns the outcome of a run that reached this limit.
pub fn out_of(hit: LimitHit) -> Outcome {
    hit.into()
}

/// Returns whether a run needs a structured answer that it does not have yet.
pub fn lacks_answer(run: &Run) -> bool {
    run.spawned.schema.is_some() && run.answer.data.is_none()
}

/// Returns the context variables that a child can see: only those that its definition names.
pub fn shared(context: &BTreeMap<String, Value>, keys: &[String]) -> BTreeMap<String, Value> {
    context.iter().filter(|(key, _)| keys.contains(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}
