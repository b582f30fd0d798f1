//! `Team`: a name, members, and the pattern by which they work together.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use homing_core::{
    agent_builder::{AgentBuildError, AgentBuilder},
    authority::Allow,
    definition::{self, AgentDefinition, MemoryScope, ModelChoice, ProjectContext},
    limits::{Cap, Limit, Limits},
    registry::Registry,
    rule::Rule,
    tool::{Tool, ToolSpec},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map as Object, Value, json};

use crate::{
    chat::{Chat, script::ChatScript},
    crew::{Crew, script::CrewScript},
    graph::{Graph, script::GraphScript},
    limit_fields::LimitFields,
    map::{Map, MapScript},
    memory,
    orchestrator::Orchestrator,
    program::TeamScript,
    script::Script,
    source::TeamSource,
};

/// A team.
///
/// # Examples
///
/// ```
/// # use homing_teams as homing;
/// use homing::{Map, Team};
///
/// let team = Team::new("survey", Map::new("explorer", "What does {{ item }} do?")).description("Describes each file");
/// assert_eq!(team.members(), ["explorer"]);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Team {
    /// Name under which other agents delegate to it.
    pub name: String,
    /// Description of when to use it.
    pub description: String,
    /// Values for its templates, by name; null means that a value must be given.
    pub parameters: BTreeMap<String, Value>,
    /// Agents that are part of the team; others are looked up by name when it is installed.
    pub agents: Vec<AgentDefinition>,
    /// Teams that are part of the team.
    pub teams: Vec<Team>,
    /// Tools that are part of the team: other agents do not get them.
    pub tools: Vec<Arc<dyn Tool>>,
    /// True if members share a memory that lasts as long as the run.
    pub memory: bool,
    /// Scope of the notes that the members share and keep between runs.
    pub notes: Option<MemoryScope>,
    /// Limits of the whole team.
    pub limits: LimitFields,
    /// The way in which the members work together.
    pub pattern: Pattern,
    pub(crate) source: TeamSource,
}

/// The way in which the members of a team work together.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// A coordinator with workers.
    Orchestrator(Orchestrator),
    /// Tasks with dependencies.
    Crew(Crew),
    /// A conversation.
    Chat(Chat),
    /// A graph over a shared state.
    Graph(Graph),
    /// The same task for every item of a list.
    Map(Map),
    /// A workflow script.
    Script(Script),
}

/// An agent that is defined in the team's file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Member {
    /// Name by which the team refers to it.
    pub name: String,
    /// Description of what it is for.
    pub description: String,
    /// Its system prompt.
    pub prompt: String,
    /// Tools it may use. By default those that its role needs: a worker gets all but delegation, a speaker of a chat those
    /// that change nothing, and a manager, selector or summary none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Its model; by default the host's default model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Limits of each run.
    pub limits: LimitFields,
    /// Consequence of its failure, if the task, node, chat or map it works for has the default.
    pub on_failure: MemberFailure,
}

/// Consequence of a member's failure. Only tasks and nodes can make a failure end the whole team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberFailure {
    /// The failure counts as a failure of the task or node.
    #[default]
    Report,
    /// The failure does not count.
    Skip,
}

impl Member {
    /// The member as an agent definition.
    ///
    /// # Errors
    /// Fails if its name, tools or limits are not valid.
    pub fn definition(&self) -> Result<AgentDefinition, String> {
        let limits = self.limits.limits()?;
        let mut builder =
            AgentBuilder::new(&self.name).description(&self.description).prompt(&self.prompt).limits(limits);
        if let Some(tools) = &self.tools {
            builder = builder.tools(tools.iter().map(String::as_str));
        }
        if let Some(model) = &self.model {
            builder = builder.model(model);
        }
        let on_failure = match self.on_failure {
            MemberFailure::Report => definition::OnFailure::Report,
            MemberFailure::Skip => definition::OnFailure::Skip,
        };
        builder.on_failure(on_failure).build().map_err(|error: AgentBuildError| error.to_string())
    }
}

