//! One client and what it started: it reaches these runs and no others, they spend its budget, and they end with it.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use homing::{CancelledBy, Cap, Homing, Limits, Message, RunHandle, Task, usd};
use rmcp::{Peer, RoleServer};
use uuid::Uuid;

use crate::{elicitation::QuestionDesk, server_state::ServerState};

/// Ended runs that a client can still look at; older ones are in the journal.
const KEPT: usize = 1_000;

/// One client.
pub(crate) struct Client {
    pub(crate) served: Arc<ServerState>,
    /// The way to the client, once it has introduced itself.
    peer: OnceLock<Peer<RoleServer>>,
    sent: Mutex<SentOut>,
    /// Requests that wait, and the runs that each waits for.
    desks: Mutex<Vec<(Vec<RunHandle>, QuestionDesk)>>,
}

/// What a client sent out.
#[derive(Default)]
struct SentOut {
    runs: Vec<Sent>,
    /// What runs used that are no longer listed.
    forgotten: Spent,
}

/// A run of a client's.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) handle: RunHandle,
    pub(crate) task: String,
    /// The most it may spend.
    most: Spent,
    /// Its world: agents may have changed since, and its inbox is watched for as long as this lives.
    _homing: Arc<Homing>,
}

#[derive(Clone, Copy, Default)]
struct Spent {
    cost_micros: u64,
    tokens: u64,
}

/// Why nothing was started, in words for the client's model.
pub(crate) struct NotSent(pub(crate) String);

impl Client {
    pub(crate) fn new(served: Arc<ServerState>) -> Self {
        Self { served, peer: OnceLock::new(), sent: Mutex::default(), desks: Mutex::default() }
    }

    /// Remembers the way to the client.
    pub(crate) fn greet(&self, peer: Peer<RoleServer>) {
        let _ = self.peer.set(peer);
    }

    /// The way to the client; `None` until it has introduced itself.
    pub(crate) fn peer(&self) -> Option<&Peer<RoleServer>> {
        self.peer.get()
    }

    /// Starts a task within the client's budget. What the budget has left is looked at and taken under one lock.
    pub(crate) fn send_out(
        &self,
        agent: &str,
        text: &str,
        asked: Limits,
        history: Vec<Message>,
    ) -> Result<Sent, NotSent> {
        let homing = self.served.homing();
        let mut sent = self.lock();
        let own = homing.registry().get(agent).map(|it| it.limits).unwrap_or_default();
        let limits = sent.allot(&self.served, own, asked)?;
        let most =
            Spent { cost_micros: limits.cost_micros.value().unwrap_or(0), tokens: limits.tokens.value().unwrap_or(0) };
        let mut task = Task::new(agent, text).limits(limits).tag("via", "mcp");
        task.history = history;
        task.model.clone_from(&self.served.options.model);
        task.account.clone_from(&self.served.options.account);
        let handle = homing.spawn(task).map_err(|error| NotSent(error.to_string()))?;
        let run = Sent { handle, task: text.to_owned(), most, _homing: homing };
        sent.runs.push(run.clone());
        sent.forget();
        Ok(run)
    }

    /// A run that this client started, or one below it. Whatever else exists is as if it did not.
    pub(crate) fn find(&self, run: Uuid) -> Option<RunHandle> {
        self.lock().runs.iter().find_map(|sent| sent.handle.of(run))
    }

    /// What this client started, oldest first.
    pub(crate) fn runs(&self) -> Vec<Sent> {
        self.lock().runs.clone()
    }

    /// Takes questions of these runs to this desk for as long as the guard lives.
    pub(crate) fn open_desk(&self, runs: &[RunHandle], desk: QuestionDesk) -> OpenDesk<'_> {
        let mut desks = self.desks();
        desks.push((runs.to_vec(), desk.clone()));
        OpenDesk(self, desk)
    }

    /// The desk of the latest request that waits for this run, or for one above it.
    pub(crate) fn desk(&self, run: Uuid) -> Option<QuestionDesk> {
        let waits = |runs: &[RunHandle]| runs.iter().any(|it| it.of(run).is_some());
        self.desks().iter().rev().find(|(runs, _)| waits(runs)).map(|(_, desk)| desk.clone())
    }

    fn desks(&self) -> MutexGuard<'_, Vec<(Vec<RunHandle>, QuestionDesk)>> {
        self.desks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the client that agents have changed; one that went away does not mind.
    pub(crate) async fn agents_changed(&self) {
        if let Some(peer) = self.peer() {
            let _ = peer.notify_tool_list_changed().await;
            let _ = peer.notify_resource_list_changed().await;
        }
    }

    /// Ends everything that it started, and waits for that a little.
    pub(crate) async fn end(&self, grace: Duration) {
        let open = self.cancel_open();
        let ends = futures::future::join_all(open.iter().map(RunHandle::wait));
        let _ = tokio::time::timeout(grace, ends).await;
    }

    fn cancel_open(&self) -> Vec<RunHandle> {
        let open = self.lock().runs.iter().filter(|it| it.is_open()).map(|it| it.handle.clone()).collect::<Vec<_>>();
        for run in &open {
            run.cancel(by());
        }
        open
    }

    fn lock(&self) -> MutexGuard<'_, SentOut> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a desk when it goes.
