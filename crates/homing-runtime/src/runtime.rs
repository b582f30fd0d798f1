//! The running whole: what a host hands over, and how runs come into the world.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use homing_core::{
    BoxFuture,
    authority::{Grant, Network, Sandbox},
    definition::{AgentDefinition, Isolation},
    envelope::Envelope,
    fact::{CancelledBy, Fact, FailureKind, LimitHit, Outcome, Record, Spawned},
    hooks::Hooks,
    limits::{Cap, Limits},
    message::Message,
    model::{ModelError, Models},
    place::Place,
    registry::{Registry, UnknownAgent},
    skill::SkillLibrary,
    tool::{AgentToolSource, Answer, CallKey, Question, Tool, ToolSpec},
    tree::RunTree,
    workspace::Workspaces,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    agent_loop::run_driver::RunDriver,
    clock::Clock,
    config::RuntimeConfig,
    handle::RunHandle,
    journal::{Begun, Claim, Commit, FactListener, Journal, JournalError},
    live_tree::{LiveRun, LiveTree},
    prompt::PromptContext,
    scheduler::{fair_semaphore::FairSemaphore, rate_limit::RateLimiters},
    spawn::SpawnCaches,
    task::Task,
};

/// Everything a host hands over.
pub struct RuntimeParts {
    /// The agents that there are.
    pub registry: Arc<Registry>,
    /// Where models come from.
    pub models: Arc<dyn Models>,
    /// The tools that there are; which run gets which is its authority's to say.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The tools that agents bring along besides, each for its own runs and their descendants.
    pub agent_tools: Option<Arc<dyn AgentToolSource>>,
    /// The skills that there are.
    pub skills: Option<Arc<dyn SkillLibrary>>,
    /// Where facts are kept.
    pub journal: Arc<dyn Journal>,
    /// Time, ids, chance.
    pub environment: Arc<dyn Clock>,
    /// What a root may do at most.
    pub policy: Grant,
    /// Where roots work, unless their task says otherwise.
    pub workdir: PathBuf,
    /// What agents are told about a folder.
    pub setting: Arc<dyn Fn(&Path) -> PromptContext + Send + Sync>,
    /// The user's own commands at certain moments.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// Who makes folders for runs that want one of their own.
    pub workspaces: Option<Arc<dyn Workspaces>>,
    /// Who answers questions.
    pub asker: Option<Arc<dyn PermissionHandler>>,
    /// Who is told of every fact of every tree once it is durable, in each tree's order. It must not wait.
    pub on_fact: Option<FactListener>,
    /// The knobs.
    pub settings: RuntimeConfig,
}

impl RuntimeParts {
    /// The least that is needed; the rest is empty, real time, and a policy that allows every tool but no folder and no
    /// network.
    pub fn new(registry: Registry, models: Arc<dyn Models>, journal: Arc<dyn Journal>) -> Self {
        let policy = Grant {
            layers: Vec::new(),
            read: Vec::new(),
            write: Vec::new(),
            network: Network::Off,
            sandbox: Sandbox::ReadOnly,
        };
        Self {
            registry: Arc::new(registry),
            models,
            tools: Vec::new(),
            agent_tools: None,
            skills: None,
            journal,
            environment: Arc::new(crate::clock::SystemClock::new()),
            policy,
            workdir: PathBuf::from("."),
            setting: Arc::new(|_| PromptContext::default()),
            hooks: None,
            workspaces: None,
            asker: None,
            on_fact: None,
            settings: RuntimeConfig::default(),
        }
    }
}

/// Somebody who answers questions.
pub trait PermissionHandler: Send + Sync {
    /// Answers, sooner or later; the runtime does not wait for ever.
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer>;
}

/// The running whole. A cheap handle: clone it freely.
#[derive(Clone)]
pub struct Runtime(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) parts: RuntimeParts,
    pub(crate) runs: Arc<FairSemaphore>,
    pub(crate) gates: RateLimiters,
    trees: Mutex<Trees>,
    pub(crate) known: SpawnCaches,
    pub(crate) on_complete: Mutex<Vec<OnComplete>>,
}

/// Called with every run that has ended.
pub type OnComplete = Arc<dyn Fn(&Envelope) + Send + Sync>;

