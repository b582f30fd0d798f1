//! `AgentDefinition`: the parsed form of an agent file of any dialect.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{authority::Allow, limits::Limits, model::Effort, rule::Rule, taint::TaintMode};

/// The parsed form of an agent file, or an agent made in code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentDefinition {
    /// Unique within a registry: `^[a-z][a-z0-9-]*$`, or `plugin:name`.
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
    /// Tools it may use.
    pub tools: Allow,
    /// Calls it may not make.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Rule>,
    /// Calls that need the user's approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Rule>,
    /// Tools it may pass on to children beyond its own. Hosts keep this from trusted files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegates: Option<Vec<Rule>>,
    /// Model to use.
    pub model: ModelChoice,
    /// Reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Sampling temperature in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// Skills whose bodies are included in its prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Files that belong to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Limits.
    pub limits: Limits,
    /// Keys of the parent's context that it can see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared_context: Vec<String>,
    /// Part of the parent's transcript that it starts with.
    pub inherit: Inherit,
    /// Parts of the project context that its prompt includes.
    pub surroundings: ProjectContext,
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
    /// MCP servers it uses, by name, with their configuration if the file contains it. They need trust.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp_servers: BTreeMap<String, Value>,
    /// Hooks, as written in the file. They need trust.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub hooks: Value,
    /// JSON schema of its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Treatment of network use after it has read untrusted content; `None` asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taint: Option<TaintMode>,
    /// Effect of its failure on the parent.
    pub on_failure: OnFailure,
    /// Task to use if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_prompt: Option<String>,
    /// Colour for user interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// Data of the author's own, not interpreted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    /// Unknown keys of the file, kept unchanged and ignored.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<String, Value>,
    /// Origin of the definition.
    pub source: Source,
}

impl AgentDefinition {
    /// Creates a definition with these fields and defaults for all others.
    pub fn new(name: impl Into<String>, description: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), prompt: prompt.into(), ..Self::default() }
    }
}

impl Default for AgentDefinition {
    fn default() -> Self {
        Self {
            name: String::new(),
            title: None,
            aliases: Vec::new(),
            description: String::new(),
            prompt: String::new(),
            tools: Allow::All,
            denied: Vec::new(),
            asked: Vec::new(),
            delegates: None,
            model: ModelChoice::Inherit,
            effort: None,
            temperature_milli: None,
            skills: Vec::new(),
            resources: Vec::new(),
            limits: Limits::default(),
            shared_context: Vec::new(),
            inherit: Inherit::None,
            surroundings: ProjectContext::Full,
            permission_mode: None,
            background: false,
            isolation: Isolation::None,
            memory: None,
            mcp_servers: BTreeMap::new(),
            hooks: Value::Null,
            schema: None,
            taint: None,
            on_failure: OnFailure::Report,
            initial_prompt: None,
            color: None,
            metadata: BTreeMap::new(),
            unknown: BTreeMap::new(),
            source: Source::default(),
        }
    }
}

/// The model that an agent uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelChoice {
    /// The parent's model; for a root run, the host's default.
    #[default]
    Inherit,
    /// The host's default, regardless of the parent's model.
    Default,
    /// The first available of these; names as written in the file.
    Named(Vec<String>),
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

/// Effect of a child's failure on its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
