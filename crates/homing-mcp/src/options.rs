//! What a host decides about serving: how much a client may spend, who watches for changed agents, who asks people.

use std::{fmt, sync::Arc, time::Duration};

use homing::{Homing, Limits, crates::core::BoxFuture};

use crate::ElicitationHandler;

/// Gives a new [`Homing`] where agents have changed, and nothing where they have not. It is called every few seconds.
pub type Reload = Arc<dyn Fn() -> BoxFuture<'static, Option<Arc<Homing>>> + Send + Sync>;

/// What a host decides about serving.
#[derive(Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The most that one delegation may have; what is left open has the usual defaults. A client can only ask for less.
    pub limits: Limits,
    /// The most that one client may have in all.
    pub budget: ClientBudget,
    /// The model of what clients delegate, whatever the agents' files say.
    pub model: Option<String>,
    /// The account that pays.
    pub account: Option<String>,
    /// Looks for changed agents.
    pub reload: Option<Reload>,
    /// How often it looks.
    pub reload_every: Duration,
    /// Puts questions to clients; the same one that the [`Homing`] was built with. Without it nobody is asked.
    pub asker: Option<Arc<ElicitationHandler>>,
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
            asker: None,
        }
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("limits", &self.limits).field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// The most that one client may have in all. A run that is under way counts with everything it may still spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientBudget {
    /// Micro-dollars.
    pub cost_micros: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// Delegations under way at once.
    pub open: usize,
}

impl Default for ClientBudget {
    fn default() -> Self {
        Self { cost_micros: None, tokens: None, open: 64 }
    }
}
