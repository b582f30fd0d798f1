//! Renders the system prompt of a run: the agent's prompt, skills, context, the project's instructions and environment.

use std::{collections::BTreeMap, fmt::Write, path::PathBuf};

use homing_core::{
    definition::{AgentDefinition, ProjectContext},
    skill::SkillLibrary,
};
use serde_json::Value;

/// The text about a folder that goes into prompts, and the project that the folder belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptContext {
    /// Folder, platform, date, state of the repository.
    pub environment: String,
    /// The project's instruction files.
    pub instructions: String,
    /// The project; `None` if the folder is a project of its own.
    pub project: Option<PathBuf>,
}

/// Renders the system prompt of a run, and returns warnings about missing skills.
pub(crate) fn render(
    agent: &AgentDefinition,
    task: &str,
    context: &BTreeMap<String, Value>,
    skills: Option<&dyn SkillLibrary>,
    prompt_context: &PromptContext,
) -> (String, Vec<String>) {
    let mut warnings = Vec::new();
    let mut text = fill(&agent.prompt, task, context);
    for name in &agent.attachments.skills {
        match skills.and_then(|library| library.get(name)) {
            Some(Ok(skill)) => push_section(&mut text, &skill.render()),
            Some(Err(why)) => warnings.push(format!("the skill `{name}` cannot be read: {why}")),
            None => warnings.push(format!("there is no skill `{name}`; the agent starts without it")),
        }
    }
    let (instructions, environment) = match agent.context.project_context {
        ProjectContext::Full => (prompt_context.instructions.as_str(), prompt_context.environment.as_str()),
        ProjectContext::Environment => ("", prompt_context.environment.as_str()),
        ProjectContext::None => ("", ""),
    };
    push_section(&mut text, instructions);
    push_section(&mut text, environment);
    // Last, because it is the only section that differs between the runs of a fan-out: providers cache what comes before.
    push_section(&mut text, &context_block(context));
    (text, warnings)
}

fn context_block(context: &BTreeMap<String, Value>) -> String {
    if context.is_empty() {
        return String::new();
    }
    let mut block = "<context>\n".to_owned();
    for (key, value) in context {
        let _ = writeln!(block, "{key}: {}", plain(value));
    }
    block.push_str("</context>");
    block
}

fn push_section(text: &mut String, more: &str) {
    if !more.trim().is_empty() {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(more.trim());
    }
}

/// Replaces `{{task}}` and `{{KEY}}` in a prompt. Inserted text is not expanded again.
pub(crate) fn fill(prompt: &str, task: &str, context: &BTreeMap<String, Value>) -> String {
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
    fn context_comes_after_everything_that_siblings_share() {
        let agent = AgentDefinition::new("a", "d", "Work.");
        let shared =
            PromptContext { environment: "<environment/>".into(), instructions: "Be exact.".into(), project: None };
        let system = |n: u64| {
            let context = BTreeMap::from([("part".to_owned(), Value::from(n))]);
            render(&agent, "task", &context, None, &shared).0
        };
        assert_eq!(system(1), "Work.\n\nBe exact.\n\n<environment/>\n\n<context>\npart: 1\n</context>");
        assert_eq!(system(1).replace("part: 1", "part: 2"), system(2));
    }

    #[test]
    fn r18_task_and_context_replace_their_placeholders_in_the_prompt() {
        let context = BTreeMap::from([("lang".to_owned(), Value::from("Rust"))]);
        let filled = fill("Do {{task}} in {{ lang }}, {{unknown}} {{", "{{lang}}", &context);
        assert_eq!(filled, "Do {{lang}} in Rust, {{unknown}} {{");
    }
}
