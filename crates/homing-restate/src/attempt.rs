//! `Attempt`: drives one segment of a tree on this worker until it ends, or until Restate gives it to another worker.

use std::{sync::Arc, time::Duration};

use homing_core::{envelope::Status, fact::CancelledBy, limits::Limits};
use homing_runtime::{
    RunHandle, Runtime, SpawnError, journal::JournalError, learn_news, placement::SegmentRequest, settle_share,
};
use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    live::Collecting,
    protocol::{Job, RUN, TREE, Waiting},
    segments::Segments,
    server::ServerError,
    worker::{DefinedRuntime, Shared},
};

/// Pause before a step is tried again that failed for a reason outside of the run.
const PAUSE: Duration = Duration::from_secs(1);

/// The work of this process on a segment. Dropping it gives the segment up.
pub(crate) struct Attempt {
    signals: Arc<Signals>,
}

/// The task that drives a segment.
pub(crate) struct DriverTask(JoinHandle<Ended>);

/// The reason why the driver of a segment returned.
enum Ended {
    /// The workflow was told to end, or the attempt is over.
    Finished,
    /// The segment is still to be driven, but not by this attempt.
    GaveUp(String),
}

#[derive(Default)]
struct Signals {
    /// Cancelled when the attempt is over.
    stop: CancellationToken,
    /// Notified when there are requests for the segment, or a run that it waits for has ended.
    nudge: Notify,
    /// Cancelled when the invocation is.
    cancelled: CancellationToken,
}

