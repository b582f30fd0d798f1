//! Resumption at every point: each scenario is also run with its journal cut after each record, and resumed. It ends the
//! same, and nothing that was recorded is charged, asked or executed a second time.

use std::{sync::Arc, time::Duration};

use homing_core::{
    envelope::{Envelope, Status},
    fact::{Fact, Record},
    limits::Limits,
    message::Message,
    model::{AskFailure, Model, ModelError, ToolChoice},
    scripted_model::{call, last_words, say},
    skill::{SkillCard, SkillSettings},
    tool::{Replay, ToolOutput},
};
use homing_runtime::{
    Runtime, Task,
    journal::{Claim, MemoryJournal},
};
use serde_json::json;

use crate::cut_replies::{cut, cut_in_call};
use crate::support::{OneSkill, SimulatedWorld, TestModel, TestSetup, TestTool, agent, root_id, wait_for};

/// A scenario, which makes a new setup each time, because models and tools keep logs.
pub struct Scenario {
    pub setup: fn() -> (TestSetup, Arc<TestModel>),
    pub task: fn() -> Task,
}

fn staged(agents: &[&str], model: Arc<TestModel>, tools: Vec<Arc<TestTool>>) -> (TestSetup, Arc<TestModel>) {
    let setup = TestSetup::new(agents.iter().map(|name| agent(name)), model.clone() as Arc<dyn Model>).tools(tools);
    (setup, model)
}

fn lead_scouts_and_tools() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| {
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
    let look =
        TestTool::new("look", Replay::Safe, Duration::from_millis(30), |args| ToolOutput::text(args.to_string()));
    let mark = TestTool::new("mark", Replay::Keyed, Duration::from_millis(30), |_| ToolOutput::text("marked"));
    staged(&["lead", "scout"], model, vec![look, mark])
}

fn background_and_follow_up() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| {
        let told = request
            .messages
            .iter()
            .any(|entry| matches!(&entry.message, Message::User { text, .. } if text.starts_with("A background")));
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

fn structured_after_repair() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            1 => say("prose first"),
            3 => call([("answer", json!({"n": 7}))]),
            _ => say("too late"),
        })
    });
    staged(&["a"], model, vec![])
}

/// JSON as text that does not match the schema, then JSON that does.
fn structured_as_text() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            1 => say("```json\n{\"m\": 7}\n```"),
            3 => say("{\"n\": 7}"),
            _ => say("too late"),
        })
    });
    staged(&["a"], model, vec![])
}

/// Finds a tool among many, calls it, and looks whether it is still loaded.
fn tools_on_demand() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| {
        let has = |name: &str| request.tools.specs.iter().any(|spec| spec.name == name);
        let (search, loaded) = (has("find_tools"), has("mcp__many__tool_77"));
        Ok(match (request.messages.len(), search, loaded) {
            (1, true, false) => call([("find_tools", json!({"query": "mcp__many__tool_77"}))]),
            (3, true, true) => call([("mcp__many__tool_77", json!({}))]),
            (5, true, true) => say("still loaded"),
            _ => say(format!("{} tools", request.tools.specs.len())),
        })
    });
    staged(&["a"], model, (0..150).map(|n| TestTool::simple(&format!("mcp__many__tool_{n}"))).collect())
}

fn landing_on_turns() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| {
        Ok(match request.choice {
            ToolChoice::Off => say("what I have"),
            _ => call([("look", json!({"n": request.messages.len()}))]),
        })
    });
    staged(&["a"], model, vec![TestTool::simple("look")])
}

fn going_round_in_circles() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| {
        Ok(if request.choice == ToolChoice::Off { say("dizzy") } else { call([("look", json!({}))]) })
    });
    staged(&["a"], model, vec![TestTool::simple("look")])
}

fn context_full() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| {
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
    staged(&["a"], model, vec![TestTool::simple("look")])
}

/// Text cut once and continued, after a cut call that is made again.
fn cut_and_continued() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            1 => cut_in_call("look", "{\"at\": "),
            3 => call([("look", json!({}))]),
            5 => cut("mapp"),
            _ => say("ed"),
        })
    });
    staged(&["a"], model, vec![TestTool::simple("look")])
}

