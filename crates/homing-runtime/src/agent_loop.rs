//! The agent loop: carries out the steps that the fold of a run's facts asks for. It decides nothing itself, and
//! models, tools and other runs are behind three traits.

pub(crate) mod active_run;
mod answer_schema;
mod budget_wait;
mod cache_wait;
pub(crate) mod call_record;
mod call_text;
pub(crate) mod compaction;
pub(crate) mod landing;
pub(crate) mod model_call;
pub(crate) mod permission;
pub(crate) mod request;
pub(crate) mod run_driver;
mod streamed;
pub(crate) mod tool_call;
pub(crate) mod tool_host;

use homing_core::{
    fact::{Ended, LimitHit, Outcome, Purpose},
    message::Reply,
    model::AskFailure,
    run::{CallState, Step},
    tool::Replay,
};
use serde_json::Value;

use crate::journal::JournalError;

/// Reserves budget before a model call, and settles it afterwards.
pub(crate) trait Ledger {
    /// A permitted model call: its reservation and its slots.
    type Permit;

    /// Reserves the worst case at this run and at every ancestor, or names the step to take instead.
    async fn reserve(&self, purpose: &Purpose, nudge: Option<&str>) -> Result<Reserved<Self::Permit>, Interrupt>;

    /// Replaces the reservation by what was used.
    fn settle(&self, permit: Self::Permit, reply: Result<Reply, AskFailure>) -> Result<(), Interrupt>;
}

/// Effects outside the runtime.
pub(crate) trait Effects: Ledger {
    /// Makes one attempt at a model call.
    async fn ask(&self, permit: &Self::Permit) -> Result<Reply, AskFailure>;

    /// Carries out tool calls.
    async fn call(&self, calls: Vec<CallState>) -> Result<(), Interrupt>;

    /// Runs the command that must succeed before the run is done.
    async fn verify(&self, command: String, begun: Option<Replay>) -> Result<(), Interrupt>;

    /// Checks an answer that the model gave as text against the run's schema.
    fn check_answer(&self, value: Value);

    /// Replaces the older history by a summary.
    fn supersede(&self, summary: String) -> Result<(), Interrupt>;
}

/// The runs below this one.
pub(crate) trait Children {
    /// Returns true if a call is about other runs.
    fn takes(&self, call: &CallState) -> bool;

    /// Carries out calls about other runs: delegate, wait, tell, cancel, and skills that run on their own.
    async fn delegate(&self, calls: Vec<CallState>) -> Result<(), Interrupt>;

    /// Waits until a background child ends or a message arrives.
    async fn wait_for_news(&self) -> Result<(), Interrupt>;
}

/// The result of reserving a model call.
pub(crate) enum Reserved<P> {
    /// The call may be made.
    Permitted(P),
    /// The call may not be made; this step takes its place.
    Instead(Step),
}

/// Reasons for which a run ends other than by its own transcript.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// It was asked to stop.
    Stopped,
    /// Its time is up.
    OutOfTime(LimitHit),
    /// Its facts cannot be recorded any more.
    Journal(JournalError),
    /// It cannot continue.
    Failed(Outcome),
}

impl From<JournalError> for Interrupt {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// Drives a run to its end. New and resumed runs take the same path.
pub(crate) async fn drive(run: &(impl Effects + Children), next_step: impl Fn() -> Step) -> Result<Ended, Interrupt> {
    let mut step = next_step();
    loop {
        step = match step {
            // Boxed, because it is several times as large as the call that follows, for which most runs wait most of their time.
            Step::Ask { purpose, nudge } => match Box::pin(run.reserve(&purpose, nudge.as_deref())).await? {
                Reserved::Permitted(permit) => {
                    let reply = run.ask(&permit).await;
                    run.settle(permit, reply)?;
                    next_step()
                }
                Reserved::Instead(step) => step,
            },
            Step::Act(calls) => {
                if !calls.iter().any(|call| run.takes(call)) {
                    run.call(calls).await?;
                } else {
                    let (delegations, tools) = calls.into_iter().partition(|call| run.takes(call));
                    // Boxed, because most replies delegate nothing and a run's future is as large as its largest step.
                    let both = Box::pin(async { tokio::join!(run.call(tools), run.delegate(delegations)) });
                    let (tools, delegations) = both.await;
                    tools.and(delegations)?;
                }
                next_step()
            }
            Step::Verify { command, begun } => {
                Box::pin(run.verify(command, begun)).await?;
                next_step()
            }
            Step::CheckAnswer { value } => {
                run.check_answer(value);
                next_step()
            }
            Step::Supersede { summary } => {
                run.supersede(summary)?;
                next_step()
            }
            Step::Await => {
                Box::pin(run.wait_for_news()).await?;
                next_step()
            }
            Step::Stop(ended) => return Ok(ended),
        }
    }
}
