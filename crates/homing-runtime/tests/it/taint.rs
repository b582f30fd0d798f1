//! Network use after untrusted content was read, if secrets are in reach.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
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
}

async fn run_with(mode: Option<TaintMode>, has_secrets: bool, approved: &[&str]) -> Happened {
    let model = TestModel::new(|request| {
        Ok(match request.messages.len() {
            1 => call([("fetch", json!({}))]),
            3 => call([("mcp__mail__send", json!({"to": "x"}))]),
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
    parts.policy.layers.push(Arc::new(Layer { settled, ..Layer::everything("test") }));
    if has_secrets {
        parts.config.taint.secrets = Some(Arc::new(|_, _| Some(PathBuf::from(".env"))));
    }
    let user = Arc::new(Declines::default());
    parts.permission_handler = Some(user.clone());
    let run = Runtime::new(parts).spawn(Task::new("a", "go")).unwrap();
    wait_for(&run).await;
    let records = journal.records(root_id());
    let origins = records.iter().filter_map(|record| match &record.fact {
        Fact::Called(called) => Some(called.origin),
        _ => None,
    });
    let origins = origins.collect();
    let questions = user.questions.lock().unwrap().clone();
    Happened { fetched: fetch.times_called(), sent: send.times_called(), questions, origins }
}

#[tokio::test(start_paused = true)]
async fn r56_network_use_after_untrusted_content_is_asked_about_if_secrets_are_in_reach() {
    let asked = run_with(None, true, &[]).await;
    assert_eq!((asked.fetched, asked.sent), (1, 0), "the first page is read, the message is not sent");
    assert_eq!(asked.origins, [Some(Origin::Web)]);
    let [question] = asked.questions.as_slice() else { panic!("{:?}", asked.questions) };
    assert!(question.contains("this run has read web pages and can read .env"), "{question}");
    assert!(question.contains("allow a to use mcp__mail__send?") && question.contains("to: x"), "{question}");

    let without_secrets = run_with(None, false, &[]).await;
    assert_eq!((without_secrets.sent, without_secrets.questions.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn agent_and_user_decide_about_tainted_network_use() {
    let denied = run_with(Some(TaintMode::Deny), true, &[]).await;
    assert_eq!((denied.fetched, denied.sent, denied.questions.len()), (1, 0, 0));
    let off = run_with(Some(TaintMode::Off), true, &[]).await;
    assert_eq!((off.sent, off.questions.len()), (1, 0));
    assert_eq!(off.origins, [Some(Origin::Web), Some(Origin::Mcp)], "facts carry the origin in any case");
    let approved = run_with(None, true, &["mcp__mail__send"]).await;
    assert_eq!((approved.sent, approved.questions.len()), (1, 0));
}
