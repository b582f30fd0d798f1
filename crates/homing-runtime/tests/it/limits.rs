//! Limits: each ends a run with its name, its figures and the partial result.

use std::time::Duration;

use homing_core::{
    envelope::Status,
    limits::{Cap, Limit, Limits},
    message::Usage,
    model::{ModelCard, Rates, ToolChoice},
    scripted_model::{call, last_words, say},
};
use homing_runtime::{SpawnError, Task};
use serde_json::json;

use crate::support::{TestModel, TestSetup, TestTool, agent};

/// A model that always makes another call, each a little different, and reports when tools are off.
fn worker(takes: Duration, card: ModelCard) -> std::sync::Arc<TestModel> {
    TestModel::with(card, takes, |request| {
        let reply = match request.choice {
            ToolChoice::Off => say("what I have"),
            _ => call([("read", json!({"n": request.messages.len()}))]),
        };
        Ok(reply.usage(Usage::default().input(300).output(300)))
    })
}

async fn work(limits: Limits) -> homing_core::envelope::Envelope {
    let model = worker(Duration::from_secs(1), ModelCard::free("script/worker"));
    let setup = TestSetup::new([agent("a")], model).tools([TestTool::simple("read")]);
    setup.run(Task::new("a", "go").limits(limits)).await.0
}

#[tokio::test(start_paused = true)]
async fn r34_limit_ends_the_run_with_its_figures_and_a_report() {
    let turns = work(Limits::default().turns(7)).await;
    assert_eq!((turns.status, turns.usage.turns), (Status::Exhausted, 7));
    assert_eq!(turns.output, "what I have");
    let calls = work(Limits::default().tool_calls(3)).await;
    assert_eq!((calls.status, calls.usage.tool_calls), (Status::Exhausted, 3));
    assert_eq!(calls.limit.unwrap().name.name(), "tool_calls");
    let tokens = work(Limits::default().tokens(12_000)).await;
    assert_eq!(tokens.status, Status::Exhausted);
    let hit = tokens.limit.unwrap();
    assert_eq!((hit.name.name(), hit.limit), ("tokens", 12_000));
    assert!(tokens.usage.input + tokens.usage.output <= 12_000);
    assert_eq!(tokens.output, "what I have");
}

#[tokio::test(start_paused = true)]
async fn r31_run_lands_at_nine_tenths_of_its_time() {
    let envelope = work(Limits::default().wall(Duration::from_secs(20))).await;
    assert_eq!(envelope.status, Status::TimedOut);
    assert_eq!(envelope.output, "what I have");
    assert!((18_000..=20_000).contains(&envelope.usage.wall_ms), "{}", envelope.usage.wall_ms);
}

#[tokio::test(start_paused = true)]
async fn model_that_never_answers_is_abandoned_at_the_deadline() {
    let model = worker(Duration::from_secs(1_000_000), ModelCard::free("script/worker"));
    let setup = TestSetup::new([agent("a")], model);
    let started = tokio::time::Instant::now();
    let (envelope, _) = setup.run(Task::new("a", "go").limits(Limits::default().wall(Duration::from_secs(5)))).await;
    assert_eq!(envelope.status, Status::TimedOut);
    assert!(started.elapsed() < Duration::from_secs(6));
    assert!(envelope.usage.estimated, "an abandoned model call is charged");
}

#[tokio::test(start_paused = true)]
async fn one_turn_is_enough_for_an_answer() {
    let model = TestModel::new(|request| {
        assert_eq!(request.choice, ToolChoice::Off);
        Ok(say("hello"))
    });
    let (envelope, _) =
        TestSetup::new([agent("a")], model).run(Task::new("a", "hi").limits(Limits::default().turns(1))).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "hello"));
}

#[tokio::test(start_paused = true)]
async fn inv29_parents_limit_applies_to_its_children() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len(), request.choice) {
            (_, _, ToolChoice::Off) => say("what I have"),
            ("lead", 1, _) => call([("delegate", json!({"agent": "scout", "task": "x"}))]),
            ("lead", _, _) => say(last_words(&request)),
            (_, n, _) => call([("read", json!({"n": n}))]),
        })
    });
    let setup = TestSetup::new([agent("lead"), agent("scout")], model).tools([TestTool::simple("read")]);
    let (envelope, _) = setup.run(Task::new("lead", "go").limits(Limits::default().tool_calls(10))).await;
    let child = &envelope.children[0];
    assert_eq!((child.status, child.usage.tool_calls), (Status::Exhausted, 9));
    assert_eq!(child.limit.as_ref().unwrap().place.to_string(), "1");
    assert_eq!(envelope.subtree.tool_calls, 10);
    assert!(envelope.output.contains("tool_calls limit 10 of run 1"), "{}", envelope.output);
}

