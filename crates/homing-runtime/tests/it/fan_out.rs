//! Fan-outs under tight budgets: landings are reserved, children are admitted, and the money is used.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use homing_core::{
    BoxFuture,
    envelope::{Envelope, Status},
    limits::{Cap, Limit, Limits},
    message::{Reply, Usage},
    model::{AskFailure, Model, ModelCard, ModelRequest, OnDelta, Rates, ToolChoice},
    scripted_model::{call, say},
};
use homing_runtime::Task;
use serde_json::json;

use crate::support::{TestSetup, TestTool, agent, agent_with};

fn rates() -> Rates {
    Rates::default().input(2_500_000).cached(2_500_000).cache_write(2_500_000).output(10_000_000)
}

/// A provider that bills what it was sent and what it answered, and keeps its own account.
struct Provider {
    card: ModelCard,
    takes: Duration,
    /// Output tokens of each reply.
    says: u64,
    /// Calls that a worker makes before it answers.
    calls: usize,
    children: usize,
    log: Mutex<Vec<Usage>>,
}

impl Provider {
    fn new(children: usize, calls: usize) -> Arc<Self> {
        let card = ModelCard::free("script/paid").rates(rates()).max_output(32_000);
        let (takes, says) = (Duration::from_secs(1), 40);
        Arc::new(Self { card, takes, says, calls, children, log: Mutex::default() })
    }

    fn decide(&self, request: ModelRequest<'_>) -> Reply {
        let turn = request.messages.len();
        if request.choice == ToolChoice::Off {
            return say("what I have");
        }
        match (request.system, turn) {
            ("lead", 1) => {
                let delegate = |n| ("delegate", json!({"agent": "worker", "task": format!("part {n}")}));
                call((0..self.children).map(delegate))
            }
            ("lead", _) => say("all of it"),
            (_, turn) if turn < 2 * self.calls - 1 => call([("read", json!({"n": turn}))]),
            _ => say("my part"),
        }
    }

    /// Tokens and micro-dollars that the provider has billed.
    fn billed(&self) -> (u64, u64) {
        let log = self.log.lock().unwrap();
        (log.iter().map(Usage::tokens).sum(), log.iter().map(|usage| rates().cost(usage)).sum())
    }
}

impl Model for Provider {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(&'a self, request: ModelRequest<'a>, _: OnDelta<'a>) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let bytes: u64 = request.messages.iter().map(|entry| entry.size()).sum::<u64>();
            let tools = serde_json::to_vec(&request.tools.specs).unwrap().len() as u64;
            let input = (bytes + tools + request.system.len() as u64) / 4 + 220;
            let usage = Usage::default().input(input).output(self.says.min(request.max_output));
            self.log.lock().unwrap().push(usage);
            let reply = self.decide(request);
            tokio::time::sleep(self.takes).await;
            Ok(reply.usage(usage))
        })
    }
}

fn done(envelope: &Envelope) -> usize {
    envelope.children.iter().filter(|child| child.status == Status::Done).count()
}

async fn fan_out(provider: &Arc<Provider>, limits: Limits, parallel: usize) -> Envelope {
    let tools = [TestTool::simple("read")];
    let mut setup = TestSetup::new([agent("lead"), agent_with("worker", &["read"])], provider.clone()).tools(tools);
    (setup.config.max_runs, setup.config.max_asks) = (parallel, parallel);
    let limits = limits.with(Limit::Children, Cap::Unlimited).with(Limit::ToolCalls, Cap::Unlimited);
    setup.run(Task::new("lead", "go").limits(limits)).await.0
}

fn has_answers(envelope: &Envelope) {
    assert!(!envelope.output.trim().is_empty(), "the root's answer is not empty:\n{}", envelope.tree());
    for run in envelope.all() {
        assert!(!run.output.trim().is_empty(), "run {} has no result:\n{}", run.place, envelope.tree());
    }
}

fn mean_of_finished(envelope: &Envelope) -> u64 {
    let finished = envelope.children.iter().filter(|child| child.status == Status::Done);
    finished.map(|child| child.usage.input + child.usage.output).sum::<u64>() / done(envelope).max(1) as u64
}

#[tokio::test(start_paused = true)]
async fn r51_fan_out_at_its_limit_always_answers_and_never_passes_it() {
    for children in [8, 64, 200] {
        let token_limits = [8_000, 30_000, 100_000].map(|tokens| Limits::default().tokens(tokens));
        let cost_limits = ["0.05", "0.30"].map(|usd| Limits::default().cost_usd(usd).unwrap());
        for limits in token_limits.into_iter().chain(cost_limits) {
            let provider = Provider::new(children, 9);
            let envelope = fan_out(&provider, limits, 16).await;
            has_answers(&envelope);
            let (tokens, cost) = provider.billed();
            assert!(limits.tokens.value().is_none_or(|limit| tokens <= limit), "{tokens} tokens were billed");
            assert!(limits.cost_micros.value().is_none_or(|limit| cost <= limit), "{cost} micro-dollars were billed");
            assert_eq!(
                (envelope.subtree.input + envelope.subtree.output, envelope.subtree.cost_micros),
                (tokens, cost)
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tight_budget_finishes_most_of_the_children_it_can_pay_for() {
    let provider = Provider::new(64, 9);
    let envelope = fan_out(&provider, Limits::default().tokens(100_000), 16).await;
    has_answers(&envelope);
    let (finished, each) = (done(&envelope), mean_of_finished(&envelope));
    assert!(each >= 4_700, "{each} tokens per child");
    assert!(finished >= 18, "{finished} of 64 finished:\n{}", envelope.tree());
}

#[tokio::test(start_paused = true)]
async fn r50_reservations_do_not_throttle_a_job_that_the_limit_can_pay() {
    let wall = |usd: &'static str| async move {
        let provider = Provider::new(100, 4);
        let started = tokio::time::Instant::now();
        let envelope = fan_out(&provider, Limits::default().cost_usd(usd).unwrap(), 100).await;
        assert_eq!((envelope.status, done(&envelope)), (Status::Done, 100), "{usd}:\n{}", envelope.tree());
        started.elapsed().as_secs_f64()
    };
    let (unlimited, default, one) = (wall("100").await, wall("5").await, wall("1").await);
    assert!(default <= 1.2 * unlimited, "{default} s instead of {unlimited} s");
    assert!(one <= 2.0 * unlimited, "{one} s instead of {unlimited} s");
}
