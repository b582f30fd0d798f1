//! Limits that hold: each ends a run with its reason, its figures and what it had.

use std::time::Duration;

use homing_core::{
    envelope::Status,
    limits::{Cap, Limits},
    message::{Reply, Usage},
    model::{ModelCard, Rates, ToolChoice},
    scripted_model::{call, last_words, say},
};
use homing_runtime::{SpawnError, Task};
use serde_json::json;

use crate::stage::{Actor, Prop, Stage, agent};

/// A model that works for ever, each time a little differently, and reports when tools are off.
fn worker(takes: Duration, card: ModelCard) -> std::sync::Arc<Actor> {
    Actor::with(card, takes, |request| {
        let reply = match request.choice {
            ToolChoice::Off => say("what I have"),
            _ => call([("read", json!({"n": request.messages.len()}))]),
        };
        Ok(Reply { usage: Usage { input: 300, output: 300, ..Usage::default() }, ..reply })
    })
}

async fn work(limits: Limits) -> homing_core::envelope::Envelope {
    let model = worker(Duration::from_secs(1), ModelCard::free("script/worker"));
    let stage = Stage::new([agent("a")], model).tools([Prop::simple("read")]);
    stage.play(Task::new("a", "go").limits(limits)).await.0
}

#[tokio::test(start_paused = true)]
async fn r34_every_limit_ends_the_run_with_its_name_its_figures_and_a_report() {
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
async fn r31_time_lands_at_nine_tenths_and_is_called_by_its_name() {
    let envelope = work(Limits::default().wall(Duration::from_secs(20))).await;
    assert_eq!(envelope.status, Status::TimedOut);
    assert_eq!(envelope.output, "what I have");
    assert!((18_000..=20_000).contains(&envelope.usage.wall_ms), "{}", envelope.usage.wall_ms);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_answers_is_left_at_the_deadline() {
    let model = worker(Duration::from_secs(1_000_000), ModelCard::free("script/worker"));
    let stage = Stage::new([agent("a")], model);
    let started = tokio::time::Instant::now();
    let (envelope, _) = stage.play(Task::new("a", "go").limits(Limits::default().wall(Duration::from_secs(5)))).await;
    assert_eq!(envelope.status, Status::TimedOut);
    assert!(started.elapsed() < Duration::from_secs(6));
    assert!(envelope.usage.estimated, "an ask that was cut off is charged");
}

#[tokio::test(start_paused = true)]
async fn one_turn_is_enough_for_an_answer() {
    let model = Actor::new(|request| {
        assert_eq!(request.choice, ToolChoice::Off);
        Ok(say("hello"))
    });
    let (envelope, _) =
        Stage::new([agent("a")], model).play(Task::new("a", "hi").limits(Limits::default().turns(1))).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "hello"));
}

#[tokio::test(start_paused = true)]
async fn inv29_a_parents_limit_holds_for_its_children_and_the_parent_gets_a_normal_result() {
    let model = Actor::new(|request| {
        Ok(match (request.system, request.messages.len(), request.choice) {
            (_, _, ToolChoice::Off) => say("what I have"),
            ("lead", 1, _) => call([("delegate", json!({"agent": "scout", "task": "x"}))]),
            ("lead", _, _) => say(last_words(&request)),
            (_, n, _) => call([("read", json!({"n": n}))]),
        })
    });
    let stage = Stage::new([agent("lead"), agent("scout")], model).tools([Prop::simple("read")]);
    let (envelope, _) = stage.play(Task::new("lead", "go").limits(Limits::default().tool_calls(10))).await;
    let child = &envelope.children[0];
    assert_eq!((child.status, child.usage.tool_calls), (Status::Exhausted, 9));
    assert_eq!(child.limit.as_ref().unwrap().place.to_string(), "1");
    assert_eq!(envelope.subtree.tool_calls, 10);
    assert!(envelope.output.contains("tool_calls limit 10 of run 1"), "{}", envelope.output);
}

#[tokio::test(start_paused = true)]
async fn an_ancestors_turns_do_not_limit_its_children() {
    let model = Actor::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "scout", "task": "x"}))]),
            ("lead", _) => say("done"),
            (_, n) if n < 20 => call([("read", json!({"n": n}))]),
            _ => say("found"),
        })
    });
    let stage = Stage::new([agent("lead"), agent("scout")], model).tools([Prop::simple("read")]);
    let (envelope, _) = stage.play(Task::new("lead", "go").limits(Limits::default().turns(3))).await;
    assert_eq!(envelope.children[0].status, Status::Done);
}

fn priced(rates: Option<Rates>) -> ModelCard {
    ModelCard { rates, ..ModelCard::free("script/priced") }
}

