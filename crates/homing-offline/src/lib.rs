//! A model that needs no API key and no network.
//!
//! [`OfflineModel`] implements the same trait as a language model, but only follows a few rules: it extracts keywords from
//! the task, calls the real search and read tools, delegates to explorers if it can, and reports the files and lines that
//! match best. Every report begins with a line that says so. It serves to try an installation, and for tests.
//!
//! The reply is a pure function of the transcript, so that a run can be resumed and replayed.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod fill_schema;
mod keywords;
mod plan;
mod search_hits;

use homing_core::{
    BoxFuture,
    message::{Image, Reply},
    model::{AskFailure, Delta, Model, ModelCard, ModelRequest, OnDelta},
};

/// A keyword search that implements [`Model`].
pub struct OfflineModel {
    card: ModelCard,
}

impl OfflineModel {
    /// Creates the model.
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

    fn reads(&self, _: &Image) -> bool {
        false
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
