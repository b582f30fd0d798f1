//! Installs teams in a runtime: as agents, and as the models that are their programs.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use homing_core::{
    definition::{AgentDefinition, ModelChoice, Source},
    diagnostic::Diagnostic,
    model::{Model, ModelError, Models, ResolvedModel},
    registry::Registry,
    tool::{AgentToolSource, Tool, ToolSpec},
};
use homing_runtime::RuntimeParts;

use crate::{
    check::{self, Problem},
    memory, person,
    program::ProgramModel,
    recorded,
    team::{MODEL_PREFIX, Pattern, Team},
};

/// Installs `teams`: registers their members, the teams themselves as agents, and their programs. The tools of a team are
/// available to its own runs and those below them, and to no other agent.
///
/// Set the host's default model in `parts.models`, not in the task: the model of a task would replace the team's program.
///
/// # Errors
/// Fails with all problems of the teams; then nothing is installed.
pub fn install(parts: &mut RuntimeParts, teams: impl IntoIterator<Item = Team>) -> Result<(), Vec<Diagnostic>> {
    let teams: Vec<Team> = teams.into_iter().collect();
    if teams.is_empty() {
        return Ok(());
    }
    let all: Vec<&Team> = teams.iter().flat_map(Team::flat).collect();
    install_all(parts, &all, &HashMap::new(), &Source::default())
}

/// Installs a team beside other agents: a member whose name is taken is registered as `TEAM-MEMBER`, so that it hides no agent
/// and no member of another team. `source` is the file of the team.
///
/// # Errors
/// Fails with all problems of the team, or if there is an agent of its name; then nothing is installed.
pub fn install_beside(parts: &mut RuntimeParts, team: Team, source: &Source) -> Result<(), Vec<Diagnostic>> {
    let all = team.flat();
    if let Some(taken) = all.iter().find(|team| parts.registry.has(&team.name)) {
        let message = format!("the team `{}` is not available: there is an agent of this name", taken.name);
        return Err(vec![Diagnostic::error(message)]);
    }
    let own = all.iter().flat_map(|team| &team.agents).map(|agent| &agent.name);
    let taken = own.filter(|name| parts.registry.has(name));
    let names: HashMap<String, String> = taken.map(|name| (name.clone(), format!("{}-{name}", team.name))).collect();
    install_all(parts, &all, &names, source)
}

/// Installs teams. `names` are the names under which members are registered, if they differ from those in the team.
fn install_all(
    parts: &mut RuntimeParts,
    all: &[&Team],
    names: &HashMap<String, String>,
    source: &Source,
) -> Result<(), Vec<Diagnostic>> {
    let host_tools: Vec<ToolSpec> = parts.tools.iter().map(|tool| tool.spec().clone()).collect();
    let own_tools = TeamTools::new(all, parts.agent_tools.clone());
    let tools_for = |team: &Team| [host_tools.clone(), own_tools.specs(&team.name)].concat();
    // The agents as the teams see them: their own members first, under their own names.
    let mut seen = Registry::clone(&parts.registry);
    let mut registry = Registry::clone(&parts.registry);
    for mut agent in all.iter().flat_map(|team| team.own_agents(&tools_for(team))) {
        seen.register(agent.clone());
        if let Some(name) = names.get(&agent.name) {
            agent.name.clone_from(name);
        }
        let mut agent = agent;
        agent.source = source.clone();
        registry.register(agent);
    }
    for registry in [&mut seen, &mut registry] {
        person::register(registry, all);
    }
    let mut problems = check::problems(all, &seen, &host_tools);
    problems.retain(Problem::is_error);
    if !problems.is_empty() {
        return Err(problems.into_iter().map(|problem| problem.diagnostic).collect());
    }
    for team in all {
        let mut definition = agent(team, &seen, &tools_for(team), names);
        definition.source = source.clone();
        seen.register(definition.clone());
        registry.register(definition);
    }
    let programs = all.iter().filter_map(|team| program(team, &seen, names));
    let person = all.iter().any(|team| person::takes_part(team)).then(|| (person::MODEL.to_owned(), person::model()));
    let programs = programs.chain(person).collect();
    parts.models = Arc::new(TeamModels { programs, members: BTreeMap::new(), inner: parts.models.clone() });
    parts.agent_tools = Some(Arc::new(own_tools));
    parts.registry = Arc::new(registry);
    Ok(())
}