#[tokio::test(start_paused = true)]
async fn turn_limit_of_a_parent_does_not_limit_its_children() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "scout", "task": "x"}))]),
            ("lead", _) => say("done"),
            (_, n) if n < 20 => call([("read", json!({"n": n}))]),
            _ => say("found"),
        })
    });
    let setup = TestSetup::new([agent("lead"), agent("scout")], model).tools([TestTool::simple("read")]);
    let (envelope, _) = setup.run(Task::new("lead", "go").limits(Limits::default().turns(3))).await;
    assert_eq!(envelope.children[0].status, Status::Done);
}

fn priced(rates: Option<Rates>) -> ModelCard {
    ModelCard::free("script/priced").rates(rates)
}

#[tokio::test(start_paused = true)]
async fn inv30_cost_limit_without_a_price_is_refused_before_any_request() {
    let model = worker(Duration::ZERO, priced(None));
    let setup = TestSetup::new([agent("a")], model.clone());
    let (runtime, _) = setup.open();
    let limits = Limits::default().cost_usd("0.50").unwrap();
    let refused = runtime.spawn(Task::new("a", "go").limits(limits));
    assert!(matches!(refused, Err(SpawnError::UnknownPrice { .. })));
    assert_eq!(model.times_asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn unknown_price_replaces_the_default_cost_limit_by_tokens() {
    let model = TestModel::with(priced(None), Duration::ZERO, |_| Ok(say("hi")));
    let (runtime, _) = TestSetup::new([agent("a")], model).open();
    let run = runtime.spawn(Task::new("a", "go")).unwrap();
    let envelope = crate::support::wait_for(&run).await;
    assert!(envelope.warnings[0].contains("5000000 tokens"), "{:?}", envelope.warnings);
    assert_eq!(run.tree().root().unwrap().limits.tokens, Cap::At(5_000_000));
}

#[tokio::test(start_paused = true)]
async fn estimated_output_is_charged_instead_of_the_reservation() {
    let rates = Rates::default().output(15_000_000);
    let model = TestModel::with(priced(Some(rates)), Duration::ZERO, |_| {
        Ok(say("hi").usage(Usage::default().output(7).estimated(true)))
    });
    let (envelope, _) = TestSetup::new([agent("a")], model).run(Task::new("a", "go")).await;
    let usage = envelope.usage;
    assert_eq!((usage.output, usage.cost_micros, usage.estimated), (7, 105, true));
    assert!(usage.input > 0, "the input is bounded by the request");
}

#[tokio::test(start_paused = true)]
async fn r33_cost_is_summed_exactly_over_the_tree() {
    let rates = Rates::default().input(3_000_000).output(15_000_000);
    let model = TestModel::with(priced(Some(rates)), Duration::from_millis(5), |request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call((0..5).map(|n| ("delegate", json!({"agent": "scout", "task": n.to_string()})))),
            ("lead", _) => say("sum"),
            _ => say("part"),
        })
    });
    let (envelope, _) = TestSetup::new([agent("lead"), agent("scout")], model).run(Task::new("lead", "go")).await;
    // Ten input tokens at $3 and five output tokens at $15 per million cost 105 millionths of a dollar.
    assert_eq!(envelope.subtree.cost_micros, 7 * 105);
    assert_eq!(envelope.usage.cost_micros, 2 * 105);
    assert_eq!(envelope.children.iter().map(|child| child.subtree.cost_micros).sum::<u64>(), 5 * 105);
}

