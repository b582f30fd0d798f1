//! `homing cancel`: stops a run, even one of another process.

use std::time::{Duration, Instant};

use homing_runtime::journal::{InboxRequest, sqlite::Posted};

use crate::{
    cli::journal::CancelArgs,
    commands::which_run,
    exit::{Exit, Trouble},
    terminal,
};

/// Maximum time to wait for the end of the run. Its process looks for requests four times a second.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &CancelArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open(&args.journal)?;
    let found = which_run::find(&journal, &args.id, args.scope.project(None))?;
    let run = which_run::described(&found);
    let request = InboxRequest::Cancel { tree: found.tree, run: found.run, by: "`homing cancel`".to_owned() };
    let (pid, host) = match journal.post(request).await.map_err(Trouble::from)? {
        Posted::ToOwner { pid, host } => (pid, host),
        Posted::NoOwner => {
            let status = super::show::envelope(&journal, &found)?.status;
            let why = if status.is_over() { "it already finished" } else { "its process is gone" };
            terminal::say(&format!("{run} is not running: {why}"));
            return Ok(Exit::Failed);
        }
    };
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        let envelope = super::show::envelope(&journal, &found)?;
        if envelope.status.is_over() {
            terminal::say(&format!("{} {run}", envelope.status.name().replace('_', " ")));
            return Ok(Exit::Done);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    terminal::say(&format!("asked process {pid} on {host} to stop {run}; it is still running"));
    Ok(Exit::Done)
}
