//! Interface to tools: specification, call and result, and the context of a call.

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
    trace_context::TraceContext,
};

pub use crate::question::{Answer, Question};

/// A tool that a model can call.
///
/// # Examples
///
/// ```
/// # use homing_core::{BoxFuture, tool as homing};
/// use homing::{Tool, ToolContext, ToolOutput, ToolSpec};
/// use serde_json::{Value, json};
///
/// struct Count(ToolSpec);
///
/// impl Tool for Count {
///     fn spec(&self) -> &ToolSpec {
///         &self.0
///     }
///
///     fn call<'a>(&'a self, _: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
///         Box::pin(async move { ToolOutput::text(args["text"].as_str().unwrap_or_default().len().to_string()) })
///     }
/// }
///
/// let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
/// assert_eq!(Count(ToolSpec::new("count", "Counts the bytes of a text.", schema)).spec().name, "count");
/// ```
pub trait Tool: Send + Sync {
    /// Returns the tool's specification.
    fn spec(&self) -> &ToolSpec;

    /// Returns the subjects that permission rules are matched against. A call that cannot be analysed is
    /// [`Subjects::Unclear`], never `None`.
    fn subjects(&self, context: &ToolContext, args: &Value) -> Subjects {
        let _ = (context, args);
        Subjects::None
    }

    /// Returns what a call would change, such as a diff, for the user who must approve it; `None` if the arguments say it all.
    fn preview(&self, context: &ToolContext, args: &Value) -> Option<String> {
        let _ = (context, args);
        None
    }

    /// Executes a call. A failure is a [`ToolOutput`] with `is_error`, which the model reads; it does not end the run.
    ///
    /// When [`ToolContext::cancelled`] resolves, the tool has two seconds to return a partial result before it is dropped.
    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput>;
}

/// Source of the tools that belong to single agents, such as those of an MCP server that one declares, or of a team.
pub trait AgentToolSource: Send + Sync {
    /// Returns the tools for one run of `agent` and its descendants. They are dropped when the run ends, and dropping
    /// them must stop what they started.
    fn tools_of(&self, agent: &AgentDefinition) -> Vec<Arc<dyn Tool>>;
}

/// Specification of a tool.
///
/// # Examples
///
/// ```
/// # use homing_core::tool as homing;
/// use homing::{Effect, Replay, ToolSpec};
///
/// let schema = serde_json::json!({"type": "object"});
/// let spec = ToolSpec::new("deploy", "Deploys.", schema).replay(Replay::Unsafe).effect(Effect::Changes);
/// assert_eq!(spec.name, "deploy");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolSpec {
    /// Name, as models write it.
    pub name: String,
    /// When and how to use it.
    pub description: String,
    /// JSON schema of the arguments: an object.
    pub schema: Value,
    /// Treatment of an interrupted call in a resumed run.
    pub replay: Replay,
    /// Effect of a call. A specification without it counts as [`Effect::Changes`].
    ///
    /// It is not serialized, because fingerprints of requests cover the serialized specification, and models are not
    /// sent the effect: fingerprints in existing journals and cassettes must stay valid.
    #[serde(default, skip_serializing)]
    pub effect: Effect,
}

impl ToolSpec {
    /// Creates a specification with the most cautious defaults: calls are never repeated and count as changes.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        let (name, description) = (name.into(), description.into());
        Self { name, description, schema, replay: Replay::Unsafe, effect: Effect::Changes }
    }

    /// Returns whether a call reads local data and does nothing else, so that a crash in the middle of it loses nothing.
    pub fn only_reads(&self) -> bool {
        self.effect == Effect::Reads && self.replay == Replay::Safe
    }
}

/// Effect of a tool's calls on the world. Permission modes, read-only runs and replays decide by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads local data only.
    Reads,
    /// May change files or other state.
    #[default]
    Changes,
    /// Runs commands, which may change only what the run's sandbox permits.
    Commands,
    /// Reaches the network, but changes nothing locally.
    Network,
    /// Spawns, waits for, messages or cancels runs.
    Delegates,
}

