//! A lead delegates to two scouts at once and combines their answers. The tree shows each run.

use std::sync::Arc;

use homing::{
    AgentDefinition, Homing, Task,
    testing::{FunctionModel, call, last_words, say},
};
use serde_json::json;

/// Runs the example and returns its result.
pub async fn example() -> Result<String, Box<dyn std::error::Error>> {
    let model = FunctionModel::new("demo/team", |request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([
                ("delegate", json!({"agent": "scout", "task": "the attic"})),
                ("delegate", json!({"agent": "scout", "task": "the cellar"})),
            ]),
            ("lead", _) => say("Both floors were searched."),
            _ => say(format!("Nothing in {}.", last_words(&request))),
        })
    });
    let homing = Homing::builder()
        .agent(AgentDefinition::new("lead", "Plans and delegates", "lead"))
        .agent(AgentDefinition::new("scout", "Looks at one place", "scout"))
        .own_model(Arc::new(model))
        .build()?;
    let result = homing.spawn(Task::new("lead", "find the key"))?.wait().await;
    Ok(format!("{}\n{}", result.output, result.tree()))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", example().await?);
    Ok(())
}
