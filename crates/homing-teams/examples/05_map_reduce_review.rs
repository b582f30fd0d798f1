//! A review of many files: one run for each, all at once, and one that sums up. Runs on a scripted model.

use std::sync::Arc;

use homing_core::{
    agent_builder::AgentBuilder,
    model::{ModelRequest, SingleModel},
    registry::Registry,
    scripted_model::{FunctionModel, last_words, say},
};
use homing_runtime::{Runtime, RuntimeParts, Task, journal::MemoryJournal};
use homing_teams::{LimitFields, Map, Team, TeamResult, install};

/// A scripted model in place of a provider: answers as the agent whose prompt it gets.
fn scripted() -> Arc<SingleModel> {
    let decide = |request: ModelRequest<'_>| {
        let task = last_words(&request);
        Ok(match request.system {
            "You review one file." if task.contains("lib.rs") => say("an unwrap in line 7"),
            "You review one file." => say("fine"),
            _ => say(format!("{} files are fine", task.matches("\"output\":\"fine\"").count())),
        })
    };
    Arc::new(SingleModel(Arc::new(FunctionModel::new("script/example", decide))))
}

/// Reviews three files and returns the summary.
pub async fn example() -> Result<TeamResult, Box<dyn std::error::Error>> {
    let map = Map::new("reviewer", "Review {{ item }} for {{ task }}")
        .items(["src/lib.rs", "src/run.rs", "src/tree.rs"])
        .limits(LimitFields { max_turns: Some(5), ..LimitFields::default() })
        .reduce("editor", "Sum up the reviews in one sentence.");
    let team = Team::new("review", map)
        .agent(AgentBuilder::new("reviewer").description("reviews").prompt("You review one file.").build()?)
        .agent(AgentBuilder::new("editor").description("sums up").prompt("You sum up.").build()?);

    let mut parts = RuntimeParts::new(Registry::default(), scripted(), MemoryJournal::new());
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
