//! `homing cancel`: stops a run, even one of another process, or one that no process drives any more.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use homing_core::{
    definition::ModelChoice,
    fact::CancelledBy,
    model::{Model, ModelError, Models, ResolvedModel},
    registry::Registry,
};
use homing_runtime::{
    Runtime, RuntimeParts,
    journal::{
        InboxRequest,
        sqlite::{Posted, RunRef, SqliteJournal},
    },
    placement::SegmentRequest,
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
    let found = which_run::find_anywhere(&journal, &args.id, args.scope.project(None)).await?;
    let run = which_run::described(&found);
    if let Some(remote) = RemoteTree::find(&journal, found.tree).await? {
        let by = CancelledBy::Other("`homing cancel`".to_owned());
        let request = SegmentRequest::Cancel { run: found.run, by };
        let is_posted = remote.post(request).await?;
        return finish_remote(&journal, &found, &remote, is_posted).await;
    }
    let request = InboxRequest::Cancel { tree: found.tree, run: found.run, by: "`homing cancel`".to_owned() };
    let (pid, host) = match journal.post(request).await.map_err(Trouble::from)? {
        Posted::ToOwner { pid, host } => (pid, host),
        Posted::NoOwner if super::show::envelope(&journal, &found)?.status.is_over() => {
            terminal::say(&format!("{run} is not running: it already finished"));
            return Ok(Exit::Failed);
        }
        Posted::NoOwner => return cancel_without_owner(&journal, &found).await,
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

/// Ends a run that waits for an answer or was interrupted. No process drives it, so its end is recorded here.
async fn cancel_without_owner(journal: &Arc<SqliteJournal>, found: &RunRef) -> anyhow::Result<Exit> {
    let runtime = Runtime::new(RuntimeParts::new(Registry::default(), Arc::new(NoModels), journal.clone()));
    let by = CancelledBy::Other("`homing cancel`".to_owned());
    let result = runtime.cancel(found.tree, found.run, by).await.map_err(Trouble::from)?;
    terminal::say(&format!("{} {}", result.status.name().replace('_', " "), which_run::described(found)));
    Ok(Exit::Done)
}

/// No model is asked to end a run.
struct NoModels;

impl Models for NoModels {
    fn resolve(&self, _: &ModelChoice, _: Option<&str>) -> Result<ResolvedModel, ModelError> {
        self.get("").map(|_| ResolvedModel::default())
    }

    fn get(&self, _: &str) -> Result<Arc<dyn Model>, ModelError> {
        Err(ModelError::Unusable { reason: "no model is needed to end a run".to_owned() })
    }
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
