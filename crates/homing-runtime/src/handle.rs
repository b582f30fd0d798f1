//! The host's view: a handle to one run, and operations on all runs of a runtime.

use std::{
    fmt,
    future::IntoFuture,
    sync::{Arc, PoisonError},
    time::Duration,
};

use homing_core::{
    BoxFuture,
    envelope::{Envelope, EnvelopeUsage, Status, status},
    fact::CancelledBy,
    message::Message,
    tree::RunTree,
};
use uuid::Uuid;

use crate::{
    event::{Events, Pieces},
    live_tree::LiveTree,
    runtime::{Runtime, SpawnError},
    spawn::own_policy,
    task::Task,
};

/// A handle to a run. Dropping it does not stop the run.
///
/// # Examples
///
/// ```
/// # use homing_runtime as homing;
/// use homing::RunHandle;
///
/// async fn report(run: RunHandle) -> String {
///     let result = run.wait().await;
///     format!("{}: {}", result.status.name(), result.output)
/// }
/// ```
#[derive(Clone)]
pub struct RunHandle {
    runtime: Runtime,
    tree: Arc<LiveTree>,
    run: Uuid,
}

impl RunHandle {
    pub(crate) fn new(runtime: Runtime, tree: Arc<LiveTree>, run: Uuid) -> Self {
        Self { runtime, tree, run }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn live_tree(&self) -> &Arc<LiveTree> {
        &self.tree
    }

    /// The id of the run.
    pub fn id(&self) -> Uuid {
        self.run
    }

    /// The id of its tree.
    pub fn tree_id(&self) -> Uuid {
        self.tree.id
    }

    /// Waits for the end of the run and returns its result. A failed run is a result, too.
    pub async fn wait(&self) -> Envelope {
        if let Some(live_run) = self.tree.live_run(self.run) {
            live_run.over.cancelled().await;
        }
        self.envelope()
    }

    /// The current result, including that of the children.
    #[allow(clippy::missing_panics_doc, reason = "a handle is made for a run that exists, and trees never lose runs")]
    pub fn envelope(&self) -> Envelope {
        self.tree.envelope(self.run).expect("a handle is made for a run that exists")
    }

    /// The current status.
    pub fn status(&self) -> Status {
        self.tree.read_run(self.run, status)
    }

    /// A copy of the whole tree.
    pub fn tree(&self) -> RunTree {
        self.tree.read(RunTree::clone)
    }

    /// Waits for the end of the run and parses its structured answer as `T`.
    ///
    /// # Errors
    ///
    /// Fails if the run gave no structured answer or `T` cannot be parsed from it.
    pub async fn wait_as<T: serde::de::DeserializeOwned>(&self) -> Result<T, NoData> {
        let envelope = self.wait().await;
        let Some(data) = envelope.data.clone() else { return Err(NoData::None(Box::new(envelope))) };
        serde_json::from_value(Arc::unwrap_or_clone(data))
            .map_err(|error| NoData::Misfit(error.to_string(), Box::new(envelope)))
    }

    /// Subscribes to the events of the run and its descendants. All facts are returned, from the beginning of the tree;
    /// transient notices from now on.
    pub fn events(&self) -> Events {
        self.events_from(0)
    }

    /// Subscribes like [`Self::events`], from the fact at position `from` on, such as the one after the last fact that an
    /// earlier subscription returned.
    pub fn events_from(&self, from: u64) -> Events {
        self.tree.subscribe(self.run, from, Pieces::Included)
    }

    /// Subscribes like [`Self::events_from`], without pieces of replies and of reasoning ([`TransientKind::Text`] and
    /// [`TransientKind::Thinking`]). While no other subscriber reads them, the run does not spend time on them.
    ///
    /// [`TransientKind::Text`]: crate::event::TransientKind::Text
    /// [`TransientKind::Thinking`]: crate::event::TransientKind::Thinking
    pub fn events_without_text(&self, from: u64) -> Events {
        self.tree.subscribe(self.run, from, Pieces::LeftOut)
    }

    /// The position of the tree's next fact.
    pub fn position(&self) -> u64 {
        self.tree.read(RunTree::next_seq)
    }

    /// Cancels the run; returns `false` if it has ended.
    pub fn cancel(&self, by: CancelledBy) -> bool {
        self.runtime.0.cancel(&self.tree, self.run, by)
    }

    /// Sends a message to the run, or, if it has ended, to a new run that continues its conversation
    /// ([`Task::continuing`]). Returns the handle of the run that gets the message: this one, or the new one.
    ///
    /// # Errors
    ///
    /// Fails like [`Runtime::spawn`] if the run has ended and a new one cannot start.
    pub fn tell(&self, message: &str) -> Result<Self, SpawnError> {
        if self.tell_if_open(message) {
            return Ok(self.clone());
        }
        self.runtime.spawn(Task::continuing(self, message))
    }

    /// Sends a message to the run; returns `false`, and does nothing, if it has ended.
    pub fn tell_if_open(&self, message: &str) -> bool {
        self.runtime.0.send_message(&self.tree, self.run, None, message)
    }

    /// A handle to another run of the same tree.
    pub fn of(&self, run: Uuid) -> Option<Self> {
        let exists = self.tree.read(|tree| tree.get(run).is_some());
        exists.then(|| Self { runtime: self.runtime.clone(), tree: self.tree.clone(), run })
    }

    /// A task with the agent, folder, context, account, authority and messages of the run, and its model if the agent itself
    /// would choose another.
    pub(crate) fn continuation(&self, text: String) -> Task {
        let parts = self.runtime.parts();
        let (spawned, history) = self.tree.read_run(self.run, |run| {
            let messages: Vec<Message> = run.messages().iter().map(|entry| entry.message.clone()).collect();
            (run.spawned.clone(), messages)
        });
        let by_agent = parts.models.resolve(&spawned.agent.model.choice, None);
        let is_by_agent = by_agent.is_ok_and(|resolved| resolved.names == spawned.models);
        let mut task = Task::new(&spawned.agent.name, text).workdir(&spawned.workdir).history(history);
        task.model = spawned.models.first().filter(|_| !is_by_agent).cloned();
        task.policy = own_policy(&self.runtime.0, &spawned);
        (task.context, task.account) = (spawned.context.clone(), spawned.account.clone());
        task
    }

    /// The transcript of the run, one line per entry.
    pub fn log(&self) -> Vec<String> {
        self.tree.read_run(self.run, crate::transcript_lines::lines)
    }
}

impl IntoFuture for RunHandle {
    type Output = Envelope;
    type IntoFuture = BoxFuture<'static, Envelope>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.wait().await })
    }
}

