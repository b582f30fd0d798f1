//! Skills that run on their own: a call of the tool `skill` for which a child run carries out the skill.

use std::{collections::BTreeMap, sync::Arc};

use homing_core::{
    authority::Decision,
    limits::Limits,
    message::Args,
    run::CallState,
    skill::{DEFAULT_AGENT, SkillCard, named_in},
    tool::Replay,
    tool_names,
};
use serde_json::Value;

use super::{
    Delegation, DelegationOutput,
    delegate_args::{DelegateArgs, ReportReader},
};
use crate::{
    agent_loop::{
        call_record::{CallError, RefusedCall},
        permission::PermittedCall,
        tool_host::ToolHost,
    },
    skill_use,
};

impl Delegation {
    /// The skill that a call starts in a run of its own. A run that may not delegate to the skill's agent loads the skill
    /// instead, and follows it itself.
    pub(crate) fn forked_skill(&self, state: &CallState) -> Option<SkillCard> {
        let Args::Json(args) = &state.call.args else { return None };
        let skills = self.run.runtime.parts.skills.as_ref()?;
        if tool_names::canonical(&state.call.name) != Some(tool_names::SKILL) {
            return None;
        }
        let card = skills.card(named_in(args)?.0)?;
        if !card.settings.fork || !card.settings.offered_to.includes_models() {
            return None;
        }
        // An unknown agent is reported when the skill is to be carried out.
        let agent = self.run.runtime.parts.registry.get(agent_of(card)).ok();
        let is_allowed = agent.is_none_or(|agent| !matches!(self.decision(agent), Decision::Deny { .. }));
        (is_allowed && self.run.tree.read(|tree| tree.ledger().may_go_deeper(self.run.id()))).then(|| card.clone())
    }

    /// Carries out a skill by a child run, whose answer is the result of the call.
    pub(super) async fn run_skill(&self, state: &CallState, args: &Value) -> Result<DelegationOutput, CallError> {
        let parts = &self.run.runtime.parts;
        let unknown = || RefusedCall::mistake("there is no such skill");
        let (card, tool) = (self.forked_skill(state).ok_or_else(unknown)?, self.run.runtime.tool(tool_names::SKILL));
        let context =
            self.run.tool_context(state.key, Arc::new(ToolHost::new(&self.run, None, Some(state.call.clone()))));
        let PermittedCall { args, by, .. } =
            self.permissions.check(&*tool.ok_or_else(unknown)?, &context, args.clone()).await?;
        let agent = parts
            .registry
            .get(agent_of(&card))
            .map_err(|error| RefusedCall::mistake(format!("the skill `{}` cannot run: {error}", card.name)))?;
        let skill = parts.skills.as_ref().and_then(|skills| skills.get(&card.name)).ok_or_else(unknown)?;
        let skill =
            skill.map_err(|why| RefusedCall::mistake(format!("cannot read the skill `{}`: {why}", card.name)))?;
        let delegation = DelegateArgs {
            agent: skill_use::carrier(agent, &card),
            task: skill.render_with(named_in(&args).map_or("", |(_, arguments)| arguments)),
            limits: Limits::default(),
            background: card.settings.background,
            schema: None,
            context: BTreeMap::new(),
            reader: ReportReader::Model,
            delay_ms: 0,
        };
        self.may_delegate(state, &delegation).await?;
        self.recorder.begin(state, tool_names::SKILL, &args, Replay::Keyed, by).await?;
        self.run_child(state, &delegation).await
    }
}

fn agent_of(card: &SkillCard) -> &str {
    card.settings.agent.as_deref().unwrap_or(DEFAULT_AGENT)
}