/// Treatment, in a resumed run, of a call that had begun and not returned when the process died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// It is repeated: the tool only reads.
    Safe,
    /// It is repeated with the same idempotency key, which the tool recognizes.
    Keyed,
    /// It is never repeated; the model is told that the outcome is unknown.
    #[default]
    Unsafe,
}

impl Replay {
    /// Returns the effect of a tool of which only this is known: one that may be repeated reads, any other one counts as
    /// changing something.
    pub fn implied_effect(self) -> Effect {
        match self {
            Self::Safe => Effect::Reads,
            Self::Keyed | Self::Unsafe => Effect::Changes,
        }
    }
}

/// Result of a tool.
///
/// # Examples
///
/// ```
/// # use homing_core::tool as homing;
/// use homing::ToolOutput;
///
/// let output = ToolOutput::text("42 files").data(serde_json::json!({"files": 42}));
/// assert!(!output.is_error && ToolOutput::error("there is no such folder").is_error);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// Text for the model.
    pub text: String,
    /// Images and documents for the model.
    pub images: Vec<Image>,
    /// The result as JSON, for programs.
    pub data: Option<Value>,
    /// True if the tool failed.
    pub is_error: bool,
}

impl ToolOutput {
    /// Creates a result of text only.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates a failure; the model reads `text`.
    pub fn error(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true, ..Self::default() }
    }
}

/// Identity of a call: the run, the turn, and the position in the reply. It is also the tool's idempotency key.
///
/// The IDs of providers are not used for this, because providers repeat or omit them.
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

/// Context of a call.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::{question::{Answer, Question}, tool::{ToolContext, ToolOutput}}; }
/// use homing::{Answer, Question, ToolContext, ToolOutput};
///
/// /// The body of a tool that asks before it works.
/// async fn deploy(context: &ToolContext) -> ToolOutput {
///     let question = Question::new("Deploy now?", context.key).options(vec!["now".to_owned(), "later".to_owned()]);
///     match context.ask(question).await {
///         Answer::Text(text) if text == "now" => {
///             context.progress("deploying");
///             ToolOutput::text(format!("deployed {}", context.workdir.display()))
///         }
///         _ => ToolOutput::error("the user wants to wait"),
///     }
/// }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// Identity of the call.
    pub key: CallKey,
    /// The run's place in its tree.
    pub place: Place,
    /// The agent's name.
    pub agent: String,
    /// The run's working folder.
    pub workdir: PathBuf,
    /// The run's authority.
    pub authority: Arc<Authority>,
    /// State of the run's tools; dropped with the run.
    pub state: Arc<ToolState>,
    /// The runtime's side of the call.
    pub host: Arc<dyn CallHost>,
    /// Position of the call in a distributed trace, for the programs and servers that it calls.
    pub trace: Option<TraceContext>,
}

impl std::fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolContext")
            .field("key", &self.key)
            .field("agent", &self.agent)
            .field("workdir", &self.workdir)
            .finish_non_exhaustive()
    }
}

impl ToolContext {
    /// Resolves when the call must stop.
    pub fn cancelled(&self) -> BoxFuture<'_, ()> {
        self.host.cancelled()
    }

    /// Shows progress of the call; may be lost.
    pub fn progress(&self, text: &str) {
        self.host.progress(text);
    }

    /// Asks the user a question.
    pub fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        self.host.ask(question)
    }
}

/// The runtime's side of a call.
pub trait CallHost: Send + Sync {
    /// Resolves when the call must stop.
    fn cancelled(&self) -> BoxFuture<'_, ()>;
    /// Shows progress of the call.
    fn progress(&self, text: &str);
    /// Asks the user a question. Returns [`Answer::Unavailable`] if no user is present or no answer arrives in time.
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer>;

    /// Returns the JSON results of all earlier calls of `tool` by any run of this tree. A tool whose state must outlive the
    /// process derives it from these, because they are in the journal.
    fn returned(&self, tool: &str) -> Vec<Value> {
        let _ = tool;
        Vec::new()
    }
}

/// State that a run's tools keep between calls, one value per type. It is dropped with the run.
#[derive(Default)]
pub struct ToolState(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl ToolState {
    /// Returns the run's value of type `T`, creating it on first use.
    #[allow(clippy::missing_panics_doc, reason = "the key is the type of the value, so the cast cannot fail")]
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
