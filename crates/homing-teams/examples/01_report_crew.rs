//! A report by a researcher, a writer and a reviewer: each sees the results it needs. Runs on a scripted model.

use std::sync::Arc;

use homing_core::{
    agent_builder::AgentBuilder,
    model::{ModelRequest, SingleModel},
    registry::Registry,
    scripted_model::{FunctionModel, last_words, say},
};
use homing_runtime::{Runtime, RuntimeParts, Task, journal::MemoryJournal};
use homing_teams::{Crew, CrewTask, Team, TeamResult, install};

/// A scripted model in place of a provider: answers as the agent whose prompt it gets.
fn scripted() -> Arc<SingleModel> {
    let decide = |request: ModelRequest<'_>| {
        let task = last_words(&request);
        Ok(match request.system {
            "You research." => say("Ants store food and rest together in winter."),
            "You write." if task.contains("Ants store food") => say("# Ants in winter\nThey rest, well fed."),
            "You review." if task.contains("# Ants in winter") => say("Approved: clear and backed by the research."),
            other => say(format!("{other} had nothing to work with")),
        })
    };
    Arc::new(SingleModel(Arc::new(FunctionModel::new("script/example", decide))))
}

/// Runs the crew and returns its result.
pub async fn example() -> Result<TeamResult, Box<dyn std::error::Error>> {
    let crew = Crew::sequential()
        .task(CrewTask::new("research", "researcher", "Find out about {{ task }}").expects("three facts"))
        .task(CrewTask::new("write", "writer", "Write a page about {{ task }}").context(["research"]))
        .task(CrewTask::new("review", "reviewer", "Review the page").context(["research", "write"]));
    let team = Team::new("report", crew)
        .agent(AgentBuilder::new("researcher").description("finds out").prompt("You research.").build()?)
        .agent(AgentBuilder::new("writer").description("writes").prompt("You write.").build()?)
        .agent(AgentBuilder::new("reviewer").description("reviews").prompt("You review.").build()?);

    let mut parts = RuntimeParts::new(Registry::default(), scripted(), MemoryJournal::new());
    install(&mut parts, [team]).map_err(|problems| format!("{problems:?}"))?;
    let envelope = Runtime::new(parts).spawn(Task::new("report", "ants in winter"))?.wait().await;
    Ok(TeamResult::from(&envelope))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Write;
    let result = example().await?;
    writeln!(std::io::stdout(), "{}\n\n{}", result.answer, result.tree)?;
    Ok(())
}