impl Attempt {
    /// Begins to drive a segment.
    pub(crate) fn begin(shared: Arc<Shared>, segment: Uuid, workflow: String, job: Job) -> (Self, DriverTask) {
        let signals = Arc::<Signals>::default();
        let Job { tree, definitions, .. } = job;
        let driver = Driver { shared, signals: signals.clone(), tree, segment, workflow, definitions };
        let task = DriverTask(tokio::spawn(driver.work()));
        (Self { signals }, task)
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

impl DriverTask {
    /// Waits until the segment is not driven any more although it has not ended, and returns the reason.
    pub(crate) async fn gave_up(self) -> String {
        match self.0.await {
            Ok(Ended::Finished) => std::future::pending().await,
            Ok(Ended::GaveUp(reason)) => reason,
            Err(error) => error.to_string(),
        }
    }
}

struct Driver {
    shared: Arc<Shared>,
    signals: Arc<Signals>,
    tree: Uuid,
    segment: Uuid,
    /// Key of the workflow.
    workflow: String,
    definitions: String,
}

/// The state in which a segment was left.
enum Left {
    Over,
    /// It waits for an answer.
    Parked,
    /// It cannot be driven.
    Stuck(String),
    /// Its records are not accepted any more.
    Fenced,
}

impl Driver {
    async fn work(self) -> Ended {
        let _guard = self.shared.count_live();
        let stop = self.signals.stop.clone();
        let error = match stop.run_until_cancelled(self.drive_to_end()).await {
            None => return Ended::Finished,
            Some(Err(reason)) => {
                tracing::warn!(run = %self.segment, reason, "this worker does not drive this run any more");
                return Ended::GaveUp(reason);
            }
            Some(Ok(error)) => error,
        };
        let workflow = self.workflow.as_str();
        while let Err(failure) = self.shared.server.call::<()>(&[RUN, workflow, "finish"], &error).await {
            tracing::warn!(workflow, error = %failure, "cannot end the workflow");
            if stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                break;
            }
        }
        Ended::Finished
    }

    /// Returns the text that ends the workflow.
    ///
    /// # Errors
    /// Fails if this attempt cannot drive the segment any more. Only Restate knows whether another worker has it already.
    async fn drive_to_end(&self) -> Result<String, String> {
        loop {
            match self.drive().await? {
                Left::Over => return Ok(String::new()),
                Left::Stuck(error) => return Ok(error),
                Left::Fenced => return Err("the records of this worker are not accepted any more".to_owned()),
                Left::Parked => (),
            }
        }
    }

    async fn drive(&self) -> Result<Left, String> {
        let DefinedRuntime { runtime, journal } = self.shared.runtime(&self.definitions).await?;
        let segments = journal.segments();
        let more = self.more(segments).await.map_err(|error| error.to_string())?;
        let run = match runtime.resume_segment(self.tree, self.segment, more).await {
            Ok(run) => Owned(run),
            Err(SpawnError::Journal(error @ (JournalError::CrashLoop { .. } | JournalError::NoSuchTree(_)))) => {
                return Ok(Left::Stuck(error.to_string()));
            }
            Err(error) => return Err(error.to_string()),
        };
        let _live = self.serve_text(&run.0);
        let status = self.attend(&run.0, &runtime, segments).await;
        if status == Status::Waiting {
            drop(run);
            self.signals.nudge.notified().await;
            self.signals.nudge.notify_one();
            return Ok(Left::Parked);
        }
        if !self.is_over(segments).await.map_err(|error| error.to_string())? {
            return Ok(Left::Fenced);
        }
        // What the segment did not need is free for the others.
        settle_share(&run.0).await.map_err(|error| error.to_string())?;
        Ok(Left::Over)
    }

    /// The amounts by which a request raises the limits of the segment's first run, if it was continued after its end.
    async fn more(&self, segments: &Segments) -> Result<Limits, ServerError> {
        if self.workflow == self.segment.to_string() {
            return Ok(Limits::default());
        }
        let requests = segments.take(self.tree, self.segment, 0).await?;
        let mut raises = requests.iter().filter_map(|waiting| match waiting.request {
            SegmentRequest::Extend { run, more } if run == self.segment => Some(more),
            _ => None,
        });
        Ok(raises.next().unwrap_or_default())
    }

    /// Serves the text of replies to followers of the tree, if this is the segment of its root.
    fn serve_text(&self, run: &RunHandle) -> Option<Collecting> {
        let (texts, address) = self.shared.live_texts.as_ref().filter(|_| self.segment == self.tree)?;
        let (server, tree, address) = (self.shared.server.clone(), self.tree.to_string(), address.clone());
        tokio::spawn(async move {
            // Without it, followers see replies when they are complete.
            let _ = server.call::<()>(&[TREE, &tree, "announce"], &address).await;
        });
        Some(texts.collect(run))
    }

    /// Returns whether the end of the segment is stored.
    async fn is_over(&self, segments: &Segments) -> Result<bool, ServerError> {
        segments.is_over(self.tree, self.segment).await
    }

    /// Waits for the end of the segment, or until it only waits for answers. Carries out requests meanwhile.
    async fn attend(&self, run: &RunHandle, runtime: &Runtime, segments: &Segments) -> Status {
        let over = run.wait_or_park();
        tokio::pin!(over);
        // Requests may have been left while no worker had the segment. What other workers have recorded is in the fold.
        if self.carry_out_requests(runtime, segments).await.is_err() {
            self.signals.nudge.notify_one();
        }
        let mut is_cancelled = false;
        loop {
            tokio::select! {
                envelope = &mut over => return envelope.status,
                () = self.signals.nudge.notified() => {
                    if let Err(error) = self.answer_requests(run, runtime, segments).await {
                        tracing::warn!(run = %self.segment, error, "cannot read the requests to this run; trying again");
                        tokio::time::sleep(PAUSE).await;
                        self.signals.nudge.notify_one();
                    }
                }
                () = self.signals.cancelled.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    run.cancel(CancelledBy::Other("Restate".to_owned()));
                }
            }
        }
    }

    /// Reads the ends of runs that others drive, and carries out requests.
    async fn answer_requests(&self, run: &RunHandle, runtime: &Runtime, segments: &Segments) -> Result<(), String> {
        learn_news(run).await.map_err(|error| error.to_string())?;
        self.carry_out_requests(runtime, segments).await
    }

    /// Carries out the requests to the owner of the segment. A request is removed once what it led to is stored. The owner may die in
    /// between, so those that the log shows as done are not carried out again.
    async fn carry_out_requests(&self, runtime: &Runtime, segments: &Segments) -> Result<(), String> {
        let take = |done| segments.take(self.tree, self.segment, done);
        let mut requests = take(0).await.map_err(|error| error.to_string())?;
        while !requests.is_empty() {
            let done = requests.len();
            let requests_left = segments.not_done(self.tree, requests).await.map_err(|error| error.to_string())?;
            for Waiting { request, key, .. } in requests_left {
                runtime.deliver(self.segment, request, &key).await;
            }
            segments.owned.flush(self.tree).await;
            requests = take(done).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// A segment that this process drives. Dropping it gives the segment up, unless it has ended.
struct Owned(RunHandle);

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.0.status().is_over() {
            self.0.release();
        }
    }
}
