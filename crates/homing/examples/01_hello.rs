//! One agent, one task, a model that is a plain function. Nothing is read, written or sent.

use std::sync::Arc;

use homing::{
    AgentDefinition, Homing, Task,
    testing::{FunctionModel, last_words, say},
};

/// Runs the example and returns its result.
pub async fn example() -> Result<String, Box<dyn std::error::Error>> {
    let echo = FunctionModel::new("demo/echo", |request| Ok(say(format!("You said: {}", last_words(&request)))));
    let homing = Homing::builder()
        .agent(AgentDefinition::new("echo", "Repeats what it hears", "Repeat the task."))
        .own_model(Arc::new(echo))
        .build()?;
    let result = homing.spawn(Task::new("echo", "hello"))?.wait().await;
    Ok(format!("{} ({})", result.output, result.status.name()))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", example().await?);
    Ok(())
}
