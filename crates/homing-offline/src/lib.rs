//! The model that needs no key and no network: it plans with a few rules, searches and reads with the real tools, sends
//! explorers out where it can, and reports files and lines. It says what it is, and understands nothing.

mod fill_schema;
mod keywords;
mod plan;
mod search_hits;

use homing_core::{
    BoxFuture,
    message::Reply,
    model::{AskFailure, Delta, Model, ModelCard, ModelRequest, OnDelta},
};

/// A keyword search in the shape of a model: a pure function from transcript to reply.
pub struct OfflineModel {
    card: ModelCard,
}

impl OfflineModel {
    /// The offline model.
    pub fn new() -> Self {
        Self { card: ModelCard::free("offline") }
    }
}

impl Default for OfflineModel {
    fn default() -> Self {
        Self::new()
    }
}

impl Model for OfflineModel {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(
        &'a self,
        request: ModelRequest<'a>,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Reply, AskFailure>> {
        Box::pin(async move {
            let mut reply = plan::reply(&request);
            reply.model = Some("offline".to_owned());
            let text = reply.text();
            if !text.is_empty() {
                on_delta(Delta::Text(&text));
            }
            for call in reply.calls() {
                on_delta(Delta::Call(&call.name));
            }
            Ok(reply)
        })
    }
}
