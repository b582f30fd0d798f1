//! Graphs: nodes that work on a shared state, and edges that define their order.

mod quorum;
pub(crate) mod script;
pub(crate) mod state;
mod values;

use std::{collections::BTreeMap, fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{code::Code, crew::OnTaskFailure, limit_fields::LimitFields};

/// A graph over a shared state.
///
/// # Examples
///
/// ```
/// # use homing_teams as homing;
/// use homing::{Edge, Graph, Node, Team};
///
/// let graph = Graph::starting_at("draft")
///     .node(Node::agent("draft", "writer", "Draft {{ task }}"))
///     .node(Node::agent("check", "critic", "Check the draft"))
///     .edge(Edge::new("draft", "check"));
/// assert_eq!(Team::new("essay", graph).members(), ["writer", "critic"]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "A graph over a shared state.")]
#[serde(deny_unknown_fields, default)]
pub struct Graph {
    /// Fields of the shared state, by name.
    pub state: BTreeMap<String, StateField>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The edges between nodes.
    pub edges: Vec<Edge>,
    /// Node at which the graph starts.
    pub start: String,
    /// The answer: a template over `state`. By default the output of the last node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Maximum number of steps; nodes that run concurrently count as one.
    pub max_steps: u32,
    /// Reducers in code, by field.
    #[serde(skip)]
    pub(crate) reducers: BTreeMap<String, Code<ReduceFn>>,
    /// Values that a fork sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub(crate) set: Vec<StateValues>,
}

/// Values of the state that a fork sets before a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StateValues {
    /// The number of steps that were finished.
    pub(crate) step: u32,
    pub(crate) values: serde_json::Map<String, Value>,
}

impl Default for Graph {
    fn default() -> Self {
        Self {
            state: BTreeMap::new(),
            nodes: Vec::new(),
            edges: Vec::new(),
            start: String::new(),
            output: None,
            max_steps: 100,
            set: Vec::new(),
            reducers: BTreeMap::new(),
        }
    }
}

/// One field of the state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Field")]
#[non_exhaustive]
pub struct StateField {
    /// Type of its value.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// The way in which a new value is combined with the old one.
    pub reducer: Reducer,
    /// Initial value.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub default: Value,
}

/// Type of a field of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// Anything.
    #[default]
    Any,
    /// Text.
    String,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A list.
    List,
    /// An object.
    Object,
}

/// The way in which a new value of a field is combined with the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reducer {
    /// The new value replaces the old one.
    #[default]
    Replace,
    /// The new value is appended to a list; a list appends each of its items.
    Append,
    /// The keys of the new object replace those of the old one.
    Merge,
    /// The new number is added to the old one.
    Add,
}

/// A node of a graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// Agent that runs at this node: a name, or a template whose value is one of `agents`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Agents that the template `agent` chooses from; or `{first: N, of: […]}`: all work on the task at the same time, the
    /// first N results count, and the other runs are cancelled.
    #[serde(skip_serializing_if = "Several::is_empty")]
    pub agents: Several,
    /// Team that runs at this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Tool that is called at this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Task of the agent or team: a template over `task`, `state`, `failures`, and `item` if there is `each`.
    pub task: String,
    /// Arguments of the tool: templates; one that is a single expression keeps its type. In the command of `bash`, values are
    /// quoted as one word; the filter `safe` inserts one as shell code.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub args: Value,
    /// Expression for a list: the node runs once for each `item`, concurrently, and continues when all have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each: Option<String>,
    /// Field that gets the result. Without it, a structured result sets the fields of the same names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<String>,
    /// JSON schema of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Nodes that must all have led here before this node starts; `{first: N, of: […]}` starts it with the first N of them.
    #[serde(skip_serializing_if = "Several::is_empty")]
    pub join: Several,
    /// True if a task that the node has done before in this run is not done again: its result is used.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cache: bool,
    /// Limits of each run.
    pub limits: LimitFields,
    /// Maximum number of retries after a failure.
    pub retries: u32,
    /// Consequence of a failure, after all retries. An edge handles a failure if it is taken and its condition refers to
    /// it, as in `failures.NODE is defined`; an `else` edge beside such a condition counts as well.
    pub on_failure: OnTaskFailure,
}

/// Several agents or nodes: a list, or the first few of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Several {
    /// All of them.
    All(Vec<String>),
    /// The first ones.
    First(FirstOf),
}

