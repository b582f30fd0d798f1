//! Replays a cassette: models and tools that return what was recorded and have no effects. A request that was not recorded
//! gets an error, and is reported as a divergence with its place and turn.

mod answers;
mod difference;
mod order;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use homing_core::{
    BoxFuture,
    definition::ModelChoice,
    fact::{Fact, Purpose, Record},
    json_text::JsonText,
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

use crate::{
    agent_loop::request::request_hash as hash,
    journal::{FactListener, sqlite::cassette::Cassette},
    run_tools::RunTools,
};
use answers::RecordedAnswers;
use difference::difference;
use order::Order;

/// A cassette that is being replayed.
pub struct CassetteReplay {
    asks: Mutex<Vec<RecordedAsk>>,
    calls: HashMap<RecordedStep, RecordedCall>,
    resolved: HashMap<(String, Option<String>), Vec<String>>,
    divergences: Mutex<Vec<Divergence>>,
    answers: RecordedAnswers,
    order: Order,
}

impl std::fmt::Debug for CassetteReplay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CassetteReplay").field("divergences", &self.divergences()).finish_non_exhaustive()
    }
}

/// A difference between the replay and the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Position in the recording of the answer, or of the end that follows it.
    position: u64,
    /// The system prompt and the conversation, to describe a difference.
    sent: (Arc<str>, Vec<Arc<TranscriptEntry>>),
    /// True if the model was a program, such as a team's, which decides again.
    is_program: bool,
    used: bool,
}

struct RecordedCall {
    call: Arc<ToolCall>,
    result: Option<Arc<ToolResult>>,
    /// Position in the recording of the result.
    position: u64,
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
            answers: tape.answers,
            order: tape.order,
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

    /// The listener through which the replay follows its own facts. With it, runs that worked at the same time end in the
    /// recorded order, and divergences name the place of their run.
    pub fn listener(self: &Arc<Self>) -> FactListener {
        let replay = self.clone();
        Arc::new(move |record| replay.order.happened(record))
    }

    /// The requests and calls that are not in the recording, in order.
    pub fn divergences(&self) -> Vec<Divergence> {
        self.divergences.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Recorded replies that were not used; none after a faithful replay. Calls need no check of their own, since their
    /// results are part of the next request.
    pub fn unplayed(&self) -> Vec<Divergence> {
        let asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        let left = asks.iter().filter(|ask| !ask.used && !ask.is_program && ask.answer.is_ok()).map(|ask| Divergence {
            run: None,
            place: Some(ask.place.clone()),
            turn: ask.turn,
            what: "the run ended before using this recorded reply".to_owned(),
        });
        left.collect()
    }

    fn diverged(&self, divergence: Divergence) {
        self.order.let_go();
        self.divergences.lock().unwrap_or_else(PoisonError::into_inner).push(divergence);
    }

    async fn reply(&self, request: &ModelRequest<'_>) -> Result<Reply, AskFailure> {
        let (run, turn) = run_and_turn(request.key);
        let place = run.and_then(|run| self.order.place(run));
        let (found, what) = {
            let mut asks = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
            let found = take_ask(&mut asks, request);
            let what = describe(&asks, place.as_ref(), turn, request, &found);
            (found, what)
        };
        let answer = match found {
            RecordedMatch::Same(answer, position) => {
                self.order.reach(run.unwrap_or_default(), position).await;
                return answer.map(|reply| Reply::clone(&reply));
            }
            RecordedMatch::OtherPrompt(answer) => answer,
            RecordedMatch::Nothing => {
                let reason = "the replay diverged: this request is not in the recording".to_owned();
                Err(AskFailure::free(ModelError::Unusable { reason }))
            }
        };
        self.diverged(Divergence { run, place, turn, what });
        answer.map(|reply| Reply::clone(&reply))
    }

    async fn call(&self, context: &ToolContext, name: &str, args: &Value) -> ToolOutput {
        let step = (context.place.clone(), context.key.turn, context.key.index);
        if let Some(call) = self.calls.get(&step) {
            self.order.reach(context.key.run, call.position).await;
        }
        recorded(&self.calls, &step, name, args).unwrap_or_else(|what| {
            let output = ToolOutput::error(format!("the replay diverged: {what}"));
            let (run, turn) = (Some(context.key.run), context.key.turn);
            self.diverged(Divergence { run, place: Some(context.place.clone()), turn, what });
            output
        })
    }
}

/// Describes the difference to the recorded request of the same run and turn.
fn describe(
    asks: &[RecordedAsk],
    place: Option<&Place>,
    turn: u32,
    request: &ModelRequest<'_>,
    found: &RecordedMatch,
) -> String {
    let general = match found {
        RecordedMatch::Same(..) => return String::new(),
        RecordedMatch::OtherPrompt(_) => "its prompt or its tools differ from the recording",
        RecordedMatch::Nothing => "this request is not in the recording",
    };
    let ask = asks.iter().find(|ask| Some(&ask.place) == place && ask.turn == turn && !ask.is_program);
    let Some(RecordedAsk { sent: (system, messages), .. }) = ask else { return general.to_owned() };
    let what = difference((system, messages), (request.system, request.messages));
    match found {
        RecordedMatch::Nothing => format!("{general}: {what}"),
        RecordedMatch::Same(..) | RecordedMatch::OtherPrompt(_) => what,
    }
}

enum RecordedMatch {
    /// The answer, and its position in the recording.
    Same(Result<Arc<Reply>, AskFailure>, u64),
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
        Some((ask.answer.clone(), ask.position))
    };
    match (take(&same), &mut take) {
        (Some((answer, position)), _) => RecordedMatch::Same(answer, position),
        (None, take) => take(&|ask| ask.messages == Some(conversation_hash))
            .map_or(RecordedMatch::Nothing, |(answer, _)| RecordedMatch::OtherPrompt(answer)),
    }
}

