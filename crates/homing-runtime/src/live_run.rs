//! The part of a run that exists only while it is running.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicBool},
};

use homing_core::{place::Place, tool::ToolState};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    agent_loop::request::LastHash,
    run_tools::{AgentTools, RunTools},
};

/// The in-memory state of a run that has not ended.
pub(crate) struct LiveRun {
    pub(crate) run: Uuid,
    pub(crate) place: Place,
    /// Cancelled when the run must stop; a child's token is derived from its parent's.
    pub(crate) stop: CancellationToken,
    /// Cancelled once the end of the run is recorded.
    pub(crate) over: CancellationToken,
    /// Cancelled when the first part of a reply has arrived, or the first model call has failed.
    pub(crate) first_reply: CancellationToken,
    /// Notified when a message for the run arrives, or a background child ends.
    pub(crate) wake: Notify,
    /// True if the next model call repeats one that a crash interrupted. The provider did not fail, so it is made at once.
    pub(crate) repeats_ask: AtomicBool,
    /// Held by the first of its children that wait for budget to start. The others queue behind it, so that a call that is
    /// settled wakes one of a thousand children, not all.
    pub(crate) admission: Arc<tokio::sync::Mutex<()>>,
    /// Values that the run's tools keep between calls.
    pub(crate) state: Arc<ToolState>,
    /// A file with secrets that the run can read, if one was found; empty until it matters. The search takes a while, so it is
    /// made once.
    pub(crate) secret_in_reach: OnceLock<Option<PathBuf>>,
    pub(crate) tools: OnceLock<Arc<RunTools>>,
    pub(crate) request_hash: LastHash,
    /// The same with the tools that the run has loaded, by their names.
    loaded_tools: Mutex<Option<(Vec<String>, Arc<RunTools>)>>,
    /// The tools that its agent and its ancestors' agents supply; `None` until they are needed.
    agent_tools: Mutex<Option<AgentTools>>,
}

impl LiveRun {
    pub(crate) fn new(run: Uuid, place: Place, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            run,
            place,
            stop,
            over: CancellationToken::new(),
            first_reply: CancellationToken::new(),
            wake: Notify::new(),
            repeats_ask: AtomicBool::new(false),
            admission: Arc::default(),
            state: Arc::default(),
            secret_in_reach: OnceLock::new(),
            tools: OnceLock::new(),
            request_hash: LastHash::default(),
            loaded_tools: Mutex::default(),
            agent_tools: Mutex::default(),
        })
    }

    /// The run's tools after `loaded` were loaded, made again when the list changes.
    pub(crate) fn tools_with(&self, tools: &RunTools, loaded: Vec<String>) -> Arc<RunTools> {
        let mut cached = self.loaded_tools.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some((known, tools)) if *known == loaded => tools.clone(),
            Some(_) | None => cached.insert((loaded.clone(), tools.with_loaded(&loaded))).1.clone(),
        }
    }

    /// The tools that agents supply for this run, made on first use.
    pub(crate) fn agent_tools(&self, make: impl FnOnce() -> AgentTools) -> AgentTools {
        self.agent_tools.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(make).clone()
    }

    /// Drops those tools, and with them the servers they have started.
    pub(crate) fn drop_agent_tools(&self) {
        let dropped = self.agent_tools.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::from([]));
        drop(dropped);
    }
}
