//! Questions that wait: a run parks, any process answers, and a resumed run makes the call exactly once.

use std::{sync::Arc, time::Duration};

use homing_core::{
    BoxFuture,
    authority::Layer,
    envelope::Status,
    fact::{CallRefusal, Fact},
    limits::{Cap, Limit, Limits},
    question::{Answer, Question, QuestionKind},
    rule::Rule,
    scripted_model::{call, last_words, say},
    tool::{Effect, Replay, Tool, ToolContext, ToolOutput, ToolSpec},
};
use homing_runtime::{
    AnswerError, OnQuestion, Runtime, RuntimeParts, Task,
    journal::{Claim, Journal, MemoryJournal},
};
use serde_json::{Value, json};

use crate::support::{SimulatedWorld, TestModel, TestSetup, TestTool, agent, root_id, summary, wait_for};

/// An agent that pushes, which needs approval, and repeats the result.
fn pusher() -> (TestSetup, Arc<TestTool>, Arc<TestModel>) {
    let model = TestModel::new(|request| {
        Ok(if request.messages.len() == 1 {
            call([("push", json!({"to": "main"}))])
        } else {
            say(last_words(&request))
        })
    });
    let push = TestTool::new("push", Replay::Unsafe, Duration::ZERO, |_| ToolOutput::text("pushed"));
    (TestSetup::new([agent("a")], model.clone()).tools([push.clone()]), push, model)
}

fn parts(setup: &TestSetup, journal: Arc<dyn Journal>, ids: u64) -> RuntimeParts {
    let mut parts = setup.parts(journal, SimulatedWorld::after(ids));
    parts.policy.layers.push(Arc::new(Layer::everything("test").ask(vec![Rule::tool("push")])));
    parts.config.on_question = OnQuestion::Park;
    parts
}

#[tokio::test(start_paused = true)]
async fn parked_question_is_answered_elsewhere_and_the_call_is_made_once() {
    let (setup, push, model) = pusher();
    let journal = MemoryJournal::new();
    let run = Runtime::new(parts(&setup, journal.clone(), 0)).spawn(Task::new("a", "go")).unwrap();
    let parked = run.wait_or_park().await;
    assert_eq!((parked.status, parked.partial, push.times_called()), (Status::Waiting, true, 0));
    let open = &parked.questions[0];
    assert_eq!((open.place.to_string().as_str(), open.agent.as_str(), open.kind), ("1", "a", QuestionKind::Permission));
    assert_eq!(open.question.text, "allow a to use push?\n  to: main");
    run.release();

    let other = Runtime::new(parts(&setup, journal.clone(), 10));
    let wrong = Question::new("another", open.question.key).id();
    assert_eq!(other.answer(root_id(), wrong, Answer::Yes, "me").await, Err(AnswerError::NotOpen(wrong)));
    other.answer(root_id(), open.id, Answer::Yes, "me").await.unwrap();
    assert_eq!(other.answer(root_id(), open.id, Answer::No, "late").await, Err(AnswerError::NotOpen(open.id)));
    let resumed = other.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
    let envelope = wait_for(&resumed).await;
    assert_eq!((envelope.status, envelope.output.as_str()), (Status::Done, "pushed"));
    assert_eq!((push.times_called(), model.times_asked(), envelope.questions.len()), (1, 2, 0));
    insta::assert_snapshot!(summary(&journal.records(root_id())), @r"
    1 spawned
    1 asked Turn
    1 replied
    1 questioned
    1 answered
    1 called push
    1 returned push
    1 asked Turn
    1 replied
    1 ended done
    ");
}

#[tokio::test(start_paused = true)]
async fn reason_of_a_denial_reaches_the_model() {
    let (setup, push, _) = pusher();
    let runtime = Runtime::new(parts(&setup, MemoryJournal::new(), 0));
    let run = runtime.spawn(Task::new("a", "go")).unwrap();
    let open = run.wait_or_park().await.questions.remove(0);
    assert_eq!(runtime.questions()[0].id, open.id);
    run.answer(open.id, open.question.read_answer("no, not on a Friday").unwrap(), "me").unwrap();
    let envelope = wait_for(&run).await;
    assert_eq!(
        (envelope.output.as_str(), push.times_called()),
        ("denied: push: the user declined: not on a Friday", 0)
    );
    assert_eq!(envelope.denied.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn parked_run_holds_no_slot() {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("asks", 1) => call([("push", json!({}))]),
            _ => say(last_words(&request)),
        })
    });
    let push = TestTool::simple("push");
    let mut setup = TestSetup::new([agent("asks"), agent("works")], model).tools([push]);
    setup.config.max_runs = 1;
    let runtime = Runtime::new(parts(&setup, MemoryJournal::new(), 0));
    let asks = runtime.spawn(Task::new("asks", "go")).unwrap();
    let open = asks.wait_or_park().await.questions.remove(0);
    let works = runtime.spawn(Task::new("works", "hello")).unwrap();
    assert_eq!(wait_for(&works).await.output, "hello");
    asks.answer(open.id, Answer::Yes, "me").unwrap();
    assert_eq!(wait_for(&asks).await.output, "ok");
}

/// A tool that asks the user, as the `ask` tool does.
struct AskingTool(ToolSpec);

