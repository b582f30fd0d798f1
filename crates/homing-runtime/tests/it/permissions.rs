//! Approval of calls: the text that the model reads, and the denials that the user sees.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use homing_core::{
    BoxFuture,
    authority::Layer,
    definition::PermissionMode,
    envelope::Envelope,
    fact::{CallRefusal, Fact},
    rule::Rule,
    scripted_model::{call, last_words, say},
    tool::{Answer, Question, Replay, ToolOutput},
};
use homing_runtime::{PermissionHandler, Runtime, Task, journal::MemoryJournal};
use serde_json::json;

use crate::support::{SimulatedWorld, TestModel, TestSetup, TestTool, agent, root_id, wait_for};

/// A user who gives the same answer to every question.
struct SameAnswer {
    answer: Answer,
    questions: Mutex<Vec<String>>,
}

impl PermissionHandler for SameAnswer {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        self.questions.lock().unwrap().push(question.text);
        Box::pin(std::future::ready(self.answer.clone()))
    }
}

/// Runs an agent that calls a tool which needs approval and repeats the result; returns why the call was refused, too.
async fn run_with(handler: Option<Arc<SameAnswer>>) -> (Envelope, Option<CallRefusal>, usize) {
    let model = TestModel::new(|request| {
        Ok(if request.messages.len() == 1 { call([("push", json!({}))]) } else { say(last_words(&request)) })
    });
    let push = TestTool::simple("push");
    let journal = MemoryJournal::new();
    let setup = TestSetup::new([agent("a")], model).tools([push.clone()]);
    let mut parts = setup.parts(journal.clone(), SimulatedWorld::new(1));
    parts.policy.layers.push(Arc::new(Layer::everything("test").ask(vec![Rule::tool("push")])));
    parts.permission_handler = handler.map(|handler| handler as Arc<dyn PermissionHandler>);
    let run = Runtime::new(parts).spawn(Task::new("a", "go")).unwrap();
    let envelope = wait_for(&run).await;
    let refused = journal.records(root_id()).iter().find_map(|record| match &record.fact {
        Fact::Returned { refused, .. } => refused.clone(),
        _ => None,
    });
    (envelope, refused, push.times_called())
}

fn user(answer: Answer) -> Arc<SameAnswer> {
    Arc::new(SameAnswer { answer, questions: Mutex::default() })
}

#[tokio::test(start_paused = true)]
async fn call_that_needs_approval_is_denied_without_an_approver() {
    let text = "denied: push: it needs approval, and no approver is available";
    for handler in [None, Some(user(Answer::Unavailable))] {
        let (envelope, refused, calls) = run_with(handler).await;
        assert_eq!((envelope.output.as_str(), calls), (text, 0));
        assert_eq!(
            (envelope.denied, refused),
            (vec![text.to_owned()], Some(CallRefusal::NoApprover { allow: vec!["push".into()] }))
        );
        assert_eq!(envelope.needs_approval, ["push"]);
    }
}

#[tokio::test(start_paused = true)]
async fn user_approves_or_declines_a_call() {
    let (envelope, refused, calls) = run_with(Some(user(Answer::No))).await;
    assert_eq!((envelope.output.as_str(), calls), ("denied: push: the user declined", 0));
    assert_eq!((envelope.denied.len(), envelope.needs_approval.len()), (1, 0));
    assert_eq!(refused, Some(CallRefusal::Denied));
    let (envelope, ..) = run_with(Some(user(Answer::Text("it is Friday".into())))).await;
    assert_eq!(envelope.output, "denied: push: the user declined: it is Friday", "the model reads the reason");
    let approver = user(Answer::Yes);
    let (envelope, refused, calls) = run_with(Some(approver.clone())).await;
    assert_eq!((envelope.output.as_str(), refused, calls), ("ok", None, 1));
    assert_eq!(*approver.questions.lock().unwrap(), ["allow a to use push?"]);
}

