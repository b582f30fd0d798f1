//! Who an agent is: one file, parsed and checked, from whatever ecosystem it came.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{authority::Allow, limits::Limits, model::Effort, rule::Rule};

/// Who an agent is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentDefinition {
    /// Unique within a registry: `^[a-z][a-z0-9-]*$`, or `plugin:name`.
    pub name: String,
    /// The name as it was written, or a display name, where it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Other names it answers to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// When to use this agent. The parent's model reads this to choose.
    pub description: String,
    /// The system prompt.
    pub prompt: String,
    /// Which tools it may use.
    pub tools: Allow,
    /// Which tools it may not use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Rule>,
    /// Which calls somebody is asked about first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Rule>,
    /// What it may hand on beyond its own tools. Kept by hosts from trusted files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegates: Option<Vec<Rule>>,
    /// Which model it speaks with.
    pub model: ModelChoice,
    /// How hard the model is to think.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Thousandths; how freely the model chooses words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// Skills whose bodies stand in its prompt from the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Files that belong to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// What it may spend.
    pub limits: Limits,
    /// Keys of the parent's context that it gets to see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared_context: Vec<String>,
    /// Which of the parent's messages it starts with.
    pub inherit: Inherit,
    /// Whether it gets the environment block and the project's instruction files.
    pub surroundings: ProjectContext,
    /// How freely it may act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// Whether delegating to it returns at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Whether it works on files of its own.
    pub isolation: Isolation,
    /// Where it keeps notes between runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryScope>,
    /// MCP servers it wants, by name, with their configuration where the file carries it. Need trust.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp_servers: BTreeMap<String, Value>,
    /// Commands to run at certain moments, as the file wrote them. Need trust.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub hooks: Value,
    /// JSON schema of its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// What its failure means to the parent.
    pub on_failure: OnFailure,
    /// First task when it is run without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_prompt: Option<String>,
    /// Its colour in displays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// Free data of the author's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    /// Keys that nobody here understands, kept as they were.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<String, Value>,
    /// Where it came from.
    pub source: Source,
}

impl AgentDefinition {
    /// A definition made in code; chain the fields you need with struct update syntax or assign them.
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
            on_failure: OnFailure::Report,
            initial_prompt: None,
            color: None,
            metadata: BTreeMap::new(),
            unknown: BTreeMap::new(),
            source: Source::default(),
        }
    }
}

/// Which model an agent speaks with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelChoice {
    /// The parent's; at the root, the default.
    #[default]
    Inherit,
    /// The host's default, whatever the parent speaks with.
    Default,
    /// The first of these that can be had; names as the file wrote them.
    Named(Vec<String>),
}

/// Which of the parent's messages a child starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inherit {
    /// None.
    #[default]
    None,
    /// All of them.
    All,
    /// The last so many.
    Last(u32),
}

/// What an agent is told about where it works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProjectContext {
    /// The environment block and the project's instruction files.
    #[default]
    Full,
    /// The environment block alone.
    Environment,
    /// Nothing.
    None,
}

/// How freely an agent may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionMode {
    /// It changes nothing.
    Plan,
    /// Somebody is asked before it changes anything.
    Ask,
    /// It edits files without asking.
    Edit,
    /// It does whatever its authority allows.
    All,
}

/// Whether an agent works on files of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// It shares its parent's folder.
    #[default]
    None,
    /// A git worktree of its own.
    Worktree,
}

/// Where an agent keeps notes between runs.
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

/// What a child's failure means to its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The parent's model reads about it.
    #[default]
    Report,
    /// Another run of it is tried, up to so many times; then it is reported.
    Retry(u32),
    /// The parent's model reads that it was skipped.
    Skip,
    /// The parent fails, too.
    FailParent,
}

/// Where a definition came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Which scope; later ones in [`Scope`]'s order win.
    pub kind: Scope,
    /// The file, where there is one.
    pub path: Option<PathBuf>,
    /// The dialect it is written in, such as `claude-code`.
    pub dialect: String,
}

/// Where definitions come from, weakest first: a stronger scope shadows a weaker one's agent of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Ships with the product.
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
