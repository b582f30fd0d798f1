//! Cut anywhere: every scenario is also played with its journal cut after each record, and resumed. It comes to the same
//! end, and nothing that was recorded is paid, asked or done a second time.

use std::{sync::Arc, time::Duration};

use homing_core::{
    envelope::{Envelope, Status},
    fact::{Fact, Record},
    limits::Limits,
    message::Message,
    model::{AskFailure, Model, ModelError, ToolChoice},
    scripted_model::{call, last_words, say},
    tool::{Replay, ToolOutput},
};
use homing_runtime::{
    Runtime, Task,
    journal::{Claim, MemoryJournal},
};
use serde_json::json;

use crate::cut_replies::{cut, cut_in_call};
use crate::stage::{Actor, Prop, Rehearsal, Stage, agent, home, root_id};

/// A scenario: a fresh stage each time, since actors and props keep logs.
pub struct Scenario {
    pub stage: fn() -> (Stage, Arc<Actor>),
    pub task: fn() -> Task,
}

fn staged(agents: &[&str], model: Arc<Actor>, tools: Vec<Arc<Prop>>) -> (Stage, Arc<Actor>) {
    let stage = Stage::new(agents.iter().map(|name| agent(name)), model.clone() as Arc<dyn Model>).tools(tools);
    (stage, model)
}

fn lead_scouts_and_tools() -> (Stage, Arc<Actor>) {
    let model = Actor::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([
                ("delegate", json!({"agent": "scout", "task": "left"})),
                ("look", json!({"at": "map"})),
                ("delegate", json!({"agent": "scout", "task": "right"})),
            ]),
            ("lead", 5) => say("mapped"),
            ("scout", 1) => call([("look", json!({"at": last_words(&request)}))]),
            ("scout", 3) => call([("mark", json!({"n": 1}))]),
            _ => say("scouted"),
        })
    });
    let look = Prop::new("look", Replay::Safe, Duration::from_millis(30), |args| ToolOutput::text(args.to_string()));
    let mark = Prop::new("mark", Replay::Keyed, Duration::from_millis(30), |_| ToolOutput::text("marked"));
    staged(&["lead", "scout"], model, vec![look, mark])
}

fn background_and_follow_up() -> (Stage, Arc<Actor>) {
    let model = Actor::new(|request| {
        let told = request
            .messages
            .iter()
            .any(|it| matches!(&it.message, Message::User { text, .. } if text.starts_with("A background")));
        Ok(match (request.system, told, request.messages.len()) {
            ("lead", false, 1) => call([("delegate", json!({"agent": "scout", "task": "x", "background": true}))]),
            ("lead", false, _) => say("waiting"),
            ("lead", true, n) if n <= 5 => call([("tell", json!({"run": "1.1", "message": "more"}))]),
            ("lead", true, _) => say("both heard"),
            _ => say("scouted"),
        })
    });
    staged(&["lead", "scout"], model, vec![])
}

fn structured_after_repair() -> (Stage, Arc<Actor>) {
    let model = Actor::new(|request| {
        Ok(match request.messages.len() {
            1 => say("prose first"),
            3 => call([("answer", json!({"n": 7}))]),
            _ => say("too late"),
        })
    });
    staged(&["a"], model, vec![])
}

fn landing_on_turns() -> (Stage, Arc<Actor>) {
    let model = Actor::new(|request| {
        Ok(match request.choice {
            ToolChoice::Off => say("what I have"),
            _ => call([("look", json!({"n": request.messages.len()}))]),
        })
    });
    staged(&["a"], model, vec![Prop::simple("look")])
}

fn going_round_in_circles() -> (Stage, Arc<Actor>) {
    let model = Actor::new(|request| {
        Ok(if request.choice == ToolChoice::Off { say("dizzy") } else { call([("look", json!({}))]) })
    });
    staged(&["a"], model, vec![Prop::simple("look")])
}