#[tokio::test(start_paused = true)]
async fn output_shrinks_to_the_budget_before_the_run_ends() {
    let rates = Rates::default().output(1_000_000);
    let model = TestModel::with(priced(Some(rates)), Duration::ZERO, |request| Ok(say(request.max_output.to_string())));
    let limits = Limits::default().cost_usd("0.005").unwrap();
    let (envelope, _) = TestSetup::new([agent("a")], model).run(Task::new("a", "go").limits(limits)).await;
    let asked: u64 = envelope.output.parse().unwrap();
    assert!((1_024..5_000).contains(&asked), "{asked}");
    assert_eq!(envelope.status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn output_fits_a_small_context() {
    let requested_output = |window: u64, task: String| async move {
        let card = ModelCard::free("script/small").context_window(window);
        let model = TestModel::with(card, Duration::ZERO, |request| Ok(say(request.max_output.to_string())));
        let (envelope, _) = TestSetup::new([agent("a")], model).run(Task::new("a", task)).await;
        envelope.output.parse::<u64>().unwrap()
    };
    let small = requested_output(4_096, "go".to_owned()).await;
    assert!((1_025..4_096).contains(&small), "{small}");
    assert_eq!(requested_output(4_096, "long ".repeat(1_000)).await, 1_024, "a quarter is always left");
    assert_eq!(requested_output(200_000, "go".to_owned()).await, 8_192);
}

#[tokio::test(start_paused = true)]
async fn working_time_limit_does_not_count_waiting() {
    // A child that waits twenty minutes for its own child is not stopped by its limit on work.
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "middle", "task": "x"}))]),
            ("middle", 1) => call([
                ("delegate", json!({"agent": "leaf", "task": "1"})),
                ("delegate", json!({"agent": "leaf", "task": "2"})),
            ]),
            ("leaf", n) if n < 5 => call([("slow", json!({"n": n}))]),
            _ => say("back"),
        })
    });
    let slow = TestTool::new("slow", Default::default(), Duration::from_secs(400), |_| Default::default());
    let agents = [agent("lead"), agent("middle"), agent("leaf")];
    let (envelope, _) = TestSetup::new(agents, model).tools([slow]).run(Task::new("lead", "go")).await;
    assert_eq!(envelope.children[0].status, Status::Done);
    let limits = Limits::default().with(Limit::Work, Cap::At(500_000));
    let mut leaf = agent("lead");
    leaf.limits = limits;
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            n if n < 9 => call([("slow", json!({"n": n}))]),
            _ => say("back"),
        })
    });
    let slow = TestTool::new("slow", Default::default(), Duration::from_secs(400), |_| Default::default());
    let (envelope, _) = TestSetup::new([leaf], model).tools([slow]).run(Task::new("lead", "go")).await;
    assert_eq!((envelope.status, envelope.limit.unwrap().name.name()), (Status::TimedOut, "work"));
}

#[tokio::test(start_paused = true)]
async fn exhausted_run_continues_with_a_larger_limit() {
    let model = TestModel::new(|request| {
        let reads = request
            .messages
            .iter()
            .filter(|entry| matches!(entry.message, homing_core::message::Message::Tool(_)))
            .count();
        Ok(match request.choice {
            ToolChoice::Off => say("so far"),
            _ if reads < 6 => call([("read", json!({"n": reads}))]),
            _ => say("finished"),
        })
    });
    let setup = TestSetup::new([agent("a")], model).tools([TestTool::simple("read")]);
    let (runtime, _) = setup.open();
    let run = runtime.spawn(Task::new("a", "go").limits(Limits::default().turns(4))).unwrap();
    let envelope = crate::support::wait_for(&run).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Exhausted, "so far"));
    assert!(envelope.resumable);
    let more = Limits::default().turns(10);
    let again = runtime.resume(run.id(), homing_runtime::journal::Claim::IfGone, more).await.unwrap();
    let envelope = crate::support::wait_for(&again).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "finished"));
    assert_eq!(envelope.usage.tool_calls, 6, "nothing was repeated");
}

#[tokio::test(start_paused = true)]
async fn tool_under_way_is_ended_so_that_the_run_can_land() {
    let model = worker(Duration::from_secs(1), ModelCard::free("script/worker"));
    let slow = TestTool::new("read", Default::default(), Duration::from_secs(6_000), |_| Default::default());
    let setup = TestSetup::new([agent("a")], model).tools([slow.clone()]);
    let limits = Limits::default().wall(Duration::from_secs(60));
    let (envelope, _) = setup.run(Task::new("a", "go").limits(limits)).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::TimedOut, "what I have"));
    assert_eq!((slow.times_called(), envelope.usage.turns), (1, 2));
    assert!((54_000..=60_000).contains(&envelope.usage.wall_ms), "{}", envelope.usage.wall_ms);
}

