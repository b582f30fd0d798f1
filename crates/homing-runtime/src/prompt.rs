//! What a run is told at its start: its prompt, skills, the project's instructions, where it works.

use std::{collections::BTreeMap, fmt::Write};

use homing_core::{
    definition::{AgentDefinition, ProjectContext},
    skill::SkillLibrary,
};
use serde_json::Value;

/// What a host knows about a folder, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptContext {
    /// Folder, platform, date, state of the repository.
    pub environment: String,
    /// The project's instruction files.
    pub instructions: String,
}

/// The system prompt of a run, and what was lacking.
pub(crate) fn render(
    agent: &AgentDefinition,
    task: &str,
    context: &BTreeMap<String, Value>,
    skills: Option<&dyn SkillLibrary>,
    setting: &PromptContext,
) -> (String, Vec<String>) {
    let mut warnings = Vec::new();
    let mut text = fill(&agent.prompt, task, context);
    for name in &agent.skills {
        match skills.and_then(|library| library.get(name)) {
            Some(Ok(skill)) => section(&mut text, &skill.render()),
            Some(Err(why)) => warnings.push(format!("the skill `{name}` cannot be read: {why}")),
            None => warnings.push(format!("there is no skill `{name}`; the agent starts without it")),
        }
    }
    if !context.is_empty() {
        let mut block = "<context>\n".to_owned();
        for (key, value) in context {
            let _ = writeln!(block, "{key}: {}", plain(value));
        }
        block.push_str("</context>");
        section(&mut text, &block);
    }
    let (instructions, environment) = match agent.surroundings {
        ProjectContext::Full => (setting.instructions.as_str(), setting.environment.as_str()),
        ProjectContext::Environment => ("", setting.environment.as_str()),
        ProjectContext::None => ("", ""),
    };
    section(&mut text, instructions);
    section(&mut text, environment);
    (text, warnings)
}

fn section(text: &mut String, more: &str) {
    if !more.trim().is_empty() {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(more.trim());
    }
}

/// Puts the task and the context's keys where the prompt names them. One pass: what is put in is not looked at again.
fn fill(prompt: &str, task: &str, context: &BTreeMap<String, Value>) -> String {
    let mut filled = String::with_capacity(prompt.len());
    let mut rest = prompt;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        let value = after.split_once("}}").and_then(|(name, tail)| {
            let name = name.trim();
            let value = if name == "task" { Some(task.to_owned()) } else { context.get(name).map(plain) };
            value.map(|value| (value, tail))
        });
        match value {
            Some((value, tail)) => {
                filled.push_str(&value);
                rest = tail;
            }
            None => {
                filled.push_str("{{");
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    filled
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r18_the_task_stands_where_the_prompt_names_it() {
        let context = BTreeMap::from([("lang".to_owned(), Value::from("Rust"))]);
        let filled = fill("Do {{task}} in {{ lang }}, {{unknown}} {{", "{{lang}}", &context);
        assert_eq!(filled, "Do {{lang}} in Rust, {{unknown}} {{");
    }
}