fn context_full() -> (Stage, Arc<Actor>) {
    let model = Actor::new(|request| {
        if request.system.starts_with("You keep the notes") {
            return Ok(say("noted"));
        }
        let noted = format!("{:?}", request.messages[0].message).contains("noted");
        match (noted, request.messages.len()) {
            (true, _) => Ok(say("done with notes")),
            (false, n) if n > 9 => Err(AskFailure::free(ModelError::ContextFull { reason: "full".into() })),
            (false, n) => Ok(call([("look", json!({"n": n}))])),
        }
    });
    staged(&["a"], model, vec![Prop::simple("look")])
}

/// Text cut once and continued, after a cut call that is made again.
fn cut_and_continued() -> (Stage, Arc<Actor>) {
    let model = Actor::new(|request| {
        Ok(match request.messages.len() {
            1 => cut_in_call("look", "{\"at\": "),
            3 => call([("look", json!({}))]),
            5 => cut("mapp"),
            _ => say("ed"),
        })
    });
    staged(&["a"], model, vec![Prop::simple("look")])
}

fn cut_three_times() -> (Stage, Arc<Actor>) {
    let model = Actor::new(|request| Ok(cut(&format!("{} ", request.messages.len()))));
    staged(&["a"], model, vec![])
}

pub const SCENARIOS: &[(&str, Scenario)] = &[
    ("scouts", Scenario { stage: lead_scouts_and_tools, task: || Task::new("lead", "go") }),
    ("background", Scenario { stage: background_and_follow_up, task: || Task::new("lead", "go") }),
    (
        "structured",
        Scenario { stage: structured_after_repair, task: || Task::new("a", "go").schema(json!({"type": "object"})) },
    ),
    ("landing", Scenario { stage: landing_on_turns, task: || Task::new("a", "go").limits(Limits::default().turns(4)) }),
    (
        "calls",
        Scenario { stage: landing_on_turns, task: || Task::new("a", "go").limits(Limits::default().tool_calls(3)) },
    ),
    ("circles", Scenario { stage: going_round_in_circles, task: || Task::new("a", "go") }),
    ("context", Scenario { stage: context_full, task: || Task::new("a", "go") }),
    ("cut and continued", Scenario { stage: cut_and_continued, task: || Task::new("a", "go") }),
    ("cut three times", Scenario { stage: cut_three_times, task: || Task::new("a", "go") }),
];

pub fn count(records: &[Arc<Record>], wanted: fn(&Fact) -> bool) -> usize {
    records.iter().filter(|record| wanted(&record.fact)).count()
}

pub fn answered(fact: &Fact) -> bool {
    matches!(fact, Fact::Replied { .. } | Fact::AskFailed { .. })
}

pub fn asked(fact: &Fact) -> bool {
    matches!(fact, Fact::Asked(_))
}

pub fn same_end(name: &str, cut: usize, whole: &Envelope, resumed: &Envelope) {
    let shape = |it: &Envelope| (it.place.to_string(), it.status, it.output.clone(), it.data.clone());
    let ends = |it: &Envelope| it.all().into_iter().map(shape).collect::<Vec<_>>();
    assert_eq!(ends(whole), ends(resumed), "{name} cut after {cut}");
}

