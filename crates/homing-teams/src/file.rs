//! Team files: parses text into a team and diagnostics. It never fails and does not access files.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    definition::MemoryScope,
    diagnostic::{Diagnostic, Severity},
    registry::{Registry, distance},
    tool::ToolSpec,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    chat::Chat,
    check::{self, Problem},
    crew::Crew,
    graph::Graph,
    limit_fields::LimitFields,
    map::Map,
    orchestrator::Orchestrator,
    person,
    references::references,
    script::{self, Script},
    team::{Member, Pattern, Team},
    yaml_positions::{YamlPositions, quote_leading_zeros},
};

/// The largest accepted size of a team file.
const MAX_BYTES: usize = 8 << 20;

/// A team file, with one of `crew`, `chat`, `graph`, `orchestrator` and `map`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Homing team", rename = "Team")]
pub(crate) struct TeamFile {
    /// Name under which other agents delegate to it.
    pub(crate) name: String,
    /// Description of when to use it.
    pub(crate) description: String,
    /// Values for templates, by name; null means that a value must be given.
    pub(crate) parameters: BTreeMap<String, Value>,
    /// Agents that are defined here; others are looked up by name among the installed agents.
    pub(crate) agents: Vec<Member>,
    /// Teams that are defined here, as members of this one.
    pub(crate) teams: Vec<TeamFile>,
    /// Memory that the members share.
    pub(crate) memory: MemoryField,
    /// Limits of the whole team.
    pub(crate) limits: LimitFields,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) orchestrator: Option<Orchestrator>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) crew: Option<Crew>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) chat: Option<Chat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) graph: Option<Graph>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) map: Option<Map>,
    /// A script has a file of its own; in a record, it is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub(crate) script: Option<Script>,
}

/// Memory that the members of a team share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Memory")]
pub(crate) enum MemoryField {
    /// True for values that last as long as the run.
    Run(bool),
    /// Notes in a folder that last longer than the run.
    Notes(NotesField),
}

/// Place of the notes of a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Notes")]
pub(crate) enum NotesField {
    /// In the project, shared by its users.
    Project,
    /// In the user's home, shared by projects.
    User,
}

impl Default for MemoryField {
    fn default() -> Self {
        Self::Run(false)
    }
}

impl MemoryField {
    fn of(team: &Team) -> Self {
        match team.notes {
            Some(MemoryScope::User) => Self::Notes(NotesField::User),
            Some(MemoryScope::Project | MemoryScope::Local) => Self::Notes(NotesField::Project),
            None => Self::Run(team.memory),
        }
    }

    fn scope(self) -> Option<MemoryScope> {
        match self {
            Self::Run(_) => None,
            Self::Notes(NotesField::Project) => Some(MemoryScope::Project),
            Self::Notes(NotesField::User) => Some(MemoryScope::User),
        }
    }
}

impl TeamFile {
    /// The team without the agents and teams that are part of it.
    pub(crate) fn alone(team: &Team) -> Self {
        let mut file = Self {
            name: team.name.clone(),
            description: team.description.clone(),
            parameters: team.parameters.clone(),
            memory: MemoryField::of(team),
            limits: team.limits.clone(),
            ..Self::default()
        };
        match team.pattern.clone() {
            Pattern::Orchestrator(pattern) => file.orchestrator = Some(pattern),
            Pattern::Crew(pattern) => file.crew = Some(pattern),
            Pattern::Chat(pattern) => file.chat = Some(pattern),
            Pattern::Graph(pattern) => file.graph = Some(pattern),
            Pattern::Map(pattern) => file.map = Some(pattern),
            Pattern::Script(pattern) => file.script = Some(pattern),
        }
        file
    }

