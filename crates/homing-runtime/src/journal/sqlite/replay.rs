//! Replays a cassette: models and tools that return what was recorded and have no effects. A request that was not recorded
//! gets an error, and is reported as a divergence with its place and turn.

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

/// A cassette that is being replayed.
pub struct CassetteReplay {
    asks: Mutex<Vec<RecordedAsk>>,
    calls: HashMap<RecordedStep, RecordedCall>,
    resolved: HashMap<(String, Option<String>), Vec<String>>,
    divergences: Mutex<Vec<Divergence>>,
}

/// A difference between the replay and the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The run of the replay, if known.
    pub run: Option<Uuid>,
    /// The place of the run, if known.
    pub place: Option<Place>,
    /// The turn, from 1; 0 if unknown.
    pub turn: u32,
    /// Description of the difference.
    pub what: String,
}

/// The place of a call's run, its turn and its position in the reply. Unlike IDs they are the same in each replay.
type RecordedStep = (Place, u32, u32);

struct RecordedAsk {
    place: Place,
    turn: u32,
    /// Hash of the whole request.
    request: u64,
    /// Hash of the conversation alone; `None` for a compaction, whose request is derived from it.
    messages: Option<u64>,
    answer: Result<Arc<Reply>, AskFailure>,
    used: bool,
}

struct RecordedCall {
    call: ToolCall,
    result: Option<Arc<ToolResult>>,
}

impl CassetteReplay {
    /// Starts at the beginning of the cassette.
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

    /// Models that return the recorded replies. `card` returns the model card of a model, so that costs are computed as before.
    pub fn models(self: &Arc<Self>, card: impl Fn(&str) -> ModelCard + Send + Sync + 'static) -> Arc<dyn Models> {
        Arc::new(ReplayedModels { replay: self.clone(), card: Box::new(card) })
    }

    /// A tool with the specification of `tool` that returns the recorded results.
    pub fn tool(self: &Arc<Self>, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        Arc::new(ReplayedTool { replay: self.clone(), tool })
    }

