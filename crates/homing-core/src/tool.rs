//! The seam to tools: what a model may call, and what a call is told about the run that makes it.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    BoxFuture, authority::Authority, definition::AgentDefinition, message::Image, place::Place, rule::Subjects,
};

/// Something an agent can do.
pub trait Tool: Send + Sync {
    /// How the tool presents itself.
    fn spec(&self) -> &ToolSpec;

    /// What argument rules are held against. A call that cannot be taken apart is [`Subjects::Unclear`], never `None`.
    fn subjects(&self, context: &ToolContext, args: &Value) -> Subjects {
        let _ = (context, args);
        Subjects::None
    }

    /// Does it. A failure is a [`ToolOutput`] with `is_error`: text for the model, never a reason to stop the run.
    ///
    /// When [`ToolContext::cancelled`] resolves, the tool has two seconds to return what it has; then it is dropped.
    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput>;
}

/// Somebody who knows which tools an agent's own file brings along, such as those of a server that it defines.
pub trait AgentToolSource: Send + Sync {
    /// The tools that one run of `agent` brings, for itself and its descendants. What they have started ends when they
    /// are dropped, and they are dropped when the run ends.
    fn brought_by(&self, agent: &AgentDefinition) -> Vec<Arc<dyn Tool>>;
}

/// A tool's face to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name models call it by.
    pub name: String,
    /// When and how to use it.
    pub description: String,
    /// JSON schema of the arguments: an object.
    pub schema: Value,
    /// What a resumed run may do about a call that was under way.
    pub replay: Replay,
}

/// What to do about a call that had begun and not returned when the process died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// Call it again: it only looks.
    Safe,
    /// Call it again with the same key: the other side knows it.
    Keyed,
    /// Never a second time: the model is told that the outcome is unknown.
    #[default]
    Unsafe,
}

/// What a tool answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// Text the model will read.
    pub text: String,
    /// Pictures the model will see.
    pub images: Vec<Image>,
    /// The same for programs.
    pub data: Option<Value>,
    /// The tool failed; the model may try another way.
    pub is_error: bool,
}

impl ToolOutput {
    /// An answer in words.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A failure, in words the model can act on.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, ..Self::default() }
    }
}

/// The identity of a call: which run, which of its turns, which call of that reply.
///
/// Providers repeat or omit their ids, so they are not used for this. It is also the tool's idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallKey {
    /// The run.
    pub run: Uuid,
    /// The turn, from 1.
    pub turn: u32,
    /// The call's position in the reply, from 0.
    pub index: u32,
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.run, self.turn, self.index)
    }
}

/// What a call is told about the run that makes it.
#[derive(Clone)]
pub struct ToolContext {
    /// The call.
    pub key: CallKey,
    /// The run's place in its tree.
    pub place: Place,
    /// The agent's name.
    pub agent: String,
    /// The run's folder.
    pub workdir: PathBuf,
    /// What the run may do.
    pub authority: Arc<Authority>,
    /// What the run's tools remember; gone with the run.
    pub state: Arc<ToolState>,
    /// The runtime's side of the call.
    pub host: Arc<dyn CallHost>,
}

impl ToolContext {
    /// Resolves when the call is to stop.
    pub fn cancelled(&self) -> BoxFuture<'_, ()> {
        self.host.cancelled()
    }

    /// Shows what the call is doing; may be lost.
    pub fn progress(&self, text: &str) {
        self.host.progress(text);
    }

    /// Puts a question to a person, if there is one.
    pub fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        self.host.ask(question)
    }
}

/// The runtime's side of a call.
pub trait CallHost: Send + Sync {
    /// Resolves when the call is to stop.
    fn cancelled(&self) -> BoxFuture<'_, ()>;
    /// Shows what the call is doing.
    fn progress(&self, text: &str);
    /// Puts a question to a person; answers [`Answer::Nobody`] where there is none or no answer comes in time.
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer>;

    /// What calls of `tool` returned for programs so far, by any run of this tree. A tool whose state must outlive the
    /// process keeps it here: the journal is its store, and the state a fold.
    fn returned(&self, tool: &str) -> Vec<Value> {
        let _ = tool;
        Vec::new()
    }
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// What is asked.
    pub text: String,
    /// Answers to choose from; empty means free text.
    pub options: Vec<String>,
    /// The call it is about.
    pub key: CallKey,
    /// Which rule would settle it for good, if the person says "always".
    pub rule: Option<String>,
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Yes, or go on.
    Yes,
    /// No.
    No,
    /// In words, or one of the options.
    Text(String),
    /// Nobody was there, or nobody answered in time.
    Nobody,
}

/// What a run's tools remember between calls, one value per type. It belongs to the run and goes with it.
#[derive(Default)]
pub struct ToolState(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl ToolState {
    /// The run's value of type `T`, made on first use.
    pub fn get<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut values = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        value.downcast().expect("the key is the value's type")
    }
}

impl fmt::Debug for ToolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolState")
    }
}