#[tokio::test(start_paused = true)]
async fn inv30_an_unknown_price_with_a_money_limit_is_refused_before_the_first_request() {
    let model = worker(Duration::ZERO, priced(None));
    let stage = Stage::new([agent("a")], model.clone());
    let (runtime, _) = stage.open();
    let limits = Limits::default().cost_usd("0.50").unwrap();
    let refused = runtime.spawn(Task::new("a", "go").limits(limits));
    assert!(matches!(refused, Err(SpawnError::UnknownPrice { .. })));
    assert_eq!(model.times_asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_price_turns_the_default_money_limit_into_tokens_with_a_warning() {
    let model = Actor::with(priced(None), Duration::ZERO, |_| Ok(say("hi")));
    let (runtime, _) = Stage::new([agent("a")], model).open();
    let run = runtime.spawn(Task::new("a", "go")).unwrap();
    let envelope = crate::stage::home(&run).await;
    assert!(envelope.warnings[0].contains("5000000 tokens"), "{:?}", envelope.warnings);
    assert_eq!(run.tree().root().unwrap().limits.tokens, Cap::At(5_000_000));
}

#[tokio::test(start_paused = true)]
async fn r33_money_is_summed_up_the_tree_to_the_last_millionth() {
    let rates = Rates { input: 3_000_000, output: 15_000_000, ..Rates::default() };
    let model = Actor::with(priced(Some(rates)), Duration::from_millis(5), |request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call((0..5).map(|n| ("delegate", json!({"agent": "scout", "task": n.to_string()})))),
            ("lead", _) => say("sum"),
            _ => say("part"),
        })
    });
    let (envelope, _) = Stage::new([agent("lead"), agent("scout")], model).play(Task::new("lead", "go")).await;
    // Ten tokens in at $3 and five out at $15 a million are 105 millionths of a dollar.
    assert_eq!(envelope.subtree.cost_micros, 7 * 105);
    assert_eq!(envelope.usage.cost_micros, 2 * 105);
    assert_eq!(envelope.children.iter().map(|it| it.subtree.cost_micros).sum::<u64>(), 5 * 105);
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_made_shorter_before_a_run_is_ended() {
    let rates = Rates { output: 1_000_000, ..Rates::default() };
    let model = Actor::with(priced(Some(rates)), Duration::ZERO, |request| Ok(say(request.max_output.to_string())));
    let limits = Limits::default().cost_usd("0.005").unwrap();
    let (envelope, _) = Stage::new([agent("a")], model).play(Task::new("a", "go").limits(limits)).await;
    let asked: u64 = envelope.output.parse().unwrap();
    assert!((1_024..5_000).contains(&asked), "{asked}");
    assert_eq!(envelope.status, Status::Done);
}

#[tokio::test(start_paused = true)]
async fn a_small_context_holds_the_question_and_the_answer() {
    let asked_for = |window: u64, task: String| async move {
        let card = ModelCard { context_window: Some(window), ..ModelCard::free("script/small") };
        let model = Actor::with(card, Duration::ZERO, |request| Ok(say(request.max_output.to_string())));
        let (envelope, _) = Stage::new([agent("a")], model).play(Task::new("a", task)).await;
        envelope.output.parse::<u64>().unwrap()
    };
    let small = asked_for(4_096, "go".to_owned()).await;
    assert!((1_025..4_096).contains(&small), "{small}");
    assert_eq!(asked_for(4_096, "long ".repeat(1_000)).await, 1_024, "a quarter is always left");
    assert_eq!(asked_for(200_000, "go".to_owned()).await, 8_192);
}

#[tokio::test(start_paused = true)]
async fn a_delegated_run_has_fifteen_minutes_of_own_work_waiting_not_counted() {
    // A child that waits twenty minutes for its own child is not stopped by its limit on work.
    let model = Actor::new(|request| {
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
    let slow = Prop::new("slow", Default::default(), Duration::from_secs(400), |_| Default::default());
    let agents = [agent("lead"), agent("middle"), agent("leaf")];
    let (envelope, _) = Stage::new(agents, model).tools([slow]).play(Task::new("lead", "go")).await;
    assert_eq!(envelope.children[0].status, Status::Done);
    let limits = Limits { work_ms: Cap::At(500_000), ..Limits::default() };
    let leaf = homing_core::definition::AgentDefinition { limits, ..agent("lead") };
    let model = Actor::new(|request| {
        Ok(match request.messages.len() {
            n if n < 9 => call([("slow", json!({"n": n}))]),
            _ => say("back"),
        })
    });
    let slow = Prop::new("slow", Default::default(), Duration::from_secs(400), |_| Default::default());
    let (envelope, _) = Stage::new([leaf], model).tools([slow]).play(Task::new("lead", "go")).await;
    assert_eq!((envelope.status, envelope.limit.unwrap().name.name()), (Status::TimedOut, "work"));
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_run_goes_on_when_it_is_given_more() {
    let model = Actor::new(|request| {
        let reads =
            request.messages.iter().filter(|it| matches!(it.message, homing_core::message::Message::Tool(_))).count();
        Ok(match request.choice {
            ToolChoice::Off => say("so far"),
            _ if reads < 6 => call([("read", json!({"n": reads}))]),
            _ => say("finished"),
        })
    });
    let stage = Stage::new([agent("a")], model).tools([Prop::simple("read")]);
    let (runtime, _) = stage.open();
    let run = runtime.spawn(Task::new("a", "go").limits(Limits::default().turns(4))).unwrap();
    let envelope = crate::stage::home(&run).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Exhausted, "so far"));
    assert!(envelope.resumable);
    let more = Limits::default().turns(10);
    let again = runtime.resume(run.id(), homing_runtime::journal::Claim::IfGone, more).await.unwrap();
    let envelope = crate::stage::home(&again).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "finished"));
    assert_eq!(envelope.usage.tool_calls, 6, "nothing was repeated");
}
