//! A conversation of three turns: each run begins with the messages of the one before.

use homing::{
    AgentDefinition, Homing, Task, model_fn,
    testing::{last_words, say},
};

/// Runs the example and returns its result.
pub async fn example() -> Result<String, Box<dyn std::error::Error>> {
    let homing = Homing::builder()
        .agent(AgentDefinition::new("scribe", "Remembers", "Remember what you are told."))
        .own_model(model_fn("demo/scribe", |request| {
            let heard = request.messages.len().div_ceil(2);
            Ok(say(format!("{heard}: {}", last_words(&request))))
        }))
        .build()?;
    let mut said = Vec::new();
    let mut run = homing.spawn(Task::new("scribe", "My name is Ada."))?;
    for next in ["I like engines.", "What do you know about me?"] {
        said.push(run.wait().await.output);
        run = homing.spawn(Task::continuing(&run, next))?;
    }
    said.push(run.await.output);
    Ok(said.join("\n"))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", example().await?);
    Ok(())
}
