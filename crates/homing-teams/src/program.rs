//! The model that is a team's program: it reads the transcript, and turns the decision of a script into a reply.

use std::{collections::HashMap, sync::Arc};

use homing_core::{
    BoxFuture,
    message::{Args, Part, Reply, StopReason, ToolCall},
    model::{AskFailure, Charge, Delta, Model, ModelCard, ModelError, ModelRequest, OnDelta, ToolChoice},
    place::Place,
    tool_names::{ANSWER, DELEGATE, WAIT},
};
use serde_json::{Map, Value, json};

use crate::{history::History, limit_fields::LimitFields};

/// Decides the next move of a team. Pure: the same history always gives the same move.
pub(crate) trait TeamScript: Send + Sync {
    /// The next move.
    fn next(&self, history: &History<'_>) -> Move;

    /// The partial result of a team that must stop here.
    fn so_far(&self, history: &History<'_>) -> String;

    /// The results so far as data: the state of a graph, the conversation of a chat, the items of a map, the tasks of a crew.
    fn results(&self, history: &History<'_>) -> Value;
}

/// The next move of a team.
#[derive(Debug)]
pub(crate) enum Move {
    /// Start members, call tools, or wait.
    Act { words: String, calls: Vec<TeamCall> },
    /// End with this answer. `data` is the structured answer, if it is not simply the results.
    Answer { text: String, data: Option<Value> },
    /// End as failed: a part of the work failed, or the program cannot continue.
    Fail { why: String },
}

/// One tool call of a team's program. Its ID identifies the job, so the transcript needs no other index.
#[derive(Debug)]
pub(crate) struct TeamCall {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) args: Value,
}

/// A delegation to a member.
pub(crate) struct DelegateCall<'a> {
    pub(crate) agent: &'a str,
    pub(crate) task: String,
    pub(crate) schema: Option<&'a Value>,
    pub(crate) limits: &'a LimitFields,
    pub(crate) background: bool,
}

/// The milliseconds before a retry: a second before the first, twice as long before each further one, up to a minute. The ID of
/// a job ends with the number of its attempt.
fn retry_pause(id: &str) -> Option<u64> {
    let attempt: u32 = id.rsplit_once('#')?.1.parse().ok()?;
    let doubled = attempt.checked_sub(1)?.min(6);
    Some((1_000_u64 << doubled).min(60_000))
}

impl DelegateCall<'_> {
    /// The tool call that starts the member.
    pub(crate) fn call(self, id: String) -> TeamCall {
        let (pause, limits) = (retry_pause(&id).map(Value::from), self.limits.for_delegate());
        let more = [("delay_ms", pause), ("schema", self.schema.cloned()), ("limits", limits)];
        let fields = [
            ("agent", Some(self.agent.into())),
            ("task", Some(self.task.into())),
            ("report", Some("facts".into())),
            ("background", Some(self.background.into())),
        ];
        // A map keeps the arguments of thousands of calls, and a map that grows has room for twice as many fields.
        let mut args = Map::with_capacity(fields.len() + more.iter().filter(|(_, value)| value.is_some()).count());
        args.extend(fields.into_iter().chain(more).filter_map(|(key, value)| Some((key.to_owned(), value?))));
        TeamCall { id, tool: DELEGATE.to_owned(), args: args.into() }
    }
}

/// The tool call that waits until the first of these runs has ended.
pub(crate) fn wait_for_any(places: Vec<Place>) -> TeamCall {
    let args = json!({"runs": places, "any": true, "report": "facts"});
    TeamCall { id: "wait".to_owned(), tool: WAIT.to_owned(), args }
}

/// A script as a model.
pub(crate) struct ProgramModel {
    card: ModelCard,
    script: Arc<dyn TeamScript>,
    /// The parameters that the prompt of each member uses, by the member's name.
    shared: HashMap<String, Value>,
    /// The names under which members are registered, if they differ from those in the team.
    names: HashMap<String, String>,
}

impl ProgramModel {
    /// Creates the program of the team whose model has this name.
    pub(crate) fn new(
        name: &str,
        script: Arc<dyn TeamScript>,
        shared: HashMap<String, Value>,
        names: HashMap<String, String>,
    ) -> Self {
        // A model with no output tokens needs no reservation.
        Self { card: ModelCard::free(name).max_output(0), script, shared, names }
    }

    fn decide(&self, request: ModelRequest<'_>) -> Result<Reply, AskFailure> {
        let history = History::new(request.messages);
        if request.choice == ToolChoice::Off {
            let data = Some(self.script.results(&history));
            return Ok(reply(self.script.so_far(&history), Vec::new()).data(data));
        }
        match self.script.next(&history) {
            Move::Act { words, calls } => Ok(reply(words, calls.into_iter().map(|call| self.share(call)).collect())),
            Move::Answer { text, data } => {
                let text = match &data {
                    Some(data) => format!("{data:#}"),
                    None if text.trim().is_empty() => "The team ended without an answer.".to_owned(),
                    None => text,
                };
                let data = data.unwrap_or_else(|| self.script.results(&history));
                history.discard();
                Ok(if takes_data(&request) {
                    let (id, tool) = (ANSWER.to_owned(), ANSWER.to_owned());
                    reply(text, vec![TeamCall { id, tool, args: data }])
                } else {
                    reply(text, Vec::new()).data(data)
                })
            }
            Move::Fail { why } => {
                let error = ModelError::Team { reason: why, data: Some(Arc::new(self.script.results(&history))) };
                Err(AskFailure::new(error, Charge::Nothing).partial(self.script.so_far(&history)))
            }
        }
    }

    /// Adds the parameters that the prompt of a member uses, and names it as it is registered.
    fn share(&self, mut call: TeamCall) -> TeamCall {
        let agent = call.args.get("agent").and_then(Value::as_str).filter(|_| call.tool == DELEGATE).map(str::to_owned);
        let Some(agent) = agent else { return call };
        if let Some(context) = self.shared.get(&agent) {
            call.args["context"] = context.clone();
        }
        if let Some(name) = self.names.get(&agent) {
            call.args["agent"] = json!(name);
        }
        call
    }
}

fn takes_data(request: &ModelRequest<'_>) -> bool {
    request.tools.specs.iter().any(|spec| spec.name == ANSWER)
}

fn reply(words: String, calls: Vec<TeamCall>) -> Reply {
    let stop = if calls.is_empty() { StopReason::End } else { StopReason::Calls };
    let part = |call: TeamCall| Part::from(ToolCall { id: call.id, name: call.tool, args: Args::Json(call.args) });
    let words = (!words.is_empty()).then_some(Part::Text(words));
    Reply::new(words.into_iter().chain(calls.into_iter().map(part)).collect()).stop(stop)
}

impl Model for ProgramModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let reply = self.decide(request)?;
            on_delta(Delta::Text(&reply.text()));
            Ok(reply)
        })
    }
}
