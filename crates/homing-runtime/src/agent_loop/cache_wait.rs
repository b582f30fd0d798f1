//! Lets the runs of a fan-out use the provider's prompt cache.
//!
//! Runs of one agent begin with the same tools, system prompt and project instructions. A provider that caches prompts
//! charges a fraction for a beginning that it has seen, but it has seen it only once the first reply has begun. Runs that
//! are asked at the same moment all pay the full price. So the first one is asked alone, and the others wait until its reply
//! begins; they hold nothing meanwhile.

use std::sync::Arc;

use homing_core::{
    fact::Spawned,
    model::{Model, Rates},
    run::Run,
    tool_names,
};

use crate::{
    agent_loop::{Interrupt, active_run::ActiveRun},
    delegation,
    event::TransientKind,
    live_run::LiveRun,
    run_tools::RunTools,
    scheduler::Scheduler,
};

/// The number of runs from which on a fan-out waits. With two, the time lost is worth more than the money.
const MIN_RUNS: usize = 3;

/// The smallest common beginning for which runs wait, in bytes: providers cache from about 1,024 tokens on.
const MIN_BYTES: u64 = 4_096;

/// Waits before the first model call of a run until the reply to the first run of its fan-out has begun.
pub(crate) async fn wait_for_sibling(
    run: &ActiveRun,
    scheduler: &Scheduler,
    model: &dyn Model,
    tools: Option<&RunTools>,
) -> Result<(), Interrupt> {
    let longest = run.config().cache_wait;
    let is_cheaper = model.card().rates.as_ref().is_some_and(Rates::rewards_caching);
    let bytes = run.read(|run| run.spawned.system.len() as u64) + tools.map_or(0, |tools| tools.bytes);
    if longest.is_zero() || !is_cheaper || bytes < MIN_BYTES {
        return Ok(());
    }
    let Some(first) = first_sibling(run) else { return Ok(()) };
    run.notify(|| TransientKind::Queued);
    let begun = async {
        tokio::select! {
            () = first.first_reply.cancelled() => (),
            () = first.over.cancelled() => (),
            () = tokio::time::sleep(longest) => (),
        }
    };
    Box::pin(scheduler.waiting(begun)).await
}

/// The first run of the fan-out, if this run must wait for it. A fan-out may have thousands of runs, so each looks at only as
/// many of the others as it must.
fn first_sibling(run: &ActiveRun) -> Option<Arc<LiveRun>> {
    let first = run.tree.read(|tree| {
        let own = tree.get(run.id()).filter(|own| own.asked_model().is_none())?;
        let parent = tree.get(own.spawned.parent?)?;
        let mut siblings = tree.children(parent).filter(|sibling| is_of_fan_out(&own.spawned, &sibling.spawned));
        let first = siblings.next().filter(|first| first.id != own.id && first.turn() == 0)?;
        let (one, other) = (&own.spawned, &first.spawned);
        let begins_alike = one.system == other.system && one.schema == other.schema;
        let is_large = || 1 + siblings.take(MIN_RUNS).count() >= MIN_RUNS || planned(run, parent, own) >= MIN_RUNS;
        (begins_alike && is_large()).then_some(first.id)
    })?;
    run.tree.live_run(first)
}

/// Returns true if two runs were delegated by the same reply to the same agent and model.
fn is_of_fan_out(own: &Spawned, other: &Spawned) -> bool {
    let turn = |spawned: &Spawned| spawned.parent_call.map(|call| call.turn);
    turn(own) == turn(other) && own.agent.name == other.agent.name && own.models.first() == other.models.first()
}

/// The number of open calls of the parent that delegate to this agent. Runs of a fan-out are spawned one after the other, so
/// the first of them do not see the others yet.
fn planned(run: &ActiveRun, parent: &Run, own: &Run) -> usize {
    let (registry, agent) = (&run.runtime.parts.registry, own.spawned.agent.name.as_str());
    let calls = parent.open_calls();
    let delegates = calls.iter().filter(|state| tool_names::canonical(&state.call.name) == Some(tool_names::DELEGATE));
    delegates.filter(|state| delegation::agent_name(&state.call.args, registry).as_deref() == Some(agent)).count()
}
