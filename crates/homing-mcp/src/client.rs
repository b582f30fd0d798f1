//! One client and its runs. A client can access only the runs it started, they count against its budget, and they are
//! cancelled when it disconnects.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use homing::{
    CancelledBy, Cap, Claim, Envelope, Homing, Limit, Limits, Message, RunHandle, Task,
    crates::{
        core::{trace_context::TraceContext, tree::RunTree},
        runtime::journal::sqlite::RunRow,
    },
    usd,
};
use rmcp::{Peer, RoleServer};
use uuid::Uuid;

use crate::{
    earlier_runs::{self, ClientTags},
    elicitation::QuestionRoute,
    server_state::{Audience, ServerState},
};

/// Maximum number of runs that stay listed. Older ones that have ended are only in the journal.
const MAX_LISTED: usize = 1_000;

/// A connected client.
pub(crate) struct Client {
    pub(crate) server: Arc<ServerState>,
    /// Set when the client has sent `initialize`.
    peer: OnceLock<Peer<RoleServer>>,
    /// Its name, as sent with `initialize`.
    name: OnceLock<String>,
    runs: Mutex<ClientRuns>,
    /// The routes of waiting requests, with the runs that each waits for.
    routes: Mutex<Vec<(Vec<RunHandle>, QuestionRoute)>>,
}

/// The runs of a client.
#[derive(Default)]
struct ClientRuns {
    listed: Vec<ClientRun>,
    /// The usage of runs that are no longer listed.
    unlisted: ClientUsage,
}

/// A run that a client started.
#[derive(Clone)]
pub(crate) struct ClientRun {
    pub(crate) handle: RunHandle,
    pub(crate) task: String,
    /// The most it may use.
    limit: ClientUsage,
    /// The usage before this client took it over from an earlier process of the server.
    before: ClientUsage,
    /// True once the client has received the result.
    reported: Arc<AtomicBool>,
    /// The instance that it was started with. Agents may have been reloaded since, and this one still drives the run.
    _homing: Arc<Homing>,
}

#[derive(Clone, Copy, Default)]
struct ClientUsage {
    cost_micros: u64,
    tokens: u64,
}

/// The result of [`Client::recall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recalled {
    /// It is listed now.
    Listed,
    /// It has not ended.
    Interrupted,
    /// The client has no such run.
    Unknown,
}

/// The reason for which no run was started, as a message for the client's model.
pub(crate) struct SpawnRefusal(pub(crate) String);

impl Client {
    pub(crate) fn new(server: Arc<ServerState>) -> Self {
        Self { server, peer: OnceLock::new(), name: OnceLock::new(), runs: Mutex::default(), routes: Mutex::default() }
    }

    /// Records the client's peer and its name when it has sent `initialize`.
    pub(crate) fn initialize(&self, peer: Peer<RoleServer>, name: String) {
        let _ = (self.name.set(name), self.peer.set(peer));
    }

    /// Returns the client's peer; `None` until it has sent `initialize`.
    pub(crate) fn peer(&self) -> Option<&Peer<RoleServer>> {
        self.peer.get()
    }

    /// Starts a run within the client's budget. The remaining budget is checked and reserved under one lock, so that concurrent
    /// requests cannot exceed it together.
    pub(crate) fn spawn(
        &self,
        agent: &str,
        text: &str,
        requested: Limits,
        history: Vec<Message>,
        trace: Option<TraceContext>,
    ) -> Result<ClientRun, SpawnRefusal> {
        let homing = self.server.homing();
        let mut runs = self.lock();
        let definition = homing.registry().get(agent).ok();
        if definition.is_some_and(|definition| !definition.execution.offered_to.includes_models()) {
            return Err(SpawnRefusal(format!("only the user can start the agent `{agent}`")));
        }
        let own = definition.map(|definition| definition.limits).unwrap_or_default();
        let limits = runs.limits_for(&self.server, own, requested)?;
        let limit = ClientUsage {
            cost_micros: limits.cost_micros.value().unwrap_or(0),
            tokens: limits.tokens.value().unwrap_or(0),
        };
        let mut task = self.tags(&homing).add_to(Task::new(agent, text).limits(limits));
        task.history = history;
        trace.iter().for_each(|trace| trace.add_to(&mut task.tags));
        // The model of a team is its program, which no other model can replace.
        let is_team = definition.is_some_and(|definition| homing::crates::teams::is_team_agent(definition));
        task.model = self.server.options.model.clone().filter(|_| !is_team);
        task.account.clone_from(&self.server.options.account);
        let handle = homing.spawn(task).map_err(|error| SpawnRefusal(error.to_string()))?;
        let (before, reported) = (ClientUsage::default(), Arc::default());
        let run = ClientRun { handle, task: text.to_owned(), limit, before, reported, _homing: homing };
        runs.list(run.clone());
        Ok(run)
    }

