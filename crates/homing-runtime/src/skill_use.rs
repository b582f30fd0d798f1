//! Skills in use: the rules on tools that they bring to a run, and the agent of a run that carries one out.
//!
//! The skills that a run has loaded are known from its recorded calls, so a resumed run has the same. Their rules come from the
//! library, which keeps approvals of trusted files only.

use std::sync::Arc;

use homing_core::{
    authority::Grant,
    definition::{AgentDefinition, ModelChoice},
    run::Run,
    skill::{SkillCard, SkillLibrary},
    tool_names,
};
use serde::Deserialize;

/// The agent that carries out a skill in a run of its own: with the skill's model, effort and rules.
pub(crate) fn carrier(agent: &AgentDefinition, card: &SkillCard) -> Arc<AgentDefinition> {
    let mut agent = agent.clone();
    agent.attachments.carries_out = Some(card.name.clone());
    if let Some(model) = &card.settings.model {
        agent.model.choice = ModelChoice::Named(vec![model.clone()]);
    }
    agent.model.effort = card.settings.effort.or(agent.model.effort);
    Arc::new(agent)
}

/// The data of a result of the tool `skill`.
#[derive(Deserialize)]
struct LoadedSkill {
    skill: String,
}

/// The permissions of a run, with the rules of the skills that it uses. These approve and deny calls, and allow nothing that the
/// run's own rules do not.
pub(crate) fn grant(skills: Option<&dyn SkillLibrary>, run: &Run) -> Arc<Grant> {
    let own = &run.spawned.authority.own;
    let has_rules = |card: &SkillCard| !card.settings.approved.is_empty() || !card.settings.denied.is_empty();
    let Some(skills) = skills.filter(|skills| skills.list().iter().any(has_rules)) else {
        return own.clone();
    };
    let loaded = run.results(tool_names::SKILL).filter(|result| !result.is_error);
    let loaded = loaded.filter_map(|result| result.data.as_ref()?.parse::<LoadedSkill>().ok());
    // A skill of the user alone is in use only if the user started it.
    let loaded = loaded
        .filter_map(|loaded| skills.card(&loaded.skill))
        .filter(|card| card.settings.offered_to.includes_models());
    let carried_out = run.spawned.agent.attachments.carries_out.as_deref().and_then(|name| skills.card(name));
    let layers = carried_out.into_iter().chain(loaded).filter_map(SkillCard::layer);
    layers.fold(own.clone(), |grant, layer| Arc::new(grant.under(layer)))
}