fn recorded(
    calls: &HashMap<RecordedStep, RecordedCall>,
    step: &RecordedStep,
    name: &str,
    args: &Value,
) -> Result<ToolOutput, String> {
    let Some(RecordedCall { call, result: Some(result), .. }) = calls.get(step) else {
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
    let data = data.as_ref().map(JsonText::value);
    Ok(ToolOutput::text(text).images(images).data(data).is_error(is_error))
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
    answers: RecordedAnswers,
    order: Order,
}

impl Tape {
    fn take(&mut self, record: &Record) {
        self.order.expect(record);
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
                let reason = "the recording ends before this reply".to_owned();
                let ask = RecordedAsk {
                    place: run.place.clone(),
                    turn: turn_of(run),
                    request: asked.request_hash,
                    messages,
                    answer: Err(AskFailure::free(ModelError::Unusable { reason })),
                    position: record.seq,
                    sent: (run.spawned.system.clone(), run.messages().to_vec()),
                    is_program: asked.max_output == 0,
                    used: false,
                };
                self.asks.push(ask);
            }
            Fact::Replied { reply, .. } => self.set_answer(record, Ok(reply.clone())),
            Fact::AskFailed { failure, .. } => self.set_answer(record, Err(AskFailure::clone(failure))),
            // The last reply of a run leads to its end, which must come in its order.
            Fact::Ended(_) => {
                if let Some(ask) = self.asks.iter_mut().rev().find(|ask| ask.place == record.place) {
                    ask.position = record.seq;
                }
            }
            Fact::Called(called) => {
                let step = (record.place.clone(), called.key.turn, called.key.index);
                self.calls.insert(step, RecordedCall { call: called.call.clone(), result: None, position: 0 });
            }
            Fact::Returned { key, result, .. } => {
                if let Some(call) = self.calls.get_mut(&(record.place.clone(), key.turn, key.index)) {
                    (call.result, call.position) = (Some(result.clone()), record.seq);
                }
            }
            Fact::Questioned { .. } | Fact::Answered { .. } => self.answers.take(record),
            Fact::Told { .. } | Fact::Halted { .. } | Fact::Compacted { .. } | Fact::Extended { .. } => (),
        }
    }

    /// Records the answer to a run's last request: a run has one request open at a time.
    fn set_answer(&mut self, record: &Record, answer: Result<Arc<Reply>, AskFailure>) {
        let Some(at) = self.asks.iter().rposition(|ask| ask.place == record.place) else { return };
        match answer {
            // Failed attempts are not replayed: the same request follows, with its reply.
            Err(failure) if failure.error.is_retryable() => {
                self.asks.remove(at);
            }
            answer => (self.asks[at].answer, self.asks[at].position) = (answer, record.seq),
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
        Box::pin(async move {
            let reply = self.replay.reply(&request).await?;
            on_delta(homing_core::model::Delta::Text(&reply.text()));
            Ok(reply)
        })
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

    fn preview(&self, context: &ToolContext, args: &Value) -> Option<String> {
        self.tool.preview(context, args)
    }

    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move { self.replay.call(context, &self.tool.spec().name, &args).await })
    }
}