fn cut_three_times() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| Ok(cut(&format!("{} ", request.messages.len()))));
    staged(&["a"], model, vec![])
}

/// A skill that runs on its own, and a follow-up by another tool.
fn forked_skill() -> (TestSetup, Arc<TestModel>) {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("skill", json!({"name": "audit", "arguments": "x"})), ("look", json!({}))]),
            ("lead", _) => say("audited"),
            ("scout", 1) => call([("look", json!({"at": last_words(&request)}))]),
            _ => say("clean"),
        })
    });
    let (mut setup, model) =
        staged(&["lead", "scout"], model, vec![TestTool::simple("skill"), TestTool::simple("look")]);
    let settings = SkillSettings { fork: true, agent: Some("scout".into()), ..SkillSettings::default() };
    let card = SkillCard { name: "audit".into(), settings, ..SkillCard::default() };
    setup.skills = Some(OneSkill::new(card, "Audit $ARGUMENTS."));
    // The caller must not hold the only slot while it waits for the skill.
    setup.config.max_runs = 1;
    (setup, model)
}

pub const SCENARIOS: &[(&str, Scenario)] = &[
    ("scouts", Scenario { setup: lead_scouts_and_tools, task: || Task::new("lead", "go") }),
    ("background", Scenario { setup: background_and_follow_up, task: || Task::new("lead", "go") }),
    (
        "structured",
        Scenario { setup: structured_after_repair, task: || Task::new("a", "go").schema(json!({"type": "object"})) },
    ),
    (
        "structured as text",
        Scenario {
            setup: structured_as_text,
            task: || Task::new("a", "go").schema(json!({"type": "object", "required": ["n"]})),
        },
    ),
    ("forked skill", Scenario { setup: forked_skill, task: || Task::new("lead", "go") }),
    ("tools on demand", Scenario { setup: tools_on_demand, task: || Task::new("a", "go") }),
    ("landing", Scenario { setup: landing_on_turns, task: || Task::new("a", "go").limits(Limits::default().turns(4)) }),
    (
        "calls",
        Scenario { setup: landing_on_turns, task: || Task::new("a", "go").limits(Limits::default().tool_calls(3)) },
    ),
    ("circles", Scenario { setup: going_round_in_circles, task: || Task::new("a", "go") }),
    ("context", Scenario { setup: context_full, task: || Task::new("a", "go") }),
    ("cut and continued", Scenario { setup: cut_and_continued, task: || Task::new("a", "go") }),
    ("cut three times", Scenario { setup: cut_three_times, task: || Task::new("a", "go") }),
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
    let shape = |run: &Envelope| (run.place.to_string(), run.status, run.output.clone(), run.data.clone());
    let ends = |root: &Envelope| root.all().into_iter().map(shape).collect::<Vec<_>>();
    assert_eq!(ends(whole), ends(resumed), "{name} cut after {cut}");
}

