//! `Runtime`: owns the live run trees; spawns, plans, messages and cancels runs.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use homing_core::{
    authority::Authority,
    definition::{AgentDefinition, Isolation},
    envelope::Envelope,
    fact::{CancelledBy, Fact, FailureKind, Outcome, Record, Spawned},
    limits::{Cap, Limits},
    message::Message,
    place::Place,
    redaction::Secrets,
    tool::{CallKey, Tool, ToolSpec},
    tree::RunTree,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    agent_loop::{active_run::ActiveRun, request::too_small_for_first_call, run_driver::RunDriver},
    agent_memory,
    handle::RunHandle,
    inbox,
    journal::{Begun, Commit},
    ledger::record_child,
    live_run::LiveRun,
    live_tree::LiveTree,
    live_trees::LiveTrees,
    placement::SegmentRequest,
    scheduler::{fair_semaphore::FairSemaphore, rate_limit::RateLimiters},
    segment::{drive_child, give_up, is_driven_elsewhere, key},
    segment_requests::{pass_on, told_elsewhere},
    spawn::abandon_worktree,
    spawn_cache::SpawnCache,
    task::Task,
};
pub use crate::{
    host_parts::{PermissionHandler, RuntimeParts},
    spawn_error::SpawnError,
};

/// Spawns runs and drives them to their ends. Cheap to clone; all clones share the same runs.
///
/// # Examples
///
/// ```
/// # use std::sync::Arc;
/// # use homing_core::{definition::AgentDefinition, model::SingleModel, registry::Registry, scripted_model::{FunctionModel, last_words, say}};
/// # use homing_runtime::{RuntimeParts, journal::MemoryJournal};
/// # mod homing { pub use homing_runtime::{Runtime, Task, aggregate}; }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut registry = Registry::default();
/// # registry.register(AgentDefinition::new("echo", "Repeats", "Repeat."));
/// # let model = FunctionModel::new("demo/echo", |request| Ok(say(last_words(&request))));
/// # let runtime = Runtime::new(RuntimeParts::new(registry, Arc::new(SingleModel(Arc::new(model))), MemoryJournal::new()));
/// use homing::{Runtime, Task, aggregate};
///
/// // let runtime = homing.runtime();
/// let tasks = ["one", "two", "three"].map(|text| Task::new("echo", text));
/// let runs = runtime.spawn_many(tasks).into_iter().collect::<Result<Vec<_>, _>>()?;
/// let results = runtime.wait_all(&runs).await;
/// assert_eq!(results[2].output, "three");
/// assert!(aggregate(&results).contains("3 of 3 done"));
/// assert_eq!(runtime.statistics().by_status.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Runtime(pub(crate) Arc<Inner>);

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("runs", &self.roots().len()).finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) parts: RuntimeParts,
    /// The policy, as the authority that roots get theirs from.
    pub(crate) policy: Authority,
    pub(crate) root_cache: SpawnCache,
    /// Removed from all facts and notices.
    pub(crate) secrets: Secrets,
    /// Limits the runs that work at once.
    pub(crate) run_slots: Arc<FairSemaphore>,
    pub(crate) rate_limiters: RateLimiters,
    trees: Mutex<LiveTrees<Arc<LiveTree>>>,
    pub(crate) on_complete: Mutex<Vec<OnComplete>>,
    /// Set once the inbox is watched, which begins with the first tree.
    inbox_watch: OnceLock<()>,
}

/// Called with every run that has ended.
type OnComplete = Arc<dyn Fn(&Envelope) + Send + Sync>;

/// A child to spawn.
pub(crate) struct SpawnOrder {
    pub(crate) agent: Arc<AgentDefinition>,
    pub(crate) text: String,
    pub(crate) limits: Limits,
    pub(crate) call: Option<CallKey>,
    pub(crate) continues: Option<(Uuid, Vec<Message>)>,
    pub(crate) background: bool,
    pub(crate) schema: Option<Value>,
    pub(crate) context: BTreeMap<String, Value>,
    pub(crate) tags: BTreeMap<String, String>,
    /// Milliseconds before the child's first step.
    pub(crate) delay_ms: u64,
}

/// A root that is ready to be recorded and driven.
struct NewRoot {
    tree: Arc<LiveTree>,
    live_run: Arc<LiveRun>,
    first: Arc<Record>,
}

/// The result of a submission.
#[derive(Debug)]
pub enum Submission {
    /// A new run was started.
    New(RunHandle),
    /// An earlier tree has the same key and task.
    Earlier(Uuid),
}

