//! State that all clients of one server share: the current agents, the options, and the list of clients.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
    time::Duration,
};

use homing::Homing;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::{client::Client, options::ServerOptions};

/// Maximum number of connected clients. Each uses memory, and a client that reconnects counts as a new one.
const MAX_CLIENTS: usize = 256;

/// State that all clients of one server share.
pub(crate) struct ServerState {
    homing: RwLock<Arc<Homing>>,
    pub(crate) options: ServerOptions,
    pub(crate) clients: Arc<ClientList>,
    /// Identifies this process of the server.
    pub(crate) instance: Uuid,
    pub(crate) audience: Audience,
}

/// The clients that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The one that started it, which may list its runs of earlier processes.
    One,
    /// Several, which may have the same name: each reaches earlier runs only by their ids, which cannot be guessed.
    Many,
}

impl ServerState {
    pub(crate) fn new(homing: Arc<Homing>, options: ServerOptions, audience: Audience) -> Arc<Self> {
        let clients = options.permission_handler.as_ref().map(|handler| handler.clients.clone()).unwrap_or_default();
        Arc::new(Self { homing: RwLock::new(homing), options, clients, instance: Uuid::new_v4(), audience })
    }

    /// Returns the current agents.
    pub(crate) fn homing(&self) -> Arc<Homing> {
        self.homing.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a client; `None` if there are too many.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Arc<Client>> {
        let mut clients = self.clients.lock();
        clients.retain(|client| client.strong_count() > 0);
        if clients.len() >= MAX_CLIENTS {
            return None;
        }
        let client = Arc::new(Client::new(self.clone()));
        clients.push(Arc::downgrade(&client));
        Some(client)
    }

    /// Reloads changed agents at an interval, until the returned task is dropped.
    pub(crate) fn start_reloading(self: &Arc<Self>) -> ReloadTask {
        let Some(reload) = self.options.reload.clone() else { return ReloadTask(None) };
        let (server, every) = (self.clone(), self.options.reload_every.max(Duration::from_millis(10)));
        ReloadTask(Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                if let Some(homing) = reload().await {
                    server.set_homing(homing).await;
                }
            }
        })))
    }

    async fn set_homing(&self, homing: Arc<Homing>) {
        *self.homing.write().unwrap_or_else(PoisonError::into_inner) = homing;
        for client in self.clients.all() {
            client.notify_agents_changed().await;
        }
    }
}

/// The connected clients.
#[derive(Default)]
pub(crate) struct ClientList(Mutex<Vec<Weak<Client>>>);

impl ClientList {
    /// Returns every connected client.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the client that started this run or one above it.
    pub(crate) fn owner(&self, run: Uuid) -> Option<Arc<Client>> {
        self.all().into_iter().find(|client| client.find(run).is_some())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that reloads agents. Dropping it stops the task.
pub(crate) struct ReloadTask(Option<JoinHandle<()>>);

impl Drop for ReloadTask {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}
