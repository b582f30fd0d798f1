//! `homing cancel`: stops a run of this or another process.

use std::time::{Duration, Instant};

use homing_runtime::journal::{InboxRequest, sqlite::Posted};

use crate::{
    cli::journal::CancelArgs,
    exit::{Exit, Trouble},
    terminal,
};

/// Its owner looks for messages four times a second, and stopping takes a moment.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &CancelArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open(&args.journal)?;
    let found = super::show::find(&journal, &args.id)?;
    let request = InboxRequest::Cancel { tree: found.tree, run: found.run, by: "`homing cancel`".to_owned() };
    let (pid, host) = match journal.post(request).await.map_err(Trouble::from)? {
        Posted::ToOwner { pid, host } => (pid, host),
        Posted::Nobody => {
            let status = super::show::envelope(&journal, &found)?.status;
            terminal::say(&format!("nobody works on it: it is {}", status.name().replace('_', " ")));
            return Ok(Exit::Failed);
        }
    };
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let envelope = super::show::envelope(&journal, &found)?;
        if envelope.status.is_over() {
            terminal::say(&format!("it is {}", envelope.status.name().replace('_', " ")));
            return Ok(Exit::Done);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    terminal::say(&format!("process {pid} on {host} was asked to stop it, and has not done so yet"));
    Ok(Exit::Done)
}