impl Runtime {
    /// Creates a runtime without runs.
    pub fn new(parts: RuntimeParts) -> Self {
        let run_slots = FairSemaphore::new(parts.config.max_runs.max(1));
        let rate_limiters = RateLimiters::new(parts.config.max_asks.max(1));
        let inner = Arc::new_cyclic(|inner: &std::sync::Weak<Inner>| {
            let inner = inner.clone();
            let on_fact = parts.on_fact.clone();
            parts.journal.on_durable(Arc::new(move |record| {
                if let Some(on_fact) = &on_fact {
                    on_fact(record);
                }
                if let Some(tree) = inner.upgrade().and_then(|inner| inner.tree(record.tree)) {
                    tree.publish(record);
                }
            }));
            let secrets = parts.config.secrets.and(parts.models.secrets());
            Inner {
                policy: Authority::of_policy(parts.policy.clone()),
                root_cache: SpawnCache::default(),
                parts,
                secrets,
                run_slots,
                rate_limiters,
                trees: Mutex::default(),
                on_complete: Mutex::default(),
                inbox_watch: OnceLock::new(),
            }
        });
        Self(inner)
    }

    /// The parts that the host supplied.
    pub fn parts(&self) -> &RuntimeParts {
        &self.0.parts
    }

    /// Spawns a run and returns its handle at once.
    ///
    /// # Errors
    ///
    /// Fails if the agent is unknown, the task is empty or lacks a parameter, no model is available, a limit leaves nothing to spend,
    /// or the model has no price and cost is limited. What fails later, such as the journal, is the result of the run.
    pub fn spawn(&self, task: Task) -> Result<RunHandle, SpawnError> {
        let root = self.0.new_root(task, None)?;
        let inner = self.0.clone();
        let handle = RunHandle::new(self.clone(), root.tree.clone(), root.live_run.run);
        tokio::spawn(async move {
            let (tree, live_run, shared) = (root.tree.clone(), root.live_run.clone(), root.first.clone());
            let (first, refused) = match inner.isolate(root).await {
                Ok(isolated) => (isolated.first, None),
                Err(error) => (shared, Some(error)),
            };
            // Start hooks act, so they wait for the first record. Without any, the first model call waits for its own record, which is
            // written after the first or with it.
            if refused.is_none() && inner.parts.hooks.is_none() && inner.parts.journal.begin_ahead(&first) {
                return inner.drive(tree, live_run);
            }
            let begun = inner.parts.journal.begin(first).await.map_err(SpawnError::from);
            match refused.map_or(begun, Err) {
                // Only a task with a key has an earlier tree, and this one has none.
                Ok(Begun::New | Begun::Earlier(_)) => inner.drive(tree, live_run),
                Err(error) => inner.fail_to_begin(&tree, &live_run, &error),
            }
        });
        Ok(handle)
    }

    /// Spawns a run once its task is durable, or returns the earlier tree that was submitted with this key.
    ///
    /// # Errors
    ///
    /// Fails like [`Runtime::spawn`], if the key was used for another task, or if the journal cannot be written.
    pub async fn submit(&self, key: impl Into<String>, task: Task) -> Result<Submission, SpawnError> {
        let root = self.0.new_root(task, Some(key.into()))?;
        let (tree, live_run) = (root.tree.clone(), root.live_run.clone());
        let first = match self.0.isolate(root).await {
            Ok(root) => root.first,
            Err(error) => {
                self.0.lock_trees().remove(tree.id, tree.epoch);
                return Err(error);
            }
        };
        match self.0.parts.journal.begin(first).await {
            Ok(Begun::New) => {
                let handle = RunHandle::new(self.clone(), tree.clone(), live_run.run);
                self.0.drive(tree, live_run);
                Ok(Submission::New(handle))
            }
            Ok(Begun::Earlier(earlier)) => {
                abandon_worktree(&self.0.parts, &tree, live_run.run).await;
                self.0.lock_trees().remove(tree.id, tree.epoch);
                Ok(Submission::Earlier(earlier))
            }
            Err(error) => {
                self.0.lock_trees().remove(tree.id, tree.epoch);
                Err(error.into())
            }
        }
    }

