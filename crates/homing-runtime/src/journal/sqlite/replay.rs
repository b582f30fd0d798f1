//! Plays a cassette again: models and tools that answer what was recorded and touch nothing. Whatever asks for something
//! that was not recorded is told so, and it is written down with its place and step.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use homing_core::{
    BoxFuture,
    definition::ModelChoice,
    fact::{Fact, Purpose, Record},
    message::{FNV_START, Reply, ToolCall, ToolResult, TranscriptEntry, fnv},
    model::{AskFailure, Model, ModelCard, ModelError, ModelRequest, Models, OnDelta, ResolvedModel},
    place::Place,
    rule::Subjects,
    run::Run,
    tool::{Tool, ToolContext, ToolOutput, ToolSpec},
    tree::RunTree,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{agent_loop::model_call::request_hash as hash, journal::sqlite::cassette::Cassette, run_tools::RunTools};

/// A cassette that is being played.
pub struct Replay {
    asks: Mutex<Vec<RecordedAsk>>,
    calls: HashMap<RecordedStep, RecordedCall>,
    resolved: HashMap<(String, Option<String>), Vec<String>>,
    divergences: Mutex<Vec<Divergence>>,
}

/// Where the replay asked for something other than what was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The run of the replay, where it is known.
    pub run: Option<Uuid>,
    /// Its place, where it is known; the run tells it otherwise.
    pub place: Option<Place>,
    /// The turn, from 1; 0 where it is unknown.
    pub turn: u32,
    /// What is different, for people.
    pub what: String,
}

/// The place of a call's run, its turn and its position in the reply: the same in each replay, as ids are not.
type RecordedStep = (Place, u32, u32);

struct RecordedAsk {
    place: Place,
    turn: u32,
    /// The whole request.
    request: u64,
    /// The conversation alone; a summary's request is made of it and has none.
    messages: Option<u64>,
    said: Result<Arc<Reply>, AskFailure>,
    used: bool,
}

struct RecordedCall {
    call: ToolCall,
    result: Option<Arc<ToolResult>>,
}

impl Replay {
    /// Begins at the cassette's beginning.
    pub fn new(cassette: &Cassette) -> Arc<Self> {
        let mut tape = Tape::default();
        for record in cassette.records() {
            tape.take(record);
        }
        Arc::new(Self {
            asks: Mutex::new(tape.asks),
            calls: tape.calls,
            resolved: tape.resolved,
            divergences: Mutex::default(),
        })
    }

    /// Models that give the recorded replies. `card` says what is known of a model, so that money adds up as it did.
    pub fn models(self: &Arc<Self>, card: impl Fn(&str) -> ModelCard + Send + Sync + 'static) -> Arc<dyn Models> {
        Arc::new(PlayedModels { replay: self.clone(), card: Box::new(card) })
    }

    /// A tool that looks like `tool` and gives the recorded results.
    pub fn tool(self: &Arc<Self>, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        Arc::new(PlayedTool { replay: self.clone(), tool })
    }