impl<'a> IntoFuture for &'a RunHandle {
    type Output = Envelope;
    type IntoFuture = BoxFuture<'a, Envelope>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.wait())
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle").field("run", &self.run).field("status", &self.status()).finish_non_exhaustive()
    }
}

/// An error of [`RunHandle::wait_as`]. Both variants hold the run's envelope.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoData {
    /// The run gave no structured answer.
    #[error("the run ended {} without a structured answer", .0.status.name())]
    None(Box<Envelope>),
    /// The answer does not match the type.
    #[error("the structured answer does not match the type: {0}")]
    Misfit(String, Box<Envelope>),
}

/// Totals over all runs in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Number of runs per status, in the order of [`Status`].
    pub by_status: Vec<(Status, usize)>,
    /// Total usage.
    pub total: EnvelopeUsage,
}

impl Runtime {
    /// Spawns several runs.
    pub fn spawn_many(&self, tasks: impl IntoIterator<Item = Task>) -> Vec<Result<RunHandle, SpawnError>> {
        tasks.into_iter().map(|task| self.spawn(task)).collect()
    }

    /// Returns the run with this id, if it is in memory.
    pub fn get(&self, run: Uuid) -> Option<RunHandle> {
        let tree = self.0.trees().into_iter().find(|tree| tree.read(|fold| fold.get(run).is_some()))?;
        Some(RunHandle::new(self.clone(), tree, run))
    }

    /// Returns the roots in memory, oldest first.
    pub fn roots(&self) -> Vec<RunHandle> {
        let mut trees = self.0.trees();
        trees.sort_by_key(|tree| tree.id);
        trees.into_iter().map(|tree| RunHandle::new(self.clone(), tree.clone(), tree.id)).collect()
    }

