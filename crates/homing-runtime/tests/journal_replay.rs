//! Replay of a recorded tree without its models and tools, and the report of differences.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use homing_core::{
    BoxFuture,
    authority::Allow,
    definition::AgentDefinition,
    envelope::{Envelope, Status},
    model::{Model, ModelCard, ModelRequest, Rates, SingleModel},
    registry::Registry,
    scripted_model::{FunctionModel, call, last_words, say},
    tool::{Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use homing_runtime::{
    Runtime, RuntimeParts, Task,
    journal::{
        MemoryJournal,
        sqlite::{Cassette, CassetteReplay},
    },
};
use serde_json::{Value, json};

/// A tool that counts its calls.
struct Look {
    spec: ToolSpec,
    times: AtomicUsize,
}

impl Look {
    fn new() -> Arc<Self> {
        let spec = ToolSpec::new("look", "looks", json!({"type": "object"}))
            .replay(Replay::Safe)
            .effect(homing_core::tool::Effect::Reads);
        Arc::new(Self { spec, times: AtomicUsize::new(0) })
    }
}

impl Tool for Look {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, _: &'a ToolContext, args: Value) -> BoxFuture<'a, ToolOutput> {
        let nth = self.times.fetch_add(1, Ordering::Relaxed) + 1;
        Box::pin(std::future::ready(ToolOutput::text(format!("{args} is green, {nth}"))))
    }
}

fn card() -> ModelCard {
    ModelCard::free("script/one").rates(Rates::default().input(2_000_000).output(4_000_000))
}

/// The lead delegates twice and reports; a scout calls `look` and reports.
fn model() -> Arc<dyn Model> {
    Arc::new(FunctionModel::with_card(card(), |request: ModelRequest<'_>| {
        let words = last_words(&request);
        Ok(match (request.system.contains("lead"), request.messages.len()) {
            (true, 1) => call([
                ("delegate", json!({"agent": "scout", "task": "the door"})),
                ("delegate", json!({"agent": "scout", "task": "the window"})),
            ]),
            (false, 1) => call([("look", json!({"at": words}))]),
            (_, _) => say(format!("so: {words}")),
        })
    }))
}

fn agents() -> Registry {
    let lead = AgentDefinition::new("lead", "leads", "you are the lead");
    let mut scout = AgentDefinition::new("scout", "scouts", "you scout");
    scout.tools.allowed = Allow::Only(vec!["look".parse().unwrap()]);
    Registry::from_iter([lead, scout])
}

async fn record() -> (Envelope, Cassette) {
    let journal = MemoryJournal::new();
    let mut parts = RuntimeParts::new(agents(), Arc::new(SingleModel(model())), journal.clone());
    parts.tools = vec![Look::new()];
    let envelope = Runtime::new(parts).spawn(Task::new("lead", "what is green?")).unwrap().wait().await;
    let cassette = Cassette::from_records(journal.records(envelope.run)).unwrap();
    // As text, like a cassette file.
    let text = cassette.write(&str::to_owned).unwrap();
    (envelope, Cassette::read(&text).unwrap())
}

async fn play(replay: &Arc<CassetteReplay>, agents: Registry, task: &str) -> (Envelope, usize) {
    let look = Look::new();
    let mut parts = RuntimeParts::new(agents, replay.models(|_| card()), MemoryJournal::new());
    parts.tools = vec![replay.tool(look.clone())];
    parts.on_fact = Some(replay.listener());
    let envelope = Runtime::new(parts).spawn(Task::new("lead", task)).unwrap().wait().await;
    (envelope, look.times.load(Ordering::Relaxed))
}

fn figures(envelope: &Envelope) -> Vec<(String, String, Status, String, u64, u64)> {
    let of = |run: &Envelope| {
        let (place, agent, output) = (run.place.to_string(), run.agent.clone(), run.output.clone());
        (place, agent, run.status, output, run.usage.cost_micros, run.subtree.tool_calls)
    };
    envelope.all().into_iter().map(of).collect()
}

#[tokio::test]
async fn replay_calls_no_model_and_no_tool() {
    let (recorded, cassette) = record().await;
    assert_eq!((recorded.status, recorded.children.len()), (Status::Done, 2));
    assert!(recorded.subtree.cost_micros > 0);
    let replay = CassetteReplay::new(&cassette);
    let (played, touched) = play(&replay, agents(), "what is green?").await;
    assert_eq!(figures(&played), figures(&recorded));
    assert_eq!((replay.divergences(), replay.unplayed(), touched), (vec![], vec![], 0));
}

