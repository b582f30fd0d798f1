//! The server itself.

use std::sync::Arc;

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    call::{Call, Outcome, json},
    server::Server,
};

/// The server itself.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Info {
    /// Version of Homing.
    version: &'static str,
    /// Project folder in which runs are started.
    project: String,
    /// Journal file.
    journal: String,
    /// Process ID.
    pid: u32,
}

pub(crate) async fn info(server: Arc<Server>, _: Call) -> Outcome {
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        project: server.projects.folder.display().to_string(),
        journal: server.watch.journal.path().display().to_string(),
        pid: std::process::id(),
    };
    json(StatusCode::OK, &info)
}
