//! Folds facts into finished activities. It uses no clock, no randomness and no network, so that the same facts always give
//! the same spans, in whichever process they are folded.

use std::{collections::HashMap, sync::Arc};

use homing_core::{
    fact::{Asked, CallRefusal, Called, Ended, Fact, Purpose, Record, Spawned},
    message::{Reply, ToolResult, TranscriptEntry, Usage},
    model::AskFailure,
    place::Place,
    tool::CallKey,
    trace_context::{SpanId, TraceContext},
    tree::RunTree,
};
use uuid::Uuid;

use crate::{
    activity::{Activity, AskActivity, CallActivity, RunActivity},
    span::SpanBodies,
};

/// An activity that ended with a fact.
#[derive(Clone, Debug)]
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
    bodies: SpanBodies,
}

/// The runs of a tree. They are kept until the last one has ended, because a cancelled child may end after its root.
#[derive(Debug, Default)]
struct TreeSpans {
    runs: HashMap<Uuid, RunSpan>,
    open: usize,
    /// The position in a distributed trace that the caller sent.
    sent: Option<Arc<TraceContext>>,
    /// The transcripts, if bodies are exported, until a record is missing.
    transcripts: Option<RunTree>,
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
    ask: Option<OpenAsk>,
    calls: HashMap<CallKey, (u64, Box<Called>)>,
    sent: Option<Arc<TraceContext>>,
}

/// A model call that was not answered yet.
#[derive(Debug)]
struct OpenAsk {
    at: u64,
    asked: Asked,
    input: Option<Vec<Arc<TranscriptEntry>>>,
}

impl SpanFold {
    /// Creates a fold without activities. Transcripts are only followed if bodies are exported.
    pub fn new(bodies: SpanBodies) -> Self {
        Self { trees: HashMap::new(), bodies }
    }

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
            let bodies = self.bodies;
            let tree = self.trees.entry(record.tree).or_insert_with(|| TreeSpans::new(bodies));
            if record.run == record.tree {
                tree.sent = TraceContext::of_tags(&spawned.tags).map(Arc::new);
            }
            tree.runs.insert(record.run, RunSpan::new(record, spawned.clone(), tree.sent.clone()));
            tree.open += 1;
            tree.follow(record);
            return None;
        }
        let tree = self.trees.get_mut(&record.tree)?;
        tree.follow(record);
        let input = tree.messages(record);
        let run = tree.runs.get_mut(&record.run)?;
        match &record.fact {
            Fact::Asked(asked) => run.asked(record.at, asked, input),
            Fact::Called(called) => _ = run.calls.insert(called.key, (record.at, called.clone())),
            Fact::Extended { .. } => tree.open += run.reopen(record.at),
            Fact::Replied { reply, first_token_ms } => {
                return run.replied(record, Ok(reply.clone()), reply.usage, *first_token_ms);
            }
            Fact::AskFailed { failure, charge } => {
                return run.replied(record, Err(AskFailure::clone(failure)), *charge, None);
            }
            Fact::Returned { key, result, refused, .. } => return Some(run.returned(record, *key, result, refused)),
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

impl TreeSpans {
    fn new(bodies: SpanBodies) -> Self {
        let transcripts = (bodies == SpanBodies::Included).then(RunTree::default);
        Self { transcripts, ..Self::default() }
    }

    /// Applies a record to the transcripts. After a gap, such as one of a full queue, they are not known any more.
    fn follow(&mut self, record: &Record) {
        if self.transcripts.as_mut().is_some_and(|tree| tree.apply(record).is_err()) {
            self.transcripts = None;
        }
    }

    /// Returns the messages of the request that a record begins.
    fn messages(&self, record: &Record) -> Option<Vec<Arc<TranscriptEntry>>> {
        match &record.fact {
            Fact::Asked(asked) if asked.purpose != Purpose::Compaction => {
                Some(self.transcripts.as_ref()?.get(record.run)?.messages().to_vec())
            }
            _ => None,
        }
    }
}

impl RunSpan {
    fn new(record: &Record, spawned: Arc<Spawned>, sent: Option<Arc<TraceContext>>) -> Self {
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
            sent,
        }
    }

    fn asked(&mut self, at: u64, asked: &Asked, input: Option<Vec<Arc<TranscriptEntry>>>) {
        self.first_step.get_or_insert(at);
        self.ask = Some(OpenAsk { at, asked: asked.clone(), input });
    }

    fn replied(
        &mut self,
        record: &Record,
        answer: Result<Arc<Reply>, AskFailure>,
        used: Usage,
        first_token_ms: Option<u64>,
    ) -> Option<FinishedActivity> {
        self.used += used;
        let OpenAsk { at: from, asked, input } = self.ask.take()?;
        let id = SpanId::of_ask(record.run, record.seq);
        let detail = AskActivity { asked, answer, used, first_token_ms, input };
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
        let parent = parent.or_else(|| self.sent.as_ref().map(|sent| sent.span));
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
            sent: self.sent.clone(),
            detail,
        }
    }
}
