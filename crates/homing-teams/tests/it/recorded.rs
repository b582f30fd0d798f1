//! Teams that travel as data in their definitions: another host installs their programs and tools, and runs them alike.

use std::sync::Arc;

use crate::support::{MemberRequest, agent_names, agents, scripted, team};
use homing_core::{
    definition::{AgentDefinition, ModelChoice, Source},
    model::{Model, ModelError, Models, ResolvedModel},
    registry::Registry,
    scripted_model::say,
};
use homing_runtime::{Runtime, RuntimeParts, Task, journal::MemoryJournal};
use homing_teams::{install_beside, install_recorded, set_member_model};

/// Models that a run inherits from its parent, and else the default of this host.
struct Inheriting {
    default: &'static str,
    all: Arc<dyn Models>,
}

impl Models for Inheriting {
    fn resolve(&self, _: &ModelChoice, parent: Option<&str>) -> Result<ResolvedModel, ModelError> {
        Ok(ResolvedModel { names: vec![parent.unwrap_or(self.default).to_owned()], warnings: Vec::new() })
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        self.all.get(name)
    }
}

fn host(registry: Registry, default: &'static str) -> RuntimeParts {
    let script = |member: MemberRequest<'_>| say(format!("{} did {}", member.name, member.task));
    RuntimeParts::new(registry, Arc::new(Inheriting { default, all: scripted(script) }), MemoryJournal::new())
}

/// The definitions after a journey as JSON.
fn sent(registry: &Registry) -> Registry {
    let all: Vec<&AgentDefinition> = registry.all().map(|entry| &*entry.definition).collect();
    let text = serde_json::to_string(&all).unwrap();
    serde_json::from_str::<Vec<AgentDefinition>>(&text).unwrap().into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn recorded_team_runs_on_another_host() {
    let text = "name: t\nagents: [{name: writer, description: writes, prompt: 'own writer'}]\ncrew:\n  tasks:\n    - {name: one, agent: writer, description: \
                'write {{ task }}'}\n    - {name: two, agent: editor, description: edit}";
    let mut here = host(agents(["writer", "editor"]).into_iter().collect(), "model/here");
    install_beside(&mut here, team(text), &Source::default()).unwrap();
    let mut registry = Registry::clone(&here.registry);
    set_member_model(&mut registry, "model/here");
    let mut there = host(sent(&registry), "model/there");
    install_recorded(&mut there);
    let mut ends = Vec::new();
    for parts in [here, there] {
        let run = Runtime::new(parts).spawn(Task::new("t", "it")).unwrap();
        let envelope = run.wait().await;
        let names: Vec<String> = agent_names(&envelope).into_iter().map(str::to_owned).collect();
        let models: Vec<String> = envelope.children.iter().map(|child| child.model.clone()).collect();
        ends.push((envelope.status, envelope.output, names, models));
    }
    assert_eq!(ends[0].2, ["t-writer", "editor"], "the team's own writer hides no agent");
    assert_eq!(ends[0].3, ["model/here", "model/here"]);
    assert_eq!(ends[0], ends[1]);
}
