//! The agent loop. It decides nothing and knows nothing of the world: what comes next is the fold's to say, and the world
//! is behind three seams.

pub(crate) mod compaction;
pub(crate) mod model_call;
pub(crate) mod run_driver;
pub(crate) mod tool_call;
use homing_core::{
    fact::{Ended, LimitHit, Outcome, Purpose},
    message::Reply,
    model::AskFailure,
    run::{CallState, Step},
    tool::Replay,
};

use crate::journal::JournalError;

/// What a run may spend: held before it is spent, settled after.
pub(crate) trait Ledger {
    /// What a model call needs to be under way: holds, slots.
    type Permit;

    /// Holds the worst case at this run and at every ancestor, or says what to do instead.
    async fn reserve(&self, purpose: Purpose, nudge: Option<String>) -> Result<Reserved<Self::Permit>, Interrupt>;

    /// Turns the hold into what was used.
    fn settle(&self, held: Self::Permit, said: Result<Reply, AskFailure>) -> Result<(), Interrupt>;
}

/// What can be done to the world.
pub(crate) trait Effects: Ledger {
    /// One attempt at asking the model.
    async fn ask(&self, held: &Self::Permit) -> Result<Reply, AskFailure>;

    /// Carries out the calls that are tools.
    async fn call(&self, calls: Vec<CallState>) -> Result<(), Interrupt>;

    /// Runs the command that must succeed before the run is done.
    async fn verify(&self, command: String, begun: Option<Replay>) -> Result<(), Interrupt>;

    /// Lets a summary stand for the older history.
    fn supersede(&self, summary: String) -> Result<(), Interrupt>;
}

/// The runs below this one.
pub(crate) trait Children {
    /// Carries out the calls that concern other runs: delegate, wait, tell, cancel.
    async fn family(&self, calls: Vec<CallState>) -> Result<(), Interrupt>;

    /// Waits until a background child has something to say.
    async fn news(&self) -> Result<(), Interrupt>;
}

/// Whether a model may be asked.
pub(crate) enum Reserved<H> {
    /// Yes.
    Held(H),
    /// Not for this; do that instead.
    Instead(Step),
}

/// What ends a run from outside its transcript.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// Somebody wants it to stop.
    Stopped,
    /// Its time is up.
    OutOfTime(LimitHit),
    /// Facts cannot be kept any more.
    Journal(JournalError),
    /// It cannot go on.
    Failed(Outcome),
}

/// Drives a run to its end. Beginning and resuming are the same thing.
pub(crate) async fn drive(run: &(impl Effects + Children), next_step: impl Fn() -> Step) -> Result<Ended, Interrupt> {
    let mut step = next_step();
    loop {
        step = match step {
            Step::Ask { purpose, nudge } => match run.reserve(purpose, nudge).await? {
                Reserved::Held(held) => {
                    let said = run.ask(&held).await;
                    run.settle(held, said)?;
                    next_step()
                }
                Reserved::Instead(step) => step,
            },
            Step::Act(calls) => {
                let (family, tools) = calls.into_iter().partition(|state| is_family(&state.call.name));
                let (tools, family) = tokio::join!(run.call(tools), run.family(family));
                tools.and(family)?;
                next_step()
            }
            Step::Verify { command, begun } => {
                run.verify(command, begun).await?;
                next_step()
            }
            Step::Supersede { summary } => {
                run.supersede(summary)?;
                next_step()
            }
            Step::Await => {
                run.news().await?;
                next_step()
            }
            Step::Stop(ended) => return Ok(ended),
        }
    }
}

/// Whether a call, under whatever name the model used, concerns other runs.
fn is_family(name: &str) -> bool {
    let ours = homing_core::tool_names::canonical(name).unwrap_or(name);
    homing_core::tool_names::is_delegation(ours)
}