#[tokio::test(start_paused = true)]
async fn inv6_every_scenario_cut_after_each_record_comes_to_the_same_end() {
    for (name, scenario) in SCENARIOS {
        let (stage, actor) = (scenario.stage)();
        let (whole, journal) = stage.play((scenario.task)()).await;
        assert!(whole.status.is_over());
        let asks = actor.times_asked();
        let records = journal.records(root_id());
        for cut in 1..records.len() {
            let prefix = &records[..cut];
            let (stage, actor) = (scenario.stage)();
            let journal = MemoryJournal::with(prefix.iter().cloned());
            let runtime = Runtime::new(stage.parts(journal.clone(), Rehearsal::after(1_000)));
            let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
            let resumed = home(&run).await;
            same_end(name, cut, &whole, &resumed);
            // What was answered is not asked again; an ask that was open is asked once more.
            let open = count(prefix, asked) - count(prefix, answered);
            assert_eq!(actor.times_asked(), asks - count(prefix, answered), "{name} cut after {cut}");
            let again = journal.records(root_id());
            assert_eq!(count(&again, asked), count(&records, asked) + open, "{name} cut after {cut}");
            let ends = count(&again, |fact| matches!(fact, Fact::Ended(_)));
            assert_eq!(ends, whole.all().len(), "{name} cut after {cut}: every run ends once");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn inv28_sums_are_exact_after_every_cut() {
    for (name, scenario) in SCENARIOS {
        let (stage, _) = (scenario.stage)();
        let (_, journal) = stage.play((scenario.task)()).await;
        let records = journal.records(root_id());
        for cut in 1..records.len() {
            let (stage, _) = (scenario.stage)();
            let journal = MemoryJournal::with(records[..cut].iter().cloned());
            let runtime = Runtime::new(stage.parts(journal, Rehearsal::after(1_000)));
            let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
            let envelope = home(&run).await;
            let sum: u64 = envelope.all().iter().map(|it| it.usage.input + it.usage.output).sum();
            assert_eq!(envelope.subtree.input + envelope.subtree.output, sum, "{name} cut after {cut}");
            assert_eq!(
                run.tree().root().unwrap().held,
                Default::default(),
                "{name} cut after {cut}: nothing stays held"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn inv4_an_unsafe_call_with_unknown_outcome_is_reported_and_never_repeated() {
    let stage = || {
        let model = Actor::new(|request| {
            Ok(match request.messages.len() {
                1 => call([("pay", json!({}))]),
                _ => say(last_words(&request)),
            })
        });
        let pay = Prop::new("pay", Replay::Unsafe, Duration::from_millis(10), |_| ToolOutput::text("paid"));
        (Stage::new([agent("a")], model).tools([pay.clone()]), pay)
    };
    let (first, pay) = stage();
    let (_, journal) = first.play(Task::new("a", "go")).await;
    assert_eq!(pay.times_called(), 1);
    let records = journal.records(root_id());
    for cut in 1..records.len() {
        let (stage, pay) = stage();
        let begun = count(&records[..cut], |fact| matches!(fact, Fact::Called(_)));
        let returned = count(&records[..cut], |fact| matches!(fact, Fact::Returned { .. }));
        let journal = MemoryJournal::with(records[..cut].iter().cloned());
        let runtime = Runtime::new(stage.parts(journal, Rehearsal::after(9)));
        let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
        let envelope = home(&run).await;
        assert_eq!(pay.times_called(), 1 - begun, "cut after {cut}");
        let expected = if begun > returned { "interrupted, outcome unknown" } else { "paid" };
        assert!(envelope.output.starts_with(expected), "cut after {cut}: {}", envelope.output);
        assert_eq!(envelope.status, Status::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn inv5_a_keyed_call_is_repeated_with_the_same_key() {
    let (stage, _) = lead_scouts_and_tools();
    let (_, journal) = stage.play(Task::new("lead", "go")).await;
    let first: std::collections::BTreeSet<String> = stage.tools[1].calls.lock().unwrap().iter().cloned().collect();
    let records = journal.records(root_id());
    let cut = records.iter().position(|it| matches!(&it.fact, Fact::Called(it) if it.call.name == "mark")).unwrap() + 1;
    let (stage, _) = lead_scouts_and_tools();
    let runtime =
        Runtime::new(stage.parts(MemoryJournal::with(records[..cut].iter().cloned()), Rehearsal::after(1_000)));
    let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
    home(&run).await;
    let again: std::collections::BTreeSet<String> = stage.tools[1].calls.lock().unwrap().iter().cloned().collect();
    assert_eq!(first, again);
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_is_over_stays_over() {
    let (stage, _) = landing_on_turns();
    let (whole, journal) = stage.play(Task::new("a", "go").limits(Limits::default().turns(3))).await;
    let (stage, actor) = landing_on_turns();
    let before = journal.records(root_id()).len();
    let runtime = Runtime::new(stage.parts(journal.clone(), Rehearsal::after(9)));
    let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
    assert_eq!(home(&run).await, whole);
    assert_eq!((actor.times_asked(), journal.records(root_id()).len()), (0, before));
}
