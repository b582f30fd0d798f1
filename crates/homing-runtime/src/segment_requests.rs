//! Requests about runs of a tree that several processes drive: carried out here, or passed on to the owner of the run.

use homing_core::{
    fact::Fact,
    tree::{RunTree, segment::segment_of},
};
use uuid::Uuid;

use crate::{
    live_tree::LiveTree,
    placement::SegmentRequest,
    runtime::Runtime,
    segment::{is_driven_elsewhere, read_news, until_done},
};

impl Runtime {
    /// Carries out a request about a run of a segment that this process drives, or passes it on to the owner of the run. If it is
    /// delivered again with the same key, the owner gets it once.
    pub async fn deliver(&self, segment: Uuid, request: SegmentRequest, key: &str) {
        let Some(tree) = self.0.tree(segment) else { return };
        if tree.read(|fold| fold.get(request.run()).is_none())
            && let Err(error) = read_news(&self.0, &tree).await
        {
            tracing::warn!(tree = %tree.id, %error, "cannot read what other workers recorded");
        }
        if is_driven_elsewhere(&tree, request.run()) {
            // The caller forgets the request afterwards, so it must have arrived.
            if let Some((segment, owner)) = tree.segment.as_ref().zip(owner_of(&tree, &request)) {
                let send = || segment.placement.send(tree.id, owner, request.clone(), format!("{key}.{owner}"));
                until_done(send).await;
            }
            return;
        }
        match request {
            SegmentRequest::Cancel { run, by } => {
                self.0.cancel(&tree, run, by);
            }
            SegmentRequest::Tell { run, from, message } => {
                self.0.send_message(&tree, run, from, &message);
            }
            SegmentRequest::Answer { run, question, answer, by } => {
                drop(tree.record_answer(run, question, answer, &by));
            }
            SegmentRequest::Extend { run, more } => {
                let is_open = |fold: &RunTree| fold.get(run).is_some_and(|run| run.ended.is_none());
                let extended = Fact::Extended { more: Box::new(more) };
                let _ = tree.record_if(run, |fold| if is_open(fold) { Ok(extended) } else { Err(()) });
            }
        }
    }
}

/// Passes a message on if another process drives the run; `None` if it does not.
pub(crate) fn told_elsewhere(tree: &LiveTree, run: Uuid, from: Option<Uuid>, message: &str) -> Option<bool> {
    let tell = || SegmentRequest::Tell { run, from, message: message.to_owned() };
    is_driven_elsewhere(tree, run).then(|| pass_on(tree, tell()))
}

/// Passes a request on to the process that drives the run; returns `false` if the run has ended.
pub(crate) fn pass_on(tree: &LiveTree, request: SegmentRequest) -> bool {
    let Some((segment, owner)) = tree.segment.as_ref().zip(owner_of(tree, &request)) else { return false };
    let (placement, id, key) = (segment.placement.clone(), tree.id, fresh_key());
    tokio::spawn(async move { until_done(|| placement.send(id, owner, request.clone(), key.clone())).await });
    true
}

/// The segment of the run that a request is about, if the run is open.
fn owner_of(tree: &LiveTree, request: &SegmentRequest) -> Option<Uuid> {
    let is_open = |fold: &RunTree| fold.get(request.run()).is_some_and(|run| run.ended.is_none());
    tree.read(|fold| is_open(fold).then(|| segment_of(fold, request.run())).flatten())
}

/// The key of a new request. It must differ from all others, and nothing is derived from it.
pub(crate) fn fresh_key() -> String {
    Uuid::now_v7().to_string()
}
