//! The `skill` tool: lists the skills of a library and loads one.

use std::sync::Arc;

use homing_core::{
    rule::{Subject, Subjects},
    skill::{SkillCard, SkillLibrary},
    tool::{Replay, ToolContext, ToolOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::{
    files::path_arg::printable,
    result_filter::ResultFilter,
    typed_tool::{TypedTool, blocking},
};

/// Maximum number of characters of a skill's description in the tool's description.
const MAX_DESCRIPTION: usize = 300;
/// Maximum number of characters of the description of a skill's arguments.
const MAX_HINT: usize = 100;
/// Maximum number of skills named in the tool's description.
const MAX_NAMED: usize = 100;

/// The `skill` tool.
pub(crate) struct SkillTool {
    pub(crate) library: Arc<dyn SkillLibrary>,
}

/// Arguments of `skill`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SkillArgs {
    /// The skill to load; if absent, all skills are listed.
    #[serde(default, alias = "skill", alias = "skill_name", alias = "command")]
    name: Option<String>,
    /// Arguments of the skill.
    #[serde(default, alias = "args", alias = "input")]
    arguments: Option<String>,
}

impl TypedTool for SkillTool {
    type Args = SkillArgs;
    const NAME: &'static str = "skill";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"name": "release-notes"}"#;

    fn description(&self) -> String {
        let cards: Vec<&SkillCard> = offered(&*self.library).collect();
        let mut text = "Loads a skill: instructions for a kind of task. Load one before you start a task that it \
                        describes. Without a name, lists the skills."
            .to_owned();
        if !cards.is_empty() {
            text.push_str("\nAvailable skills:\n");
            text.push_str(&lines(cards.iter().copied().take(MAX_NAMED)));
        }
        if cards.len() > MAX_NAMED {
            text.push_str(&format!("… and {} more\n", cards.len() - MAX_NAMED));
        }
        text
    }

    fn subjects(&self, _context: &ToolContext, args: &SkillArgs) -> Subjects {
        match &args.name {
            Some(name) => Subjects::Parts(vec![Subject::Name(name.clone())]),
            None => Subjects::None,
        }
    }

    async fn run(&self, context: &ToolContext, args: SkillArgs) -> ToolOutput {
        let library = self.library.clone();
        blocking(context, move |context, _| match args.name.as_deref().map(str::trim) {
            None | Some("") => Ok(list(context, &*library)),
            Some(name) => load(&*library, name, args.arguments.as_deref().unwrap_or_default()),
        })
        .await
    }
}

fn list(context: &ToolContext, library: &dyn SkillLibrary) -> ToolOutput {
    let filter = ResultFilter::new(context, SkillTool::NAME, SkillTool::EFFECT, Subject::Name(String::new()));
    let cards = offered(library).filter(|card| filter.allows(|| Subject::Name(card.name.clone())));
    let text = lines(cards);
    ToolOutput::text(if text.is_empty() { "no skills".to_owned() } else { text })
}

/// The skills that are offered to models.
fn offered(library: &dyn SkillLibrary) -> impl Iterator<Item = &SkillCard> {
    library.list().iter().filter(|card| card.settings.offered_to.includes_models())
}

fn load(library: &dyn SkillLibrary, name: &str, arguments: &str) -> Result<ToolOutput, String> {
    match library.get(name) {
        Some(Ok(skill)) if !skill.card.settings.offered_to.includes_models() => {
            Err(format!("only the user can start the skill `{name}`"))
        }
        // The name tells the runtime whose rules apply from here on.
        Some(Ok(skill)) => Ok(ToolOutput::text(skill.render_with(arguments)).data(json!({ "skill": name }))),
        Some(Err(why)) => Err(format!("cannot read the skill `{name}`: {why}")),
        None => {
            let names: Vec<&str> = offered(library).map(|card| card.name.as_str()).collect();
            Err(format!("unknown skill `{name}`; available: {}", names.join(", ")))
        }
    }
}

/// Formats one line per skill. Descriptions are untrusted text, so line breaks and control characters are removed.
fn lines<'a>(cards: impl Iterator<Item = &'a SkillCard>) -> String {
    let line = |card: &SkillCard| {
        let description = card.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let description: String = description.chars().take(MAX_DESCRIPTION).collect();
        let hint = card.settings.argument_hint.as_deref().map(|hint| hint.chars().take(MAX_HINT).collect::<String>());
        let hint = hint.map(|hint| format!(" (arguments: {})", printable(hint.as_ref()))).unwrap_or_default();
        format!("- {}: {}{hint}\n", printable(card.name.as_ref()), printable(description.as_ref()))
    };
    cards.map(line).collect()
}
