//! Graphs: nodes that work on a shared state, and edges that say what comes after what.

pub(crate) mod script;
pub(crate) mod state;
use std::{collections::BTreeMap, fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{crew::OnFailure, limit_fields::LimitFields};

/// A graph over a shared state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Graph {
    /// What the nodes share, by name.
    pub state: BTreeMap<String, Field>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// What comes after what.
    pub edges: Vec<Edge>,
    /// The node that begins.
    pub start: String,
    /// The answer: a template over `state`. By default what the last node said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// How many steps there are at most, nodes that work side by side counting as one.
    pub max_steps: u32,
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
        }
    }
}

/// One value of the state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Field {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// How something new is put into it.
    pub reducer: Reducer,
    /// What it is at first.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub default: Value,
}

/// What a value of the state is.
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
    /// Values by name.
    Object,
}

/// How something new is put into a value of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reducer {
    /// It takes the old one's place.
    #[default]
    Replace,
    /// It is added to the end of a list; a list adds each of its items.
    Append,
    /// Its keys are laid over the old ones.
    Merge,
    /// It is added to a number.
    Add,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The agent that works here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The team that works here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// The function that is called here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What the agent or team is to do: a template over `task`, `state`, `failures`, and `item` where there is `each`.
    pub task: String,
    /// The function's arguments: templates; one that is a single expression keeps its type.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub args: Value,
    /// An expression for a list: the node works once for each `item`, side by side, and goes on when all are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub each: Option<String>,
    /// Where the result goes; a structured result without this goes to the values of the same names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<String>,
    /// JSON schema of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The nodes that must all have led here before it begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub join: Vec<String>,
    /// What it may spend, each time.
    pub limits: LimitFields,
    /// How often it is tried again after a failure.
    pub retries: u32,
    /// What its failure means, after all retries. An edge handles a failure if it is taken and its condition asks about
    /// it, as in `failures.NODE is defined`; `else` beside such a condition counts as well.
    pub on_failure: OnFailure,
}

/// Who works at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work<'a> {
    /// An agent, or a team, which is the same to a graph.
    Agent(&'a str),
    /// A function.
    Tool(&'a str),
}

/// From one node to another.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Edge {
    /// After this node.
    pub from: String,
    /// Comes this one; `end` is the end.
    pub to: String,
    /// If this holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// If no other edge of the node was taken.
    #[serde(rename = "else", skip_serializing_if = "std::ops::Not::not")]
    pub otherwise: bool,
    /// At most so many times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// A condition in code.
    #[serde(skip)]
    pub(crate) test: Option<Test>,
}

/// A condition in code, over the state.
pub(crate) type Test = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// Where an edge leads that leads nowhere else.
pub(crate) const END: &str = "end";

impl PartialEq for Edge {
    fn eq(&self, other: &Self) -> bool {
        let data =
            |it: &Self| (it.from.clone(), it.to.clone(), it.when.clone(), it.otherwise, it.limit, it.test.is_some());
        data(self) == data(other)
    }
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.from, self.to)
    }
}

impl Graph {
    /// A graph that begins at a node.
    pub fn starting_at(node: impl Into<String>) -> Self {
        Self { start: node.into(), ..Self::default() }
    }

    /// A value of the state.
    #[must_use]
    pub fn field(
        mut self,
        name: impl Into<String>,
        kind: FieldType,
        reducer: Reducer,
        default: impl Into<Value>,
    ) -> Self {
        self.state.insert(name.into(), Field { kind, reducer, default: default.into() });
        self
    }

    /// One more node.
    #[must_use]
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// One more edge.
    #[must_use]
    pub fn edge(mut self, edge: Edge) -> Self {
        self.edges.push(edge);
        self
    }

    /// The answer, as a template over `state`.
    #[must_use]
    pub fn output(mut self, template: impl Into<String>) -> Self {
        self.output = Some(template.into());
        self
    }

    /// How many steps there are at most.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.max_steps = steps;
        self
    }

    pub(crate) fn agents(&self) -> Vec<&str> {
        let agent = |node: &'_ Node| matches!(node.work(), Some(Work::Agent(_)));
        self.nodes
            .iter()
            .filter(|node| agent(node))
            .filter_map(|node| node.agent.as_deref().or(node.team.as_deref()))
            .collect()
    }

    pub(crate) fn tools(&self) -> Vec<&str> {
        self.nodes.iter().filter_map(|node| node.tool.as_deref()).collect()
    }

    pub(crate) fn size(&self) -> u64 {
        let widest = self.nodes.iter().map(|node| 1 + u64::from(node.retries)).max().unwrap_or(1);
        let fans = self.nodes.iter().filter(|node| node.each.is_some()).count() as u64;
        u64::from(self.max_steps)
            .saturating_mul(widest)
            .saturating_add(fans * 100)
            .saturating_add(self.nodes.len() as u64)
    }
}

impl Node {
    /// A node where an agent or a team works.
    pub fn agent(name: impl Into<String>, agent: impl Into<String>, task: impl Into<String>) -> Self {
        Self { name: name.into(), agent: Some(agent.into()), task: task.into(), ..Self::default() }
    }

    /// A node where a function is called.
    pub fn tool(name: impl Into<String>, tool: impl Into<String>, args: Value) -> Self {
        Self { name: name.into(), tool: Some(tool.into()), args, ..Self::default() }
    }

    /// Who works here; `None` where nobody or more than one does.
    pub fn work(&self) -> Option<Work<'_>> {
        match (&self.agent, &self.team, &self.tool) {
            (Some(name), None, None) | (None, Some(name), None) => Some(Work::Agent(name)),
            (None, None, Some(name)) => Some(Work::Tool(name)),
            _ => None,
        }
    }

    /// Where the result goes.
    #[must_use]
    pub fn writes(mut self, field: impl Into<String>) -> Self {
        self.writes = Some(field.into());
        self
    }

    /// A list: the node works once for each `item`.
    #[must_use]
    pub fn each(mut self, list: impl Into<String>) -> Self {
        self.each = Some(list.into());
        self
    }

    /// JSON schema of the result.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// The nodes that must all have led here.
    #[must_use]
    pub fn join<'a>(mut self, nodes: impl IntoIterator<Item = &'a str>) -> Self {
        self.join = nodes.into_iter().map(str::to_owned).collect();
        self
    }

    /// What its failure means.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = policy;
        self
    }

    /// How often it is tried again after a failure.
    #[must_use]
    pub fn retries(mut self, times: u32) -> Self {
        self.retries = times;
        self
    }
}

impl Edge {
    /// From one node to another.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self { from: from.into(), to: to.into(), ..Self::default() }
    }

    /// To the end.
    pub fn end(from: impl Into<String>) -> Self {
        Self::new(from, END)
    }

    /// If an expression over `state` holds.
    #[must_use]
    pub fn when(mut self, condition: impl Into<String>) -> Self {
        self.when = Some(condition.into());
        self
    }

    /// If a function of the state says so. It must be pure: after a crash it is asked again.
    #[must_use]
    pub fn if_fn(mut self, test: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        self.test = Some(Arc::new(test));
        self
    }

    /// If no other edge of the node was taken.
    #[must_use]
    pub fn otherwise(mut self) -> Self {
        self.otherwise = true;
        self
    }

    /// At most so many times.
    #[must_use]
    pub fn limit(mut self, times: u32) -> Self {
        self.limit = Some(times);
        self
    }
}
