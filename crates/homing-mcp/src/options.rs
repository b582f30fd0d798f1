//! Options of the server: limits and budget of clients, reloading of agents, questions to users.

use std::{fmt, sync::Arc, time::Duration};

use homing::{Homing, Limits, crates::core::BoxFuture};

use crate::ElicitationHandler;

/// Returns a new [`Homing`] if agents have changed, otherwise `None`. It is called every few seconds.
pub type Reload = Arc<dyn Fn() -> BoxFuture<'static, Option<Arc<Homing>>> + Send + Sync>;

/// Options of the server.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Limits of one delegation; unset ones have the usual defaults. A client can only lower them.
    pub limits: Limits,
    /// Budget of one client over all its runs.
    pub budget: ClientBudget,
    /// Model of delegated runs; overrides the agents' own.
    pub model: Option<String>,
    /// Budget account to charge.
    pub account: Option<String>,
    /// Reloads changed agents.
    pub reload: Option<Reload>,
    /// Interval between two calls of `reload`.
    pub reload_every: Duration,
    /// Sends questions to clients. Must be the handler that the [`Homing`] was built with. Without it no questions are asked.
    pub permission_handler: Option<Arc<ElicitationHandler>>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            budget: ClientBudget::default(),
            model: None,
            account: None,
            reload: None,
            reload_every: Duration::from_secs(3),
            permission_handler: None,
        }
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("limits", &self.limits)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

/// The budget of one client over all its runs. A run in progress counts with the whole of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientBudget {
    /// Micro-dollars.
    pub cost_micros: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// Maximum number of runs in progress.
    pub open: usize,
}

impl Default for ClientBudget {
    fn default() -> Self {
        Self { cost_micros: None, tokens: None, open: 64 }
    }
}
