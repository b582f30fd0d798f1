//! The `ask` tool: asks the user a question, if the host can reach one.

use homing_core::tool::{Answer, Question, Replay, ToolContext, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::typed_tool::TypedTool;

/// The `ask` tool.
pub(crate) struct AskTool;

/// Arguments of `ask`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct AskArgs {
    /// The question, complete in itself.
    #[serde(alias = "text", alias = "query", alias = "prompt", alias = "message")]
    question: String,
    /// Answers to choose from; if absent, the user answers in free text.
    #[serde(default, alias = "choices")]
    options: Vec<String>,
}

impl TypedTool for AskTool {
    type Args = AskArgs;
    const NAME: &'static str = "ask";
    // Asking again after a crash only repeats the question.
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"question": "Which database?", "options": ["SQLite", "Postgres"]}"#;

    fn description(&self) -> String {
        "Asks the user a question. Use it only for what you cannot find out or decide yourself. If no user is available, \
         the call returns an error: then decide yourself and state your assumption in the answer."
            .to_owned()
    }

    async fn run(&self, context: &ToolContext, args: AskArgs) -> ToolOutput {
        if args.question.trim().is_empty() {
            return ToolOutput::error(format!("ask: `question` is empty. Example: {}", Self::EXAMPLE));
        }
        let question = Question::new(args.question, context.key).options(args.options);
        match context.ask(question).await {
            Answer::Yes => ToolOutput::text("Yes."),
            Answer::No => ToolOutput::text("No."),
            Answer::Text(text) => ToolOutput::text(text),
            _ => ToolOutput::error(
                "no user is available to answer: decide yourself and state your assumption in the answer",
            ),
        }
    }
}