impl Team {
    /// Creates a team with this name and pattern.
    pub fn new(name: impl Into<String>, pattern: impl Into<Pattern>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            parameters: BTreeMap::new(),
            agents: Vec::new(),
            teams: Vec::new(),
            tools: Vec::new(),
            memory: false,
            notes: None,
            limits: LimitFields::default(),
            pattern: pattern.into(),
            source: TeamSource::default(),
        }
    }

    /// Sets the description of when to use it.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Adds an agent that is part of the team.
    #[must_use]
    pub fn agent(mut self, agent: AgentDefinition) -> Self {
        self.agents.push(agent);
        self
    }

    /// Adds a team that is part of the team.
    #[must_use]
    pub fn team(mut self, team: Team) -> Self {
        self.teams.push(team);
        self
    }

    /// Adds a tool that is part of the team: its members may use it, other agents may not.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets a value for templates.
    #[must_use]
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.parameters.insert(name.into(), value.into());
        self
    }

    /// Gives the members a shared memory.
    #[must_use]
    pub fn with_memory(mut self) -> Self {
        self.memory = true;
        self
    }

    /// Gives the members notes that they share and keep between runs.
    #[must_use]
    pub fn with_notes(mut self, scope: MemoryScope) -> Self {
        self.notes = Some(scope);
        self
    }

    /// Sets the limits of the whole team.
    #[must_use]
    pub fn limits(mut self, limits: LimitFields) -> Self {
        self.limits = limits;
        self
    }

    /// Name of the model that is this team's program.
    pub(crate) fn model_name(&self) -> String {
        format!("{MODEL_PREFIX}{}", self.name)
    }

    /// The agents and teams it delegates to, each once.
    pub fn members(&self) -> Vec<&str> {
        let mut names = match &self.pattern {
            Pattern::Orchestrator(team) => team.workers.iter().map(String::as_str).collect(),
            Pattern::Crew(crew) => crew.members(self),
            Pattern::Chat(chat) => chat.participants(),
            Pattern::Graph(graph) => graph.agents(),
            Pattern::Map(map) => map.agents(),
            Pattern::Script(_) => self.agents.iter().map(|agent| agent.name.as_str()).collect(),
        };
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(*name));
        names
    }

    /// The tools that the team itself calls.
    pub(crate) fn functions(&self) -> Vec<&str> {
        match &self.pattern {
            Pattern::Graph(graph) => graph.tools(),
            Pattern::Crew(crew) => crew.tools(),
            Pattern::Orchestrator(_) | Pattern::Chat(_) | Pattern::Map(_) | Pattern::Script(_) => Vec::new(),
        }
    }

    /// The most delegations that the team itself can make; `None` if only the length of a list bounds them.
    pub(crate) fn size(&self) -> Option<u64> {
        match &self.pattern {
            Pattern::Orchestrator(_) => Some(0),
            Pattern::Crew(crew) => Some(crew.size()),
            Pattern::Chat(chat) => Some(chat.size()),
            Pattern::Graph(graph) => graph.size(),
            Pattern::Map(map) => map.size(),
            Pattern::Script(_) => None,
        }
    }

    /// The team's program; `None` for an orchestrator, whose coordinator is a language model.
    pub(crate) fn program(&self, registry: &Registry) -> Option<Arc<dyn TeamScript>> {
        match &self.pattern {
            Pattern::Orchestrator(_) => None,
            Pattern::Crew(crew) => Some(Arc::new(CrewScript::new(crew, self, registry))),
            Pattern::Chat(chat) => Some(Arc::new(ChatScript::new(chat, self, registry))),
            Pattern::Graph(graph) => Some(Arc::new(GraphScript::new(graph, self, registry))),
            Pattern::Map(map) => Some(Arc::new(MapScript::new(map, self))),
            #[cfg(feature = "scripts")]
            Pattern::Script(script) => Some(Arc::new(crate::script::ScriptProgram::new(script, self))),
            #[cfg(not(feature = "scripts"))]
            Pattern::Script(_) => None,
        }
    }

    /// The team as an agent definition, so that other agents can delegate to it.
    pub(crate) fn definition(&self, registry: &Registry, names: &HashMap<String, String>) -> AgentDefinition {
        let mut rules: Vec<Rule> = self.functions().into_iter().map(Rule::tool).collect();
        let members = self.members();
        if matches!(self.pattern, Pattern::Script(_)) {
            // A script names its agents while it runs.
            rules.push(Rule::tool("delegate"));
        } else if !members.is_empty() {
            rules.push(Rule::calls("delegate", registered(members.iter().copied(), names)));
        }
        let description = match self.description.trim() {
            "" => format!("A team: {}", members.join(", ")),
            description => description.to_owned(),
        };
        let mut definition = AgentDefinition::new(&self.name, description, "");
        definition.tools.allowed = Allow::Only(rules);
        // A team does nothing itself; its members get what its parent may delegate.
        definition.tools.delegates = Some(vec![Rule::tool("*")]);
        definition.model.choice = ModelChoice::Named(vec![self.model_name()]);
        definition.context.project_context = ProjectContext::None;
        definition.limits = self.effective_limits();
        // A team has a schema if its last task has one.
        if let Pattern::Crew(crew) = &self.pattern {
            definition.task.schema = crew.schema(registry).cloned();
        }
        definition
    }

    /// The limits of the team: its own, then the defaults plus what its pattern needs.
    pub(crate) fn effective_limits(&self) -> Limits {
        let sizes = self.flat().into_iter().map(Team::size);
        let size = sizes.into_iter().try_fold(0_u64, |sum, size| Some(sum.saturating_add(size?)));
        let defaults = Limits::root();
        let more = |cap: Cap, extra: Option<u64>| match (cap.value(), extra) {
            (Some(limit), Some(extra)) => Cap::At(limit.saturating_add(extra)),
            (None, _) | (_, None) => Cap::Unlimited,
        };
        let needed = Limits::default()
            .with(Limit::Turns, Cap::Unlimited)
            .with(Limit::Children, more(defaults.children, size))
            .with(Limit::ToolCalls, more(defaults.tool_calls, size.map(|size| size.saturating_mul(3))));
        self.limits.limits().unwrap_or_default().or(needed)
    }

    /// The agents that are part of the team, with the tools of their roles, and access to the shared memory if there is one.
    pub(crate) fn own_agents(&self, tools: &[ToolSpec]) -> Vec<AgentDefinition> {
        let mut agents = self.agents.clone();
        for agent in agents.iter_mut().filter(|agent| agent.tools.allowed == Allow::All) {
            agent.tools.allowed = self.default_tools(&agent.name, tools);
        }
        for agent in agents.iter_mut().filter(|agent| self.notes.is_some() && agent.execution.memory.is_none()) {
            (agent.execution.memory, agent.execution.memory_name) = (self.notes, Some(self.name.clone()));
        }
        for agent in agents.iter_mut().filter(|_| self.memory) {
            if let Allow::Only(rules) = &mut agent.tools.allowed {
                rules.retain(|rule| !memory::NAMES.contains(&rule.tool.as_str()));
                rules.extend(memory::NAMES.map(Rule::tool));
            }
        }
        agents
    }

    /// Returns whether a part of it is code and cannot be recorded as data.
    pub(crate) fn has_code(&self) -> bool {
        match &self.pattern {
            Pattern::Graph(graph) => !graph.reducers.is_empty() || graph.edges.iter().any(|edge| edge.test.is_some()),
            Pattern::Chat(chat) => chat.select.0.is_some(),
            Pattern::Orchestrator(_) | Pattern::Crew(_) | Pattern::Map(_) | Pattern::Script(_) => false,
        }
    }

    /// The parameters that the prompts of its own agents use as `{{name}}`, by agent.
    pub(crate) fn shared(&self) -> HashMap<String, Value> {
        let named = |prompt: &str| -> Object<String, Value> {
            let blanks = blanks(prompt);
            let used = self.parameters.iter().filter(|(name, _)| blanks.contains(&name.as_str()));
            used.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        let all = self.agents.iter().map(|agent| (agent.name.clone(), named(&agent.prompt)));
        all.filter(|(_, named)| !named.is_empty()).map(|(name, named)| (name, Value::Object(named))).collect()
    }

    /// This team and all teams that are part of it.
    pub(crate) fn flat(&self) -> Vec<&Team> {
        [self].into_iter().chain(self.teams.iter().flat_map(Team::flat)).collect()
    }

    /// The values that every template sees: the parameters and the task.
    pub(crate) fn scope(&self) -> TemplateScope {
        TemplateScope(self.parameters.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

/// The names under which members are registered, as a pattern of a rule.
pub(crate) fn registered<'a>(members: impl Iterator<Item = &'a str>, names: &HashMap<String, String>) -> String {
    members.map(|name| names.get(name).map_or(name, String::as_str).to_owned()).collect::<Vec<_>>().join(",")
}

/// The names that a prompt contains as `{{name}}`.
pub(crate) fn blanks(prompt: &str) -> Vec<&str> {
    let inside = prompt.split("{{").skip(1).filter_map(|rest| rest.split_once("}}"));
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|char| char.is_alphanumeric() || char == '_');
    inside.map(|(name, _)| name.trim()).filter(is_name).collect()
}

/// Prefix of the names of models that are team programs.
pub(crate) const MODEL_PREFIX: &str = "team/";

/// The values that a team's templates always see.
#[derive(Clone, Debug)]
pub(crate) struct TemplateScope(Object<String, Value>);

impl TemplateScope {
    /// The whole scope, with the task and the values that the pattern adds.
    pub(crate) fn with(&self, task: &str, more: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
        let mut all = self.0.clone();
        all.insert("task".to_owned(), json!(task));
        all.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
        Value::Object(all)
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("name", &self.name).field("pattern", &self.pattern).finish_non_exhaustive()
    }
}

impl From<Orchestrator> for Pattern {
    fn from(pattern: Orchestrator) -> Self {
        Self::Orchestrator(pattern)
    }
}

impl From<Crew> for Pattern {
    fn from(pattern: Crew) -> Self {
        Self::Crew(pattern)
    }
}

impl From<Chat> for Pattern {
    fn from(pattern: Chat) -> Self {
        Self::Chat(pattern)
    }
}

impl From<Graph> for Pattern {
    fn from(pattern: Graph) -> Self {
        Self::Graph(pattern)
    }
}

impl From<Map> for Pattern {
    fn from(pattern: Map) -> Self {
        Self::Map(pattern)
    }
}