    /// Returns all runs with this status.
    pub fn list(&self, wanted: Status) -> Vec<RunHandle> {
        let matching = |tree: Arc<LiveTree>| {
            let ids: Vec<Uuid> =
                tree.read(|fold| fold.runs().iter().filter(|run| status(run) == wanted).map(|run| run.id).collect());
            ids.into_iter().map(move |id| (tree.clone(), id)).collect::<Vec<_>>()
        };
        let all = self.0.trees().into_iter().flat_map(matching);
        all.map(|(tree, id)| RunHandle::new(self.clone(), tree, id)).collect()
    }

    /// Waits for all of these runs.
    pub async fn wait_all(&self, runs: &[RunHandle]) -> Vec<Envelope> {
        futures_util::future::join_all(runs.iter().map(RunHandle::wait)).await
    }

    /// Waits for the first of these runs to end, and returns its index and result; `None` if there are none.
    pub async fn wait_any(&self, runs: &[RunHandle]) -> Option<(usize, Envelope)> {
        if runs.is_empty() {
            return None;
        }
        let (envelope, at, _) = futures_util::future::select_all(runs.iter().map(|run| Box::pin(run.wait()))).await;
        Some((at, envelope))
    }

    /// Waits until `wanted` of these runs are done, then cancels the rest. Returns fewer results if fewer runs succeed.
    pub async fn quorum(&self, runs: &[RunHandle], wanted: usize) -> Vec<Envelope> {
        use futures_util::StreamExt;
        let mut ends: futures_util::stream::FuturesUnordered<_> = runs.iter().map(RunHandle::wait).collect();
        let mut done = Vec::new();
        while done.len() < wanted
            && let Some(envelope) = ends.next().await
        {
            if envelope.status == Status::Done {
                done.push(envelope);
            }
        }
        for run in runs {
            run.cancel(CancelledBy::Host);
        }
        done
    }

    /// Returns the first of these runs that is done, and cancels the rest.
    pub async fn first_of(&self, runs: &[RunHandle]) -> Option<Envelope> {
        self.quorum(runs, 1).await.pop()
    }

    /// Cancels every root, and returns how many were still running.
    pub fn cancel_all(&self, by: &CancelledBy) -> usize {
        self.0.trees().iter().filter(|tree| self.0.cancel(tree, tree.id, by.clone())).count()
    }

    /// Calls `callback` with the result of every run that ends from now on, before those that wait for the run are woken. It must not
    /// block.
    pub fn on_complete(&self, callback: impl Fn(&Envelope) + Send + Sync + 'static) {
        self.0.on_complete.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(callback));
    }

    /// Totals over all runs in memory.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics::default();
        for tree in self.0.trees() {
            tree.read(|tree| {
                for run in tree.runs() {
                    let status = status(run);
                    match statistics.by_status.iter_mut().find(|(known, _)| *known == status) {
                        Some((_, count)) => *count += 1,
                        None => statistics.by_status.push((status, 1)),
                    }
                }
                if let Some(root) = tree.root() {
                    statistics.total.add(&Envelope::new(tree, root).subtree);
                }
            });
        }
        statistics.by_status.sort();
        statistics
    }

    /// Cancels every run and returns the results; runs that have not ended after `grace` are abandoned.
    pub async fn shutdown(&self, grace: Duration) -> Vec<Envelope> {
        let open: Vec<RunHandle> = self
            .0
            .trees()
            .into_iter()
            .filter(|tree| tree.read(|fold| fold.root().is_some_and(|root| root.ended.is_none())))
            .map(|tree| RunHandle::new(self.clone(), tree.clone(), tree.id))
            .collect();
        for run in &open {
            run.cancel(CancelledBy::Host);
        }
        let _ = tokio::time::timeout(grace, futures_util::future::join_all(open.iter().map(RunHandle::wait))).await;
        open.iter().map(RunHandle::envelope).collect()
    }
}

/// Formats several results as one report: answers, failures and cost.
pub fn aggregate(results: &[Envelope]) -> String {
    let mut total = EnvelopeUsage::default();
    let mut text = String::new();
    for result in results {
        total.add(&result.subtree);
        let note = result.error.as_ref().map(|error| format!(": {}", error.message)).unwrap_or_default();
        text.push_str(&format!("## {} ({}{note})\n{}\n\n", result.agent, result.status.name(), result.output.trim()));
    }
    let done = results.iter().filter(|result| result.status == Status::Done).count();
    let cost = homing_core::limits::usd(total.cost_micros);
    text.push_str(&format!("{done} of {} done · {} tokens · {cost}", results.len(), total.input + total.output));
    text
}
