//! Test support: agents, scripted models and tools that keep logs, simulated time and ids.

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
    skill::{Skill, SkillCard, SkillLibrary},
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use homing_runtime::{
    RunHandle, Runtime, RuntimeParts, Task,
    clock::{Clock, IdSource, Sources},
    journal::{Journal, MemoryJournal},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

/// Time that always starts at the same moment, ids that count up, and repeatable random numbers.
pub struct SimulatedWorld {
    started: Instant,
    ids: AtomicU64,
    random: AtomicU64,
}

impl SimulatedWorld {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), ids: AtomicU64::new(0), random: AtomicU64::new(seed | 1) })
    }

    /// A simulation in which ids up to `ids` are already used.
    pub fn after(ids: u64) -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), ids: AtomicU64::new(ids), random: AtomicU64::new(7) })
    }
}

impl Clock for SimulatedWorld {
    fn now_ms(&self) -> u64 {
        1_700_000_000_000 + u64::try_from(self.started.elapsed().as_millis()).unwrap()
    }
}

impl IdSource for SimulatedWorld {
    fn fresh_id(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.ids.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn roll(&self, bound: u64) -> u64 {
        let next = |state: u64| {
            let state = state ^ (state << 13);
            let state = state ^ (state >> 7);
            state ^ (state << 17)
        };
        let rolled = self.random.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(next(state))).unwrap();
        if bound == 0 { 0 } else { rolled % bound }
    }
}

type Decide = dyn Fn(ModelRequest<'_>) -> Result<Reply, AskFailure> + Send + Sync;

/// A scripted model with a delay and a log.
pub struct TestModel {
    card: ModelCard,
    decide: Box<Decide>,
    takes: Duration,
    /// The system prompts of all requests, in order.
    pub asked: Mutex<Vec<String>>,
}

impl TestModel {
    pub fn new(decide: impl Fn(ModelRequest<'_>) -> Result<Reply, AskFailure> + Send + Sync + 'static) -> Arc<Self> {
        Self::with(ModelCard::free("script/model"), Duration::from_millis(100), decide)
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

impl Model for TestModel {
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

/// A tool that calls a function and keeps a log.
pub struct TestTool {
    spec: ToolSpec,
    act: Box<dyn Fn(&Value) -> ToolOutput + Send + Sync>,
    takes: Duration,
    /// Keys of the calls that were executed.
    pub calls: Mutex<Vec<String>>,
}

impl TestTool {
    pub fn new(
        name: &str,
        replay: Replay,
        takes: Duration,
        act: impl Fn(&Value) -> ToolOutput + Send + Sync + 'static,
    ) -> Arc<Self> {
        let schema = json!({"type": "object"});
        let spec = ToolSpec::new(name, format!("does {name}"), schema).replay(replay).effect(replay.implied_effect());
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

impl Tool for TestTool {
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

/// An agent whose prompt is its name, by which scripts recognise it.
pub fn agent(name: &str) -> AgentDefinition {
    AgentDefinition::new(name, format!("the {name}"), name)
}

/// The same, with these tools only.
pub fn agent_with(name: &str, tools: &[&str]) -> AgentDefinition {
    let mut agent = agent(name);
    agent.tools.allowed = Allow::Only(tools.iter().map(|tool| tool.parse().unwrap()).collect());
    agent
}

/// The agents, model and tools of one test.
pub struct TestSetup {
    pub agents: Vec<AgentDefinition>,
    pub model: Arc<dyn Model>,
    pub tools: Vec<Arc<TestTool>>,
    pub skills: Option<Arc<dyn SkillLibrary>>,
    pub seed: u64,
    pub config: homing_runtime::RuntimeConfig,
}

/// A library of one skill.
pub struct OneSkill(pub Arc<Skill>);

impl OneSkill {
    pub fn new(card: SkillCard, body: &str) -> Arc<Self> {
        Arc::new(Self(Arc::new(Skill { card, body: body.to_owned(), resources: Vec::new() })))
    }
}

impl SkillLibrary for OneSkill {
    fn list(&self) -> &[SkillCard] {
        std::slice::from_ref(&self.0.card)
    }

    fn get(&self, name: &str) -> Option<Result<Arc<Skill>, String>> {
        (name == self.0.card.name).then(|| Ok(self.0.clone()))
    }
}

impl TestSetup {
    pub fn new(agents: impl IntoIterator<Item = AgentDefinition>, model: Arc<dyn Model>) -> Self {
        let agents = agents.into_iter().collect();
        let config = homing_runtime::RuntimeConfig::default();
        Self { agents, model, tools: Vec::new(), skills: None, seed: 1, config }
    }

    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<TestTool>>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    pub fn parts(&self, journal: Arc<dyn Journal>, world: Arc<SimulatedWorld>) -> RuntimeParts {
        let registry = Registry::from_iter(self.agents.iter().cloned());
        let mut parts = RuntimeParts::new(registry, Arc::new(SingleModel(self.model.clone())), journal);
        parts.sources = Sources { clock: world.clone(), ids: world };
        parts.tools = self.tools.iter().map(|tool| tool.clone() as Arc<dyn Tool>).collect();
        parts.skills = self.skills.clone();
        parts.config = self.config.clone();
        parts
    }

    pub fn open(&self) -> (Runtime, Arc<MemoryJournal>) {
        let journal = MemoryJournal::new();
        (Runtime::new(self.parts(journal.clone(), SimulatedWorld::new(self.seed))), journal)
    }

    /// Runs `task` to its end.
    pub async fn run(&self, task: Task) -> (Envelope, Arc<MemoryJournal>) {
        let (runtime, journal) = self.open();
        let run = runtime.spawn(task).unwrap();
        (wait_for(&run).await, journal)
    }
}

/// Waits for a run, with a timeout.
pub async fn wait_for(run: &RunHandle) -> Envelope {
    tokio::time::timeout(Duration::from_secs(86_400), run.wait()).await.expect("every run ends")
}

/// The records as text: place and kind, one line each.
pub fn summary(records: &[Arc<Record>]) -> String {
    let line = |record: &Arc<Record>| {
        let more = match &record.fact {
            Fact::Called(called) => format!(" {}", called.call.name),
            Fact::Returned { result, refused, .. } => {
                format!(
                    " {}{}",
                    result.name,
                    refused.as_ref().map(|refused| format!(" ({refused:?})")).unwrap_or_default()
                )
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
