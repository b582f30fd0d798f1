//! Operations of the host: spawn, list, wait, cancel, totals.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use homing_core::{
    BoxFuture,
    envelope::Status,
    fact::CancelledBy,
    limits::Limits,
    message::Reply,
    model::{AskFailure, Delta, Model, ModelCard, ModelRequest, OnDelta},
    scripted_model::{call, last_words, say},
};
use homing_runtime::{Submission, Task, aggregate, event::Event};
use serde_json::json;

use crate::support::{TestModel, TestSetup, TestTool, agent, wait_for};

/// An agent that naps for as many seconds as its task says.
fn napper() -> TestSetup {
    let model = TestModel::new(|request| {
        let words = last_words(&request);
        Ok(match request.messages.len() {
            1 => call([("nap", json!({"s": words.parse::<u64>().unwrap_or(0)}))]),
            _ => say(format!("slept {words}")),
        })
    });
    let nap = TestTool::new("nap", Default::default(), Duration::from_secs(10), |args| {
        homing_core::tool::ToolOutput::text(args["s"].to_string())
    });
    TestSetup::new([agent("a")], model).tools([nap])
}

#[tokio::test(start_paused = true)]
async fn r24_run_has_an_id_agent_status_and_result() {
    let (runtime, _) = napper().open();
    let run = runtime.spawn(Task::new("a", "3")).unwrap();
    assert_eq!(run.status(), Status::Queued);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(run.status(), Status::Running);
    let envelope = wait_for(&run).await;
    assert_eq!((envelope.run, envelope.agent.as_str(), run.status()), (run.id(), "a", Status::Done));
    assert_eq!(envelope.output, "slept 3");
}

#[tokio::test(start_paused = true)]
async fn r25_runtime_spawns_lists_waits_cancels_and_counts() {
    let (runtime, _) = napper().open();
    let ended: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = ended.clone();
    runtime.on_complete(move |envelope| log.lock().unwrap().push(envelope.output.clone()));
    let runs: Vec<_> =
        runtime.spawn_many((0..4).map(|n| Task::new("a", n.to_string()))).into_iter().flatten().collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(runtime.list(Status::Running).len(), 4);
    assert_eq!(runtime.get(runs[2].id()).unwrap().id(), runs[2].id());
    runs[3].cancel(CancelledBy::Host);
    let (at, _) = runtime.wait_any(&runs).await.unwrap();
    assert_eq!(at, 3);
    let all = runtime.wait_all(&runs).await;
    assert_eq!(all.iter().filter(|run| run.status == Status::Done).count(), 3);
    let statistics = runtime.statistics();
    assert_eq!(statistics.by_status, [(Status::Done, 3), (Status::Cancelled, 1)]);
    assert_eq!(statistics.total.turns, 7);
    assert_eq!(ended.lock().unwrap().len(), 4);
    assert_eq!(runtime.cancel_all(&CancelledBy::Host), 0);
}

#[tokio::test(start_paused = true)]
async fn r26_runs_beyond_the_maximum_queue() {
    let mut setup = napper();
    setup.config.max_runs = 2;
    let (runtime, _) = setup.open();
    let started = tokio::time::Instant::now();
    let runs: Vec<_> =
        runtime.spawn_many((0..6).map(|n| Task::new("a", n.to_string()))).into_iter().flatten().collect();
    runtime.wait_all(&runs).await;
    assert!(started.elapsed() >= Duration::from_secs(30), "three rounds of naps, two at a time");
}

#[tokio::test(start_paused = true)]
async fn inv19_one_slot_and_depth_five_do_not_deadlock() {
    let model = TestModel::new(|request| {
        let can = request.tools.specs.iter().any(|spec| spec.name == "delegate");
        Ok(match (can, request.messages.len()) {
            (true, 1) => call((0..2).map(|_| ("delegate", json!({"agent": "a", "task": "deeper"})))),
            _ => say("back"),
        })
    });
    let mut setup = TestSetup::new([agent("a")], model);
    (setup.config.max_runs, setup.config.max_asks) = (1, 1);
    let limits = Limits::default().depth(5).children(100);
    let (envelope, _) = setup.run(Task::new("a", "go").limits(limits)).await;
    assert_eq!((envelope.status, envelope.all().len()), (Status::Done, 63));
}

#[tokio::test(start_paused = true)]
async fn quorum_cancels_the_rest() {
    let (runtime, _) = napper().open();
    let runs: Vec<_> =
        runtime.spawn_many((0..5).map(|n| Task::new("a", n.to_string()))).into_iter().flatten().collect();
    assert_eq!(runtime.quorum(&runs, 2).await.len(), 2);
    let all = runtime.wait_all(&runs).await;
    assert!(all.iter().all(|run| run.status.is_over()));
}