#[tokio::test(start_paused = true)]
async fn slow_replies_leave_time_for_the_landing() {
    let model = worker(Duration::from_secs(14), ModelCard::free("script/worker"));
    let setup = TestSetup::new([agent("a")], model).tools([TestTool::simple("read")]);
    let limits = Limits::default().wall(Duration::from_secs(60));
    let (envelope, _) = setup.run(Task::new("a", "go").limits(limits)).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::TimedOut, "what I have"));
    assert_eq!((envelope.usage.turns, envelope.usage.wall_ms), (4, 56_000), "the landing begins after 42 s");
}

#[tokio::test(start_paused = true)]
async fn limit_too_small_for_the_first_call_names_its_cost_and_spends_nothing() {
    let rates = Rates::default().input(3_000_000).output(15_000_000);
    let model = worker(Duration::ZERO, priced(Some(rates)));
    let limits = Limits::default().cost_usd("0.005").unwrap();
    let setup = TestSetup::new([agent("a")], model.clone());
    let (envelope, _) = setup.run(Task::new("a", "go").limits(limits)).await;
    assert_eq!((envelope.status, model.times_asked()), (Status::Exhausted, 0));
    assert!(envelope.output.starts_with("Not started: its first model call"), "{}", envelope.output);
    assert!(envelope.output.contains("may cost up to $0.0"), "{}", envelope.output);
    let (planned, _) = setup.open().0.plan(Task::new("a", "go").limits(limits)).unwrap();
    let why = envelope.output.replace("Not started", "this run cannot start");
    assert_eq!(planned.warnings, [why], "a plan says the same");
    let again = setup.run(Task::new("a", "go").limits(Limits::default().tokens(1_500))).await.0;
    assert!(
        again.output.contains("tokens. The tokens limit of run 1 is 1500, of which 0 are spent"),
        "{}",
        again.output
    );
}

#[tokio::test(start_paused = true)]
async fn most_of_a_small_limit_can_be_used() {
    for usd in ["0.05", "0.10", "1.00", "5.00"] {
        let rates = Rates::default().input(2_500_000).output(10_000_000);
        let model = worker(Duration::ZERO, priced(Some(rates)));
        let setup = TestSetup::new([agent("a")], model).tools([TestTool::simple("read")]);
        let limits = Limits::default().with(Limit::Turns, Cap::Unlimited).with(Limit::ToolCalls, Cap::Unlimited);
        let limits = limits.cost_usd(usd).unwrap();
        let (envelope, _) = setup.run(Task::new("a", "go").limits(limits)).await;
        let (spent, limit) = (envelope.usage.cost_micros, limits.cost_micros.value().unwrap());
        assert!(spent <= limit && spent >= limit * 8 / 10, "{spent} of {limit}");
        assert_eq!(envelope.output, "what I have");
    }
}

#[tokio::test(start_paused = true)]
async fn provider_that_exceeds_what_was_asked_gets_larger_reservations() {
    let rates = Rates::default().input(2_500_000).output(10_000_000);
    let model = TestModel::with(priced(Some(rates)), Duration::ZERO, |request| {
        let reply = match request.choice {
            ToolChoice::Off => say("what I have"),
            _ => call([("read", json!({"n": request.messages.len()}))]),
        };
        // Twice the permitted output at a small room, twice the input always.
        let output = (2 * request.max_output).min(3_000);
        Ok(reply.usage(Usage::default().input(3_000).output(output)))
    });
    let setup = TestSetup::new([agent("a")], model).tools([TestTool::simple("read")]);
    let limits = Limits::default().with(Limit::Turns, Cap::Unlimited).with(Limit::ToolCalls, Cap::Unlimited);
    let limits = limits.cost_usd("0.50").unwrap();
    let (envelope, _) = setup.run(Task::new("a", "go").limits(limits)).await;
    // Each excess is learned once, so the limit is passed by no more than one call.
    assert!(envelope.usage.cost_micros <= 525_000, "{}", envelope.usage.cost_micros);
    assert_eq!(envelope.status, Status::Exhausted);
}
