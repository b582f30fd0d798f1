//! Team files: text to a team and to what is to be said about it. It never fails and never reads a file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use homing_core::{
    diagnostic::{Diagnostic, Severity},
    registry::{Registry, distance},
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
    references::references,
    team::{Member, Pattern, Team},
    yaml_positions::YamlPositions,
};

/// What is larger was not written by a person.
const MOST_BYTES: usize = 8 << 20;

/// A team as it is written in a file: one of `crew`, `chat`, `graph`, `orchestrator` and `map`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Homing team", rename = "Team")]
pub(crate) struct TeamFile {
    /// The name under which others delegate to it.
    pub(crate) name: String,
    /// When to use it.
    pub(crate) description: String,
    /// Values that templates use by name; null is one that must be given with `--set`.
    pub(crate) parameters: BTreeMap<String, Value>,
    /// Members that are defined here; others are found by name among the agents that are installed.
    pub(crate) agents: Vec<Member>,
    /// Teams that are defined here, to be members of this one.
    pub(crate) teams: Vec<TeamFile>,
    /// Whether members share a memory.
    pub(crate) memory: bool,
    /// What the whole team may spend.
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
}

impl TeamFile {
    /// The team without the agents and teams that come with it.
    pub(crate) fn alone(team: &Team) -> Self {
        let mut file = Self {
            name: team.name.clone(),
            description: team.description.clone(),
            parameters: team.parameters.clone(),
            memory: team.memory,
            limits: team.limits.clone(),
            ..Self::default()
        };
        match team.pattern.clone() {
            Pattern::Orchestrator(it) => file.orchestrator = Some(it),
            Pattern::Crew(it) => file.crew = Some(it),
            Pattern::Chat(it) => file.chat = Some(it),
            Pattern::Graph(it) => file.graph = Some(it),
            Pattern::Map(it) => file.map = Some(it),
        }
        file
    }

    /// The team that is written here.
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
                Err(more) => problems.extend(more.into_iter().map(|it| it.below(&format!("teams[{at}]")))),
            }
        }
        match (pattern, problems.is_empty()) {
            (Some(pattern), true) => {
                let mut team = Team::new(self.name, pattern).description(self.description).limits(self.limits);
                (team.parameters, team.agents, team.teams, team.memory) = (self.parameters, agents, teams, self.memory);
                Ok(team)
            }
            _ => Err(problems),
        }
    }

    fn pattern(&self) -> Result<Pattern, &'static str> {
        let found = [
            self.orchestrator.clone().map(Pattern::from),
            self.crew.clone().map(Pattern::from),
            self.chat.clone().map(Pattern::from),
            self.graph.clone().map(Pattern::from),
            self.map.clone().map(Pattern::from),
        ];
        let mut found = found.into_iter().flatten();
        match (found.next(), found.next()) {
            (Some(pattern), None) => Ok(pattern),
            (None, _) => Err("the team has no pattern: write one of crew, chat, graph, orchestrator, map"),
            (Some(_), Some(_)) => {
                Err("the team has more than one pattern: write one of crew, chat, graph, orchestrator, map")
            }
        }
    }
}

/// What became of a team file.
pub struct LoadedTeam {
    /// The team, where it can be made out.
    pub team: Option<Team>,
    /// What is to be said about the file, with places.
    pub diagnostics: Vec<Diagnostic>,
    text: String,
    path: Option<Arc<PathBuf>>,
}

/// Reads a team from `text`; `path` is where it came from, for messages.
pub fn load(text: &str, path: Option<&Path>) -> LoadedTeam {
    let path = path.map(|it| Arc::new(it.to_owned()));
    let mut loaded = LoadedTeam { team: None, diagnostics: Vec::new(), text: String::new(), path };
    match parse(text) {
        Err(diagnostic) => loaded.diagnostics.push(Diagnostic { path: loaded.path.clone(), ..diagnostic }),
        Ok(file) => {
            text.clone_into(&mut loaded.text);
            match file.team() {
                Ok(team) => {
                    let problems = team.flat().into_iter().flat_map(check::structure).collect();
                    let problems = check::below_the_right_team(&team, problems);
                    loaded.diagnostics = loaded.placed(problems);
                    loaded.team = Some(team);
                }
                Err(problems) => loaded.diagnostics = loaded.placed(problems),
            }
        }
    }
    loaded
}

fn parse(text: &str) -> Result<TeamFile, Diagnostic> {
    if text.len() > MOST_BYTES {
        return Err(Diagnostic::error(format!("the file has more than {} MiB", MOST_BYTES >> 20)));
    }
    serde_saphyr::from_str(text).map_err(|error| {
        let number = |it: u64| u32::try_from(it).unwrap_or(u32::MAX);
        let (line, column) = error.location().map_or((0, 0), |it| (number(it.line()), number(it.column())));
        Diagnostic::error(plain(&error.without_snippet().to_string())).at(line, column)
    })
}

/// The parser's message without its own account of the place, and without advice to programmers.
fn plain(message: &str) -> &str {
    let line = message.lines().next().unwrap_or_default();
    let line = line.split(" at line ").next().unwrap_or(line);
    line.split(", set DuplicateKeyPolicy").next().unwrap_or(line)
}

impl LoadedTeam {
    /// Gives a parameter its value: JSON where it can be read as JSON, text otherwise.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Diagnostic> {
        let Some(team) = &mut self.team else { return Ok(()) };
        match team.parameters.get_mut(name) {
            Some(parameter) => {
                *parameter = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
                Ok(())
            }
            None => {
                let near = team.parameters.keys().min_by_key(|known| distance(known, name));
                let hint = near.map(|it| format!("did you mean `{it}`?"));
                Err(Diagnostic { hint, ..Diagnostic::error(format!("the team has no parameter `{name}`")) })
            }
        }
    }

    /// What is wrong with the team among these agents and tools: nobody of that name, or a team that contains itself.
    pub fn check(&self, registry: &Registry, tools: &[String]) -> Vec<Diagnostic> {
        let Some(team) = &self.team else { return Vec::new() };
        let mut registry = registry.clone();
        let all = team.flat();
        for it in &all {
            registry.register_all(it.own_agents());
        }
        let problems = references(&all, &registry, Some(tools));
        self.placed(check::below_the_right_team(team, problems))
    }

    /// The team, ready to be installed, or what is in the way.
    pub fn ready(self) -> Result<Team, Vec<Diagnostic>> {
        let missing = self.team.as_ref().map(check::missing_parameters).unwrap_or_default();
        let errors = self.diagnostics.iter().filter(|it| it.severity == Severity::Error).cloned();
        let errors: Vec<Diagnostic> = errors.chain(self.placed(missing)).collect();
        match self.team {
            Some(team) if errors.is_empty() => Ok(team),
            Some(_) | None => Err(errors),
        }
    }

    fn placed(&self, problems: Vec<Problem>) -> Vec<Diagnostic> {
        if problems.is_empty() {
            return Vec::new();
        }
        let spots = YamlPositions::of(&self.text);
        let place = |problem: Problem| {
            let (line, column) = spots.find(&problem.path);
            let field = Some(problem.path).filter(|path| !path.is_empty());
            Diagnostic { path: self.path.clone(), line, column, field, ..problem.diagnostic }
        };
        problems.into_iter().map(place).collect()
    }
}

/// The JSON schema of team files, as it is published.
pub fn schema() -> Value {
    serde_json::to_value(schemars::schema_for!(TeamFile)).unwrap_or_default()
}
