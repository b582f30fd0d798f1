//! With a journal, a finished run is read back instead of paid for again, and the same key returns the same run.

use std::{path::Path, sync::Arc};

use homing::{
    AgentDefinition, Claim, Homing, Limits, Submission, Task,
    crates::core::scripted_model::{FunctionModel, say},
};

async fn open(folder: &Path) -> Result<Homing, Box<dyn std::error::Error>> {
    let model = FunctionModel::new("demo/poet", |_| Ok(say("An ode to logs.")));
    let builder = Homing::builder().agent(AgentDefinition::new("poet", "Writes", "Write.")).own_model(Arc::new(model));
    Ok(builder.journal(folder.join("journal.db")).build().await?)
}

/// Runs the example and returns its result.
pub async fn example(folder: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let first = open(folder).await?;
    let Submission::New(run) = first.submit(Task::new("poet", "write").key("ode-1")).await? else { unreachable!() };
    let (id, written) = (run.id(), run.wait().await);
    drop(first);

    let second = open(folder).await?;
    let again = second.submit(Task::new("poet", "write").key("ode-1")).await?;
    let same = matches!(again, Submission::Earlier(earlier) if earlier == id);
    let read = second.resume(id, Claim::IfGone, Limits::default()).await?.wait().await;
    Ok(format!("same run: {same}, same words: {}", read.output == written.output))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    println!("{}", example(folder.path()).await?);
    Ok(())
}
