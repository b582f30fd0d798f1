//! A task that names a skill: `/NAME ARGUMENTS` runs the skill's instructions, also those that only the user may start.

use homing_core::skill::SkillSettings;

use crate::{exit::Trouble, session::Session};

/// The task that a skill describes.
pub(crate) struct SkillTask {
    pub(crate) name: String,
    pub(crate) text: String,
    /// Agent that carries it out, if the skill names one.
    pub(crate) agent: Option<String>,
    /// Model that carries it out, if the skill names one.
    pub(crate) model: Option<String>,
}

/// Returns the task of the skill that `text` names, if it begins with `/` and the name of one.
pub(crate) fn skill_task(text: &str, session: &Session) -> Result<Option<SkillTask>, Trouble> {
    let Some(call) = text.trim_start().strip_prefix('/') else { return Ok(None) };
    let (name, arguments) = call.split_once(char::is_whitespace).unwrap_or((call, ""));
    let skills = session.homing.runtime().parts().skills.as_ref();
    let Some(found) = skills.and_then(|skills| skills.get(name)) else { return Ok(None) };
    let skill = found.map_err(Trouble::config)?;
    let SkillSettings { agent, model, .. } = skill.card.settings.clone();
    Ok(Some(SkillTask { name: name.to_owned(), text: skill.render_with(arguments), agent, model }))
}
