//! A run that reaches a limit ends with what it has. Events show the whole run tree while it works.

use std::sync::Arc;

use homing::{
    AgentDefinition, Event, Homing, Limits, Replay, Task,
    testing::{FunctionModel, ToolChoice, call, say},
    tool_fn,
};
use serde_json::{Value, json};

/// Runs the example and returns its result.
pub async fn example() -> Result<String, Box<dyn std::error::Error>> {
    let look = tool_fn("look", "Looks.", Replay::Safe, |_, _: Value| async { Ok("more of the same".to_owned()) });
    let model = FunctionModel::new("demo/restless", |request| {
        Ok(match request.choice {
            ToolChoice::Off => say("Three places searched, nothing found so far."),
            _ => call([("look", json!({"at": request.messages.len()}))]),
        })
    });
    let homing = Homing::builder()
        .agent(AgentDefinition::new("restless", "Never stops", "Search everywhere."))
        .tool(look)
        .own_model(Arc::new(model))
        .build()?;
    let run = homing.spawn(Task::new("restless", "search").limits(Limits::default().turns(4)))?;
    let mut events = run.events();
    let mut calls = 0;
    while let Some(event) = events.next().await {
        if let Event::Fact(record) = event {
            calls += u32::from(record.fact.kind() == "called");
        }
    }
    let result = run.wait().await;
    Ok(format!("{} after {calls} calls: {}", result.status.name(), result.output))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", example().await?);
    Ok(())
}
