//! The stage on which scenarios are played: agents, a scripted model, tools that keep a log of their own.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use homing_core::{
    BoxFuture,
    authority::Allow,
    definition::AgentDefinition,
    envelope::Envelope,
    fact::{Fact, Record},
    message::Reply,
    model::{AskFailure, Model, ModelCard, ModelRequest, OnDelta, SingleModel},
    registry::Registry,
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use homing_runtime::{
    RunHandle, Runtime, RuntimeParts, Task,
    clock::Clock,
    journal::{Journal, MemoryJournal},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

/// Time that starts at the same moment, ids that count, and chance that repeats.
pub struct Rehearsal {
    started: Instant,
    ids: AtomicU64,
    chance: AtomicU64,
}

impl Rehearsal {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), ids: AtomicU64::new(0), chance: AtomicU64::new(seed | 1) })
    }

    /// A rehearsal that goes on where ids up to `ids` are taken.
    pub fn after(ids: u64) -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), ids: AtomicU64::new(ids), chance: AtomicU64::new(7) })
    }
}

impl Clock for Rehearsal {
    fn now_ms(&self) -> u64 {
        1_700_000_000_000 + u64::try_from(self.started.elapsed().as_millis()).unwrap()
    }

    fn fresh_id(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.ids.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn roll(&self, bound: u64) -> u64 {
        let next = |it: u64| {
            let it = it ^ (it << 13);
            let it = it ^ (it >> 7);
            it ^ (it << 17)
        };
        let rolled = self.chance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| Some(next(it))).unwrap();
        if bound == 0 { 0 } else { rolled % bound }
    }
}

type Decide = dyn Fn(ModelRequest<'_>) -> Result<Reply, AskFailure> + Send + Sync;

/// A scripted model that takes its time and counts who asked.
pub struct Actor {
    card: ModelCard,
    decide: Box<Decide>,
    takes: Duration,
    /// What was asked, in order: the provider's own log.
    pub asked: Mutex<Vec<String>>,
}

impl Actor {
    pub fn new(decide: impl Fn(ModelRequest<'_>) -> Result<Reply, AskFailure> + Send + Sync + 'static) -> Arc<Self> {
        Self::with(ModelCard::free("script/actor"), Duration::from_millis(100), decide)
    }

    pub fn with(
        card: ModelCard,
        takes: Duration,
        decide: impl Fn(ModelRequest<'_>) -> Result<Reply, AskFailure> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { card, decide: Box::new(decide), takes, asked: Mutex::default() })
    }

    pub fn times_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Model for Actor {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(request.system.to_owned());
            let reply = (self.decide)(request);
            if let Ok(reply) = &reply {
                on_delta(homing_core::model::Delta::Text(&reply.text()));
            }
            tokio::time::sleep(self.takes).await;
            reply
        })
    }
}

/// A tool that does what a function says and keeps a log of its own.
pub struct Prop {
    spec: ToolSpec,
    act: Box<dyn Fn(&Value) -> ToolOutput + Send + Sync>,
    takes: Duration,
    /// Keys of the calls that were made: the tool's own log.
    pub calls: Mutex<Vec<String>>,
}

impl Prop {
    pub fn new(
        name: &str,
        replay: Replay,
        takes: Duration,
        act: impl Fn(&Value) -> ToolOutput + Send + Sync + 'static,
    ) -> Arc<Self> {
        let schema = json!({"type": "object"});
        let spec = ToolSpec {
            name: name.into(),
            description: format!("does {name}"),
            schema,
            replay,
            effect: homing_core::tool::Effect::Changes,
        };
        Arc::new(Self { spec, act: Box::new(act), takes, calls: Mutex::default() })
    }

    /// A tool that answers `ok` at once.
    pub fn simple(name: &str) -> Arc<Self> {
        Self::new(name, Replay::Safe, Duration::ZERO, |_| ToolOutput::text("ok"))
    }

    pub fn times_called(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

impl Tool for Prop {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, context: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            self.calls.lock().unwrap().push(context.key.to_string());
            tokio::select! {
                () = tokio::time::sleep(self.takes) => (self.act)(&args),
                () = context.cancelled() => ToolOutput::error("interrupted half way"),
            }
        })
    }
}

/// An agent whose prompt is its name, so that scripts know who asks.
pub fn agent(name: &str) -> AgentDefinition {
    AgentDefinition::new(name, format!("the {name}"), name)
}

/// The same, with these tools only.
pub fn agent_with(name: &str, tools: &[&str]) -> AgentDefinition {
    let tools = Allow::Only(tools.iter().map(|tool| tool.parse().unwrap()).collect());
    AgentDefinition { tools, ..agent(name) }
}

/// Everything for one scenario.
pub struct Stage {
    pub agents: Vec<AgentDefinition>,
    pub model: Arc<dyn Model>,
    pub tools: Vec<Arc<Prop>>,
    pub seed: u64,
    pub settings: homing_runtime::RuntimeConfig,
}

impl Stage {
    pub fn new(agents: impl IntoIterator<Item = AgentDefinition>, model: Arc<dyn Model>) -> Self {
        let agents = agents.into_iter().collect();
        Self { agents, model, tools: Vec::new(), seed: 1, settings: homing_runtime::RuntimeConfig::default() }
    }

    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<Prop>>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    pub fn parts(&self, journal: Arc<dyn Journal>, environment: Arc<dyn Clock>) -> RuntimeParts {
        let registry = Registry::from_iter(self.agents.iter().cloned());
        let mut parts = RuntimeParts::new(registry, Arc::new(SingleModel(self.model.clone())), journal);
        parts.environment = environment;
        parts.tools = self.tools.iter().map(|tool| tool.clone() as Arc<dyn Tool>).collect();
        parts.settings = self.settings.clone();
        parts
    }

    pub fn open(&self) -> (Runtime, Arc<MemoryJournal>) {
        let journal = MemoryJournal::new();
        (Runtime::new(self.parts(journal.clone(), Rehearsal::new(self.seed))), journal)
    }

    /// Plays `task` to its end.
    pub async fn play(&self, task: Task) -> (Envelope, Arc<MemoryJournal>) {
        let (runtime, journal) = self.open();
        let run = runtime.spawn(task).unwrap();
        (home(&run).await, journal)
    }
}

/// Waits for a run, but not for ever.
pub async fn home(run: &RunHandle) -> Envelope {
    tokio::time::timeout(Duration::from_secs(86_400), run.wait())
        .await
        .expect("every agent that is sent out comes back")
}

/// The journal as a story: place and kind, a line each.
pub fn story(records: &[Arc<Record>]) -> String {
    let line = |record: &Arc<Record>| {
        let more = match &record.fact {
            Fact::Called(called) => format!(" {}", called.call.name),
            Fact::Returned { result, refused, .. } => {
                format!(" {}{}", result.name, refused.as_ref().map(|it| format!(" ({it:?})")).unwrap_or_default())
            }
            Fact::Ended(ended) => format!(" {}", ended.outcome.status()),
            Fact::Asked(asked) => {
                format!(" {:?}", asked.purpose).split(['(', ' ']).take(2).collect::<Vec<_>>().join(" ")
            }
            _ => String::new(),
        };
        format!("{} {}{more}\n", record.place, record.fact.kind())
    };
    records.iter().map(line).collect()
}

pub fn root_id() -> Uuid {
    Uuid::from_u128(1)
}
