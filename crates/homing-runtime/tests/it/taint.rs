//! Network use after untrusted content was read, if secrets are in reach.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use homing_core::{
    BoxFuture,
    authority::Layer,
    fact::Fact,
    scripted_model::{call, say},
    taint::{Origin, TaintMode},
    tool::{Answer, Question},
};
use homing_runtime::{PermissionHandler, Runtime, Task, journal::MemoryJournal};
use serde_json::json;

use crate::support::{SimulatedWorld, TestModel, TestSetup, TestTool, agent, root_id, wait_for};

#[derive(Default)]
struct Declines {
    questions: Mutex<Vec<String>>,
}

impl PermissionHandler for Declines {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        self.questions.lock().unwrap().push(question.text);
        Box::pin(std::future::ready(Answer::No))
    }
}

/// The effects of a run that fetches a page and then calls a server.
struct Happened {
    fetched: usize,
    sent: usize,
    questions: Vec<String>,
    origins: Vec<Option<Origin>>,
    denied: Vec<String>,
    /// The number of times that secrets were searched for.
    searches: usize,
}

async fn run_with(mode: Option<TaintMode>, has_secrets: bool, approved: &[&str]) -> Happened {
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            1 => call([("fetch", json!({}))]),
            3 | 5 => call([("mcp__mail__send", json!({"to": "x"}))]),
            _ => say("done"),
        })
    });
    let (fetch, send) = (TestTool::simple("fetch"), TestTool::simple("mcp__mail__send"));
    let journal = MemoryJournal::new();
    let mut definition = agent("a");
    definition.execution.taint = mode;
    let setup = TestSetup::new([definition], model).tools([fetch.clone(), send.clone()]);
    let mut parts = setup.parts(journal.clone(), SimulatedWorld::new(1));
    let settled = approved.iter().map(|rule| rule.parse().unwrap()).collect();
    parts.policy.layers.push(Arc::new(Layer::everything("test").settled(settled)));
    let searches = Arc::new(AtomicUsize::new(0));
    let count = searches.clone();
    parts.config.taint.secrets = Some(Arc::new(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        has_secrets.then(|| PathBuf::from(".env"))
    }));
    let user = Arc::new(Declines::default());
    parts.permission_handler = Some(user.clone());
    let run = Runtime::new(parts).spawn(Task::new("a", "go")).unwrap();
    let denied = wait_for(&run).await.denied;
    let records = journal.records(root_id());
    let origins = records.iter().filter_map(|record| match &record.fact {
        Fact::Called(called) => Some(called.origin),
        _ => None,
    });
    let origins = origins.collect();
    let questions = user.questions.lock().unwrap().clone();
    let (fetched, sent) = (fetch.times_called(), send.times_called());
    Happened { fetched, sent, questions, origins, denied, searches: searches.load(Ordering::Relaxed) }
}

#[tokio::test(start_paused = true)]
async fn r56_network_use_after_untrusted_content_is_asked_about_if_secrets_are_in_reach() {
    let asked = run_with(None, true, &[]).await;
    assert_eq!((asked.fetched, asked.sent), (1, 0), "the first page is read, the message is not sent");
    assert_eq!(asked.origins, [Some(Origin::Web)]);
    assert_eq!(asked.searches, 1, "a run's folders are searched once");
    let why = "denied: mcp__mail__send: this run has read web pages and can read .env; the user declined";
    assert_eq!(asked.denied, [why, why]);
    let [question, _] = asked.questions.as_slice() else { panic!("{:?}", asked.questions) };
    assert!(question.contains("this run has read web pages and can read .env"), "{question}");
    assert!(question.contains("allow a to use mcp__mail__send?") && question.contains("to: x"), "{question}");

    let without_secrets = run_with(None, false, &[]).await;
    assert_eq!((without_secrets.sent, without_secrets.questions.len()), (2, 0));
    assert_eq!(without_secrets.searches, 1);
}

#[tokio::test(start_paused = true)]
async fn agent_and_user_decide_about_tainted_network_use() {
    let denied = run_with(Some(TaintMode::Deny), true, &[]).await;
    assert_eq!((denied.fetched, denied.sent, denied.questions.len()), (1, 0, 0));
    let why = "this run has read web pages and can read .env, so it may not use the network";
    assert_eq!(denied.denied[0], format!("denied: mcp__mail__send: {why}"));
    let off = run_with(Some(TaintMode::Off), true, &[]).await;
    assert_eq!((off.sent, off.questions.len(), off.searches), (2, 0, 0));
    assert_eq!(
        off.origins,
        [Some(Origin::Web), Some(Origin::Mcp), Some(Origin::Mcp)],
        "facts carry the origin in any case"
    );
    let approved = run_with(None, true, &["mcp__mail__send"]).await;
    assert_eq!((approved.sent, approved.questions.len()), (2, 0));
}