    /// Takes over a run that the client started through an earlier process of the server, if it has ended. Only
    /// [`Self::resume`] continues an interrupted one, because that costs money.
    pub(crate) async fn recall(&self, run: Uuid) -> Recalled {
        let homing = self.server.homing();
        let Some((id, tree)) = earlier_runs::find(&homing, &self.tags(&homing), run) else { return Recalled::Unknown };
        if tree.root().is_none_or(|root| root.ended.is_none()) {
            return Recalled::Interrupted;
        }
        match homing.resume(id, Claim::IfGone, Limits::default()).await {
            Ok(handle) => {
                let taken = self.taken_over(&homing, handle, &tree);
                taken.reported.store(true, Ordering::Relaxed);
                self.lock().list(taken);
                Recalled::Listed
            }
            Err(_) => Recalled::Unknown,
        }
    }

    /// Resumes an interrupted run that the client started through an earlier process of the server.
    pub(crate) async fn resume(&self, run: Uuid) -> Result<ClientRun, SpawnRefusal> {
        let homing = self.server.homing();
        let refused = |why: &str| SpawnRefusal(format!("run {run} {why}"));
        if self.find(run).is_some() {
            return Err(refused("was not interrupted: `wait` for it, or `tell` it to continue"));
        }
        let found = earlier_runs::find(&homing, &self.tags(&homing), run);
        let (id, tree) = found.ok_or_else(|| refused("is not one of yours; `runs` lists them"))?;
        let root = tree.root().ok_or_else(|| refused("has no records"))?;
        if root.ended.is_some() {
            return Err(refused("has ended: `wait` returns its result, and `tell` continues it"));
        }
        let allowed = self.lock().limits_for(&self.server, Limits::default(), root.limits)?;
        if allowed.cost_micros != root.limits.cost_micros || allowed.tokens != root.limits.tokens {
            return Err(refused("may use more than the remaining budget of this client"));
        }
        let handle = homing.resume(id, Claim::IfGone, Limits::default()).await;
        let handle = handle.map_err(|error| refused(&format!("cannot be resumed: {error}")))?;
        let taken = self.taken_over(&homing, handle, &tree);
        self.lock().list(taken.clone());
        Ok(taken)
    }

    /// Returns the runs of earlier processes of the server that are not listed here, newest first.
    pub(crate) fn earlier_runs(&self) -> Vec<RunRow> {
        match self.server.audience {
            Audience::Many => Vec::new(),
            Audience::One => {
                let homing = self.server.homing();
                let mut rows = earlier_runs::list(&homing, &self.tags(&homing));
                rows.retain(|row| self.find(row.run).is_none());
                rows
            }
        }
    }

    fn taken_over(&self, homing: &Arc<Homing>, handle: RunHandle, tree: &RunTree) -> ClientRun {
        let root = tree.root().expect("a tree that was found has a root");
        let used = root.subtree.usage;
        let value = |cap: Cap| cap.value().unwrap_or(0);
        ClientRun {
            handle,
            task: root.spawned.task.clone(),
            limit: ClientUsage { cost_micros: value(root.limits.cost_micros), tokens: value(root.limits.tokens) },
            before: ClientUsage { cost_micros: used.cost_micros, tokens: used.tokens() },
            reported: Arc::default(),
            _homing: homing.clone(),
        }
    }

    fn tags(&self, homing: &Homing) -> ClientTags {
        ClientTags::new(self.name.get().map_or("", String::as_str), homing, self.server.instance)
    }