#[tokio::test(start_paused = true)]
async fn r30_several_results_make_one_report() {
    let (runtime, _) = napper().open();
    let runs: Vec<_> =
        runtime.spawn_many((1..3).map(|n| Task::new("a", n.to_string()))).into_iter().flatten().collect();
    let report = aggregate(&runtime.wait_all(&runs).await);
    insta::assert_snapshot!(report, @r"
    ## a (done)
    slept 1

    ## a (done)
    slept 2

    2 of 2 done · 60 tokens · $0
    ");
}

#[tokio::test(start_paused = true)]
async fn r39_slow_subscriber_sees_the_subtree_and_delays_no_run() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call((0..40).map(|n| ("delegate", json!({"agent": "scout", "task": n.to_string()})))),
            _ => say("ok"),
        })
    });
    let (runtime, _) = TestSetup::new([agent("lead"), agent("scout")], model).open();
    let run = runtime.spawn(Task::new("lead", "go")).unwrap();
    let mut events = run.events();
    // Events are read only after the end: a run does not wait for its subscribers.
    wait_for(&run).await;
    let (mut ended, mut places) = (0, std::collections::BTreeSet::new());
    while let Some(event) = events.next().await {
        if let Event::Fact(record) = event {
            ended += usize::from(record.fact.kind() == "ended");
            places.insert(record.place.to_string());
        }
    }
    assert_eq!((ended, places.len()), (41, 41));
}

/// A model whose reply arrives in more pieces than are kept for a slow subscriber.
struct ManyPieces(ModelCard);

impl Model for ManyPieces {
    fn card(&self) -> &ModelCard {
        &self.0
    }

    fn reply<'a>(&'a self, _: ModelRequest<'a>, on_delta: OnDelta<'a>) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            for _ in 0..5_000 {
                on_delta(Delta::Text("piece "));
                on_delta(Delta::Thinking("thought "));
            }
            Ok(say("done"))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn subscriber_without_text_neither_gets_pieces_of_replies_nor_has_them_sent() {
    for with_reader in [false, true] {
        let model = Arc::new(ManyPieces(ModelCard::free("script/model")));
        let (runtime, _) = TestSetup::new([agent("a")], model).open();
        let run = runtime.spawn(Task::new("a", "go")).unwrap();
        let mut events = run.events_without_text(0);
        // A subscriber that has left does not count.
        drop(run.events());
        let mut reader = with_reader.then(|| run.events());
        wait_for(&run).await;
        let (mut facts, mut missed) = (Vec::new(), 0);
        while let Some(event) = events.next().await {
            match event {
                Event::Fact(record) => facts.push(record.seq),
                Event::Missed(count) => missed += count,
                Event::Transient(notice) => panic!("{:?}", notice.kind),
            }
        }
        assert_eq!(facts, (0..run.position()).collect::<Vec<_>>());
        assert_eq!(missed > 0, with_reader, "pieces are sent only to a subscriber that reads them: {missed}");
        let mut pieces = 0;
        while let Some(event) = match &mut reader {
            Some(reader) => reader.next().await,
            None => None,
        } {
            pieces += usize::from(matches!(event, Event::Transient(_)));
        }
        assert_eq!(pieces > 0, with_reader);
    }
}

#[tokio::test(start_paused = true)]
async fn r40_result_of_a_tree_has_all_runs_and_totals() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call((0..2).map(|n| ("delegate", json!({"agent": "scout", "task": n.to_string()})))),
            ("lead", _) => say("final"),
            _ => say("part"),
        })
    });
    let (envelope, _) = TestSetup::new([agent("lead"), agent("scout")], model).run(Task::new("lead", "go")).await;
    assert_eq!((envelope.output.as_str(), envelope.subtree.turns, envelope.subtree.input), ("final", 4, 40));
    insta::assert_snapshot!(envelope.tree(), @r"
    1 lead done · 2 turns · 30 tokens · $0
      1.1 scout done · 1 turn · 15 tokens · $0
      1.2 scout done · 1 turn · 15 tokens · $0
    ");
}

