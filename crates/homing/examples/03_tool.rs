//! A tool from an async closure: its arguments' type is its schema, its error is a message to the model.

use std::sync::Arc;

use homing::{
    AgentDefinition, Homing, Replay, Task,
    testing::{FunctionModel, call, last_words, say},
    tool_fn,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The numbers to add.
#[derive(Deserialize, JsonSchema)]
struct Sum {
    /// The first number.
    a: i64,
    /// The second number.
    b: i64,
}

/// Runs the example and returns its result.
pub async fn example() -> Result<String, Box<dyn std::error::Error>> {
    let add = tool_fn("add", "Adds two numbers.", Replay::Safe, |_, Sum { a, b }| async move {
        a.checked_add(b).map(|sum| sum.to_string()).ok_or_else(|| "the sum is too large".to_owned())
    });
    let model = FunctionModel::new("demo/clerk", |request| {
        Ok(match request.messages.len() {
            1 => call([("add", json!({"a": 2, "b": 40}))]),
            _ => say(format!("The sum is {}.", last_words(&request))),
        })
    });
    let homing = Homing::builder()
        .agent(AgentDefinition::new("clerk", "Adds up", "Use your tools."))
        .tool(add)
        .own_model(Arc::new(model))
        .build()?;
    Ok(homing.spawn(Task::new("clerk", "2 + 40"))?.wait().await.output)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", example().await?);
    Ok(())
}