    /// Finds a run that this client started, or one below it. All other runs are invisible to it.
    pub(crate) fn find(&self, run: Uuid) -> Option<RunHandle> {
        self.lock().listed.iter().find_map(|started| started.handle.of(run))
    }

    /// Returns the runs that this client started, oldest first.
    pub(crate) fn runs(&self) -> Vec<ClientRun> {
        self.lock().listed.clone()
    }

    /// Returns the runs whose results the client has not received, oldest first: those in progress, and those that have ended
    /// since.
    pub(crate) fn unreported(&self) -> Vec<RunHandle> {
        let listed = self.lock().listed.clone();
        listed.into_iter().filter(|run| !run.reported.load(Ordering::Relaxed)).map(|run| run.handle).collect()
    }

    /// Notes that the client receives these results.
    pub(crate) fn mark_reported(&self, envelopes: &[Envelope]) {
        let runs = self.lock();
        for ended in envelopes.iter().filter(|envelope| envelope.status.is_over()) {
            if let Some(run) = runs.listed.iter().find(|run| run.handle.id() == ended.run) {
                run.reported.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Sends questions of these runs through `route`, until the returned guard is dropped.
    pub(crate) fn route_questions(&self, runs: &[RunHandle], route: QuestionRoute) -> RouteGuard<'_> {
        let mut routes = self.routes();
        routes.push((runs.to_vec(), route.clone()));
        RouteGuard(self, route)
    }

    /// Returns the route of the latest request that waits for this run or for one above it.
    pub(crate) fn question_route(&self, run: Uuid) -> Option<QuestionRoute> {
        let waits = |runs: &[RunHandle]| runs.iter().any(|handle| handle.of(run).is_some());
        self.routes().iter().rev().find(|(runs, _)| waits(runs)).map(|(_, route)| route.clone())
    }

    fn routes(&self) -> MutexGuard<'_, Vec<(Vec<RunHandle>, QuestionRoute)>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the client that agents have changed. Errors of a disconnected client are ignored.
    pub(crate) async fn notify_agents_changed(&self) {
        if let Some(peer) = self.peer() {
            let _ = peer.notify_tool_list_changed().await;
            let _ = peer.notify_resource_list_changed().await;
        }
    }

    /// Cancels the client's runs, and waits at most `grace` for their end.
    pub(crate) async fn end(&self, grace: Duration) {
        let open = self.cancel_open();
        let ends = futures::future::join_all(open.iter().map(RunHandle::wait));
        let _ = tokio::time::timeout(grace, ends).await;
    }

    fn cancel_open(&self) -> Vec<RunHandle> {
        let open =
            self.lock().listed.iter().filter(|run| run.is_open()).map(|run| run.handle.clone()).collect::<Vec<_>>();
        for run in &open {
            run.cancel(cancelled_by());
        }
        open
    }

    fn lock(&self) -> MutexGuard<'_, ClientRuns> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a question route when it is dropped.
pub(crate) struct RouteGuard<'a>(&'a Client, QuestionRoute);

impl Drop for RouteGuard<'_> {
    fn drop(&mut self) {
        self.0.routes().retain(|(_, route)| !route.is(&self.1));
    }
}

/// Cancels the runs of a disconnected client, because no one can access them any more.
impl Drop for Client {
    fn drop(&mut self) {
        self.cancel_open();
    }
}

/// Returns the recorded author of cancellations.
pub(crate) fn cancelled_by() -> CancelledBy {
    CancelledBy::Other("the MCP client".to_owned())
}

impl ClientRun {
    fn is_open(&self) -> bool {
        !self.handle.status().is_over()
    }

