//! Rust functions as tools, for nodes of a graph that need no language model.

use std::sync::Arc;

use homing_core::{
    BoxFuture,
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use serde_json::{Value, json};

struct FunctionTool<F> {
    spec: ToolSpec,
    run: F,
}

/// Creates a tool from a function of its arguments. `replay` is whether it may be called again after a crash.
///
/// An `Err` is a failed call, to which the team's failure policy applies.
///
/// # Examples
///
/// ```
/// # mod homing { pub use homing_core::tool::Replay; pub use homing_teams as teams; }
/// use homing::{Replay, teams::function};
/// use serde_json::json;
///
/// let double = function("double", Replay::Safe, |args| {
///     let number = args["number"].as_i64().ok_or("`number` is missing")?;
///     Ok(json!(number * 2))
/// });
/// assert_eq!(double.spec().name, "double");
/// ```
pub fn function(
    name: impl Into<String>,
    replay: Replay,
    run: impl Fn(Value) -> Result<Value, String> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    let name = name.into();
    let description = format!("The function {name} of a team.");
    let effect = replay.implied_effect();
    let spec = ToolSpec::new(name, description, json!({"type": "object"})).replay(replay).effect(effect);
    Arc::new(FunctionTool { spec, run })
}

impl<F: Fn(Value) -> Result<Value, String> + Send + Sync> Tool for FunctionTool<F> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, _: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            match (self.run)(args) {
                Ok(Value::String(text)) => ToolOutput::text(&text).data(json!(text)),
                Ok(data) => ToolOutput::text(data.to_string()).data(data),
                Err(why) => ToolOutput::error(why),
            }
        })
    }
}