    /// Plans a task without starting it: returns its first fact and the tools that its requests carry. The warnings say what
    /// they leave out, and what the first model call may cost if the limits are too small for it.
    ///
    /// # Errors
    ///
    /// Fails like [`Runtime::spawn`].
    pub fn plan(&self, task: Task) -> Result<(Spawned, Vec<ToolSpec>), SpawnError> {
        let mut spawned = self.0.root_spawned(&task)?;
        let may_delegate = !matches!(spawned.limits.depth, Cap::At(0));
        let agent_tools = self.0.agent_tools(&spawned.agent, &[]);
        let tools = self.0.run_tools(&SpawnCache::default(), &spawned, may_delegate, &agent_tools);
        spawned.warnings.extend(tools.notes.iter().cloned());
        let model = spawned.models.first().and_then(|name| self.0.parts.models.get(name).ok());
        let too_small =
            model.and_then(|model| too_small_for_first_call(&spawned, &tools, model.card(), &self.0.parts.config));
        spawned.warnings.extend(too_small);
        Ok((spawned, tools.toolbox.specs.clone()))
    }
}

impl Inner {
    /// Creates the in-memory form of a tree.
    pub(crate) fn live_tree(&self, id: Uuid, epoch: u32, fold: RunTree) -> Arc<LiveTree> {
        let (journal, clock) = (self.parts.journal.clone(), self.parts.sources.clock.clone());
        LiveTree::new(id, epoch, fold, journal, clock, self.secrets.clone(), None)
    }

    fn new_root(self: &Arc<Self>, task: Task, key: Option<String>) -> Result<NewRoot, SpawnError> {
        let spawned = Spawned { key, ..self.root_spawned(&task)? };
        agent_memory::prepare(&self.parts, &spawned.agent)?;
        let id = self.parts.sources.ids.fresh_id();
        let tree = self.live_tree(id, 1, RunTree::default());
        let place = Place::root();
        let first = tree.next_record(&RunTree::default(), id, place.clone(), Fact::Spawned(Arc::new(spawned)));
        tree.apply_first(&first);
        let live_run = LiveRun::new(id, place, CancellationToken::new());
        tree.add_live_run(live_run.clone());
        self.add_tree(tree.clone());
        Ok(NewRoot { tree, live_run, first })
    }

    /// Gives a root its own worktree, if its agent asks for one. Nothing is recorded before, because the first fact contains the
    /// folder.
    async fn isolate(&self, root: NewRoot) -> Result<NewRoot, SpawnError> {
        let Fact::Spawned(spawned) = &root.first.fact else { return Ok(root) };
        if spawned.agent.execution.isolation != Isolation::Worktree {
            return Ok(root);
        }
        let mut spawned = Spawned::clone(spawned);
        self.enter_worktree(root.live_run.run, &mut spawned).await?;
        let spawned = Arc::new(spawned);
        root.tree.replace_root(spawned.clone());
        let first = Arc::new(Record { fact: Fact::Spawned(spawned), ..Record::clone(&root.first) });
        Ok(NewRoot { first, ..root })
    }

    /// Spawns a child of a live run.
    pub(crate) async fn spawn_child(
        self: &Arc<Self>,
        tree: &Arc<LiveTree>,
        parent: Uuid,
        order: SpawnOrder,
    ) -> Result<(Uuid, Commit), SpawnError> {
        let id = self.parts.sources.ids.fresh_id();
        let mut spawned = self.new_child(tree, parent, order)?;
        agent_memory::prepare(&self.parts, &spawned.agent)?;
        if spawned.agent.execution.isolation == Isolation::Worktree {
            self.enter_worktree(id, &mut spawned).await?;
        }
        let is_placed = tree.segment.as_ref().is_some_and(|segment| segment.places(&spawned));
        spawned.placed = is_placed;
        let (place, commit) = record_child(tree, parent, id, &Arc::new(spawned)).await?;
        let stop = tree.live_run(parent).map_or_else(CancellationToken::new, |parent| parent.stop.child_token());
        let live_run = LiveRun::new(id, place, stop);
        tree.add_live_run(live_run.clone());
        drive_child(self, tree, live_run, is_placed);
        Ok((id, commit))
    }

