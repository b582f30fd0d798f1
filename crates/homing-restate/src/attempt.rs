//! `Attempt`: drives one tree on this worker until it ends, or until Restate gives the tree to another worker.

use std::{sync::Arc, time::Duration};

use homing_core::{envelope::Status, limits::Limits};
use homing_runtime::{
    RunHandle, Runtime, SpawnError,
    journal::{Claim, InboxRequest, JournalError},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    journal::RestateJournal,
    protocol::RUN,
    worker::{DefinedRuntime, Shared},
};

/// Pause before a step is tried again that failed for a reason outside of the run.
const PAUSE: Duration = Duration::from_secs(1);

/// The work of this process on a tree. Dropping it gives the tree up.
pub(crate) struct Attempt {
    signals: Arc<Signals>,
}

#[derive(Default)]
struct Signals {
    /// Cancelled when the attempt is over.
    stop: CancellationToken,
    /// Notified when there are requests for the tree.
    nudge: Notify,
    /// Cancelled when the invocation is.
    cancelled: CancellationToken,
}

impl Attempt {
    /// Begins to drive a tree.
    pub(crate) fn begin(shared: Arc<Shared>, tree: Uuid, definitions: String) -> Self {
        let signals = Arc::<Signals>::default();
        // Requests may have been left while no worker had the tree.
        signals.nudge.notify_one();
        let driver = Driver { shared, signals: signals.clone(), tree, definitions };
        tokio::spawn(driver.work());
        Self { signals }
    }

    pub(crate) fn nudge(&self) {
        self.signals.nudge.notify_one();
    }

    pub(crate) fn cancel(&self) {
        self.signals.cancelled.cancel();
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.signals.stop.cancel();
    }
}

struct Driver {
    shared: Arc<Shared>,
    signals: Arc<Signals>,
    tree: Uuid,
    definitions: String,
}

/// The state in which a tree was left.
enum Left {
    Over,
    /// It waits for an answer.
    Parked,
    /// It cannot be driven.
    Stuck(String),
    /// Another worker has it.
    Gone,
}

impl Driver {
    async fn work(self) {
        let _guard = self.shared.count_live();
        let stop = self.signals.stop.clone();
        let Some(error) = stop.run_until_cancelled(self.drive_to_end()).await.flatten() else { return };
        let tree = self.tree.to_string();
        while let Err(failure) = self.shared.server.call::<()>(&[RUN, &tree, "finish"], &error).await {
            tracing::warn!(tree, error = %failure, "cannot end the workflow");
            if stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                return;
            }
        }
    }

    /// Returns the text that ends the workflow, or `None` if another worker has the tree.
    async fn drive_to_end(&self) -> Option<String> {
        loop {
            match self.drive().await {
                Ok(Left::Over) => return Some(String::new()),
                Ok(Left::Stuck(error)) => return Some(error),
                Ok(Left::Gone) => return None,
                Ok(Left::Parked) => (),
                Err(error) => {
                    tracing::warn!(tree = %self.tree, error, "cannot drive this run; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn drive(&self) -> Result<Left, String> {
        let DefinedRuntime { runtime, journal } = self.shared.runtime(&self.definitions).await?;
        let resumed = runtime.resume(self.tree, Claim::Force, Limits::default()).await;
        let run = match resumed {
            Ok(run) => Owned(run),
            Err(SpawnError::Journal(error @ (JournalError::CrashLoop { .. } | JournalError::NoSuchTree(_)))) => {
                return Ok(Left::Stuck(error.to_string()));
            }
            Err(error) => return Err(error.to_string()),
        };
        let status = self.attend(&run.0, &runtime, &journal).await;
        if status == Status::Waiting {
            drop(run);
            self.signals.nudge.notified().await;
            self.signals.nudge.notify_one();
            return Ok(Left::Parked);
        }
        if journal.is_over(self.tree).await.map_err(|error| error.to_string())? {
            Ok(Left::Over)
        } else {
            Ok(Left::Gone)
        }
    }

    /// Waits for the end of the tree, or until it only waits for answers. Carries out requests meanwhile.
    async fn attend(&self, run: &RunHandle, runtime: &Runtime, journal: &RestateJournal) -> Status {
        let over = run.wait_or_park();
        tokio::pin!(over);
        let mut is_cancelled = false;
        loop {
            tokio::select! {
                envelope = &mut over => return envelope.status,
                () = self.signals.nudge.notified() => {
                    if let Err(error) = journal.take_posts(self.tree).await {
                        tracing::warn!(tree = %self.tree, %error, "cannot read the requests to this run; trying again");
                        tokio::time::sleep(PAUSE).await;
                        self.signals.nudge.notify_one();
                    }
                    runtime.answer_inbox().await;
                }
                () = self.signals.cancelled.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    let (tree, by) = (self.tree, "Restate".to_owned());
                    journal.post_here(InboxRequest::Cancel { tree, run: tree, by });
                    runtime.answer_inbox().await;
                }
            }
        }
    }
}

/// A tree that this process drives. Dropping it gives the tree up, unless it has ended.
struct Owned(RunHandle);

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.0.status().is_over() {
            self.0.release();
        }
    }
}