#[tokio::test(start_paused = true)]
async fn inv6_run_resumed_after_any_record_ends_the_same() {
    for (name, scenario) in SCENARIOS {
        let (setup, model) = (scenario.setup)();
        let (whole, journal) = setup.run((scenario.task)()).await;
        assert!(whole.status.is_over());
        let asks = model.times_asked();
        let records = journal.records(root_id());
        for cut in 1..records.len() {
            let prefix = &records[..cut];
            let (setup, model) = (scenario.setup)();
            let journal = MemoryJournal::with(prefix.iter().cloned());
            let runtime = Runtime::new(setup.parts(journal.clone(), SimulatedWorld::after(1_000)));
            let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
            let resumed = wait_for(&run).await;
            same_end(name, cut, &whole, &resumed);
            // An answered call is not made again; a call that was open is made once more.
            let open = count(prefix, asked) - count(prefix, answered);
            assert_eq!(model.times_asked(), asks - count(prefix, answered), "{name} cut after {cut}");
            let again = journal.records(root_id());
            assert_eq!(count(&again, asked), count(&records, asked) + open, "{name} cut after {cut}");
            let ends = count(&again, |fact| matches!(fact, Fact::Ended(_)));
            assert_eq!(ends, whole.all().len(), "{name} cut after {cut}: every run ends once");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn inv28_totals_are_exact_after_resuming_at_any_record() {
    for (name, scenario) in SCENARIOS {
        let (setup, _) = (scenario.setup)();
        let (_, journal) = setup.run((scenario.task)()).await;
        let records = journal.records(root_id());
        for cut in 1..records.len() {
            let (setup, _) = (scenario.setup)();
            let journal = MemoryJournal::with(records[..cut].iter().cloned());
            let runtime = Runtime::new(setup.parts(journal, SimulatedWorld::after(1_000)));
            let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
            let envelope = wait_for(&run).await;
            let sum: u64 = envelope.all().iter().map(|run| run.usage.input + run.usage.output).sum();
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
async fn inv4_unsafe_call_with_unknown_outcome_is_never_repeated() {
    let setup = || {
        let model = TestModel::new(|request| {
            Ok(match request.messages.len() {
                1 => call([("pay", json!({}))]),
                _ => say(last_words(&request)),
            })
        });
        let pay = TestTool::new("pay", Replay::Unsafe, Duration::from_millis(10), |_| ToolOutput::text("paid"));
        (TestSetup::new([agent("a")], model).tools([pay.clone()]), pay)
    };
    let (first, pay) = setup();
    let (_, journal) = first.run(Task::new("a", "go")).await;
    assert_eq!(pay.times_called(), 1);
    let records = journal.records(root_id());
    for cut in 1..records.len() {
        let (setup, pay) = setup();
        let begun = count(&records[..cut], |fact| matches!(fact, Fact::Called(_)));
        let returned = count(&records[..cut], |fact| matches!(fact, Fact::Returned { .. }));
        let journal = MemoryJournal::with(records[..cut].iter().cloned());
        let runtime = Runtime::new(setup.parts(journal, SimulatedWorld::after(9)));
        let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
        let envelope = wait_for(&run).await;
        assert_eq!(pay.times_called(), 1 - begun, "cut after {cut}");
        let expected = if begun > returned { "interrupted, outcome unknown" } else { "paid" };
        assert!(envelope.output.starts_with(expected), "cut after {cut}: {}", envelope.output);
        assert_eq!(envelope.status, Status::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn inv5_keyed_call_is_repeated_with_the_same_key() {
    let (setup, _) = lead_scouts_and_tools();
    let (_, journal) = setup.run(Task::new("lead", "go")).await;
    let first: std::collections::BTreeSet<String> = setup.tools[1].calls.lock().unwrap().iter().cloned().collect();
    let records = journal.records(root_id());
    let cut = records
        .iter()
        .position(|record| matches!(&record.fact, Fact::Called(called) if called.call.name == "mark"))
        .unwrap()
        + 1;
    let (setup, _) = lead_scouts_and_tools();
    let runtime =
        Runtime::new(setup.parts(MemoryJournal::with(records[..cut].iter().cloned()), SimulatedWorld::after(1_000)));
    let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
    wait_for(&run).await;
    let again: std::collections::BTreeSet<String> = setup.tools[1].calls.lock().unwrap().iter().cloned().collect();
    assert_eq!(first, again);
}

#[tokio::test(start_paused = true)]
async fn ended_tree_stays_ended_when_resumed() {
    let (setup, _) = landing_on_turns();
    let (whole, journal) = setup.run(Task::new("a", "go").limits(Limits::default().turns(3))).await;
    let (setup, model) = landing_on_turns();
    let before = journal.records(root_id()).len();
    let runtime = Runtime::new(setup.parts(journal.clone(), SimulatedWorld::after(9)));
    let run = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
    assert_eq!(wait_for(&run).await, whole);
    assert_eq!((model.times_asked(), journal.records(root_id()).len()), (0, before));
}
