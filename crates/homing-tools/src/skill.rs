//! `skill`: instructions on demand. It lists what a library has and reads one; where skills come from is not known here.

use std::sync::Arc;

use homing_core::{
    rule::{Subject, Subjects},
    skill::{SkillCard, SkillLibrary},
    tool::{Replay, ToolContext, ToolOutput},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    files::path_arg::inert,
    result_filter::ResultFilter,
    typed_tool::{TypedTool, blocking},
};

/// Characters of each skill's description in the tool's own.
const MOST_WORDS: usize = 300;
/// Skills that are named in the tool's description.
const MOST_NAMED: usize = 100;

/// Lists and loads skills.
pub(crate) struct Skill {
    pub(crate) library: Arc<dyn SkillLibrary>,
}

/// Arguments of `skill`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The skill to load; absent: all are listed.
    #[serde(default, alias = "skill", alias = "skill_name", alias = "command")]
    name: Option<String>,
}

impl TypedTool for Skill {
    type Args = Args;
    const NAME: &'static str = "skill";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"name": "release-notes"}"#;

    fn description(&self) -> String {
        let cards = self.library.list();
        let mut text = "Loads a skill: instructions for a kind of task. Load one before you start a task that it \
                        describes; without a name the skills are listed."
            .to_owned();
        if !cards.is_empty() {
            text.push_str("\nAvailable skills:\n");
            text.push_str(&named(cards.iter().take(MOST_NAMED)));
        }
        if cards.len() > MOST_NAMED {
            text.push_str(&format!("… and {} more\n", cards.len() - MOST_NAMED));
        }
        text
    }

    fn subjects(&self, _context: &ToolContext, args: &Args) -> Subjects {
        match &args.name {
            Some(name) => Subjects::Parts(vec![Subject::Name(name.clone())]),
            None => Subjects::None,
        }
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        let library = self.library.clone();
        blocking(context, move |context, _| match args.name.as_deref().map(str::trim) {
            None | Some("") => Ok(list(context, &*library)),
            Some(name) => load(&*library, name),
        })
        .await
    }
}

fn list(context: &ToolContext, library: &dyn SkillLibrary) -> ToolOutput {
    let sight = ResultFilter::new(context, Skill::NAME, Subject::Name(String::new()));
    let cards = library.list().iter().filter(|card| sight.allows(|| Subject::Name(card.name.clone())));
    let text = named(cards);
    ToolOutput::text(if text.is_empty() { "There are no skills.".to_owned() } else { text })
}

fn load(library: &dyn SkillLibrary, name: &str) -> Result<ToolOutput, String> {
    match library.get(name) {
        Some(Ok(skill)) => Ok(ToolOutput::text(skill.render())),
        Some(Err(why)) => Err(format!("the skill `{name}` cannot be read: {why}")),
        None => {
            let names: Vec<&str> = library.list().iter().map(|it| it.name.as_str()).collect();
            Err(format!("there is no skill `{name}`. There are: {}", names.join(", ")))
        }
    }
}

/// One line per skill. A skill's description is somebody's text: it must not look like more than one line.
fn named<'a>(cards: impl Iterator<Item = &'a SkillCard>) -> String {
    let line = |card: &SkillCard| {
        let words: String = card.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let words: String = words.chars().take(MOST_WORDS).collect();
        format!("- {}: {}\n", inert(card.name.as_ref()), inert(words.as_ref()))
    };
    cards.map(line).collect()
}
