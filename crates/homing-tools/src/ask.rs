//! `ask`: a question to a person, where there is one.

use homing_core::tool::{Answer, Question, Replay, ToolContext, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::typed_tool::TypedTool;

/// Asks a person.
pub(crate) struct Ask;

/// Arguments of `ask`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The question, complete in itself.
    #[serde(alias = "text", alias = "query", alias = "prompt", alias = "message")]
    question: String,
    /// Answers to choose from; absent: the person answers in words.
    #[serde(default, alias = "choices")]
    options: Vec<String>,
}

impl TypedTool for Ask {
    type Args = Args;
    const NAME: &'static str = "ask";
    // A person who was asked may have answered; asking again only repeats the question.
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"question": "Which database?", "options": ["SQLite", "Postgres"]}"#;

    fn description(&self) -> String {
        "Asks the person you work for. Use it only for what you cannot find out or decide yourself. If nobody is there, \
         you are told so: then decide, and say in your answer what you assumed."
            .to_owned()
    }

    async fn run(&self, context: &ToolContext, args: Args) -> ToolOutput {
        if args.question.trim().is_empty() {
            return ToolOutput::error(format!("ask: `question` is empty. Example: {}", Self::EXAMPLE));
        }
        let question = Question { text: args.question, options: args.options, key: context.key, rule: None };
        match context.ask(question).await {
            Answer::Yes => ToolOutput::text("Yes."),
            Answer::No => ToolOutput::text("No."),
            Answer::Text(text) => ToolOutput::text(text),
            Answer::Nobody => ToolOutput::error(
                "Nobody is there to answer. Decide yourself, and say in your answer what you assumed.",
            ),
        }
    }
}
