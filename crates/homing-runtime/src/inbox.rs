//! The inbox of a runtime: requests of other processes about its runs.

use std::{sync::Weak, time::Duration};

use homing_core::{
    fact::{CancelledBy, Fact},
    tree::RunTree,
};

use crate::{journal::InboxRequest, runtime::Inner};

/// The time between two looks into the inbox.
const INTERVAL: Duration = Duration::from_millis(250);

/// Carries out the requests of other processes until the runtime is dropped.
pub(crate) async fn watch(inner: Weak<Inner>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let Some(inner) = inner.upgrade() else { return };
        answer(&inner).await;
    }
}

/// Carries out the requests of other processes about runs of `runtime`. Returns when there are no more.
async fn answer(runtime: &Inner) {
    for request in runtime.parts.journal.inbox().await {
        match request {
            InboxRequest::Cancel { tree, run, by } => {
                if let Some(tree) = runtime.tree(tree) {
                    runtime.cancel(&tree, run, CancelledBy::Other(by));
                }
            }
            InboxRequest::Tell { tree, run, message } => {
                if let Some(tree) = runtime.tree(tree) {
                    runtime.send_message(&tree, run, None, &message);
                }
            }
            InboxRequest::Extend { tree, run, more } => {
                if let Some(tree) = runtime.tree(tree) {
                    let is_open = |fold: &RunTree| fold.get(run).is_some_and(|run| run.ended.is_none());
                    let extended = Fact::Extended { more: Box::new(more) };
                    let _ = tree.record_if(run, |fold| if is_open(fold) { Ok(extended) } else { Err(()) });
                }
            }
            InboxRequest::Answer { tree, run, question, answer, by } => {
                if let Some(tree) = runtime.tree(tree) {
                    tree.record_answer(run, question, answer, &by);
                }
            }
        }
    }
}
