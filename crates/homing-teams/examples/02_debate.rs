//! A debate: two sides and a judge who ends it, one shared history. Runs on a scripted model.

use std::sync::Arc;

use homing_core::{
    builder::AgentBuilder,
    model::{OneModel, Request},
    program::{Program, last_words, say},
    registry::Registry,
};
use homing_runtime::{Parts, Runtime, Task, journal::Memory};
use homing_teams::{Chat, Team, TeamResult, install};

/// Stands for a provider: answers as the agent whose prompt it gets.
fn scripted() -> Arc<OneModel> {
    let decide = |request: Request<'_>| {
        let heard = last_words(&request);
        Ok(match request.system {
            "You are for it." => say("Tea keeps you awake without haste."),
            "You are against it." => say("Coffee gets the work done."),
            "You judge." if heard.contains("[contra]") => say("Both are right. DECIDED: tea after noon."),
            _ => say("In short: tea after noon, coffee before."),
        })
    };
    Arc::new(OneModel(Arc::new(Program::new("script/example", decide))))
}

/// Holds the debate and returns what came of it.
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

    let mut parts = Parts::new(Registry::default(), scripted(), Memory::new());
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