#[tokio::test]
async fn other_task_fails_and_the_divergence_names_its_turn() {
    let (_, cassette) = record().await;
    let replay = CassetteReplay::new(&cassette);
    let (played, touched) = play(&replay, agents(), "what is blue?").await;
    assert_eq!((played.status, touched), (Status::Failed, 0));
    let divergences = replay.divergences();
    assert_eq!((divergences[0].run, divergences[0].turn), (Some(played.run), 1));
    assert!(divergences[0].what.contains("not in the recording"));
    assert!(!replay.unplayed().is_empty());
}

#[tokio::test]
async fn changed_prompt_is_answered_and_reported() {
    let (recorded, cassette) = record().await;
    let replay = CassetteReplay::new(&cassette);
    let mut scout = AgentDefinition::new("scout", "scouts", "you scout, carefully");
    scout.tools.allowed = Allow::Only(vec!["look".parse().unwrap()]);
    let lead = AgentDefinition::new("lead", "leads", "you are the lead");
    let (played, _) = play(&replay, Registry::from_iter([lead, scout]), "what is green?").await;
    assert_eq!(played.output, recorded.output);
    let divergences = replay.divergences();
    assert_eq!(divergences.len(), 4, "two scouts, two requests each: {divergences:?}");
    let place = divergences[0].place.as_ref().unwrap().to_string();
    assert!(place.starts_with("1."), "{place}");
    let changed = "its prompt differs from the recording:\n- you scout\n+ you scout, carefully";
    assert!(divergences.iter().all(|divergence| divergence.what == changed), "{divergences:#?}");
}

/// A lead with three scouts in the background, which end in the reverse order of their start.
fn slow_model() -> Arc<dyn Model> {
    struct Slow(ModelCard);
    impl Model for Slow {
        fn card(&self) -> &ModelCard {
            &self.0
        }

        fn reply<'a>(
            &'a self,
            request: ModelRequest<'a>,
            _: homing_core::model::OnDelta<'a>,
        ) -> BoxFuture<'a, Result<homing_core::message::Reply, homing_core::model::AskFailure>> {
            Box::pin(async move {
                let words = last_words(&request);
                let background =
                    |n: u64| ("delegate", json!({"agent": "scout", "task": n.to_string(), "background": true}));
                if !request.system.contains("lead") {
                    let nth: u64 = words.parse().unwrap_or(0);
                    tokio::time::sleep(std::time::Duration::from_millis(400 - 100 * nth)).await;
                    return Ok(say(format!("scout {nth}")));
                }
                Ok(if request.messages.len() == 1 {
                    call([1, 2, 3].map(background))
                } else {
                    say(format!("so: {words}"))
                })
            })
        }
    }
    Arc::new(Slow(card()))
}

#[tokio::test(start_paused = true)]
async fn background_children_end_in_the_recorded_order() {
    let journal = MemoryJournal::new();
    let parts = RuntimeParts::new(agents(), Arc::new(SingleModel(slow_model())), journal.clone());
    let recorded = Runtime::new(parts).spawn(Task::new("lead", "go")).unwrap().wait().await;
    let ends = |records: &[Arc<homing_core::fact::Record>]| -> Vec<String> {
        let ended = records.iter().filter(|record| record.fact.kind() == "ended");
        ended.map(|record| record.place.to_string()).collect()
    };
    let cassette = Cassette::from_records(journal.records(recorded.run)).unwrap();
    assert_eq!(ends(cassette.records()), ["1.3", "1.2", "1.1", "1"]);
    for _ in 0..5 {
        let replay = CassetteReplay::new(&cassette);
        let journal = MemoryJournal::new();
        let mut parts = RuntimeParts::new(agents(), replay.models(|_| card()), journal.clone());
        parts.on_fact = Some(replay.listener());
        let played = Runtime::new(parts).spawn(Task::new("lead", "go")).unwrap().wait().await;
        assert_eq!((replay.divergences(), replay.unplayed()), (vec![], vec![]));
        assert_eq!(
            (ends(&journal.records(played.run)), played.output),
            (ends(cassette.records()), recorded.output.clone())
        );
    }
}
