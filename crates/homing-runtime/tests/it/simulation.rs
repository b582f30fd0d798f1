//! Thousands of random simulations on paused time: delays, faults, cancellations. Every run ends once, no reservation is
//! left, and the same seed gives the same journal, byte for byte.

use std::{collections::HashMap, sync::Arc, time::Duration};

use homing_core::{
    BoxFuture,
    fact::{CancelledBy, Fact, Record},
    limits::Limits,
    message::Reply,
    model::{AskFailure, Charge, Delta, Model, ModelCard, ModelError, ModelRequest, OnDelta, ToolChoice},
    scripted_model::{call, say},
    tool::{Replay, ToolOutput},
};
use homing_runtime::{RuntimeConfig, Task, journal::MemoryJournal};
use serde_json::json;

use crate::support::{SimulatedWorld, TestSetup, TestTool, agent, root_id};

/// A small random number generator; a seed determines a whole simulation.
#[derive(Clone, Copy)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A model whose replies and failures follow from the seed and the request.
struct RandomModel {
    card: ModelCard,
    seed: u64,
}

impl RandomModel {
    fn decide(&self, request: &ModelRequest<'_>, dice: &mut Dice) -> Result<Reply, AskFailure> {
        let can = request.tools.specs.iter().any(|spec| spec.name == "delegate");
        let fail = |error| Err(AskFailure::new(error, Charge::Nothing).partial("half"));
        match dice.below(20) {
            0 => fail(ModelError::Busy { retry_after_ms: Some(500), reason: "429".into() }),
            1 => fail(ModelError::Busy { retry_after_ms: None, reason: "529".into() }),
            2 => Err(AskFailure::new(ModelError::Broken { reason: "cut".into() }, Charge::Hold).partial("ha")),
            3 if dice.below(4) == 0 => fail(ModelError::Refused { reason: "no".into() }),
            4 if dice.below(4) == 0 => panic!("a simulated panic"),
            5 => Ok(Reply::default()),
            _ if request.choice == ToolChoice::Off => Ok(say("report")),
            6..=9 if can => {
                let background = dice.below(3) == 0;
                let task = |n| json!({"agent": "a", "task": format!("{n}"), "background": background, "timeout": 90});
                Ok(call((0..=dice.below(3)).map(|n| ("delegate", task(n)))))
            }
            10..=13 => Ok(call((0..=dice.below(3)).map(|n| ("work", json!({"n": n, "m": request.messages.len()}))))),
            14 => Ok(call([("wait", json!({"any": true}))])),
            15 => Ok(call([("nonsense", json!({}))])),
            _ => Ok(say("done")),
        }
    }
}

impl Model for RandomModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        let last = request.messages.last().map_or(0, |entry| entry.hash());
        let mut dice = Dice(self.seed ^ last ^ (request.messages.len() as u64) << 40 ^ fold(request.key));
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(dice.below(5_000))).await;
            on_delta(Delta::Text("…"));
            self.decide(&request, &mut dice)
        })
    }
}

fn fold(text: &str) -> u64 {
    text.bytes().fold(7, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// Runs one simulation and returns the journal.
fn simulate(seed: u64) -> Vec<Arc<Record>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut dice = Dice(seed);
        let model = Arc::new(RandomModel { card: ModelCard::free("script/random"), seed });
        let work = TestTool::new("work", Replay::Safe, Duration::from_millis(dice.below(3_000)), |_| {
            ToolOutput::text("worked")
        });
        let mut setup = TestSetup::new([agent("a")], model).tools([work]);
        setup.config = RuntimeConfig::default();
        setup.config.max_runs = usize::try_from(dice.below(4)).unwrap() + 1;
        setup.config.max_asks = usize::try_from(dice.below(3)).unwrap() + 1;
        let journal = MemoryJournal::new();
        let homing = homing_runtime::Runtime::new(setup.parts(journal.clone(), SimulatedWorld::new(seed)));
        let limits = Limits::default()
            .children(12)
            .turns(dice.below(6) + 1)
            .tokens(dice.below(200_000) + 1_000)
            .wall(Duration::from_secs(dice.below(200) + 5));
        let run = homing.spawn(Task::new("a", "go").limits(limits)).unwrap();
        let stop_after = Duration::from_secs(dice.below(60) + 1);
        let ended = match dice.below(3) {
            0 => {
                let _ = tokio::time::timeout(stop_after, run.wait()).await;
                run.cancel(CancelledBy::Host);
                tokio::time::timeout(Duration::from_secs(5), run.wait()).await
            }
            _ => tokio::time::timeout(Duration::from_secs(300), run.wait()).await,
        };
        let envelope = ended.unwrap_or_else(|_| panic!("seed {seed}: a run did not end\n{}", run.envelope().tree()));
        assert!(envelope.all().iter().all(|run| run.status.is_over()), "seed {seed}: {}", envelope.tree());
        journal.records(root_id())
    })
}

fn ends_once(seed: u64, records: &[Arc<Record>]) {
    let mut ends: HashMap<_, usize> = HashMap::new();
    let mut spawned = 0;
    for record in records {
        match &record.fact {
            Fact::Ended(_) => *ends.entry(record.run).or_default() += 1,
            Fact::Spawned(_) => spawned += 1,
            _ => (),
        }
    }
    assert_eq!(ends.len(), spawned, "seed {seed}: every run ends");
    assert!(ends.values().all(|count| *count == 1), "seed {seed}: every run ends once");
    let mut tree = homing_core::tree::RunTree::default();
    records.iter().for_each(|record| tree.apply(record).unwrap());
    assert!(tree.runs().iter().all(|run| run.held == Default::default()), "seed {seed}: nothing stays reserved");
}

#[test]
fn inv13_every_run_ends_exactly_once_in_two_thousand_simulations() {
    // Simulated panics are expected; their messages would hide all others.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"a simulated panic") {
            usual(info);
        }
    }));
    for seed in 0..2_000 {
        let records = simulate(seed);
        ends_once(seed, &records);
        if seed % 10 == 0 {
            let bytes = |records: &[Arc<Record>]| serde_json::to_string(&records).unwrap();
            assert!(bytes(&records) == bytes(&simulate(seed)), "seed {seed}: the same seed gives the same journal");
        }
    }
}
