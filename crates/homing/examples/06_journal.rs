//! With a journal, a finished run is read back instead of paid for again, and the same key returns the same run.

use std::{path::Path, sync::Arc};

use homing::{
    AgentDefinition, Homing, Task,
    testing::{FunctionModel, say},
};

fn open(folder: &Path) -> Result<Homing, Box<dyn std::error::Error>> {
    let model = FunctionModel::new("demo/poet", |_| Ok(say("An ode to logs.")));
    let builder = Homing::builder().agent(AgentDefinition::new("poet", "Writes", "Write.")).own_model(Arc::new(model));
    Ok(builder.journal(folder.join("journal.db")).build()?)
}

/// Runs the example and returns its result.
pub async fn example(folder: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let first = open(folder)?;
    let run = first.submit("ode-1", Task::new("poet", "write")).await?;
    let (id, written) = (run.id(), run.await);
    drop(first);

    let second = open(folder)?;
    let again = second.submit("ode-1", Task::new("poet", "write")).await?;
    let same = again.id() == id;
    let read = again.await;
    Ok(format!("same run: {same}, same words: {}", read.output == written.output))
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example talks")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    println!("{}", example(folder.path()).await?);
    Ok(())
}