pub(crate) struct OpenDesk<'a>(&'a Client, QuestionDesk);

impl Drop for OpenDesk<'_> {
    fn drop(&mut self) {
        self.0.desks().retain(|(_, desk)| !desk.is(&self.1));
    }
}

/// Nobody can reach the runs of a client that is gone, so they are not left to spend.
impl Drop for Client {
    fn drop(&mut self) {
        self.cancel_open();
    }
}

/// Who stops runs here.
pub(crate) fn by() -> CancelledBy {
    CancelledBy::Other("the MCP client".to_owned())
}

impl Sent {
    fn is_open(&self) -> bool {
        !self.handle.status().is_over()
    }

    fn counts(&self) -> Spent {
        match self.is_open() {
            true => self.most,
            false => {
                let used = self.handle.envelope().subtree;
                Spent { cost_micros: used.cost_micros, tokens: used.input + used.output }
            }
        }
    }
}

impl SentOut {
    /// The limits of a new run: what was asked for, within what its agent and the host allow and what the client has left.
    fn allot(&self, served: &ServerState, own: Limits, asked: Limits) -> Result<Limits, NotSent> {
        let budget = served.options.budget;
        let open = self.runs.iter().filter(|it| it.is_open()).count();
        if open >= budget.open {
            return Err(NotSent(format!(
                "{open} runs are under way, which is the most this server allows: wait for one"
            )));
        }
        let mut limits = narrowed(asked, served.options.limits.tighter(own));
        if budget.cost_micros.is_none() && budget.tokens.is_none() {
            return Ok(limits);
        }
        let spent = self.runs.iter().map(Sent::counts).fold(self.forgotten, |sum, it| Spent {
            cost_micros: sum.cost_micros.saturating_add(it.cost_micros),
            tokens: sum.tokens.saturating_add(it.tokens),
        });
        if let Some(most) = budget.cost_micros {
            let left = left(most, spent.cost_micros, usd)?;
            limits.cost_micros = limits.cost_micros.or(Limits::root().cost_micros).tighter(Cap::At(left));
        }
        if let Some(most) = budget.tokens {
            let left = left(most, spent.tokens, |it| format!("{it} tokens"))?;
            limits.tokens = limits.tokens.tighter(Cap::At(left));
        }
        Ok(limits)
    }

    /// Forgets the oldest ended runs, but not what they used.
    fn forget(&mut self) {
        while self.runs.len() > KEPT
            && let Some(oldest) = self.runs.iter().position(|it| !it.is_open())
        {
            let used = self.runs.remove(oldest).counts();
            self.forgotten.cost_micros = self.forgotten.cost_micros.saturating_add(used.cost_micros);
            self.forgotten.tokens = self.forgotten.tokens.saturating_add(used.tokens);
        }
    }
}

fn left(most: u64, spent: u64, show: impl Fn(u64) -> String) -> Result<u64, NotSent> {
    match most.saturating_sub(spent) {
        0 => {
            let (most, spent) = (show(most), show(spent));
            Err(NotSent(format!(
                "the budget of this client is {most}, and {spent} of it are spent or held by runs under way"
            )))
        }
        left => Ok(left),
    }
}

/// What was asked for, within what the host allows. Where nothing was asked for, nothing is made explicit that is not: the
/// runtime treats a limit that somebody chose differently from a default.
fn narrowed(asked: Limits, allowed: Limits) -> Limits {
    let ceiling = allowed.or(Limits::root());
    let pick = |asked: Cap, allowed: Cap, ceiling: Cap| match asked {
        Cap::Default => allowed,
        Cap::Unlimited | Cap::At(_) => asked.tighter(ceiling),
    };
    Limits {
        turns: pick(asked.turns, allowed.turns, ceiling.turns),
        depth: pick(asked.depth, allowed.depth, ceiling.depth),
        tokens: pick(asked.tokens, allowed.tokens, ceiling.tokens),
        cost_micros: pick(asked.cost_micros, allowed.cost_micros, ceiling.cost_micros),
        tool_calls: pick(asked.tool_calls, allowed.tool_calls, ceiling.tool_calls),
        children: pick(asked.children, allowed.children, ceiling.children),
        wall_ms: pick(asked.wall_ms, allowed.wall_ms, ceiling.wall_ms),
        work_ms: pick(asked.work_ms, allowed.work_ms, ceiling.work_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m14_a_client_can_ask_for_less_but_never_for_more() {
        let allowed = Limits::default().turns(10);
        let asked = Limits::default().turns(50).tokens(1_000).cost_usd("100").unwrap();
        let limits = narrowed(asked, allowed);
        assert_eq!(
            (limits.turns, limits.tokens, limits.cost_micros),
            (Cap::At(10), Cap::At(1_000), Cap::At(5_000_000))
        );
        assert_eq!(limits.wall_ms, Cap::Default, "what nobody chose stays a default");
    }
}