#[tokio::test(start_paused = true)]
async fn same_key_returns_the_same_run_and_refuses_another_task() {
    let (runtime, _) = napper().open();
    let Submission::New(run) = runtime.submit("k", Task::new("a", "3")).await.unwrap() else { panic!("new") };
    let Submission::Earlier(earlier) = runtime.submit("k", Task::new("a", "3")).await.unwrap() else {
        panic!("earlier")
    };
    assert_eq!(earlier, run.id());
    assert!(runtime.submit("k", Task::new("a", "4")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn r29_each_run_has_its_own_tool_state() {
    use homing_core::tool::{Tool, ToolContext, ToolOutput, ToolSpec};
    #[derive(Default)]
    struct Count(std::sync::atomic::AtomicU32);
    struct Counter(ToolSpec);
    impl Tool for Counter {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn call<'a>(
            &'a self,
            context: &'a ToolContext,
            _: serde_json::Value,
        ) -> homing_core::BoxFuture<'a, ToolOutput> {
            let count = context.state.get::<Count>().0.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            Box::pin(async move { ToolOutput::text(count.to_string()) })
        }
    }
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            1 | 3 => call([("count", json!({"n": request.messages.len()}))]),
            _ => say(last_words(&request)),
        })
    });
    let setup = TestSetup::new([agent("a")], model);
    let mut parts = setup.parts(homing_runtime::journal::MemoryJournal::new(), crate::support::SimulatedWorld::new(1));
    parts.tools = vec![Arc::new(Counter(Tool::spec(&*TestTool::simple("count")).clone()))];
    let runtime = homing_runtime::Runtime::new(parts);
    let runs: Vec<_> = runtime.spawn_many((0..3).map(|_| Task::new("a", "x"))).into_iter().flatten().collect();
    assert!(runtime.wait_all(&runs).await.iter().all(|run| run.output == "2"));
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_every_run_with_a_result() {
    let (runtime, _) = napper().open();
    runtime.spawn_many((0..3).map(|n| Task::new("a", n.to_string())));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let envelopes = runtime.shutdown(Duration::from_secs(3)).await;
    assert_eq!(envelopes.iter().filter(|run| run.status == Status::Cancelled).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn r14_skills_of_a_definition_are_in_its_prompt() {
    use homing_core::{
        definition::Scope,
        skill::{Skill, SkillCard, SkillLibrary},
    };
    struct One(Vec<SkillCard>);
    impl SkillLibrary for One {
        fn list(&self) -> &[SkillCard] {
            &self.0
        }
        fn get(&self, name: &str) -> Option<Result<Arc<Skill>, String>> {
            let card = self.0.iter().find(|card| card.name == name)?.clone();
            Some(Ok(Arc::new(Skill { card, body: "Measure twice.".into(), resources: vec!["table.md".into()] })))
        }
    }
    let card = SkillCard {
        name: "carpentry".into(),
        description: "wood".into(),
        path: "/skills/carpentry/SKILL.md".into(),
        scope: Scope::User,
        ..SkillCard::default()
    };
    let model = TestModel::new(|request| Ok(say(request.system)));
    let mut skilled = agent("a");
    skilled.attachments.skills = vec!["carpentry".into(), "magic".into()];
    let setup = TestSetup::new([skilled], model);
    let mut parts = setup.parts(homing_runtime::journal::MemoryJournal::new(), crate::support::SimulatedWorld::new(1));
    parts.skills = Some(Arc::new(One(vec![card])));
    let run = homing_runtime::Runtime::new(parts).spawn(Task::new("a", "x")).unwrap();
    let envelope = wait_for(&run).await;
    insta::assert_snapshot!(envelope.output, @r#"
    a

    <skill name="carpentry">
    Measure twice.

    Resources in /skills/carpentry:
    - table.md
    </skill>
    "#);
    assert!(envelope.warnings[0].contains("no skill `magic`"), "{:?}", envelope.warnings);
}

/// Hooks that add a note at the start, block one tool, add a note to another, and continue the run once.
struct TestHooks;

impl homing_core::hooks::Hooks for TestHooks {
    fn run_started<'a>(
        &'a self,
        run: &'a homing_core::hooks::HookRun,
    ) -> homing_core::BoxFuture<'a, homing_core::hooks::HookNotes> {
        let for_model = vec![format!("welcome, {}", run.agent)];
        Box::pin(async move { homing_core::hooks::HookNotes { for_model, warnings: vec![] } })
    }

    fn before_call<'a>(
        &'a self,
        _: &'a homing_core::hooks::HookRun,
        call: &'a homing_core::hooks::HookCall,
    ) -> homing_core::BoxFuture<'a, homing_core::hooks::HookDecision> {
        use homing_core::hooks::HookDecision;
        Box::pin(async move {
            match call.tool.as_str() {
                "write" => HookDecision::Block { why: "no writing on Sundays".into() },
                _ => HookDecision::Allow { args: None, notes: Default::default() },
            }
        })
    }

    fn after_call<'a>(
        &'a self,
        _: &'a homing_core::hooks::HookRun,
        _: &'a homing_core::hooks::HookCall,
        _: &'a homing_core::tool::ToolOutput,
    ) -> homing_core::BoxFuture<'a, homing_core::hooks::HookNotes> {
        Box::pin(async { homing_core::hooks::HookNotes { for_model: vec!["seen".into()], warnings: vec![] } })
    }

    fn run_ending<'a>(
        &'a self,
        _: &'a homing_core::hooks::HookRun,
        _: &'a str,
        continuations: u32,
    ) -> homing_core::BoxFuture<'a, homing_core::hooks::HookEnding> {
        use homing_core::hooks::HookEnding;
        let ending = match continuations {
            0 => HookEnding::GoOn { why: "tests are missing".into() },
            _ => HookEnding::End(Default::default()),
        };
        Box::pin(std::future::ready(ending))
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_add_notes_block_calls_and_continue_runs() {
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            2 => call([("read", json!({})), ("write", json!({}))]),
            5 => say("first version"),
            _ => say(request.messages.iter().map(|entry| format!("{:?}\n", entry.message)).collect::<String>()),
        })
    });
    let write = TestTool::simple("write");
    let setup = TestSetup::new([agent("a")], model).tools([TestTool::simple("read"), write.clone()]);
    let mut parts = setup.parts(homing_runtime::journal::MemoryJournal::new(), crate::support::SimulatedWorld::new(1));
    parts.hooks = Some(Arc::new(TestHooks));
    let run = homing_runtime::Runtime::new(parts).spawn(Task::new("a", "x")).unwrap();
    let envelope = wait_for(&run).await;
    for text in ["welcome, a", "blocked by a hook: no writing on Sundays", "ok\\n\\nseen", "tests are missing"] {
        assert!(envelope.output.contains(text), "{text}: {}", envelope.output);
    }
    assert_eq!(write.times_called(), 0);
}

