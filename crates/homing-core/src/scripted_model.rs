//! Models implemented in code: `FunctionModel` computes its replies, `ScriptedModel` plays them from a list. Teams and
//! tests use them.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use serde_json::Value;

use crate::{
    BoxFuture,
    message::{Args, Message, Part, Reply, StopReason, ToolCall, Usage},
    model::{AskFailure, Delta, Model, ModelCard, ModelError, ModelRequest, OnDelta},
};

/// A model that computes its reply from the request.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::{model::{Model, ModelCard}, scripted_model as models, scripted_model as testing}; }
/// use homing::{Model, ModelCard, models::FunctionModel, testing::{last_words, say}};
///
/// let card = ModelCard::free("demo/echo").context_window(8_000);
/// let echo = FunctionModel::with_card(card, |request| Ok(say(last_words(&request))));
/// assert_eq!(echo.card().name, "demo/echo");
/// ```
pub struct FunctionModel<F> {
    card: ModelCard,
    decide: F,
}

impl<F> std::fmt::Debug for FunctionModel<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionModel").field("card", &self.card).finish_non_exhaustive()
    }
}

impl<F: Fn(ModelRequest<'_>) -> Result<Reply, AskFailure> + Send + Sync> FunctionModel<F> {
    /// Creates a free model named `name`.
    pub fn new(name: impl Into<String>, decide: F) -> Self {
        Self { card: ModelCard::free(name), decide }
    }

    /// Creates a model with this card.
    pub fn with_card(card: ModelCard, decide: F) -> Self {
        Self { card, decide }
    }
}

impl<F: Fn(ModelRequest<'_>) -> Result<Reply, AskFailure> + Send + Sync> Model for FunctionModel<F> {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let reply = (self.decide)(request)?;
            for part in &reply.parts {
                match part {
                    Part::Text(text) => on_delta(Delta::Text(text)),
                    Part::Thinking { text, .. } => on_delta(Delta::Thinking(text)),
                    Part::Call(call) => on_delta(Delta::Call(&call.name)),
                    Part::Opaque { .. } => (),
                }
            }
            Ok(reply)
        })
    }
}

/// A model that returns the replies of a list in order, then fails.
///
/// # Examples
///
/// ```
/// # use homing_core::scripted_model as homing;
/// use homing::{ScriptedModel, call, say};
///
/// let model = ScriptedModel::new([Ok(call([("read", serde_json::json!({"path": "a.txt"}))])), Ok(say("It is empty."))]);
/// ```
pub struct ScriptedModel {
    card: ModelCard,
    answers: Mutex<VecDeque<Result<Reply, AskFailure>>>,
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedModel").field("card", &self.card).finish_non_exhaustive()
    }
}

impl ScriptedModel {
    /// Creates a model that returns these replies.
    pub fn new(answers: impl IntoIterator<Item = Result<Reply, AskFailure>>) -> Self {
        Self { card: ModelCard::free("script/list"), answers: Mutex::new(answers.into_iter().collect()) }
    }
}

impl Model for ScriptedModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(&'a self, _: ModelRequest<'a>, _: OnDelta<'a>) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let next = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let exhausted = ModelError::Unusable { reason: "the script has no more replies".to_owned() };
            next.unwrap_or_else(|| Err(AskFailure::free(exhausted)))
        })
    }
}

/// Returns a reply with `text` that ends the run.
pub fn say(text: impl Into<String>) -> Reply {
    Reply { usage: Usage { input: 10, output: 5, ..Usage::default() }, ..Reply::text_only(text) }
}

/// Returns a reply that calls tools.
pub fn call(calls: impl IntoIterator<Item = (&'static str, Value)>) -> Reply {
    let part = |(i, (name, args)): (usize, (&str, Value))| {
        Part::from(ToolCall { id: format!("c{i}"), name: name.to_owned(), args: Args::Json(args) })
    };
    let parts = calls.into_iter().enumerate().map(part).collect();
    Reply {
        parts,
        stop: StopReason::Calls,
        usage: Usage { input: 10, output: 5, ..Usage::default() },
        ..Reply::default()
    }
}

/// Returns the text of the last message of a request.
pub fn last_words(request: &ModelRequest<'_>) -> String {
    match request.messages.last().map(|entry| &entry.message) {
        Some(Message::User { text, .. }) => text.clone(),
        Some(Message::Assistant(reply)) => reply.text(),
        Some(Message::Tool(result)) => result.text.clone(),
        None => String::new(),
    }
}