    /// Returns what counts against the budget: the limit of an open run, the usage of one that has ended.
    fn charged(&self) -> ClientUsage {
        let used = self.handle.envelope().subtree;
        let used = ClientUsage { cost_micros: used.cost_micros, tokens: used.input + used.output };
        let most = if self.is_open() { self.limit } else { used };
        ClientUsage {
            cost_micros: most.cost_micros.saturating_sub(self.before.cost_micros),
            tokens: most.tokens.saturating_sub(self.before.tokens),
        }
    }
}

impl ClientRuns {
    /// Returns the limits of a new run: the requested ones, within those of its agent and the host and the remaining budget.
    fn limits_for(&self, server: &ServerState, own: Limits, requested: Limits) -> Result<Limits, SpawnRefusal> {
        let budget = server.options.budget;
        let open = self.listed.iter().filter(|run| run.is_open()).count();
        if open >= budget.open {
            return Err(SpawnRefusal(format!(
                "{open} runs are in progress, which is the maximum of this server: wait for one"
            )));
        }
        let mut limits = narrowed(requested, server.options.limits.tighter(own));
        if budget.cost_micros.is_none() && budget.tokens.is_none() {
            return Ok(limits);
        }
        let charged = self.listed.iter().map(ClientRun::charged).fold(self.unlisted, |sum, run| ClientUsage {
            cost_micros: sum.cost_micros.saturating_add(run.cost_micros),
            tokens: sum.tokens.saturating_add(run.tokens),
        });
        if let Some(most) = budget.cost_micros {
            let left = remaining(most, charged.cost_micros, usd)?;
            limits.cost_micros = limits.cost_micros.or(Limits::root().cost_micros).tighter(Cap::At(left));
        }
        if let Some(most) = budget.tokens {
            let left = remaining(most, charged.tokens, |tokens| format!("{tokens} tokens"))?;
            limits.tokens = limits.tokens.tighter(Cap::At(left));
        }
        Ok(limits)
    }

    fn list(&mut self, run: ClientRun) {
        self.listed.push(run);
        self.unlist_oldest();
    }

    /// Removes the oldest ended runs from the list, but keeps their usage.
    fn unlist_oldest(&mut self) {
        while self.listed.len() > MAX_LISTED
            && let Some(oldest) = self.listed.iter().position(|run| !run.is_open())
        {
            let used = self.listed.remove(oldest).charged();
            self.unlisted.cost_micros = self.unlisted.cost_micros.saturating_add(used.cost_micros);
            self.unlisted.tokens = self.unlisted.tokens.saturating_add(used.tokens);
        }
    }
}

fn remaining(most: u64, charged: u64, show: impl Fn(u64) -> String) -> Result<u64, SpawnRefusal> {
    match most.saturating_sub(charged) {
        0 => {
            let (most, charged) = (show(most), show(charged));
            Err(SpawnRefusal(format!(
                "the budget of this client is {most}, and {charged} of it is spent or reserved by runs in progress"
            )))
        }
        left => Ok(left),
    }
}

/// Returns the requested limits within those that the host allows. A limit that was not requested stays a default, because
/// the runtime treats explicit limits differently from defaults.
fn narrowed(requested: Limits, allowed: Limits) -> Limits {
    let ceiling = allowed.or(Limits::root());
    let pick = |requested: Cap, allowed: Cap, ceiling: Cap| match requested {
        Cap::Default => allowed,
        Cap::Unlimited | Cap::At(_) => requested.tighter(ceiling),
    };
    Limits::default()
        .with(Limit::Turns, pick(requested.turns, allowed.turns, ceiling.turns))
        .with(Limit::Depth, pick(requested.depth, allowed.depth, ceiling.depth))
        .with(Limit::Tokens, pick(requested.tokens, allowed.tokens, ceiling.tokens))
        .with(Limit::Cost, pick(requested.cost_micros, allowed.cost_micros, ceiling.cost_micros))
        .with(Limit::ToolCalls, pick(requested.tool_calls, allowed.tool_calls, ceiling.tool_calls))
        .with(Limit::Children, pick(requested.children, allowed.children, ceiling.children))
        .with(Limit::Wall, pick(requested.wall_ms, allowed.wall_ms, ceiling.wall_ms))
        .with(Limit::Work, pick(requested.work_ms, allowed.work_ms, ceiling.work_ms))
        .with(Limit::Output, pick(requested.output, allowed.output, ceiling.output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m14_client_can_lower_limits_but_not_raise_them() {
        let allowed = Limits::default().turns(10);
        let requested = Limits::default().turns(50).tokens(1_000).cost_usd("100").unwrap();
        let limits = narrowed(requested, allowed);
        assert_eq!(
            (limits.turns, limits.tokens, limits.cost_micros),
            (Cap::At(10), Cap::At(1_000), Cap::At(5_000_000))
        );
        assert_eq!(limits.wall_ms, Cap::Default, "a limit that was not requested stays a default");
    }
}
