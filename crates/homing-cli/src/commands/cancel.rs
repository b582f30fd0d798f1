//! `homing cancel`: stops a run, even one of another process.

use std::time::{Duration, Instant};

use homing_core::envelope::Status;
use homing_restate::Post;
use homing_runtime::journal::{
    InboxRequest,
    sqlite::{Posted, RunRef, SqliteJournal},
};

use super::restate::RemoteTree;
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
    if let Some(remote) = RemoteTree::find(&journal, found.tree).await? {
        let post = Post::Cancel { run: found.run, by: "`homing cancel`".to_owned() };
        let is_posted = remote.post(&post).await?;
        return finish_remote(&journal, &found, &remote, is_posted).await;
    }
    let request = InboxRequest::Cancel { tree: found.tree, run: found.run, by: "`homing cancel`".to_owned() };
    let (pid, host) = match journal.post(request).await.map_err(Trouble::from)? {
        Posted::ToOwner { pid, host } => (pid, host),
        Posted::NoOwner => {
            let status = super::show::envelope(&journal, &found)?.status;
            let why = match status {
                Status::Waiting => "it waits for an answer, and its process has exited",
                status if status.is_over() => "it already finished",
                _ => "its process is gone",
            };
            terminal::say(&format!("{run} is not running: {why}"));
            if status == Status::Waiting {
                terminal::say("hint: it costs nothing while it waits; answer it with `homing answer`, or leave it");
            }
            return Ok(Exit::Failed);
        }
    };
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        if say_ended(&journal, &found)? {
            return Ok(Exit::Done);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    terminal::say(&format!("asked process {pid} on {host} to stop {run}; it is still running"));
    Ok(Exit::Done)
}

/// Says how the run ended; returns false if it has not.
fn say_ended(journal: &SqliteJournal, found: &RunRef) -> Result<bool, Trouble> {
    let envelope = super::show::envelope(journal, found)?;
    if !envelope.status.is_over() {
        return Ok(false);
    }
    terminal::say(&format!("{} {}", envelope.status.name().replace('_', " "), which_run::described(found)));
    Ok(true)
}

/// Waits for the end of a run that a worker drives.
async fn finish_remote(
    journal: &SqliteJournal,
    found: &RunRef,
    remote: &RemoteTree,
    is_posted: bool,
) -> anyhow::Result<Exit> {
    if !is_posted {
        terminal::say(&format!("{} is not running: it already finished", which_run::described(found)));
        return Ok(Exit::Failed);
    }
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        remote.refresh(journal).await?;
        if say_ended(journal, found)? {
            return Ok(Exit::Done);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    terminal::say(&format!("asked the worker to stop {}; it is still running", which_run::described(found)));
    Ok(Exit::Done)
}
