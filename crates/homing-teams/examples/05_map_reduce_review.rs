//! A review of many files: one run for each, all at once, and one that sums up. Runs on a scripted model.

use std::sync::Arc;

use homing_core::{
    builder::AgentBuilder,
    model::{OneModel, Request},
    program::{Program, last_words, say},
    registry::Registry,
};
use homing_runtime::{Parts, Runtime, Task, journal::Memory};
use homing_teams::{Bounds, Map, Team, TeamResult, install};

/// Stands for a provider: answers as the agent whose prompt it gets.
fn scripted() -> Arc<OneModel> {
    let decide = |request: Request<'_>| {
        let task = last_words(&request);
        Ok(match request.system {
            "You review one file." if task.contains("lib.rs") => say("an unwrap in line 7"),
            "You review one file." => say("fine"),
            _ => say(format!("{} files are fine", task.matches("\"output\":\"fine\"").count())),
        })
    };
    Arc::new(OneModel(Arc::new(Program::new("script/example", decide))))
}

/// Reviews three files and returns the summary.
pub async fn example() -> Result<TeamResult, Box<dyn std::error::Error>> {
    let map = Map::new("reviewer", "Review {{ item }} for {{ task }}")
        .items(["src/lib.rs", "src/run.rs", "src/tree.rs"])
        .limits(Bounds { max_turns: Some(5), ..Bounds::default() })
        .reduce("editor", "Sum up the reviews in one sentence.");
    let team = Team::new("review", map)
        .agent(AgentBuilder::new("reviewer").description("reviews").prompt("You review one file.").build()?)
        .agent(AgentBuilder::new("editor").description("sums up").prompt("You sum up.").build()?);

    let mut parts = Parts::new(Registry::default(), scripted(), Memory::new());
    install(&mut parts, [team]).map_err(|problems| format!("{problems:?}"))?;
    let envelope = Runtime::new(parts).spawn(Task::new("review", "errors that are not handled"))?.wait().await;
    Ok(TeamResult::from(&envelope))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Write;
    let result = example().await?;
    writeln!(std::io::stdout(), "{}\n\n{}", result.answer, result.tree)?;
    Ok(())
}
