//! A structured answer, found with a typed tool and within a cost limit. The schema is generated from the answer's type.

use homing::{
    AgentDefinition, Homing, Limits, Replay, Task, model_fn,
    testing::{call, last_words},
    tool_fn,
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

#[derive(Deserialize, JsonSchema)]
struct Lookup {
    /// The file to look into.
    path: String,
}

/// Runs the example and returns its result.
pub async fn example() -> Result<String, Box<dyn std::error::Error>> {
    let lookup =
        tool_fn("lookup", "Returns the worst line of a file.", Replay::Safe, |_, Lookup { path }| async move {
            if path == "src/lib.rs" { Ok("12".to_owned()) } else { Err(format!("there is no {path}")) }
        });
    let homing = Homing::builder()
        .agent(AgentDefinition::new("reviewer", "Reviews", "Review the code."))
        .tool(lookup)
        .own_model(model_fn("demo/reviewer", |request| {
            // The first answer does not match the schema; the model gets the errors and corrects it.
            let line = if request.messages.len() == 3 { json!("twelve") } else { json!(12) };
            Ok(match request.messages.len() {
                1 => call([("lookup", json!({"path": "src/lib.rs"}))]),
                3 if last_words(&request) != "12" => call([("lookup", json!({"path": "src/main.rs"}))]),
                _ => call([("answer", json!({"path": "src/lib.rs", "line": line, "what": "an unwrap"}))]),
            })
        }))
        .build()?;
    let schema = schemars::schema_for!(Finding).to_value();
    let limits = Limits::default().cost_usd("0.10")?;
    let finding: Finding = homing.spawn(Task::new("reviewer", "look").schema(schema).limits(limits))?.wait_as().await?;
    Ok(format!("{}:{}: {}", finding.path, finding.line, finding.what))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", example().await?);
    Ok(())
}