impl AskingTool {
    fn new() -> Arc<Self> {
        let spec = ToolSpec::new("consult", "asks", json!({"type": "object"}));
        Arc::new(Self(spec.replay(Replay::Safe).effect(Effect::Reads)))
    }
}

impl Tool for AskingTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call<'a>(&'a self, context: &'a ToolContext, _: Value) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            match context.ask(Question::new("Which colour?", context.key)).await {
                Answer::Text(text) => ToolOutput::text(text),
                other => ToolOutput::error(format!("{other:?}")),
            }
        })
    }
}

fn consulting() -> TestSetup {
    let model = TestModel::new(|request| {
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "a", "task": "go"}))]),
            ("a", 1) => call([("consult", json!({})), ("push", json!({}))]),
            _ => say(last_words(&request)),
        })
    });
    TestSetup::new([agent("lead"), agent("a")], model).tools([TestTool::simple("push")])
}

#[tokio::test(start_paused = true)]
async fn clocks_stand_still_while_the_tree_waits_for_answers() {
    let setup = consulting();
    let mut parts = parts(&setup, MemoryJournal::new(), 0);
    parts.tools.push(AskingTool::new());
    let runtime = Runtime::new(parts);
    let limits = Limits::default().with(Limit::Wall, Cap::At(60_000)).with(Limit::Work, Cap::At(60_000));
    let run = runtime.spawn(Task::new("lead", "go").limits(limits)).unwrap();
    let parked = run.wait_or_park().await;
    assert_eq!((parked.status, parked.children[0].status), (Status::Waiting, Status::Waiting));
    assert_eq!(parked.questions.len(), 2, "the permission and the question of the tool");
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    for open in run.questions() {
        let answer = if open.kind == QuestionKind::Permission { "yes" } else { "green" };
        run.answer(open.id, open.question.read_answer(answer).unwrap(), "me").unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let envelope = wait_for(&run).await;
    assert_eq!((envelope.status, envelope.output.contains("ok")), (Status::Done, true), "{envelope:?}");
    assert!(envelope.usage.wall_ms < 10_000, "{}", envelope.usage.wall_ms);
}

/// Answers every question until the run has ended.
async fn finish(run: &homing_runtime::RunHandle) -> homing_core::envelope::Envelope {
    loop {
        let envelope = run.wait_or_park().await;
        if envelope.status.is_over() {
            return envelope;
        }
        for open in envelope.questions {
            let answer = if open.kind == QuestionKind::Permission { "yes" } else { "green" };
            run.answer(open.id, open.question.read_answer(answer).unwrap(), "me").unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn run_with_questions_resumes_from_every_record() {
    let open = |journal: Arc<MemoryJournal>, ids: u64, setup: &TestSetup| {
        let mut parts = parts(setup, journal, ids);
        parts.tools.push(AskingTool::new());
        Runtime::new(parts)
    };
    let (setup, whole) = (consulting(), MemoryJournal::new());
    let run = open(whole.clone(), 0, &setup).spawn(Task::new("lead", "go")).unwrap();
    let expected = finish(&run).await.output;
    let records = whole.records(root_id());
    assert!(records.len() > 12, "{}", summary(&records));
    for cut in 1..records.len() {
        let (setup, journal) = (consulting(), MemoryJournal::with(records[..cut].iter().cloned()));
        let answered = |records: &[Arc<homing_core::fact::Record>]| {
            records.iter().filter(|record| matches!(record.fact, Fact::Answered { .. })).count()
        };
        let runtime = open(journal.clone(), 100, &setup);
        let resumed = runtime.resume(root_id(), Claim::IfGone, Limits::default()).await.unwrap();
        let envelope = finish(&resumed).await;
        assert_eq!((envelope.status, &envelope.output), (Status::Done, &expected), "cut after {cut}");
        let all = journal.records(root_id());
        assert_eq!(answered(&all), 2, "cut after {cut}: each question is answered once\n{}", summary(&all));
        let calls =
            all.iter().filter(|record| matches!(&record.fact, Fact::Called(called) if called.call.name == "push"));
        assert_eq!(calls.count(), 1, "cut after {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn deny_refuses_without_recording_a_question() {
    let (setup, push, _) = pusher();
    let journal = MemoryJournal::new();
    let mut parts = parts(&setup, journal.clone(), 0);
    parts.config.on_question = OnQuestion::Deny;
    let envelope = wait_for(&Runtime::new(parts).spawn(Task::new("a", "go")).unwrap()).await;
    assert_eq!((envelope.needs_approval.len(), push.times_called()), (1, 0));
    let records = journal.records(root_id());
    assert!(!records.iter().any(|record| matches!(record.fact, Fact::Questioned { .. })));
    assert!(
        records
            .iter()
            .any(|record| matches!(&record.fact, Fact::Returned { refused: Some(CallRefusal::NoApprover { .. }), .. }))
    );
}

#[tokio::test(start_paused = true)]
async fn parked_run_can_be_cancelled() {
    let (setup, push, _) = pusher();
    let run = Runtime::new(parts(&setup, MemoryJournal::new(), 0)).spawn(Task::new("a", "go")).unwrap();
    run.wait_or_park().await;
    assert!(run.cancel(homing_core::fact::CancelledBy::Host));
    let envelope = wait_for(&run).await;
    assert_eq!((envelope.status, push.times_called(), envelope.questions.len()), (Status::Cancelled, 0, 0));
}
