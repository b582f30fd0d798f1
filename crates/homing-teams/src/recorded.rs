//! Teams as data in the definitions of their agents, so that another process can install them again: to resume a run tree, or on
//! another machine.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use homing_core::{
    definition::AgentDefinition,
    fact::{Fact, Record, Spawned},
    registry::Registry,
};
use homing_runtime::RuntimeParts;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    file::TeamFile,
    install::{TeamModels, TeamTools, program},
    person,
    source::TeamSource,
    team::Team,
};

/// Metadata key under which the definition of a team contains the team itself.
pub(crate) const RECORD: &str = "team";

/// Key of a record: the names under which members are registered, if they differ from those in the team.
const NAMES: &str = "names";

/// Key of a record: the model that members inherit.
const MODEL: &str = "model";

/// The team as data; `None` if a part of it is code.
pub(crate) fn record(team: &Team, names: &HashMap<String, String>) -> Option<Value> {
    if !team.tools.is_empty() || team.has_code() {
        return None;
    }
    let teams: Option<Vec<Value>> = team.teams.iter().map(|team| record(team, names)).collect();
    let mut record = json!({"file": TeamFile::alone(team), "agents": team.agents, "teams": teams?});
    if !names.is_empty() {
        record[NAMES] = json!(names);
    }
    if team.source != TeamSource::default() {
        record["source"] = json!(team.source);
    }
    Some(record)
}

/// The team of a recorded run, so that a host can install it again before it resumes the run's tree.
///
/// `None` if the run is not a team, or if the team has tools or conditions in code: then its host must install it.
pub fn recorded(spawned: &Spawned) -> Option<Team> {
    team_of(&spawned.agent)
}

/// The teams of a recorded tree, each once, which a host installs before it resumes the tree.
pub fn recorded_in<'a>(records: impl IntoIterator<Item = &'a Record>) -> Vec<Team> {
    let mut teams: Vec<Team> = Vec::new();
    for record in records {
        let Fact::Spawned(spawned) = &record.fact else { continue };
        let known = teams.iter().flat_map(Team::flat).any(|team| team.name == spawned.agent.name);
        teams.extend(recorded(spawned).filter(|_| !known));
    }
    teams
}

/// The names under which the members of a recorded team are registered, if they differ from those in the team.
pub(crate) fn names_of(definition: &AgentDefinition) -> HashMap<String, String> {
    let names = definition.extra.metadata.get(RECORD).and_then(|record| record.get(NAMES));
    names.and_then(|names| HashMap::deserialize(names).ok()).unwrap_or_default()
}

/// The team that a definition contains.
fn team_of(definition: &AgentDefinition) -> Option<Team> {
    from_record(definition.extra.metadata.get(RECORD)?)
}

fn from_record(record: &Value) -> Option<Team> {
    let file: TeamFile = serde_json::from_value(record.get("file")?.clone()).ok()?;
    let mut team = file.team().ok()?;
    team.agents = serde_json::from_value(record.get("agents")?.clone()).ok()?;
    team.source = record.get("source").and_then(|source| TeamSource::deserialize(source).ok()).unwrap_or_default();
    team.teams = record.get("teams")?.as_array()?.iter().map(from_record).collect::<Option<_>>()?;
    Some(team)
}

/// Sets the model that members of recorded teams inherit, so that a host with another default uses the same.
pub fn set_member_model(registry: &mut Registry, model: &str) {
    for definition in registry.definitions_mut() {
        if let Some(Value::Object(record)) = definition.extra.metadata.get_mut(RECORD) {
            record.insert(MODEL.to_owned(), json!(model));
        }
    }
}

/// Installs the programs and tools of the teams that the registry contains as data. Unlike [`install`](crate::install), it
/// leaves the registry as it is, because the host that installed the teams has registered their members.
pub fn install_recorded(parts: &mut RuntimeParts) {
    let registry = parts.registry.clone();
    let (mut teams, mut programs, mut members) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for definition in registry.definitions() {
        let Some(team) = team_of(definition) else { continue };
        let names = names_of(definition);
        let model = definition.extra.metadata[RECORD].get(MODEL).and_then(Value::as_str);
        members.extend(model.map(|model| (team.model_name(), model.to_owned())));
        programs.extend(program(&team, &seen_by_team(&registry, &names), &names));
        teams.push(team);
    }
    if teams.is_empty() {
        return;
    }
    if teams.iter().any(person::takes_part) {
        programs.insert(person::MODEL.to_owned(), person::model());
    }
    let all: Vec<&Team> = teams.iter().collect();
    parts.agent_tools = Some(Arc::new(TeamTools::new(&all, parts.agent_tools.clone())));
    parts.models = Arc::new(TeamModels { programs, members, inner: parts.models.clone() });
}

/// The agents as a team sees them: its own members under their own names.
fn seen_by_team(registry: &Registry, names: &HashMap<String, String>) -> Registry {
    let mut seen = registry.clone();
    for (own, registered) in names {
        if let Ok(definition) = registry.get(registered) {
            let mut definition = AgentDefinition::clone(definition);
            definition.name.clone_from(own);
            seen.register(definition);
        }
    }
    seen
}