    /// Builds the team.
    pub(crate) fn team(self) -> Result<Team, Vec<Problem>> {
        let mut problems = Vec::new();
        let pattern = self.pattern().map_err(|why| problems.push(Problem::new("", why))).ok();
        let mut agents = Vec::new();
        for (at, member) in self.agents.iter().enumerate() {
            match member.definition() {
                Ok(agent) => agents.push(agent),
                Err(why) => problems.push(Problem::new(format!("agents[{at}]"), why)),
            }
        }
        let mut teams = Vec::new();
        for (at, file) in self.teams.into_iter().enumerate() {
            match file.team() {
                Ok(team) => teams.push(team),
                Err(more) => problems.extend(more.into_iter().map(|problem| problem.below(&format!("teams[{at}]")))),
            }
        }
        match (pattern, problems.is_empty()) {
            (Some(pattern), true) => {
                let mut team = Team::new(self.name, pattern).description(self.description).limits(self.limits);
                (team.parameters, team.agents, team.teams) = (self.parameters, agents, teams);
                (team.memory, team.notes) = (self.memory == MemoryField::Run(true), self.memory.scope());
                Ok(team)
            }
            _ => Err(problems),
        }
    }

    fn has_script(&self) -> bool {
        self.script.is_some() || self.teams.iter().any(Self::has_script)
    }

    fn pattern(&self) -> Result<Pattern, &'static str> {
        let found = [
            self.orchestrator.clone().map(Pattern::from),
            self.crew.clone().map(Pattern::from),
            self.chat.clone().map(Pattern::from),
            self.graph.clone().map(Pattern::from),
            self.map.clone().map(Pattern::from),
            self.script.clone().map(Pattern::from),
        ];
        let mut found = found.into_iter().flatten();
        match (found.next(), found.next()) {
            (Some(pattern), None) => Ok(pattern),
            (None, _) => Err("the team has no pattern: use one of crew, chat, graph, orchestrator, map"),
            (Some(_), Some(_)) => {
                Err("the team has more than one pattern: use one of crew, chat, graph, orchestrator, map")
            }
        }
    }
}

/// The result of loading a team file.
#[derive(Debug)]
pub struct LoadedTeam {
    /// The team, if it could be built.
    pub team: Option<Team>,
    /// Diagnostics about the file, with positions.
    pub diagnostics: Vec<Diagnostic>,
    text: String,
    path: Option<Arc<PathBuf>>,
}

/// Parses a team from `text`; `path` is used in diagnostics. A path that ends in `.js` or `.mjs` is a workflow script.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_teams as teams; }
/// use homing::teams::load;
///
/// let text = "
/// name: report
/// crew:
///   tasks:
///     - { name: find, agent: researcher, description: Find facts about the topic }
///     - { name: write, agent: writer, description: Write them down }
/// ";
/// let team = load(text, None).ready().expect("the file has no errors");
/// assert_eq!(team.members(), ["researcher", "writer"]);
/// ```
pub fn load(text: &str, path: Option<&Path>) -> LoadedTeam {
    let script = path.filter(|path| script::is_script(path));
    let path = path.map(|path| Arc::new(path.to_owned()));
    let mut loaded = LoadedTeam { team: None, diagnostics: Vec::new(), text: String::new(), path };
    if let Some(path) = script {
        loaded.add_script(script::load(text, path));
        return loaded;
    }
    match parse(text) {
        Err(diagnostic) => loaded.diagnostics.push(diagnostic.path(loaded.path.clone())),
        Ok(file) if file.has_script() => {
            let error = Diagnostic::error("a workflow script is a file of its own, which ends in `.js`");
            loaded.diagnostics.push(error.path(loaded.path.clone()));
        }
        Ok(file) => {
            text.clone_into(&mut loaded.text);
            match file.team() {
                Ok(team) => {
                    let problems = team.flat().into_iter().flat_map(check::structure).collect();
                    let problems = check::with_team_paths(&team, problems);
                    let positions = YamlPositions::of(text);
                    loaded.diagnostics = loaded.with_positions(problems);
                    loaded.team = Some(team.with_source(loaded.path.as_ref().map(|path| path.as_path()), &positions));
                }
                Err(problems) => loaded.diagnostics = loaded.with_positions(problems),
            }
        }
    }
    loaded
}