/// The first few of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstOf {
    /// Number that suffices.
    pub first: u32,
    /// The list.
    pub of: Vec<String>,
}

impl Default for Several {
    fn default() -> Self {
        Self::All(Vec::new())
    }
}

impl Several {
    /// The names in the list.
    pub fn names(&self) -> &[String] {
        match self {
            Self::All(names) | Self::First(FirstOf { of: names, .. }) => names,
        }
    }

    /// The number that suffices, if it is not the whole list.
    pub fn first(&self) -> Option<usize> {
        match self {
            Self::All(_) => None,
            Self::First(FirstOf { first, .. }) => Some(*first as usize),
        }
    }

    /// The number of names that suffices.
    pub(crate) fn needed(&self) -> usize {
        self.first().unwrap_or(usize::MAX).min(self.names().len())
    }

    fn is_empty(&self) -> bool {
        self.names().is_empty()
    }
}

/// The agent, team or tool that runs at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work<'a> {
    /// An agent or a team.
    Agent(&'a str),
    /// The agent that this template names.
    OneOf(&'a str),
    /// Several agents, of which the first ones count: this many.
    Race(usize),
    /// A tool.
    Tool(&'a str),
}

/// An edge from one node to another.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Edge {
    /// Node at which the edge starts.
    pub from: String,
    /// Node to which it leads; `end` ends the graph.
    pub to: String,
    /// Condition for taking the edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// True if the edge is taken only when no other edge of the node is.
    #[serde(rename = "else", skip_serializing_if = "std::ops::Not::not")]
    pub otherwise: bool,
    /// Maximum number of times that the edge is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// A condition in code.
    #[serde(skip)]
    pub(crate) test: Option<Test>,
}

/// A reducer in code: combines the old value of a field with a new one.
pub(crate) type ReduceFn = dyn Fn(&Value, Value) -> Result<Value, String> + Send + Sync;

/// A condition in code, over the state.
pub(crate) type Test = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// Target of edges that end the graph.
pub(crate) const END: &str = "end";

impl PartialEq for Edge {
    fn eq(&self, other: &Self) -> bool {
        self.from == other.from
            && self.to == other.to
            && self.when == other.when
            && self.otherwise == other.otherwise
            && self.limit == other.limit
            && self.test.is_some() == other.test.is_some()
    }
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.from, self.to)
    }
}

impl Graph {
    /// Creates a graph that starts at a node.
    pub fn starting_at(node: impl Into<String>) -> Self {
        Self { start: node.into(), ..Self::default() }
    }

    /// Adds a field to the state.
    #[must_use]
    pub fn field(
        mut self,
        name: impl Into<String>,
        kind: FieldType,
        reducer: Reducer,
        default: impl Into<Value>,
    ) -> Self {
        self.state.insert(name.into(), StateField { kind, reducer, default: default.into() });
        self
    }

    /// Combines new values of a field with the old one by a function. It must be pure: it is called again after a crash. An
    /// error fails the node.
    #[must_use]
    pub fn reduce_with(
        mut self,
        field: impl Into<String>,
        reduce: impl Fn(&Value, Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.reducers.insert(field.into(), Code(Some(Arc::new(reduce))));
        self
    }

    /// Adds a node.
    #[must_use]
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// Adds an edge.
    #[must_use]
    pub fn edge(mut self, edge: Edge) -> Self {
        self.edges.push(edge);
        self
    }

    /// Sets the answer, a template over `state`.
    #[must_use]
    pub fn output(mut self, template: impl Into<String>) -> Self {
        self.output = Some(template.into());
        self
    }

    /// Sets the maximum number of steps.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.max_steps = steps;
        self
    }

    pub(crate) fn agents(&self) -> Vec<&str> {
        let named = self.nodes.iter().filter_map(|node| match node.work() {
            Some(Work::Agent(name)) => Some(name),
            Some(Work::OneOf(_) | Work::Race(_) | Work::Tool(_)) | None => None,
        });
        named.chain(self.nodes.iter().flat_map(|node| node.agents.names().iter().map(String::as_str))).collect()
    }

    pub(crate) fn tools(&self) -> Vec<&str> {
        self.nodes.iter().filter_map(|node| node.tool.as_deref()).collect()
    }

