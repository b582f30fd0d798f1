//! A permission handler: calls that match a rule wait for an answer, and a refusal goes back to the model.

use homing::{
    AgentDefinition, Answer, Homing, Permissions, Question, Replay, Task, ask_fn, model_fn,
    testing::{call, last_words, say},
    tool_fn,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
struct Deploy {
    /// The environment to deploy to.
    to: String,
}

async fn decide(question: Question) -> Answer {
    let call = &question.call;
    if call.agent == "releaser" && call.tool == "deploy" && call.args["to"] == "staging" {
        Answer::Yes
    } else {
        Answer::Text("only staging is open".to_owned())
    }
}

/// Runs the example and returns its result.
pub async fn example() -> Result<String, Box<dyn std::error::Error>> {
    let deploy =
        tool_fn(
            "deploy",
            "Deploys.",
            Replay::Unsafe,
            |_, Deploy { to }| async move { Ok(format!("deployed to {to}")) },
        );
    let homing = Homing::builder()
        .agent(AgentDefinition::new("releaser", "Releases", "Deploy, then report."))
        .tool(deploy)
        .own_model(model_fn("demo/releaser", |request| {
            Ok(match request.messages.len() {
                1 => call([("deploy", json!({"to": "staging"}))]),
                3 => call([("deploy", json!({"to": "production"}))]),
                _ => say(last_words(&request)),
            })
        }))
        .permissions(Permissions::default().ask(["deploy"]))
        .on_ask(ask_fn(decide))
        .build()?;
    let run = homing.spawn(Task::new("releaser", "release"))?;
    let mut denied = Vec::new();
    let mut events = run.events_from(0);
    while let Some(event) = events.next().await {
        denied.extend(event.denied().map(|call| format!("{} {} {}", call.agent, call.tool, call.args["to"])));
    }
    Ok(format!("{}; denied: {}", run.await.output, denied.join(", ")))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", example().await?);
    Ok(())
}
