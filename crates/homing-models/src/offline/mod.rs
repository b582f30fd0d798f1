//! The model that needs no key and no network: it plans with a few rules, searches and reads with the real tools, sends
//! explorers out where it can, and reports files and lines. It says what it is, and understands nothing.

mod fit;
mod hits;
mod plan;
mod words;

use homing_core::{
    BoxFuture,
    message::Reply,
    model::{Delta, Failure, Model, ModelCard, OnDelta, Request},
};

/// A keyword search in the shape of a model: a pure function from transcript to reply.
pub struct Offline {
    card: ModelCard,
}

impl Offline {
    /// The offline model.
    pub fn new() -> Self {
        Self { card: ModelCard::free("offline") }
    }
}

impl Default for Offline {
    fn default() -> Self {
        Self::new()
    }
}

impl Model for Offline {
    fn card(&self) -> &ModelCard {
        &self.card
    }

    fn reply<'a>(&'a self, request: Request<'a>, on_delta: OnDelta<'a>) -> BoxFuture<'a, Result<Reply, Failure>> {
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