#[derive(Default)]
struct Trees {
    books: HashMap<Uuid, Arc<LiveTree>>,
    ended: VecDeque<Uuid>,
}

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No such agent.
    #[error(transparent)]
    UnknownAgent(#[from] UnknownAgent),
    /// No model can be had for it.
    #[error("no model for this agent: {0}")]
    NoModel(ModelError),
    /// Nobody knows what the model costs, and a money limit was asked for.
    #[error(
        "nobody knows what {model} costs, so a money limit cannot be kept: give its price, or limit tokens instead"
    )]
    UnknownPrice {
        /// The model.
        model: String,
    },
    /// There is nothing to do.
    #[error("the task is empty: say what is to be done")]
    EmptyTask,
    /// A limit is in the way.
    #[error("the {} limit of {} is reached (run {})", .0.name, .0.limit, .0.place)]
    Limit(LimitHit),
    /// The journal would not take it.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A folder of its own cannot be had.
    #[error("no folder of its own for this run: {0}")]
    Workspace(String),
}

/// A child to be sent out.
pub(crate) struct SpawnOrder {
    pub(crate) agent: Arc<AgentDefinition>,
    pub(crate) text: String,
    pub(crate) limits: Limits,
    pub(crate) call: Option<CallKey>,
    pub(crate) continues: Option<(Uuid, Vec<Message>)>,
    pub(crate) background: bool,
    pub(crate) schema: Option<Value>,
    pub(crate) context: BTreeMap<String, Value>,
}

/// A root that is ready to begin.
struct RootSpec {
    book: Arc<LiveTree>,
    cell: Arc<LiveRun>,
    first: Arc<Record>,
}

/// What became of a submission.
pub enum Submission {
    /// It runs.
    New(RunHandle),
    /// Its key is that of an earlier tree with the same task.
    Earlier(Uuid),
}

impl Runtime {
    /// Starts with nothing running.
    pub fn new(parts: RuntimeParts) -> Self {
        let runs = FairSemaphore::new(parts.settings.max_runs.max(1));
        let gates = RateLimiters::new(parts.settings.max_asks.max(1));
        let inner = Arc::new_cyclic(|inner: &std::sync::Weak<Inner>| {
            let inner = inner.clone();
            let on_fact = parts.on_fact.clone();
            parts.journal.on_durable(Arc::new(move |record| {
                if let Some(tell) = &on_fact {
                    tell(record);
                }
                if let Some(book) = inner.upgrade().and_then(|inner| inner.book(record.tree)) {
                    book.publish(record);
                }
            }));
            Inner {
                parts,
                runs,
                gates,
                trees: Mutex::default(),
                known: SpawnCaches::default(),
                on_complete: Mutex::default(),
            }
        });
        Self(inner)
    }

    /// What the host handed over.
    pub fn parts(&self) -> &RuntimeParts {
        &self.0.parts
    }

    /// Starts `task`. Returns at once; a task with a key goes through [`Self::submit`].
    pub fn spawn(&self, task: Task) -> Result<RunHandle, SpawnError> {
        let RootSpec { book, cell, first } = self.0.root(task)?;
        let inner = self.0.clone();
        let handle = RunHandle::new(self.clone(), book.clone(), cell.run);
        tokio::spawn(async move {
            match inner.parts.journal.begin(first).await {
                Ok(Begun::New | Begun::Earlier(_)) => inner.drive(book, cell),
                Err(error) => inner.never_began(&book, &cell, &error),
            }
        });
        Ok(handle)
    }

    /// Starts `task` once it is durable, or says which earlier tree has its key.
    pub async fn submit(&self, task: Task) -> Result<Submission, SpawnError> {
        let RootSpec { book, cell, first } = self.0.root(task)?;
        match self.0.parts.journal.begin(first).await {
            Ok(Begun::New) => {
                let handle = RunHandle::new(self.clone(), book.clone(), cell.run);
                self.0.drive(book, cell);
                Ok(Submission::New(handle))
            }
            Ok(Begun::Earlier(tree)) => {
                self.0.lock_trees().books.remove(&book.id);
                Ok(Submission::Earlier(tree))
            }
            Err(error) => {
                self.0.lock_trees().books.remove(&book.id);
                Err(error.into())
            }
        }
    }