fn parse(text: &str) -> Result<TeamFile, Diagnostic> {
    if text.len() > MAX_BYTES {
        return Err(Diagnostic::error(format!("the file is larger than {} MiB", MAX_BYTES >> 20)));
    }
    // YAML 1.2, as in agent files: `no` is text and not `false`.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&quote_leading_zeros(text), options).map_err(|error| {
        let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let position = error.location().map(|place| (number(place.line()), number(place.column())));
        let (line, column) = position.unwrap_or((0, 0));
        Diagnostic::error(plain(&error.without_snippet().to_string())).at(line, column)
    })
}

/// The parser's message without its position and without advice for programmers.
fn plain(message: &str) -> &str {
    let line = message.lines().next().unwrap_or_default();
    let line = line.split(" at line ").next().unwrap_or(line);
    line.split(", set DuplicateKeyPolicy").next().unwrap_or(line)
}

impl LoadedTeam {
    /// Sets the value of a parameter: as JSON if it can be parsed as JSON, as text otherwise.
    ///
    /// # Errors
    /// Fails if the team has no such parameter.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Diagnostic> {
        let Some(team) = &mut self.team else { return Ok(()) };
        let parsed = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        match team.parameters.get_mut(name) {
            Some(parameter) => {
                *parameter = parsed;
                Ok(())
            }
            // A script does not declare the keys of its `args`.
            None if matches!(team.pattern, Pattern::Script(_)) => {
                team.parameters.insert(name.to_owned(), parsed);
                Ok(())
            }
            None => {
                let near = team.parameters.keys().min_by_key(|known| distance(known, name));
                let hint = near.map(|name| format!("did you mean `{name}`?"));
                let mut error = Diagnostic::error(format!("the team has no parameter `{name}`"));
                error.hint = hint;
                Err(error)
            }
        }
    }

    /// Problems of the team given these agents and tools: unknown names, or a team that contains itself.
    pub fn check(&self, registry: &Registry, tools: &[ToolSpec]) -> Vec<Diagnostic> {
        let Some(team) = &self.team else { return Vec::new() };
        let mut registry = registry.clone();
        let all = team.flat();
        for team in &all {
            registry.register_all(team.own_agents(tools));
        }
        person::register(&mut registry, &all);
        let problems = references(&all, &registry, tools);
        self.with_positions(check::with_team_paths(team, problems))
    }

    /// The team, ready to be installed.
    ///
    /// # Errors
    /// Fails with the diagnostics that are errors, and with those for parameters without a value.
    pub fn ready(self) -> Result<Team, Vec<Diagnostic>> {
        let missing = self.team.as_ref().map(check::missing_parameters).unwrap_or_default();
        let errors = self.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).cloned();
        let errors: Vec<Diagnostic> = errors.chain(self.with_positions(missing)).collect();
        match self.team {
            Some(team) if errors.is_empty() => Ok(team),
            Some(_) | None => Err(errors),
        }
    }

    fn add_script(&mut self, loaded: Result<Team, Diagnostic>) {
        match loaded {
            Ok(team) => {
                self.diagnostics = self.with_positions(check::structure(&team));
                self.team = Some(team);
            }
            Err(error) => self.diagnostics.push(error.path(self.path.clone())),
        }
    }

    fn with_positions(&self, problems: Vec<Problem>) -> Vec<Diagnostic> {
        if problems.is_empty() {
            return Vec::new();
        }
        let positions = YamlPositions::of(&self.text);
        let place = |problem: Problem| {
            let (line, column) = positions.find(&problem.path);
            let field = Some(problem.path).filter(|path| !path.is_empty());
            let mut diagnostic = problem.diagnostic.path(self.path.clone()).at(line, column);
            diagnostic.field = field;
            diagnostic
        };
        problems.into_iter().map(place).collect()
    }
}

/// The published JSON schema of team files.
pub fn schema() -> Value {
    serde_json::to_value(schemars::schema_for!(TeamFile)).unwrap_or_default()
}