    /// The requests and calls that are not in the recording, in order.
    pub fn divergences(&self) -> Vec<Divergence> {
        self.divergences.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Recorded replies that were not used; none after a faithful replay. Calls need no check of their own, since their
    /// results are part of the next request.
    pub fn unplayed(&self) -> Vec<Divergence> {
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        let left = asks.iter().filter(|ask| !ask.used && ask.answer.is_ok()).map(|ask| Divergence {
            run: None,
            place: Some(ask.place.clone()),
            turn: ask.turn,
            what: "the run ended before using this recorded reply".to_owned(),
        });
        left.collect()
    }

    fn diverged(&self, divergence: Divergence) {
        self.divergences.lock().unwrap_or_else(PoisonError::into_inner).push(divergence);
    }

    fn reply(&self, request: &ModelRequest<'_>) -> Result<Reply, AskFailure> {
        let (run, turn) = run_and_turn(request.key);
        let answer = {
            let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
            take_ask(&mut asks, request)
        };
        let (answer, what) = match answer {
            RecordedMatch::Same(answer) => return answer.map(|reply| Reply::clone(&reply)),
            RecordedMatch::OtherPrompt(answer) => (answer, "its prompt or its tools differ from the recording"),
            RecordedMatch::Nothing => {
                let what = "this request is not in the recording";
                (Err(AskFailure::free(ModelError::Unusable { reason: format!("the replay diverged: {what}") })), what)
            }
        };
        self.diverged(Divergence { run, place: None, turn, what: what.to_owned() });
        answer.map(|reply| Reply::clone(&reply))
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

/// The first recorded request that is the same and was not used yet.
fn take_ask(asks: &mut [RecordedAsk], request: &ModelRequest<'_>) -> RecordedMatch {
    let run_tools = RunTools::of_request(request.tools.specs.clone());
    let with_tools = hash(request.system, Some(&run_tools), request.messages);
    // The request of a compaction has no tool list, which has another hash than an empty list.
    let without = request.tools.specs.is_empty().then(|| hash(request.system, None, request.messages));
    let same = |ask: &RecordedAsk| ask.request == with_tools || Some(ask.request) == without;
    let conversation_hash = conversation(request.messages);
    let mut take = |matches: &dyn Fn(&RecordedAsk) -> bool| {
        let ask = asks.iter_mut().find(|ask| !ask.used && matches(ask))?;
        ask.used = true;
        Some(ask.answer.clone())
    };
    match (take(&same), &mut take) {
        (Some(answer), _) => RecordedMatch::Same(answer),
        (None, take) => take(&|ask| ask.messages == Some(conversation_hash))
            .map_or(RecordedMatch::Nothing, RecordedMatch::OtherPrompt),
    }
}

fn recorded(
    calls: &HashMap<RecordedStep, RecordedCall>,
    step: &RecordedStep,
    name: &str,
    args: &Value,
) -> Result<ToolOutput, String> {
    let Some(RecordedCall { call, result: Some(result) }) = calls.get(step) else {
        return Err(format!("the recording has no call of `{name}` here"));
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
fn run_and_turn(key: &str) -> (Option<Uuid>, u32) {
    let (run, turn) = key.split_once(':').unwrap_or((key, ""));
    (run.parse().ok(), turn.parse().unwrap_or(0))
}

fn conversation(messages: &[Arc<TranscriptEntry>]) -> u64 {
    messages.iter().fold(FNV_START, |hash, entry| fnv(hash, &entry.hash().to_le_bytes()))
}

/// The contents of a cassette, collected before the replay.
#[derive(Default)]
struct Tape {
    fold: RunTree,
    asks: Vec<RecordedAsk>,
    calls: HashMap<RecordedStep, RecordedCall>,
    resolved: HashMap<(String, Option<String>), Vec<String>>,
}

impl Tape {
    fn take(&mut self, record: &Record) {
        // The records of a cassette form a tree: that was checked when it was made.
        let _ = self.fold.apply(record);
        match &record.fact {
            Fact::Spawned(spawned) => {
                let parent = spawned.parent.and_then(|parent| self.fold.get(parent));
                let parent = parent.and_then(|parent| parent.spawned.models.first().cloned());
                self.resolved.insert((chosen(&spawned.agent.model.choice), parent), spawned.models.clone());
            }
            Fact::Asked(asked) => {
                let Some(run) = self.fold.get(record.run) else { return };
                let messages = (asked.purpose != Purpose::Compaction).then(|| conversation(run.messages()));
                self.ask(run.place.clone(), turn_of(run), asked.request_hash, messages);
            }
            Fact::Replied { reply } => self.set_answer(&record.place, Ok(reply.clone())),
            Fact::AskFailed { failure, .. } => self.set_answer(&record.place, Err(failure.clone())),
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
        let reason = "the recording ends before this reply".to_owned();
        let answer = Err(AskFailure::free(ModelError::Unusable { reason }));
        self.asks.push(RecordedAsk { place, turn, request, messages, answer, used: false });
    }

    /// Records the answer to a run's last request: a run has one request open at a time.
    fn set_answer(&mut self, place: &Place, answer: Result<Arc<Reply>, AskFailure>) {
        let Some(at) = self.asks.iter().rposition(|ask| ask.place == *place) else { return };
        match answer {
            // Failed attempts are not replayed: the same request follows, with its reply.
            Err(failure) if failure.error.is_retryable() => {
                self.asks.remove(at);
            }
            answer => self.asks[at].answer = answer,
        }
    }
}

fn turn_of(run: &Run) -> u32 {
    run.turn().saturating_add(1)
}

fn chosen(choice: &ModelChoice) -> String {
    serde_json::to_string(choice).unwrap_or_default()
}

struct ReplayedModels {
    replay: Arc<CassetteReplay>,
    card: Box<dyn Fn(&str) -> ModelCard + Send + Sync>,
}

impl Models for ReplayedModels {
    fn resolve(&self, choice: &ModelChoice, parent: Option<&str>) -> Result<ResolvedModel, ModelError> {
        let recorded = self.replay.resolved.get(&(chosen(choice), parent.map(str::to_owned)));
        // An agent that is not in the recording gets a model whose first reply is an error.
        let names = recorded.cloned().unwrap_or_else(|| vec![parent.unwrap_or("replay/unknown").to_owned()]);
        Ok(ResolvedModel { names, warnings: Vec::new() })
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let mut card = (self.card)(name);
        // No provider is called, so no rate limit applies.
        "replay".clone_into(&mut card.rate_limit_key);
        Ok(Arc::new(ReplayedModel { replay: self.replay.clone(), card }))
    }
}

struct ReplayedModel {
    replay: Arc<CassetteReplay>,
    card: ModelCard,
}

impl Model for ReplayedModel {
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

struct ReplayedTool {
    replay: Arc<CassetteReplay>,
    tool: Arc<dyn Tool>,
}

impl Tool for ReplayedTool {
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