    /// Goes on with a tree of the journal; `more` adds to its root's limits. A tree that is over stays over.
    pub async fn resume(&self, tree: Uuid, claim: Claim, more: Limits) -> Result<RunHandle, SpawnError> {
        let journal = &self.0.parts.journal;
        let mut fold = journal.fold(tree).await?;
        let is_over = fold.root().is_some_and(|root| root.ended.is_some());
        let reopens = more != Limits::default()
            && fold.root().is_some_and(|root| {
                matches!(root.ended.as_ref().map(|it| &it.outcome), Some(Outcome::Exhausted(_) | Outcome::TimedOut(_)))
            });
        let goes_on = !is_over || reopens;
        let epoch = if goes_on { journal.claim(tree, claim).await? } else { fold.last_epoch() };
        if goes_on {
            // What the former owner still wrote between the look and the claim counts, too.
            for record in journal.since(tree, fold.next_seq()).await? {
                fold.apply(&record).map_err(|misfit| JournalError::Damaged(misfit.to_string()))?;
            }
        }
        let book = LiveTree::new(tree, epoch, fold, journal.clone(), self.0.parts.environment.clone());
        if goes_on {
            self.0.lock_trees().books.insert(tree, book.clone());
            if more != Limits::default() {
                drop(book.record(tree, Fact::Extended { more }));
            }
            self.0.go_on(&book);
        }
        Ok(RunHandle::new(self.clone(), book, tree))
    }

    /// Plans a task without starting it: everything its first fact would say.
    pub fn plan(&self, task: Task) -> Result<(Spawned, Vec<ToolSpec>), SpawnError> {
        let spawned = self.0.root_spawned(&task)?;
        let deeper = !matches!(spawned.limits.depth, Cap::At(0));
        let brought = self.0.brought(&spawned.agent, &[]);
        let kit = self.0.kit(&Arc::new(spawned.clone()), deeper, &brought);
        Ok((spawned, kit.toolbox.specs.clone()))
    }
}

impl Inner {
    fn root(self: &Arc<Self>, task: Task) -> Result<RootSpec, SpawnError> {
        let spawned = self.root_spawned(&task)?;
        let id = self.parts.environment.fresh_id();
        let (journal, environment) = (self.parts.journal.clone(), self.parts.environment.clone());
        let book = LiveTree::new(id, 1, RunTree::default(), journal, environment);
        let place = Place::root();
        let first = book.make(&RunTree::default(), id, place.clone(), Fact::Spawned(Arc::new(spawned)));
        book.adopt(&first);
        let cell = LiveRun::new(id, place, CancellationToken::new());
        book.add_cell(cell.clone());
        self.lock_trees().books.insert(id, book.clone());
        Ok(RootSpec { book, cell, first })
    }

    /// Spawns a child of a run that is under way.
    pub(crate) async fn spawn_child(
        self: &Arc<Self>,
        book: &Arc<LiveTree>,
        parent: Uuid,
        order: SpawnOrder,
    ) -> Result<(Uuid, Commit), SpawnError> {
        let id = self.parts.environment.fresh_id();
        let mut spawned = self.child_spawned(book, parent, order)?;
        if spawned.agent.isolation == Isolation::Worktree {
            self.move_in(id, &mut spawned).await?;
        }
        let spawned = Arc::new(spawned);
        let (place, commit) =
            book.record_spawn(id, Some(parent), |tree| match tree.ledger().no_more_children(parent) {
                None => Ok(Fact::Spawned(spawned)),
                Some(hit) => Err(SpawnError::Limit(hit)),
            })?;
        let stop = book.cell(parent).map_or_else(CancellationToken::new, |cell| cell.stop.child_token());
        let cell = LiveRun::new(id, place, stop);
        book.add_cell(cell.clone());
        self.drive(book.clone(), cell);
        Ok((id, commit))
    }

