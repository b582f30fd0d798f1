//! The `think` tool: records a thought, without any effect.

use homing_core::tool::{Replay, ToolContext, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::typed_tool::TypedTool;

/// The `think` tool.
pub(crate) struct ThinkTool;

/// Arguments of `think`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ThinkArgs {
    /// The thought.
    #[serde(alias = "thought", alias = "thoughts", alias = "content")]
    text: String,
}

impl TypedTool for ThinkTool {
    type Args = ThinkArgs;
    const NAME: &'static str = "think";
    const REPLAY: Replay = Replay::Safe;
    const EFFECT: homing_core::tool::Effect = homing_core::tool::Effect::Reads;
    const EXAMPLE: &'static str = r#"{"text": "The test fails because…"}"#;

    fn description(&self) -> String {
        "Records a thought. It has no effect and returns no information; use it to reason before acting.".to_owned()
    }

    async fn run(&self, _context: &ToolContext, args: ThinkArgs) -> ToolOutput {
        if args.text.trim().is_empty() {
            return ToolOutput::error(format!("think: `text` is empty. Example: {}", Self::EXAMPLE));
        }
        ToolOutput::text("Noted.")
    }
}
