//! `AgentDefinition`: the parsed form of an agent file of any dialect.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    authority::Allow,
    limits::Limits,
    model::{Effort, Sampling},
    rule::Rule,
    taint::TaintMode,
};

/// The parsed form of an agent file, or an agent made in code.
///
/// Its JSON form is flat: the fields of the parts appear beside its own. Journals contain this form and cache keys are
/// hashes of its text, so names and order must not change.
///
/// # Examples
///
/// ```
/// # use homing_core::definition as homing;
/// use homing::AgentDefinition;
///
/// let mut agent = AgentDefinition::new("reviewer", "Reviews changes", "Report what is wrong.");
/// agent.aliases.push("review".to_owned());
/// assert_eq!(agent.name, "reviewer");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AgentDefinition {
    /// Unique within a registry: `^[a-z0-9][a-z0-9-]*$` with a letter, or `plugin:name`.
    pub name: String,
    /// The name as written in the file, or a display name, if it differs from `name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Other names under which it can be looked up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// When to use this agent; the parent's model chooses by it.
    pub description: String,
    /// The system prompt.
    pub prompt: String,
    /// Rules on the tools that it and its children may use.
    #[serde(flatten)]
    pub tools: ToolRules,
    /// The model and the parameters of its calls.
    #[serde(flatten)]
    pub model: ModelSettings,
    /// Skills and files that belong to it.
    #[serde(flatten)]
    pub attachments: Attachments,
    /// Limits.
    pub limits: Limits,
    /// Parts of the parent's and the project's context that it starts with.
    #[serde(flatten)]
    pub context: ContextSettings,
    /// Conditions under which its runs work.
    #[serde(flatten)]
    pub execution: ExecutionSettings,
    /// Programs that its runs start. They need trust.
    #[serde(flatten)]
    pub integrations: Integrations,
    /// Defaults for its tasks.
    #[serde(flatten)]
    pub task: TaskDefaults,
    /// Fields without effect on its runs.
    #[serde(flatten)]
    pub extra: ExtraFields,
    /// Origin of the definition.
    pub source: Source,
}

impl AgentDefinition {
    /// Creates a definition with these fields and defaults for all others.
    pub fn new(name: impl Into<String>, description: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), prompt: prompt.into(), ..Self::default() }
    }
}

/// Rules on the tools that an agent and its children may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ToolRules {
    /// Tools it may use.
    #[serde(rename = "tools")]
    pub allowed: Allow,
    /// Calls it may not make.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Rule>,
    /// Calls that need the user's approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Rule>,
    /// Tools it may pass on to children beyond its own. Hosts keep this from trusted files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegates: Option<Vec<Rule>>,
}

/// The model of an agent and the parameters of its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ModelSettings {
    /// Model to use.
    #[serde(rename = "model")]
    pub choice: ModelChoice,
    /// Reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Sampling temperature in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// Further settings of its requests.
    #[serde(skip_serializing_if = "Sampling::is_empty")]
    pub sampling: Sampling,
}

/// Skills and files that belong to an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attachments {
    /// Skills whose bodies are included in its prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Files that belong to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Skill that a run carries out: its rules on tools apply to the run. Files cannot express it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carries_out: Option<String>,
}

/// The parts of its parent's and the project's context that an agent starts with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ContextSettings {
    /// Keys of the parent's context that it can see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared_context: Vec<String>,
    /// Part of the parent's transcript that it starts with.
    pub inherit: Inherit,
    /// Parts of the project context that its prompt includes.
    #[serde(rename = "surroundings")]
    pub project_context: ProjectContext,
    /// Size of a conversation, in tokens, from which on it is summarised, if the model's own context is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_window: Option<u64>,
}

/// The conditions under which an agent's runs work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ExecutionSettings {
    /// Permission mode; `None` restricts nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// True if the parent continues without waiting for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Isolation of its files from its parent's.
    pub isolation: Isolation,
    /// Scope of the notes that it keeps between runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryScope>,
    /// Name under which the notes are kept, if it is not the agent's: the members of a team share theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_name: Option<String>,
    /// Those who may start it.
    #[serde(skip_serializing_if = "OfferedTo::is_everyone")]
    pub offered_to: OfferedTo,
    /// Treatment of network use after it has read untrusted content; `None` asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taint: Option<TaintMode>,
    /// Agents that observe its runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observers: Option<Observers>,
}

