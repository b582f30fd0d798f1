//! Approval of calls: the text that the model reads, and the denials that the user sees.

use std::sync::{Arc, Mutex};

use homing_core::{
    BoxFuture,
    authority::{Allow, Layer},
    envelope::Envelope,
    fact::{CallRefusal, Fact},
    scripted_model::{call, last_words, say},
    tool::{Answer, Question},
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
    parts.policy.layers.push(Arc::new(Layer {
        from: "test".into(),
        allow: Allow::All,
        ask: vec!["push".parse().unwrap()],
        deny: Vec::new(),
        settled: Vec::new(),
    }));
    parts.asker = handler.map(|handler| handler as Arc<dyn PermissionHandler>);
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
    let text = "denied: this call needs approval and no approver is available";
    for handler in [None, Some(user(Answer::Unavailable))] {
        let (envelope, refused, calls) = run_with(handler).await;
        assert_eq!((envelope.output.as_str(), calls), (text, 0));
        assert_eq!((envelope.denied, refused), (vec![text.to_owned()], Some(CallRefusal::Denied)));
    }
}

#[tokio::test(start_paused = true)]
async fn user_approves_or_declines_a_call() {
    let (envelope, refused, calls) = run_with(Some(user(Answer::No))).await;
    assert_eq!((envelope.output.as_str(), calls), ("the user declined", 0));
    assert_eq!(refused, Some(CallRefusal::Denied));
    let approver = user(Answer::Yes);
    let (envelope, refused, calls) = run_with(Some(approver.clone())).await;
    assert_eq!((envelope.output.as_str(), refused, calls), ("ok", None, 1));
    assert_eq!(*approver.questions.lock().unwrap(), ["allow a to use push?"]);
}