    /// What was asked for and is not on the cassette, in order.
    pub fn divergences(&self) -> Vec<Divergence> {
        self.divergences.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replies on the cassette that nobody asked for; after a faithful replay, none. Calls need no look of their own: what
    /// they return is part of the next request.
    pub fn unplayed(&self) -> Vec<Divergence> {
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        let left = asks.iter().filter(|ask| !ask.used && ask.said.is_ok()).map(|ask| Divergence {
            run: None,
            place: Some(ask.place.clone()),
            turn: ask.turn,
            what: "a recorded reply was not asked for".to_owned(),
        });
        left.collect()
    }

    fn diverged(&self, divergence: Divergence) {
        self.divergences.lock().unwrap_or_else(PoisonError::into_inner).push(divergence);
    }

    fn reply(&self, request: &ModelRequest<'_>) -> Result<Reply, AskFailure> {
        let (run, turn) = whose(request.key);
        let said = {
            let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
            take_ask(&mut asks, request)
        };
        let (said, what) = match said {
            RecordedMatch::Same(said) => return said.map(|reply| Reply::clone(&reply)),
            RecordedMatch::OtherPrompt(said) => (said, "its prompt or its tools are not those of the recording"),
            RecordedMatch::Nothing => {
                let what = "it was not asked this in the recording";
                (Err(AskFailure::free(ModelError::Unusable { reason: format!("the replay diverged: {what}") })), what)
            }
        };
        self.diverged(Divergence { run, place: None, turn, what: what.to_owned() });
        said.map(|reply| Reply::clone(&reply))
    }

    fn call(&self, context: &ToolContext, name: &str, args: &Value) -> ToolOutput {
        let step = (context.place.clone(), context.key.turn, context.key.index);
        recorded(&self.calls, &step, name, args).unwrap_or_else(|what| {
            let output = ToolOutput::error(format!("the replay diverged: {what}"));
            let (run, turn) = (Some(context.key.run), context.key.turn);
            self.diverged(Divergence { run, place: Some(context.place.clone()), turn, what });
            output
        })
    }
}

enum RecordedMatch {
    Same(Result<Arc<Reply>, AskFailure>),
    OtherPrompt(Result<Arc<Reply>, AskFailure>),
    Nothing,
}

/// The first recorded ask that was the same and was not played yet.
fn take_ask(asks: &mut [RecordedAsk], request: &ModelRequest<'_>) -> RecordedMatch {
    let kit = RunTools::new(request.tools.specs.clone());
    let with_tools = hash(request.system, Some(&kit), request.messages);
    // A summary is asked for without any tools, which is not the same as with none of them.
    let without = request.tools.specs.is_empty().then(|| hash(request.system, None, request.messages));
    let same = |ask: &RecordedAsk| ask.request == with_tools || Some(ask.request) == without;
    let spoken = conversation(request.messages);
    let mut take = |wanted: &dyn Fn(&RecordedAsk) -> bool| {
        let ask = asks.iter_mut().find(|ask| !ask.used && wanted(ask))?;
        ask.used = true;
        Some(ask.said.clone())
    };
    match (take(&same), &mut take) {
        (Some(said), _) => RecordedMatch::Same(said),
        (None, take) => {
            take(&|ask| ask.messages == Some(spoken)).map_or(RecordedMatch::Nothing, RecordedMatch::OtherPrompt)
        }
    }
}

fn recorded(
    calls: &HashMap<RecordedStep, RecordedCall>,
    step: &RecordedStep,
    name: &str,
    args: &Value,
) -> Result<ToolOutput, String> {
    let Some(RecordedCall { call, result: Some(result) }) = calls.get(step) else {
        return Err(format!("`{name}` was not called here in the recording"));
    };
    let before = match &call.args {
        homing_core::message::Args::Json(args) => args,
        homing_core::message::Args::Malformed(_) => &Value::Null,
    };
    if call.name != name || before != args {
        return Err(format!("`{name}` was called with {args}; in the recording it was `{}` with {before}", call.name));
    }
    let ToolResult { text, images, data, is_error, .. } = ToolResult::clone(result);
    Ok(ToolOutput { text, images, data, is_error })
}

/// The run and the turn that a request's key names.
fn whose(key: &str) -> (Option<Uuid>, u32) {
    let (run, turn) = key.split_once(':').unwrap_or((key, ""));
    (run.parse().ok(), turn.parse().unwrap_or(0))
}

fn conversation(messages: &[Arc<TranscriptEntry>]) -> u64 {
    messages.iter().fold(FNV_START, |hash, entry| fnv(hash, &entry.hash().to_le_bytes()))
}

/// What is collected from a cassette before it is played.
#[derive(Default)]
struct Tape {
    fold: RunTree,
    asks: Vec<RecordedAsk>,
    calls: HashMap<RecordedStep, RecordedCall>,
    resolved: HashMap<(String, Option<String>), Vec<String>>,
}

impl Tape {
    fn take(&mut self, record: &Record) {
        // A cassette's records make a tree: that was seen when it was made.
        let _ = self.fold.apply(record);
        match &record.fact {
            Fact::Spawned(spawned) => {
                let parent = spawned.parent.and_then(|parent| self.fold.get(parent));
                let parent = parent.and_then(|parent| parent.spawned.models.first().cloned());
                self.resolved.insert((chosen(&spawned.agent.model), parent), spawned.models.clone());
            }
            Fact::Asked(asked) => {
                let Some(run) = self.fold.get(record.run) else { return };
                let messages = (asked.purpose != Purpose::Compaction).then(|| conversation(run.messages()));
                self.ask(run.place.clone(), turn_of(run), asked.request_hash, messages);
            }
            Fact::Replied { reply } => self.answer(&record.place, Ok(reply.clone())),
            Fact::AskFailed { failure, .. } => self.answer(&record.place, Err(failure.clone())),
            Fact::Called(called) => {
                let step = (record.place.clone(), called.key.turn, called.key.index);
                self.calls.insert(step, RecordedCall { call: called.call.clone(), result: None });
            }
            Fact::Returned { key, result, .. } => {
                if let Some(call) = self.calls.get_mut(&(record.place.clone(), key.turn, key.index)) {
                    call.result = Some(result.clone());
                }
            }
            Fact::Told { .. }
            | Fact::Halted { .. }
            | Fact::Compacted { .. }
            | Fact::Extended { .. }
            | Fact::Ended(_) => (),
        }
    }

