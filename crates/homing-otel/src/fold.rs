//! The fold from facts to what is over. Pure: it knows no clock, no randomness and no network, so that the same facts always
//! give the same spans, whichever process folds them.

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
    activity::{Activity, Ask, Call, Run},
    span::SpanId,
};

/// What came to its end with one fact.
#[derive(Clone, Debug, PartialEq)]
pub enum Finished {
    /// A run.
    Run(Activity<Run>),
    /// An attempt at asking a model.
    Ask(Box<Activity<Ask>>),
    /// A call of a tool.
    Call(Activity<Call>),
}

/// What is under way, as the facts so far tell it.
#[derive(Debug, Default)]
pub struct Fold {
    trees: HashMap<Uuid, Tree>,
}

/// The runs of a tree, kept until the last of them is over: a cancelled child may end after its root.
#[derive(Debug, Default)]
struct Tree {
    runs: HashMap<Uuid, Node>,
    open: usize,
}

/// A run, as far as its spans need it.
#[derive(Debug)]
struct Node {
    place: Place,
    spawned: Arc<Spawned>,
    /// When it was sent out, or went on after an end.
    since: u64,
    first_step: Option<u64>,
    used: Usage,
    is_over: bool,
    /// How often it was given more after an end: it goes on under another span.
    again: u32,
    ask: Option<(u64, Asked)>,
    calls: HashMap<CallKey, (u64, Box<Called>)>,
}

impl Fold {
    /// Takes a fact in, and says what came to its end with it. A fact of a run that nobody introduced changes nothing.
    pub fn apply(&mut self, record: &Record) -> Option<Finished> {
        let finished = self.take(record);
        if self.trees.get(&record.tree).is_some_and(|tree| tree.open == 0) {
            self.trees.remove(&record.tree);
        }
        finished
    }

    /// Takes in what happened before a tree was resumed: nothing of it is told again, and open things stay open.
    pub fn recall(&mut self, record: &Record) {
        self.take(record);
    }

    fn take(&mut self, record: &Record) -> Option<Finished> {
        if let Fact::Spawned(spawned) = &record.fact {
            let tree = self.trees.entry(record.tree).or_default();
            tree.runs.insert(record.run, Node::new(record, spawned.clone()));
            tree.open += 1;
            return None;
        }
        let tree = self.trees.get_mut(&record.tree)?;
        let node = tree.runs.get_mut(&record.run)?;
        match &record.fact {
            Fact::Asked(asked) => node.asked(record.at, asked),
            Fact::Called(called) => _ = node.calls.insert(called.key, (record.at, called.clone())),
            Fact::Extended { .. } => tree.open += node.reopen(record.at),
            Fact::Replied { reply } => return node.replied(record, Ok(reply.clone()), reply.usage),
            Fact::AskFailed { failure, charge } => return node.replied(record, Err(failure.clone()), *charge),
            Fact::Returned { key, result, refused } => return Some(node.returned(record, *key, result, refused)),
            Fact::Ended(_) if node.is_over => (),
            Fact::Ended(ended) => {
                tree.open -= 1;
                return Some(node.ended(record, ended));
            }
            Fact::Spawned(_) | Fact::Told { .. } | Fact::Halted { .. } | Fact::Compacted { .. } => (),
        }
        None
    }
}

impl Node {
    fn new(record: &Record, spawned: Arc<Spawned>) -> Self {
        Self {
            place: record.place.clone(),
            spawned,
            since: record.at,
            first_step: None,
            used: Usage::default(),
            is_over: false,
            again: 0,
            ask: None,
            calls: HashMap::new(),
        }
    }

    fn asked(&mut self, at: u64, asked: &Asked) {
        self.first_step.get_or_insert(at);
        self.ask = Some((at, asked.clone()));
    }

    fn replied(&mut self, record: &Record, answer: Result<Arc<Reply>, AskFailure>, used: Usage) -> Option<Finished> {
        self.used += used;
        let (from, asked) = self.ask.take()?;
        let id = SpanId::of_ask(record.run, record.seq);
        let what = Ask { asked, answer, used };
        let ask = self.activity(record, id, Some(self.id(record.run)), from, what);
        Some(Finished::Ask(Box::new(ask)))
    }

    fn returned(
        &mut self,
        record: &Record,
        key: CallKey,
        result: &Arc<ToolResult>,
        refused: &Option<CallRefusal>,
    ) -> Finished {
        let open = self.calls.remove(&key);
        let from = open.as_ref().map_or(record.at, |(at, _)| *at);
        let (called, refused) = (open.map(|(_, called)| called), refused.clone());
        let what = Call { key, called, result: result.clone(), refused };
        Finished::Call(self.activity(record, SpanId::of_call(key), Some(self.id(record.run)), from, what))
    }

    fn ended(&mut self, record: &Record, ended: &Arc<Ended>) -> Finished {
        let within = self.spawned.parent_call.map(SpanId::of_call);
        let within = within.or_else(|| self.spawned.parent.map(|parent| SpanId::of_run(parent, 0)));
        let queued_ms = self.first_step.take().map(|at| at.saturating_sub(self.since));
        let what = Run { ended: ended.clone(), used: std::mem::take(&mut self.used), queued_ms };
        let run = self.activity(record, self.id(record.run), within, self.since, what);
        self.is_over = true;
        Finished::Run(run)
    }

    /// A run that was given more after its end goes on; says how many runs are open because of it.
    fn reopen(&mut self, at: u64) -> usize {
        if !self.is_over {
            return 0;
        }
        (self.is_over, self.since) = (false, at);
        self.again += 1;
        1
    }

    fn id(&self, run: Uuid) -> SpanId {
        SpanId::of_run(run, self.again)
    }

    fn activity<T>(&self, record: &Record, id: SpanId, within: Option<SpanId>, from: u64, what: T) -> Activity<T> {
        Activity {
            tree: record.tree,
            run: record.run,
            place: self.place.clone(),
            spawned: self.spawned.clone(),
            id,
            within,
            from,
            to: record.at.max(from),
            what,
        }
    }
}