#[tokio::test(start_paused = true)]
async fn delegation_that_a_rule_asks_about_needs_approval() {
    for (answer, children) in [(Answer::No, 0), (Answer::Unavailable, 0), (Answer::Yes, 1)] {
        let model = TestModel::new(|request| {
            Ok(match (request.system, request.messages.len()) {
                ("lead", 1) => call([("delegate", json!({"agent": "worker", "task": "do it"}))]),
                ("lead", _) => say(last_words(&request)),
                _ => say("worked"),
            })
        });
        let setup = TestSetup::new([agent("lead"), agent("worker")], model);
        let mut parts = setup.parts(MemoryJournal::new(), SimulatedWorld::new(1));
        let ask = vec![Rule::tool("delegate")];
        parts.policy.layers.push(Arc::new(Layer::everything("test").ask(ask)));
        let handler = user(answer.clone());
        parts.permission_handler = Some(handler.clone());
        let envelope = wait_for(&Runtime::new(parts).spawn(Task::new("lead", "go")).unwrap()).await;
        assert_eq!(envelope.children.len(), children, "{answer:?}");
        assert_eq!(*handler.questions.lock().unwrap(), ["allow lead to use delegate on worker?\n  do it"]);
        if children == 0 {
            assert!(envelope.output.starts_with("denied: delegate `worker`: "), "{}", envelope.output);
        }
        let needs = if answer == Answer::Unavailable { vec!["delegate(worker)".to_owned()] } else { Vec::new() };
        assert_eq!(envelope.needs_approval, needs);
    }
}

/// The tools of an MCP server: one that changes something and one that only reads.
struct GitTools {
    commit: Arc<TestTool>,
    log: Arc<TestTool>,
}

impl GitTools {
    fn new() -> Self {
        let tool = |name, replay| TestTool::new(name, replay, Duration::ZERO, |_| ToolOutput::text("ok"));
        Self { commit: tool("mcp__git__commit", Replay::Unsafe), log: tool("mcp__git__log", Replay::Safe) }
    }

    /// The number of executed calls of `commit` and of `log`.
    fn times_called(&self) -> (usize, usize) {
        (self.commit.times_called(), self.log.times_called())
    }
}

/// Runs `lead` in `mode`; its child `worker`, which may do everything, calls both tools, and then `lead` does. Returns the
/// agents that were offered `commit`, and the questions.
async fn run_in_mode(mode: PermissionMode, tools: &GitTools, answer: Answer) -> (Vec<String>, Vec<String>) {
    let offered = Arc::new(Mutex::new(Vec::new()));
    let seen = offered.clone();
    let model = TestModel::new(move |request| {
        if request.tools.specs.iter().any(|spec| spec.name == "mcp__git__commit") {
            seen.lock().unwrap().push(request.system.to_owned());
        }
        let both = || call([("mcp__git__commit", json!({})), ("mcp__git__log", json!({}))]);
        Ok(match (request.system, request.messages.len()) {
            ("lead", 1) => call([("delegate", json!({"agent": "worker", "task": "work"}))]),
            ("lead", 3) | ("worker", 1) => both(),
            _ => say("done"),
        })
    });
    let in_mode = |name, mode| {
        let mut agent = agent(name);
        agent.execution.permission_mode = Some(mode);
        agent
    };
    let agents = [in_mode("lead", mode), in_mode("worker", PermissionMode::All)];
    let setup = TestSetup::new(agents, model).tools([tools.commit.clone(), tools.log.clone()]);
    let handler = user(answer);
    let mut parts = setup.parts(MemoryJournal::new(), SimulatedWorld::new(1));
    parts.permission_handler = Some(handler.clone());
    let envelope = wait_for(&Runtime::new(parts).spawn(Task::new("lead", "go")).unwrap()).await;
    assert_eq!((envelope.output.as_str(), envelope.children.len()), ("done", 1));
    let offered = offered.lock().unwrap().clone();
    let questions = handler.questions.lock().unwrap().clone();
    (offered, questions)
}

#[tokio::test(start_paused = true)]
async fn ask_mode_asks_about_every_tool_that_changes_something() {
    let questions = ["worker (run 1.1)", "lead"].map(|agent| format!("allow {agent} to use mcp__git__commit?"));
    for (answer, commits) in [(Answer::No, 0), (Answer::Yes, 2)] {
        let tools = GitTools::new();
        let (_, asked) = run_in_mode(PermissionMode::Ask, &tools, answer).await;
        assert_eq!((asked, tools.times_called()), (questions.to_vec(), (commits, 2)));
    }
}

#[tokio::test(start_paused = true)]
async fn plan_mode_offers_and_executes_no_tool_that_changes_something() {
    let tools = GitTools::new();
    let (offered, asked) = run_in_mode(PermissionMode::Plan, &tools, Answer::Yes).await;
    assert_eq!((offered, asked, tools.times_called()), (vec![], vec![], (0, 2)));
    let (offered, _) = run_in_mode(PermissionMode::All, &tools, Answer::Yes).await;
    assert_eq!((offered.len(), tools.times_called()), (5, (2, 4)));
}
