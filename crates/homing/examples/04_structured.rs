//! A structured answer: the schema is generated from a type, and the answer is parsed as it.

use std::sync::Arc;

use homing::{
    AgentDefinition, Homing, Task,
    crates::core::scripted_model::{FunctionModel, call},
    wait_as,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// A finding in a review.
#[derive(Debug, Deserialize, JsonSchema)]
struct Finding {
    path: String,
    line: u32,
    what: String,
}

/// Runs the example and returns its result.
pub async fn example() -> Result<String, Box<dyn std::error::Error>> {
    let model = FunctionModel::new("demo/reviewer", |request| {
        // The first answer does not match the schema; the model gets the errors and corrects it.
        let line = if request.messages.len() == 1 { json!("twelve") } else { json!(12) };
        Ok(call([("answer", json!({"path": "src/lib.rs", "line": line, "what": "an unwrap"}))]))
    });
    let homing = Homing::builder()
        .agent(AgentDefinition::new("reviewer", "Reviews", "Review the code."))
        .own_model(Arc::new(model))
        .build()
        .await?;
    let schema = schemars::schema_for!(Finding).to_value();
    let run = homing.spawn(Task::new("reviewer", "look").schema(schema))?;
    let finding: Finding = wait_as(&run).await?;
    Ok(format!("{}:{}: {}", finding.path, finding.line, finding.what))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", example().await?);
    Ok(())
}