/// The program of a team, with its name as a model. `seen` are the agents as the team sees them.
pub(crate) fn program(
    team: &Team,
    seen: &Registry,
    names: &HashMap<String, String>,
) -> Option<(String, Arc<dyn Model>)> {
    let name = team.model_name();
    let program = ProgramModel::new(&name, team.program(seen)?, team.shared(), names.clone());
    Some((name, Arc::new(program)))
}

fn agent(team: &Team, registry: &Registry, tools: &[ToolSpec], names: &HashMap<String, String>) -> AgentDefinition {
    let mut definition = team.definition(registry, names);
    if let Some(record) = recorded::record(team, names) {
        definition.extra.metadata.insert(recorded::RECORD.to_owned(), record);
    }
    match &team.pattern {
        Pattern::Orchestrator(orchestrator) => match registry.get(&orchestrator.coordinator) {
            Ok(coordinator) => orchestrator.head(coordinator, tools, definition, names),
            Err(_) => definition,
        },
        Pattern::Crew(_) | Pattern::Chat(_) | Pattern::Graph(_) | Pattern::Map(_) | Pattern::Script(_) => definition,
    }
}

/// Returns whether an agent is a team, whose program no other model can replace.
pub fn is_team_agent(agent: &AgentDefinition) -> bool {
    match &agent.model.choice {
        ModelChoice::Named(names) => names.iter().any(|name| is_program(name)),
        _ => false,
    }
}

/// Returns whether a model of this name is a program of a team.
pub fn is_program(name: &str) -> bool {
    name.starts_with(MODEL_PREFIX)
}

/// The tools of each team, for its own runs and those below them, and the tools that other agents supply.
pub(crate) struct TeamTools {
    by_team: HashMap<String, Vec<Arc<dyn Tool>>>,
    others: Option<Arc<dyn AgentToolSource>>,
}

impl TeamTools {
    pub(crate) fn new(all: &[&Team], others: Option<Arc<dyn AgentToolSource>>) -> Self {
        let tools = |team: &Team| {
            let memory = if team.memory { memory::tools() } else { Vec::new() };
            team.tools.iter().cloned().chain(memory).collect()
        };
        Self { by_team: all.iter().map(|team| (team.name.clone(), tools(team))).collect(), others }
    }

    fn specs(&self, team: &str) -> Vec<ToolSpec> {
        self.by_team.get(team).into_iter().flatten().map(|tool| tool.spec().clone()).collect()
    }
}

impl AgentToolSource for TeamTools {
    fn tools_of(&self, agent: &AgentDefinition) -> Vec<Arc<dyn Tool>> {
        let mut tools: Vec<Arc<dyn Tool>> = self.by_team.get(&agent.name).cloned().unwrap_or_default();
        let is_own = |tool: &Arc<dyn Tool>| tools.iter().any(|own| own.spec().name == tool.spec().name);
        let others = self.others.iter().flat_map(|source| source.tools_of(agent));
        let others: Vec<_> = others.filter(|tool| !is_own(tool)).collect();
        tools.extend(others);
        tools
    }
}

/// The programs of teams, and the models of the host.
pub struct TeamModels {
    pub(crate) programs: BTreeMap<String, Arc<dyn Model>>,
    /// The models that members inherit, by the programs of their teams.
    pub(crate) members: BTreeMap<String, String>,
    pub(crate) inner: Arc<dyn Models>,
}

impl Models for TeamModels {
    fn resolve(&self, choice: &ModelChoice, parent: Option<&str>) -> Result<ResolvedModel, ModelError> {
        let program = choice.names().iter().find(|name| self.programs.contains_key(*name));
        if let Some(name) = program {
            return Ok(ResolvedModel { names: vec![name.clone()], warnings: Vec::new() });
        }
        // A member does not inherit its team's program, but the host's default, or that of the host that submitted the team.
        let members = |program: &str| self.members.get(program).map(String::as_str);
        let parent = parent.and_then(|name| if is_program(name) { members(name) } else { Some(name) });
        self.inner.resolve(choice, parent)
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.programs.get(name).map_or_else(|| self.inner.get(name), |program| Ok(program.clone()))
    }

    fn secrets(&self) -> Vec<String> {
        self.inner.secrets()
    }
}
