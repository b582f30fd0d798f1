//! Limits under concurrency: usage and reservations together never exceed a limit of any run, at any time.

use std::{sync::Arc, time::Duration};

use homing_core::{
    fact::{Outcome, Record},
    limits::{Cap, Limit, Limits},
    message::{Reply, Usage},
    model::{AskFailure, Charge, ModelCard, ModelError, ModelRequest, Rates, ToolChoice},
    scripted_model::{call, say},
    tree::RunTree,
};
use homing_runtime::Task;
use proptest::prelude::*;
use serde_json::json;

use crate::support::{TestModel, TestSetup, TestTool, agent, root_id};

/// Checks that no limit is exceeded after any record, and that totals are exact.
fn never_exceeded(records: &[Arc<Record>]) -> Result<(), TestCaseError> {
    let mut tree = RunTree::default();
    for record in records {
        tree.apply(record).unwrap();
        for run in tree.lineage(record.run) {
            let within = |cap: Cap, used: u64| cap.value().is_none_or(|limit| used <= limit);
            let (spent, held) = (run.subtree, run.held);
            prop_assert!(within(run.limits.tokens, spent.usage.tokens() + held.tokens), "tokens at {}", record.seq);
            prop_assert!(
                within(run.limits.cost_micros, spent.usage.cost_micros + held.cost_micros),
                "cost at {}",
                record.seq
            );
            prop_assert!(within(run.limits.tool_calls, spent.tool_calls), "calls at {}", record.seq);
            prop_assert!(within(run.limits.children, spent.children), "children at {}", record.seq);
            prop_assert!(within(run.limits.turns, run.own.turns), "turns at {}", record.seq);
        }
    }
    for run in tree.runs() {
        let below: u64 = tree.children(run).map(|child| child.subtree.usage.tokens()).sum();
        prop_assert_eq!(run.subtree.usage.tokens(), run.own.usage.tokens() + below);
        let below: u64 = tree.children(run).map(|child| child.subtree.usage.cost_micros).sum();
        prop_assert_eq!(run.subtree.usage.cost_micros, run.own.usage.cost_micros + below);
        let ended = run.ended.as_ref().unwrap();
        prop_assert!(!matches!(ended.outcome, Outcome::Exhausted(_)) || !ended.text.trim().is_empty(), "{}", run.place);
        prop_assert!(run.held.is_zero(), "reservations and landings are released");
    }
    Ok(())
}

/// A number that depends on the request and the seed.
fn chance(request: &ModelRequest<'_>, seed: u64) -> u64 {
    let last = request.messages.last().map_or(0, |entry| entry.hash());
    let mixed = (last ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (request.messages.len() as u64).rotate_left(17);
    mixed ^ (mixed >> 29)
}

/// A reply with realistic usage: a token for every four bytes, and no more output than permitted.
fn with_usage(request: &ModelRequest<'_>, seed: u64, reply: Reply) -> Reply {
    let bytes: u64 = request.messages.iter().map(|entry| entry.size()).sum::<u64>() + request.system.len() as u64;
    let output = chance(request, seed ^ 1) % request.max_output.clamp(1, 3_000) + 1;
    reply.usage(Usage::default().input(bytes / 4).output(output.min(request.max_output)))
}

async fn crowd(seed: u64, limits: Limits, children: usize) -> Vec<Arc<Record>> {
    let rates = Rates::default().input(3_000_000).cached(300_000).cache_write(3_750_000).output(15_000_000);
    let card = ModelCard::free("script/crowd").rates(rates);
    let model = TestModel::with(card, Duration::from_millis(20), move |request| {
        let roll = chance(&request, seed);
        if roll.is_multiple_of(11) && request.messages.len() > 1 {
            let error = ModelError::Broken { reason: "cut".into() };
            let charge = if roll.is_multiple_of(2) { Charge::Hold } else { Charge::Nothing };
            return Err(AskFailure::new(error, charge));
        }
        let reply = match (request.system, request.messages.len(), request.choice) {
            (_, _, ToolChoice::Off) => say("report"),
            ("lead", 1, _) => {
                call((0..children).map(|n| ("delegate", json!({"agent": "worker", "task": format!("part {n}")}))))
            }
            ("lead", _, _) => say("all"),
            (_, n, _) if n < 8 => call((0..roll % 3 + 1).map(|k| ("read", json!({"n": n, "k": k})))),
            _ => say("done"),
        };
        Ok(with_usage(&request, seed, reply))
    });
    let mut setup = TestSetup::new([agent("lead"), agent("worker")], model).tools([TestTool::simple("read")]);
    setup.seed = seed;
    (setup.config.max_runs, setup.config.max_asks) = (64, 64);
    setup.config.max_output = 4_000;
    let (envelope, journal) = setup.run(Task::new("lead", "go").limits(limits)).await;
    assert!(envelope.status.is_over());
    journal.records(root_id())
}

fn simulate<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn inv26_sixty_four_children_never_exceed_any_limit(
        seed in any::<u64>(),
        tokens in prop_oneof![Just(None), (5_000_u64..400_000).prop_map(Some)],
        cost in prop_oneof![Just(None), (20_000_u64..2_000_000).prop_map(Some)],
        calls in prop_oneof![Just(None), (1_u64..200).prop_map(Some)],
        children in 1_u64..80,
    ) {
        let cap = |value: Option<u64>| value.map_or(Cap::Unlimited, Cap::At);
        let limits = Limits::default().with(Limit::Tokens, cap(tokens)).with(Limit::Cost, cap(cost)).with(Limit::ToolCalls, cap(calls)).with(Limit::Children, Cap::At(children));
        let records = simulate(crowd(seed, limits, 64));
        never_exceeded(&records)?;
    }
}

#[tokio::test(start_paused = true)]
async fn r32_childs_spending_counts_against_its_parents_budget() {
    let limits = Limits::default().cost_usd("1.00").unwrap().children(64);
    let records = crowd(7, limits, 64).await;
    never_exceeded(&records).unwrap();
    let mut tree = RunTree::default();
    records.iter().for_each(|record| tree.apply(record).unwrap());
    let spent = tree.root().unwrap().subtree.usage.cost_micros;
    assert!((700_000..=1_000_000).contains(&spent), "most of the dollar is used, but no more: {spent}");
}
