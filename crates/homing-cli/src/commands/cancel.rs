//! `homing cancel`: stops a run, even one of another process.

use std::time::{Duration, Instant};

use homing_runtime::journal::{InboxRequest, sqlite::Posted};

use crate::{
    cli::journal::CancelArgs,
    exit::{Exit, Trouble},
    print_result, terminal,
};

/// Maximum time to wait for the end of the run. Its process looks for requests four times a second.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &CancelArgs) -> anyhow::Result<Exit> {
    let journal = super::runs::open(&args.journal)?;
    let found = super::show::find(&journal, &args.id)?;
    let request = InboxRequest::Cancel { tree: found.tree, run: found.run, by: "`homing cancel`".to_owned() };
    let (pid, host) = match journal.post(request).await.map_err(Trouble::from)? {
        Posted::ToOwner { pid, host } => (pid, host),
        Posted::NoOwner => {
            let status = super::show::envelope(&journal, &found)?.status;
            let why = if status.is_over() { "it already finished" } else { "its process is gone" };
            terminal::say(&format!("not running: {why}"));
            return Ok(Exit::Failed);
        }
    };
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        let envelope = super::show::envelope(&journal, &found)?;
        if envelope.status.is_over() {
            let tree = journal.tree(found.tree).map_err(Trouble::from)?;
            let task = tree.get(found.run).map(|run| terminal::cut(run.spawned.task.trim(), 60)).unwrap_or_default();
            let status = envelope.status.name().replace('_', " ");
            terminal::say(&format!("{status} run {} ({}, {task:?})", print_result::short(&envelope), envelope.agent));
            return Ok(Exit::Done);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    terminal::say(&format!("asked process {pid} on {host} to stop it; it is still running"));
    Ok(Exit::Done)
}
