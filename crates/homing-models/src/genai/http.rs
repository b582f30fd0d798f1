//! The HTTP client that `genai` uses.

use std::{error::Error, sync::OnceLock};

use homing_core::model::ModelError;
use reqwest::Client;

use crate::{
    http::{Peer, Phase, failed, reasons},
    timeouts::Timeouts,
};

/// The client of all models behind `genai`, made on first use.
pub(crate) struct GenaiHttp {
    timeouts: Timeouts,
    proxy: Option<String>,
    client: OnceLock<Result<Client, String>>,
}

impl GenaiHttp {
    pub(crate) fn new(timeouts: Timeouts, proxy: Option<String>) -> Self {
        Self { timeouts, proxy, client: OnceLock::new() }
    }

    /// The client. Like ours, it follows no redirects.
    pub(super) fn client(&self) -> Result<&Client, ModelError> {
        let client = self.client.get_or_init(|| self.build().map_err(|error| reasons(error.source())));
        client.as_ref().map_err(|why| ModelError::Unusable { reason: format!("cannot set up the HTTP client: {why}") })
    }

    fn build(&self) -> Result<Client, reqwest::Error> {
        let builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            // One call is one attempt; the runtime retries and counts.
            .retry(reqwest::retry::never())
            .connect_timeout(self.timeouts.connect)
            .tcp_nodelay(true)
            .user_agent(concat!("homing/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        match &self.proxy {
            None => builder.build(),
            Some(url) => builder.proxy(reqwest::Proxy::all(url)?).build(),
        }
    }
}

/// Classifies a failed connection to `peer`.
pub(super) fn transport(error: &reqwest::Error, peer: &Peer) -> ModelError {
    let phase = if error.is_builder() {
        Phase::Setup
    } else if error.is_connect() {
        Phase::Connect
    } else {
        Phase::Exchange
    };
    failed(phase, error.source(), peer)
}