/// Agents that observe the runs of another one: they are shown what it does, change nothing, and may send it reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observers {
    /// Names of the agents.
    pub agents: Vec<String>,
    /// Text that follows what they are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// True if they are also shown the runs that the observed run starts.
    pub subagents: bool,
}

impl Observers {
    /// The largest number of observers of a run.
    pub const MOST: usize = 4;
}

impl Default for Observers {
    fn default() -> Self {
        Self { agents: Vec::new(), message: None, subagents: true }
    }
}

/// Programs that an agent's runs start. They need trust.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Integrations {
    /// MCP servers it uses, by name, with their configuration if the file contains it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp_servers: BTreeMap<String, Value>,
    /// Hooks, as written in the file.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub hooks: Value,
}

/// Defaults for the tasks of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskDefaults {
    /// JSON schema of its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// True if prose is also an answer. Does not apply to a schema that comes with a task.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub schema_optional: bool,
    /// Effect of its failure on the parent.
    pub on_failure: OnFailure,
    /// Task to use if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_prompt: Option<String>,
    /// Values of `{{KEY}}` in its prompts, with their defaults; `None` if the task must set the value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Option<Value>>,
}

/// Fields of a definition without effect on its runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtraFields {
    /// Colour for user interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// Data of the author's own, not interpreted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    /// Unknown keys of the file, kept unchanged and ignored.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<String, Value>,
}

/// The model that an agent uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelChoice {
    /// The parent's model; for a root run, the host's default.
    #[default]
    Inherit,
    /// The host's default, regardless of the parent's model.
    Default,
    /// The first available of these; names as written in the file.
    Named(Vec<String>),
    /// This model and no other, as the user or the host named it. Files cannot express it.
    Exact(String),
}

impl ModelChoice {
    /// Returns the names in it; none for the parent's and the default model.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Inherit | Self::Default => &[],
            Self::Named(names) => names,
            Self::Exact(name) => std::slice::from_ref(name),
        }
    }
}

/// The part of the parent's transcript that a child starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inherit {
    /// Nothing.
    #[default]
    None,
    /// All messages.
    All,
    /// This many messages from the end.
    Last(u32),
}

/// The parts of the project context that an agent's prompt includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProjectContext {
    /// The environment block and the project's instruction files.
    #[default]
    Full,
    /// The environment block only.
    Environment,
    /// Nothing.
    None,
}

/// Actions that an agent may take without approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionMode {
    /// It may not change anything.
    Plan,
    /// Every change needs the user's approval.
    Ask,
    /// File edits need no approval.
    Edit,
    /// Everything that its authority allows needs no approval.
    All,
}

/// Isolation of an agent's files from its parent's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// It shares its parent's folder.
    #[default]
    None,
    /// It works in its own git worktree.
    Worktree,
}

/// Scope of the notes that an agent keeps between runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryScope {
    /// For this user, in all projects.
    User,
    /// In the project, shared with others.
    Project,
    /// In the project, for this user.
    Local,
}

/// Those who may start an agent or a skill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferedTo {
    /// The user and models.
    #[default]
    Everyone,
    /// Only the user; it is not offered to models.
    User,
    /// Only models; it is not offered to the user, who can still name it.
    Models,
}

impl OfferedTo {
    /// Returns whether there is no restriction.
    pub fn is_everyone(&self) -> bool {
        *self == Self::Everyone
    }

    /// Returns whether models may start it.
    pub fn includes_models(self) -> bool {
        self != Self::User
    }
}

/// Effect of a child's failure on its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnFailure {
    /// The failure is reported to the parent's model.
    #[default]
    Report,
    /// The run is repeated up to this many times, then the failure is reported.
    Retry(u32),
    /// The parent's model is told that the child was skipped.
    Skip,
    /// The parent fails too.
    FailParent,
}

/// Origin of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Scope; a later one in [`Scope`]'s order wins.
    pub kind: Scope,
    /// The file, if there is one.
    pub path: Option<PathBuf>,
    /// The dialect of the file, such as `claude-code`.
    pub dialect: String,
}

/// Scopes that definitions come from, weakest first. An agent of a stronger scope shadows one of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Scope {
    /// Built into Homing.
    BuiltIn,
    /// The user's own folders.
    User,
    /// A plugin or package.
    Plugin,
    /// The project's folders.
    Project,
    /// Given on the command line or made in code.
    #[default]
    CommandLine,
    /// Set by an administrator.
    Managed,
}