    pub(crate) fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.parts.tools.iter().find(|tool| tool.spec().name == name).cloned()
    }

    /// Continues an ended run of the same tree with one more message.
    pub(crate) async fn continue_run(
        self: &Arc<Self>,
        book: &Arc<LiveTree>,
        parent: Uuid,
        run: Uuid,
        message: &str,
        call: CallKey,
    ) -> Result<Uuid, SpawnError> {
        let (agent, history) = book.look_at(run, |run| {
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
        };
        Ok(self.spawn_child(book, parent, order).await?.0)
    }

    /// Tells a live run something; `false` where it has ended.
    pub(crate) fn tell(&self, book: &LiveTree, run: Uuid, from: Option<Uuid>, message: &str) -> bool {
        let told = book.record_if(run, |tree| match tree.get(run) {
            Some(it) if it.ended.is_none() => Ok(Fact::Told { from, message: message.to_owned() }),
            Some(_) | None => Err(()),
        });
        if let Some(cell) = book.cell(run) {
            cell.wake.notify_one();
        }
        told.is_ok()
    }

    /// Asks a run to stop; `false` where it has ended.
    pub(crate) fn halt(&self, book: &LiveTree, run: Uuid, by: CancelledBy) -> bool {
        let halted = book.record_if(run, |tree| match tree.get(run) {
            Some(it) if it.ended.is_none() && it.halted().is_none() => Ok(Fact::Halted { by }),
            Some(_) | None => Err(()),
        });
        if let Some(cell) = book.cell(run) {
            cell.stop.cancel();
        }
        halted.is_ok()
    }

    /// Starts driving a run.
    fn drive(self: &Arc<Self>, book: Arc<LiveTree>, cell: Arc<LiveRun>) {
        let driver = RunDriver { inner: self.clone(), book, cell };
        tokio::spawn(driver.run_to_end());
    }

    /// Every open run goes on; an ask that was under way is charged as if it had been answered.
    fn go_on(self: &Arc<Self>, book: &Arc<LiveTree>) {
        let open: Vec<Uuid> =
            book.look(|tree| tree.runs().iter().filter(|run| run.ended.is_none()).map(|run| run.id).collect());
        for id in &open {
            let (place, parent, ask) =
                book.look_at(*id, |run| (run.place.clone(), run.spawned.parent, run.open_ask().cloned()));
            let stop =
                parent.and_then(|id| book.cell(id)).map_or_else(CancellationToken::new, |cell| cell.stop.child_token());
            book.add_cell(LiveRun::new(*id, place, stop));
            if let Some(asked) = ask {
                drop(book.record(*id, crate::resume::lost(&asked)));
            }
        }
        for cell in open.iter().filter_map(|id| book.cell(*id)) {
            self.drive(book.clone(), cell);
        }
    }

    fn never_began(&self, book: &Arc<LiveTree>, cell: &LiveRun, error: &JournalError) {
        let message = error.to_string();
        let kind = FailureKind::Journal;
        let outcome = Outcome::Failed { kind, message, retryable: true };
        let ended = book.look_at(cell.run, |run| run.ending(outcome));
        drop(book.record(cell.run, Fact::Ended(Arc::new(ended))));
        cell.over.cancel();
        book.remove_cell(cell.run);
        self.tree_ended(book);
    }

    pub(crate) fn run_ended(&self, book: &LiveTree, run: Uuid) {
        let callbacks = self.on_complete.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if callbacks.is_empty() {
            return;
        }
        let envelope = book.envelope(run);
        for (callback, envelope) in callbacks.iter().zip(std::iter::repeat(&envelope)) {
            if let Some(envelope) = envelope {
                callback(envelope);
            }
        }
    }

    pub(crate) fn tree_ended(&self, book: &LiveTree) {
        self.parts.journal.release(book.id);
        let mut trees = self.lock_trees();
        trees.ended.push_back(book.id);
        while trees.ended.len() > self.parts.settings.keep_ended {
            if let Some(oldest) = trees.ended.pop_front() {
                trees.books.remove(&oldest);
            }
        }
    }

    pub(crate) fn book(&self, tree: Uuid) -> Option<Arc<LiveTree>> {
        self.lock_trees().books.get(&tree).cloned()
    }

    pub(crate) fn books(&self) -> Vec<Arc<LiveTree>> {
        self.lock_trees().books.values().cloned().collect()
    }

    fn lock_trees(&self) -> MutexGuard<'_, Trees> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