    pub(crate) fn size(&self) -> Option<u64> {
        // The lists that nodes run for are not known yet.
        if self.nodes.iter().any(|node| node.each.is_some()) {
            return None;
        }
        let runs = |node: &Node| (node.agents.names().len().max(1) as u64).saturating_mul(1 + u64::from(node.retries));
        let widest = self.nodes.iter().map(runs).max().unwrap_or(1);
        Some(u64::from(self.max_steps).saturating_mul(widest).saturating_add(self.nodes.len() as u64))
    }
}

impl Node {
    /// Creates a node at which an agent or a team runs.
    pub fn agent(name: impl Into<String>, agent: impl Into<String>, task: impl Into<String>) -> Self {
        Self { name: name.into(), agent: Some(agent.into()), task: task.into(), ..Self::default() }
    }

    /// Creates a node at which a team runs.
    pub fn team(name: impl Into<String>, team: impl Into<String>, task: impl Into<String>) -> Self {
        Self { name: name.into(), team: Some(team.into()), task: task.into(), ..Self::default() }
    }

    /// Creates a node at which a tool is called.
    pub fn tool(name: impl Into<String>, tool: impl Into<String>, args: Value) -> Self {
        Self { name: name.into(), tool: Some(tool.into()), args, ..Self::default() }
    }

    /// The agent, team or tool that runs at this node; `None` unless exactly one of agent, team, tool and a race is set.
    pub fn work(&self) -> Option<Work<'_>> {
        match (&self.agent, &self.team, &self.tool, self.agents.first()) {
            (Some(name), None, None, None) if name.contains("{{") => Some(Work::OneOf(name)),
            (Some(name), None, None, None) | (None, Some(name), None, None) => Some(Work::Agent(name)),
            (None, None, Some(name), None) => Some(Work::Tool(name)),
            (None, None, None, Some(quorum)) => Some(Work::Race(quorum)),
            _ => None,
        }
    }

    /// Creates a node at which several agents work on the same task, until `quorum` of them are done.
    pub fn race<'a>(
        name: impl Into<String>,
        agents: impl IntoIterator<Item = &'a str>,
        quorum: u32,
        task: impl Into<String>,
    ) -> Self {
        let of = agents.into_iter().map(str::to_owned).collect();
        let agents = Several::First(FirstOf { first: quorum, of });
        Self { name: name.into(), agents, task: task.into(), ..Self::default() }
    }

    /// Sets the field that gets the result.
    #[must_use]
    pub fn writes(mut self, field: impl Into<String>) -> Self {
        self.writes = Some(field.into());
        self
    }

    /// Sets the list expression: the node runs once for each `item`.
    #[must_use]
    pub fn each(mut self, list: impl Into<String>) -> Self {
        self.each = Some(list.into());
        self
    }

    /// Sets the JSON schema of the result.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Sets the nodes that must all have led here.
    #[must_use]
    pub fn join<'a>(mut self, nodes: impl IntoIterator<Item = &'a str>) -> Self {
        self.join = Several::All(nodes.into_iter().map(str::to_owned).collect());
        self
    }

    /// Sets the consequence of a failure.
    #[must_use]
    pub fn on_failure(mut self, policy: OnTaskFailure) -> Self {
        self.on_failure = policy;
        self
    }

    /// Sets the maximum number of retries after a failure.
    #[must_use]
    pub fn retries(mut self, times: u32) -> Self {
        self.retries = times;
        self
    }
}

impl Edge {
    /// Creates an edge from one node to another.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self { from: from.into(), to: to.into(), ..Self::default() }
    }

    /// Creates an edge that ends the graph.
    pub fn end(from: impl Into<String>) -> Self {
        Self::new(from, END)
    }

    /// Takes the edge only if an expression over `state` holds.
    #[must_use]
    pub fn when(mut self, condition: impl Into<String>) -> Self {
        self.when = Some(condition.into());
        self
    }

    /// Takes the edge only if a function of the state returns true. It must be pure: it is called again after a crash.
    #[must_use]
    pub fn if_fn(mut self, test: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        self.test = Some(Arc::new(test));
        self
    }

    /// Takes the edge only if no other edge of the node is taken.
    #[must_use]
    pub fn otherwise(mut self) -> Self {
        self.otherwise = true;
        self
    }

    /// Takes the edge at most so many times.
    #[must_use]
    pub fn limit(mut self, times: u32) -> Self {
        self.limit = Some(times);
        self
    }
}
