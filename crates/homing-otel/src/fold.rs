//! Folds facts into finished activities. It uses no clock, no randomness and no network, so that the same facts always give
//! the same spans, in whichever process they are folded.

use std::{collections::HashMap, sync::Arc};

use homing_core::{
    fact::{Asked, CallRefusal, Called, Ended, Fact, Record, Spawned},
    message::{Reply, ToolResult, Usage},
    model::AskFailure,
    place::Place,
    tool::CallKey,
};
use uuid::Uuid;

use crate::{
    activity::{Activity, AskActivity, CallActivity, RunActivity},
    span::SpanId,
};

/// An activity that ended with a fact.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FinishedActivity {
    /// A run.
    Run(Activity<RunActivity>),
    /// An attempt of a model call.
    Ask(Box<Activity<AskActivity>>),
    /// A tool call.
    Call(Activity<CallActivity>),
}

/// The activities in progress, according to the facts so far.
#[derive(Debug, Default)]
pub struct SpanFold {
    trees: HashMap<Uuid, TreeSpans>,
}

/// The runs of a tree. They are kept until the last one has ended, because a cancelled child may end after its root.
#[derive(Debug, Default)]
struct TreeSpans {
    runs: HashMap<Uuid, RunSpan>,
    open: usize,
}

/// The state of a run that its spans need.
#[derive(Debug)]
struct RunSpan {
    place: Place,
    spawned: Arc<Spawned>,
    /// Time of its start, or of its continuation after an end.
    since: u64,
    first_step: Option<u64>,
    used: Usage,
    is_over: bool,
    /// Number of times it was continued after an end. Each continuation has its own span.
    continuations: u32,
    ask: Option<(u64, Asked)>,
    calls: HashMap<CallKey, (u64, Box<Called>)>,
}

impl SpanFold {
    /// Applies a fact and returns the activity that ended with it. A fact of an unknown run has no effect.
    pub fn apply(&mut self, record: &Record) -> Option<FinishedActivity> {
        let finished = self.fold(record);
        if self.trees.get(&record.tree).is_some_and(|tree| tree.open == 0) {
            self.trees.remove(&record.tree);
        }
        finished
    }

    /// Applies a fact from before a tree was resumed. Activities that ended then are not reported again.
    pub fn replay(&mut self, record: &Record) {
        self.fold(record);
    }

    fn fold(&mut self, record: &Record) -> Option<FinishedActivity> {
        if let Fact::Spawned(spawned) = &record.fact {
            let tree = self.trees.entry(record.tree).or_default();
            tree.runs.insert(record.run, RunSpan::new(record, spawned.clone()));
            tree.open += 1;
            return None;
        }
        let tree = self.trees.get_mut(&record.tree)?;
        let run = tree.runs.get_mut(&record.run)?;
        match &record.fact {
            Fact::Asked(asked) => run.asked(record.at, asked),
            Fact::Called(called) => _ = run.calls.insert(called.key, (record.at, called.clone())),
            Fact::Extended { .. } => tree.open += run.reopen(record.at),
            Fact::Replied { reply } => return run.replied(record, Ok(reply.clone()), reply.usage),
            Fact::AskFailed { failure, charge } => return run.replied(record, Err(failure.clone()), *charge),
            Fact::Returned { key, result, refused } => return Some(run.returned(record, *key, result, refused)),
            Fact::Ended(_) if run.is_over => (),
            Fact::Ended(ended) => {
                tree.open -= 1;
                return Some(run.ended(record, ended));
            }
            Fact::Spawned(_)
            | Fact::Questioned { .. }
            | Fact::Answered { .. }
            | Fact::Told { .. }
            | Fact::Halted { .. }
            | Fact::Compacted { .. } => (),
        }
        None
    }
}

impl RunSpan {
    fn new(record: &Record, spawned: Arc<Spawned>) -> Self {
        Self {
            place: record.place.clone(),
            spawned,
            since: record.at,
            first_step: None,
            used: Usage::default(),
            is_over: false,
            continuations: 0,
            ask: None,
            calls: HashMap::new(),
        }
    }

    fn asked(&mut self, at: u64, asked: &Asked) {
        self.first_step.get_or_insert(at);
        self.ask = Some((at, asked.clone()));
    }

    fn replied(
        &mut self,
        record: &Record,
        answer: Result<Arc<Reply>, AskFailure>,
        used: Usage,
    ) -> Option<FinishedActivity> {
        self.used += used;
        let (from, asked) = self.ask.take()?;
        let id = SpanId::of_ask(record.run, record.seq);
        let detail = AskActivity { asked, answer, used };
        let ask = self.activity(record, id, Some(self.id(record.run)), from, detail);
        Some(FinishedActivity::Ask(Box::new(ask)))
    }

    fn returned(
        &mut self,
        record: &Record,
        key: CallKey,
        result: &Arc<ToolResult>,
        refused: &Option<CallRefusal>,
    ) -> FinishedActivity {
        let open = self.calls.remove(&key);
        let from = open.as_ref().map_or(record.at, |(at, _)| *at);
        let (called, refused) = (open.map(|(_, called)| called), refused.clone());
        let detail = CallActivity { key, called, result: result.clone(), refused };
        FinishedActivity::Call(self.activity(record, SpanId::of_call(key), Some(self.id(record.run)), from, detail))
    }

    fn ended(&mut self, record: &Record, ended: &Arc<Ended>) -> FinishedActivity {
        let parent = self.spawned.parent_call.map(SpanId::of_call);
        let parent = parent.or_else(|| self.spawned.parent.map(|run| SpanId::of_run(run, 0)));
        let queued_ms = self.first_step.take().map(|at| at.saturating_sub(self.since));
        let detail = RunActivity { ended: ended.clone(), used: std::mem::take(&mut self.used), queued_ms };
        let run = self.activity(record, self.id(record.run), parent, self.since, detail);
        self.is_over = true;
        FinishedActivity::Run(run)
    }

    /// Continues a run that had ended; returns the number of runs that are open because of it.
    fn reopen(&mut self, at: u64) -> usize {
        if !self.is_over {
            return 0;
        }
        (self.is_over, self.since) = (false, at);
        self.continuations += 1;
        1
    }

    fn id(&self, run: Uuid) -> SpanId {
        SpanId::of_run(run, self.continuations)
    }

    fn activity<T>(&self, record: &Record, id: SpanId, parent: Option<SpanId>, from: u64, detail: T) -> Activity<T> {
        Activity {
            tree: record.tree,
            run: record.run,
            place: self.place.clone(),
            spawned: self.spawned.clone(),
            id,
            parent,
            from,
            to: record.at.max(from),
            detail,
        }
    }
}