#[tokio::test]
async fn r35_spawning_takes_under_a_hundred_milliseconds() {
    let (runtime, _) = napper().open();
    let started = std::time::Instant::now();
    let runs: Vec<_> = (0..100).map(|_| runtime.spawn(Task::new("a", "1")).unwrap()).collect();
    assert!(started.elapsed() / 100 < Duration::from_millis(100), "{:?} for a hundred", started.elapsed());
    for run in runs {
        run.cancel(CancelledBy::Host);
        assert!(wait_for(&run).await.status.is_over());
    }
}

#[tokio::test(start_paused = true)]
async fn inv27_turns_calls_children_and_depth_are_never_exceeded() {
    let model = TestModel::new(|request| {
        Ok(match request.choice {
            homing_core::model::ToolChoice::Off => say("report"),
            _ => call((0..3).flat_map(|n| {
                let task = json!({"agent": "a", "task": format!("{n} {}", request.messages.len())});
                [("read", json!({"n": n, "m": request.messages.len()})), ("delegate", task)]
            })),
        })
    });
    let limits = Limits::default().turns(5).tool_calls(40).children(7).depth(2);
    let setup = TestSetup::new([agent("a")], model).tools([TestTool::simple("read")]);
    let (envelope, _) = setup.run(Task::new("a", "go").limits(limits)).await;
    assert_eq!((envelope.subtree.tool_calls, envelope.all().len()), (40, 8), "{}", envelope.tree());
    assert!(envelope.usage.turns <= 5 && envelope.all().iter().all(|run| run.place.depth() <= 2));
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a test that skips says so")]
async fn inv33_thousand_waiting_runs_use_less_than_200_megabytes() {
    let resident_kb = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().trim_end_matches(" kB").to_owned();
        line.parse::<u64>().ok()
    };
    let Some(before) = resident_kb() else { return eprintln!("skipped: no /proc here to read memory from") };
    let card = homing_core::model::ModelCard::free("script/slow");
    let model = TestModel::with(card, Duration::from_secs(600), |_| Ok(say("late")));
    let mut setup = TestSetup::new([agent("a")], model);
    (setup.config.max_runs, setup.config.max_asks) = (1_000, 1_000);
    let (runtime, _) = setup.open();
    let runs: Vec<_> = runtime.spawn_many((0..1_000).map(|_| Task::new("a", "x"))).into_iter().flatten().collect();
    let since = std::time::Instant::now();
    while runtime.list(Status::Running).len() < 1_000 && since.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(runtime.list(Status::Running).len(), 1_000);
    let grown = resident_kb().unwrap_or(u64::MAX).saturating_sub(before) / 1_024;
    assert!(grown < 200, "{grown} MB");
    for run in runs {
        run.cancel(CancelledBy::Host);
    }
}