    fn ask(&mut self, place: Place, turn: u32, request: u64, messages: Option<u64>) {
        let reason = "the recording ends before it was answered".to_owned();
        let said = Err(AskFailure::free(ModelError::Unusable { reason }));
        self.asks.push(RecordedAsk { place, turn, request, messages, said, used: false });
    }

    /// A run has one ask under way at a time, so an answer belongs to its last.
    fn answer(&mut self, place: &Place, said: Result<Arc<Reply>, AskFailure>) {
        let Some(at) = self.asks.iter().rposition(|ask| ask.place == *place) else { return };
        let retried = |failure: &AskFailure| failure.error.is_retryable();
        match said {
            // The storms of that day are not sailed through again: the same ask follows, with its answer.
            Err(failure) if retried(&failure) => {
                self.asks.remove(at);
            }
            said => self.asks[at].said = said,
        }
    }
}

fn turn_of(run: &Run) -> u32 {
    run.turn().saturating_add(1)
}

fn chosen(choice: &ModelChoice) -> String {
    serde_json::to_string(choice).unwrap_or_default()
}

struct PlayedModels {
    replay: Arc<Replay>,
    card: Box<dyn Fn(&str) -> ModelCard + Send + Sync>,
}

impl Models for PlayedModels {
    fn resolve(&self, choice: &ModelChoice, parent: Option<&str>) -> Result<ResolvedModel, ModelError> {
        let recorded = self.replay.resolved.get(&(chosen(choice), parent.map(str::to_owned)));
        // Whoever was not in the recording gets a model that will say so when it is asked.
        let names = recorded.cloned().unwrap_or_else(|| vec![parent.unwrap_or("replay/unknown").to_owned()]);
        Ok(ResolvedModel { names, warnings: Vec::new() })
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let mut card = (self.card)(name);
        // Nobody is asked, so nobody is rate-limited.
        "replay".clone_into(&mut card.gate);
        Ok(Arc::new(PlayedModel { replay: self.replay.clone(), card }))
    }
}

struct PlayedModel {
    replay: Arc<Replay>,
    card: ModelCard,
}

impl Model for PlayedModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        let reply = self.replay.reply(&request);
        if let Ok(reply) = &reply {
            on_delta(homing_core::model::Delta::Text(&reply.text()));
        }
        Box::pin(std::future::ready(reply))
    }
}

struct PlayedTool {
    replay: Arc<Replay>,
    tool: Arc<dyn Tool>,
}

impl Tool for PlayedTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn subjects(&self, context: &ToolContext, args: &Value) -> Subjects {
        self.tool.subjects(context, args)
    }

    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        let output = self.replay.call(context, &self.tool.spec().name, &args);
        Box::pin(std::future::ready(output))
    }
}
