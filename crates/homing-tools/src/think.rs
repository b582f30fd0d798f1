//! `think`: room to think in, without any effect.

use homing_core::tool::{Replay, ToolContext, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::typed_tool::TypedTool;

/// Thinks.
pub(crate) struct Think;

/// Arguments of `think`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The thought.
    #[serde(alias = "thought", alias = "thoughts", alias = "content")]
    text: String,
}

impl TypedTool for Think {
    type Args = Args;
    const NAME: &'static str = "think";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"text": "The test fails because…"}"#;

    fn description(&self) -> String {
        "Notes a thought. It changes nothing and finds nothing out; use it to work through something before acting."
            .to_owned()
    }

    async fn run(&self, _context: &ToolContext, args: Args) -> ToolOutput {
        match args.text.trim().is_empty() {
            true => ToolOutput::error(format!("think: `text` is empty. Example: {}", Self::EXAMPLE)),
            false => ToolOutput::text("Noted."),
        }
    }
}
