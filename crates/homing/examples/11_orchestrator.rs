//! Agents from a builder, an orchestrator that may delegate only to its workers, and the list of all runs as a manager keeps it.

use homing::{
    AgentBuilder, Homing, Limits, Orchestrator, Status, Task, Team, model_fn,
    testing::{call, last_words, say},
};
use serde_json::json;

/// Runs the example and returns its result.
pub async fn example() -> Result<String, Box<dyn std::error::Error>> {
    let planner = AgentBuilder::new("planner").description("Plans").prompt("planner").build()?;
    let researcher = AgentBuilder::new("researcher")
        .description("Finds facts")
        .prompt("researcher")
        .tools(["read", "grep"])
        .limits(Limits::default().turns(5))
        .build()?;
    let writer = AgentBuilder::new("writer").description("Writes reports").prompt("writer").build()?;
    let newsroom = Team::new("newsroom", Orchestrator::new("planner").worker("researcher").worker("writer"))
        .agent(planner)
        .agent(researcher)
        .agent(writer);
    let homing = Homing::builder()
        .team(newsroom)
        .own_model(model_fn("demo/newsroom", |request| {
            let delegate =
                |agent: &'static str, task: String| call([("delegate", json!({"agent": agent, "task": task}))]);
            Ok(match (request.system, request.messages.len()) {
                ("planner", 1) => delegate("researcher", "AI trends".to_owned()),
                ("planner", 3) => delegate("writer", last_words(&request)),
                ("planner", _) => say("The report is finished."),
                ("researcher", _) => say("Agents are delegated to."),
                _ => say("# Report"),
            })
        }))
        .build()?;
    let (report, second) =
        (homing.spawn(Task::new("newsroom", "a report"))?, homing.spawn(Task::new("newsroom", "another one"))?);
    let finished = homing.wait_all().await.iter().filter(|result| result.status == Status::Done).count();
    let listed = homing.runs().len();
    let (result, _) = (report.await, second.await);
    Ok(format!("{}\n{}\n{finished} of {listed} done", result.output, result.tree()))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", example().await?);
    Ok(())
}
