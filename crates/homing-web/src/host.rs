//! The interface to the program that the server runs in.

use std::{path::Path, sync::Arc};

use homing::{Homing, crates::core::BoxFuture};

/// Opens projects for the server.
pub trait WebHost: Send + Sync + 'static {
    /// Opens the project of a folder: its agents, models and permissions.
    fn open<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, Result<Arc<dyn OpenProject>, HostError>>;
}

/// The agents, models and permissions of a project.
pub trait OpenProject: Send + Sync + 'static {
    /// Returns the agents with their runtime.
    fn homing(&self) -> &Homing;
}

/// The reason why the host refused something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HostError {
    /// The kind of error.
    pub kind: HostErrorKind,
    /// The failure and its reason.
    pub message: String,
    /// Suggestion for the user.
    pub hint: Option<String>,
}

/// The kinds of errors of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostErrorKind {
    /// The request cannot be carried out as it is.
    Usage,
    /// A policy of the user refuses it.
    Refused,
    /// There is no such thing.
    NotFound,
    /// The configuration, or something else on the machine, does not allow it.
    Unavailable,
}
