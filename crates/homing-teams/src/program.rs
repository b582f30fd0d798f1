//! The model that is a program: it reads the transcript, lets a script decide, and writes the decision down as a reply.

use std::{collections::HashMap, sync::Arc};

use homing_core::{
    BoxFuture,
    message::{Args, Part, Reply, StopReason, ToolCall},
    model::{AskFailure, Charge, Delta, Model, ModelCard, ModelError, ModelRequest, OnDelta, ToolChoice},
};
use serde_json::{Value, json};

use crate::{history::History, limit_fields::LimitFields};

/// Decides what a team does next. Pure: the same past always decides the same.
pub(crate) trait TeamScript: Send + Sync {
    /// What comes next.
    fn next(&self, past: &History<'_>) -> Move;

    /// What there is by now, for a team that must stop here.
    fn so_far(&self, past: &History<'_>) -> String;
}

/// What a team does next.
#[derive(Debug)]
pub(crate) enum Move {
    /// Send somebody out, call functions, wait.
    Act { words: String, calls: Vec<TeamCall> },
    /// The end, with this answer.
    Answer { text: String, data: Option<Value> },
    /// The end as failed: part of the work failed, or the program cannot go on.
    Fail { why: String },
}

/// One call of a team's program. Its id says which job it is for, and so the transcript needs no other index.
#[derive(Debug)]
pub(crate) struct TeamCall {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) args: Value,
}

/// Somebody to be sent out.
pub(crate) struct Errand<'a> {
    pub(crate) agent: &'a str,
    pub(crate) task: String,
    pub(crate) schema: Option<&'a Value>,
    pub(crate) bounds: &'a LimitFields,
    pub(crate) background: bool,
}

impl Errand<'_> {
    /// The call that sends them out.
    pub(crate) fn call(self, id: String) -> TeamCall {
        let mut args =
            json!({"agent": self.agent, "task": self.task, "report": "facts", "background": self.background});
        if let Some(schema) = self.schema {
            args["schema"] = schema.clone();
        }
        if let Some(limits) = self.bounds.for_delegate() {
            args["limits"] = limits;
        }
        TeamCall { id, tool: "delegate".to_owned(), args }
    }
}

/// Waits until the first of these runs is over.
pub(crate) fn wait_for_any(places: Vec<String>) -> TeamCall {
    let args = json!({"runs": places, "any": true, "report": "facts"});
    TeamCall { id: "wait".to_owned(), tool: "wait".to_owned(), args }
}

/// A script as a model.
pub(crate) struct Director {
    card: ModelCard,
    script: Arc<dyn TeamScript>,
    /// The parameters that each member's prompt names, by the member's name.
    shared: HashMap<String, Value>,
}

impl Director {
    /// The director of the team whose model has this name.
    pub(crate) fn new(name: &str, script: Arc<dyn TeamScript>, shared: HashMap<String, Value>) -> Self {
        // It writes no tokens, which is how the runtime knows that nothing need be held for it.
        Self { card: ModelCard { max_output: Some(0), ..ModelCard::free(name) }, script, shared }
    }

    fn decide(&self, request: ModelRequest<'_>) -> Result<Reply, AskFailure> {
        let past = History::new(request.messages);
        if request.choice == ToolChoice::Off {
            return Ok(reply(self.script.so_far(&past), Vec::new()));
        }
        match self.script.next(&past) {
            Move::Act { words, calls } => Ok(reply(words, calls.into_iter().map(|call| self.share(call)).collect())),
            Move::Answer { text, data } => Ok(match data.filter(|_| takes_data(&request)) {
                Some(data) => reply(
                    String::new(),
                    vec![TeamCall { id: "answer".to_owned(), tool: "answer".to_owned(), args: data }],
                ),
                None if text.trim().is_empty() => reply("The team ended without words.".to_owned(), Vec::new()),
                None => reply(text, Vec::new()),
            }),
            Move::Fail { why } => {
                let error = ModelError::Team { reason: why };
                Err(AskFailure { error, charge: Charge::Nothing, partial: self.script.so_far(&past) })
            }
        }
    }
}

impl Director {
    /// Gives a member the parameters that its prompt names.
    fn share(&self, mut call: TeamCall) -> TeamCall {
        let agent = call.args.get("agent").and_then(Value::as_str).filter(|_| call.tool == "delegate");
        if let Some(context) = agent.and_then(|name| self.shared.get(name)) {
            call.args["context"] = context.clone();
        }
        call
    }
}

fn takes_data(request: &ModelRequest<'_>) -> bool {
    request.tools.specs.iter().any(|spec| spec.name == "answer")
}

fn reply(words: String, calls: Vec<TeamCall>) -> Reply {
    let stop = if calls.is_empty() { StopReason::End } else { StopReason::Calls };
    let part = |call: TeamCall| Part::Call(ToolCall { id: call.id, name: call.tool, args: Args::Json(call.args) });
    let words = (!words.is_empty()).then_some(Part::Text(words));
    Reply { parts: words.into_iter().chain(calls.into_iter().map(part)).collect(), stop, ..Reply::default() }
}

impl Model for Director {
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
