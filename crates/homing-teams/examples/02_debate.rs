//! A debate: two sides and a judge who ends it, one shared history. Runs on a scripted model.

use std::sync::Arc;

use homing_core::{
    agent_builder::AgentBuilder,
    model::{ModelRequest, SingleModel},
    registry::Registry,
    scripted_model::{FunctionModel, last_words, say},
};
use homing_runtime::{Runtime, RuntimeParts, Task, journal::MemoryJournal};
use homing_teams::{Chat, Team, TeamResult, install};

/// A scripted model in place of a provider: answers as the agent whose prompt it gets.
fn scripted() -> Arc<SingleModel> {
    let decide = |request: ModelRequest<'_>| {
        let heard = last_words(&request);
        Ok(match request.system {
            "You are for it." => say("Tea keeps you awake without haste."),
            "You are against it." => say("Coffee gets the work done."),
            "You judge." if heard.contains("[contra]") => say("Both are right. DECIDED: tea after noon."),
            _ => say("In short: tea after noon, coffee before."),
        })
    };
    Arc::new(SingleModel(Arc::new(FunctionModel::new("script/example", decide))))
}

/// Runs the debate and returns its result.
pub async fn example() -> Result<TeamResult, Box<dyn std::error::Error>> {
    let chat = Chat::new(["pro", "contra", "judge"])
        .rule("last.speaker == 'pro'", "contra")
        .rule("last.speaker == 'contra'", "judge")
        .stop_word("DECIDED")
        .max_rounds(10)
        .summary("clerk");
    let team = Team::new("debate", chat)
        .agent(AgentBuilder::new("pro").description("is for it").prompt("You are for it.").build()?)
        .agent(AgentBuilder::new("contra").description("is against it").prompt("You are against it.").build()?)
        .agent(AgentBuilder::new("judge").description("decides").prompt("You judge.").build()?)
        .agent(AgentBuilder::new("clerk").description("sums up").prompt("You sum up.").build()?);

    let mut parts = RuntimeParts::new(Registry::default(), scripted(), MemoryJournal::new());
    install(&mut parts, [team]).map_err(|problems| format!("{problems:?}"))?;
    let envelope = Runtime::new(parts).spawn(Task::new("debate", "Tea or coffee?"))?.wait().await;
    Ok(TeamResult::from(&envelope))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Write;
    let result = example().await?;
    writeln!(std::io::stdout(), "{}\n\n{}", result.answer, result.tree)?;
    Ok(())
}
