//! The workflow of a segment. It is in progress as long as the segment is, so that Restate gives it to another worker if this one
//! dies. The work itself is done by an [`Attempt`](crate::attempt::Attempt), and recorded as facts.

use std::sync::Arc;

use restate_sdk::prelude::*;

use crate::{
    attempt::Attempt,
    protocol::{Job, OLDEST, Preflight, VERSION, segment_of_workflow},
    tree_object::too_old,
    worker::Shared,
};

const DONE: &str = "done";

/// The workflow of a segment, under the ID of its first run.
pub(crate) struct RunWorkflow(pub(crate) Arc<Shared>);

// A run may wait for days. With Restate's defaults, it would be asked to suspend after a minute without progress and be aborted
// ten minutes later; both are longer than any run here. And if no worker answered for an hour, it would be paused until a user
// resumes it; so attempts are not limited, here and in the objects, whose requests queue behind one that waits.
#[restate_sdk::workflow(
    name = "HomingRun",
    inactivity_timeout = "366 days",
    abort_timeout = "366 days",
    journal_retention = "0s",
    workflow_completion_retention = "1 day",
    invocation_retry_policy(
        initial_interval = "100ms",
        factor = 2.0,
        max_interval = "5s",
        max_attempts = 1_000_000_000,
        on_max_attempts = "pause"
    )
)]
impl RunWorkflow {
    /// Drives the segment until it ends.
    #[handler]
    async fn run(&self, ctx: WorkflowContext<'_>, job: Json<Job>) -> HandlerResult<()> {
        let not_a_run = || TerminalError::new("the key does not begin with a run ID");
        let segment = segment_of_workflow(ctx.key()).ok_or_else(not_a_run)?;
        if job.0.version > VERSION {
            // Restate asks again, until a later worker takes it.
            return Err(HandlerError::from(too_old(job.0.version)));
        }
        let (attempt, driver) = self.0.clone().attempt(segment, ctx.key().to_owned(), job.0)?;
        tokio::select! {
            result = attend(&ctx, &attempt) => result,
            // The workflow must not stay open without a driver. Restate repeats it, unless another worker has it.
            reason = driver.gave_up() => Err(HandlerError::from(reason)),
        }
    }

    /// Wakes the worker, because there is a request for the segment, or a run that it waits for has ended.
    #[handler]
    async fn nudge(&self, ctx: SharedWorkflowContext<'_>, number: Json<u64>) -> HandlerResult<()> {
        ctx.resolve_promise(&nudge_name(number.0), String::new());
        Ok(())
    }

    /// Ends the workflow. The argument is the reason why the segment is not driven any more, or empty if it has ended.
    #[handler]
    async fn finish(&self, ctx: SharedWorkflowContext<'_>, error: Json<String>) -> HandlerResult<()> {
        ctx.resolve_promise(DONE, error.0);
        Ok(())
    }
}

/// Waits for the end of the workflow, and passes requests on to the attempt.
async fn attend(ctx: &WorkflowContext<'_>, attempt: &Attempt) -> HandlerResult<()> {
    let mut nudges = 0_u64;
    loop {
        let name = nudge_name(nudges);
        let (done, nudge) = (ctx.promise::<String>(DONE), ctx.promise::<String>(&name));
        restate_sdk::select! {
            error = done => {
                let error = error?;
                return if error.is_empty() { Ok(()) } else { Err(TerminalError::new(error).into()) };
            },
            _ = nudge => {
                nudges += 1;
                attempt.nudge();
            },
            on_cancel => attempt.cancel(),
        }
    }
}

fn nudge_name(number: u64) -> String {
    format!("nudge-{number}")
}

/// Questions to any worker.
pub(crate) struct WorkerService(pub(crate) Arc<Shared>);

#[restate_sdk::service(
    name = "HomingWorker",
    journal_retention = "0s",
    invocation_retry_policy(initial_interval = "50ms", max_interval = "5s", max_attempts = 1_000_000_000)
)]
impl WorkerService {
    /// Checks a submission. Returns the reason why it cannot work, or nothing.
    #[handler]
    async fn preflight(&self, _ctx: Context<'_>, request: Json<Preflight>) -> HandlerResult<Json<Option<String>>> {
        let request = request.0;
        if !(OLDEST..=VERSION).contains(&request.version) {
            let versions = format!("version {} of the protocol, not {}", VERSION, request.version);
            return Ok(Json(Some(format!("a worker speaks {versions}: use the same version of homing everywhere"))));
        }
        Ok(Json(self.0.refuses(&request)))
    }
}