    /// A tool of the host.
    pub(crate) fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.parts.tools.iter().find(|tool| tool.spec().name == name).cloned()
    }

    /// Continues an ended run by a new child of `parent` that starts with its messages.
    pub(crate) async fn continue_run(
        self: &Arc<Self>,
        tree: &Arc<LiveTree>,
        parent: Uuid,
        run: Uuid,
        message: &str,
        call: CallKey,
    ) -> Result<Uuid, SpawnError> {
        let (agent, history) = tree.read_run(run, |run| {
            let history = run.messages().iter().map(|entry| entry.message.clone()).collect::<Vec<_>>();
            (run.spawned.agent.name.clone(), history)
        });
        let order = SpawnOrder {
            agent: self.parts.registry.get(&agent)?.clone(),
            text: message.to_owned(),
            limits: Limits::default(),
            call: Some(call),
            continues: Some((run, history)),
            background: false,
            schema: None,
            context: BTreeMap::new(),
            tags: BTreeMap::new(),
            delay_ms: 0,
        };
        Ok(self.spawn_child(tree, parent, order).await?.0)
    }

    /// Sends a message to a run; returns `false` if it has ended.
    pub(crate) fn send_message(&self, tree: &LiveTree, run: Uuid, from: Option<Uuid>, message: &str) -> bool {
        if let Some(sent) = told_elsewhere(tree, run, from, message) {
            return sent;
        }
        let sent = tree.record_if(run, |fold| match fold.get(run) {
            Some(open) if open.ended.is_none() => Ok(Fact::Told { from, message: message.to_owned() }),
            Some(_) | None => Err(()),
        });
        if let Some(live_run) = tree.live_run(run) {
            live_run.wake.notify_one();
        }
        sent.is_ok()
    }

    /// Cancels a run; returns `false` if it has ended or is already stopping.
    pub(crate) fn cancel(&self, tree: &LiveTree, run: Uuid, by: CancelledBy) -> bool {
        if is_driven_elsewhere(tree, run) {
            return pass_on(tree, SegmentRequest::Cancel { run, by });
        }
        let cancelled = tree.record_if(run, |fold| match fold.get(run) {
            Some(open) if open.ended.is_none() && open.halted().is_none() => Ok(Fact::Halted { by }),
            Some(_) | None => Err(()),
        });
        if let Some(live_run) = tree.live_run(run) {
            live_run.stop.cancel();
        }
        cancelled.is_ok()
    }

    /// Starts driving a run.
    pub(crate) fn drive(self: &Arc<Self>, tree: Arc<LiveTree>, live_run: Arc<LiveRun>) {
        let abandoned = tree.abandoned.clone();
        let driver = RunDriver::new(ActiveRun { runtime: self.clone(), tree, live_run });
        // Boxed, because a task moves its future several times before it runs.
        tokio::spawn(abandoned.run_until_cancelled_owned(Box::pin(driver.run_to_end())));
    }

    /// Ends a root whose first record could not be written.
    fn fail_to_begin(&self, tree: &Arc<LiveTree>, live_run: &LiveRun, error: &SpawnError) {
        let kind = if matches!(error, SpawnError::Journal(_)) { FailureKind::Journal } else { FailureKind::Config };
        let retryable = kind == FailureKind::Journal;
        let outcome = Outcome::Failed { kind, message: error.to_string(), retryable };
        let ended = tree.read_run(live_run.run, |run| run.ending(outcome));
        drop(tree.record(live_run.run, Fact::Ended(Arc::new(ended))));
        live_run.over.cancel();
        tree.remove_live_run(live_run.run);
        self.tree_ended(tree);
    }

    /// Calls the completion callbacks with the result of a run. Their panics do not concern the run.
    pub(crate) fn run_ended(&self, tree: &LiveTree, run: Uuid) {
        let callbacks = self.on_complete.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if callbacks.is_empty() {
            return;
        }
        if let Some(envelope) = tree.envelope(run) {
            for callback in &callbacks {
                let _ = catch_unwind(AssertUnwindSafe(|| callback(&envelope)));
            }
        }
    }

    /// Gives up the ownership of an ended tree, and drops the oldest ended trees from memory.
    pub(crate) fn tree_ended(&self, tree: &LiveTree) {
        give_up(self, tree);
        tree.spawn_cache.clear();
        self.lock_trees().end(key(tree), tree.epoch);
    }

    pub(crate) fn add_tree(self: &Arc<Self>, tree: Arc<LiveTree>) {
        self.lock_trees().add(key(&tree), tree.epoch, tree.clone());
        self.inbox_watch.get_or_init(|| {
            if self.parts.journal.has_inbox() {
                tokio::spawn(inbox::watch(Arc::downgrade(self)));
            }
        });
    }

    pub(crate) fn tree(&self, id: Uuid) -> Option<Arc<LiveTree>> {
        self.lock_trees().get(id)
    }

    /// All trees in memory.
    pub(crate) fn trees(&self) -> Vec<Arc<LiveTree>> {
        self.lock_trees().all()
    }

    fn lock_trees(&self) -> MutexGuard<'_, LiveTrees<Arc<LiveTree>>> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets a tree that has not ended, and gives up its ownership. Its runs are dropped where they wait.
pub(crate) fn release(runtime: &Inner, tree: &LiveTree) {
    runtime.lock_trees().remove(key(tree), tree.epoch);
    tree.abandoned.cancel();
    give_up(runtime, tree);
}
